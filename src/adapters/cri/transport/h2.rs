//! The default transport: HTTP/2 with the `h2` crate on a non-blocking unix socket in our own poll, polled by hand.
//! The tokio crate is there for two traits; no runtime of it exists.
//!
//! - here: the link (connecting, back-off, GOAWAY), deadlines, the queue of calls that wait for a stream;
//! - `connection`: one connection and the calls on it; `call`: one call;
//! - `socket`: the bytes, within a budget; `wake`: who wants to be polled.
//!
//! The link counts as up when the peer's SETTINGS came: a socket can be connected to before anybody listens to it. A
//! peer that says GOAWAY gets no more calls; a new connection takes them, and the old one goes when its calls are done.
//! That is a Down only if the new connection cannot be made. There are no keepalive pings (containerd's server answers
//! frequent ones with GOAWAY): a deadline finds a hung peer, EOF a dead one, and an idle connection does nothing.

mod call;
mod connection;
mod socket;
mod wake;

use super::backoff::Backoff;
use super::grpc;
use super::{Call, CallError, CallId, Completion, Transport};
use crate::api::time::Boot;
use connection::{Connection, Health};
use mio::{Registry, Token};
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a peer that accepted may take for its SETTINGS.
const GREETING: Duration = Duration::from_secs(10);

pub struct H2Transport {
    path: PathBuf,
    registry: Registry,
    token: Token,
    next_id: u64,
    link: Link,
    backoff: Backoff,
    /// What was told last; None before the first word.
    told_up: Option<bool>,
    /// Connections whose peer takes no new calls, until their calls are done.
    leaving: Vec<Connection>,
    /// Calls that wait for a stream, or for the connection that replaces one whose peer is leaving.
    queue: VecDeque<(CallId, Call)>,
    deadlines: BTreeSet<(Boot, CallId)>,
    /// To be told at the next drive.
    ended: Vec<Completion>,
}

enum Link {
    /// No connection; the next attempt is at `at`.
    Down {
        at: Boot,
        why: String,
    },
    /// Connected, the peer's SETTINGS are awaited.
    Greeting {
        connection: Box<Connection>,
        until: Boot,
    },
    Up {
        connection: Box<Connection>,
    },
}

