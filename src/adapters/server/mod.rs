//! The node's endpoints over HTTP/1.1, in the poll of the event loop: the control socket, the health port, the
//! read-only port.
//!
//! The server transports bytes and limits the cost of each client: the number of connections (32 for each listener; a new one
//! closes the least useful one, see `connection_limit`), their duration, the size of heads and bodies, and the work in each
//! turn. `Content` produces the answers. It produces a streamed body in pieces, so a list of all pods is never in memory as a
//! whole, whatever the number of clients.

mod connection;
mod connection_limit;
pub mod control;
pub mod health;
pub mod http;
pub mod status;
#[cfg(test)]
mod tests;

use crate::api::time::Boot;
use crate::net::listener::{Listener, Place};
use crate::net::stream::Peer;
use bytes::Bytes;
use connection::{Connection, Outcome};
use connection_limit::Held;
use http::{Cursor, ListenerKind, Request, Response, Route, Ticket};
use mio::{Registry, Token};
use std::net::SocketAddr;
use std::path::PathBuf;

/// The maximum number of connections of each listener.
const MAX_CONNECTIONS: usize = 32;
/// The maximum number of watches on the control socket. The other connections remain for single requests.
const MAX_WATCHES: usize = 16;
/// The number of watches, of `MAX_WATCHES`, that are reserved for root.
const WATCHES_OF_ROOT: usize = 4;
pub const LISTENERS: usize = 3;
/// The maximum number of new connections of a listener in one turn.
const ACCEPT_BUDGET: usize = 16;

/// Produces the answers.
pub trait Content {
    /// Answers a request. The server calls it when the request is complete, and only for a route of the listener with a valid
    /// method.
    fn answer(&mut self, request: &Request) -> Response;

    /// Appends the next piece (a few KiB) of a body that `answer` started as `Parts` or `Watch`, and advances the cursor.
    /// Returns false if it was the last piece. The state can change between two pieces, and the item at the cursor can
    /// disappear.
    fn part(&mut self, cursor: &mut Cursor, out: &mut Vec<u8>) -> bool;

    /// The client of a deferred request has disconnected, so its answer is no longer needed.
    fn gone(&mut self, _ticket: Ticket) {}
}

/// The addresses of the listeners. None disables a listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listeners {
    pub control: Option<PathBuf>,
    pub health: Option<SocketAddr>,
    pub read_only: Option<SocketAddr>,
}

pub struct Server {
    /// The server uses the tokens `first .. first + TOKENS`.
    first: usize,
    listeners: Vec<Endpoint>,
    /// The connections. Those of a listener start at `index * MAX_CONNECTIONS`. Grows as needed.
    slots: Vec<Option<Connection>>,
    /// Whether there is work that needs no waiting.
    work: bool,
    /// The ticket of the last request.
    last_ticket: u64,
}

struct Endpoint {
    listener_kind: ListenerKind,
    listener: Listener,
}

impl Endpoint {
    fn new(listener_kind: ListenerKind, place: Place) -> Endpoint {
        let (name, field) = match listener_kind {
            ListenerKind::Control => ("Control", "socket"),
            ListenerKind::Health => ("Health", "healthzBindAddress:healthzPort"),
            ListenerKind::ReadOnly => ("ReadOnly", "address:readOnlyPort"),
        };
        Endpoint { listener_kind, listener: Listener::new(name, field, place) }
    }
}

impl Server {
    /// The number of tokens that the server needs.
    pub const TOKENS: usize = LISTENERS + LISTENERS * MAX_CONNECTIONS;

    /// Creates a server. It starts to listen at the first `drive`.
    pub fn new(listener_kinds: Listeners, first: usize) -> Server {
        let control = listener_kinds.control.map(|p| Endpoint::new(ListenerKind::Control, Place::Unix(p)));
        let health = listener_kinds.health.map(|a| Endpoint::new(ListenerKind::Health, Place::Tcp(a)));
        let read_only = listener_kinds.read_only.map(|a| Endpoint::new(ListenerKind::ReadOnly, Place::Tcp(a)));
        let listeners = [control, health, read_only].into_iter().flatten().collect();
        Server { first, listeners, slots: Vec::new(), work: false, last_ticket: 0 }
    }

    pub fn owns(&self, token: Token) -> bool {
        (self.first..self.first + Server::TOKENS).contains(&token.0)
    }

    /// Notes that the poll reported this token. Call `drive` afterwards.
    pub fn ready(&mut self, token: Token) {
        let Some(index) = token.0.checked_sub(self.first) else { return };
        self.work = true;
        if index < LISTENERS {
            if let Some(endpoint) = self.listeners.get_mut(index) {
                endpoint.listener.ready();
            }
        } else if let Some(Some(connection)) = self.slots.get_mut(index - LISTENERS) {
            connection.ready();
        }
    }

