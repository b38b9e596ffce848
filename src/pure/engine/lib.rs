//! The engine of Wherry (`src/engine`): the state machines, which make every decision. It is a crate of its own, so
//! that the compiler keeps it free of the rest, and a change in it builds only this crate before the simulation runs.

#![forbid(unsafe_code)]

#[path = "../../engine/mod.rs"]
pub mod engine;
pub use wherry_api::api;
