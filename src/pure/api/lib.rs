//! The pod model of Wherry (`src/api`). It is a crate of its own, because the code that reads and writes Kubernetes
//! objects is large: it is compiled once and not with each change in the engine.

#![forbid(unsafe_code)]

#[path = "../../api/mod.rs"]
pub mod api;
