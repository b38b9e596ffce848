//! The server in its poll, with a content for tests.

mod api;
mod deferred;
mod limits;
mod pipes;
mod requests;
mod sockets;
mod tls;
mod watches;

use super::http::{Body, Route, Ticket};
use super::*;
use mio::{Events, Poll};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::{Duration, Instant};

const FIRST: usize = 1000;

/// `/pods` is 100 kB in pieces, `/metrics` is 3 MB in one piece, a watch starts with two lines.
#[derive(Default)]
struct Pages {
    asked: Vec<Route>,
    parts: usize,
    /// Requests for `/drain`, whose answers are deferred.
    later: Vec<(Ticket, Bytes)>,
    gone: Vec<Ticket>,
    api: api::Api,
}

impl Content for Pages {
    fn answer(&mut self, request: &Request) -> Response {
        self.asked.push(request.route);
        match request.route {
            Route::Pods | Route::Events if request.watch => {
                Response::new(200, http::JSON, Body::Watch(Cursor { stage: 100, after: None }))
            }
            Route::Pods => Response::new(200, http::JSON, Body::Parts(Cursor::default())),
            Route::Metrics => Response::metrics(vec![b'm'; 3_000_000]),
            Route::Drain => {
                self.later.push((request.ticket, request.body.clone()));
                Response::later()
            }
            Route::Api => self.api.answer(request),
            Route::Node => {
                let has_certificate = request.node.as_ref().is_some_and(|node| node.certificate.is_some());
                Response::text(200, if has_certificate { "certificate" } else { "nothing" })
            }
            Route::Retry => Response::text(200, format!("{} is retried\n", request.uid.as_deref().unwrap_or_default())),
            route => health::response(route, &[health::Check { name: "ping", failure: None }], request.verbose),
        }
    }

    fn gone(&mut self, ticket: Ticket) {
        self.gone.push(ticket);
    }

    fn refusal(&mut self, request: &ApiRequest) -> Option<Response> {
        self.api.refusal(request)
    }

    fn api_part(&mut self, cursor: &mut ApiCursor, out: &mut Vec<u8>) -> Part {
        self.api.part(cursor, out)
    }

    fn acceptor(&mut self, _: ListenerKind) -> Option<Acceptor> {
        self.api.acceptor.clone()
    }

    fn client_of(&mut self, certificate: &[u8]) -> Result<Rc<Client>, Failure> {
        self.api.client_of(certificate)
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
            pages: Pages::default(),
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

    /// Runs the loop and reads until `until` returns true, the stream ends, or 2 s have passed. Returns true at the end
    /// of the stream.
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
fn drain(body: &str, more: &str) -> String {
    format!("POST /drain HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n{more}\r\n{body}", body.len())
}
