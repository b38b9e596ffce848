//! An HTTP/1.1 server for several listeners in the poll of the event loop: unix sockets, TCP, and TLS.
//!
//! The server transports bytes and limits the cost of each client: the number of connections (a new one closes the
//! least useful one, see `connection_limit`), their duration, the size of heads and bodies, and the work in each
//! turn. `Content` produces the responses. A streamed body is a position in its data, from which it produces pieces.
//! Therefore, a list of all objects is never in memory as a whole, whatever the number of clients, and a watch has no
//! queue.

mod connection;
mod connection_limit;
pub mod exchange;
pub mod listeners;
#[cfg(test)]
mod tests;

use crate::api::time::Boot;
use crate::net::listener::{Listener, Place};
use crate::net::stream::{Peer, Stream};
use connection::{DriveOutcome, HttpConnection, Turn};
use connection_limit::HeldConnection;
use exchange::{Content, Response, StreamedBody, Ticket};
use listeners::{ListenerId, ListenerRules, Table};
use mio::{Registry, Token};
use std::io;
use std::net::SocketAddr;

/// The maximum number of new connections of a listener in one turn.
const ACCEPT_BUDGET: usize = 16;

/// The maximum number of connections of the secure listeners that are served in one turn. A change can concern 1,000
/// watches, and other work of the agent must not wait for all of them.
const SECURE_BUDGET: usize = 16;

/// The server. `S` is the type of the content's streamed bodies.
pub struct Server<S> {
    table: Table,
    /// The number of the server's first token. The server uses `listeners::tokens` tokens.
    first: usize,
    listeners: Vec<(ListenerId, Listener)>,
    /// The connections. A listener uses the range `listeners::slots`. Grows as needed; an empty slot is small.
    slots: Vec<Option<Box<HttpConnection<S>>>>,
    /// Whether there is work that can be done without waiting.
    work: bool,
    /// The slot at which the next turn begins to serve the secure listeners.
    next_secure: usize,
    /// The ticket of the last request.
    last_ticket: Ticket,
}

impl<S: StreamedBody> Server<S> {
    /// Creates a server without listeners.
    pub fn new(table: Table, first: usize) -> Server<S> {
        Server {
            table,
            first,
            listeners: Vec::new(),
            slots: Vec::new(),
            work: false,
            next_secure: 0,
            last_ticket: Ticket(0),
        }
    }

    /// Adds a listener. It starts to listen at the next `drive`.
    pub fn listen(&mut self, id: ListenerId, place: Place) {
        let rules = self.rules(id);
        self.listeners.push((id, Listener::new(rules.name, rules.field, place)));
    }

