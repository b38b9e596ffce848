use super::http::{Body, Route, Ticket};
use super::*;
use crate::net::http1;
use mio::{Events, Poll};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::{Duration, Instant};

const FIRST: usize = 1000;

/// `/pods` is 100 kB in pieces, `/metrics` is 3 MB in one piece, a watch starts with two lines.
struct Pages {
    asked: Vec<Route>,
    parts: usize,
    /// Requests for `/drain`, whose answers are deferred.
    later: Vec<(Ticket, Bytes)>,
    gone: Vec<Ticket>,
}

impl Content for Pages {
    fn answer(&mut self, request: &Request) -> Response {
        self.asked.push(request.route);
        match request.route {
            Route::Pods | Route::Events if request.watch => Response {
                status: 200,
                content_type: http::JSON,
                body: Body::Watch(Cursor { stage: 100, after: None }),
            },
            Route::Pods => Response { status: 200, content_type: http::JSON, body: Body::Parts(Cursor::default()) },
            Route::Metrics => Response::metrics(vec![b'm'; 3_000_000]),
            Route::Drain => {
                self.later.push((request.ticket, request.body.clone()));
                Response::later()
            }
            Route::Retry => Response::text(200, format!("{} is retried\n", request.uid.as_deref().unwrap_or_default())),
            route => health::response(route, &[health::Check { name: "ping", failure: None }], request.verbose),
        }
    }

    fn gone(&mut self, ticket: Ticket) {
        self.gone.push(ticket);
    }

    fn part(&mut self, cursor: &mut Cursor, out: &mut Vec<u8>) -> bool {
        self.parts += 1;
        cursor.stage += 1;
        cursor.after = Some(Rc::from("x"));
        if cursor.stage > 100 {
            out.extend_from_slice(format!("line {}\n", cursor.stage).as_bytes());
            return cursor.stage < 102;
        }
        out.extend_from_slice(&[b'p'; 1000]);
        cursor.stage < 100
    }
}

/// A server with its poll and a clock that a test can advance.
struct Node {
    poll: Poll,
    server: Server,
    pages: Pages,
    began: Instant,
    skipped: Duration,
    stopped: Option<Duration>,
    dir: tempfile::TempDir,
    turns: usize,
}

impl Node {
    fn new() -> Node {
        let dir = tempfile::tempdir().unwrap();
        let any = "127.0.0.1:0".parse().unwrap();
        let listener_kinds =
            Listeners { control: Some(dir.path().join("sub/w.sock")), health: Some(any), read_only: Some(any) };
        let mut node = Node {
            poll: Poll::new().unwrap(),
            server: Server::new(listener_kinds, FIRST),
            pages: Pages { asked: Vec::new(), parts: 0, later: Vec::new(), gone: Vec::new() },
            began: Instant::now(),
            skipped: Duration::ZERO,
            stopped: None,
            dir,
            turns: 0,
        };
        node.turn(Duration::ZERO);
        node
    }

    fn now(&self) -> Boot {
        Boot(1) + self.stopped.unwrap_or_else(|| self.began.elapsed()) + self.skipped
    }

    /// Stops the clock. After that only `skip` advances it.
    fn stop_clock(&mut self) {
        self.stopped = Some(self.began.elapsed());
    }

    /// Runs one turn of the loop and waits at most `patience`. Returns true if there was an event.
    fn turn(&mut self, patience: Duration) -> bool {
        let mut events = Events::with_capacity(64);
        self.poll.poll(&mut events, Some(patience)).unwrap();
        for event in &events {
            assert!(self.server.owns(event.token()));
            self.server.ready(event.token());
        }
        let happened = !events.is_empty();
        loop {
            self.turns += 1;
            let now = self.now();
            if !self.server.drive(self.poll.registry(), now, &mut self.pages) {
                return happened;
            }
        }
    }

    fn settle(&mut self) {
        while self.turn(Duration::from_millis(20)) {}
    }

    fn skip(&mut self, d: Duration) {
        self.skipped += d;
        self.settle();
    }

    fn tcp(&mut self, listener_kind: ListenerKind) -> TcpStream {
        let stream = TcpStream::connect(self.server.local_address(listener_kind).unwrap()).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream
    }

    fn unix(&mut self) -> UnixStream {
        let stream = UnixStream::connect(self.dir.path().join("sub/w.sock")).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream
    }

