//! Wherry: a Kubernetes node agent for small machines. The map of the crate:
//!
//! - `api`: what a pod is here, and plain facts about sandboxes and containers;
//! - `engine`: the pure state machines; every decision is made there;
//! - `event_loop`: one poll, timers, signals, helpers; knows nothing of pods;
//! - `adapters`: each talks to one thing (the runtime, the manifest directory, ...);
//! - `foreign`: reads paths that Wherry does not own, which may be anything and may hang;
//! - `agent`: carries effects to adapters and their answers back as events;
//! - `commands`, `config`, `metrics`: the command line, the configuration, the numbers.

// The one exception is `adapters::host::own_code`.
#![deny(unsafe_code)]

// Clocks, files, sockets, threads and randomly ordered maps are disallowed (clippy.toml); only `engine` and `api`
// are held to it.
#[allow(clippy::disallowed_types, clippy::disallowed_methods)]
pub mod adapters;
#[allow(clippy::disallowed_types, clippy::disallowed_methods)]
pub mod agent;
pub mod api;
#[allow(clippy::disallowed_types, clippy::disallowed_methods)]
pub mod commands;
#[allow(clippy::disallowed_types, clippy::disallowed_methods)]
pub mod config;
pub mod engine;
#[allow(clippy::disallowed_types, clippy::disallowed_methods)]
pub mod event_loop;
#[allow(clippy::disallowed_types, clippy::disallowed_methods)]
pub mod foreign;
#[allow(clippy::disallowed_types, clippy::disallowed_methods)]
pub mod metrics;
