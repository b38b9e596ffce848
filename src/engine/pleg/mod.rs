//! The pod lifecycle event generator: detects changes by listing, and caches each pod's last status.

pub mod cache;
pub mod relist;
pub mod strangers;
