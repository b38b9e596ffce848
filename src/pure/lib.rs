//! The pure part of Wherry: no clock, file, socket or thread. It is a crate of its own, so that the compiler keeps it free of
//! the rest, and a change in the engine builds only this crate before the simulation runs.
//!
//! - `api`: the pod model, and plain facts about sandboxes and containers;
//! - `engine`: the state machines, which make every decision.

#![forbid(unsafe_code)]

#[path = "../api/mod.rs"]
pub mod api;
#[path = "../engine/mod.rs"]
pub mod engine;
