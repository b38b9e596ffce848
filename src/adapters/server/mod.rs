//! The node's endpoints over HTTP/1.1, in the poll of the event loop: the control socket, the health port, the
//! read-only port, and over TLS the server of a cluster's node and the Kubernetes API.
//!
//! The server transports bytes and limits the cost of each client: the number of connections (`room`; a new one closes
//! the least useful one, see `connection_limit`), their duration, the size of heads and bodies, and the work in each
//! turn. `Content` produces the answers. It produces a streamed body in pieces, so a list of all pods is never in
//! memory as a whole, whatever the number of clients.

pub mod api;
mod connection;
mod connection_limit;
pub mod control;
pub mod health;
pub mod http;
pub mod status;
#[cfg(test)]
mod tests;

use crate::api::kube::resources::Kind;
use crate::api::kube::status::Failure;
use crate::api::time::Boot;
use crate::net::listener::{Listener, Place};
use crate::net::stream::{Peer, Stream};
use crate::net::tls::server::Acceptor;
use api::{ApiCursor, ApiRequest, Client, Part};
use bytes::Bytes;
use connection::{Connection, Outcome};
use connection_limit::Held;
use http::{Cursor, ListenerKind, Request, Response, Route, Ticket};
use mio::{Registry, Token};
use std::net::SocketAddr;
use std::ops::Range;
use std::path::PathBuf;
use std::rc::Rc;

/// The maximum number of connections of a listener for the node's own endpoints.
const MAX_CONNECTIONS: usize = 32;
/// The maximum number of connections of the node's server: users who follow logs, and sessions.
const MAX_NODE_CONNECTIONS: usize = 256;
/// The maximum number of connections of the Kubernetes API: 1,000 watches, and room for commands.
const MAX_API_CONNECTIONS: usize = 1_200;
/// The number of connections of all listeners.
const SLOTS: usize = 3 * MAX_CONNECTIONS + MAX_NODE_CONNECTIONS + MAX_API_CONNECTIONS;
/// The maximum number of watches on the control socket. The other connections remain for single requests.
const MAX_WATCHES: usize = 16;
/// The number of watches, of `MAX_WATCHES`, that are reserved for root.
const WATCHES_OF_ROOT: usize = 4;
pub const LISTENERS: usize = 5;
/// The maximum number of connections of each listener, by `ListenerKind::index`.
const ROOM: [usize; LISTENERS] =
    [MAX_CONNECTIONS, MAX_CONNECTIONS, MAX_CONNECTIONS, MAX_NODE_CONNECTIONS, MAX_API_CONNECTIONS];
/// The maximum number of new connections of a listener in one turn.
const ACCEPT_BUDGET: usize = 16;

/// The maximum number of connections of the secure listeners that are served in one turn. A change can concern 1,000
/// watches, and other work of the agent must not wait for all of them.
const API_BUDGET: usize = 16;

/// Produces the answers.
pub trait Content {
    /// Answers a request. The server calls it when the request is complete, and only for a route of the listener with a
    /// valid method.
    fn answer(&mut self, request: &Request) -> Response;

    /// Appends the next piece (a few KiB) of a body that `answer` started as `Parts` or `Watch`, and advances the
    /// cursor. Returns false if it was the last piece. The state can change between two pieces, and the item at the
    /// cursor can disappear.
    fn part(&mut self, cursor: &mut Cursor, out: &mut Vec<u8>) -> bool;

    /// The client of a deferred request has disconnected, so its answer is no longer needed.
    fn gone(&mut self, _ticket: Ticket) {}

    /// The response to a request of the Kubernetes API that is refused whatever its body is. The server calls it before
    /// it reads a body that has not arrived with the head.
    fn refusal(&mut self, _request: &ApiRequest) -> Option<Response> {
        None
    }

    /// Appends the next piece of a body of the Kubernetes API, and advances the cursor.
    fn api_part(&mut self, _cursor: &mut ApiCursor, _out: &mut Vec<u8>) -> Part {
        Part::End
    }

