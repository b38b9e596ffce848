//! The default transport: HTTP/2 (`net::http2`) on a non-blocking unix socket.
//!
//! - this file: the link (connecting, back-off, GOAWAY), deadlines, the queue of calls that wait for a stream;
//! - `connection`: one connection and its calls; `call`: one call.
//!
//! The link counts as up when the peer's SETTINGS have arrived: connect(2) succeeds before the peer accepts. After a
//! GOAWAY the connection gets no new calls; a new connection takes them, and the old one is closed when its calls
//! have ended. This is reported as Down only if the new connection fails. There are no keepalive pings, because
//! containerd's server answers frequent pings with GOAWAY: a deadline detects a hung peer, EOF detects a dead one,
//! and an idle connection causes no work.

mod call;
pub(crate) mod connection;

use super::wire;
use super::{Call, CallError, CallId, Completion, Transport};
use crate::api::ordered::OrderSlice;
use crate::api::time::Boot;
use crate::net::backoff::Backoff;
use connection::{GrpcConnection, Health};
use mio::{Registry, Token};
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Maximum time between connect(2) and the peer's SETTINGS.
const GREETING: Duration = Duration::from_secs(10);

pub struct H2Transport {
    path: PathBuf,
    registry: Registry,
    token: Token,
    next_id: u64,
    link: Link,
    backoff: Backoff,
    /// The state that was reported last; None before the first report.
    told_up: Option<bool>,
    /// Connections that received a GOAWAY, until their calls have ended.
    leaving: Vec<GrpcConnection>,
    /// Calls that wait for a free stream, or for a new connection after a GOAWAY.
    queue: VecDeque<(CallId, Call)>,
    /// Completions that the next drive returns.
    ended: Vec<Completion>,
}

enum Link {
    /// No connection; the next attempt is at `at`.
    Down {
        at: Boot,
        why: String,
    },
    /// Connected, waiting for the peer's SETTINGS.
    Greeting {
        connection: Box<GrpcConnection>,
        until: Boot,
    },
    Up {
        connection: Box<GrpcConnection>,
    },
}

impl H2Transport {
    /// Creates a transport for the unix socket at `path`. The first `drive` connects. The transport registers its
    /// descriptors under `token`, which must have no other user.
    ///
    /// # Errors
    /// The registry cannot be cloned.
    pub fn connect(path: &Path, registry: &Registry, token: Token) -> io::Result<H2Transport> {
        Ok(H2Transport {
            path: path.to_path_buf(),
            registry: registry.try_clone()?,
            token,
            next_id: 0,
            link: Link::Down { at: Boot(0), why: "not connected yet".to_string() },
            backoff: Backoff::default(),
            told_up: None,
            leaving: Vec::new(),
            queue: VecDeque::new(),
            ended: Vec::new(),
        })
    }

    /// Returns the connection that gets new calls.
    fn current(&self) -> Option<&GrpcConnection> {
        match &self.link {
            Link::Up { connection } | Link::Greeting { connection, .. } => Some(connection),
            Link::Down { .. } => None,
        }
    }

    /// Returns the deadlines of all calls. There are few calls, because the engine limits the operations in flight.
    fn deadlines(&self) -> impl Iterator<Item = (Boot, CallId)> {
        let queued = self.queue.iter().filter_map(|(id, call)| Some((call.deadline?, *id)));
        self.current().into_iter().chain(&self.leaving).flat_map(GrpcConnection::deadlines).chain(queued)
    }

    /// Ends calls whose deadline has passed.
    fn expire(&mut self, now: Boot) {
        let mut late: Vec<(Boot, CallId)> = self.deadlines().filter(|(at, _)| *at <= now).collect();
        late.order();
        for (_, id) in late {
            let queued = self.queue.iter().any(|(queued, _)| *queued == id);
            if let Some(path) = self.give_up(id) {
                let error = match queued {
                    true => {
                        CallError::Refused(format!("{path}: deadline exceeded while the call waited for a free stream"))
                    }
                    false => CallError::Unknown(format!("{path}: deadline exceeded")),
                };
                self.ended.push(Completion::Done { id, result: Err(error) });
            }
        }
    }

