//! Each adapter talks to one thing, and knows no other adapter.
pub mod cri;
pub mod manifests;
