//! An HTTPS client for one server that speaks HTTP/2: requests with streamed answers, on one connection or two.
//!
//! - `request`, `event`, `times`: what a caller passes and gets;
//! - `pool`: the queue of calls, the connections that get them, deadlines;
//! - `peer`: the server and its addresses; `opening`: tries the addresses in turn until a connection is open;
//! - `connection`: an open connection and its calls, and the PING that detects a silent peer; `call`: one call.
//!
//! The client connects when there is a call. A connection counts as open when the server's SETTINGS have arrived, and
//! no call is sent before that. If no address can be reached, all waiting calls end as `NotSent`. The client never
//! retries: the caller decides when to try again.

mod call;
mod connection;
mod event;
mod opening;
mod peer;
mod pool;
mod request;
#[cfg(test)]
pub(crate) mod tests;
mod times;

pub use event::Event;
pub use peer::{Host, Peer};
pub use pool::Client;
pub use request::{CallError, CallId, Request};
pub use times::Times;