    /// Runs the loop and reads until `until` returns true, the stream ends, or 2 s have passed. Returns true at the end of the
    /// stream.
    fn read(&mut self, stream: &mut impl Read, until: impl Fn(&[u8]) -> bool) -> (Vec<u8>, bool) {
        self.read_for(Duration::from_secs(2), stream, until)
    }

    fn read_for(
        &mut self,
        patience: Duration,
        stream: &mut impl Read,
        until: impl Fn(&[u8]) -> bool,
    ) -> (Vec<u8>, bool) {
        let mut all = Vec::new();
        let mut buffer = vec![0; 65536];
        let began = Instant::now();
        while began.elapsed() < patience {
            self.turn(Duration::from_millis(1));
            match stream.read(&mut buffer) {
                Ok(0) => return (all, true),
                Ok(n) => all.extend_from_slice(&buffer[..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) if e.kind() == ErrorKind::ConnectionReset => return (all, true),
                Err(e) => panic!("{e}"),
            }
            if until(&all) {
                break;
            }
        }
        (all, false)
    }

    /// Sends `request` and reads to the end of the stream.
    fn ask(&mut self, stream: &mut (impl Read + Write), request: &str) -> String {
        stream.write_all(request.as_bytes()).unwrap();
        let (all, end) = self.read(stream, |_| false);
        assert!(end, "the server did not close: {}", String::from_utf8_lossy(&all));
        String::from_utf8(all).unwrap()
    }

    fn connections(&self) -> usize {
        self.server.slots.iter().flatten().count()
    }
}

fn count(haystack: &[u8], needle: &str) -> usize {
    haystack.windows(needle.len()).filter(|w| *w == needle.as_bytes()).count()
}

#[test]
fn a_plain_request_is_answered_and_closed() {
    let mut node = Node::new();
    let mut client = node.tcp(ListenerKind::Health);
    assert_eq!(
        node.ask(&mut client, "GET /healthz HTTP/1.0\r\n\r\n"),
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nCache-Control: no-store\r\n\
         Content-Length: 2\r\nConnection: close\r\n\r\nok"
    );
    node.settle();
    assert_eq!((node.connections(), node.server.next_deadline()), (0, None), "an idle server has nothing to wait for");
}

#[test]
fn listeners_serve_their_own_routes_only() {
    let mut node = Node::new();
    let close = "HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let mut client = node.tcp(ListenerKind::Health);
    assert!(node.ask(&mut client, &format!("GET /pods {close}")).starts_with("HTTP/1.1 404 "));
    let mut client = node.tcp(ListenerKind::ReadOnly);
    assert!(node.ask(&mut client, &format!("GET /status {close}")).starts_with("HTTP/1.1 404 "));
    let mut client = node.unix();
    assert!(
        node.ask(&mut client, &format!("GET /readyz?verbose {close}")).ends_with("[+]ping ok\nreadyz check passed\n")
    );
    assert_eq!(node.pages.asked, [Route::Readyz]);
}

#[test]
fn a_streamed_body_is_chunked_or_ends_with_the_connection() {
    let mut node = Node::new();
    let mut client = node.unix();
    let answer = node.ask(&mut client, "GET /pods HTTP/1.0\r\n\r\n");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(!head.contains("Length") && !head.contains("chunked"), "{head}");
    assert_eq!(body.len(), 100_000);

    let mut client = node.tcp(ListenerKind::ReadOnly);
    let answer = node.ask(&mut client, "GET /pods HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let (head, mut body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("Transfer-Encoding: chunked"), "{head}");
    let mut total = 0;
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        total += size;
        body = &rest[size + 2..];
    }
    assert_eq!((total, body), (100_000, ""));
}

#[test]
fn a_body_is_made_only_as_fast_as_it_is_read() {
    let mut node = Node::new();
    let mut client = node.unix();
    client.write_all(&b"GET /pods HTTP/1.1\r\nHost: x\r\n\r\n".repeat(100)).unwrap();
    node.settle();
    // A unix socket buffers about 200 kB.
    assert!(node.pages.parts < 500, "{} pieces were produced for a client that reads nothing", node.pages.parts);
    // 10 MB.
    let whole = |all: &[u8]| all.ends_with(b"\r\n0\r\n\r\n") && count(all, "HTTP/1.1 200 OK") == 100;
    let (all, _) = node.read_for(Duration::from_secs(60), &mut client, whole);
    assert_eq!(count(&all, "HTTP/1.1 200 OK"), 100);
}

#[test]
fn pipelined_requests_are_answered_in_order_on_one_connection() {
    let mut node = Node::new();
    let mut client = node.tcp(ListenerKind::Health);
    let mut requests = String::new();
    for i in 0..50 {
        let path = ["/healthz", "/livez?verbose", "/nope"][i % 3];
        requests.push_str(&format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
    }
    let (early, late) = requests.split_at(777);
    client.write_all(early.as_bytes()).unwrap();
    node.settle();
    client.write_all(late.as_bytes()).unwrap();
    let (all, end) = node.read(&mut client, |all| count(all, "HTTP/1.1 ") == 50);
    assert!(!end);
    let text = String::from_utf8(all).unwrap();
    let statuses: Vec<&str> = text.split("HTTP/1.1 ").skip(1).map(|a| &a[..3]).collect();
    assert!(statuses.iter().enumerate().all(|(i, s)| *s == ["200", "200", "404"][i % 3]), "{statuses:?}");
}

#[test]
fn head_has_the_headers_and_no_body() {
    let mut node = Node::new();
    let mut client = node.unix();
    let answer = node.ask(&mut client, "HEAD /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert!(answer.contains("Content-Length: 3000000\r\n") && answer.ends_with("\r\n\r\n"), "{answer}");
    let mut client = node.unix();
    let answer = node.ask(&mut client, "HEAD /pods?watch=1 HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(answer.contains("chunked\r\n") && answer.ends_with("\r\n\r\n"), "{answer}");
}

#[test]
fn a_big_answer_is_written_in_parts() {
    let mut node = Node::new();
    let mut client = node.unix();
    let answer = node.ask(&mut client, "GET /metrics HTTP/1.0\r\n\r\n");
    assert_eq!(answer.split_once("\r\n\r\n").unwrap().1.len(), 3_000_000);
}

#[test]
fn garbage_a_huge_head_and_bodies_are_refused_and_the_answer_arrives() {
    let mut node = Node::new();
    for (request, status) in [
        ("\x16\x03\x01\x02\x00\x01\x00".to_owned(), "400"),
        (format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(50_000)), "431"),
        (format!("GET / HTTP/1.1\r\nHost: x\r\nA: {}", "a".repeat(20_000)), "431"),
        (format!("POST /pods HTTP/1.1\r\nHost: x\r\nContent-Length: 30000\r\n\r\n{}", "b".repeat(30_000)), "405"),
        (format!("GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{}", "b".repeat(9)), "413"),
        ("GET /healthz HTTP/3.0\r\n\r\n".to_owned(), "505"),
    ] {
        let mut client = node.tcp(ListenerKind::Health);
        client.write_all(request.as_bytes()).unwrap();
        let (all, _) = node.read(&mut client, |_| false);
        let text = String::from_utf8_lossy(&all);
        assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{status}: {text:?}");
        assert!(text.contains("Connection: close"), "{text}");
    }
    node.skip(Duration::from_secs(2));
    assert_eq!(node.connections(), 0, "the server does not wait for further input of a refused client");
}

#[test]
fn what_changes_something_is_asked_for_by_post_on_the_control_socket_alone() {
    let mut node = Node::new();
    let post = "POST /retry?uid=u1 HTTP/1.1\r\nHost: x\r\n";
    let mut client = node.unix();
    // Two POST requests, with a length of 0 and without a length, and then a GET on the same connection.
    let requests = format!("{post}Content-Length: 0\r\n\r\n{post}\r\nGET /healthz HTTP/1.0\r\n\r\n");
    let answers = node.ask(&mut client, &requests);
    assert_eq!(count(answers.as_bytes(), "HTTP/1.1 200 OK"), 3, "{answers}");
    assert_eq!(count(answers.as_bytes(), "u1 is retried"), 2, "{answers}");
    assert_eq!(node.pages.asked, [Route::Retry, Route::Retry, Route::Healthz]);

    let mut client = node.unix();
    let answer = node.ask(&mut client, "GET /retry?uid=u HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 405 ") && answer.contains("\r\nAllow: POST\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nonly POST\n"), "{answer}");
    let mut client = node.unix();
    let answer = node.ask(&mut client, &format!("{post}Content-Length: 3\r\n\r\nabc"));
    assert!(answer.starts_with("HTTP/1.1 413 ") && !answer.contains("Allow"), "{answer}");
    let mut client = node.unix();
    let answer = node.ask(&mut client, "POST /pods HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 405 ") && answer.contains("\r\nAllow: GET, HEAD\r\n"), "{answer}");
    for listener_kind in [ListenerKind::Health, ListenerKind::ReadOnly] {
        let mut client = node.tcp(listener_kind);
        let answer = node.ask(&mut client, &format!("{post}\r\n"));
        assert!(answer.starts_with("HTTP/1.1 405 "), "{listener_kind:?}: {answer}");
        let mut client = node.tcp(listener_kind);
        let answer = node.ask(&mut client, "GET /retry?uid=u HTTP/1.0\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 404 "), "{listener_kind:?}: {answer}");
    }
    assert_eq!(node.pages.asked.len(), 3, "none of these requests reached the content");
}

