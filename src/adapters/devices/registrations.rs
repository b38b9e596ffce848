//! The socket on which device plugins register. A plugin connects, calls Register for each of its resources, and
//! disconnects.

use super::proto;
use crate::api::time::Boot;
use crate::engine::event::DeviceEvent;
use crate::net::grpc::server::{ErrorStatus, GrpcRequest, ServerConnection};
use crate::net::listener::{Listener, Place};
use bytes::Bytes;
use mio::{Registry, Token};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// How long a client may stay connected.
const PATIENCE: Duration = Duration::from_secs(10);
/// The maximum number of clients. Further clients wait in the queue of the socket.
const MAX_CLIENTS: usize = 16;
/// The maximum number of clients that are accepted in one turn.
const MAX_ACCEPTED: usize = 4;
/// The maximum number of requests from one client. A plugin makes one request for each of its resources.
const MAX_REQUESTS: usize = 64;

/// gRPC status codes.
const UNIMPLEMENTED: u32 = 12;
const INVALID_ARGUMENT: u32 = 3;
const UNKNOWN: u32 = 2;

pub struct Registrations {
    listener: Listener,
    token: Token,
    clients: BTreeMap<Token, PluginClient>,
    /// The registrations that wait for the engine: the client and its request.
    waiting: BTreeMap<u64, (Token, u64)>,
    last_id: u64,
}

struct PluginClient {
    connection: ServerConnection,
    until: Boot,
    /// The number of requests that the client may still make.
    left: usize,
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

