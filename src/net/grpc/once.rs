//! A single call to a gRPC server over its own TCP connection, without TLS.

use super::h2::connection::{GrpcConnection, Health};
use super::{Call, CallError, CallId, Completion};
use crate::api::time::Boot;
use crate::net::budget;
use crate::net::stream::{Stream, connected};
use bytes::Bytes;
use mio::net::TcpStream;
use mio::{Registry, Token};
use std::io;

/// The maximum number of slices (see `Link`) in one turn. Each frame of a flood can require a reply, and many calls
/// can be flooded at the same time.
const SLICES: usize = 1;

/// A call in progress. Dropping it closes the connection.
pub enum Once {
    Connecting { stream: TcpStream, call: Call },
    Open(Box<GrpcConnection>),
    Over,
}

/// The reason why a call failed.
#[derive(Debug)]
pub enum CallFailure {
    /// The connection could not be opened.
    Connect(io::Error),
    Call(CallError),
}

/// The result of `Once::advance`.
pub enum CallProgress {
    /// `again`: the budget of this turn ran out, so call again in the next turn, because the poll does not report the
    /// remaining input.
    Pending {
        again: bool,
    },
    Done(Result<Bytes, CallFailure>),
}

impl Once {
    /// Creates a call. `stream` is connecting, and is registered under the token that `advance` gets.
    pub fn new(stream: TcpStream, call: Call) -> Once {
        Once::Connecting { stream, call }
    }

    /// Reports whether the server has accepted the connection.
    pub fn is_connected(&self) -> bool {
        !matches!(self, Once::Connecting { .. })
    }

    /// Reads and writes what is possible within the budget of a turn.
    pub fn advance(&mut self, registry: &Registry, token: Token) -> CallProgress {
        match std::mem::replace(self, Once::Over) {
            Once::Connecting { stream, call } => match connected(&stream) {
                Ok(false) => {
                    *self = Once::Connecting { stream, call };
                    CallProgress::Pending { again: false }
                }
                Ok(true) => match open(stream, call, registry, token) {
                    Ok(connection) => self.drive(connection),
                    Err(e) => CallProgress::Done(Err(CallFailure::Call(e))),
                },
                Err(e) => CallProgress::Done(Err(CallFailure::Connect(e))),
            },
            Once::Open(connection) => self.drive(connection),
            Once::Over => unknown("the call is over".to_owned()),
        }
    }

    fn drive(&mut self, mut connection: Box<GrpcConnection>) -> CallProgress {
        let mut out = Vec::new();
        let health = connection.drive(true, &mut out);
        if let Some(Completion::Done { result, .. }) = out.pop() {
            return CallProgress::Done(result.map_err(CallFailure::Call));
        }
        match health {
            Health::Over { why, .. } => unknown(why),
            // The server sends too much, for example PINGs without end.
            Health::Good { .. } | Health::Leaving { .. } if connection.read() > budget::MOST => {
                unknown(budget::too_much())
            }
            Health::Good { again } | Health::Leaving { again, .. } => {
                *self = Once::Open(connection);
                CallProgress::Pending { again }
            }
        }
    }
}

fn unknown(why: String) -> CallProgress {
    CallProgress::Done(Err(CallFailure::Call(CallError::Unknown(why))))
}

fn open(stream: TcpStream, call: Call, registry: &Registry, token: Token) -> Result<Box<GrpcConnection>, CallError> {
    let mut connection =
        GrpcConnection::on(Stream::Tcp(stream), registry, token).map_err(|why| CallError::Unknown(why.to_string()))?;
    connection.limit_slices(SLICES);
    // The time matters only for a call with a deadline. This call has none, because the caller enforces its deadline.
    connection.start(CallId(0), call, Boot(0))?;
    Ok(Box::new(connection))
}
