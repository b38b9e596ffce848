//! The seam between wherry and gRPC: bytes out, bytes in, on the event loop's one poll.
//!
//! Two implementations pass the same tests: `h2` (the default) and `grpcio` (a build feature). A transport owns one
//! connection to one unix socket, makes it again with a back-off when it is lost, and never blocks.

pub mod backoff;
mod grpc;
#[cfg(feature = "grpcio")]
pub mod grpcio;
pub mod h2;

use crate::api::time::Boot;
use bytes::Bytes;

/// Given by the transport, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// One gRPC call.
#[derive(Clone, Debug)]
pub struct Call {
    /// `/runtime.v1.RuntimeService/Version`
    pub path: &'static str,
    /// The request message, without gRPC's five-byte prefix.
    pub body: Bytes,
    /// When it is given up (its stream is reset) and ends as `CallError::Unknown`. None for an endless stream.
    pub deadline: Option<Boot>,
    /// The answer is a stream: a `Completion::Message` each, then `Done` with empty bytes.
    pub server_stream: bool,
    /// One more header (gRPC calls it metadata), in lower case.
    pub header: Option<(&'static str, &'static str)>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum CallError {
    /// Certainly not sent, for lack of a connection.
    NotSent(String),
    /// Certainly not processed although there is a connection: the message is too large or cannot be encoded, or the peer
    /// refused the stream.
    Refused(String),
    /// May have reached the peer: deadline, cancelled, connection lost, stream reset.
    Unknown(String),
    /// A gRPC status other than OK, its message percent-decoded.
    Status { code: u32, message: String },
}

#[derive(Clone, Debug, PartialEq)]
pub enum Completion {
    /// The connection is there (also after it was lost).
    Up,
    /// It was lost, or could not be made; told once for each time that it was up, and for the first failure.
    Down { why: String },
    /// One message of a server stream.
    Message { id: CallId, message: Bytes },
    /// The one end of each call.
    Done { id: CallId, result: Result<Bytes, CallError> },
}

pub trait Transport {
    /// Starts a call. While there is no connection it ends as `NotSent` at the next `drive`.
    fn call(&mut self, call: Call, now: Boot) -> CallId;

    /// Resets the call's stream; it ends as `Unknown("cancelled")` unless its end was there already.
    fn cancel(&mut self, id: CallId);

    /// Its descriptor (or waker) is ready, a deadline is due, or calls were made: move bytes, within a budget, and
    /// append what came of it. True if it stopped for its budget and wants to be driven again without waiting.
    fn drive(&mut self, now: Boot, out: &mut Vec<Completion>) -> bool;

    /// The same where nothing said that the descriptor is ready: calls were made, or a deadline is due. Spares a look at
    /// a socket that was empty when it was looked at last (the poll is edge-triggered: it tells of what came since).
    fn flush(&mut self, now: Boot, out: &mut Vec<Completion>) -> bool {
        self.drive(now, out)
    }

    /// When `drive` must be called at the latest: the earliest call deadline or reconnection.
    fn next_deadline(&self) -> Option<Boot>;

    fn is_up(&self) -> bool;
}
