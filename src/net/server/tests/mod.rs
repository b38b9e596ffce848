//! The server in a poll, with a table of listeners and content for tests.

mod deferred;
mod limits;
mod pipes;
mod requests;
mod secure;
mod sockets;
mod tls;
mod watches;

use super::*;
use crate::net::http1::{self, Accepts};
use crate::net::server::exchange::{Body, JSON, Part, Request};
use crate::net::tls::server::Acceptor;
use bytes::Bytes;
use mio::{Events, Poll};
use std::cell::{Cell, RefCell};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::{Duration, Instant};

const FIRST: usize = 1000;
const MAX_CONNECTIONS: usize = 32;
const MAX_NODE_CONNECTIONS: usize = 256;
const MAX_SECURE_CONNECTIONS: usize = 1_200;
const MAX_WATCHES: usize = 16;
/// The maximum length of a request body of a local and of a secure listener, in bytes.
const MAX_BODY: usize = 128 * 1024;
const MAX_SECURE_BODY: usize = 3 << 20;

const CONTROL: ListenerId = ListenerId(0);
const HEALTH: ListenerId = ListenerId(1);
const READ_ONLY: ListenerId = ListenerId(2);
const NODE: ListenerId = ListenerId(3);
const KUBECTL: ListenerId = ListenerId(4);

static TABLE: [ListenerRules; 5] = [
    ListenerRules { watches: MAX_WATCHES, watches_of_root: 4, watch_stall_timeout: None, ..local("control") },
    local("health"),
    local("read-only"),
    ListenerRules { connections: MAX_NODE_CONNECTIONS, drain: local("").drain, ..secure("node") },
    secure("kubectl"),
];

const fn local(name: &'static str) -> ListenerRules {
    ListenerRules {
        name,
        field: "field",
        connections: MAX_CONNECTIONS,
        is_secure: false,
        watches: 0,
        watches_of_root: 0,
        stream_timeout: Duration::from_secs(30),
        stall_timeout: Duration::from_secs(10),
        watch_stall_timeout: Some(Duration::from_secs(10)),
        drain: (64 * 1024, Duration::from_secs(1)),
    }
}

const fn secure(name: &'static str) -> ListenerRules {
    ListenerRules {
        connections: MAX_SECURE_CONNECTIONS,
        is_secure: true,
        watches: usize::MAX,
        stream_timeout: Duration::from_secs(3600),
        stall_timeout: Duration::from_secs(600),
        watch_stall_timeout: Some(Duration::from_secs(600)),
        drain: (MAX_SECURE_BODY, Duration::from_secs(5)),
        ..local(name)
    }
}

/// The paths of the local listeners. `/pods` is 100 kB in pieces, `/metrics` is 3 MB in one piece, `/pods?watch=1` is
/// two lines and then each published line, `/long?watch=1` never ends, `/drain` is deferred. `secure` has the paths
/// of the secure listener.
#[derive(Default)]
struct Pages {
    asked: Vec<String>,
    parts: usize,
    /// The requests whose responses are deferred.
    later: Vec<(Ticket, Bytes)>,
    gone: Vec<Ticket>,
    news: Rc<RefCell<Vec<Bytes>>>,
    secure: secure::Secure,
}

/// Appends the next piece of a body.
type Piece = Box<dyn FnMut(&mut Vec<u8>) -> Part>;

struct TestBody {
    piece: Piece,
    is_watch: bool,
    deadline: Rc<Cell<Option<Boot>>>,
}

impl TestBody {
    fn new(is_watch: bool, piece: impl FnMut(&mut Vec<u8>) -> Part + 'static) -> TestBody {
        TestBody { piece: Box::new(piece), is_watch, deadline: Rc::default() }
    }

    /// Returns a body of `number` pieces, followed by `end`.
    fn pieces(number: usize, piece: &'static [u8], end: &'static [u8]) -> TestBody {
        let mut left = number;
        TestBody::new(false, move |out| {
            left -= 1;
            out.extend_from_slice(piece);
            if left > 0 {
                return Part::More;
            }
            out.extend_from_slice(end);
            Part::End
        })
    }

    /// Returns a watch that sends two lines and then the published lines.
    fn news(news: Rc<RefCell<Vec<Bytes>>>) -> TestBody {
        let (mut lines, mut sent) = (vec![101, 102].into_iter(), 0);
        TestBody::new(true, move |out| {
            if let Some(line) = lines.next() {
                out.extend_from_slice(format!("line {line}\n").as_bytes());
                return Part::More;
            }
            for line in news.borrow().iter().skip(std::mem::replace(&mut sent, news.borrow().len())) {
                out.extend_from_slice(line);
            }
            Part::Wait
        })
    }
}

impl StreamedBody for TestBody {
    fn is_watch(&self) -> bool {
        self.is_watch
    }

