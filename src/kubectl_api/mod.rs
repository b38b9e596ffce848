//! The Kubernetes API for kubectl, without I/O: what a request means, and what its client gets.
//!
//! A request is a plain value (`request`) and becomes one explicit step (`step`): a response, a request to the engine,
//! a change of a manifest, a log. `Snapshot` is what the API shows: the engine, the events, the settings of the node.
//!
//! `head` checks the client and the target, `answer` finds the first step of what is `asked`. `change` has the rules
//! for a change of an object, `change_queue` lets a helper carry out one after the other, and `settled` answers its
//! client when the engine has accepted the result, or takes the change back. `evictions` and `ephemeral` are requests
//! to the engine. `follow` compares the objects and gives each change a resource version (`followed`); `objects`,
//! `pod_object` and `node` show them in the form of the API; `list` and `watch` write them piece by piece, and
//! `encoded` has the last changes that were written. `event_cache` has the events, `condition_times` the times of the
//! node's conditions. `state` is all that the API keeps.
//!
//! `agent/kube` connects this with the server, and answers what is not an object: metrics, summaries, logs.

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
mod node;
mod objects;
pub mod pod_object;
pub mod request;
pub mod response;
mod settled;
pub mod snapshot;
mod state;
pub mod step;
pub mod watch;

pub use change_queue::{FileChange, RequestedChange};
pub use settled::{AfterChange, EndedChange};
pub use state::KubectlApi;