impl H2Transport {
    /// For the unix socket at `path`. The first attempt to connect is made by the first `drive`. Its descriptors are
    /// registered under `token`, of which it is the only owner. Fails only if the registry cannot be cloned.
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
            deadlines: BTreeSet::new(),
            ended: Vec::new(),
        })
    }

    /// Ends calls whose time is over.
    fn expire(&mut self, now: Boot) {
        while let Some((at, id)) = self.deadlines.first().copied().filter(|(at, _)| *at <= now) {
            self.deadlines.remove(&(at, id));
            let queued = self.queue.iter().any(|(queued, _)| *queued == id);
            if let Some((path, _)) = self.give_up(id) {
                let error = match queued {
                    true => CallError::Refused(format!("{path}: deadline exceeded before the peer had room for it")),
                    false => CallError::Unknown(format!("{path}: deadline exceeded")),
                };
                self.ended.push(Completion::Done { id, result: Err(error) });
            }
        }
    }

    /// Takes the call out of wherever it is, its stream reset.
    fn give_up(&mut self, id: CallId) -> Option<(&'static str, Option<Boot>)> {
        if let Some(at) = self.queue.iter().position(|(queued, _)| *queued == id) {
            return self.queue.remove(at).map(|(_, call)| (call.path, call.deadline));
        }
        if let Link::Up { connection } | Link::Greeting { connection, .. } = &mut self.link
            && let Some(found) = connection.give_up(id)
        {
            return Some(found);
        }
        self.leaving.iter_mut().find_map(|connection| connection.give_up(id))
    }

    /// True if there is a new connection, which wants to be driven.
    fn connect_if_due(&mut self, now: Boot, out: &mut Vec<Completion>) -> bool {
        if !matches!(&self.link, Link::Down { at, .. } if *at <= now) {
            return false;
        }
        self.backoff.attempt(now);
        match Connection::connect(&self.path, &self.registry, self.token) {
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

    /// The link is gone. Says so if that is news, and ends the calls that were not sent.
    fn lose(&mut self, why: &str, now: Boot, out: &mut Vec<Completion>) {
        let why = format!("{}: {why}", self.path.display());
        if self.told_up != Some(false) {
            self.told_up = Some(false);
            out.push(Completion::Down { why: why.clone() });
        }
        self.link = Link::Down { at: self.backoff.next(now), why };
        self.refuse_queue(out);
    }

    /// While there is no connection, and none is about to take the place of another, calls end at once.
    fn refuse_queue(&mut self, out: &mut Vec<Completion>) {
        let why = match &self.link {
            Link::Down { why, .. } => why.clone(),
            _ => format!("{}: the runtime has not answered yet", self.path.display()),
        };
        for (id, call) in self.queue.drain(..) {
            if let Some(deadline) = call.deadline {
                self.deadlines.remove(&(deadline, id));
            }
            out.push(Completion::Done { id, result: Err(CallError::NotSent(why.clone())) });
        }
    }

    /// Starts what has room. True if something was started.
    fn start_queued(&mut self, now: Boot) -> bool {
        let Link::Up { connection } = &mut self.link else { return false };
        let mut started = false;
        while connection.has_room()
            && let Some((id, call)) = self.queue.pop_front()
        {
            let deadline = call.deadline;
            match connection.start(id, call, now) {
                Ok(()) => started = true,
                Err(e) => {
                    if let Some(deadline) = deadline {
                        self.deadlines.remove(&(deadline, id));
                    }
                    self.ended.push(Completion::Done { id, result: Err(e) });
                }
            }
        }
        started
    }

    /// Drives the current connection. True if it stopped for its budget.
    fn drive_link(&mut self, now: Boot, look: bool, out: &mut Vec<Completion>) -> bool {
        let (Link::Up { connection } | Link::Greeting { connection, .. }) = &mut self.link else { return false };
        let before = out.len();
        let mut ended = Vec::new();
        let health = connection.drive(look, out, &mut ended);
        let greeted = connection.is_greeted();
        self.forget_deadlines(&ended);
        match health {
            Health::Over { why, polite: true } if self.told_up == Some(true) => self.replace(why, now),
            Health::Over { why, .. } => {
                // Down is told before the ends of its calls.
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

    /// The peer says that it leaves: look for its successor before telling that it is down.
    fn replace(&mut self, why: String, now: Boot) {
        let why = format!("{}: {why}", self.path.display());
        self.link = Link::Down { at: self.backoff.next(now), why };
    }

    fn drive_leaving(&mut self, look: bool, out: &mut Vec<Completion>) -> bool {
        let mut stopped = false;
        let mut ended = Vec::new();
        self.leaving.retain_mut(|connection| match connection.drive(look, out, &mut ended) {
            Health::Over { .. } => false,
            Health::Good { again } | Health::Leaving { again, .. } => {
                stopped |= again;
                !connection.is_idle()
            }
        });
        self.forget_deadlines(&ended);
        stopped
    }

    /// `look`: the socket may have become readable.
    fn drive_all(&mut self, now: Boot, look: bool, out: &mut Vec<Completion>) -> bool {
        self.expire(now);
        if matches!(&self.link, Link::Greeting { until, .. } if *until <= now) {
            let why = format!("connected, but no answer in {} s", GREETING.as_secs());
            self.lose(&why, now, out);
        }
        self.connect_if_due(now, out);
        self.start_queued(now);
        let mut again = self.drive_link(now, look, out);
        again |= self.drive_leaving(look, out);
        // A peer that left is replaced in the same drive, and ended calls make room for waiting ones.
        again |= self.connect_if_due(now, out);
        again |= self.start_queued(now);
        if self.told_up != Some(true) {
            self.refuse_queue(out);
        }
        out.append(&mut self.ended);
        again
    }

    fn forget_deadlines(&mut self, ended: &[(CallId, Option<Boot>)]) {
        for (id, deadline) in ended {
            if let Some(deadline) = deadline {
                self.deadlines.remove(&(*deadline, *id));
            }
        }
    }
}

impl Transport for H2Transport {
    fn call(&mut self, call: Call, _: Boot) -> CallId {
        let id = CallId(self.next_id);
        self.next_id += 1;
        if call.body.len() > grpc::MAX_MESSAGE {
            let why = format!("{}: {}", call.path, grpc::over_limit(call.body.len()));
            self.ended.push(Completion::Done { id, result: Err(CallError::Refused(why)) });
            return id;
        }
        if let Some(deadline) = call.deadline {
            self.deadlines.insert((deadline, id));
        }
        self.queue.push_back((id, call));
        id
    }

    fn cancel(&mut self, id: CallId) {
        if let Some((_, deadline)) = self.give_up(id) {
            if let Some(deadline) = deadline {
                self.deadlines.remove(&(deadline, id));
            }
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
        link.into_iter().chain(self.deadlines.first().map(|(at, _)| *at)).min()
    }

    fn is_up(&self) -> bool {
        self.told_up == Some(true)
    }
}
