//! An HTTPS client for one server that speaks HTTP/2: requests with streamed answers, on one connection or two.
//!
//! - `pool`: the queue of calls, the connections that get them, deadlines;
//! - `peer`: the server and its addresses; `opening`: opens a connection to one of the addresses, in turn;
//! - `connection`: an open connection and its calls, and the PING that detects a silent peer; `call`: one call.
//!
//! The client connects when there is a call. A connection counts as open when the server's SETTINGS have arrived, and
//! no call is sent before. If no address can be reached, all waiting calls end as `NotSent`. Nothing is repeated: the
//! caller decides when to try again.

mod call;
mod connection;
mod opening;
mod peer;
mod pool;
#[cfg(test)]
pub(crate) mod tests;

pub use peer::{Host, Peer};
pub use pool::Client;

use crate::api::time::Boot;
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

/// Identifies a call. The client assigns it and never reuses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// One request. The server is that of the client. (Without `Debug`: the body can contain credentials.)
pub struct Request {
    pub method: Method,
    /// The path with the query. Starts with `/`.
    pub target: String,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// At the deadline the client resets the stream, and the call ends as `Unknown`. None for an endless answer.
    pub deadline: Option<Boot>,
}

impl Request {
    /// The method and the path without the query, for errors.
    pub fn name(&self) -> String {
        format!("{} {}", self.method, self.target.split('?').next().unwrap_or_default())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallError {
    /// The server has certainly not processed the request.
    NotSent(String),
    /// The request may have reached the server: deadline exceeded, cancelled, connection lost or stream reset.
    Unknown(String),
}

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

/// Time limits. The default values are for a node of a cluster.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Maximum time to open a TCP connection to one address.
    pub connect: Duration,
    /// Maximum time from there to the server's SETTINGS.
    pub greeting: Duration,
    /// A PING is sent if nothing has arrived for this time while a call with a deadline is in flight.
    pub silence: Duration,
    /// Maximum time to the answer of a PING. Without one, the connection is given up.
    pub pong: Duration,
}

impl Default for Times {
    /// Go's HTTP/2 client detects a dead connection only after 45 s (kubernetes#121793), when a node's lease of 40 s
    /// has ended.
    fn default() -> Times {
        Times {
            connect: Duration::from_secs(4),
            greeting: Duration::from_secs(10),
            silence: Duration::from_secs(10),
            pong: Duration::from_secs(5),
        }
    }
}
