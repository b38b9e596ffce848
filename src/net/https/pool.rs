//! The connections of a client. New calls go to the first connection with a free stream. If there is no free stream,
//! a second connection is opened. If both connections are full, calls wait.
//!
//! After a GOAWAY the connection gets no new calls: the next call opens a new one, and the old one is closed when its
//! calls have ended. This is reported as Down only if the new connection fails. The same happens when the caller
//! replaces the server.

use super::connection::HttpsConnection;
use super::event::Event;
use super::opening::{Opening, OpeningProgress};
use super::peer::{Addresses, Host, Peer};
use super::request::{CallError, CallId, Request};
use super::times::Times;
use crate::api::ordered::OrderSlice;
use crate::api::time::Boot;
use crate::net::http2::link::Health;
use crate::net::tls::session::ByteCount;
use mio::{Registry, Token};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

pub struct Client {
    peer: Peer,
    addresses: Addresses,
    times: Times,
    tokens: [Token; 2],
    slots: [Slot; 2],
    /// Connections that get no new calls, until their calls have ended.
    leaving: Vec<HttpsConnection>,
    /// Calls that wait for a connection or for a free stream.
    queue: VecDeque<(CallId, Request)>,
    next_id: u64,
    /// The state that was reported last; None before the first report.
    told: Option<Told>,
    /// Events that the next drive returns.
    ended: Vec<Event>,
    /// Whether the caller has requested something since the last drive.
    requested: bool,
    byte_count: Arc<ByteCount>,
}

enum Slot {
    Empty,
    Opening(Box<Opening>),
    Open(Box<HttpsConnection>),
}

#[derive(PartialEq)]
enum Told {
    Up(SocketAddr),
    Down,
}

impl Client {
    /// Creates a client. The first call connects. The client registers its sockets under the tokens, which must have
    /// no other user.
    pub fn new(peer: Peer, tokens: [Token; 2], times: Times) -> Client {
        Client {
            addresses: Addresses::of(&peer),
            peer,
            times,
            tokens,
            slots: [Slot::Empty, Slot::Empty],
            leaving: Vec::new(),
            queue: VecDeque::new(),
            next_id: 0,
            told: None,
            ended: Vec::new(),
            requested: false,
            byte_count: Arc::default(),
        }
    }

    /// Returns the byte count of all connections so far.
    pub fn byte_count(&self) -> &ByteCount {
        &self.byte_count
    }

    /// Starts a call. It is sent by one of the next drives.
    pub fn call(&mut self, request: Request) -> CallId {
        let id = CallId(self.next_id);
        self.next_id += 1;
        self.queue.push_back((id, request));
        self.requested = true;
        id
    }

    /// Resets the stream of a call. The call ends as `Unknown("...: cancelled")`, or as `NotSent` if it was waiting,
    /// unless it has already ended.
    pub fn cancel(&mut self, id: CallId) {
        self.end(id, "cancelled");
    }

    /// Replaces the server: new connections go to `peer`, and the existing ones are closed when their calls have
    /// ended.
    pub fn replace(&mut self, peer: Peer) {
        if (&peer.host, peer.port) != (&self.peer.host, self.peer.port) {
            self.addresses = Addresses::of(&peer);
        }
        self.peer = peer;
        for slot in &mut self.slots {
            if let Slot::Open(connection) = std::mem::replace(slot, Slot::Empty) {
                self.leaving.push(*connection);
            }
        }
        self.requested = true;
    }

    /// Sets the addresses of the server's name. If there are none, those of the last look-up stay. Has no effect if
    /// `host` is not, or no longer, the server.
    pub fn set_addresses(&mut self, host: &str, addresses: Vec<SocketAddr>) {
        if !self.is_named(host) {
            return;
        }
        if !self.addresses.resolved(addresses) {
            self.refuse_queue("the name resolves to no address");
        }
        self.requested = true;
    }

    /// Handles a failed look-up of the server's name. The addresses of the last look-up stay.
    pub fn not_resolved(&mut self, host: &str, why: &str) {
        if !self.is_named(host) {
            return;
        }
        if !self.addresses.resolved(Vec::new()) {
            self.refuse_queue(&format!("failed to look up the name: {why}"));
        }
        self.requested = true;
    }

    fn is_named(&self, host: &str) -> bool {
        matches!(&self.peer.host, Host::Name(name) if name == host)
    }

