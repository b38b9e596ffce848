//! The client against a real server. The time of the client is virtual.

mod connecting;
pub mod server;

use super::*;
use crate::api::time::Boot;
use crate::net::tls::verified::Connector;
use bytes::Bytes;
use http::Method;
use mio::{Events, Poll, Token};
use server::{Ca, Control, Exchange, Options, Server};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

const TOKENS: [Token; 2] = [Token(3), Token(4)];
/// The maximum real time that a test waits.
const PATIENCE: Duration = Duration::from_secs(20);
const LOCAL: &str = "127.0.0.1";

/// A client, driven by hand.
struct Driven {
    client: Client,
    poll: Poll,
    now: Boot,
    events: Vec<Event>,
}

impl Driven {
    fn new(peer: Peer) -> Driven {
        let client = Client::new(peer, TOKENS, Times::default());
        Driven { client, poll: Poll::new().unwrap(), now: Boot(1_000_000_000_000), events: Vec::new() }
    }

    fn advance(&mut self, seconds: u64) {
        self.now = self.now + Duration::from_secs(seconds);
    }

    /// Runs one turn of the loop, which waits a few milliseconds for a socket.
    fn turn(&mut self) {
        let mut events = Events::with_capacity(16);
        self.poll.poll(&mut events, Some(Duration::from_millis(2))).unwrap();
        for event in &events {
            assert!(self.client.owns(event.token()));
            self.client.ready(event.token());
        }
        while self.client.drive(self.poll.registry(), self.now, &mut self.events) {}
    }

    fn until<T>(&mut self, mut found: impl FnMut(&mut Driven) -> Option<T>) -> T {
        let end = Instant::now() + PATIENCE;
        loop {
            self.turn();
            if let Some(result) = found(self) {
                return result;
            }
            assert!(Instant::now() < end, "still waiting; so far: {:?}", self.events);
        }
    }

    fn get(&mut self, target: &str, deadline: Option<u64>) -> CallId {
        let deadline = deadline.map(|seconds| self.now + Duration::from_secs(seconds));
        self.call(Method::GET, target, Bytes::new(), deadline)
    }

    fn call(&mut self, method: Method, target: &str, body: Bytes, deadline: Option<Boot>) -> CallId {
        let headers = [(http::header::USER_AGENT, "test".parse().unwrap())].into_iter().collect();
        self.client.call(Request { method, target: target.to_owned(), headers, body, deadline })
    }

    /// Waits until a call has ended, and returns its result.
    fn done(&mut self, id: CallId) -> Result<(), CallError> {
        self.until(|driven| {
            let at = driven.events.iter().position(|e| matches!(e, Event::Done { id: done, .. } if *done == id))?;
            match driven.events.remove(at) {
                Event::Done { result, .. } => Some(result),
                _ => None,
            }
        })
    }

    fn is_done(&self, id: CallId) -> bool {
        self.events.iter().any(|event| matches!(event, Event::Done { id: done, .. } if *done == id))
    }

    fn request(&mut self, server: &Server) -> Exchange {
        self.until(|_| server.requests.try_recv().ok())
    }

    /// Returns the part of the body that a call has received so far.
    fn body(&self, id: CallId) -> String {
        let parts = self.events.iter().filter_map(|event| match event {
            Event::Body { id: of, bytes } if *of == id => Some(&bytes[..]),
            _ => None,
        });
        String::from_utf8(parts.collect::<Vec<_>>().concat()).unwrap()
    }

    fn ups(&self) -> usize {
        self.events.iter().filter(|e| matches!(e, Event::Up { .. })).count()
    }

    fn downs(&self) -> Vec<String> {
        let why = |event: &Event| if let Event::Down { why } = event { Some(why.clone()) } else { None };
        self.events.iter().filter_map(why).collect()
    }
}

fn options(ca: &Ca) -> Options {
    Options { certified: ca.server(LOCAL, (2020, 2100)), client_ca: None, protocol: b"h2", max_streams: 100 }
}

