//! The state machine of one connection: read a head, answer it, and repeat; or stream a watch; or pass the connection
//! to another server (`pipe`); or drain and close.
//!
//! No client can block the server: every state has a deadline, except an idle watch and a request with a deferred
//! answer. The connection reads no request while it writes an answer. A body is produced only as fast as the client
//! reads it, and the work of one `drive` is limited.

mod pipe;

use crate::adapters::server::Content;
use crate::adapters::server::api::{self, ApiCursor, ApiRequest, Client, NodeRequest, Part};
use crate::adapters::server::connection_limit::{Activity, Held};
use crate::adapters::server::http::{self, Body, Cursor, ListenerKind, Request, Response, Route, Ticket};
use crate::api::kube::resources::Kind;
use crate::api::kube::status::Failure;
use crate::api::time::Boot;
use crate::net::buffered::{Buffered, Input, Written};
use crate::net::http1::{self, Framing, Head, Parsed};
use crate::net::stream::{Peer, Stream};
use bytes::Bytes;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use pipe::{Pipe, Piped};
use std::io;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::time::Duration;

/// The maximum time from the first byte of a request (for a new connection: from accept) to its end.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum time between two requests.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum time from the start of an answer to its end. For a watch of pods, the maximum time without a successful
/// write.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum time without a successful write of an answer. For root it is ANSWER_TIMEOUT, because a pager may need
/// that long.
const STALL_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to read and discard the rest of a refused request. A close with unread data sends a reset, and the client
/// would lose the answer.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// The same for the Kubernetes API, which refuses a large body before it arrives.
const API_DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
const DRAIN_BYTES: usize = 64 * 1024;
/// Pieces of a body are combined up to this size, in bytes.
const GATHER: usize = 16 * 1024;
/// The maximum backlog of a watch of pods, in bytes. Beyond it the watch is closed, because it would miss changes.
const WATCH_BACKLOG: usize = 1 << 20;
/// The maximum backlog of a watch of events, in bytes. Beyond it lines are dropped and counted.
const EVENTS_BACKLOG: usize = 64 << 10;
/// The maximum number of bytes written in one `drive`.
const WRITE_BUDGET: usize = 256 * 1024;
/// The maximum time for a request with a large body, from its head.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum time of a list or log, which a client may read slowly.
const LONG_TIMEOUT: Duration = Duration::from_secs(3600);
/// The maximum time without a byte in a session. Longer than the runtime's own limit (containerd: 4 h), which tells the
/// client.
const SESSION_TIMEOUT: Duration = Duration::from_secs(5 * 3600);
/// The maximum number of pieces of a body that are combined.
const MAX_PIECES: usize = 8;
/// The maximum time without a successful write of a list, watch or log of the Kubernetes API, for a pager. The client
/// costs no memory meanwhile.
const API_STALL_TIMEOUT: Duration = Duration::from_secs(600);
/// The maximum number of requests answered in one `drive`.
const REQUEST_BUDGET: usize = 16;

/// The result of `drive`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The connection waits for its client.
    Wait,
    /// The budget is used up. Call `drive` again without waiting.
    Again,
    Close,
}

enum State {
    /// Waiting for a request, or for the rest of one.
    Reading,
    /// The content has deferred the answer. Further input belongs to the next request.
    Pending { ticket: Ticket, head: Head },
    /// Writing an answer, with the deadline `by`. With `rest`, the body is not complete yet.
    Answering { keep: bool, rest: Option<Rest>, by: Boot },
    /// The initial list of a watch is written. Published lines follow.
    Watching { chunked: bool, route: Route },
    /// The present data of a body is written. More follows.
    Following { cursor: ApiCursor, chunked: bool, keep: bool },
    /// The connection is passed to another server.
    Piping(Box<Pipe>),
    /// The last answer is written. Further input is discarded.
    Draining { bytes: usize },
}

/// The rest of a streamed body.
struct Rest {
    body: RestBody,
    chunked: bool,
}

enum RestBody {
    /// With the route to watch when the body is complete.
    Own(Cursor, Option<Route>),
    Api(ApiCursor),
}

