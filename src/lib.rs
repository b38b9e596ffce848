//! Wherry: a Kubernetes node agent for small machines. The modules of the crate (`api` is a separate crate, and so
//! are `engine` and `kubectl_api` together; their crate roots are in src/pure):
//!
//! - `api`: the pod model, and plain facts about sandboxes and containers;
//! - `engine`: the pure state machines, which make every decision; `engine::node` composes them;
//! - `kubectl_api`: decides what a request of kubectl means and what its client gets, without I/O;
//! - `net`: sockets, HTTP/1.1, gRPC over HTTP/2, back-off; below the adapters and independent of pods;
//! - `event_loop`: one poll, signals and helper threads; independent of pods;
//! - `adapters`: each of them communicates with one external system (the runtime, the manifest directory, ...);
//! - `foreign`: reads paths that Wherry does not own; they can be any type of file and can hang;
//! - `agent`: passes effects to the adapters, and their results to the engine as events;
//! - `commands`, `config`, `metrics`: the command line, the configuration, the metrics.

#![forbid(unsafe_code)]

pub use wherry_api::api;
pub use wherry_engine::{engine, kubectl_api};

// clippy.toml disallows clocks, files, sockets, threads and randomly ordered maps. The restriction applies only to
// `api`, `engine` and `kubectl_api`.
#[allow(clippy::disallowed_types, clippy::disallowed_methods)]
pub mod adapters;
#[allow(clippy::disallowed_types, clippy::disallowed_methods)]
pub mod agent;
#[allow(clippy::disallowed_types, clippy::disallowed_methods)]
pub mod commands;
#[allow(clippy::disallowed_types, clippy::disallowed_methods)]
pub mod config;
#[allow(clippy::disallowed_types, clippy::disallowed_methods)]
pub mod event_loop;
#[allow(clippy::disallowed_types, clippy::disallowed_methods)]
pub mod foreign;
#[allow(clippy::disallowed_types, clippy::disallowed_methods)]
pub mod metrics;
#[allow(clippy::disallowed_types, clippy::disallowed_methods)]
pub mod net;
