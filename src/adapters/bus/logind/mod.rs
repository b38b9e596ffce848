//! The client of systemd-logind: the calls of graceful shutdown (S2, S3) and the signals of logind (S4, S7). Nothing here blocks
//! or makes decisions.
//!
//! While the connection is open, only its socket causes work; there is no timer and no polling. Without a connection, the
//! directory of the bus's socket is watched, and Wherry retries periodically (`retry`).
//!
//! - `retry`, `watch`: finding the bus;
//! - `messages`: building and parsing messages;
//! - `dropin`: the drop-in file of logind's configuration.

pub mod dropin;
mod messages;
mod retry;
mod watch;

pub use messages::WHO;

use super::address::{self, Place, Socket};
use super::channel;
use super::probe::{self, Probe};
use super::reply::{self, Pending};
use crate::api::time::Boot;
use crate::engine::effect::LogindCall;
use crate::engine::event::{Answer, LogindEvent};
use crate::engine::op::{OpError, OpId};
use dbus::channel::{Channel, default_reply};
use dbus::{Message, MessageType};
use messages::{Answered, Signal};
use mio::{Registry, Token};
use retry::Retry;
use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use watch::Watch;

/// Time after which a bus that accepts connections but does not answer is reported.
const SILENT: Duration = Duration::from_secs(5);
/// Timeout of the first calls on a new connection. It is long because a slow machine needs time to start logind.
const GREETING: Duration = Duration::from_secs(60);
/// A connection that lasted this long resets the back-off of `retry` when it is lost.
const HELD: Duration = Duration::from_secs(5);

const OFF: &str = "graceful shutdown was turned off";

/// A delay lock of logind. A shutdown of the machine waits until its descriptor is closed. Dropping the lock closes it.
#[derive(Debug)]
pub struct Lock {
    fd: OwnedFd,
    /// The pid of the process that took the lock, as logind lists it. None for a lock from an older version of Wherry.
    pub taker: Option<u32>,
}

impl Lock {
    /// Creates a lock from a descriptor that logind returned. The descriptor must have the close-on-exec flag.
    pub fn new(fd: OwnedFd, taker: Option<u32>) -> Lock {
        Lock { fd, taker }
    }

    /// Whether logind lists this lock. A newer logind that has restarted lists pid 0 for a process that has ended.
    pub fn is_among(&self, takers: &[u32]) -> bool {
        takers.iter().any(|pid| *pid == 0 || self.taker.is_none_or(|taker| taker == *pid))
    }
}

impl AsFd for Lock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

// There are few values, and each is moved once.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
pub enum BusEvent {
    /// The connection to logind was opened or lost, or logind sent its signal.
    Said(LogindEvent),
    /// A call has ended. Every call ends with exactly one of `Done`, `Locked` and `Listed`.
    Done { op: OpId, result: Result<Answer, OpError> },
    /// An Inhibit succeeded.
    Locked { op: OpId, lock: Lock },
    /// A ListInhibitors succeeded. `takers` are the pids of the processes that took a lock like ours.
    Listed { op: OpId, takers: Vec<u32> },
}

/// The connection to the bus, with its calls in flight.
pub struct Logind {
    token: Token,
    places: Result<Vec<Place>, String>,
    uid: u32,
    link: Link,
    retry: Retry,
    watch: Watch,
    /// The reason of the last `Down`; None after an `Up`.
    down: Option<String>,
    /// Results of calls that ended without an answer from the bus. The next `drive` delivers them.
    ended: Vec<(OpId, Result<Answer, OpError>)>,
    /// The next `drive` reports `Down` because the connection was closed by `set_enabled(false)`.
    turned_off: bool,
    strange_told: BTreeSet<&'static str>,
}

enum Link {
    /// Disabled.
    Off,
    Waiting {
        at: Boot,
    },
    Probing {
        probe: Probe,
        /// When to report that the bus does not answer. None if it was reported.
        silent: Option<Boot>,
    },
    Open(Box<Open>),
}

struct Open {
    channel: Channel,
    since: Boot,
    /// Calls in flight.
    pending: Vec<Pending<What>>,
    /// The unique name of logind; None while it is not on the bus.
    logind: Option<String>,
    /// The match for PrepareForShutdown is in place.
    subscribed: bool,
}

#[derive(Debug)]
enum What {
    Hello,
    MatchOwner,
    GetOwner,
    Start,
    Call { op: OpId, call: LogindCall },
}

