//! The socket on which device plugins register. A plugin connects, calls Register once, and leaves.

use super::proto;
use crate::api::time::Boot;
use crate::engine::event::DeviceEvent;
use crate::net::grpc::server::{Refusal, Request, ServerConnection};
use crate::net::listener::{Listener, Place};
use mio::{Registry, Token};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// The time that a client has.
const PATIENCE: Duration = Duration::from_secs(10);
/// The maximum number of clients. Further ones wait in the queue of the socket.
const MAX_CLIENTS: usize = 16;

/// gRPC's codes.
const UNIMPLEMENTED: u32 = 12;
const INVALID_ARGUMENT: u32 = 3;
const UNKNOWN: u32 = 2;

pub struct Registrations {
    listener: Listener,
    token: Token,
    clients: BTreeMap<Token, Client>,
    /// The registrations that wait for the engine: the client and its request.
    waiting: BTreeMap<u64, (Token, u64)>,
    last_id: u64,
}

struct Client {
    connection: ServerConnection,
    until: Boot,
}

impl Registrations {
    pub fn new(socket: &Path, token: Token) -> Registrations {
        let place = Place::Unix(socket.to_path_buf());
        Registrations {
            listener: Listener::new("device-plugins", "devicePluginSocket", place),
            token,
            clients: BTreeMap::new(),
            waiting: BTreeMap::new(),
            last_id: 0,
        }
    }

    pub fn owns(&self, token: Token) -> bool {
        token == self.token || self.clients.contains_key(&token)
    }

    pub fn purpose(&self, token: Token) -> Option<&'static str> {
        match token == self.token {
            true => Some("device plugins that register"),
            false => self.clients.contains_key(&token).then_some("a device plugin that registers"),
        }
    }

    pub fn next_deadline(&self) -> Option<Boot> {
        self.clients.values().map(|client| client.until).chain(self.listener.next_deadline()).min()
    }

    /// Opens the listener, disconnects clients whose time is over, and accepts others.
    pub fn drive_due(
        &mut self,
        registry: &Registry,
        new_token: &mut dyn FnMut() -> Token,
        now: Boot,
        events: &mut Vec<DeviceEvent>,
    ) {
        self.clients.retain(|_, client| client.until > now);
        self.accept(registry, new_token, now, events);
    }

    pub fn ready(
        &mut self,
        token: Token,
        registry: &Registry,
        new_token: &mut dyn FnMut() -> Token,
        now: Boot,
        events: &mut Vec<DeviceEvent>,
    ) {
        if token == self.token {
            self.listener.ready();
        } else {
            self.read(token, events);
        }
        // A client that has left makes room for one that waits.
        self.accept(registry, new_token, now, events);
    }

    fn accept(
        &mut self,
        registry: &Registry,
        new_token: &mut dyn FnMut() -> Token,
        now: Boot,
        events: &mut Vec<DeviceEvent>,
    ) {
        self.listener.drive(registry, self.token, now);
        while self.clients.len() < MAX_CLIENTS
            && let Some((mut stream, _)) = self.listener.accept(now)
        {
            let token = new_token();
            let opened = stream.register(registry, token).and_then(|()| ServerConnection::new(stream, registry, token));
            match opened {
                Ok(connection) => {
                    self.clients.insert(token, Client { connection, until: now + PATIENCE });
                    self.read(token, events);
                }
                Err(e) => log::warn!("cannot accept a device plugin error={:?}", e.to_string()),
            }
        }
    }

    fn read(&mut self, token: Token, events: &mut Vec<DeviceEvent>) {
        let Some(client) = self.clients.get_mut(&token) else { return };
        let mut requests = Vec::new();
        let mut open = client.connection.drive(&mut requests);
        for Request { id, path, body } in requests {
            let refusal = match path.as_str() {
                proto::REGISTER => match proto::registration(&body) {
                    Ok(registration) => {
                        self.last_id += 1;
                        self.waiting.insert(self.last_id, (token, id));
                        events.push(DeviceEvent::Register { id: self.last_id, registration });
                        continue;
                    }
                    Err(message) => Refusal { code: INVALID_ARGUMENT, message },
                },
                _ => Refusal { code: UNIMPLEMENTED, message: format!("unknown method {path}") },
            };
            client.connection.answer(id, Err(refusal));
            open = open && client.connection.drive(&mut Vec::new());
        }
        if !open {
            self.clients.remove(&token);
            self.waiting.retain(|_, (of, _)| *of != token);
        }
    }

    pub fn answer(&mut self, id: u64, result: Result<(), String>) {
        let Some((token, request)) = self.waiting.remove(&id) else { return };
        let Some(client) = self.clients.get_mut(&token) else { return };
        let result = result.map(|()| proto::empty()).map_err(|message| Refusal { code: UNKNOWN, message });
        client.connection.answer(request, result);
        if !client.connection.drive(&mut Vec::new()) {
            self.clients.remove(&token);
        }
    }
}