    /// Accepts TLS connections of this listener with the present server certificate. None: they are closed.
    fn acceptor(&mut self, _listener_kind: ListenerKind) -> Option<Acceptor> {
        None
    }

    /// The client with this certificate (DER), for each of its requests.
    ///
    /// # Errors
    /// The certificate is revoked, has expired since the handshake, or has no role.
    fn client_of(&mut self, _certificate: &[u8]) -> Result<Rc<Client>, Failure> {
        Err(Failure::unauthorized("no certificate is accepted"))
    }
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
    /// The connections. A listener uses the range `Endpoint::slots`. Grows as needed; an empty slot is small.
    slots: Vec<Option<Box<Connection>>>,
    /// Whether there is work that needs no waiting.
    work: bool,
    /// The slot at which the next turn begins to serve the secure listeners.
    next_api: usize,
    /// The ticket of the last request.
    last_ticket: u64,
}

struct Endpoint {
    listener_kind: ListenerKind,
    listener: Listener,
    slots: Range<usize>,
}

/// The slots of the listener with this index.
fn slots(index: usize) -> Range<usize> {
    let begin = ROOM.iter().take(index).sum();
    begin..begin + ROOM.get(index).copied().unwrap_or_default()
}

/// The first slot of the secure listeners.
fn first_secure_slot() -> usize {
    slots(ListenerKind::Node.index()).start
}

impl Endpoint {
    fn new(listener_kind: ListenerKind, place: Place) -> Endpoint {
        let (name, field) = match listener_kind {
            ListenerKind::Control => ("Control", "socket"),
            ListenerKind::Health => ("Health", "healthzBindAddress:healthzPort"),
            ListenerKind::ReadOnly => ("ReadOnly", "address:readOnlyPort"),
            ListenerKind::Node => ("Node", "address:port"),
            ListenerKind::Kubectl => ("Kubectl", "kubectlAddress:kubectlPort"),
        };
        Endpoint { listener_kind, listener: Listener::new(name, field, place), slots: slots(listener_kind.index()) }
    }
}

impl Server {
    /// The number of tokens that the server needs.
    pub const TOKENS: usize = LISTENERS + 2 * SLOTS;

    /// Creates a server. It starts to listen at the first `drive`.
    pub fn new(listener_kinds: Listeners, first: usize) -> Server {
        let control = listener_kinds.control.map(|p| Endpoint::new(ListenerKind::Control, Place::Unix(p)));
        let health = listener_kinds.health.map(|a| Endpoint::new(ListenerKind::Health, Place::Tcp(a)));
        let read_only = listener_kinds.read_only.map(|a| Endpoint::new(ListenerKind::ReadOnly, Place::Tcp(a)));
        let listeners = [control, health, read_only].into_iter().flatten().collect();
        let next_api = first_secure_slot();
        Server { first, listeners, slots: Vec::new(), work: false, next_api, last_ticket: 0 }
    }

    /// Adds a listener on a TCP port. It starts to listen at the next `drive`.
    pub fn listen(&mut self, listener_kind: ListenerKind, address: SocketAddr) {
        self.listeners.push(Endpoint::new(listener_kind, Place::Tcp(address)));
    }

    /// Moves a listener on a TCP port to another address, or closes it. Its connections continue. Call `drive`
    /// afterwards.
    ///
    /// # Errors
    /// The new address cannot be opened. The listener keeps the old one.
    pub fn relocate(
        &mut self,
        listener_kind: ListenerKind,
        address: Option<SocketAddr>,
        registry: &Registry,
    ) -> std::io::Result<()> {
        self.work = true;
        let token = Token(self.first + listener_kind.index());
        let at = self.listeners.iter().position(|endpoint| endpoint.listener_kind == listener_kind);
        match (at, address) {
            (Some(at), Some(address)) => self.listeners[at].listener.move_to(address, registry, token)?,
            (Some(at), None) => self.listeners.remove(at).listener.close(Some(registry)),
            (None, Some(address)) => self.listen(listener_kind, address),
            (None, None) => {}
        }
        Ok(())
    }

