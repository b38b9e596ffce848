//! The node's endpoints over HTTP/1.1, on the event loop's one poll: the control socket, the health port, the
//! read-only port.
//!
//! The server moves bytes and keeps its clients from costing anybody anything: connections are bounded in number (32 a
//! listener; the one that is worth least goes for a new one, `room`) and in time, heads in size, and work in each turn. What the
//! answers say is the `Content`'s business. A streamed body is asked for in pieces, so that a list of all pods is never
//! in memory as a whole, however many ask for it.

mod connection;
mod connection_limit;
pub mod health;
pub mod http;
mod listener;
pub mod status;
mod stream;
#[cfg(test)]
mod tests;

use crate::api::time::Boot;
use bytes::Bytes;
use connection::{Connection, Outcome};
use connection_limit::{Held, Peer};
use http::{Cursor, ListenerKind, Request, Response, Route, Ticket};
use listener::{Listener, Place};
use mio::{Registry, Token};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Connections of each listener.
const MAX_CONNECTIONS: usize = 32;
/// Watches on the control socket: the rest is for those who ask one thing. The last ones are for root.
const MAX_WATCHES: usize = 16;
const WATCHES_OF_ROOT: usize = 4;
pub const LISTENERS: usize = 3;
/// New connections of a listener in one turn.
const ACCEPT_BUDGET: usize = 16;

/// What the answers say.
pub trait Content {
    /// Answers a request. Called when its head is complete; only routes that exist at its door come here, with a method
    /// that they have.
    fn answer(&mut self, request: &Request) -> Response;

    /// Appends the next piece (a few kilobytes) of a body that `answer` began as `Parts` or `Watch`, and moves the
    /// cursor. False if it was the last. Other things happen between two pieces: a cursor may find that what it points to
    /// is gone.
    fn part(&mut self, cursor: &mut Cursor, out: &mut Vec<u8>) -> bool;

    /// The client of a request that `answer` put off to later has gone: nobody waits for it any more.
    fn gone(&mut self, _ticket: Ticket) {}
}

/// Where to listen; None is off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Doors {
    pub control: Option<PathBuf>,
    pub health: Option<SocketAddr>,
    pub read_only: Option<SocketAddr>,
}

pub struct Server {
    /// Tokens `first .. first + TOKENS` are the server's.
    first: usize,
    listeners: Vec<Listener>,
    /// A listener's connections are at `index * MAX_CONNECTIONS` and on; grown as needed.
    slots: Vec<Option<Connection>>,
    /// Something may be done without waiting.
    work: bool,
    /// Of the last request.
    last_ticket: u64,
}

impl Server {
    /// How many tokens it needs.
    pub const TOKENS: usize = LISTENERS + LISTENERS * MAX_CONNECTIONS;

    /// Listens from the first `drive` on.
    pub fn new(listener_kinds: Doors, first: usize) -> Server {
        let control = listener_kinds.control.map(|p| Listener::new(ListenerKind::Control, Place::Unix(p)));
        let health = listener_kinds.health.map(|a| Listener::new(ListenerKind::Health, Place::Tcp(a)));
        let read_only = listener_kinds.read_only.map(|a| Listener::new(ListenerKind::ReadOnly, Place::Tcp(a)));
        let listeners = [control, health, read_only].into_iter().flatten().collect();
        Server { first, listeners, slots: Vec::new(), work: false, last_ticket: 0 }
    }

    pub fn owns(&self, token: Token) -> bool {
        (self.first..self.first + Server::TOKENS).contains(&token.0)
    }

    /// The poll reported this token; `drive` is to be called.
    pub fn ready(&mut self, token: Token) {
        let Some(index) = token.0.checked_sub(self.first) else { return };
        self.work = true;
        if index < LISTENERS {
            if let Some(listener) = self.listeners.get_mut(index) {
                listener.ready();
            }
        } else if let Some(Some(connection)) = self.slots.get_mut(index - LISTENERS) {
            connection.ready();
        }
    }

    /// Does what can be done. To be called first of all, when a token was ready, when `next_deadline` has come, and
    /// after `publish`. True if it stopped for its budget and wants to be driven again without waiting.
    pub fn drive(&mut self, registry: &Registry, now: Boot, content: &mut dyn Content) -> bool {
        for (index, listener) in self.listeners.iter_mut().enumerate() {
            listener.drive(registry, Token(self.first + index), now);
        }
        self.work = false;
        for slot in 0..self.slots.len() {
            self.drive_slot(slot, registry, now, content);
        }
        for index in 0..self.listeners.len() {
            let mut budget = ACCEPT_BUDGET;
            while let Some((stream, peer)) = self.listeners[index].accept(now) {
                if let Some(slot) = self.make_room(index, peer, registry, now, content) {
                    let mut connection = Connection::new(stream, peer, self.listeners[index].listener_kind, now);
                    let token = Token(self.first + LISTENERS + slot);
                    match connection.stream().register(registry, token) {
                        Ok(()) => self.slots[slot] = Some(connection),
                        Err(e) => log::warn!("cannot watch a connection error={:?}", e.to_string()),
                    }
                    self.drive_slot(slot, registry, now, content);
                }
                budget -= 1;
                if budget == 0 {
                    self.work = true;
                    break;
                }
            }
        }
        self.work
    }

