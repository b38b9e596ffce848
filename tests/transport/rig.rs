//! An event loop with one transport.

use bytes::Bytes;
use mio::{Registry, Token};
use std::path::Path;
use std::time::Duration;
use wherry::api::time::Boot;
use wherry::event_loop::{EventLoop, clock};
use wherry::net::grpc::{Call, CallError, CallId, Completion, Transport, h2::H2Transport};

pub type Factory = fn(&Path, &Registry, Token) -> Box<dyn Transport>;

pub fn h2(path: &Path, registry: &Registry, token: Token) -> Box<dyn Transport> {
    Box::new(H2Transport::connect(path, registry, token).unwrap())
}

#[cfg(feature = "grpcio")]
pub fn grpcio(path: &Path, registry: &Registry, token: Token) -> Box<dyn Transport> {
    use wherry::net::grpc::grpcio::GrpcioTransport;
    Box::new(GrpcioTransport::connect(path, registry, token).unwrap())
}

const TOKEN: Token = Token(1);

/// At least ten times the duration of any wait in these tests.
const PATIENCE: Duration = Duration::from_secs(240);

pub struct Rig {
    pub event_loop: EventLoop,
    pub transport: Box<dyn Transport>,
    pub seen: Vec<Completion>,
    pub drives: usize,
}

impl Rig {
    pub fn new(factory: Factory, path: &Path) -> Rig {
        let event_loop = EventLoop::new().unwrap();
        let transport = factory(path, event_loop.registry(), TOKEN);
        Rig { event_loop, transport, seen: Vec::new(), drives: 0 }
    }

    /// Connects and waits for `Up`.
    pub fn up(factory: Factory, path: &Path) -> Rig {
        let mut rig = Rig::new(factory, path);
        rig.until("Up", |seen| seen.contains(&Completion::Up));
        assert!(rig.transport.is_up());
        rig.seen.clear();
        rig
    }

    pub fn call(&mut self, path: &'static str, body: impl Into<Bytes>) -> CallId {
        self.call_within(path, body, PATIENCE)
    }

    pub fn call_within(&mut self, path: &'static str, body: impl Into<Bytes>, time: Duration) -> CallId {
        let now = clock::boot();
        let call = Call {
            path,
            body: body.into(),
            deadline: Some(now + time),
            server_stream: false,
            header: None,
            most: 16 << 20,
        };
        self.transport.call(call, now)
    }

    pub fn stream(&mut self, path: &'static str, body: impl Into<Bytes>) -> CallId {
        let call = Call { path, body: body.into(), deadline: None, server_stream: true, header: None, most: 16 << 20 };
        self.transport.call(call, clock::boot())
    }

    /// Drives the transport. If that yields no completion, waits for the next event or deadline, at most until `latest`.
    pub fn turn(&mut self, latest: Boot) {
        let mut ready = Vec::new();
        let before = self.seen.len();
        if self.transport.drive(clock::boot(), &mut self.seen) {
            self.event_loop.again(TOKEN);
        }
        self.drives += 1;
        if self.seen.len() > before {
            return;
        }
        let deadline = self.transport.next_deadline().map_or(latest, |at| at.min(latest));
        self.event_loop.turn(Some(deadline), &mut ready).unwrap();
    }

    pub fn until(&mut self, what: &str, done: impl Fn(&[Completion]) -> bool) {
        let latest = clock::boot() + PATIENCE;
        while !done(&self.seen) {
            assert!(clock::boot() < latest, "no {what}; seen: {:?}", short(&self.seen));
            self.turn(latest);
        }
    }

    pub fn run_for(&mut self, time: Duration) {
        let latest = clock::boot() + time;
        while clock::boot() < latest {
            self.turn(latest);
        }
    }

    /// Waits for the result of the call. Panics if the call has two results.
    pub fn end(&mut self, id: CallId) -> Result<Bytes, CallError> {
        self.until("end of the call", |seen| ends(seen, id).next().is_some());
        let mut all = ends(&self.seen, id);
        let end = all.next().unwrap().clone();
        assert!(all.next().is_none(), "{id:?} ended twice");
        end
    }

    pub fn messages(&self, id: CallId) -> Vec<Bytes> {
        let message = |c: &Completion| match c {
            Completion::Message { id: of, message } if *of == id => Some(message.clone()),
            _ => None,
        };
        self.seen.iter().filter_map(message).collect()
    }

    pub fn downs(&self) -> Vec<String> {
        let down = |c: &Completion| match c {
            Completion::Down { why } => Some(why.clone()),
            _ => None,
        };
        self.seen.iter().filter_map(down).collect()
    }
}

fn ends(seen: &[Completion], id: CallId) -> impl Iterator<Item = &Result<Bytes, CallError>> {
    seen.iter().filter_map(move |c| match c {
        Completion::Done { id: of, result } if *of == id => Some(result),
        _ => None,
    })
}

/// The last completions, each cut to 200 characters, for a panic message.
fn short(seen: &[Completion]) -> Vec<String> {
    seen.iter().rev().take(20).map(|c| format!("{c:?}").chars().take(200).collect()).collect()
}
