//! Each adapter talks to one thing, and knows no other adapter.

pub mod bus;
pub mod cri;
pub mod host;
pub mod logs;
pub mod manifests;
pub mod pidfds;
pub mod pod_files;
pub mod records;
pub mod server;
pub mod systemd;