impl Logind {
    /// Creates a disabled client. `address` has D-Bus's format. `token` becomes ready when `drive` has to be called.
    pub fn new(address: &str, token: Token) -> Logind {
        let places = address::parse(address);
        let path = |place: &Place| match &place.socket {
            Socket::Path(path) => Some(path.clone()),
            Socket::Abstract(_) => None,
        };
        let paths = places.iter().flatten().filter_map(path).collect();
        Logind {
            token,
            places,
            uid: rustix::process::geteuid().as_raw(),
            link: Link::Off,
            retry: Retry::default(),
            watch: Watch::new(paths),
            down: None,
            ended: Vec::new(),
            turned_off: false,
            strange_told: BTreeSet::new(),
        }
    }

    /// Enables or disables the client. Disabling closes the connection, which is reported as `Down`. Call `drive` after a change.
    pub fn set_enabled(&mut self, enabled: bool) {
        match (&self.link, enabled) {
            (Link::Off, true) => {
                self.link = Link::Waiting { at: Boot(0) };
                self.retry = Retry::default();
            }
            (Link::Off, false) | (_, true) => {}
            (_, false) => {
                if let Link::Open(open) = std::mem::replace(&mut self.link, Link::Off) {
                    self.ended.extend(abandoned(open.pending, OFF));
                    self.turned_off = open.logind.is_some();
                }
                self.watch.disarm();
                self.down = None;
            }
        }
    }

    pub fn is_enabled(&self) -> bool {
        !matches!(self.link, Link::Off)
    }

    /// Starts a call. Call `drive` afterwards. Without an answer within `timeout` the call ends as Unknown.
    pub fn start(&mut self, op: OpId, call: LogindCall, timeout: Duration, now: Boot) {
        if let Err(why) = self.send(op, call, now + timeout) {
            self.ended.push((op, Err(OpError::NotSent(why))));
        }
    }

    fn send(&mut self, op: OpId, call: LogindCall, deadline: Boot) -> Result<(), String> {
        let Link::Open(open) = &mut self.link else {
            return Err(self.down.clone().unwrap_or_else(|| "no connection to the system bus".to_owned()));
        };
        let logind = open.logind.as_deref().ok_or("logind is not on the system bus")?;
        if open.subscribed && call == LogindCall::Subscribe {
            // The match is for logind's well-known name, so it stays valid while the connection is open.
            self.ended.push((op, Ok(Answer::Ok)));
            return Ok(());
        }
        let message = messages::request(&call, logind)?;
        open.send(message, What::Call { op, call }, deadline)
    }

    /// Reads and writes without blocking, and connects when an attempt is due.
    pub fn drive(&mut self, registry: &Registry, now: Boot, out: &mut Vec<BusEvent>) {
        if std::mem::take(&mut self.turned_off) {
            out.push(BusEvent::Said(LogindEvent::Down { why: OFF.to_owned() }));
        }
        let link = std::mem::replace(&mut self.link, Link::Off);
        self.link = match link {
            Link::Off => Link::Off,
            Link::Waiting { at } => {
                if self.watch.changed() {
                    self.retry.restart(now);
                    self.attempt(registry, now, out)
                } else if at <= now {
                    self.attempt(registry, now, out)
                } else {
                    Link::Waiting { at }
                }
            }
            Link::Probing { probe, silent } => self.ask(probe, silent, registry, now, out),
            Link::Open(open) => self.converse(open, registry, now, out),
        };
        out.extend(self.ended.drain(..).map(|(op, result)| BusEvent::Done { op, result }));
    }

    /// When `drive` must be called at the latest.
    pub fn next_deadline(&self) -> Option<Boot> {
        if !self.ended.is_empty() || self.turned_off {
            return Some(Boot(0));
        }
        match &self.link {
            Link::Off => None,
            Link::Waiting { at } => Some(*at),
            Link::Probing { silent, .. } => *silent,
            Link::Open(open) => open.pending.iter().map(|p| p.deadline).min(),
        }
    }

