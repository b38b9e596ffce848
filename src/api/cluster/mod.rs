//! The API server of a cluster: the requests of a node and their answers, as plain values and texts.

pub mod items;
pub mod lines;
pub mod request;