    /// When `drive` is to be called at the latest.
    pub fn next_deadline(&self) -> Option<Boot> {
        let connections = self.slots.iter().flatten().filter_map(Connection::deadline);
        connections.chain(self.listeners.iter().filter_map(Listener::next_deadline)).min()
    }

    /// Is a line worth making?
    pub fn has_watches(&self, of: Route) -> bool {
        self.slots.iter().flatten().any(|c| c.watches() == Some(of))
    }

    /// Sends a line (with its newline) to every watch of it.
    pub fn publish(&mut self, to: Route, line: impl Into<Bytes>, now: Boot) {
        let line = line.into();
        for connection in self.slots.iter_mut().flatten() {
            connection.publish(to, &line, now);
        }
    }

    /// The answer to a request that was put off (`Body::Later`); `drive` is to be called. Fine if its client has gone.
    pub fn answer(&mut self, ticket: Ticket, response: Response, now: Boot) {
        if let Some(connection) = self.slots.iter_mut().flatten().find(|c| c.waits_for_answer() == Some(ticket)) {
            connection.respond(response, now);
            self.work = true;
        }
    }

    /// What each connection is at, for the dump: (door, state, bytes queued, lines lost).
    pub fn connections(&self) -> Vec<(ListenerKind, &'static str, usize, u64)> {
        self.slots.iter().flatten().map(Connection::told).collect()
    }

    /// What each listener is, in their order.
    pub fn listener_kinds(&self) -> [Option<ListenerKind>; LISTENERS] {
        std::array::from_fn(|index| self.listeners.get(index).map(|l| l.listener_kind))
    }

    /// Which listener, by `doors`, a token of `first` and on belongs to, and whether it is one of its connections'.
    pub fn part(token: Token, first: usize) -> Option<(usize, bool)> {
        match token.0.checked_sub(first)? {
            index if index < LISTENERS => Some((index, false)),
            index if index < Server::TOKENS => Some(((index - LISTENERS) / MAX_CONNECTIONS, true)),
            _ => None,
        }
    }

    /// Is this door open?
    pub fn is_listening(&self, listener_kind: ListenerKind) -> bool {
        self.listeners.iter().any(|l| l.listener_kind == listener_kind && l.is_listening())
    }

    /// The TCP address of a door that is open.
    pub fn local_address(&self, listener_kind: ListenerKind) -> Option<SocketAddr> {
        self.listeners.iter().find(|l| l.listener_kind == listener_kind).and_then(Listener::local_address)
    }

    /// Closes everything and removes the control socket.
    pub fn close(&mut self, registry: &Registry) {
        for mut connection in self.slots.drain(..).flatten() {
            connection.stream().deregister(registry);
        }
        for mut listener in self.listeners.drain(..) {
            listener.close(Some(registry));
        }
    }

    fn drive_slot(&mut self, slot: usize, registry: &Registry, now: Boot, content: &mut dyn Content) {
        let watches = self.slots.iter().flatten().filter(|c| c.watches().is_some()).count();
        let Some(Some(connection)) = self.slots.get_mut(slot) else { return };
        let most = if connection.peer().is_limited() { MAX_WATCHES - WATCHES_OF_ROOT } else { MAX_WATCHES };
        let outcome = connection.drive(now, content, most.saturating_sub(watches), &mut self.last_ticket);
        match outcome {
            Outcome::Wait => {}
            Outcome::Again => self.work = true,
            Outcome::Close => self.drop_slot(slot, registry, content),
        }
    }

    fn drop_slot(&mut self, slot: usize, registry: &Registry, content: &mut dyn Content) {
        if let Some(mut connection) = self.slots.get_mut(slot).and_then(Option::take) {
            if let Some(ticket) = connection.waits_for_answer() {
                content.gone(ticket);
            }
            connection.stream().deregister(registry);
        }
        if self.slots.iter().all(Option::is_none) {
            self.slots = Vec::new();
        }
    }

    /// A free slot of a listener, if need be that of another connection (`connection_limit::victim`).
    fn make_room(
        &mut self,
        index: usize,
        peer: Peer,
        registry: &Registry,
        now: Boot,
        content: &mut dyn Content,
    ) -> Option<usize> {
        let mut mine = index * MAX_CONNECTIONS..(index + 1) * MAX_CONNECTIONS;
        let connections = mine.clone().filter_map(|slot| Some(self.slots.get(slot)?.as_ref()?.held(slot)));
        let held: Vec<Held> = connections.collect();
        if let Some(victim) = connection_limit::victim(peer, &held, now) {
            self.drop_slot(victim, registry, content);
        }
        // (There is always one now.)
        let free = mine.find(|slot| self.slots.get(*slot).is_none_or(Option::is_none))?;
        if self.slots.len() <= free {
            self.slots.resize_with(free + 1, || None);
        }
        Some(free)
    }
}