    /// Returns the listener's token.
    pub fn token(&self) -> Token {
        self.token
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

    /// Opens the listener, disconnects clients whose time has expired, and accepts others. Returns true if more
    /// clients may be waiting: the caller then calls `ready` for the listener without waiting.
    pub fn drive_due(
        &mut self,
        registry: &Registry,
        new_token: &mut dyn FnMut() -> Token,
        now: Boot,
        events: &mut Vec<DeviceEvent>,
    ) -> bool {
        let late: Vec<Token> = self.clients.iter().filter(|(_, c)| c.until <= now).map(|(token, _)| *token).collect();
        late.into_iter().for_each(|token| self.remove(token));
        self.accept(registry, new_token, now, events)
    }

    /// Handles a socket that the poll reported. Returns the same as `drive_due`.
    pub fn ready(
        &mut self,
        token: Token,
        registry: &Registry,
        new_token: &mut dyn FnMut() -> Token,
        now: Boot,
        events: &mut Vec<DeviceEvent>,
    ) -> bool {
        if token == self.token {
            self.listener.ready();
        } else {
            self.read(token, events);
        }
        // A client that has disconnected makes room for a waiting one.
        self.accept(registry, new_token, now, events)
    }

    fn accept(
        &mut self,
        registry: &Registry,
        new_token: &mut dyn FnMut() -> Token,
        now: Boot,
        events: &mut Vec<DeviceEvent>,
    ) -> bool {
        self.listener.drive(registry, self.token, now);
        let mut accepted = 0;
        while self.clients.len() < MAX_CLIENTS
            && accepted < MAX_ACCEPTED
            && let Some((mut stream, _)) = self.listener.accept(now)
        {
            accepted += 1;
            let token = new_token();
            let opened = stream.register(registry, token).and_then(|()| ServerConnection::new(stream, registry, token));
            match opened {
                Ok(connection) => {
                    self.clients.insert(token, PluginClient { connection, until: now + PATIENCE, left: MAX_REQUESTS });
                    self.read(token, events);
                }
                Err(e) => log::warn!("failed to accept a connection of a device plugin error={:?}", e.to_string()),
            }
        }
        accepted == MAX_ACCEPTED
    }

    /// Handles the requests that have arrived, and sends the responses. Reads again after each response, because the
    /// poll does not report requests that were already read.
    fn read(&mut self, token: Token, events: &mut Vec<DeviceEvent>) {
        let mut requests = Vec::new();
        while let Some(client) = self.clients.get_mut(&token) {
            let open = client.connection.drive(&mut requests);
            let gone = !open || requests.len() > client.left;
            client.left = client.left.saturating_sub(requests.len());
            let mut answered = false;
            for request in requests.drain(..) {
                if let Some((id, refusal)) = self.request(token, request, events) {
                    self.send(token, id, Err(refusal));
                    answered = true;
                }
            }
            if gone {
                self.remove(token);
            }
            if !answered {
                return;
            }
        }
    }

    /// Passes a registration to the engine. For other requests, returns the request and its error.
    fn request(
        &mut self,
        token: Token,
        request: GrpcRequest,
        events: &mut Vec<DeviceEvent>,
    ) -> Option<(u64, ErrorStatus)> {
        let GrpcRequest { id, path, body } = request;
        if path != proto::REGISTER {
            return Some((id, ErrorStatus { code: UNIMPLEMENTED, message: format!("unknown method {path}") }));
        }
        match proto::registration(&body) {
            Ok(registration) => {
                self.last_id += 1;
                self.waiting.insert(self.last_id, (token, id));
                events.push(DeviceEvent::Register { id: self.last_id, registration });
                None
            }
            Err(message) => Some((id, ErrorStatus { code: INVALID_ARGUMENT, message })),
        }
    }

    /// Responds to a registration.
    pub fn answer(&mut self, id: u64, result: Result<(), String>, events: &mut Vec<DeviceEvent>) {
        let Some((token, request)) = self.waiting.remove(&id) else { return };
        let result = result.map(|()| proto::empty()).map_err(|message| ErrorStatus { code: UNKNOWN, message });
        self.send(token, request, result);
        self.read(token, events);
    }

    /// Queues a response. The caller must call `read` afterwards.
    fn send(&mut self, token: Token, request: u64, result: Result<Bytes, ErrorStatus>) {
        if let Some(client) = self.clients.get_mut(&token) {
            client.connection.answer(request, result);
        }
    }

    fn remove(&mut self, token: Token) {
        self.clients.remove(&token);
        self.waiting.retain(|_, (of, _)| *of != token);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::grpc::h2::connection::GrpcConnection;
    use crate::net::grpc::{Call, CallId, Completion};
    use crate::net::stream::Stream;
    use mio::net::UnixStream;
    use mio::{Interest, Poll};

    const LISTENER: Token = Token(1);
    const CLIENT: Token = Token(2);

    struct Lab {
        poll: Poll,
        registrations: Registrations,
        client: GrpcConnection,
        calls: u64,
        events: Vec<DeviceEvent>,
        _directory: tempfile::TempDir,
    }

    impl Lab {
        fn new() -> Lab {
            let poll = Poll::new().unwrap();
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("kubelet.sock");
            let mut registrations = Registrations::new(&path, LISTENER);
            registrations.drive_due(poll.registry(), &mut || Token(9), Boot(0), &mut Vec::new());
            let mut stream = UnixStream::connect(&path).unwrap();
            poll.registry().register(&mut stream, CLIENT, Interest::READABLE).unwrap();
            let client = GrpcConnection::on(Stream::Unix(stream), poll.registry(), CLIENT).unwrap();
            let mut lab = Lab { poll, registrations, client, calls: 0, events: Vec::new(), _directory: directory };
            lab.ready(LISTENER);
            for _ in 0..3 {
                lab.answers();
                lab.ready(Token(9));
            }
            lab
        }

        fn ready(&mut self, token: Token) {
            let Lab { poll, registrations, events, .. } = self;
            registrations.ready(token, poll.registry(), &mut || Token(9), Boot(0), events);
        }

        /// Sends a request.
        fn call(&mut self, path: &'static str, resource: &str) {
            let body = [&[0x1a, resource.len() as u8], resource.as_bytes()].concat();
            let call = Call { path, body: body.into(), deadline: None, server_stream: false, header: None, most: 1024 };
            self.client.start(CallId(self.calls), call, Boot(0)).unwrap();
            self.calls += 1;
            self.client.drive(true, &mut Vec::new());
        }

        /// Returns the number of responses that the client has received since the last call.
        fn answers(&mut self) -> usize {
            let mut out = Vec::new();
            self.client.drive(true, &mut out);
            out.iter().filter(|c| matches!(c, Completion::Done { .. })).count()
        }

        fn registered(&self) -> Vec<&str> {
            let events = self.events.iter();
            events
                .map(|event| match event {
                    DeviceEvent::Register { registration, .. } => registration.resource.as_str(),
                    other => panic!("{other:?}"),
                })
                .collect()
        }
    }

    #[test]
    fn a_request_that_arrives_before_the_answer_of_another_one_is_not_lost() {
        let mut lab = Lab::new();
        lab.call(proto::REGISTER, "v.io/a");
        lab.ready(Token(9));
        assert_eq!(lab.registered(), ["v.io/a"]);
        lab.call(proto::REGISTER, "v.io/b");
        // The poll has not reported the second request yet.
        let Lab { registrations, events, .. } = &mut lab;
        registrations.answer(1, Ok(()), events);
        assert_eq!(lab.answers(), 1);
        lab.ready(Token(9));
        assert_eq!(lab.registered(), ["v.io/a", "v.io/b"]);
    }

    #[test]
    fn other_methods_are_refused_and_too_many_requests_end_the_connection() {
        let mut lab = Lab::new();
        lab.call("/v1beta1.Registration/Other", "");
        lab.ready(Token(9));
        assert_eq!((lab.answers(), lab.registered().len()), (1, 0));
        for _ in 0..MAX_REQUESTS {
            lab.call("/v1beta1.Registration/Other", "");
            lab.ready(Token(9));
            lab.answers();
        }
        assert!(!lab.registrations.owns(Token(9)));
    }

    #[test]
    fn four_clients_are_accepted_in_a_turn_and_sixteen_in_all() {
        let poll = Poll::new().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kubelet.sock");
        let mut registrations = Registrations::new(&path, LISTENER);
        let mut last = LISTENER.0;
        let mut new_token = || {
            last += 1;
            Token(last)
        };
        let mut turn =
            |r: &mut Registrations| r.ready(LISTENER, poll.registry(), &mut new_token, Boot(0), &mut Vec::new());
        registrations.drive_due(poll.registry(), &mut || Token(9), Boot(0), &mut Vec::new());
        let _crowd: Vec<UnixStream> = (0..20).map(|_| UnixStream::connect(&path).unwrap()).collect();
        for (accepted, more) in [(4, true), (8, true), (12, true), (16, true), (16, false)] {
            assert_eq!((turn(&mut registrations), registrations.clients.len()), (more, accepted));
        }
    }
}