    fn next_deadline(&self) -> Option<Boot> {
        self.deadline.get()
    }
}

fn stream(body: TestBody) -> Response<TestBody> {
    Response::new(200, JSON, Body::Stream(body))
}

impl Content for Pages {
    type Stream = TestBody;

    fn accepts(&self, listener: ListenerId, path: &str) -> Accepts {
        let (methods, body): (&'static [&'static str], usize) = match (listener, path) {
            (KUBECTL, _) => (&["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"], MAX_SECURE_BODY),
            (NODE, _) => (&["GET", "HEAD", "POST"], 0),
            (CONTROL, "/retry") => (&["POST"], 0),
            (CONTROL, "/drain") => (&["POST"], MAX_BODY),
            _ => (&["GET", "HEAD"], 0),
        };
        Accepts { methods, body, fields: false }
    }

    fn answer(&mut self, request: &Request<'_>) -> Response<TestBody> {
        let (path, query) = (request.head.path.as_str(), request.head.query.as_str());
        let is_watch = request.listener == CONTROL && http1::query_has(query, "watch");
        let response = match (request.listener, path) {
            (KUBECTL, _) => self.secure.answer(request),
            (NODE, _) => Response::text(200, if request.certificate.is_some() { "certificate" } else { "nothing" }),
            (CONTROL, "/long") if is_watch => stream(TestBody::new(true, |out| {
                out.extend_from_slice(&[b'l'; 1000]);
                Part::More
            })),
            (CONTROL, "/pods") if is_watch => stream(TestBody::news(self.news.clone())),
            (CONTROL | READ_ONLY, "/pods") => stream(TestBody::pieces(100, &[b'p'; 1000], b"")),
            (CONTROL, "/metrics") => Response::metrics(vec![b'm'; 3_000_000]),
            (CONTROL, "/retry") => {
                Response::text(200, format!("{} is retried\n", http1::value_of(query, "uid").unwrap_or_default()))
            }
            (CONTROL, "/drain") => {
                self.later.push((request.ticket, request.body.clone()));
                Response::later()
            }
            (_, "/healthz" | "/livez" | "/readyz") => {
                Response::text(200, if query == "verbose" { "[+]ping ok\ncheck passed\n" } else { "ok" })
            }
            _ => return Response::text(404, "not found\n"),
        };
        self.asked.push(path.to_owned());
        response
    }

    fn next(&mut self, body: &mut TestBody, out: &mut Vec<u8>) -> Part {
        self.parts += 1;
        let part = (body.piece)(out);
        self.secure.pieces += usize::from(part != Part::Wait);
        part
    }

    fn gone(&mut self, ticket: Ticket) {
        self.gone.push(ticket);
    }

    fn refusal(&mut self, request: &Request<'_>) -> Option<Response<TestBody>> {
        if request.listener == KUBECTL { self.secure.refusal(request) } else { None }
    }

    fn failure(&self, listener: ListenerId, status: u16, why: &str) -> Response<TestBody> {
        if listener == KUBECTL { secure::failure(status) } else { Response::text(status, format!("{why}\n")) }
    }

    fn acceptor(&self, _: ListenerId) -> Option<Acceptor> {
        self.secure.acceptor.clone()
    }
}

/// A server with its poll and a clock that a test can advance.
struct Node {
    poll: Poll,
    server: Server<TestBody>,
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
        let mut node = Node {
            poll: Poll::new().unwrap(),
            server: Server::new(&TABLE, FIRST),
            pages: Pages::default(),
            began: Instant::now(),
            skipped: Duration::ZERO,
            stopped: None,
            dir,
            turns: 0,
        };
        node.server.listen(CONTROL, Place::Unix(node.dir.path().join("sub/w.sock")));
        node.listen(HEALTH);
        node.listen(READ_ONLY);
        node
    }

    /// Opens a TCP listener.
    fn listen(&mut self, id: ListenerId) {
        self.server.listen(id, Place::Tcp("127.0.0.1:0".parse().unwrap()));
        self.turn(Duration::ZERO);
    }

    /// Publishes a line to all watches of `/pods`.
    fn publish(&mut self, line: impl Into<Bytes>) {
        self.pages.news.borrow_mut().push(line.into());
        self.server.wake(StreamedBody::is_watch);
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

    fn tcp(&mut self, listener: ListenerId) -> TcpStream {
        let stream = TcpStream::connect(self.server.local_address(listener).unwrap()).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream
    }

    fn unix(&mut self) -> UnixStream {
        let stream = UnixStream::connect(self.dir.path().join("sub/w.sock")).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream
    }

    /// Runs the loop and reads until `until` returns true, the stream ends, or 2 s have passed. Returns the bytes,
    /// and whether the stream has ended.
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