    pub fn owns(&self, token: Token) -> bool {
        (self.first..self.first + Server::TOKENS).contains(&token.0)
    }

    /// Notes that the poll reported this token. Call `drive` afterwards.
    pub fn ready(&mut self, token: Token) {
        let Some(index) = token.0.checked_sub(self.first) else { return };
        self.work = true;
        match index.checked_sub(LISTENERS) {
            None => {
                if let Some(endpoint) = self.listeners.iter_mut().find(|l| l.listener_kind.index() == index) {
                    endpoint.listener.ready();
                }
            }
            Some(slot) if slot < SLOTS => {
                if let Some(Some(connection)) = self.slots.get_mut(slot) {
                    connection.ready();
                }
            }
            Some(slot) => {
                if let Some(Some(connection)) = self.slots.get_mut(slot - SLOTS) {
                    connection.source_ready();
                }
            }
        }
    }

    /// Does the work that is possible without waiting. Must be called at the start, when a token was ready, at
    /// `next_deadline`, and after `publish`. Returns true if the budget is used up; call it again without waiting.
    pub fn drive(&mut self, registry: &Registry, now: Boot, content: &mut dyn Content) -> bool {
        for endpoint in &mut self.listeners {
            endpoint.listener.drive(registry, Token(self.first + endpoint.listener_kind.index()), now);
        }
        self.work = false;
        for slot in 0..self.slots.len().min(first_secure_slot()) {
            self.drive_slot(slot, registry, now, content);
        }
        self.drive_secure(registry, now, content);
        for index in 0..self.listeners.len() {
            let mut budget = ACCEPT_BUDGET;
            while let Some((stream, peer)) = self.listeners[index].listener.accept(now) {
                self.admit(index, stream, peer, registry, now, content);
                budget -= 1;
                if budget == 0 {
                    self.work = true;
                    break;
                }
            }
        }
        self.work
    }

