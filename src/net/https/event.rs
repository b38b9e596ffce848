//! What the client reports: its connection, and the answers.

use super::request::{CallError, CallId};
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use std::fmt;
use std::net::SocketAddr;

pub enum Event {
    /// A connection was opened while there was none, or to another address than before.
    Up { address: SocketAddr },
    /// The last connection was lost, or an attempt to connect failed. Further failed attempts are not reported until
    /// the next `Up`, except by the ends of the calls.
    Down { why: String },
    /// The addresses of the host are needed: `Client::set_addresses` or `Client::not_resolved` has to be called.
    Resolve { host: String, port: u16 },
    /// The head of an answer.
    Head { id: CallId, status: StatusCode, headers: HeaderMap },
    /// A part of the body of an answer.
    Body { id: CallId, bytes: Bytes },
    /// A call has ended. Each call has exactly one `Done`. Ok: the answer is complete.
    Done { id: CallId, result: Result<(), CallError> },
}

/// Without the content of an answer, which can contain credentials.
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