impl Rest {
    fn watch(&self) -> Option<Route> {
        match &self.body {
            RestBody::Own(_, watch) => *watch,
            RestBody::Api(_) => None,
        }
    }
}

pub struct Connection {
    stream: Buffered,
    peer: Peer,
    pub listener_kind: ListenerKind,
    state: State,
    input: Vec<u8>,
    end_of_input: bool,
    deadline: Option<Boot>,
    /// The last time at which the client sent or accepted data.
    progress: Boot,
    answered: bool,
    overrun: bool,
    /// The number of events dropped since the last one that was sent.
    lost: u64,
    /// There may be something to do before the deadline.
    due: bool,
    /// The client of the last request.
    client: Option<Rc<Client>>,
    /// The cursor's source is registered.
    source: bool,
    /// The request has a large body, and more time for it.
    large: bool,
    /// The content has accepted the head of the request, so its body is read.
    accepts_body: bool,
}

impl Connection {
    pub fn new(stream: Stream, peer: Peer, listener_kind: ListenerKind, now: Boot) -> Connection {
        Connection {
            stream: Buffered::new(stream),
            peer,
            listener_kind,
            state: State::Reading,
            input: Vec::new(),
            end_of_input: false,
            deadline: Some(now + HEAD_TIMEOUT),
            progress: now,
            answered: false,
            overrun: false,
            lost: 0,
            due: true,
            client: None,
            source: false,
            large: false,
            accepts_body: false,
        }
    }

    pub fn stream(&mut self) -> &mut Stream {
        self.stream.stream()
    }

    pub fn ready(&mut self) {
        self.stream.ready();
        self.due = true;
    }

    /// Notes that the poll reported the connection's second source: the log or the server that it passes on.
    pub fn source_ready(&mut self) {
        if let State::Piping(pipe) = &mut self.state {
            pipe.ready();
        }
        self.due = true;
    }

    /// Continues a body that waits for changes of these kinds of objects.
    pub fn wake(&mut self, has_changed: &dyn Fn(Kind) -> bool) {
        self.due |= match &self.state {
            State::Following { cursor: ApiCursor::Watch(watch), .. } => has_changed(watch.selection.resource.kind),
            // A log ends with its container.
            State::Following { cursor: ApiCursor::Log(_), .. } => has_changed(Kind::Pod),
            _ => false,
        };
    }

    /// The last `drive` has stopped at its budget.
    pub fn again(&mut self) {
        self.due = true;
    }

    /// Whether `drive` has something to do.
    pub fn is_due(&self, now: Boot) -> bool {
        self.due || self.overrun || self.deadline().is_some_and(|at| at <= now)
    }