fn peer(ca: &Ca, address: SocketAddr) -> Peer {
    let tls = Connector::new(vec![ca.der()], None, LOCAL, b"h2").unwrap();
    Peer { host: Host::Address(address.ip()), port: address.port(), tls }
}

/// Returns a server, and a client that is not connected yet.
fn both() -> (Server, Driven) {
    let ca = Ca::new();
    let server = Server::start(&options(&ca));
    let driven = Driven::new(peer(&ca, server.address));
    (server, driven)
}

#[test]
fn a_request_and_its_answer_are_passed_on_completely() {
    let (server, mut driven) = both();
    assert_eq!(driven.client.next_deadline(), None, "without a call there is no connection");
    let body = "x".repeat(300_000);
    let id = driven.call(Method::PUT, "/a/b?c=d", Bytes::from(body.clone()), None);
    let exchange = driven.request(&server);
    assert_eq!(exchange.head.method(), Method::PUT);
    let uri = format!("https://{}/a/b?c=d", server.address);
    assert_eq!(exchange.head.uri().to_string(), uri);
    assert_eq!(exchange.header("user-agent"), Some("test"));
    assert_eq!(exchange.body, body.as_bytes());
    let answer = "y".repeat(2_000_000);
    exchange.answer(201, &[("x-test", "1")], &answer);
    assert_eq!(driven.done(id), Ok(()));
    assert!(driven.body(id) == answer);
    assert!(matches!(&driven.events[0], Event::Up { address } if *address == server.address));
    let head = driven.events.iter().find_map(|event| match event {
        Event::Head { status, headers, .. } => Some((status.as_u16(), headers.get("x-test").cloned())),
        _ => None,
    });
    assert_eq!(head, Some((201, Some("1".parse().unwrap()))));
    assert_eq!(driven.client.next_deadline(), None);
}

#[test]
fn a_server_that_stops_reading_gets_the_rest_later() {
    let (server, mut driven) = both();
    let first = driven.get("/", None);
    driven.request(&server).answer(200, &[], "");
    assert_eq!(driven.done(first), Ok(()));
    server.control(Control::Freeze);
    let body = "z".repeat(server::WINDOW as usize - 1000);
    let id = driven.call(Method::PUT, "/", Bytes::from(body.clone()), None);
    // Each drive returns although the socket is full. There is nothing to do until the server reads.
    for _ in 0..50 {
        driven.turn();
    }
    assert_eq!(driven.client.next_deadline(), None);
    let mut events = Events::with_capacity(16);
    driven.poll.poll(&mut events, Some(Duration::from_millis(20))).unwrap();
    assert!(events.is_empty(), "{events:?}");
    server.control(Control::Thaw);
    let exchange = driven.request(&server);
    assert!(exchange.body == body.as_bytes());
    exchange.answer(200, &[], "");
    assert_eq!(driven.done(id), Ok(()));
}

#[test]
fn the_parts_of_an_answer_arrive_before_its_end() {
    let (server, mut driven) = both();
    let id = driven.get("/watch", None);
    let mut exchange = driven.request(&server);
    let mut stream = exchange.begin(200, &[]);
    for (part, so_far) in [("one", "one"), ("two", "onetwo")] {
        stream.send_data(Bytes::from(part), false).unwrap();
        driven.until(|driven| (driven.body(id) == so_far).then_some(()));
    }
    stream.send_data(Bytes::new(), true).unwrap();
    assert_eq!(driven.done(id), Ok(()));
}

#[test]
fn a_cancelled_call_is_reset_at_the_server() {
    let (server, mut driven) = both();
    let id = driven.get("/watch", None);
    let mut exchange = driven.request(&server);
    let mut stream = exchange.begin(200, &[]);
    driven.client.cancel(id);
    assert_eq!(driven.done(id), Err(CallError::Unknown("GET /watch: cancelled".to_owned())));
    driven.until(|_| {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        stream.poll_reset(&mut context).is_ready().then_some(())
    });
    // Cancelling a call that has ended has no effect.
    driven.client.cancel(id);
    driven.turn();
    assert!(!driven.events.iter().any(|e| matches!(e, Event::Done { .. })));
}

