//! One connection and its calls. A drive polls the connection's future, then the calls that it woke, and repeats this until
//! nothing is woken or the budget is used up.
//!
//! The budget is split into slices, and the calls consume the data after each slice: `h2` keeps unconsumed frames in a table
//! that never shrinks, and small slices keep it small.

use super::call::{self, Active};
use super::socket::{Gauge, Socket};
use super::wake::Woken;
use crate::api::time::Boot;
use crate::net::grpc::{Call, CallError, CallId, Completion};
use crate::net::stream::Stream;
use ::h2::client::{self, SendRequest};
use bytes::Bytes;
use mio::{Registry, Token};
use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Bytes read and bytes written before the calls are polled.
const SLICE: usize = 16 << 10;
/// Maximum number of slices in one drive.
const SLICES: usize = 8;

/// Flow-control windows of one answer and of all answers together, in bytes. No memory is reserved for them. The peer sends the
/// rest of a larger answer as the received data is consumed.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;

/// Maximum size of an answer's headers in bytes. `grpc-message` can be long.
const MAX_HEADERS: u32 = 64 << 10;

/// Maximum number of concurrent streams until the peer's SETTINGS arrive. No call is started before that.
const INITIAL_STREAMS: usize = 100;

pub struct Connection {
    gauge: Gauge,
    h2: Pin<Box<client::Connection<Socket, Bytes>>>,
    send: SendRequest<Bytes>,
    woken: Arc<Woken>,
    calls: BTreeMap<CallId, Active>,
}

/// The state of a connection after a drive.
#[derive(Debug)]
pub enum Health {
    /// `again`: the budget was used up.
    Good { again: bool },
    /// The connection accepts no new calls (GOAWAY, or no stream ids are left). The calls in flight continue.
    Leaving { again: bool, why: String },
    /// The connection and all its calls have ended. `polite`: the peer sent a GOAWAY before.
    Over { why: String, polite: bool },
}

impl Connection {
    pub fn connect(path: &Path, registry: &Registry, token: Token) -> Result<Connection, String> {
        let (socket, gauge) = Socket::connect(path, registry, token).map_err(|e| e.to_string())?;
        Connection::new(socket, gauge)
    }

    /// Over a stream that is connected, and registered under the token.
    pub fn on(stream: Stream, registry: &Registry, token: Token) -> Result<Connection, String> {
        let (socket, gauge) = Socket::on(stream, registry, token).map_err(|e| e.to_string())?;
        Connection::new(socket, gauge)
    }

    fn new(socket: Socket, gauge: Gauge) -> Result<Connection, String> {
        gauge.slice(SLICE);
        let handshake = client::Builder::new()
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .initial_max_send_streams(INITIAL_STREAMS)
            .max_header_list_size(MAX_HEADERS)
            .enable_push(false)
            // These limits protect against a hostile peer, but over years a friendly peer would reach them, too: they count late
            // frames of cancelled calls, and small frames, which the budget bounds anyway.
            .max_local_error_reset_streams(None)
            .data_frame_budget(usize::MAX)
            .handshake::<Socket, Bytes>(socket);
        // The handshake only writes 24 bytes to an empty socket buffer, so it does not have to wait.
        match Box::pin(handshake).as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok((send, h2))) => Ok(Connection {
                gauge,
                h2: Box::pin(h2),
                send,
                woken: Arc::new(Woken::default()),
                calls: BTreeMap::new(),
            }),
            Poll::Ready(Err(e)) => Err(e.to_string()),
            Poll::Pending => Err("the new connection accepts no data".to_string()),
        }
    }

    /// Whether the peer's SETTINGS have arrived, which shows that the peer accepted the connection.
    pub fn is_greeted(&self) -> bool {
        self.gauge.heard()
    }

    pub fn has_room(&self) -> bool {
        self.calls.len() < self.send.current_max_send_streams()
    }

    pub fn is_idle(&self) -> bool {
        self.calls.is_empty()
    }

    pub fn start(&mut self, id: CallId, call: Call, now: Boot) -> Result<(), CallError> {
        let active = call::start(&self.send, &self.woken, self.gauge.written(), id, call, now)?;
        self.calls.insert(id, active);
        Ok(())
    }

    /// The calls that have a deadline.
    pub fn deadlines(&self) -> impl Iterator<Item = (Boot, CallId)> {
        self.calls.iter().filter_map(|(id, call)| Some((call.deadline?, *id)))
    }

    /// Removes a call and resets its stream. Returns its path, or None if the call is not on this connection.
    pub fn give_up(&mut self, id: CallId) -> Option<&'static str> {
        let mut call = self.calls.remove(&id)?;
        call.reset();
        Some(call.path())
    }

    /// Reads, writes and polls the calls. `look` means that the socket may have become readable since the last read. Ended calls
    /// are removed; their completions are appended to `out`.
    pub fn drive(&mut self, look: bool, out: &mut Vec<Completion>) -> Health {
        if look {
            self.gauge.begin();
        }
        self.gauge.slice(SLICE);
        let mut slices = 1;
        let mut poll = true;
        while poll || self.woken.any() {
            if self.woken.take_connection() || poll {
                let waker = Waker::from(self.woken.clone());
                if let Poll::Ready(result) = self.h2.as_mut().poll(&mut Context::from_waker(&waker)) {
                    return self.over(result, out);
                }
            }
            for id in self.woken.take_calls() {
                self.poll_call(id, out);
            }
            poll = self.gauge.stopped() && slices < SLICES;
            if poll {
                slices += 1;
                self.gauge.slice(SLICE);
            }
        }
        let again = self.gauge.stopped();
        match self.send.poll_ready(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Err(e)) => Health::Leaving { again, why: e.to_string() },
            _ => Health::Good { again },
        }
    }

    fn poll_call(&mut self, id: CallId, out: &mut Vec<Completion>) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        if let Poll::Ready(result) = call.poll(out) {
            self.calls.remove(&id);
            out.push(Completion::Done { id, result });
        }
    }

    /// Ends all calls of a connection that has ended. A complete answer still counts.
    fn over(&mut self, result: Result<(), ::h2::Error>, out: &mut Vec<Completion>) -> Health {
        let reported = match self.send.poll_ready(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Err(e)) if e.is_go_away() && e.is_remote() => Some(e.to_string()),
            _ => None,
        };
        let polite = reported.is_some();
        let why = match (reported, result) {
            (Some(reported), _) => reported,
            (None, Err(e)) => format!("connection lost: {e}"),
            (None, Ok(())) => "connection closed by the peer".to_string(),
        };
        let written = self.gauge.written();
        while let Some((id, mut call)) = self.calls.pop_first() {
            let result = match call.poll(out) {
                Poll::Ready(Err(CallError::Unknown(_))) | Poll::Pending => Err(call.lost(&why, written)),
                Poll::Ready(result) => result,
            };
            out.push(Completion::Done { id, result });
        }
        Health::Over { why, polite }
    }
}