#[test]
fn a_client_that_closed_its_half_is_answered() {
    let mut node = Node::new();
    let mut client = node.tcp(ListenerKind::Health);
    client.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    let (all, end) = node.read(&mut client, |_| false);
    assert!(end && all.ends_with(b"ok"));

    let mut client = node.tcp(ListenerKind::Health);
    client.write_all(b"GET /heal").unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    let (all, end) = node.read(&mut client, |_| false);
    assert!(end && all.starts_with(b"HTTP/1.1 400 "));
}

#[test]
fn silent_and_slow_clients_are_closed_at_their_deadlines() {
    let mut node = Node::new();
    let mut silent = node.tcp(ListenerKind::Health);
    let mut slow = node.tcp(ListenerKind::Health);
    let mut idle = node.tcp(ListenerKind::Health);
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    slow.write_all(b"GET /heal").unwrap();
    node.settle();
    assert_eq!(node.connections(), 3);
    node.skip(Duration::from_secs(4));
    slow.write_all(b"th").unwrap();
    node.skip(Duration::from_millis(1200));
    assert_eq!(node.connections(), 1, "a head has 5 s from its first byte, even if bytes still arrive");
    assert!(node.read(&mut silent, |_| false).1 && node.read(&mut slow, |_| false).1);
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    node.settle();
    node.skip(Duration::from_secs(29));
    assert_eq!(node.connections(), 1, "an idle connection has 30 s");
    node.skip(Duration::from_secs(2));
    assert_eq!(node.connections(), 0);
    assert_eq!(node.server.next_deadline(), None);
}