    /// Does all work that is possible without waiting. Must be called at the start, when a token was ready, at `next_deadline`,
    /// and after `publish`. Returns true if the budget is used up; call it again without waiting.
    pub fn drive(&mut self, registry: &Registry, now: Boot, content: &mut dyn Content) -> bool {
        for (index, endpoint) in self.listeners.iter_mut().enumerate() {
            endpoint.listener.drive(registry, Token(self.first + index), now);
        }
        self.work = false;
        for slot in 0..self.slots.len() {
            self.drive_slot(slot, registry, now, content);
        }
        for index in 0..self.listeners.len() {
            let mut budget = ACCEPT_BUDGET;
            while let Some((stream, peer)) = self.listeners[index].listener.accept(now) {
                if let Some(slot) = self.make_room(index, peer, registry, now, content) {
                    let mut connection = Connection::new(stream, peer, self.listeners[index].listener_kind, now);
                    let token = Token(self.first + LISTENERS + slot);
                    match connection.stream().register(registry, token) {
                        Ok(()) => self.slots[slot] = Some(connection),
                        Err(e) => log::warn!(
                            "failed to register a connection with the poll; closing it error={:?}",
                            e.to_string()
                        ),
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

    /// The latest time for the next call of `drive`.
    pub fn next_deadline(&self) -> Option<Boot> {
        let connections = self.slots.iter().flatten().filter_map(Connection::deadline);
        connections.chain(self.listeners.iter().filter_map(|l| l.listener.next_deadline())).min()
    }

    /// Whether any client watches this route, so that a line for it is needed.
    pub fn has_watches(&self, of: Route) -> bool {
        self.slots.iter().flatten().any(|c| c.watches() == Some(of))
    }

    /// Sends a line (with its newline) to every watch of this route.
    pub fn publish(&mut self, to: Route, line: impl Into<Bytes>, now: Boot) {
        let line = line.into();
        for connection in self.slots.iter_mut().flatten() {
            connection.publish(to, &line, now);
        }
    }

    /// Gives the answer to a deferred request (`Body::Later`). Call `drive` afterwards. Does nothing if the client has
    /// disconnected.
    pub fn answer(&mut self, ticket: Ticket, response: Response, now: Boot) {
        if let Some(connection) = self.slots.iter_mut().flatten().find(|c| c.waits_for_answer() == Some(ticket)) {
            connection.respond(response, now);
            self.work = true;
        }
    }

    /// The state of each connection, for the dump: (listener, state, bytes queued, lines lost).
    pub fn connections(&self) -> Vec<(ListenerKind, &'static str, usize, u64)> {
        self.slots.iter().flatten().map(Connection::summary).collect()
    }

    /// The kind of each listener, in order.
    pub fn listener_kinds(&self) -> [Option<ListenerKind>; LISTENERS] {
        std::array::from_fn(|index| self.listeners.get(index).map(|l| l.listener_kind))
    }

    /// The index of the listener (see `listener_kinds`) of a token, and whether the token belongs to one of its connections.
    /// None if the token is not the server's.
    pub fn part(token: Token, first: usize) -> Option<(usize, bool)> {
        match token.0.checked_sub(first)? {
            index if index < LISTENERS => Some((index, false)),
            index if index < Server::TOKENS => Some(((index - LISTENERS) / MAX_CONNECTIONS, true)),
            _ => None,
        }
    }

    /// Whether this listener has an open socket.
    pub fn is_listening(&self, listener_kind: ListenerKind) -> bool {
        self.listeners.iter().any(|l| l.listener_kind == listener_kind && l.listener.is_listening())
    }

    /// The TCP address of an open listener.
    pub fn local_address(&self, listener_kind: ListenerKind) -> Option<SocketAddr> {
        self.listeners.iter().find(|l| l.listener_kind == listener_kind).and_then(|l| l.listener.local_address())
    }

    /// Closes everything and removes the control socket.
    pub fn close(&mut self, registry: &Registry) {
        for mut connection in self.slots.drain(..).flatten() {
            connection.stream().deregister(registry);
        }
        for mut endpoint in self.listeners.drain(..) {
            endpoint.listener.close(Some(registry));
        }
    }

    fn drive_slot(&mut self, slot: usize, registry: &Registry, now: Boot, content: &mut dyn Content) {
        let watches = self.slots.iter().flatten().filter(|c| c.watches().is_some()).count();
        let Some(Some(connection)) = self.slots.get_mut(slot) else { return };
        let most =
            if connection_limit::is_limited(connection.peer()) { MAX_WATCHES - WATCHES_OF_ROOT } else { MAX_WATCHES };
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

    /// Returns a free slot of a listener. Closes another connection if necessary (`connection_limit::victim`).
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
        // There is always a free slot now.
        let free = mine.find(|slot| self.slots.get(*slot).is_none_or(Option::is_none))?;
        if self.slots.len() <= free {
            self.slots.resize_with(free + 1, || None);
        }
        Some(free)
    }
}
