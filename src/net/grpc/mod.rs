//! The interface between Wherry and gRPC. It transports encoded messages on the event loop.
//!
//! Two implementations pass the same tests: `h2` (the default) and `grpcio` (a build feature). A transport owns one
//! connection to one unix socket, reconnects with a back-off when the connection is lost, and never blocks.

mod call_error;
#[cfg(feature = "grpcio")]
pub mod grpcio;
pub mod h2;
pub mod health;
pub mod once;
pub mod server;
mod wire;

use crate::api::time::Boot;
use bytes::Bytes;
pub use call_error::CallError;
pub use wire::MAX_MESSAGE;

/// Identifies a call. The transport assigns it and never reuses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// One gRPC call.
#[derive(Clone, Debug)]
pub struct Call {
    /// The path of the method, for example `/runtime.v1.RuntimeService/Version`.
    pub path: &'static str,
    /// The request message, without gRPC's five-byte prefix.
    pub body: Bytes,
    /// At the deadline the transport resets the stream, and the call ends as `CallError::Unknown`. None for an endless
    /// stream.
    pub deadline: Option<Boot>,
    /// Whether the answer is a stream: one `Completion::Message` for each message, then `Done` with empty bytes.
    pub server_stream: bool,
    /// An additional header (metadata in gRPC) with a lower-case name. A `user-agent` replaces Wherry's own.
    pub header: Option<(&'static str, &'static str)>,
    /// The maximum size of a message in the answer, in bytes. With `grpcio`, `MAX_MESSAGE` applies instead.
    pub most: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Completion {
    /// The connection was established, for the first time or again.
    Up,
    /// The connection was lost, or the first attempt failed. Further failed attempts are not reported until the next
    /// `Up`.
    Down { why: String },
    /// One message of a server stream.
    Message { id: CallId, message: Bytes },
    /// A call has ended. Each call has exactly one `Done`.
    Done { id: CallId, result: Result<Bytes, CallError> },
}

pub trait Transport {
    /// Starts a call. Without a connection it ends as `NotSent` at the next `drive`.
    fn call(&mut self, call: Call, now: Boot) -> CallId;

    /// Resets the stream of a call. The call ends as `Unknown("cancelled")` unless it has already ended.
    fn cancel(&mut self, id: CallId);

    /// Reads and writes without blocking, within a budget, and appends the completions. Call it when the descriptor (or
    /// waker) is ready, a deadline is due, or calls were started. Returns true if the budget was used up: call it again
    /// without waiting.
    fn drive(&mut self, now: Boot, out: &mut Vec<Completion>) -> bool;

    /// Like `drive`, but for a descriptor that was not reported ready: calls were started, or a deadline is due. It
    /// saves a read(2) from a socket that was empty at the last read, because the edge-triggered poll would report
    /// new data.
    fn flush(&mut self, now: Boot, out: &mut Vec<Completion>) -> bool {
        self.drive(now, out)
    }

    /// Returns when `drive` must be called next: at the earliest deadline of a call or time of a reconnection.
    fn next_deadline(&self) -> Option<Boot>;

    fn is_up(&self) -> bool;
}