#[test]
fn a_client_that_stops_reading_is_closed_and_costs_nobody_else() {
    let mut node = Node::new();
    let mut stuck: Vec<UnixStream> = (0..5).map(|_| node.unix()).collect();
    for client in &mut stuck {
        client.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    }
    node.settle();
    let turns = node.turns;
    node.turn(Duration::from_millis(50));
    assert_eq!(node.turns, turns + 1, "a client that blocks does not keep the loop awake");
    let mut client = node.unix();
    assert!(node.ask(&mut client, "GET /healthz HTTP/1.0\r\n\r\n").ends_with("ok"));
    node.skip(Duration::from_secs(31));
    assert_eq!(node.connections(), 0);
}

#[test]
fn of_a_hundred_connections_the_least_worthy_go_and_a_new_one_is_served() {
    let mut node = Node::new();
    let mut idle = node.tcp(ListenerKind::Health);
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    node.settle();
    let mut crowd = Vec::new();
    for i in 0..100 {
        let mut client = node.tcp(ListenerKind::Health);
        if i % 2 == 0 {
            client.write_all(b"GET /").unwrap();
        }
        crowd.push(client);
        node.turn(Duration::ZERO);
        assert!(node.connections() <= MAX_CONNECTIONS);
    }
    let mut client = node.tcp(ListenerKind::Health);
    assert!(node.ask(&mut client, "GET /healthz HTTP/1.0\r\n\r\n").ends_with("ok"));
    let mut other = node.tcp(ListenerKind::ReadOnly);
    assert!(node.ask(&mut other, "GET /healthz HTTP/1.0\r\n\r\n").ends_with("ok"), "each listener has its own limit");
    let (_, end) = node.read(&mut idle, |_| false);
    assert!(end, "the idle connection was closed first");
    node.skip(Duration::from_secs(6));
    assert_eq!(node.connections(), 0);
}

/// A client that sends requests and reads nothing until the server cannot write any more.
fn stuck(node: &mut Node) -> TcpStream {
    let mut client = node.tcp(ListenerKind::Health);
    // A small receive buffer fills soon.
    rustix::net::sockopt::set_socket_recv_buffer_size(&client, 2048).unwrap();
    let requests = b"GET /livez?verbose HTTP/1.1\r\nHost: x\r\n\r\n".repeat(1000);
    loop {
        match client.write(&requests) {
            Ok(_) => {}
            // The server reads no more, because it cannot write.
            Err(e) if e.kind() == ErrorKind::WouldBlock && !node.turn(Duration::from_millis(5)) => return client,
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(e) => panic!("{e}"),
        }
        node.turn(Duration::ZERO);
    }
}

