//! The client of systemd-logind: the calls of graceful shutdown (S2, S3) and the signals of logind (S4, S7). Nothing
//! here blocks or makes decisions.
//!
//! While the connection is open, only its socket causes work; there is no timer and no polling. `bus::connection`
//! reconnects to a lost bus.
//!
//! - `messages`: building and parsing messages;
//! - `dropin`: the drop-in file of logind's configuration.

pub mod dropin;
mod messages;

use super::connection::{BusConnection, Incident};
use super::reply;
use crate::api::time::Boot;
use crate::engine::effect::LogindCall;
use crate::engine::event::{Answer, LogindEvent};
use crate::engine::op::{OpError, OpId};
use dbus::Message;
use messages::{Answered, BusSignal};
use mio::{Registry, Token};
use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Timeout of the first calls on a new connection. It is long because a slow machine needs time to start logind.
const GREETING: Duration = Duration::from_secs(60);

const OFF: &str = "graceful shutdown was turned off";

/// A delay lock of logind. A shutdown of the machine waits until its descriptor is closed. Dropping the lock closes it.
#[derive(Debug)]
pub struct Lock {
    fd: OwnedFd,
    /// The pid of the process that took the lock, as logind lists it.
    pub taker: u32,
}

impl Lock {
    /// Creates a lock from a descriptor that logind returned. The descriptor must have the close-on-exec flag.
    pub fn new(fd: OwnedFd, taker: u32) -> Lock {
        Lock { fd, taker }
    }

    /// Reports whether logind lists this lock. A newer logind that has restarted lists pid 0 for a process that has
    /// ended.
    pub fn is_among(&self, takers: &[u32]) -> bool {
        takers.iter().any(|pid| *pid == 0 || self.taker == *pid)
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
    Logind(LogindEvent),
    /// A call has ended. Every call ends with exactly one of `Done`, `Locked` and `Listed`.
    Done { op: OpId, result: Result<Answer, OpError> },
    /// A call of Inhibit succeeded.
    Locked { op: OpId, lock: Lock },
    /// A call of ListInhibitors succeeded. `takers` are the pids of the processes that took a lock like ours.
    Listed { op: OpId, takers: Vec<u32> },
}

/// The connection to the bus, with its calls in flight.
pub struct Logind {
    connection: BusConnection<What>,
    uid: u32,
    /// The unique name of logind; None while it is not on the bus.
    owner: Option<String>,
    /// Whether the match for PrepareForShutdown is in place.
    subscribed: bool,
    /// The reason for the last `Down`; None after an `Up`.
    down: Option<String>,
    /// Results of calls that ended without an answer from the bus. The next `drive` delivers them.
    ended: Vec<(OpId, Result<Answer, OpError>)>,
    /// Whether the next `drive` must report `Down`, because `set_enabled(false)` has closed the connection.
    turned_off: bool,
    strange_told: BTreeSet<&'static str>,
}

#[derive(Debug)]
enum What {
    MatchOwner,
    GetOwner,
    Start,
    Call { op: OpId, call: LogindCall },
}

impl Logind {
    /// Creates a disabled client. `address` has D-Bus's format. `token` becomes ready when `drive` must be called.
    pub fn new(address: &str, token: Token) -> Logind {
        Logind {
            connection: BusConnection::in_background(address, token),
            uid: rustix::process::geteuid().as_raw(),
            owner: None,
            subscribed: false,
            down: None,
            ended: Vec::new(),
            turned_off: false,
            strange_told: BTreeSet::new(),
        }
    }

    /// Enables or disables the client. Disabling closes the connection, which is reported as `Down`. Call `drive` after
    /// a change.
    pub fn set_enabled(&mut self, enabled: bool) {
        if enabled {
            self.connection.open();
        } else if self.is_enabled() {
            self.turned_off = self.owner.is_some();
            let unanswered = self.connection.close();
            self.closed(unanswered, OFF);
            self.down = None;
        }
    }

    pub fn is_enabled(&self) -> bool {
        !self.connection.is_closed()
    }

    /// Starts a call. Call `drive` afterwards. Without an answer within `timeout` the call ends as Unknown.
    pub fn start(&mut self, op: OpId, call: LogindCall, timeout: Duration, now: Boot) {
        if let Err(why) = self.send(op, call, now + timeout) {
            self.ended.push((op, Err(OpError::NotSent(why))));
        }
    }

    fn send(&mut self, op: OpId, call: LogindCall, deadline: Boot) -> Result<(), String> {
        if !self.connection.is_open() {
            return Err(self.down.clone().unwrap_or_else(|| "no connection to the system bus".to_owned()));
        }
        let logind = self.owner.as_deref().ok_or("logind is not on the system bus")?;
        if self.subscribed && call == LogindCall::Subscribe {
            // The match is for logind's well-known name, so it stays valid while the connection is open.
            self.ended.push((op, Ok(Answer::Ok)));
            return Ok(());
        }
        self.connection.send(messages::request(&call, logind), What::Call { op, call }, deadline)
    }

