//! An open connection and its calls. While a call with a deadline is in flight and nothing arrives, a PING checks
//! whether the server still responds. Without a reply, the connection is closed, because the kernel alone would take
//! minutes to detect the loss.

use super::call::{self, Active};
use super::event::Event;
use super::peer::Peer;
use super::request::{CallError, CallId, Request};
use super::times::Times;
use crate::api::time::Boot;
use crate::net::http2::link::{Health, Link};
use ::h2::{Ping, PingPong};
use mio::Token;
use std::collections::BTreeMap;
use std::task::{Context, Poll, Waker};

/// Maximum number of concurrent calls of a connection. A kube-apiserver permits 100; the difference leaves room for
/// cancelled calls that the server still counts.
const MAX_CALLS: usize = 80;

pub(super) struct HttpsConnection {
    pub(super) token: Token,
    /// The server to which the connection was opened.
    peer: Peer,
    link: Link<CallId>,
    calls: BTreeMap<CallId, Active>,
    /// Whether the socket may have become readable.
    look: bool,
    /// The number of bytes read, and when it last grew.
    heard: (u64, Boot),
    pings: Option<PingPong>,
    /// When the last PING was sent; None if data has arrived since then.
    asked: Option<Boot>,
    times: Times,
}

impl HttpsConnection {
    /// Creates a connection from a link that has received the server's SETTINGS.
    pub(super) fn new(mut link: Link<CallId>, token: Token, peer: Peer, times: Times, now: Boot) -> HttpsConnection {
        let (pings, heard) = (link.ping_pong(), (link.read(), now));
        HttpsConnection { token, peer, link, calls: BTreeMap::new(), look: true, heard, pings, asked: None, times }
    }

    pub(super) fn ready(&mut self) {
        self.look = true;
    }

    pub(super) fn has_room(&self) -> bool {
        self.calls.len() < self.link.max_calls().min(MAX_CALLS)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.calls.is_empty()
    }

    pub(super) fn start(&mut self, id: CallId, request: Request) -> Result<(), CallError> {
        let active = call::start(&self.link, &self.peer, id, request)?;
        self.calls.insert(id, active);
        Ok(())
    }

    /// Returns the deadlines of the calls that have one.
    pub(super) fn deadlines(&self) -> impl Iterator<Item = (Boot, CallId)> {
        self.calls.iter().filter_map(|(id, call)| Some((call.deadline?, *id)))
    }

    /// Returns when the connection must be driven even if nothing arrives.
    pub(super) fn next_ping(&self) -> Option<Boot> {
        match self.asked {
            Some(asked) => Some(asked + self.times.pong),
            None => self.deadlines().next().map(|_| self.heard.1 + self.times.silence),
        }
    }

    /// Removes a call and resets its stream. Returns its name, or None if the call is not on this connection.
    pub(super) fn give_up(&mut self, id: CallId) -> Option<String> {
        let mut call = self.calls.remove(&id)?;
        call.reset();
        Some(call.name().to_owned())
    }

    /// Reads, writes and polls the calls. At `Health::Over`, all calls have ended.
    pub(super) fn drive(&mut self, now: Boot, out: &mut Vec<Event>) -> Health {
        let due = self.next_ping().is_some_and(|at| at <= now);
        if due && self.asked.is_none() {
            self.ask(now);
        }
        // Also read if a time limit has passed: data may have arrived while this process was stopped.
        let look = std::mem::take(&mut self.look) || due;
        let calls = &mut self.calls;
        let mut health = self.link.drive(look, |id| {
            if let Some(call) = calls.get_mut(&id)
                && let Poll::Ready(result) = call.poll(out)
            {
                calls.remove(&id);
                out.push(Event::Done { id, result });
            }
        });
        if self.link.read() > self.heard.0 {
            self.heard = (self.link.read(), now);
            self.asked = None;
        }
        if self.asked.is_some_and(|asked| asked + self.times.pong <= now) {
            let (silence, pong) = (now.since(self.heard.1).as_secs(), self.times.pong.as_secs());
            let why = format!("no data received for {silence} s, and no response to a PING within {pong} s");
            health = Health::Over { why, polite: false };
        }
        if let Health::Over { why, .. } = &health {
            self.end_calls(why, out);
        }
        health
    }

    /// Queues a PING. An earlier PING may still be in flight; a reply to either of them shows that the server
    /// responds.
    fn ask(&mut self, now: Boot) {
        let Some(pings) = &mut self.pings else { return };
        // The reply to the last PING must be taken before the next PING can be sent.
        let _ = pings.poll_pong(&mut Context::from_waker(Waker::noop()));
        let _ = pings.send_ping(Ping::opaque());
        self.asked = Some(now);
    }

    /// Ends all calls of a connection that has ended. A call whose answer is complete still succeeds.
    fn end_calls(&mut self, why: &str, out: &mut Vec<Event>) {
        let written = self.link.written();
        while let Some((id, mut call)) = self.calls.pop_first() {
            let result = match call.poll(out) {
                Poll::Ready(Err(CallError::Unknown(_))) | Poll::Pending => Err(call.lost(why, written)),
                Poll::Ready(result) => result,
            };
            out.push(Event::Done { id, result });
        }
    }
}