#[test]
fn a_deadline_ends_a_call_and_not_the_connection() {
    let (server, mut driven) = both();
    let late = driven.get("/late", Some(3));
    let exchange = driven.request(&server);
    assert_eq!(driven.client.next_deadline(), Some(driven.now + Duration::from_secs(3)));
    driven.advance(3);
    assert_eq!(driven.done(late), Err(CallError::Unknown("GET /late: deadline exceeded".to_owned())));
    drop(exchange);
    let next = driven.get("/next", Some(3));
    let exchange = driven.request(&server);
    assert_eq!(exchange.connection, 0);
    exchange.answer(200, &[], "");
    assert_eq!(driven.done(next), Ok(()));
}

#[test]
fn a_connection_that_is_lost_leaves_the_result_unknown_and_the_next_call_connects_again() {
    let (server, mut driven) = both();
    let id = driven.get("/a", None);
    let mut exchange = driven.request(&server);
    let mut stream = exchange.begin(200, &[]);
    stream.send_data(Bytes::from("part"), false).unwrap();
    driven.until(|driven| (driven.body(id) == "part").then_some(()));
    server.control(Control::Close);
    let result = driven.done(id);
    assert!(matches!(&result, Err(CallError::Unknown(why)) if why.starts_with("GET /a: ")), "{result:?}");
    assert_eq!(driven.downs().len(), 1, "{:?}", driven.events);
    let id = driven.get("/b", None);
    driven.request(&server).answer(200, &[], "");
    assert_eq!((driven.done(id), driven.ups()), (Ok(()), 2));
}

#[test]
fn after_a_goaway_new_calls_use_a_new_connection_and_old_ones_go_on() {
    let (server, mut driven) = both();
    let old = driven.get("/old", None);
    let mut exchange = driven.request(&server);
    let mut stream = exchange.begin(200, &[]);
    server.control(Control::Leave);
    // The connection stays in its slot until the GOAWAY has arrived.
    let next = driven.until(|driven| {
        let id = driven.get("/new", None);
        let sent = driven.until(|driven| match server.requests.try_recv() {
            Ok(exchange) => Some(Some(exchange)),
            Err(_) => driven.is_done(id).then_some(None),
        });
        // The GOAWAY can arrive while the call waits for its turn.
        let Some(exchange) = sent else {
            assert!(matches!(driven.done(id), Err(CallError::NotSent(_))));
            return None;
        };
        let connection = exchange.connection;
        exchange.answer(200, &[], "");
        assert_eq!(driven.done(id), Ok(()));
        (connection == 1).then_some(connection)
    });
    assert_eq!(next, 1);
    stream.send_data(Bytes::from("still here"), true).unwrap();
    assert_eq!((driven.done(old), driven.body(old).as_str()), (Ok(()), "still here"));
    assert_eq!((driven.ups(), driven.downs()), (1, vec![]), "not reported");
}

#[test]
fn a_silent_server_is_given_up_after_a_ping() {
    let (server, mut driven) = both();
    let watch = driven.get("/watch", None);
    let first = driven.request(&server);
    server.control(Control::Freeze);
    // Receive everything that the server sent before.
    driven.turn();
    driven.turn();
    driven.advance(60);
    driven.turn();
    assert_eq!(driven.client.next_deadline(), None, "a watch may be silent");
    let lease = driven.get("/lease", Some(10));
    driven.turn();
    driven.turn();
    let deadline = driven.client.next_deadline();
    assert_eq!(deadline, Some(driven.now + Duration::from_secs(5)), "the answer to the PING");
    driven.advance(5);
    let why = "no data received for 65 s, and no response to a PING within 5 s";
    assert_eq!(driven.done(lease), Err(CallError::Unknown(format!("GET /lease: {why}"))));
    assert_eq!(driven.done(watch), Err(CallError::Unknown(format!("GET /watch: {why}"))));
    assert_eq!(driven.downs(), [format!("https://{}: {why}", server.address)]);
    drop(first);
}

