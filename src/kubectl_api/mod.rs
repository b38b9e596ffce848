//! The Kubernetes API for kubectl, without I/O: decides what a request means and what its client gets.
//!
//! A request is a plain value (`request`) and becomes one explicit step (`step`), such as a response, a request to
//! the engine, a change to a manifest, or a log. `Snapshot` contains what the API shows: the engine, the events, the
//! settings of the node.
//!
//! `head` checks the client and the target, and `answer` finds the first step of a request (`asked`). `change` has
//! the rules for changing an object (`scaling`: its scale), `change_queue` has a helper carry out one change at a time,
//! and `settled` responds to the client when the engine has accepted the result, or reverts the change. `evictions`
//! and `ephemeral` are requests to the engine. `follow` compares the objects and gives each change a resource version
//! (`followed`); `objects`, `namespaces`, `pod_object` and `node` convert them to objects of the API; `list` and
//! `watch` write them piece by piece, and `encoded` caches the last changes that were written. `event_cache` has the
//! events, `condition_times` the times of the node's conditions. `state` holds all state of the API.
//!
//! `agent/kube` connects this module to the server, and serves everything that is not an object: metrics, summaries,
//! logs.

mod answer;
mod asked;
mod change;
mod change_queue;
pub mod condition_times;
mod encoded;
mod ephemeral;
pub mod event_cache;
mod evictions;
mod follow;
mod followed;
pub mod form;
mod head;
mod keys;
pub mod list;
pub mod log_request;
mod namespaces;
mod node;
mod objects;
pub mod pod_object;
pub mod request;
pub mod response;
mod scaling;
mod settled;
pub mod snapshot;
mod state;
pub mod step;
pub mod watch;

pub use change_queue::{FileChange, RequestedChange};
pub use settled::{AfterChange, EndedChange};
pub use state::KubectlApi;