    pub fn owns(&self, token: Token) -> bool {
        self.tokens.contains(&token)
    }

    /// Notes that the poll has reported a socket with this token.
    pub fn ready(&mut self, token: Token) {
        for slot in &mut self.slots {
            match slot {
                Slot::Open(connection) if connection.token == token => connection.ready(),
                Slot::Opening(opening) if opening.token == token => opening.ready(),
                _ => {}
            }
        }
        self.leaving.iter_mut().filter(|c| c.token == token).for_each(HttpsConnection::ready);
    }

    /// Reads and writes without blocking, within a budget, and appends the events. Call it when a socket is ready, a
    /// deadline is due, or calls were started. Returns true if the budget was used up: call it again without waiting.
    pub fn drive(&mut self, registry: &Registry, now: Boot, out: &mut Vec<Event>) -> bool {
        self.requested = false;
        self.expire(now);
        self.open_if_needed(registry, now, out);
        self.start_queued();
        let mut again = false;
        for at in 0..self.slots.len() {
            again |= self.drive_slot(at, registry, now, out);
        }
        self.leaving.retain_mut(|connection| match connection.drive(now, out) {
            Health::Over { .. } => false,
            Health::Good { again: more } | Health::Leaving { again: more, .. } => {
                again |= more;
                !connection.is_idle()
            }
        });
        // A new connection and ended calls provide streams for waiting calls.
        again |= self.open_if_needed(registry, now, out);
        again |= self.start_queued();
        self.close_second();
        out.append(&mut self.ended);
        again
    }

    /// Returns when `drive` must be called next.
    pub fn next_deadline(&self) -> Option<Boot> {
        if self.requested || !self.ended.is_empty() {
            return Some(Boot(0));
        }
        let slots = self.slots.iter().filter_map(|slot| match slot {
            Slot::Empty => None,
            Slot::Opening(opening) => Some(opening.until),
            Slot::Open(connection) => connection.next_ping(),
        });
        let leaving = self.leaving.iter().filter_map(HttpsConnection::next_ping);
        slots.chain(leaving).chain(self.deadlines().map(|(at, _)| at)).min()
    }

    fn connections(&self) -> impl Iterator<Item = &HttpsConnection> {
        let open = self.slots.iter().filter_map(|slot| match slot {
            Slot::Open(connection) => Some(&**connection),
            Slot::Empty | Slot::Opening(_) => None,
        });
        open.chain(&self.leaving)
    }

    fn deadlines(&self) -> impl Iterator<Item = (Boot, CallId)> {
        let queued = self.queue.iter().filter_map(|(id, request)| Some((request.deadline?, *id)));
        self.connections().flat_map(HttpsConnection::deadlines).chain(queued)
    }

    /// Ends calls whose deadline has passed.
    fn expire(&mut self, now: Boot) {
        let mut late: Vec<(Boot, CallId)> = self.deadlines().filter(|(at, _)| *at <= now).collect();
        late.order();
        for (_, id) in late {
            self.end(id, "deadline exceeded");
        }
    }

    /// Removes a call and resets its stream.
    fn end(&mut self, id: CallId, why: &str) {
        let error = if let Some(at) = self.queue.iter().position(|(queued, _)| *queued == id) {
            let name = self.queue.remove(at).map(|(_, request)| request.name()).unwrap_or_default();
            CallError::NotSent(format!("{name}: {why} while the call waited for a connection to {}", self.peer))
        } else {
            let open = self.slots.iter_mut().filter_map(|slot| match slot {
                Slot::Open(connection) => Some(&mut **connection),
                Slot::Empty | Slot::Opening(_) => None,
            });
            let Some(name) = open.chain(&mut self.leaving).find_map(|connection| connection.give_up(id)) else {
                return;
            };
            CallError::Unknown(format!("{name}: {why}"))
        };
        self.ended.push(Event::Done { id, result: Err(error) });
    }