    /// Removes a call and resets its stream. Returns the call's path.
    fn give_up(&mut self, id: CallId) -> Option<&'static str> {
        if let Some(at) = self.queue.iter().position(|(queued, _)| *queued == id) {
            return self.queue.remove(at).map(|(_, call)| call.path);
        }
        if let Link::Up { connection } | Link::Greeting { connection, .. } = &mut self.link
            && let Some(found) = connection.give_up(id)
        {
            return Some(found);
        }
        self.leaving.iter_mut().find_map(|connection| connection.give_up(id))
    }

    /// Connects if an attempt is due. Returns true if there is a new connection, which must be driven.
    fn connect_if_due(&mut self, now: Boot, out: &mut Vec<Completion>) -> bool {
        if !matches!(&self.link, Link::Down { at, .. } if *at <= now) {
            return false;
        }
        self.backoff.attempt(now);
        match GrpcConnection::connect(&self.path, &self.registry, self.token) {
            Ok(connection) => {
                self.link = Link::Greeting { connection: Box::new(connection), until: now + GREETING };
                true
            }
            Err(why) => {
                self.lose(&format!("connect: {why}"), now, out);
                false
            }
        }
    }

    /// Handles the loss of the link: reports it unless it was already reported, and ends the calls that were not
    /// sent.
    fn lose(&mut self, why: &str, now: Boot, out: &mut Vec<Completion>) {
        let why = format!("{}: {why}", self.path.display());
        if self.told_up != Some(false) {
            self.told_up = Some(false);
            out.push(Completion::Down { why: why.clone() });
        }
        self.link = Link::Down { at: self.backoff.next(now), why };
        self.refuse_queue(out);
    }

    /// Ends the waiting calls. Without a connection, calls fail at once, except while a connection is being replaced.
    fn refuse_queue(&mut self, out: &mut Vec<Completion>) {
        let why = match &self.link {
            Link::Down { why, .. } => why.clone(),
            _ => format!("{}: the runtime has not responded yet", self.path.display()),
        };
        for (id, _) in self.queue.drain(..) {
            out.push(Completion::Done { id, result: Err(CallError::NotSent(why.clone())) });
        }
    }

    /// Starts waiting calls while streams are free. Returns true if a call was started.
    fn start_queued(&mut self, now: Boot) -> bool {
        let Link::Up { connection } = &mut self.link else { return false };
        let mut started = false;
        while connection.has_room()
            && let Some((id, call)) = self.queue.pop_front()
        {
            match connection.start(id, call, now) {
                Ok(()) => started = true,
                Err(e) => self.ended.push(Completion::Done { id, result: Err(e) }),
            }
        }
        started
    }

    /// Drives the current connection. Returns true if its budget was used up.
    fn drive_link(&mut self, now: Boot, look: bool, out: &mut Vec<Completion>) -> bool {
        let (Link::Up { connection } | Link::Greeting { connection, .. }) = &mut self.link else { return false };
        let before = out.len();
        let health = connection.drive(look, out);
        let greeted = connection.is_greeted();
        match health {
            Health::Over { why, polite: true } if self.told_up == Some(true) => self.replace(why, now),
            Health::Over { why, .. } => {
                // Down is reported before the completions of the connection's calls.
                let ends = out.split_off(before);
                self.lose(&why, now, out);
                out.extend(ends);
            }
            Health::Leaving { again, why } => {
                let old = std::mem::replace(&mut self.link, Link::Down { at: now, why: String::new() });
                if let Link::Up { connection } | Link::Greeting { connection, .. } = old
                    && !connection.is_idle()
                {
                    self.leaving.push(*connection);
                }
                if self.told_up == Some(true) {
                    self.replace(why, now);
                } else {
                    self.lose(&why, now, out);
                }
                return again;
            }
            Health::Good { again } => {
                self.link = match std::mem::replace(&mut self.link, Link::Down { at: now, why: String::new() }) {
                    Link::Greeting { connection, .. } if greeted => {
                        if self.told_up != Some(true) {
                            self.told_up = Some(true);
                            out.push(Completion::Up);
                        }
                        Link::Up { connection }
                    }
                    other => other,
                };
                return again;
            }
        }
        false
    }

    /// Handles a GOAWAY: schedules a new connection without reporting Down.
    fn replace(&mut self, why: String, now: Boot) {
        let why = format!("{}: {why}", self.path.display());
        self.link = Link::Down { at: self.backoff.next(now), why };
    }

    fn drive_leaving(&mut self, look: bool, out: &mut Vec<Completion>) -> bool {
        let mut stopped = false;
        self.leaving.retain_mut(|connection| match connection.drive(look, out) {
            Health::Over { .. } => false,
            Health::Good { again } | Health::Leaving { again, .. } => {
                stopped |= again;
                !connection.is_idle()
            }
        });
        stopped
    }

    /// Drives all connections and starts waiting calls. `look` means that a socket may have become readable.
    fn drive_all(&mut self, now: Boot, look: bool, out: &mut Vec<Completion>) -> bool {
        self.expire(now);
        if matches!(&self.link, Link::Greeting { until, .. } if *until <= now) {
            let why = format!("connected, but no response (HTTP/2 SETTINGS) within {} s", GREETING.as_secs());
            self.lose(&why, now, out);
        }
        self.connect_if_due(now, out);
        self.start_queued(now);
        let mut again = self.drive_link(now, look, out);
        again |= self.drive_leaving(look, out);
        // A connection is replaced in the same drive as its GOAWAY. Ended calls free streams for waiting calls.
        again |= self.connect_if_due(now, out);
        again |= self.start_queued(now);
        if self.told_up != Some(true) {
            self.refuse_queue(out);
        }
        out.append(&mut self.ended);
        again
    }
}

impl Transport for H2Transport {
    fn call(&mut self, call: Call, _: Boot) -> CallId {
        let id = CallId(self.next_id);
        self.next_id += 1;
        if call.body.len() > wire::MAX_MESSAGE {
            let why = format!("{}: {}", call.path, wire::over_limit(call.body.len(), wire::MAX_MESSAGE));
            self.ended.push(Completion::Done { id, result: Err(CallError::Refused(why)) });
            return id;
        }
        self.queue.push_back((id, call));
        id
    }

    fn cancel(&mut self, id: CallId) {
        if self.give_up(id).is_some() {
            let result = Err(CallError::Unknown("cancelled".to_string()));
            self.ended.push(Completion::Done { id, result });
        }
    }

    fn drive(&mut self, now: Boot, out: &mut Vec<Completion>) -> bool {
        self.drive_all(now, true, out)
    }

    fn flush(&mut self, now: Boot, out: &mut Vec<Completion>) -> bool {
        self.drive_all(now, false, out)
    }

    fn next_deadline(&self) -> Option<Boot> {
        let to_start = match &self.link {
            Link::Up { connection } => connection.has_room(),
            _ => self.told_up != Some(true),
        };
        if !self.ended.is_empty() || (to_start && !self.queue.is_empty()) {
            return Some(Boot(0));
        }
        let link = match &self.link {
            Link::Down { at, .. } => Some(*at),
            Link::Greeting { until, .. } => Some(*until),
            Link::Up { .. } => None,
        };
        link.into_iter().chain(self.deadlines().map(|(at, _)| at)).min()
    }

    fn is_up(&self) -> bool {
        self.told_up == Some(true)
    }
}
