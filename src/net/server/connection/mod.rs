//! The state machine of one connection: read a head, answer it, and repeat; or stream a body that waits for changes; or
//! pass the connection to another server (`pipe`); or drain and close. `reading` reads requests, `writing` writes the
//! responses.
//!
//! No client can block the server: every state has a deadline, except an idle watch and a request with a deferred
//! response. The connection reads no request while it writes a response. A body is produced only as fast as the client
//! reads it, and the work of one `drive` is limited.

mod outcome;
mod pipe;
mod reading;
mod writing;

pub use outcome::DriveOutcome;

use crate::api::time::Boot;
use crate::net::buffered::{Buffered, Written};
use crate::net::http1::Head;
use crate::net::server::connection_limit::{Activity, HeldConnection};
use crate::net::server::exchange::{Content, Response, StreamedBody, Ticket};
use crate::net::server::listeners::{ListenerId, ListenerRules};
use crate::net::stream::{Peer, Stream};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use outcome::AfterWrite;
use pipe::{Pipe, Piped};
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// The maximum time from the first byte of a request (for a new connection: from accept) to its end.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum time between two requests.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum time from the start of a response to its end, unless its body is streamed. Also the maximum time without
/// a successful write for root, because a pager may need that long.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum number of bytes written in one `drive`.
const WRITE_BUDGET: usize = 256 * 1024;
/// The maximum time without a byte in a session. Longer than the runtime's own limit (containerd: 4 h), which tells the
/// client.
const SESSION_TIMEOUT: Duration = Duration::from_secs(5 * 3600);
/// The maximum number of requests answered in one `drive`.
const REQUEST_BUDGET: usize = 16;

enum ConnectionPhase<S> {
    /// Waiting for a request, or for the rest of one.
    Reading,
    /// The content has deferred the response. Further input belongs to the next request.
    Pending { ticket: Ticket, head: Head },
    /// Writing a response, with the deadline `by`. With `rest`, the body is not complete yet.
    Answering { keep: bool, rest: Option<Streaming<S>>, by: Boot },
    /// Writing a body that waits for changes.
    Following { rest: Streaming<S>, keep: bool },
    /// The connection is passed to another server.
    Piping(Box<Pipe>),
    /// The other server cannot be reached. The content must provide the error response.
    NotUpgraded { why: String },
    /// The last response is written. Further input is discarded.
    Draining { bytes: usize },
}

/// The rest of a streamed body.
struct Streaming<S> {
    body: S,
    chunked: bool,
}

pub struct HttpConnection<S> {
    stream: Buffered,
    peer: Peer,
    pub listener: ListenerId,
    rules: &'static ListenerRules,
    state: ConnectionPhase<S>,
    input: Vec<u8>,
    end_of_input: bool,
    deadline: Option<Boot>,
    /// The last time at which the client sent or accepted data.
    progress: Boot,
    answered: bool,
    /// Whether there may be work to do now, before the deadline.
    due: bool,
    /// `Response::until` of the last request.
    until: Option<Boot>,
    /// Whether the body's source is registered.
    source: bool,
    /// Whether the request has a large body, and therefore more time.
    large: bool,
    /// Whether the content has accepted the head of the request, so that the body is read.
    accepts_body: bool,
}

/// The data that a connection needs in one `drive`.
pub struct Turn<'a, S> {
    pub now: Boot,
    pub content: &'a mut dyn Content<Stream = S>,
    /// The number of watches that this connection may still start.
    pub watches_left: usize,
    pub last_ticket: &'a mut Ticket,
}

