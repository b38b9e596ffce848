//! The pod lifecycle event generator: notices by listing what changed in the runtime, and keeps each pod's last status.

pub mod cache;
pub mod relist;
pub mod strangers;