    /// Reads and writes without blocking, and connects when an attempt is due.
    pub fn drive(&mut self, registry: &Registry, now: Boot, out: &mut Vec<BusEvent>) {
        if std::mem::take(&mut self.turned_off) {
            out.push(BusEvent::Logind(LogindEvent::Down { why: OFF.to_owned() }));
        }
        while let Some(incident) = self.connection.next(registry, now) {
            if let Err(why) = self.handle(incident, now, out) {
                self.connection.fail(why);
            }
        }
        out.extend(self.ended.drain(..).map(|(op, result)| BusEvent::Done { op, result }));
    }

    /// Returns when `drive` must be called next.
    pub fn next_deadline(&self) -> Option<Boot> {
        if !self.ended.is_empty() || self.turned_off {
            return Some(Boot(0));
        }
        self.connection.next_deadline()
    }

    fn report_down(&mut self, why: String, out: &mut Vec<BusEvent>) {
        if self.down.as_ref() != Some(&why) {
            self.down = Some(why.clone());
            out.push(BusEvent::Logind(LogindEvent::Down { why }));
        }
    }

    /// Handles an incident of the connection.
    ///
    /// # Errors
    /// The connection is not usable.
    fn handle(&mut self, incident: Incident<What>, now: Boot, out: &mut Vec<BusEvent>) -> Result<(), String> {
        match incident {
            Incident::Opened => {
                self.connection.send(messages::match_owner(), What::MatchOwner, now + GREETING)?;
                self.connection.send(messages::get_owner(), What::GetOwner, now + GREETING)?;
            }
            Incident::Reply { what, message } => self.answered(what, &message, now, out)?,
            Incident::Signal(message) => self.signal(&message, out),
            Incident::Late(What::Call { op, .. }) => {
                let e = OpError::Unknown("no response in time".to_owned());
                out.push(BusEvent::Done { op, result: Err(e) });
            }
            // The bus works but logind did not start. The connection stays open.
            Incident::Late(What::Start) => self.report_down("the bus did not start logind in time".to_owned(), out),
            Incident::Late(What::MatchOwner | What::GetOwner) => {
                return Err("the system bus does not respond".to_owned());
            }
            Incident::Silent { why } => self.report_down(why, out),
            Incident::Closed { why, unanswered } => {
                self.closed(unanswered, &why);
                self.report_down(why, out);
            }
        }
        Ok(())
    }

    /// Ends the calls in flight of a closed connection with an unknown outcome.
    fn closed(&mut self, unanswered: Vec<What>, why: &str) {
        self.owner = None;
        self.subscribed = false;
        self.ended.extend(unanswered.into_iter().filter_map(|what| match what {
            What::Call { op, .. } => Some((op, Err(OpError::Unknown(why.to_owned())))),
            _ => None,
        }));
    }

    fn signal(&mut self, message: &Message, out: &mut Vec<BusEvent>) {
        match messages::signal(message, self.owner.as_deref()) {
            BusSignal::Owner(owner) => self.owner_changed(owner, out),
            BusSignal::Event(event) => out.push(BusEvent::Logind(event)),
            BusSignal::Other => {}
            BusSignal::Strange(what) => {
                if self.strange_told.insert(what) {
                    let sender = message.sender().map(|s| s.to_string()).unwrap_or_default();
                    log::warn!("from now on, ignoring signals like this one on the system bus: {what} sender={sender}");
                }
            }
        }
    }

    fn answered(&mut self, what: What, reply: &Message, now: Boot, out: &mut Vec<BusEvent>) -> Result<(), String> {
        let refused = |what: &str, e: &OpError| format!("the system bus refused {what}: {}", e.message());
        match what {
            What::MatchOwner => reply::fine(reply).map_err(|e| refused("to report changes of logind's name", &e))?,
            What::GetOwner => match reply::text(reply) {
                Ok(owner) => self.owner_changed(Some(owner), out),
                Err(e) if e.is_not_found() => {
                    // logind may have appeared since the request was sent.
                    if self.owner.is_none() {
                        self.connection.send(messages::start_logind(), What::Start, now + GREETING)?;
                    }
                }
                Err(e) => return Err(refused("to return the owner of logind's name", &e)),
            },
            What::Start => {
                // On success the bus has already sent NameOwnerChanged.
                if let Err(e) = reply::fine(reply)
                    && self.owner.is_none()
                {
                    self.report_down(format!("there is no logind on the system bus: {}", e.message()), out);
                }
            }
            What::Call { op, call } => {
                let answer = messages::answer(&call, reply, self.uid);
                if call == LogindCall::Subscribe && answer.is_ok() {
                    self.subscribed = true;
                }
                out.push(match answer {
                    Ok(Answered::Lock(fd)) => BusEvent::Locked { op, lock: Lock::new(fd, std::process::id()) },
                    Ok(Answered::Takers(takers)) => BusEvent::Listed { op, takers },
                    Ok(Answered::Plain(answer)) => BusEvent::Done { op, result: Ok(answer) },
                    Err(e) => BusEvent::Done { op, result: Err(e) },
                });
            }
        }
        Ok(())
    }

    /// Handles a change in who owns logind's bus name.
    fn owner_changed(&mut self, owner: Option<String>, out: &mut Vec<BusEvent>) {
        if self.owner == owner {
            return;
        }
        self.owner = owner;
        if self.owner.is_some() {
            self.down = None;
            out.push(BusEvent::Logind(LogindEvent::Up));
        } else {
            self.report_down("logind has left the system bus".to_owned(), out);
        }
    }
}
