//! Requests and streamed bodies of the secure listener.

use super::tls::Tls;
use super::{KUBECTL, MAX_SECURE_BODY, MAX_SECURE_CONNECTIONS, Node, SECURE_BUDGET, TestBody, count, stream};
use crate::api::time::Boot;
use crate::net::server::exchange::{Body, JSON, Part, Request, Response, Upstream};
use crate::net::tls::server::Acceptor;
use std::cell::Cell;
use std::io::Write;
use std::rc::Rc;
use std::time::Duration;

/// The period of the bookmarks of `/pods`.
const PERIOD: Duration = Duration::from_secs(60);

/// `/small` is `{}`, `/long` is 300 kB in pieces, `/once` a body that ends after a wait, `/watch` is the newest state
/// after each change, `/pods` a watch with a bookmark in each period, `/exec` goes to `upstream`. Other paths return
/// the length of the request's body, and `/refused` is refused as soon as its head has arrived.
#[derive(Default)]
pub(super) struct Secure {
    pub(super) acceptor: Option<Acceptor>,
    pub(super) state: Rc<Cell<u64>>,
    pub(super) upstream: Option<Upstream>,
    /// Whether all clients are refused.
    revoked: bool,
    /// The expiry of the clients' certificates; None if they never expire.
    expires: Option<Boot>,
    now: Rc<Cell<Boot>>,
    /// The number of pieces that were written.
    pub(super) pieces: usize,
}

impl Secure {
    pub(super) fn answer(&mut self, request: &Request<'_>) -> Response<TestBody> {
        if self.is_refused(request) {
            return failure(401);
        }
        let mut response = match (request.head.path.as_str(), self.upstream.clone()) {
            ("/small", _) => Response::json(b"{}".to_vec()),
            ("/long", _) => stream(TestBody::pieces(300, &[b'l'; 1000], b"end\n")),
            ("/once", _) => stream(ending()),
            ("/watch", _) => stream(newest(self.state.clone())),
            ("/pods", _) => stream(bookmarks(self.now.clone())),
            ("/exec", Some(upstream)) => Response::new(200, JSON, Body::Upgrade(upstream)),
            _ => Response::json(format!("{{\"body\":{}}}", request.body.len()).into_bytes()),
        };
        response.until = self.expires;
        response
    }

    fn is_refused(&self, request: &Request<'_>) -> bool {
        self.revoked || request.certificate.is_none()
    }

    pub(super) fn refusal(&mut self, request: &Request<'_>) -> Option<Response<TestBody>> {
        match request.head.path.as_str() {
            _ if self.is_refused(request) => Some(failure(401)),
            "/refused" => Some(failure(403)),
            _ => None,
        }
    }
}

/// Returns a response with a Status object.
pub(super) fn failure(status: u16) -> Response<TestBody> {
    let body = serde_json::json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status });
    Response { status, ..Response::json(body.to_string().into_bytes()) }
}

/// Returns a body that ends with its second piece.
fn ending() -> TestBody {
    let mut ends = false;
    TestBody::new(true, move |out| {
        out.extend_from_slice(b"line\n");
        if std::mem::replace(&mut ends, true) { Part::End } else { Part::Wait }
    })
}

/// Returns a watch that is a position: a slow client gets only the newest state.
fn newest(state: Rc<Cell<u64>>) -> TestBody {
    let mut sent = None;
    TestBody::new(true, move |out| {
        if sent.replace(state.get()) == Some(state.get()) {
            return Part::Wait;
        }
        out.extend_from_slice(format!("state {};{}\n", state.get(), "x".repeat(10_000)).as_bytes());
        Part::More
    })
}

/// Returns a watch that sends only bookmarks.
fn bookmarks(now: Rc<Cell<Boot>>) -> TestBody {
    let next = Rc::new(Cell::new(Some(now.get() + PERIOD)));
    let deadline = next.clone();
    let piece = move |out: &mut Vec<u8>| {
        if next.get().is_some_and(|at| at <= now.get()) {
            next.set(Some(now.get() + PERIOD));
            out.extend_from_slice(b"bookmark\n");
        }
        Part::Wait
    };
    TestBody { deadline, ..TestBody::new(true, piece) }
}

fn secure() -> (Node, impl Fn(&mut Node) -> Tls) {
    let (node, ca) = Node::secure();
    let config = ca.client(Some(ca.identity("ann")));
    (node, move |node| node.tls(&config))
}