impl<S: StreamedBody> HttpConnection<S> {
    pub fn new(
        stream: Stream,
        peer: Peer,
        listener: ListenerId,
        rules: &'static ListenerRules,
        now: Boot,
    ) -> HttpConnection<S> {
        HttpConnection {
            stream: Buffered::new(stream),
            peer,
            listener,
            rules,
            state: ConnectionPhase::Reading,
            input: Vec::new(),
            end_of_input: false,
            deadline: Some(now + HEAD_TIMEOUT),
            progress: now,
            answered: false,
            due: true,
            until: None,
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

    /// Notes that the poll reported the connection's second source: the source of its body, or the server to which it
    /// is passed.
    pub fn source_ready(&mut self) {
        if let ConnectionPhase::Piping(pipe) = &mut self.state {
            pipe.ready();
        }
        self.due = true;
    }

    /// Continues a body that waits for changes, if `concerns` returns true for it.
    pub fn wake(&mut self, concerns: &dyn Fn(&S) -> bool) {
        self.due |= matches!(&self.state, ConnectionPhase::Following { rest, .. } if concerns(&rest.body));
    }

    /// Notes that the last `drive` stopped at its budget.
    pub fn again(&mut self) {
        self.due = true;
    }

    /// Reports whether `drive` has work to do.
    pub fn is_due(&self, now: Boot) -> bool {
        self.due || self.deadline().is_some_and(|at| at <= now)
    }

    /// Registers the second source if there is one. Call it after `drive` and `respond`.
    ///
    /// # Errors
    /// The poll refuses the source.
    pub fn register_source(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        match &mut self.state {
            ConnectionPhase::Piping(pipe) => pipe.register(registry, token),
            ConnectionPhase::Following { rest, .. } if !self.source => {
                self.source = true;
                match rest.body.source() {
                    Some(fd) => registry.register(&mut SourceFd(&fd.as_raw_fd()), token, Interest::READABLE),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// Returns the client's certificate in DER, once the handshake is complete.
    pub fn certificate(&self) -> Option<&[u8]> {
        self.stream.peer_certificate()
    }

    pub fn deadline(&self) -> Option<Boot> {
        self.deadline.into_iter().chain(self.expiry()).min()
    }

    /// Returns the streamed body, if there is one.
    pub fn body(&self) -> Option<&S> {
        match &self.state {
            ConnectionPhase::Following { rest, .. } | ConnectionPhase::Answering { rest: Some(rest), .. } => {
                Some(&rest.body)
            }
            _ => None,
        }
    }

    /// Reports whether the body waits for changes, now or once its current data is written.
    pub fn is_watch(&self) -> bool {
        self.body().is_some_and(StreamedBody::is_watch)
    }

    /// Returns the listener, the state, and the number of queued bytes, for the dump.
    pub fn summary(&self) -> (ListenerId, &'static str, usize) {
        let state = match &self.state {
            ConnectionPhase::Reading => "reading",
            ConnectionPhase::Pending { .. } => "pending",
            ConnectionPhase::Answering { .. } => "answering",
            ConnectionPhase::Following { .. } => "watching",
            ConnectionPhase::Piping(_) | ConnectionPhase::NotUpgraded { .. } => "session",
            ConnectionPhase::Draining { .. } => "draining",
        };
        (self.listener, state, self.stream.queued())
    }

    /// Returns the ticket of the request with a deferred response, if there is one.
    pub fn waits_for_answer(&self) -> Option<Ticket> {
        match &self.state {
            ConnectionPhase::Pending { ticket, .. } => Some(*ticket),
            _ => None,
        }
    }

    /// Starts to write a deferred response. Does nothing if none is expected.
    pub fn respond(&mut self, response: Response<S>, now: Boot) {
        match std::mem::replace(&mut self.state, ConnectionPhase::Reading) {
            ConnectionPhase::Pending { head, .. } => self.begin_answer(response, &head, now),
            other => self.state = other,
        }
        self.due = true;
    }

    /// Returns the properties that decide which connection is closed for a new one.
    pub fn held(&self, slot: usize) -> HeldConnection {
        let activity = match self.state {
            ConnectionPhase::Reading if self.answered && self.input.is_empty() => Activity::Idle,
            ConnectionPhase::Reading => Activity::Reading,
            ConnectionPhase::Draining { .. } => Activity::Draining,
            ConnectionPhase::Answering { .. } => Activity::Answering,
            ConnectionPhase::Following { .. } => Activity::Watching,
            ConnectionPhase::Piping(_) | ConnectionPhase::NotUpgraded { .. } => Activity::Session,
            ConnectionPhase::Pending { .. } => Activity::Pending,
        };
        HeldConnection { slot, peer: self.peer, activity, progress: self.progress }
    }

    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// Does all work that is possible without waiting, within a budget.
    pub fn drive(&mut self, turn: &mut Turn<'_, S>) -> DriveOutcome {
        self.stream.begin();
        match self.drive_state(turn) {
            DriveOutcome::Wait if self.stream.stopped() => DriveOutcome::Again,
            outcome => outcome,
        }
    }

    fn drive_state(&mut self, turn: &mut Turn<'_, S>) -> DriveOutcome {
        self.due = false;
        let now = turn.now;
        if self.is_over(now) {
            return DriveOutcome::Close;
        }
        let (mut written, mut answered) = (0, 0);
        loop {
            match &mut self.state {
                ConnectionPhase::Reading => {
                    if answered >= REQUEST_BUDGET {
                        return DriveOutcome::Again;
                    }
                    if let Some(outcome) = self.read_request(turn) {
                        return outcome;
                    }
                    answered += 1;
                }
                ConnectionPhase::Pending { .. } => return self.wait_for_answer(),
                ConnectionPhase::Answering { by, .. } => {
                    let by = *by;
                    match self.write_answer(by, &mut written, now) {
                        Written::Blocked => return DriveOutcome::Wait,
                        Written::Budget => return DriveOutcome::Again,
                        Written::Broken => return DriveOutcome::Close,
                        Written::All => match self.written(turn) {
                            AfterWrite::GoOn => {}
                            AfterWrite::Yield => return DriveOutcome::Again,
                            AfterWrite::Close => return DriveOutcome::Close,
                        },
                    }
                }
                ConnectionPhase::Following { .. } => return self.follow(&mut written, turn),
                ConnectionPhase::Piping(pipe) => match pipe.drive(&mut self.stream) {
                    Piped::Goes(outcome, moved) => {
                        if moved {
                            self.has_moved(now);
                        }
                        return outcome;
                    }
                    Piped::Unanswered => {
                        let why = format!("{} does not respond", pipe.name());
                        let response = turn.content.failure(self.listener, 502, &why);
                        self.refuse(response, now);
                    }
                },
                ConnectionPhase::NotUpgraded { why } => {
                    let response = turn.content.failure(self.listener, 502, why);
                    self.refuse(response, now);
                }
                ConnectionPhase::Draining { bytes } => {
                    let before = *bytes;
                    return self.drain(before);
                }
            }
        }
    }

    /// Returns true if the connection must be closed, because the client is too slow or `Response::until` has passed.
    fn is_over(&self, now: Boot) -> bool {
        if self.deadline.is_some_and(|at| at <= now) && !self.continues_by_itself(now) {
            return true;
        }
        let has_expired = self.expiry().is_some_and(|at| at <= now);
        if has_expired {
            log::info!("closing a connection: the certificate of its client has expired listener={}", self.rules.name);
        }
        has_expired
    }

    /// Waits for the deferred response. Closes the connection if the client has disconnected.
    fn wait_for_answer(&mut self) -> DriveOutcome {
        self.read_ahead();
        if self.end_of_input { DriveOutcome::Close } else { DriveOutcome::Wait }
    }

    /// Extends the deadline of a session after bytes have moved.
    fn has_moved(&mut self, now: Boot) {
        self.progress = now;
        self.deadline = Some(now + SESSION_TIMEOUT);
    }

    /// Returns true if a body that waits for changes has reached its own deadline, at which it continues or ends
    /// normally.
    fn continues_by_itself(&self, now: Boot) -> bool {
        matches!(&self.state, ConnectionPhase::Following { rest, .. }
            if self.stream.queued() == 0 && rest.body.next_deadline().is_some_and(|at| at <= now))
    }

    /// Returns the time at which a streamed body or a session must end (`Response::until`). Short responses are
    /// always completed.
    fn expiry(&self) -> Option<Boot> {
        match &self.state {
            ConnectionPhase::Answering { rest: Some(_), .. }
            | ConnectionPhase::Following { .. }
            | ConnectionPhase::Piping(_) => self.until,
            ConnectionPhase::Answering { .. }
            | ConnectionPhase::Reading
            | ConnectionPhase::Pending { .. }
            | ConnectionPhase::NotUpgraded { .. }
            | ConnectionPhase::Draining { .. } => None,
        }
    }
}