    /// Registers the second source if there is one. Call it after `drive` and `respond`.
    ///
    /// # Errors
    /// The poll refuses the source.
    pub fn register_source(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        match &mut self.state {
            State::Piping(pipe) => pipe.register(registry, token),
            State::Following { cursor: ApiCursor::Log(log), .. } if !self.source => {
                self.source = true;
                match log.source() {
                    Some(fd) => registry.register(&mut SourceFd(&fd.as_raw_fd()), token, Interest::READABLE),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// The client of the last request, if it has a certificate.
    pub fn client(&self) -> Option<&Rc<Client>> {
        self.client.as_ref()
    }

    pub fn deadline(&self) -> Option<Boot> {
        self.deadline.into_iter().chain(self.expiry()).min()
    }

    /// The route that this connection watches or will watch.
    pub fn watches(&self) -> Option<Route> {
        match &self.state {
            State::Watching { route, .. } => Some(*route),
            State::Answering { rest: Some(rest), .. } => rest.watch(),
            _ => None,
        }
    }

    /// For the dump: listener, state, bytes queued, lines lost.
    pub fn summary(&self) -> (ListenerKind, &'static str, usize, u64) {
        let state = match &self.state {
            State::Reading => "reading",
            State::Pending { .. } => "pending",
            State::Answering { .. } => "answering",
            State::Watching { .. } | State::Following { .. } => "watching",
            State::Piping(_) => "session",
            State::Draining { .. } => "draining",
        };
        (self.listener_kind, state, self.stream.queued(), self.lost)
    }

    /// The ticket of the request with a deferred answer, if there is one.
    pub fn waits_for_answer(&self) -> Option<Ticket> {
        match &self.state {
            State::Pending { ticket, .. } => Some(*ticket),
            _ => None,
        }
    }

    /// Starts to write a deferred answer. Does nothing if none is expected.
    pub fn respond(&mut self, response: Response, now: Boot) {
        match std::mem::replace(&mut self.state, State::Reading) {
            State::Pending { head, .. } => self.begin_answer(response, &head, None, now),
            other => self.state = other,
        }
        self.due = true;
    }

    /// The state and the peer, to decide which connection is closed for a new one.
    pub fn held(&self, slot: usize) -> Held {
        let activity = match self.state {
            State::Reading if self.answered && self.input.is_empty() => Activity::Idle,
            State::Reading => Activity::Reading,
            State::Draining { .. } => Activity::Draining,
            State::Answering { .. } => Activity::Answering,
            State::Watching { .. } | State::Following { .. } => Activity::Watching,
            State::Piping(_) => Activity::Session,
            State::Pending { .. } => Activity::Pending,
        };
        Held { slot, peer: self.peer, activity, progress: self.progress }
    }

    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// Queues a line for a watch. If the backlog is full, a watch of pods is closed at the next `drive`, and a watch of
    /// events loses the line and later receives the number of lost lines.
    pub fn publish(&mut self, route: Route, line: &Bytes, now: Boot) {
        let chunked = match &self.state {
            State::Watching { chunked, route: r } if *r == route => *chunked,
            State::Answering { rest: Some(rest), .. } if rest.watch() == Some(route) => rest.chunked,
            _ => return,
        };
        let events = route == Route::Events;
        if self.stream.queued() + line.len() > if events { EVENTS_BACKLOG } else { WATCH_BACKLOG } {
            self.overrun |= !events;
            self.lost += u64::from(events);
            return;
        }
        self.due = true;
        self.queue_lost(chunked);
        if self.stream.queued() == 0 && self.deadline.is_none() && !events {
            self.deadline = Some(now + ANSWER_TIMEOUT);
        }
        self.push_line(chunked, line);
    }

    /// Queues a line with the number of lost lines. Returns false if there are none.
    fn queue_lost(&mut self, chunked: bool) -> bool {
        let lost = std::mem::take(&mut self.lost);
        if lost > 0 {
            self.push_line(chunked, &Bytes::from(format!("{{\"type\":\"LOST\",\"count\":{lost}}}\n")));
        }
        lost > 0
    }

    fn push_line(&mut self, chunked: bool, line: &Bytes) {
        if chunked {
            let mut framed = Vec::with_capacity(line.len() + 12);
            http1::chunk(&mut framed, |out| out.extend_from_slice(line));
            self.stream.push(framed);
        } else {
            self.stream.push(line.clone());
        }
    }

    /// Does all work that is possible without waiting, within a budget. `last_ticket` is shared by all connections.
    pub fn drive(
        &mut self,
        now: Boot,
        content: &mut dyn Content,
        watches_left: usize,
        last_ticket: &mut u64,
    ) -> Outcome {
        self.stream.begin();
        match self.drive_state(now, content, watches_left, last_ticket) {
            Outcome::Wait if self.stream.stopped() => Outcome::Again,
            outcome => outcome,
        }
    }

    fn drive_state(
        &mut self,
        now: Boot,
        content: &mut dyn Content,
        watches_left: usize,
        last_ticket: &mut u64,
    ) -> Outcome {
        self.due = false;
        if self.is_over(now) {
            return Outcome::Close;
        }
        let (mut written, mut answered) = (0, 0);
        loop {
            match &mut self.state {
                State::Reading => {
                    if answered >= REQUEST_BUDGET {
                        return Outcome::Again;
                    }
                    if let Some(outcome) = self.read_request(now, content, watches_left, last_ticket) {
                        return outcome;
                    }
                    answered += 1;
                }
                State::Pending { .. } => return self.wait_for_answer(),
                State::Answering { by, .. } => {
                    let by = *by;
                    match self.write_answer(by, &mut written, now) {
                        Written::Blocked => return Outcome::Wait,
                        Written::Budget => return Outcome::Again,
                        Written::Broken => return Outcome::Close,
                        Written::All => match self.written(now, content) {
                            Then::GoOn => {}
                            Then::Yield => return Outcome::Again,
                            Then::Close => return Outcome::Close,
                        },
                    }
                }
                State::Watching { chunked, route } => {
                    let (chunked, route) = (*chunked, *route);
                    return self.write_events(chunked, route, &mut written, now);
                }
                State::Following { .. } => return self.follow(&mut written, now, content),
                State::Piping(pipe) => match pipe.drive(&mut self.stream) {
                    Piped::Goes(outcome, moved) => {
                        if moved {
                            self.has_moved(now);
                        }
                        return outcome;
                    }
                    Piped::Unanswered => {
                        self.refuse(502, "the container runtime's streaming server does not answer", &[], now);
                    }
                },
                State::Draining { bytes } => {
                    let before = *bytes;
                    return self.drain(before);
                }
            }
        }
    }

    /// The connection has to be closed, because the client is too slow or its certificate has expired.
    fn is_over(&self, now: Boot) -> bool {
        if self.overrun || (self.deadline.is_some_and(|at| at <= now) && !self.continues_by_itself(now)) {
            return true;
        }
        let has_expired = self.expiry().is_some_and(|at| at <= now);
        if has_expired {
            log::info!("closing a connection for kubectl: the certificate of its client has expired");
        }
        has_expired
    }

    /// The answer follows later. A client that has disconnected waits for none.
    fn wait_for_answer(&mut self) -> Outcome {
        self.read_ahead();
        if self.end_of_input { Outcome::Close } else { Outcome::Wait }
    }

    /// Bytes of a session have moved.
    fn has_moved(&mut self, now: Boot) {
        self.progress = now;
        self.deadline = Some(now + SESSION_TIMEOUT);
    }

    /// Reads a request and begins its answer. Some: the connection cannot go on now.
    fn read_request(
        &mut self,
        now: Boot,
        content: &mut dyn Content,
        watches_left: usize,
        last_ticket: &mut u64,
    ) -> Option<Outcome> {
        match self.read_head(now) {
            Step::Wait => return Some(Outcome::Wait),
            Step::Close => return Some(Outcome::Close),
            Step::Head(head, body) => {
                *last_ticket += 1;
                self.answer(head, body, Ticket(*last_ticket), now, content, watches_left);
                if matches!(self.state, State::Pending { .. }) {
                    // An answer in this turn reaches a client that has shut down its write side.
                    return Some(Outcome::Again);
                }
            }
            Step::Body(mut head) => match self.refusal(&head, content) {
                None => self.accepts_body = true,
                Some(response) => {
                    head.keep_alive = false;
                    self.begin_answer(response, &head, None, now);
                }
            },
            Step::Refused(status, why) => self.refuse(status, why, &[], now),
            Step::WrongMethod(allow) => {
                let why = format!("only {}", allow.join(" and "));
                self.refuse(405, &why, &[("Allow", allow.join(", "))], now);
            }
        }
        None
    }

    /// Discards what a refused client still sends. `before`: the bytes so far.
    fn drain(&mut self, before: usize) -> Outcome {
        let (most, _) = drain_limits(self.listener_kind);
        match self.stream.discard(DRAIN_BYTES) {
            Some(n) if before + n < most => {
                self.state = State::Draining { bytes: before + n };
                if n < DRAIN_BYTES { Outcome::Wait } else { Outcome::Again }
            }
            _ => Outcome::Close,
        }
    }

    /// A body that follows changes can have a deadline of its own, at which it continues, or ends properly.
    fn continues_by_itself(&self, now: Boot) -> bool {
        matches!(&self.state, State::Following { cursor, .. }
            if self.stream.queued() == 0 && next_deadline(cursor).is_some_and(|at| at <= now))
    }

    /// The end of the client's certificate, if it ends the answer or session. Short answers are completed.
    fn expiry(&self) -> Option<Boot> {
        match &self.state {
            State::Answering { rest: Some(Rest { body: RestBody::Api(_), .. }), .. }
            | State::Following { .. }
            | State::Piping(_) => self.client.as_ref().map(|client| client.expires),
            State::Answering { .. }
            | State::Reading
            | State::Pending { .. }
            | State::Watching { .. }
            | State::Draining { .. } => None,
        }
    }

    /// Writes the new data of a body that waits for changes.
    fn follow(&mut self, written: &mut usize, now: Boot, content: &mut dyn Content) -> Outcome {
        let before = *written;
        loop {
            match self.stream.write(written, WRITE_BUDGET) {
                Written::All => {}
                Written::Broken => return Outcome::Close,
                Written::Budget => return Outcome::Again,
                Written::Blocked => {
                    if *written > before {
                        self.progress = now;
                        self.deadline = None;
                    }
                    self.deadline = self.deadline.or(Some(now + self.patience()));
                    break;
                }
            }
            let State::Following { cursor, chunked, keep } = &mut self.state else { return Outcome::Close };
            let mut out = Vec::new();
            let part = pieces(cursor, *chunked, content, &mut out);
            let (next, keep, chunked) = (next_deadline(cursor), *keep, *chunked);
            let idle = out.is_empty();
            self.stream.push(out);
            if part == Part::End && chunked {
                self.stream.push(http1::LAST_CHUNK);
            }
            if part == Part::End {
                self.await_writing(keep, None, now);
                // The state has changed.
                return Outcome::Again;
            }
            match (idle, part) {
                (true, Part::More) => return Outcome::Again,
                (true, _) => {
                    self.deadline = next;
                    break;
                }
                (false, _) => {}
            }
        }
        if *written > before {
            self.progress = now;
        }
        if self.stream.discard(DRAIN_BYTES).is_none() { Outcome::Close } else { Outcome::Wait }
    }

    /// Writes queued events of a watch.
    fn write_events(&mut self, chunked: bool, route: Route, written: &mut usize, now: Boot) -> Outcome {
        let before = *written;
        let mut outcome = self.stream.write(written, WRITE_BUDGET);
        if *written > before {
            self.progress = now;
        }
        if outcome == Written::All && self.queue_lost(chunked) {
            outcome = self.stream.write(written, WRITE_BUDGET);
        }
        self.deadline = match outcome {
            // A slow reader of events needs no deadline: its backlog is small.
            Written::All => None,
            _ if route == Route::Events => None,
            _ if *written > before => Some(now + ANSWER_TIMEOUT),
            _ => self.deadline.or(Some(now + ANSWER_TIMEOUT)),
        };
        if outcome == Written::Broken || self.stream.discard(DRAIN_BYTES).is_none() {
            return Outcome::Close;
        }
        if outcome == Written::Budget { Outcome::Again } else { Outcome::Wait }
    }

    /// Writes queued data of an answer. Progress extends the deadline, at most to `by`.
    fn write_answer(&mut self, by: Boot, written: &mut usize, now: Boot) -> Written {
        let before = *written;
        let outcome = self.stream.write(written, WRITE_BUDGET);
        if *written > before {
            self.progress = now;
            self.deadline = Some(by.min(now + self.patience()));
        }
        outcome
    }

    /// Reads until a request is complete or there is no more input.
    fn read_head(&mut self, now: Boot) -> Step {
        // The maximum length of the head, and of head and body once their lengths are known.
        let mut most = http1::MAX_HEAD;
        loop {
            if !self.input.is_empty() {
                match http1::parse(&self.input, |path| Route::accepts(self.listener_kind, path)) {
                    Parsed::Partial => {}
                    Parsed::Refused(status, why) => return Step::Refused(status, why),
                    Parsed::WrongMethod(allow) => return Step::WrongMethod(allow),
                    Parsed::Head(head) if self.input.len() >= head.length + head.body => {
                        let end = head.length + head.body;
                        let body = Bytes::copy_from_slice(&self.input[head.length..end]);
                        if end == self.input.len() {
                            self.input = Vec::new();
                        } else {
                            self.input.drain(..end);
                        }
                        return Step::Head(head, body);
                    }
                    Parsed::Head(head) if self.listener_kind == ListenerKind::Kubectl && !self.accepts_body => {
                        return Step::Body(head);
                    }
                    Parsed::Head(head) => {
                        most = head.length + head.body;
                        if head.body > http::MAX_BODY && !self.large {
                            self.large = true;
                            self.deadline = Some(now + BODY_TIMEOUT);
                        }
                    }
                }
            }
            if self.end_of_input {
                return if self.input.is_empty() {
                    Step::Close
                } else {
                    Step::Refused(400, "the request is incomplete")
                };
            }
            let mut buffer = [0; http1::MAX_HEAD];
            let room = most.saturating_sub(self.input.len()).min(buffer.len());
            match self.stream.read(&mut buffer[..room]) {
                Input::End => self.end_of_input = true,
                Input::Bytes(n) => {
                    self.progress = now;
                    if self.input.is_empty() && self.answered {
                        self.deadline = Some(now + HEAD_TIMEOUT);
                    }
                    self.input.extend_from_slice(&buffer[..n]);
                }
                Input::Blocked => return Step::Wait,
                Input::Broken => return Step::Close,
            }
        }
    }

    /// Reads while an answer is deferred, to buffer the next request and to detect that the client has disconnected.
    fn read_ahead(&mut self) {
        let mut buffer = [0; 1024];
        while self.input.len() < http1::MAX_HEAD {
            let room = (http1::MAX_HEAD - self.input.len()).min(buffer.len());
            match self.stream.read(&mut buffer[..room]) {
                Input::Bytes(n) => self.input.extend_from_slice(&buffer[..n]),
                Input::Blocked => return,
                Input::End | Input::Broken => {
                    self.end_of_input = true;
                    return;
                }
            }
        }
    }

    fn answer(
        &mut self,
        head: Head,
        body: Bytes,
        ticket: Ticket,
        now: Boot,
        content: &mut dyn Content,
        watches_left: usize,
    ) {
        let route = Route::find(self.listener_kind, &head.path);
        let response = match route {
            None => Response::text(404, "not found\n"),
            Some(route) => {
                let api = (route == Route::Api).then(|| self.identify(&head, content));
                let node = (route == Route::Node).then(|| self.node_request(&head));
                let request = Request {
                    ticket,
                    listener_kind: self.listener_kind,
                    route,
                    verbose: http1::query_has(&head.query, "verbose"),
                    watch: self.listener_kind == ListenerKind::Control && http1::query_has(&head.query, "watch"),
                    uid: http1::value_of(&head.query, "uid").map(str::to_owned),
                    body,
                    api,
                    node,
                };
                if request.watch && watches_left == 0 {
                    Response::text(503, "too many watches\n")
                } else {
                    content.answer(&request)
                }
            }
        };
        (self.large, self.accepts_body) = (false, false);
        if matches!(response.body, Body::Later) {
            self.deadline = None;
            self.state = State::Pending { ticket, head };
            return;
        }
        self.begin_answer(response, &head, route, now);
    }

    /// The response to a request whose body is not needed, because its head is refused.
    fn refusal(&mut self, head: &Head, content: &mut dyn Content) -> Option<Response> {
        let request = self.identify(head, content);
        content.refusal(&request)
    }

    /// The API's part of a request.
    fn identify(&mut self, head: &Head, content: &mut dyn Content) -> Box<ApiRequest> {
        let client = match self.stream.stream() {
            Stream::Tls(session) => content.client_of(session.peer_certificate().unwrap_or_default()),
            Stream::Tcp(_) | Stream::Unix(_) => Err(Failure::unauthorized("a client certificate is required")),
        };
        self.client = client.as_ref().ok().cloned();
        Box::new(ApiRequest { head: head.clone(), client })
    }

    /// The part of a request that the node's server needs.
    fn node_request(&mut self, head: &Head) -> Box<NodeRequest> {
        let certificate = match self.stream.stream() {
            Stream::Tls(session) => session.peer_certificate().map(<[u8]>::to_vec),
            Stream::Tcp(_) | Stream::Unix(_) => None,
        };
        Box::new(NodeRequest { head: head.clone(), certificate })
    }

    /// Starts to write an answer. `route` is the route that a watch continues with.
    fn begin_answer(&mut self, response: Response, head: &Head, route: Option<Route>, now: Boot) {
        if let Body::Upgrade(upstream) = response.body {
            match Pipe::new(upstream, std::mem::take(&mut self.input)) {
                Ok(pipe) => {
                    self.progress = now;
                    self.deadline = Some(now + SESSION_TIMEOUT);
                    self.state = State::Piping(Box::new(pipe));
                }
                Err(e) => {
                    self.refuse(
                        502,
                        &format!("cannot connect to the container runtime's streaming server: {e}"),
                        &[],
                        now,
                    );
                }
            }
            return;
        }
        let (framing, keep) = match &response.body {
            // A deferred answer cannot be deferred again. `Content` never does that.
            Body::Later | Body::Upgrade(_) => (Framing::Length(0), false),
            Body::Full(bytes) => (Framing::Length(bytes.len()), head.keep_alive),
            Body::Parts(_) | Body::Watch(_) | Body::Api(_) if head.http10 => (Framing::Close, false),
            Body::Parts(_) | Body::Api(_) => (Framing::Chunked, head.keep_alive),
            Body::Watch(_) => (Framing::Chunked, false),
        };
        let keep = keep && !self.end_of_input && response.status != 401;
        let (status, content_type) = (response.status, response.content_type);
        let mut out = http1::response_head(status, content_type, framing, Some(head), keep, &response.headers);
        let (mut rest, mut long) = (None, false);
        let chunked = !head.http10;
        match response.body {
            _ if head.is_head => {}
            Body::Later | Body::Upgrade(_) => {}
            Body::Full(bytes) if bytes.len() <= GATHER => out.extend_from_slice(&bytes),
            Body::Full(bytes) => {
                self.stream.push(std::mem::take(&mut out));
                self.stream.push(bytes);
            }
            Body::Parts(cursor) => rest = Some(Rest { body: RestBody::Own(cursor, None), chunked }),
            Body::Watch(cursor) => rest = Some(Rest { body: RestBody::Own(cursor, route), chunked }),
            Body::Api(cursor) => {
                rest = Some(Rest { body: RestBody::Api(cursor), chunked });
                long = true;
            }
        }
        self.stream.push(out);
        self.await_writing(keep, rest, now);
        if let (true, State::Answering { by, .. }) = (long, &mut self.state) {
            *by = now + LONG_TIMEOUT;
        }
    }

    fn patience(&self) -> Duration {
        match (self.peer, self.listener_kind) {
            (_, ListenerKind::Node | ListenerKind::Kubectl) => API_STALL_TIMEOUT,
            (Peer::User(0), _) => ANSWER_TIMEOUT,
            _ => STALL_TIMEOUT,
        }
    }

    fn await_writing(&mut self, keep: bool, rest: Option<Rest>, now: Boot) {
        self.progress = now;
        self.deadline = Some(now + self.patience());
        self.state = State::Answering { keep, rest, by: now + ANSWER_TIMEOUT };
    }

    fn refuse(&mut self, status: u16, why: &str, headers: &[(&str, String)], now: Boot) {
        let (content_type, body) = match self.listener_kind {
            ListenerKind::Kubectl => {
                (http::JSON, serde_json::to_vec(&Failure::http(status, why).to_value()).unwrap_or_default())
            }
            _ => (http::TEXT, format!("{why}\n").into_bytes()),
        };
        let mut out = http1::response_head(status, content_type, Framing::Length(body.len()), None, false, headers);
        out.extend_from_slice(&body);
        self.stream.push(out);
        self.await_writing(false, None, now);
    }

    /// Called when all output is written: queues more of the body, or changes the state.
    fn written(&mut self, now: Boot, content: &mut dyn Content) -> Then {
        let State::Answering { keep, rest, by } = &mut self.state else { return Then::GoOn };
        if let Some(mut rest) = rest.take() {
            let mut out = Vec::new();
            let (keep, by, chunked) = (*keep, *by, rest.chunked);
            let part = match &mut rest.body {
                RestBody::Own(cursor, _) => {
                    let mut more = true;
                    while more && out.len() < GATHER {
                        if chunked {
                            http1::chunk(&mut out, |o| more = content.part(cursor, o));
                        } else {
                            more = content.part(cursor, &mut out);
                        }
                    }
                    if more { Part::More } else { Part::End }
                }
                RestBody::Api(cursor) => pieces(cursor, chunked, content, &mut out),
            };
            let watch = rest.watch();
            let then = if part == Part::More && out.is_empty() { Then::Yield } else { Then::GoOn };
            self.stream.push(out);
            // A write of its own, and so a TLS record: a client in Go that reads the end of the body together with data
            // can lose the data. (The copier of an API server's WebSockets does.)
            if part == Part::End && chunked && watch.is_none() {
                self.stream.push(http1::LAST_CHUNK);
            }
            self.state = match (part, watch, rest.body) {
                (Part::End, Some(route), _) => State::Watching { chunked, route },
                (Part::End, None, _) => State::Answering { keep, rest: None, by },
                (Part::Wait, _, RestBody::Api(cursor)) => State::Following { cursor, chunked, keep },
                (_, _, body) => State::Answering { keep, rest: Some(Rest { body, chunked }), by },
            };
            return then;
        }
        if *keep {
            self.state = State::Reading;
            self.answered = true;
            self.progress = now;
            let patience = if self.input.is_empty() { IDLE_TIMEOUT } else { HEAD_TIMEOUT };
            self.deadline = Some(now + patience);
            return Then::GoOn;
        }
        if self.end_of_input || self.input.is_empty() || self.stream.stream().finish().is_err() {
            return Then::Close;
        }
        self.input = Vec::new();
        self.deadline = Some(now + drain_limits(self.listener_kind).1);
        self.state = State::Draining { bytes: 0 };
        Then::GoOn
    }
}

/// The result of `written`.
enum Then {
    GoOn,
    /// The body needs more work before there is something to write.
    Yield,
    Close,
}

/// How much input of a refused request is discarded, and for how long.
fn drain_limits(listener_kind: ListenerKind) -> (usize, Duration) {
    match listener_kind {
        ListenerKind::Kubectl => (api::MAX_BODY, API_DRAIN_TIMEOUT),
        _ => (DRAIN_BYTES, DRAIN_TIMEOUT),
    }
}

/// Appends pieces of a body, about `GATHER` bytes.
fn pieces(cursor: &mut ApiCursor, chunked: bool, content: &mut dyn Content, out: &mut Vec<u8>) -> Part {
    let mut part = Part::More;
    // A piece can be empty: lines that the client does not want were read.
    for _ in 0..MAX_PIECES {
        if part != Part::More || out.len() >= GATHER {
            break;
        }
        if chunked {
            http1::chunk(out, |o| part = content.api_part(cursor, o));
        } else {
            part = content.api_part(cursor, out);
        }
    }
    part
}

/// When the body continues or ends, whatever changes.
fn next_deadline(cursor: &ApiCursor) -> Option<Boot> {
    match cursor {
        ApiCursor::Watch(watch) => watch.next_deadline(),
        ApiCursor::List(_) | ApiCursor::Log(_) => None,
    }
}

enum Step {
    Wait,
    Close,
    Head(Head, Bytes),
    /// The body is not complete, and the content has not accepted the head yet.
    Body(Head),
    Refused(u16, &'static str),
    WrongMethod(&'static [&'static str]),
}