#[test]
fn clients_that_never_read_hold_no_port() {
    let mut node = Node::new();
    node.stop_clock();
    let crowd: Vec<TcpStream> = (0..MAX_CONNECTIONS).map(|_| stuck(&mut node)).collect();
    let states = |node: &Node| node.server.connections().iter().filter(|(_, state, ..)| *state == "answering").count();
    assert_eq!((node.connections(), states(&node)), (MAX_CONNECTIONS, MAX_CONNECTIONS));
    for _ in 0..3 {
        let mut client = node.tcp(ListenerKind::Health);
        // The client connects first and sends its request later.
        node.settle();
        assert!(node.ask(&mut client, "GET /healthz HTTP/1.0\r\n\r\n").ends_with("ok"));
    }
    // Meanwhile new stuck clients replace the closed ones.
    node.skip(Duration::from_secs(2));
    let mut slow = node.tcp(ListenerKind::Health);
    node.settle();
    node.skip(Duration::from_secs(1));
    let more: Vec<TcpStream> = (0..4).map(|_| stuck(&mut node)).collect();
    assert!(
        node.ask(&mut slow, "GET /healthz HTTP/1.0\r\n\r\n").ends_with("ok"),
        "a client that is about to send its request outlasts them"
    );
    node.skip(Duration::from_secs(11));
    assert_eq!(node.connections(), 0, "a client that reads nothing for 10 s is closed");
    drop((crowd, more));
}

#[test]
fn an_answer_has_half_a_minute_in_all_if_its_client_takes_some_of_it() {
    let mut node = Node::new();
    node.stop_clock();
    let mut client = node.unix();
    client.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    node.settle();
    let mut buffer = vec![0; 300_000];
    for _ in 0..3 {
        node.skip(Duration::from_secs(9));
        assert_eq!(node.connections(), 1, "the client reads, but slowly");
        assert!(client.read(&mut buffer).unwrap() > 0);
        node.settle();
    }
    node.skip(Duration::from_secs(4));
    assert_eq!(node.connections(), 0);
}

#[test]
fn one_user_has_a_share_of_the_control_socket() {
    let mut node = Node::new();
    let own = rustix::process::geteuid().as_raw();
    let mut clients: Vec<UnixStream> = (0..connection_limit::MAX_OF_A_USER + 1).map(|_| node.unix()).collect();
    node.settle();
    let peers: Vec<Peer> = node.server.slots.iter().flatten().map(Connection::peer).collect();
    assert!(peers.iter().all(|peer| *peer == Peer::User(own)), "{peers:?}");
    let limited = own != 0;
    assert_eq!(
        peers.len(),
        if limited { connection_limit::MAX_OF_A_USER } else { connection_limit::MAX_OF_A_USER + 1 }
    );
    let (_, end) = node.read(&mut clients[0], |_| !limited);
    assert_eq!(end, limited, "the user's oldest connection is closed");
    let last = clients.last_mut().unwrap();
    assert!(node.ask(last, "GET /livez HTTP/1.0\r\n\r\n").ends_with("ok"));
}

#[test]
fn a_client_whose_answer_was_put_off_and_that_is_closed_for_another_is_reported_gone() {
    let mut node = Node::new();
    let limit = if rustix::process::geteuid().is_root() { MAX_CONNECTIONS } else { connection_limit::MAX_OF_A_USER };
    let mut clients: Vec<UnixStream> = (0..limit).map(|_| node.unix()).collect();
    for client in &mut clients {
        client.write_all(drain("x", "").as_bytes()).unwrap();
        node.settle();
    }
    assert_eq!(node.pages.later.len(), limit);
    let mut client = node.unix();
    assert!(node.ask(&mut client, "GET /livez HTTP/1.0\r\n\r\n").ends_with("ok"));
    assert_eq!(node.pages.gone, [node.pages.later[0].0]);
}

#[test]
fn a_burst_of_connections_is_served_over_several_turns() {
    let mut node = Node::new();
    let mut clients: Vec<TcpStream> = (0..60).map(|_| node.tcp(ListenerKind::Health)).collect();
    for client in &mut clients {
        client.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").unwrap();
    }
    for client in &mut clients {
        let (all, _) = node.read(client, |_| false);
        assert!(all.ends_with(b"ok"));
    }
}