    /// Opens a connection for waiting calls if no other one can take them. Returns true if one was started.
    fn open_if_needed(&mut self, registry: &Registry, now: Boot, out: &mut Vec<Event>) -> bool {
        let mut free = None;
        for (at, slot) in self.slots.iter().enumerate() {
            match slot {
                Slot::Opening(_) => return false,
                Slot::Open(connection) if connection.has_room() => return false,
                Slot::Open(_) => {}
                Slot::Empty => free = free.or(Some(at)),
            }
        }
        let Some(at) = free.filter(|_| !self.queue.is_empty()) else { return false };
        match &mut self.addresses {
            Addresses::Known(addresses) => {
                let (Some(token), Some(slot)) = (self.tokens.get(at), self.slots.get_mut(at)) else { return false };
                let opening = Opening::new(
                    *token,
                    self.peer.clone(),
                    addresses,
                    self.times,
                    self.byte_count.clone(),
                    registry,
                    now,
                );
                *slot = opening.map_or(Slot::Empty, |opening| Slot::Opening(Box::new(opening)));
                true
            }
            Addresses::Wanted { old } => {
                if let Host::Name(host) = &self.peer.host {
                    out.push(Event::Resolve { host: host.clone(), port: self.peer.port });
                }
                self.addresses = Addresses::Requested { old: std::mem::take(old) };
                false
            }
            Addresses::Requested { .. } => false,
        }
    }

    /// Starts waiting calls while streams are free. Returns true if a call was started.
    fn start_queued(&mut self) -> bool {
        let mut started = false;
        for slot in &mut self.slots {
            let Slot::Open(connection) = slot else { continue };
            while connection.has_room()
                && let Some((id, request)) = self.queue.pop_front()
            {
                match connection.start(id, request) {
                    Ok(()) => started = true,
                    Err(e) => self.ended.push(Event::Done { id, result: Err(e) }),
                }
            }
        }
        started
    }

    /// Drives a slot. Returns true if it must be driven again without waiting.
    fn drive_slot(&mut self, at: usize, registry: &Registry, now: Boot, out: &mut Vec<Event>) -> bool {
        let Some(slot) = self.slots.get_mut(at) else { return false };
        match slot {
            Slot::Empty => false,
            Slot::Opening(opening) => {
                let token = opening.token;
                match opening.advance(registry, now) {
                    OpeningProgress::Pending { again } => again,
                    OpeningProgress::Open { link, address, peer } => {
                        let connection = HttpsConnection::new(link, token, peer, self.times, now);
                        *slot = Slot::Open(Box::new(connection));
                        if self.told != Some(Told::Up(address)) {
                            self.told = Some(Told::Up(address));
                            out.push(Event::Up { address });
                        }
                        true
                    }
                    OpeningProgress::Failed(why) => {
                        *slot = Slot::Empty;
                        self.addresses.failed(&self.peer);
                        self.refuse_queue(&why);
                        false
                    }
                }
            }
            Slot::Open(connection) => {
                let before = out.len();
                match connection.drive(now, out) {
                    Health::Good { again } => again,
                    Health::Leaving { again, .. } => {
                        if let Slot::Open(connection) = std::mem::replace(slot, Slot::Empty)
                            && !connection.is_idle()
                        {
                            self.leaving.push(*connection);
                        }
                        again
                    }
                    Health::Over { why, polite } => {
                        *slot = Slot::Empty;
                        if !polite {
                            // Down is reported before the completions of the connection's calls.
                            let ends = out.split_off(before);
                            self.down(&why, out);
                            out.extend(ends);
                        }
                        false
                    }
                }
            }
        }
    }

    /// Reports Down, unless it was already reported or there is another connection.
    fn down(&mut self, why: &str, out: &mut Vec<Event>) {
        let open = self.slots.iter().any(|slot| matches!(slot, Slot::Open(_)));
        if !open && self.told != Some(Told::Down) {
            self.told = Some(Told::Down);
            out.push(Event::Down { why: format!("{}: {why}", self.peer) });
        }
    }

    /// Ends the waiting calls after an attempt to connect has failed.
    fn refuse_queue(&mut self, why: &str) {
        let mut out = std::mem::take(&mut self.ended);
        self.down(why, &mut out);
        let error = CallError::NotSent(format!("{}: {why}", self.peer));
        out.extend(self.queue.drain(..).map(|(id, _)| Event::Done { id, result: Err(error.clone()) }));
        self.ended = out;
    }

    /// Closes the second connection when the first one can take all calls.
    fn close_second(&mut self) {
        if let [Slot::Open(first), second @ Slot::Open(_)] = &mut self.slots
            && first.has_room()
            && matches!(second, Slot::Open(connection) if connection.is_idle())
        {
            *second = Slot::Empty;
        }
    }
}