    fn rules(&self, id: ListenerId) -> &'static ListenerRules {
        // Every id comes from the table.
        &self.table[id.0]
    }

    /// Opens a TCP listener, moves it to another address, or closes it (None). Existing connections continue. Call
    /// `drive` afterwards.
    ///
    /// # Errors
    /// The new address cannot be opened. The listener keeps its old address.
    pub fn relocate(&mut self, id: ListenerId, address: Option<SocketAddr>, registry: &Registry) -> io::Result<()> {
        self.work = true;
        let token = Token(self.first + id.0);
        let at = self.listeners.iter().position(|(listener, _)| *listener == id);
        match (at, address) {
            (Some(at), Some(address)) => self.listeners[at].1.move_to(address, registry, token)?,
            (Some(at), None) => self.listeners.remove(at).1.close(Some(registry)),
            (None, Some(address)) => self.listen(id, Place::Tcp(address)),
            (None, None) => {}
        }
        Ok(())
    }

    pub fn owns(&self, token: Token) -> bool {
        (self.first..self.first + listeners::tokens(self.table)).contains(&token.0)
    }

    /// Notes that the poll reported this token. Call `drive` afterwards.
    pub fn ready(&mut self, token: Token) {
        let Some(index) = token.0.checked_sub(self.first) else { return };
        self.work = true;
        let all = listeners::all_slots(self.table);
        match index.checked_sub(self.table.len()) {
            None => {
                if let Some((_, listener)) = self.listeners.iter_mut().find(|(id, _)| id.0 == index) {
                    listener.ready();
                }
            }
            Some(slot) if slot < all => {
                if let Some(Some(connection)) = self.slots.get_mut(slot) {
                    connection.ready();
                }
            }
            Some(slot) => {
                if let Some(Some(connection)) = self.slots.get_mut(slot - all) {
                    connection.source_ready();
                }
            }
        }
    }

    /// Does the work that is possible without waiting. Call it at the start, when a token is ready, at
    /// `next_deadline`, and after `wake`. Returns true if the budget is used up; call it again without waiting.
    pub fn drive(&mut self, registry: &Registry, now: Boot, content: &mut dyn Content<Stream = S>) -> bool {
        for (id, listener) in &mut self.listeners {
            listener.drive(registry, Token(self.first + id.0), now);
        }
        self.work = false;
        for slot in 0..self.slots.len().min(listeners::first_secure_slot(self.table)) {
            self.drive_slot(slot, registry, now, content);
        }
        self.drive_secure(registry, now, content);
        for index in 0..self.listeners.len() {
            let mut budget = ACCEPT_BUDGET;
            let id = self.listeners[index].0;
            while let Some((stream, peer)) = self.listeners[index].1.accept(now) {
                self.admit(id, stream, peer, registry, now, content);
                budget -= 1;
                if budget == 0 {
                    self.work = true;
                    break;
                }
            }
        }
        self.work
    }

    /// Serves connections of the secure listeners, from the one at which the last turn stopped.
    fn drive_secure(&mut self, registry: &Registry, now: Boot, content: &mut dyn Content<Stream = S>) {
        let first = listeners::first_secure_slot(self.table);
        let end = self.slots.len();
        let from = if (first..end).contains(&self.next_secure) { self.next_secure } else { first };
        let mut budget = SECURE_BUDGET;
        for slot in (from..end).chain(first..from.min(end)) {
            if !self.slots.get(slot).and_then(Option::as_ref).is_some_and(|c| c.is_due(now)) {
                continue;
            }
            if budget == 0 {
                self.next_secure = slot;
                self.work = true;
                return;
            }
            budget -= 1;
            self.drive_slot(slot, registry, now, content);
        }
    }

    /// Serves a new connection.
    fn admit(
        &mut self,
        id: ListenerId,
        stream: Stream,
        peer: Peer,
        registry: &Registry,
        now: Boot,
        content: &mut dyn Content<Stream = S>,
    ) {
        let rules = self.rules(id);
        let Some(stream) = with_tls(stream, id, rules, content) else { return };
        let Some(slot) = self.make_room(id, peer, registry, now, content) else { return };
        let mut connection = HttpConnection::new(stream, peer, id, rules, now);
        match connection.stream().register(registry, self.token(slot)) {
            Ok(()) => self.slots[slot] = Some(Box::new(connection)),
            Err(e) => {
                log::warn!("failed to register a connection with epoll; closing it error={:?}", e.to_string());
            }
        }
        self.drive_slot(slot, registry, now, content);
    }

    /// Returns the token of a connection.
    fn token(&self, slot: usize) -> Token {
        Token(self.first + self.table.len() + slot)
    }

    /// Returns the token of the second source of a connection.
    fn source_token(&self, slot: usize) -> Token {
        Token(self.token(slot).0 + listeners::all_slots(self.table))
    }

    /// Continues the bodies that wait for changes and for which `concerns` returns true. Call `drive` afterwards.
    pub fn wake(&mut self, concerns: impl Fn(&S) -> bool) {
        self.slots.iter_mut().flatten().for_each(|connection| connection.wake(&concerns));
    }

    /// Reports whether a client of this listener is being sent a body for which `is_it` returns true.
    pub fn has_body(&self, id: ListenerId, is_it: impl Fn(&S) -> bool) -> bool {
        let mine = self.slots.iter().flatten().filter(|connection| connection.listener == id);
        mine.filter_map(|connection| connection.body()).any(is_it)
    }

    /// Reports whether a connection of this listener is open.
    pub fn has_connections(&self, id: ListenerId) -> bool {
        self.slots.iter().flatten().any(|connection| connection.listener == id)
    }

    /// Closes the connections of this listener for whose client certificate (DER) `which` returns true.
    ///
    /// Returns the number of connections.
    pub fn close_clients(
        &mut self,
        id: ListenerId,
        registry: &Registry,
        which: impl Fn(&[u8]) -> bool,
        content: &mut dyn Content<Stream = S>,
    ) -> usize {
        let mut closed = 0;
        for slot in listeners::slots(self.table, id) {
            let connection = self.slots.get(slot).and_then(Option::as_ref);
            if connection.and_then(|c| c.certificate()).is_some_and(&which) {
                self.drop_slot(slot, registry, content);
                closed += 1;
            }
        }
        closed
    }

    /// Returns when `drive` must be called next.
    pub fn next_deadline(&self) -> Option<Boot> {
        let connections = self.slots.iter().flatten().filter_map(|connection| connection.deadline());
        connections.chain(self.listeners.iter().filter_map(|(_, listener)| listener.next_deadline())).min()
    }

    /// Provides the response to a deferred request (`Body::Later`). Call `drive` afterwards. Does nothing if the
    /// client has disconnected.
    pub fn answer(&mut self, ticket: Ticket, response: Response<S>, now: Boot) {
        if let Some(connection) = self.slots.iter_mut().flatten().find(|c| c.waits_for_answer() == Some(ticket)) {
            connection.respond(response, now);
            self.work = true;
        }
    }

    /// Returns the listener, the state, and the number of queued bytes of each connection, for the dump.
    pub fn connections(&self) -> Vec<(ListenerId, &'static str, usize)> {
        self.slots.iter().flatten().map(|connection| connection.summary()).collect()
    }

    /// Reports whether this listener has an open socket.
    pub fn is_listening(&self, id: ListenerId) -> bool {
        self.listeners.iter().any(|(listener, of)| *listener == id && of.is_listening())
    }

    /// Returns the TCP address of an open listener.
    pub fn local_address(&self, id: ListenerId) -> Option<SocketAddr> {
        self.listeners.iter().find(|(listener, _)| *listener == id).and_then(|(_, of)| of.local_address())
    }

    /// Closes everything and removes the files of unix sockets.
    pub fn close(&mut self, registry: &Registry) {
        for mut connection in self.slots.drain(..).flatten() {
            connection.stream().deregister(registry);
        }
        for (_, mut listener) in self.listeners.drain(..) {
            listener.close(Some(registry));
        }
    }

    fn drive_slot(&mut self, slot: usize, registry: &Registry, now: Boot, content: &mut dyn Content<Stream = S>) {
        let Some(Some(connection)) = self.slots.get(slot) else { return };
        if !connection.is_due(now) {
            return;
        }
        let watches_left = self.watches_left(connection.listener, connection.peer());
        let token = self.source_token(slot);
        let Some(Some(connection)) = self.slots.get_mut(slot) else { return };
        let mut turn = Turn { now, content: &mut *content, watches_left, last_ticket: &mut self.last_ticket };
        let mut outcome = connection.drive(&mut turn);
        if let Err(e) = connection.register_source(registry, token) {
            log::warn!("failed to register a stream with epoll; closing it error={:?}", e.to_string());
            outcome = DriveOutcome::Close;
        }
        if outcome == DriveOutcome::Again {
            connection.again();
        }
        match outcome {
            DriveOutcome::Wait => {}
            DriveOutcome::Again => self.work = true,
            DriveOutcome::Close => self.drop_slot(slot, registry, content),
        }
    }

    /// Returns the number of watches that a client of this listener may still start.
    fn watches_left(&self, id: ListenerId, peer: Peer) -> usize {
        let most = self.rules(id).watches_for(peer);
        if most == usize::MAX {
            return most;
        }
        let watches = self.slots.iter().flatten().filter(|c| c.listener == id && c.is_watch()).count();
        most.saturating_sub(watches)
    }

    fn drop_slot(&mut self, slot: usize, registry: &Registry, content: &mut dyn Content<Stream = S>) {
        if let Some(mut connection) = self.slots.get_mut(slot).and_then(Option::take) {
            if let Some(ticket) = connection.waits_for_answer() {
                content.gone(ticket);
            }
            if let Stream::Tls(session) = connection.stream() {
                // The close_notify tells the client that nothing is missing. An error does not matter: the client is
                // gone.
                let _ = session.finish();
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
        id: ListenerId,
        peer: Peer,
        registry: &Registry,
        now: Boot,
        content: &mut dyn Content<Stream = S>,
    ) -> Option<usize> {
        let mut mine = listeners::slots(self.table, id);
        let room = mine.len();
        let connections = mine.clone().filter_map(|slot| Some(self.slots.get(slot)?.as_ref()?.held(slot)));
        let held: Vec<HeldConnection> = connections.collect();
        if let Some(victim) = connection_limit::victim(peer, &held, room, now) {
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

/// Wraps the stream in TLS if the listener uses it. Returns None if the connection must be closed.
fn with_tls<S: StreamedBody>(
    stream: Stream,
    id: ListenerId,
    rules: &ListenerRules,
    content: &dyn Content<Stream = S>,
) -> Option<Stream> {
    let socket = match stream {
        Stream::Tcp(socket) if rules.is_secure => socket,
        stream => return Some(stream),
    };
    let _ = socket.set_nodelay(true);
    let _ = rustix::net::sockopt::set_socket_keepalive(&socket, true);
    match content.acceptor(id)?.accept(socket) {
        Ok(session) => Some(Stream::Tls(Box::new(session))),
        Err(e) => {
            log::warn!("cannot start TLS listener={} error={:?}", rules.name, e.to_string());
            None
        }
    }
}
