//! The core without I/O: given an event and the time, it returns effects. It never reads a clock, a file or a socket.
//!
//! Read `event`, `effect` and `op` first, then `node`, which composes the machines:
//! - `desired`, `pod`, `admission`, `shutdown`, `pleg`, `runtime`, `control`: docs/architecture.md describes them;
//! - `workloads`: Deployments and the like, and the pods that they create;
//! - `eviction`: node-pressure eviction;
//! - `log_rotation`: container log rotation;
//! - `devices`: the devices of device plugins; `user_namespaces`: the ids of pods with `hostUsers: false`;
//! - `probe`: container probes; `handler`: the handlers of probes and hooks; `target`: their destinations;
//!   `handler_result`: how their results are judged;
//! - `container_ends`: reports the termination of each container once;
//! - `orphaned_directories`: directories without a known pod; `slots`: limits on calls in flight;
//! - `provider_cache`: the responses of credential providers;
//! - `record_fields`, `record_error`, `nanoseconds`: the format of records on disk; `rewriting`: when one is written;
//! - `context`, `outbox`, `owner` (operations in flight), `severity`, `timers`, `rng`, `config` with `image_gc_policy`
//!   and `rotation_policy`: parts that several machines use.

pub mod admission;
pub mod claims;
pub mod cluster;
pub mod config;
pub mod container_ends;
pub mod context;
pub mod control;
pub mod cordon;
pub mod desired;
pub mod devices;
pub mod effect;
pub mod event;
pub mod eviction;
pub mod handler;
pub mod handler_result;
pub mod image_gc_policy;
pub mod images;
pub mod log_rotation;
pub mod machine_addresses;
pub mod nanoseconds;
pub mod node;
pub mod op;
pub mod orphaned_directories;
pub mod outbox;
pub mod owner;
pub mod pleg;
pub mod pod;
pub mod probe;
pub mod provider_cache;
pub mod record_error;
pub mod record_fields;
pub mod rewriting;
pub mod rng;
pub mod rotation_policy;
pub mod runtime;
pub mod services;
pub mod severity;
pub mod shutdown;
pub mod slots;
pub mod target;
pub mod timers;
pub mod user_namespaces;
pub mod workloads;
