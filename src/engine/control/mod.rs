//! Requests of users over the control socket and the API for kubectl: drain, undrain, cordon, evictions, retry,
//! ephemeral containers, exec, streams, resource usage and images.
//!
//! A request arrives as `Event::Request` and ends in exactly one `Effect::Answer`, at once or later. If its client
//! disconnects first (`Event::RequestGone`), it ends without an answer. `node::requests` carries out the requests.
//!
//! `request` has the types of requests, `reply` those of answers, `error` the text and the HTTP status of each error,
//! `limits` the limits that the texts mention. `Requests` contains the open requests: `durable` the changes whose
//! records are being written, `exec` the commands, `exec_sync` what their results mean, `stream` the calls for URLs
//! of streams, `usage` the reads of the resource usage, `images` the lists of images.

pub mod durable;
pub mod ephemeral;
pub mod error;
pub mod exec;
pub mod exec_sync;
pub mod images;
pub mod limits;
pub mod reply;
pub mod request;
pub mod request_id;
pub mod retry;
pub mod stream;
pub mod usage;

pub use ephemeral::EphemeralRequest;
pub use error::RequestError;
pub use exec::{Command, ExecCall, ExecRequest};
pub use limits::LONGEST_GRACE;
pub use reply::Reply;
pub use request::Request;
pub use request_id::RequestId;
pub use retry::RetryOutcome;
pub use stream::{StreamCall, StreamKind, StreamRequest, StreamTarget};

use durable::DurableAnswers;
use exec::Execs;
use images::ImageReads;
use serde::Serialize;
use stream::StreamCalls;
use usage::UsageReads;

/// The requests that are not answered yet.
#[derive(Debug, Default, Serialize)]
pub struct Requests {
    pub durable: DurableAnswers,
    pub execs: Execs,
    pub streams: StreamCalls,
    pub usages: UsageReads,
    pub images: ImageReads,
}