#[test]
fn a_slow_server_that_answers_pings_is_kept() {
    let (server, mut driven) = both();
    let id = driven.get("/slow", Some(100));
    let exchange = driven.request(&server);
    for _ in 0..8 {
        driven.advance(10);
        let pinged = driven.now;
        driven.turn();
        // The reply postpones the next PING.
        driven.until(|driven| (driven.client.next_deadline() == Some(pinged + Duration::from_secs(10))).then_some(()));
    }
    exchange.answer(200, &[], "");
    assert_eq!((driven.done(id), driven.downs()), (Ok(()), vec![]));
}

#[test]
fn many_calls_use_a_second_connection_and_more_of_them_wait() {
    let (server, mut driven) = both();
    let ids: Vec<CallId> = (0..170).map(|n| driven.get(&format!("/{n}"), None)).collect();
    let mut exchanges: Vec<Exchange> = (0..160).map(|_| driven.request(&server)).collect();
    assert_eq!([0, 1].map(|c| exchanges.iter().filter(|e| e.connection == c).count()), [80, 80]);
    for _ in 0..10 {
        driven.turn();
    }
    assert!(server.requests.try_recv().is_err());
    while let Some(exchange) = exchanges.pop() {
        exchange.answer(200, &[], "");
        while let Ok(more) = server.requests.try_recv() {
            exchanges.push(more);
        }
        driven.turn();
    }
    driven.until(|driven| {
        exchanges.extend(server.requests.try_iter());
        exchanges.drain(..).for_each(|exchange| exchange.answer(200, &[], ""));
        let done = driven.events.iter().filter(|e| matches!(e, Event::Done { result: Ok(()), .. })).count();
        (done == ids.len()).then_some(())
    });
    assert_eq!(driven.ups(), 1);
}

#[test]
fn the_servers_limit_of_streams_is_respected() {
    let ca = Ca::new();
    let server = Server::start(&Options { max_streams: 2, ..options(&ca) });
    let mut driven = Driven::new(peer(&ca, server.address));
    let ids: Vec<CallId> = (0..5).map(|n| driven.get(&format!("/{n}"), Some(60))).collect();
    let exchanges: Vec<Exchange> = (0..4).map(|_| driven.request(&server)).collect();
    assert_eq!(exchanges.iter().map(|e| e.connection).max(), Some(1));
    driven.advance(60);
    let result = driven.done(ids[4]);
    assert!(matches!(&result, Err(CallError::NotSent(why)) if why.contains("while the call waited")), "{result:?}");
}

#[test]
fn a_replaced_peer_gets_new_calls_while_old_ones_go_on() {
    let (server, mut driven) = both();
    let old = driven.get("/old", None);
    let exchange = driven.request(&server);
    let other = Ca::new();
    let second = Server::start(&options(&other));
    driven.client.replace(peer(&other, second.address));
    let new = driven.get("/new", None);
    driven.request(&second).answer(200, &[], "");
    assert_eq!(driven.done(new), Ok(()));
    exchange.answer(200, &[], "");
    assert_eq!(driven.done(old), Ok(()));
}

#[test]
fn five_informational_responses_may_precede_an_answer() {
    let (server, mut driven) = both();
    for (count, fine) in [(5, true), (6, false)] {
        let id = driven.get("/", None);
        let mut exchange = driven.request(&server);
        for _ in 0..count {
            let head = http::Response::builder().status(103).body(()).unwrap();
            exchange.respond.send_informational(head).unwrap();
        }
        if fine {
            exchange.answer(200, &[], "");
            assert_eq!(driven.done(id), Ok(()));
        } else {
            let error = driven.done(id).unwrap_err();
            let CallError::Unknown(why) = &error else { panic!("{error:?}") };
            assert!(why.ends_with("more than 5 informational responses (1xx)"), "{why}");
        }
    }
}
