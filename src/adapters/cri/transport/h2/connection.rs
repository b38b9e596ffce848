//! One connection and the calls on it: polls the connection's future by hand, then the calls that it woke, again and
//! again until nobody has anything to do or the turn's budget is used up.
//!
//! The budget is cut into slices, and the calls take what came after each: `h2` holds what was read and not yet taken
//! in a table that never shrinks, so little at a time keeps it small.

use super::call::{self, Active};
use super::socket::{Gauge, Socket};
use super::wake::Woken;
use crate::adapters::cri::transport::{Call, CallError, CallId, Completion};
use crate::api::time::Boot;
use ::h2::client::{self, SendRequest};
use bytes::Bytes;
use mio::{Registry, Token};
use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Bytes moved each way before the calls are looked at.
const SLICE: usize = 16 << 10;
/// Slices in one drive.
const SLICES: usize = 8;

/// What the peer may send unasked, of one answer and of all. It is no memory set aside; larger answers wait for us to
/// take what came.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;

/// Headers of an answer: `grpc-message` is the long one.
const MAX_HEADERS: u32 = 64 << 10;

/// Before the peer's SETTINGS say otherwise. No call is started before they came.
const INITIAL_STREAMS: usize = 100;

pub struct Connection {
    gauge: Gauge,
    h2: Pin<Box<client::Connection<Socket, Bytes>>>,
    send: SendRequest<Bytes>,
    woken: Arc<Woken>,
    calls: BTreeMap<CallId, Active>,
}

/// How a connection is after a drive.
#[derive(Debug)]
pub enum Health {
    /// `again`: it stopped for its budget.
    Good { again: bool },
    /// The peer takes no new calls (GOAWAY, or there are no stream ids left); those in flight go on.
    Leaving { again: bool, why: String },
    /// It is over, and so is every call on it. `polite`: the peer said so before with a GOAWAY.
    Over { why: String, polite: bool },
}

impl Connection {
    pub fn connect(path: &Path, registry: &Registry, token: Token) -> Result<Connection, String> {
        let (socket, gauge) = Socket::connect(path, registry, token).map_err(|e| e.to_string())?;
        gauge.slice(SLICE);
        let handshake = client::Builder::new()
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .initial_max_send_streams(INITIAL_STREAMS)
            .max_header_list_size(MAX_HEADERS)
            .enable_push(false)
            // Limits against a hostile peer, which over years a friendly one would reach as well: late frames of calls
            // that were cancelled, and small frames, which our budget bounds.
            .max_local_error_reset_streams(None)
            .data_frame_budget(usize::MAX)
            .handshake::<Socket, Bytes>(socket);
        // All that it waits for is room for 24 bytes in an empty socket.
        match Box::pin(handshake).as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok((send, h2))) => Ok(Connection {
                gauge,
                h2: Box::pin(h2),
                send,
                woken: Arc::new(Woken::default()),
                calls: BTreeMap::new(),
            }),
            Poll::Ready(Err(e)) => Err(e.to_string()),
            Poll::Pending => Err("the new connection takes no bytes".to_string()),
        }
    }

    /// The peer's SETTINGS arrived: it is there, and not only its socket.
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

    /// Resets the call's stream, and says its path and deadline. None if it is not here.
    pub fn give_up(&mut self, id: CallId) -> Option<(&'static str, Option<Boot>)> {
        let mut call = self.calls.remove(&id)?;
        call.reset();
        Some((call.path(), call.deadline))
    }

    /// Moves bytes and answers; `look`: the socket may have become readable since it was empty. Ended calls are in `out`
    /// and gone from here; their deadlines go to `ended`.
    pub fn drive(&mut self, look: bool, out: &mut Vec<Completion>, ended: &mut Vec<(CallId, Option<Boot>)>) -> Health {
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
                    return self.over(result, out, ended);
                }
            }
            for id in self.woken.take_calls() {
                self.poll_call(id, out, ended);
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

    fn poll_call(&mut self, id: CallId, out: &mut Vec<Completion>, ended: &mut Vec<(CallId, Option<Boot>)>) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        if let Poll::Ready(result) = call.poll(out) {
            ended.push((id, call.deadline));
            self.calls.remove(&id);
            out.push(Completion::Done { id, result });
        }
    }

    /// What was answered completely still counts; the others are lost.
    fn over(
        &mut self,
        result: Result<(), ::h2::Error>,
        out: &mut Vec<Completion>,
        ended: &mut Vec<(CallId, Option<Boot>)>,
    ) -> Health {
        let said = match self.send.poll_ready(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Err(e)) if e.is_go_away() && e.is_remote() => Some(e.to_string()),
            _ => None,
        };
        let polite = said.is_some();
        let why = match (said, result) {
            (Some(said), _) => said,
            (None, Err(e)) => format!("connection lost: {e}"),
            (None, Ok(())) => "connection closed by the peer".to_string(),
        };
        let written = self.gauge.written();
        while let Some((id, mut call)) = self.calls.pop_first() {
            let result = match call.poll(out) {
                Poll::Ready(Err(CallError::Unknown(_))) | Poll::Pending => Err(call.lost(&why, written)),
                Poll::Ready(result) => result,
            };
            ended.push((id, call.deadline));
            out.push(Completion::Done { id, result });
        }
        Health::Over { why, polite }
    }
}