/// Returns the status of the answer, whose body must be a Status object with the same code.
fn status_of(answer: &[u8]) -> u16 {
    let text = String::from_utf8_lossy(answer);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
    let code: u16 = head.split(' ').nth(1).unwrap().parse().unwrap();
    assert!(
        head.contains("\r\nContent-Type: application/json\r\n") && head.contains("\r\nConnection: close"),
        "{head}"
    );
    let status: serde_json::Value = serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {body:?}"));
    assert_eq!((&status["kind"], &status["status"]), (&"Status".into(), &"Failure".into()));
    assert_eq!((status["code"].as_u64(), status["apiVersion"].as_str()), (Some(code.into()), Some("v1")));
    code
}

#[test]
fn requests_that_two_servers_could_read_differently_are_refused_with_a_status() {
    let (mut node, connect) = secure();
    let post = |fields: &str, body: &str| format!("POST /x HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n{body}");
    let long = format!("GET /small HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "a".repeat(9000));
    for (request, code) in [
        (post("Content-Length: 3\r\nContent-Length: 4\r\n", "abcd"), 400),
        (post("Content-Length: 4, 4\r\n", "abcd"), 400),
        (post("Content-Length: +4\r\n", "abcd"), 400),
        (post("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), 411),
        (post("Transfer-Encoding: chunked\r\n", "0\r\n\r\n"), 411),
        (post("Transfer-Encoding: chunked, identity\r\n", "0\r\n\r\n"), 411),
        (post("Content-Length : 4\r\n", "abcd"), 400),
        (post(" Content-Length: 4\r\n", "abcd"), 400),
        (post("X: a\r\n b\r\nContent-Length: 4\r\n", "abcd"), 400),
        (post(&format!("Content-Length: {}\r\n", MAX_SECURE_BODY + 1), ""), 413),
        (post("Content-Length: 99999999999999999999\r\n", ""), 400),
        (post("Host: other\r\n", ""), 400),
        ("GET /small HTTP/1.1\r\n\r\n".to_owned(), 400),
        ("GET /small HTTP/2.0\r\nHost: localhost\r\n\r\n".to_owned(), 505),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), 505),
        ("GET /sm\0all HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 400),
        ("TRACE /small HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 405),
        ("CONNECT localhost:1 HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 405),
        (long, 431),
    ] {
        let mut client = connect(&mut node);
        // A second request that follows it must not be answered.
        client.write_all(format!("{request}GET /small HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).unwrap();
        let (all, end) = node.read(&mut client, |_| false);
        assert!(end, "{request:?}: the connection stays open");
        assert_eq!((status_of(&all), count(&all, "\r\nContent-Type: ")), (code, 1), "{request:?}");
    }
    assert!(node.pages.asked.is_empty(), "no request reached the content");
}

#[test]
fn bare_line_feeds_pipelining_and_head_have_one_answer_for_each_request() {
    let (mut node, connect) = secure();
    // httparse accepts a line that ends with LF, as RFC 9112 (2.2) permits. The next request begins directly after
    // it.
    let mut client = connect(&mut node);
    let answer = node.ask(
        &mut client,
        "GET /small HTTP/1.1\nHost: localhost\n\nPOST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nabcd\
         HEAD /small HTTP/1.1\r\nHost: localhost\r\n\r\nHEAD /watch HTTP/1.1\r\nHost: localhost\r\n\r\n\
         GET /small HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\nGET /small HTTP/1.1\r\n",
    );
    let bodies: Vec<&str> =
        answer.split("HTTP/1.1 200 OK\r\n").skip(1).map(|a| a.split_once("\r\n\r\n").unwrap().1).collect();
    assert_eq!(bodies, ["{}", "{\"body\":4}", "", "", "{}"], "{answer}");
    // An HTTP/1.0 response ends with the connection, even if its body is streamed.
    let mut client = connect(&mut node);
    let answer = node.ask(&mut client, "GET /long HTTP/1.0\r\n\r\n");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(!head.contains("chunked") && !head.contains("Content-Length"), "{head}");
    assert_eq!(body.len(), 300_004);
}

#[test]
fn heads_and_bodies_that_stop_end_at_their_deadlines() {
    let (mut node, connect) = secure();
    node.stop_clock();
    let mut slow_head = connect(&mut node);
    slow_head.write_all(b"GET /sma").unwrap();
    let mut small_body = connect(&mut node);
    small_body.write_all(b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nabc").unwrap();
    let mut large_body = connect(&mut node);
    large_body.write_all(b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2000000\r\n\r\nabc").unwrap();
    node.settle();
    node.skip(Duration::from_secs(4));
    assert_eq!(node.connections(), 3);
    node.skip(Duration::from_secs(2));
    assert_eq!(node.connections(), 1, "a large body has more time");
    node.skip(Duration::from_secs(23));
    large_body.write_all(b"abc").unwrap();
    node.settle();
    assert_eq!(node.connections(), 1);
    node.skip(Duration::from_secs(2));
    assert_eq!((node.connections(), node.server.next_deadline()), (0, None), "30 s in all");
    // A complete body of the maximum length is answered.
    let mut client = connect(&mut node);
    let head = format!("POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", MAX_SECURE_BODY);
    let body = vec![b'b'; MAX_SECURE_BODY];
    client.write_all(head.as_bytes()).unwrap();
    let mut sent = 0;
    while sent < body.len() {
        let end = body.len().min(sent + 16_000);
        sent += client.write(&body[sent..end]).unwrap_or(0);
        node.turn(Duration::ZERO);
    }
    let (all, _) = node.read(&mut client, |all| all.ends_with(b"}"));
    assert!(all.ends_with(format!("{{\"body\":{}}}", MAX_SECURE_BODY).as_bytes()), "{}", String::from_utf8_lossy(&all));
}

#[test]
fn a_body_is_not_read_if_its_head_is_refused() {
    let (mut node, connect) = secure();
    node.stop_clock();
    for (path, is_revoked, code) in [("/refused", false, 403), ("/x", true, 401)] {
        node.pages.secure.revoked = is_revoked;
        let mut client = connect(&mut node);
        let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", MAX_SECURE_BODY);
        client.write_all(head.as_bytes()).unwrap();
        let (all, _) = node.read(&mut client, |all| all.ends_with(b"}"));
        assert_eq!(status_of(&all), code);
        // The client sends its body anyway, and the server discards it.
        for _ in 0..100 {
            let _ = client.write(&[b'b'; 16_000]);
            node.turn(Duration::ZERO);
            assert!(node.server.connections().iter().all(|(_, _, queued)| *queued == 0));
        }
        node.skip(Duration::from_secs(6));
        assert_eq!((node.connections(), node.pages.asked.len()), (0, 0));
    }
    // A body that is accepted is read to its end, and the next request is checked again.
    node.pages.secure.revoked = false;
    let mut client = connect(&mut node);
    for part in ["POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 6\r\n\r\nab", "cd", "ef"] {
        client.write_all(part.as_bytes()).unwrap();
        node.settle();
    }
    let (all, _) = node.read(&mut client, |all| all.ends_with(b"}"));
    assert!(all.ends_with(b"{\"body\":6}"), "{}", String::from_utf8_lossy(&all));
    let answer = node.ask(&mut client, "POST /refused HTTP/1.1\r\nHost: localhost\r\nContent-Length: 6\r\n\r\nab");
    assert_eq!(status_of(answer.as_bytes()), 403);
}

#[test]
fn a_watch_ends_with_the_certificate_of_its_client() {
    let (mut node, connect) = secure();
    node.stop_clock();
    let now = node.now();
    node.pages.secure.expires = Some(now + Duration::from_secs(100));
    let mut watch = connect(&mut node);
    watch.write_all(b"GET /watch HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    node.settle();
    node.pages.secure.expires = None;
    let mut other = connect(&mut node);
    other.write_all(b"GET /watch HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    node.settle();
    assert_eq!(node.server.next_deadline(), Some(now + Duration::from_secs(100)));
    node.skip(Duration::from_secs(99));
    assert_eq!(node.connections(), 2);
    node.skip(Duration::from_secs(1));
    assert_eq!((node.connections(), node.server.next_deadline()), (1, None));
}

#[test]
fn an_idle_watch_gets_a_bookmark_in_each_period() {
    let (mut node, connect) = secure();
    node.stop_clock();
    node.pages.secure.now.set(node.now());
    let mut clients: Vec<Tls> = (0..SECURE_BUDGET + 3).map(|_| connect(&mut node)).collect();
    for client in &mut clients {
        client.write_all(b"GET /pods?watch=true HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    }
    node.settle();
    let deadline = node.server.next_deadline().expect("a deadline");
    assert_eq!(deadline, node.now() + PERIOD);
    for n in 1..=3 {
        let later = PERIOD * n * 2;
        node.pages.secure.now.set(node.now() + later);
        node.skip(later);
        for client in &mut clients {
            let (all, _) = node.read(client, |all| count(all, "bookmark") == 1);
            assert_eq!(count(&all, "bookmark"), 1);
        }
        let next = node.server.next_deadline().expect("a deadline");
        assert!(next > node.now() && next <= node.now() + PERIOD);
    }
    drop(clients);
    node.settle();
    assert_eq!(node.server.next_deadline(), None, "no deadline without a watch");
}

#[test]
fn a_watch_with_a_slow_reader_gets_newer_states_and_nothing_queues() {
    let (mut node, connect) = secure();
    let mut client = connect(&mut node);
    rustix::net::sockopt::set_socket_recv_buffer_size(&client.sock, 128 << 10).unwrap();
    client.write_all(b"GET /watch HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    node.settle();
    const CHANGES: u64 = 3000;
    for state in 1..=CHANGES {
        node.pages.secure.state.set(state);
        node.server.wake(|_| true);
        node.turn(Duration::ZERO);
        // One piece at a time: about 16 KiB.
        assert!(node.server.connections().iter().all(|(_, _, queued)| *queued <= 32 << 10));
    }
    let last = format!("state {CHANGES};");
    let (all, _) = node.read_for(Duration::from_secs(20), &mut client, |all| {
        count(&all[all.len().saturating_sub(40_000)..], &last) == 1
    });
    let states = count(&all, "state ") as u64;
    assert!(count(&all, &last) == 1 && (2..CHANGES / 2).contains(&states), "{states} of {CHANGES} states");
    // A client that reads nothing at all is closed.
    for state in CHANGES..2 * CHANGES {
        node.pages.secure.state.set(state);
        node.server.wake(|_| true);
        node.turn(Duration::ZERO);
    }
    node.skip(Duration::from_secs(601));
    assert_eq!(node.connections(), 0);
}

#[test]
fn a_turn_serves_a_bounded_number_of_watches_and_all_of_them_in_the_end() {
    let (mut node, connect) = secure();
    let mut clients: Vec<Tls> = Vec::new();
    for _ in 0..3 * SECURE_BUDGET + 5 {
        let mut client = connect(&mut node);
        // At once: a slow machine needs longer for all handshakes than a connection may wait for its request.
        client.write_all(b"GET /watch HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        clients.push(client);
    }
    node.settle();
    node.pages.secure.state.set(7);
    node.server.wake(|_| true);
    let mut pieces = Vec::new();
    loop {
        let before = node.pages.secure.pieces;
        let now = node.now();
        let again = node.server.drive(node.poll.registry(), now, &mut node.pages);
        pieces.push(node.pages.secure.pieces - before);
        if !again {
            break;
        }
    }
    assert_eq!(pieces, [SECURE_BUDGET, SECURE_BUDGET, SECURE_BUDGET, 5]);
    for client in &mut clients {
        let (all, _) = node.read(client, |all| count(all, "state 7;") == 1);
        assert_eq!(count(&all, "state 7;"), 1);
    }
    const { assert!(SECURE_BUDGET < MAX_SECURE_CONNECTIONS) };
}

#[test]
fn a_revoked_client_is_refused_on_an_open_connection_which_ends() {
    let (mut node, connect) = secure();
    let mut client = connect(&mut node);
    client.write_all(b"GET /small HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let (all, end) = node.read(&mut client, |all| all.ends_with(b"{}"));
    assert!(!end && !all.is_empty());
    node.pages.secure.revoked = true;
    let answer = node.ask(&mut client, "GET /small HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(status_of(answer.as_bytes()), 401);
    node.pages.secure.revoked = false;
    let mut watch = connect(&mut node);
    watch.write_all(b"GET /watch HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    node.settle();
    let Node { server, poll, pages, .. } = &mut node;
    assert_eq!(server.close_clients(KUBECTL, poll.registry(), |certificate| certificate.is_empty(), pages), 0);
    assert_eq!(server.close_clients(super::NODE, poll.registry(), |_| true, pages), 0);
    assert_eq!(server.close_clients(KUBECTL, poll.registry(), |certificate| !certificate.is_empty(), pages), 1);
    assert_eq!(node.connections(), 0);
}
