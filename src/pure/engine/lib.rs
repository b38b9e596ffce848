//! The engine of Wherry (`src/engine`): the state machines, which make every decision; and the Kubernetes API for
//! kubectl (`src/kubectl_api`), which reads the engine. They are a crate of their own, so that the compiler keeps them
//! free of the rest, and a change in them builds only this crate before the simulation runs.

#![forbid(unsafe_code)]

#[path = "../../engine/mod.rs"]
pub mod engine;
#[path = "../../kubectl_api/mod.rs"]
pub mod kubectl_api;
pub use wherry_api::api;