#[test]
fn a_watch_begins_with_what_there_is_and_goes_on_with_what_comes() {
    let mut node = Node::new();
    let mut plain = node.unix();
    let mut chunked = node.unix();
    plain.write_all(b"GET /pods?watch=1 HTTP/1.0\r\n\r\n").unwrap();
    chunked.write_all(b"GET /pods?watch=1 HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    node.settle();
    assert!(node.server.has_watches(Route::Pods));
    node.skip(Duration::from_secs(3600));
    assert_eq!(node.connections(), 2, "a watch may be idle forever");
    assert_eq!(node.server.next_deadline(), None);
    let now = node.now();
    node.server.publish(Route::Pods, &b"news\n"[..], now);
    let (all, _) = node.read(&mut plain, |all| all.ends_with(b"news\n"));
    assert!(all.ends_with(b"\r\n\r\nline 101\nline 102\nnews\n"), "{:?}", String::from_utf8_lossy(&all));
    let (all, _) = node.read(&mut chunked, |all| all.ends_with(b"news\n\r\n"));
    assert!(all.ends_with(b"00000009\r\nline 102\n\r\n00000005\r\nnews\n\r\n"), "{:?}", String::from_utf8_lossy(&all));
    drop(plain);
    node.settle();
    assert_eq!(node.connections(), 1, "the server notices a disconnected client");
    assert_eq!(node.server.next_deadline(), None);
}

#[test]
fn a_watch_that_stops_reading_is_closed_and_the_others_go_on() {
    let mut node = Node::new();
    let (mut stuck, mut good) = (node.unix(), node.unix());
    for client in [&mut stuck, &mut good] {
        client.write_all(b"GET /pods?watch=1 HTTP/1.0\r\n\r\n").unwrap();
    }
    node.settle();
    let line = Bytes::from(vec![b'l'; 10_000]);
    let mut got = 0;
    for _ in 0..200 {
        let now = node.now();
        node.server.publish(Route::Pods, line.clone(), now);
        node.turn(Duration::ZERO);
        let (all, _) = node.read(&mut good, |all| all.len() >= 10_000);
        got += all.len();
    }
    assert!(got >= 2_000_000, "{got}");
    assert_eq!(node.connections(), 1, "the watch with a backlog of 1 MiB is closed");
}

#[test]
fn a_watch_of_events_that_stops_reading_costs_little_and_is_told_what_it_missed() {
    let mut node = Node::new();
    let mut stuck = node.unix();
    stuck.write_all(b"GET /events?watch=1 HTTP/1.0\r\n\r\n").unwrap();
    node.settle();
    assert!(node.server.has_watches(Route::Events) && !node.server.has_watches(Route::Pods));
    let line = Bytes::from([vec![b'l'; 999], vec![b'\n']].concat());
    for _ in 0..5000 {
        let now = node.now();
        node.server.publish(Route::Events, line.clone(), now);
        node.server.publish(Route::Pods, &b"of pods\n"[..], now);
        node.turn(Duration::ZERO);
        assert!(node.server.connections().iter().all(|(_, _, queued, _)| *queued <= 64 << 10));
    }
    node.skip(Duration::from_secs(3600));
    assert_eq!(node.connections(), 1, "a watch with a slow reader stays open");
    let (all, _) = node.read(&mut stuck, |all| all.ends_with(b"}\n"));
    let text = String::from_utf8(all).unwrap();
    let came = text.matches("lll\n").count();
    assert!((64..5000).contains(&came), "{came}");
    assert!(text.ends_with(&format!("lll\n{{\"type\":\"LOST\",\"count\":{}}}\n", 5000 - came)), "{came}");
    assert!(!text.contains("of pods"));
    let now = node.now();
    node.server.publish(Route::Events, &b"news\n"[..], now);
    let (all, _) = node.read(&mut stuck, |all| all.ends_with(b"news\n"));
    assert_eq!(all, b"news\n");
}

#[test]
fn a_watch_that_takes_nothing_for_half_a_minute_is_closed() {
    let mut node = Node::new();
    let mut stuck = node.unix();
    stuck.write_all(b"GET /pods?watch=1 HTTP/1.0\r\n\r\n").unwrap();
    node.settle();
    let now = node.now();
    node.server.publish(Route::Pods, vec![b'l'; 900_000], now);
    node.settle();
    node.skip(Duration::from_secs(29));
    assert_eq!(node.connections(), 1);
    node.skip(Duration::from_secs(2));
    assert_eq!(node.connections(), 0);
}

#[test]
fn watches_are_bounded_and_never_on_tcp() {
    let mut node = Node::new();
    let mut watches = Vec::new();
    for _ in 0..MAX_WATCHES {
        let mut client = node.unix();
        client.write_all(b"GET /pods?watch=1 HTTP/1.0\r\n\r\n").unwrap();
        watches.push(client);
        node.settle();
    }
    let mut client = node.unix();
    assert!(node.ask(&mut client, "GET /pods?watch=1 HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 503 "));
    let mut client = node.tcp(ListenerKind::ReadOnly);
    let answer = node.ask(&mut client, "GET /pods?watch=1 HTTP/1.0\r\n\r\n");
    assert_eq!(answer.split_once("\r\n\r\n").unwrap().1.len(), 100_000, "a TCP client gets the plain list");
}

#[test]
fn the_control_socket_is_for_owner_and_group_and_goes_at_the_end() {
    let mut node = Node::new();
    let path = node.dir.path().join("sub/w.sock");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
    node.server.close(node.poll.registry());
    assert!(!path.exists());
}

#[test]
fn a_control_socket_whose_file_goes_is_made_again_and_one_that_is_only_touched_is_not() {
    let mut node = Node::new();
    let path = node.dir.path().join("sub/w.sock");
    let inode = || std::fs::metadata(&path).unwrap().ino();
    let before = inode();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    node.settle();
    assert_eq!(inode(), before);
    let aside = path.with_extension("aside");
    std::fs::rename(&path, &aside).unwrap();
    node.settle();
    assert_ne!(inode(), before);
    std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
    node.settle();
    let mut client = node.unix();
    assert!(node.ask(&mut client, "GET /livez HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 200 "));
}

#[test]
fn a_dead_instances_socket_is_replaced_and_a_living_ones_is_not() {
    let mut node = Node::new();
    let path = node.dir.path().join("sub/w.sock");
    let inode = std::fs::metadata(&path).unwrap().ino();
    let listener_kinds = Listeners { control: Some(path.clone()), ..Listeners::default() };
    let mut second = Server::new(listener_kinds, FIRST);
    let poll = Poll::new().unwrap();
    second.drive(poll.registry(), Boot(1), &mut node.pages);
    assert!(!second.is_listening(ListenerKind::Control));
    assert_eq!(std::fs::metadata(&path).unwrap().ino(), inode);
    assert_eq!(second.next_deadline(), Some(Boot(1) + Duration::from_secs(1)), "the listener retries");

    node.server.close(node.poll.registry());
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "a killed process leaves its socket file");
    second.drive(poll.registry(), Boot(1) + Duration::from_secs(1), &mut node.pages);
    assert!(second.is_listening(ListenerKind::Control));
    drop(second);
    assert!(!path.exists());

    std::fs::write(&path, "precious").unwrap();
    let mut third = Server::new(Listeners { control: Some(path.clone()), ..Listeners::default() }, FIRST);
    third.drive(poll.registry(), Boot(1), &mut node.pages);
    assert!(!third.is_listening(ListenerKind::Control));
    drop(third);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious", "a file that is not a socket is not removed");
}

