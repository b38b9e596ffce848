//! The client side of the container runtime interface (CRI v1).

pub mod answers;
pub mod client;
pub mod events;
pub mod proto;
pub mod requests;
pub mod runtime_check;
