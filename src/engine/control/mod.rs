//! Requests of users over the control socket and the API for kubectl: drain, undrain, cordon, evictions, retry,
//! ephemeral containers, exec, streams, resource usage and images.
//!
//! A request arrives as `Event::Request` and ends in exactly one `Effect::Answer`, at once or later. If its client
//! disconnects first (`Event::RequestGone`), it ends without an answer. `node::requests` carries the requests out. This
//! module has their types and the requests that are open: `durable` the changes whose records are being written, `exec`
//! the commands, `exec_sync` what their results mean, `stream` the calls for URLs of streams, `usage` the reads of the
//! resource usage, `images` the lists of images. `error` has the text and the HTTP status of each error.

pub mod durable;
pub mod ephemeral;
pub mod error;
pub mod exec;
pub mod exec_sync;
pub mod images;
pub mod retry;
pub mod stream;
pub mod usage;

pub use ephemeral::EphemeralRequest;
pub use error::RequestError;
pub use exec::{Command, ExecCall, ExecRequest};
pub use retry::RetryOutcome;
pub use stream::{StreamCall, StreamKind, StreamRequest, StreamTarget};

use crate::api::control::{Drained, Images, OutputEnd, Usage};
use crate::api::facts::ExecOutput;
use crate::api::names::{FullName, Uid};
use crate::engine::cluster::access::AccessRequest;
use durable::DurableAnswers;
use exec::Execs;
use images::ImageReads;
use serde::Serialize;
use std::time::Duration;
use stream::StreamCalls;
use usage::UsageReads;

/// The longest grace period that a client may request (W27): a week.
pub const LONGEST_GRACE: Duration = Duration::from_secs(7 * 24 * 3600);

/// Identifies a request. The server assigns it and never reuses it within a run of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct RequestId(pub u64);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// W27: stop these pods and keep them stopped. `grace` replaces their own grace periods; it can only shorten a
    /// grace period that has started (W4).
    Drain { uids: Vec<Uid>, grace: Option<Duration> },
    /// W27: allow these pods to run again.
    Undrain { uids: Vec<Uid> },
    /// A10: cordon the node, or end the cordon.
    Cordon { on: bool },
    /// A11: evict this pod. `grace` as for `Drain`.
    Evict { uid: Uid, grace: Option<Duration> },
    /// W4: shorten the grace period of the pods of this name that terminate because they are not desired any more. A
    /// longer one has no effect.
    Shorten { pod: FullName, grace: Duration },
    /// A3: repeat the admission of a rejected pod.
    Retry { uid: Uid },
    /// W29: give a running pod ephemeral containers.
    Ephemeral(EphemeralRequest),
    /// Run a command in a running container.
    Exec(ExecRequest),
    /// Request the URL of a stream from the runtime.
    Stream(StreamRequest),
    /// Read the resource usage of all running containers.
    Usage,
    /// List the images, their users, and what the garbage collection would remove.
    Images,
    /// C6: may this client of the node's server do this?
    Access(AccessRequest),
}

/// The answer to a request that was carried out.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// To `Drain` and `Undrain`: the outcome for each pod, in the order of the request. The records are durable.
    Drained(Drained),
    /// To `Cordon`. The record of the node is durable.
    Cordoned {
        on: bool,
    },
    /// To `Evict`. The record of the pod is durable.
    Evicted {
        pod: FullName,
    },
    /// To `Shorten`. The records of the pods are durable.
    Shortened,
    Retried {
        pod: FullName,
        outcome: RetryOutcome,
    },
    /// To `Ephemeral`: the names of the ephemeral containers that the pod has now, in their order. The record is
    /// durable.
    Ephemeral(Vec<String>),
    Executed(ExecOutput, OutputEnd),
    /// A URL of the runtime's streaming server. It can be used once, within a minute.
    StreamUrl(String),
    Usage(Usage),
    Images(Images),
    /// To `Access`: the name of the user.
    Permitted {
        user: String,
    },
}

/// The requests that are not answered yet.
#[derive(Debug, Default, Serialize)]
pub struct Requests {
    pub durable: DurableAnswers,
    pub execs: Execs,
    pub streams: StreamCalls,
    pub usages: UsageReads,
    pub images: ImageReads,
}
