//! One call to a gRPC server over a TCP connection of its own, without TLS.

use super::h2::connection::{Connection, Health};
use super::{Call, CallError, CallId, Completion};
use crate::api::time::Boot;
use crate::net::stream::{Stream, connected};
use bytes::Bytes;
use mio::net::TcpStream;
use mio::{Registry, Token};
use std::io;

/// A call in progress. Dropping it closes the connection.
pub enum Once {
    Connecting { stream: TcpStream, call: Call },
    Open(Box<Connection>),
    Over,
}

/// Why a call has no answer.
#[derive(Debug)]
pub enum Failure {
    /// The connection could not be opened.
    Connect(io::Error),
    Call(CallError),
}

impl Once {
    /// `stream` is being connected, and registered under the token.
    pub fn new(stream: TcpStream, call: Call) -> Once {
        Once::Connecting { stream, call }
    }

    /// The server has accepted the connection.
    pub fn is_connected(&self) -> bool {
        !matches!(self, Once::Connecting { .. })
    }

    /// Reads and writes what is possible. None: the answer is not complete.
    pub fn advance(&mut self, registry: &Registry, token: Token) -> Option<Result<Bytes, Failure>> {
        match std::mem::replace(self, Once::Over) {
            Once::Connecting { stream, call } => match connected(&stream) {
                Ok(false) => {
                    *self = Once::Connecting { stream, call };
                    None
                }
                Ok(true) => match open(stream, call, registry, token) {
                    Ok(connection) => self.drive(connection),
                    Err(e) => Some(Err(Failure::Call(e))),
                },
                Err(e) => Some(Err(Failure::Connect(e))),
            },
            Once::Open(connection) => self.drive(connection),
            Once::Over => Some(Err(Failure::Call(CallError::Unknown("the call is over".to_owned())))),
        }
    }

    fn drive(&mut self, mut connection: Box<Connection>) -> Option<Result<Bytes, Failure>> {
        let mut out = Vec::new();
        loop {
            let health = connection.drive(true, &mut out);
            if let Some(Completion::Done { result, .. }) = out.pop() {
                return Some(result.map_err(Failure::Call));
            }
            match health {
                Health::Good { again: true } | Health::Leaving { again: true, .. } => {}
                Health::Good { .. } | Health::Leaving { .. } => {
                    *self = Once::Open(connection);
                    return None;
                }
                Health::Over { why, .. } => return Some(Err(Failure::Call(CallError::Unknown(why)))),
            }
        }
    }
}

fn open(stream: TcpStream, call: Call, registry: &Registry, token: Token) -> Result<Box<Connection>, CallError> {
    let mut connection =
        Connection::on(Stream::Tcp(stream), registry, token).map_err(|why| CallError::Unknown(why.to_string()))?;
    // (The boot time matters only for a deadline, which the caller keeps.)
    connection.start(CallId(0), call, Boot(0))?;
    Ok(Box::new(connection))
}
