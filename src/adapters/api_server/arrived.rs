//! What arrives from the API server, and the limits for its size.

use crate::api::cluster::request::{ApiError, ApiResponse};
use crate::engine::op::OpId;
use std::fmt;

#[derive(Clone, PartialEq)]
pub enum Arrived {
    /// A connection was established for the first time, after a `Disconnected`, or to another address than before.
    Connected { address: String },
    /// The connection was lost, or an attempt to connect failed. Further failed attempts are not reported until the
    /// next `Connected`, except as errors of the requests.
    Disconnected { why: String },
    /// The addresses of the server's host are needed. The caller must call `set_addresses` or `not_resolved`.
    Resolve { host: String, port: u16 },
    /// One item of a list (`BodyDelivery::Items`).
    Item { id: OpId, json: Vec<u8> },
    /// One line of a watch (`BodyDelivery::Lines`).
    Line { id: OpId, json: Vec<u8> },
    /// A request has ended. Each request has exactly one `Done`.
    Done { id: OpId, result: Result<ApiResponse, ApiError> },
}

/// Omits the content of items and lines, which can contain credentials.
impl fmt::Debug for Arrived {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Arrived::Connected { address } => write!(f, "Connected({address})"),
            Arrived::Disconnected { why } => write!(f, "Disconnected({why})"),
            Arrived::Resolve { host, port } => write!(f, "Resolve({host}:{port})"),
            Arrived::Item { id, json } => write!(f, "Item({id}, {} bytes)", json.len()),
            Arrived::Line { id, json } => write!(f, "Line({id}, {} bytes)", json.len()),
            Arrived::Done { id, result } => write!(f, "Done({id}, {result:?})"),
        }
    }
}

/// The maximum sizes of answers, in bytes. A larger answer ends its request as `ApiError::TooLarge`.
#[derive(Clone, Copy, Debug)]
pub struct AnswerLimits {
    /// An answer that is delivered as a whole.
    pub whole: usize,
    /// An item, a line, and the rest of a list.
    pub part: usize,
}

impl Default for AnswerLimits {
    /// Returns limits above the size of the largest object that etcd stores, which is 1.5 MiB.
    fn default() -> AnswerLimits {
        AnswerLimits { whole: 4 << 20, part: 2 << 20 }
    }
}