    /// Serves connections of the secure listeners, from the one at which the last turn has stopped.
    fn drive_secure(&mut self, registry: &Registry, now: Boot, content: &mut dyn Content) {
        let first = first_secure_slot();
        let end = self.slots.len();
        let from = if (first..end).contains(&self.next_api) { self.next_api } else { first };
        let mut budget = API_BUDGET;
        for slot in (from..end).chain(first..from.min(end)) {
            if !self.slots.get(slot).and_then(Option::as_ref).is_some_and(|c| c.is_due(now)) {
                continue;
            }
            if budget == 0 {
                self.next_api = slot;
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
        index: usize,
        stream: Stream,
        peer: Peer,
        registry: &Registry,
        now: Boot,
        content: &mut dyn Content,
    ) {
        let listener_kind = self.listeners[index].listener_kind;
        let stream = match (listener_kind, stream) {
            (kind, Stream::Tcp(socket)) if kind.is_secure() => {
                let _ = socket.set_nodelay(true);
                let _ = rustix::net::sockopt::set_socket_keepalive(&socket, true);
                let Some(acceptor) = content.acceptor(kind) else { return };
                match acceptor.accept(socket) {
                    Ok(session) => Stream::Tls(Box::new(session)),
                    Err(e) => {
                        log::warn!("cannot start TLS listener={kind:?} error={:?}", e.to_string());
                        return;
                    }
                }
            }
            (_, stream) => stream,
        };
        let Some(slot) = self.make_room(index, peer, registry, now, content) else { return };
        let mut connection = Connection::new(stream, peer, listener_kind, now);
        match connection.stream().register(registry, Token(self.first + LISTENERS + slot)) {
            Ok(()) => self.slots[slot] = Some(Box::new(connection)),
            Err(e) => {
                log::warn!("failed to register a connection with the poll; closing it error={:?}", e.to_string());
            }
        }
        self.drive_slot(slot, registry, now, content);
    }

    /// Continues the watches and logs whose kind of objects has changed. Call `drive` afterwards.
    pub fn wake(&mut self, has_changed: impl Fn(Kind) -> bool) {
        self.slots.iter_mut().flatten().for_each(|connection| connection.wake(&has_changed));
    }

    /// Continues the logs of the node's server: a pod has changed, and a log ends with its container. Call `drive`
    /// afterwards.
    pub fn wake_logs(&mut self) {
        let of_node = self.slots.iter_mut().flatten().filter(|c| c.listener_kind == ListenerKind::Node);
        of_node.for_each(|connection| connection.wake(&|kind| kind == Kind::Pod));
    }

    /// Whether a connection of this listener is open.
    pub fn has_connections(&self, listener_kind: ListenerKind) -> bool {
        self.slots.iter().flatten().any(|c| c.listener_kind == listener_kind)
    }

    /// Closes the connections of these clients.
    ///
    /// Returns the number of connections.
    pub fn close_clients(
        &mut self,
        registry: &Registry,
        which: impl Fn(&Client) -> bool,
        content: &mut dyn Content,
    ) -> usize {
        let mut closed = 0;
        for slot in 0..self.slots.len() {
            let connection = self.slots.get(slot).and_then(Option::as_ref);
            if connection.and_then(|c| c.client()).is_some_and(|client| which(client)) {
                self.drop_slot(slot, registry, content);
                closed += 1;
            }
        }
        closed
    }

    /// The latest time for the next call of `drive`.
    pub fn next_deadline(&self) -> Option<Boot> {
        let connections = self.slots.iter().flatten().filter_map(|connection| connection.deadline());
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
        self.slots.iter().flatten().map(|connection| connection.summary()).collect()
    }

    /// The index of the listener (`ListenerKind::index`) of a token, and whether the token belongs to one of its
    /// connections. None if the token is not the server's.
    pub fn part(token: Token, first: usize) -> Option<(usize, bool)> {
        match token.0.checked_sub(first)? {
            index if index < LISTENERS => Some((index, false)),
            index if index < Server::TOKENS => {
                let slot = (index - LISTENERS) % SLOTS;
                Some(((0..LISTENERS).find(|listener| slots(*listener).contains(&slot))?, true))
            }
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
        let Some(Some(connection)) = self.slots.get(slot) else { return };
        if !connection.is_due(now) {
            return;
        }
        let most =
            if connection_limit::is_limited(connection.peer()) { MAX_WATCHES - WATCHES_OF_ROOT } else { MAX_WATCHES };
        // Only the control socket has these watches.
        let watches = match connection.listener_kind {
            ListenerKind::Control => self.slots.iter().flatten().filter(|c| c.watches().is_some()).count(),
            _ => 0,
        };
        let Some(Some(connection)) = self.slots.get_mut(slot) else { return };
        let mut outcome = connection.drive(now, content, most.saturating_sub(watches), &mut self.last_ticket);
        let token = Token(self.first + LISTENERS + SLOTS + slot);
        if let Err(e) = connection.register_source(registry, token) {
            log::warn!("failed to register a stream with the poll; closing it error={:?}", e.to_string());
            outcome = Outcome::Close;
        }
        if outcome == Outcome::Again {
            connection.again();
        }
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
            if let Stream::Tls(session) = connection.stream() {
                // The client knows that nothing is missing. A client that is gone does not matter.
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
        index: usize,
        peer: Peer,
        registry: &Registry,
        now: Boot,
        content: &mut dyn Content,
    ) -> Option<usize> {
        let mut mine = self.listeners[index].slots.clone();
        let room = mine.len();
        let connections = mine.clone().filter_map(|slot| Some(self.slots.get(slot)?.as_ref()?.held(slot)));
        let held: Vec<Held> = connections.collect();
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
