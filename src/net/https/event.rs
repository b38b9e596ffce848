//! The events of the client: the state of its connection, and the answers.

use super::request::{CallError, CallId};
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use std::fmt;
use std::net::SocketAddr;

pub enum Event {
    /// A connection was opened for the first time, after a `Down`, or to another address than before.
    Up { address: SocketAddr },
    /// The last connection was lost, or an attempt to connect failed. Further failed attempts are not reported until
    /// the next `Up`, except as errors of the calls.
    Down { why: String },
    /// The client needs the addresses of the host. The caller must call `Client::set_addresses` or
    /// `Client::not_resolved`.
    Resolve { host: String, port: u16 },
    /// The head of an answer.
    Head { id: CallId, status: StatusCode, headers: HeaderMap },
    /// A part of the body of an answer.
    Body { id: CallId, bytes: Bytes },
    /// A call has ended. Each call has exactly one `Done`. Ok means that the answer is complete.
    Done { id: CallId, result: Result<(), CallError> },
}

/// Omits the content of answers, which can contain credentials.
impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Up { address } => write!(f, "Up({address})"),
            Event::Down { why } => write!(f, "Down({why})"),
            Event::Resolve { host, port } => write!(f, "Resolve({host}:{port})"),
            Event::Head { id, status, .. } => write!(f, "Head({id:?}, {status})"),
            Event::Body { id, bytes } => write!(f, "Body({id:?}, {} bytes)", bytes.len()),
            Event::Done { id, result } => write!(f, "Done({id:?}, {result:?})"),
        }
    }
}