    fn attempt(&mut self, registry: &Registry, now: Boot, out: &mut Vec<BusEvent>) -> Link {
        let places = match &self.places {
            Ok(places) => places,
            Err(why) => {
                // The address is invalid. A retry would not help.
                let why = why.clone();
                self.tell_down(why, out);
                return Link::Waiting { at: Boot(u64::MAX) };
            }
        };
        let mut failures = Vec::new();
        for place in places {
            match Probe::begin(place, registry, self.token) {
                Ok(probe) => {
                    self.watch.disarm();
                    return Link::Probing { probe, silent: Some(now + SILENT) };
                }
                Err(why) => failures.push(why),
            }
        }
        self.failed(failures.join("; "), registry, now, out)
    }

    /// Handles a failed attempt or a lost connection: reports it and schedules the next attempt.
    fn failed(&mut self, why: String, registry: &Registry, now: Boot, out: &mut Vec<BusEvent>) -> Link {
        self.tell_down(why, out);
        // Set up the watch first: the next attempt covers changes that happened before it.
        self.watch.arm(registry, self.token);
        Link::Waiting { at: self.retry.next(now) }
    }

    fn tell_down(&mut self, why: String, out: &mut Vec<BusEvent>) {
        if self.down.as_ref() != Some(&why) {
            self.down = Some(why.clone());
            out.push(BusEvent::Said(LogindEvent::Down { why }));
        }
    }

    fn ask(
        &mut self,
        mut probe: Probe,
        silent: Option<Boot>,
        registry: &Registry,
        now: Boot,
        out: &mut Vec<BusEvent>,
    ) -> Link {
        match probe.look() {
            probe::Answered::Yes => {
                let place = probe.place.clone();
                drop(probe);
                match Open::connect(&place, registry, self.token, now) {
                    Ok(open) => self.converse(Box::new(open), registry, now, out),
                    Err(why) => self.failed(why, registry, now, out),
                }
            }
            probe::Answered::No(why) => self.failed(why, registry, now, out),
            probe::Answered::NotYet if silent.is_some_and(|at| at <= now) => {
                self.tell_down(format!("{}: the system bus does not answer", probe.place), out);
                Link::Probing { probe, silent: None }
            }
            probe::Answered::NotYet => Link::Probing { probe, silent },
        }
    }

    /// Processes the messages of an open connection and the calls whose deadline has passed.
    fn converse(&mut self, mut open: Box<Open>, registry: &Registry, now: Boot, out: &mut Vec<BusEvent>) -> Link {
        let mut lost = open.channel.read_write(Some(Duration::ZERO)).is_err();
        let mut why = None;
        while let Some(message) = open.channel.pop_message() {
            if let Err(e) = self.take(&mut open, &message, now, out) {
                why.get_or_insert(e);
            }
        }
        lost |= !open.channel.is_connected();
        let late = |p: &Pending<What>| p.deadline <= now;
        for Pending { what, .. } in open.pending.extract_if(.., |p| late(p)) {
            match what {
                What::Call { op, .. } => {
                    let e = OpError::Unknown("no answer in time".to_owned());
                    out.push(BusEvent::Done { op, result: Err(e) });
                }
                // The bus works but logind did not start. The connection stays open.
                What::Start => self.tell_down("the bus did not start logind in time".to_owned(), out),
                What::Hello | What::MatchOwner | What::GetOwner => {
                    why.get_or_insert_with(|| "the system bus does not answer".to_owned());
                }
            }
        }
        if lost {
            why.get_or_insert_with(|| "the connection to the system bus was lost".to_owned());
        }
        let why = why.or_else(|| channel::watch(&open.channel, registry, self.token, false).err());
        match why {
            None => Link::Open(open),
            Some(why) => {
                if now.since(open.since) >= HELD {
                    self.retry.restart(now);
                }
                self.ended.extend(abandoned(open.pending, &why));
                self.failed(why, registry, now, out)
            }
        }
    }

    /// Processes one message.
    ///
    /// # Errors
    /// The connection is not usable; it is closed.
    fn take(&mut self, open: &mut Open, message: &Message, now: Boot, out: &mut Vec<BusEvent>) -> Result<(), String> {
        match message.msg_type() {
            MessageType::MethodReturn | MessageType::Error => {
                let serial = message.get_reply_serial();
                let Some(at) = open.pending.iter().position(|p| Some(p.serial) == serial) else {
                    // The answer arrived after the deadline. Dropping it also closes a lock that it contains.
                    return Ok(());
                };
                let what = open.pending.swap_remove(at).what;
                self.answered(open, what, message, now, out)
            }
            MessageType::Signal => {
                match messages::signal(message, open.logind.as_deref()) {
                    Signal::Owner(owner) => self.owner(open, owner, out),
                    Signal::Event(event) => out.push(BusEvent::Said(event)),
                    Signal::Other => {}
                    Signal::Strange(what) => {
                        if self.strange_told.insert(what) {
                            let sender = message.sender().map(|s| s.to_string()).unwrap_or_default();
                            log::warn!(
                                "ignoring signals of this kind on the system bus from now on: {what} sender={sender}"
                            );
                        }
                    }
                }
                Ok(())
            }
            MessageType::MethodCall => {
                // Wherry offers no methods. Reply so that the caller does not wait.
                if let Some(reply) = default_reply(message).filter(|_| !message.get_no_reply()) {
                    let _ = open.channel.send(reply);
                }
                Ok(())
            }
        }
    }