#[test]
fn a_port_in_use_is_tried_again_until_it_is_free() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let mut server = Server::new(Listeners { health: Some(address), ..Listeners::default() }, FIRST);
    let poll = Poll::new().unwrap();
    let mut pages = Pages { asked: Vec::new(), parts: 0, later: Vec::new(), gone: Vec::new() };
    let mut now = Boot(1);
    for wait in [1, 2, 4, 8, 16, 30, 30] {
        server.drive(poll.registry(), now, &mut pages);
        assert_eq!(server.next_deadline(), Some(now + Duration::from_secs(wait)));
        now = now + Duration::from_secs(wait);
    }
    drop(taken);
    server.drive(poll.registry(), now, &mut pages);
    assert!(server.is_listening(ListenerKind::Health));
    assert_eq!(server.next_deadline(), None);
}

/// Runs again in a separate process, because it lowers the limit of descriptors.
#[test]
fn without_descriptors_accepting_pauses_and_goes_on() {
    const NAME: &str = "adapters::server::tests::without_descriptors_accepting_pauses_and_goes_on";
    if std::env::var_os("WHERRY_TEST_ALONE").is_none() {
        let me = std::env::current_exe().unwrap();
        let done = std::process::Command::new(me).args(["--exact", NAME]).env("WHERRY_TEST_ALONE", "1").output();
        assert!(done.as_ref().unwrap().status.success(), "{done:?}");
        return;
    }
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let mut node = Node::new();
    let mut client = node.tcp(ListenerKind::Health);
    client.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").unwrap();
    let old = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(3), maximum: old.maximum }).unwrap();
    node.settle();
    assert_eq!(node.pages.asked, []);
    assert!(
        node.server.next_deadline().is_some(),
        "the poll does not report the connection again, so a deadline is needed"
    );
    assert!(!node.turn(Duration::from_millis(50)), "the loop does not spin");
    setrlimit(Resource::Nofile, old).unwrap();
    node.skip(Duration::from_secs(1));
    let (all, _) = node.read(&mut client, |_| false);
    assert!(all.ends_with(b"ok"));
}

