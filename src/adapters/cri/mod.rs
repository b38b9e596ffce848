//! The container runtime, over the CRI v1.

pub mod proto;
pub mod transport;