    fn answered(
        &mut self,
        open: &mut Open,
        what: What,
        reply: &Message,
        now: Boot,
        out: &mut Vec<BusEvent>,
    ) -> Result<(), String> {
        let refused = |what: &str, e: &OpError| format!("the system bus refused {what}: {}", e.message());
        match what {
            What::Hello => {
                messages::text(reply).map_err(|e| refused("Hello", &e))?;
            }
            What::MatchOwner => reply::fine(reply).map_err(|e| refused("to report changes of logind's name", &e))?,
            What::GetOwner => match messages::text(reply) {
                Ok(owner) => self.owner(open, Some(owner), out),
                Err(e) if e.is_not_found() => {
                    // logind may have appeared since the question was sent.
                    if open.logind.is_none() {
                        open.send(messages::start_logind()?, What::Start, now + GREETING)?;
                    }
                }
                Err(e) => return Err(refused("to return the owner of logind's name", &e)),
            },
            What::Start => {
                // On success the bus has already sent NameOwnerChanged.
                if let Err(e) = reply::fine(reply)
                    && open.logind.is_none()
                {
                    self.tell_down(format!("there is no logind on the system bus: {}", e.message()), out);
                }
            }
            What::Call { op, call } => {
                let answer = messages::answer(&call, reply, self.uid);
                if call == LogindCall::Subscribe && answer.is_ok() {
                    open.subscribed = true;
                }
                out.push(match answer {
                    Ok(Answered::Lock(fd)) => BusEvent::Locked { op, lock: Lock::new(fd, Some(std::process::id())) },
                    Ok(Answered::Takers(takers)) => BusEvent::Listed { op, takers },
                    Ok(Answered::Plain(answer)) => BusEvent::Done { op, result: Ok(answer) },
                    Err(e) => BusEvent::Done { op, result: Err(e) },
                });
            }
        }
        Ok(())
    }

    /// Handles a change of the owner of logind's name.
    fn owner(&mut self, open: &mut Open, owner: Option<String>, out: &mut Vec<BusEvent>) {
        if open.logind == owner {
            return;
        }
        open.logind = owner;
        if open.logind.is_some() {
            self.down = None;
            out.push(BusEvent::Said(LogindEvent::Up));
        } else {
            self.tell_down("logind has left the system bus".to_owned(), out);
        }
    }
}

impl Open {
    /// Connects to a bus that has just answered a probe.
    fn connect(place: &Place, registry: &Registry, token: Token, now: Boot) -> Result<Open, String> {
        let channel = channel::open(place)?;
        let mut open = Open { channel, since: now, pending: Vec::new(), logind: None, subscribed: false };
        channel::watch(&open.channel, registry, token, true)?;
        let deadline = now + GREETING;
        open.send(reply::hello()?, What::Hello, deadline)?;
        open.send(messages::match_owner()?, What::MatchOwner, deadline)?;
        open.send(messages::get_owner()?, What::GetOwner, deadline)?;
        Ok(open)
    }

    fn send(&mut self, message: Message, what: What, deadline: Boot) -> Result<(), String> {
        let serial = self.channel.send(message).map_err(|()| "libdbus has no memory for a message".to_owned())?;
        self.pending.push(Pending { serial, deadline, what });
        Ok(())
    }
}

/// Ends the calls in flight of a closed connection with an unknown outcome.
fn abandoned(pending: Vec<Pending<What>>, why: &str) -> impl Iterator<Item = (OpId, Result<Answer, OpError>)> {
    pending.into_iter().filter_map(move |p| match p.what {
        What::Call { op, .. } => Some((op, Err(OpError::Unknown(why.to_owned())))),
        _ => None,
    })
}
