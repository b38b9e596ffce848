//! The container runtime, over the CRI v1.

pub mod answers;
pub mod client;
pub mod events;
pub mod preflight;
pub mod proto;
pub mod requests;
pub mod transport;