fn drain(body: &str, more: &str) -> String {
    format!("POST /drain HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n{more}\r\n{body}", body.len())
}

#[test]
fn an_answer_that_is_put_off_holds_up_nobody_and_comes_in_its_place() {
    let mut node = Node::new();
    let (mut one, mut two) = (node.unix(), node.unix());
    // The next request on the same connection waits for the deferred answer.
    one.write_all(format!("{}GET /livez HTTP/1.0\r\n\r\n", drain("first", "")).as_bytes()).unwrap();
    two.write_all(drain("second", "Connection: close\r\n").as_bytes()).unwrap();
    node.settle();
    let (first, second) = (node.pages.later[0].clone(), node.pages.later[1].clone());
    assert_eq!((&first.1[..], &second.1[..]), (&b"first"[..], &b"second"[..]));
    assert_ne!(first.0, second.0);
    assert_eq!(node.server.next_deadline(), None, "a deferred answer has no deadline in the server");
    let mut other = node.unix();
    assert!(node.ask(&mut other, "GET /livez HTTP/1.0\r\n\r\n").ends_with("ok"));

    // An answer can be deferred for any time.
    node.skip(Duration::from_secs(3600));
    let now = node.now();
    node.server.answer(second.0, Response::text(409, "no"), now);
    node.server.answer(first.0, Response::text(200, "yes"), now);
    // A second answer and an answer to an unknown request have no effect.
    node.server.answer(first.0, Response::text(500, "late"), now);
    node.server.answer(Ticket(99), Response::text(500, "lost"), now);
    let (all, end) = node.read(&mut two, |_| false);
    let text = String::from_utf8(all).unwrap();
    assert!(end && text.starts_with("HTTP/1.1 409 Conflict\r\n") && text.ends_with("\r\n\r\nno"), "{text}");
    let (all, end) = node.read(&mut one, |_| false);
    let text = String::from_utf8(all).unwrap();
    assert!(
        end && text.starts_with("HTTP/1.1 200 OK\r\n") && text.contains("\r\n\r\nyesHTTP/1.1 200 OK\r\n"),
        "{text}"
    );
    assert!(text.ends_with("\r\n\r\nok"), "{text}");
    assert_eq!(node.pages.gone, []);
}

#[test]
fn of_a_client_that_goes_before_its_answer_the_content_hears_once() {
    let mut node = Node::new();
    let mut client = node.unix();
    client.write_all(drain("x", "").as_bytes()).unwrap();
    node.settle();
    let ticket = node.pages.later[0].0;
    assert_eq!(node.pages.gone, []);
    drop(client);
    node.settle();
    assert_eq!((node.pages.gone.as_slice(), node.connections()), (&[ticket][..], 0));
    let now = node.now();
    node.server.answer(ticket, Response::text(200, "yes"), now);
    node.settle();
    assert_eq!(node.pages.gone, [ticket]);
}

#[test]
fn a_body_comes_in_pieces_and_one_that_does_not_come_is_not_waited_for() {
    let mut node = Node::new();
    let body = "b".repeat(http1::MAX_BODY);
    let request = drain(&body, "");
    let mut client = node.unix();
    for piece in request.as_bytes().chunks(5000) {
        client.write_all(piece).unwrap();
        node.turn(Duration::from_millis(5));
    }
    node.settle();
    assert_eq!(node.pages.later.len(), 1);
    assert_eq!(node.pages.later[0].1, body);
    // Only half of another request arrives.
    let mut client = node.unix();
    client.write_all(&request.as_bytes()[..70_000]).unwrap();
    node.settle();
    node.skip(Duration::from_secs(6));
    let (_, end) = node.read(&mut client, |_| false);
    assert!(end);
    assert_eq!(node.pages.later.len(), 1);
}
