//! One connection to the system bus. Its clients (`logind` and the slices of pods) provide the messages and read the
//! replies. It probes the bus, connects, sends `Hello`, matches replies to calls, and watches deadlines. A connection
//! `in_background` reconnects to a lost bus on its own (`retry`, `watch`); a connection `on_demand` stays closed
//! until its client opens it again. Nothing here blocks.

use super::address::{self, BusAddress, BusSocket};
use super::probe::{Answered, Probe};
use super::reply::{self, Made};
use super::retry::Retry;
use super::watch::SocketWatch;
use crate::api::time::Boot;
use dbus::channel::{Channel, default_reply};
use dbus::{Message, MessageType};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use std::time::Duration;

/// Time after which a bus that accepts connections but does not answer is reported.
const SILENT: Duration = Duration::from_secs(5);
/// Timeout of `Hello`.
const HELLO: Duration = Duration::from_secs(60);
/// A connection that lasted this long resets the back-off of `retry` when it is lost.
const HELD: Duration = Duration::from_secs(5);

/// `W` identifies a call of the client.
pub(in crate::adapters) struct BusConnection<W> {
    token: Token,
    places: Result<Vec<BusAddress>, String>,
    state: BusState<W>,
    /// What reconnecting in the background needs. None for a connection on demand.
    background: Option<Background>,
}

struct Background {
    retry: Retry,
    watch: SocketWatch,
}

enum BusState<W> {
    Closed,
    Waiting {
        at: Boot,
    },
    Probing {
        probe: Probe,
        /// When to report that the bus does not answer. None if this has already been reported.
        silent: Option<Boot>,
    },
    Open(Box<Open<W>>),
}

struct Open<W> {
    channel: Channel,
    since: Boot,
    /// Calls in flight.
    pending: Vec<PendingCall<W>>,
    /// Whether the socket has been read since `next` last returned None.
    read: bool,
    /// The first reason to close the connection.
    failure: Option<String>,
}

struct PendingCall<W> {
    serial: u32,
    deadline: Boot,
    /// Identifies the call of the client. None for `Hello`.
    what: Option<W>,
}

#[derive(Debug)]
pub(in crate::adapters) enum Incident<W> {
    /// The connection is open and `Hello` is sent.
    Opened,
    Reply {
        what: W,
        message: Message,
    },
    Signal(Message),
    /// The deadline of a call has passed.
    Late(W),
    /// The bus accepts connections but does not answer. The attempt continues.
    Silent {
        why: String,
    },
    /// An attempt to connect failed, or the connection was lost. The calls in flight get no answer.
    Closed {
        why: String,
        unanswered: Vec<W>,
    },
}

impl<W> BusConnection<W> {
    /// Creates a closed connection that stays closed after a failure. `address` has D-Bus's format. `token` becomes
    /// ready when `next` must be called.
    pub(in crate::adapters) fn on_demand(address: &str, token: Token) -> BusConnection<W> {
        BusConnection { token, places: address::parse(address), state: BusState::Closed, background: None }
    }

    /// Creates a closed connection that, once opened, connects again after each failure.
    pub(in crate::adapters) fn in_background(address: &str, token: Token) -> BusConnection<W> {
        let connection = BusConnection::on_demand(address, token);
        let path = |place: &BusAddress| match &place.socket {
            BusSocket::Path(path) => Some(path.clone()),
            BusSocket::Abstract(_) => None,
        };
        let watch = SocketWatch::new(connection.places.iter().flatten().filter_map(path).collect());
        BusConnection { background: Some(Background { retry: Retry::default(), watch }), ..connection }
    }

    /// Lets `next` connect if the connection is closed.
    pub(in crate::adapters) fn open(&mut self) {
        if self.is_closed() {
            self.state = BusState::Waiting { at: Boot(0) };
            if let Some(background) = &mut self.background {
                background.retry = Retry::default();
            }
        }
    }

    /// Closes the connection and returns the calls in flight.
    pub(in crate::adapters) fn close(&mut self) -> Vec<W> {
        if let Some(background) = &mut self.background {
            background.watch.disarm();
        }
        match std::mem::replace(&mut self.state, BusState::Closed) {
            BusState::Open(open) => open.unanswered(),
            _ => Vec::new(),
        }
    }

    /// Returns true if the connection is closed and no attempt is due or in progress.
    pub(in crate::adapters) fn is_closed(&self) -> bool {
        matches!(self.state, BusState::Closed)
    }

    pub(in crate::adapters) fn is_open(&self) -> bool {
        matches!(self.state, BusState::Open(_))
    }

    /// Sends a call. Call `next` afterwards.
    ///
    /// # Errors
    /// There is no connection, or the message could not be made or sent.
    pub(in crate::adapters) fn send(&mut self, message: Made, what: W, deadline: Boot) -> Result<(), String> {
        match &mut self.state {
            BusState::Open(open) => open.send(message?, Some(what), deadline),
            _ => Err("no connection to the system bus".to_owned()),
        }
    }

    /// Closes an open connection that is not usable, after the remaining input has been processed. The first reason
    /// is reported.
    pub(in crate::adapters) fn fail(&mut self, why: String) {
        if let BusState::Open(open) = &mut self.state {
            open.failure.get_or_insert(why);
        }
    }

    /// Reads and writes without blocking, connects when an attempt is due, and returns one incident at a time. Call it
    /// until it returns None.
    pub(in crate::adapters) fn next(&mut self, registry: &Registry, now: Boot) -> Option<Incident<W>> {
        match &mut self.state {
            BusState::Closed => None,
            BusState::Waiting { at } => {
                let mut due = *at <= now;
                if let Some(Background { retry, watch }) = &mut self.background
                    && watch.changed()
                {
                    retry.restart(now);
                    due = true;
                }
                if due { self.attempt(registry, now) } else { None }
            }
            BusState::Probing { probe, silent } => match probe.read() {
                Answered::Yes => match Open::connect(&probe.place, registry, self.token, now) {
                    Ok(open) => {
                        self.state = BusState::Open(Box::new(open));
                        Some(Incident::Opened)
                    }
                    Err(why) => Some(self.closed(why, registry, now)),
                },
                Answered::No(why) => Some(self.closed(why, registry, now)),
                Answered::NotYet if silent.is_some_and(|at| at <= now) => {
                    *silent = None;
                    Some(Incident::Silent { why: format!("{}: the system bus does not respond", probe.place) })
                }
                Answered::NotYet => None,
            },
            BusState::Open(open) => match open.next(registry, self.token, now) {
                Ok(incident) => incident,
                Err(why) => Some(self.closed(why, registry, now)),
            },
        }
    }

    /// Returns when `next` must be called again.
    pub(in crate::adapters) fn next_deadline(&self) -> Option<Boot> {
        match &self.state {
            BusState::Closed => None,
            BusState::Waiting { at } => Some(*at),
            BusState::Probing { silent, .. } => *silent,
            BusState::Open(open) => open.pending.iter().map(|p| p.deadline).min(),
        }
    }

    fn attempt(&mut self, registry: &Registry, now: Boot) -> Option<Incident<W>> {
        let mut failures = Vec::new();
        match &self.places {
            Err(why) => failures.push(why.clone()),
            Ok(places) => {
                for place in places {
                    match Probe::begin(place, registry, self.token) {
                        Ok(probe) => {
                            // The client of a connection on demand has its own deadlines.
                            let silent = self.background.as_mut().map(|background| {
                                background.watch.disarm();
                                now + SILENT
                            });
                            self.state = BusState::Probing { probe, silent };
                            return None;
                        }
                        Err(why) => failures.push(why),
                    }
                }
            }
        }
        Some(self.closed(failures.join("; "), registry, now))
    }

    /// Handles a failed attempt or a lost connection.
    fn closed(&mut self, why: String, registry: &Registry, now: Boot) -> Incident<W> {
        let unanswered = match std::mem::replace(&mut self.state, BusState::Closed) {
            BusState::Open(open) => {
                if let Some(Background { retry, .. }) = &mut self.background
                    && now.since(open.since) >= HELD
                {
                    retry.restart(now);
                }
                open.unanswered()
            }
            _ => Vec::new(),
        };
        if let Some(Background { retry, watch }) = &mut self.background {
            // Set up the watch first: the next attempt covers changes that happened before it.
            watch.arm(registry, self.token);
            // A retry does not help against an invalid address.
            let at = if self.places.is_ok() { retry.next(now) } else { Boot(u64::MAX) };
            self.state = BusState::Waiting { at };
        }
        Incident::Closed { why, unanswered }
    }
}

impl<W> Open<W> {
    /// Connects to a bus that has just answered a probe. libdbus connects with a blocking connect(2).
    fn connect(place: &BusAddress, registry: &Registry, token: Token, now: Boot) -> Result<Open<W>, String> {
        let mut channel = Channel::open_private(&place.address)
            .map_err(|e| format!("connect to {place}: {}", e.message().unwrap_or("no reason given")))?;
        channel.set_watch_enabled(true);
        let mut open = Open { channel, since: now, pending: Vec::new(), read: false, failure: None };
        open.watch(registry, token, true)?;
        open.send(reply::hello()?, None, now + HELLO)?;
        Ok(open)
    }

    fn send(&mut self, message: Message, what: Option<W>, deadline: Boot) -> Result<(), String> {
        let serial = self.channel.send(message).map_err(|()| "libdbus has no memory for a message".to_owned())?;
        self.pending.push(PendingCall { serial, deadline, what });
        Ok(())
    }

    /// Returns the next incident of an open connection: its messages, then the calls whose deadline has passed.
    ///
    /// # Errors
    /// The connection must be closed.
    fn next(&mut self, registry: &Registry, token: Token, now: Boot) -> Result<Option<Incident<W>>, String> {
        let lost = !self.read && self.channel.read_write(Some(Duration::ZERO)).is_err();
        self.read = true;
        if lost {
            self.failure.get_or_insert_with(|| LOST.to_owned());
        }
        while let Some(message) = self.channel.pop_message() {
            if let Some(incident) = self.take(message) {
                return Ok(Some(incident));
            }
        }
        if let Some(late) = self.pending.iter().position(|p| p.deadline <= now) {
            match self.pending.swap_remove(late).what {
                Some(what) => return Ok(Some(Incident::Late(what))),
                None => self.failure.get_or_insert_with(|| "the system bus does not respond".to_owned()),
            };
        }
        if !self.channel.is_connected() {
            self.failure.get_or_insert_with(|| LOST.to_owned());
        }
        if let Some(why) = self.failure.take() {
            return Err(why);
        }
        self.watch(registry, token, false)?;
        self.read = false;
        Ok(None)
    }

    fn take(&mut self, message: Message) -> Option<Incident<W>> {
        match message.msg_type() {
            MessageType::MethodReturn | MessageType::Error => {
                let serial = message.get_reply_serial();
                // An answer that arrives after the deadline is dropped, which also closes a descriptor that it
                // contains.
                let at = self.pending.iter().position(|p| Some(p.serial) == serial)?;
                if let Some(what) = self.pending.swap_remove(at).what {
                    return Some(Incident::Reply { what, message });
                }
                if let Err(e) = reply::text(&message) {
                    self.failure.get_or_insert_with(|| format!("the system bus refused Hello: {}", e.message()));
                }
                None
            }
            MessageType::Signal => Some(Incident::Signal(message)),
            MessageType::MethodCall => {
                // Wherry offers no methods. Reply so that the caller does not wait.
                if let Some(reply) = default_reply(&message).filter(|_| !message.get_no_reply()) {
                    let _ = self.channel.send(reply);
                }
                None
            }
        }
    }

    /// Registers the events that libdbus waits for. The registration is repeated after each drive because mio is
    /// edge-triggered and libdbus does not report whether it has read everything; a registration also reports data
    /// that is already available.
    fn watch(&self, registry: &Registry, token: Token, new: bool) -> Result<(), String> {
        let watch = self.channel.watch();
        let interest = if watch.write { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
        let fd = &mut SourceFd(&watch.fd);
        let result =
            if new { registry.register(fd, token, interest) } else { registry.reregister(fd, token, interest) };
        result.map_err(|e| format!("watch the socket of the system bus: {e}"))
    }

    fn unanswered(self) -> Vec<W> {
        self.pending.into_iter().filter_map(|p| p.what).collect()
    }
}

const LOST: &str = "the connection to the system bus was lost";

#[cfg(test)]
mod tests {
    use super::*;
    use mio::Poll;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;

    fn closed<W: std::fmt::Debug>(incident: Option<Incident<W>>) -> (String, Vec<W>) {
        match incident {
            Some(Incident::Closed { why, unanswered }) => (why, unanswered),
            other => panic!("{other:?}"),
        }
    }

    /// Accepts the probe and answers it.
    fn answer_the_probe(listener: &UnixListener) {
        let (mut probe, _) = listener.accept().unwrap();
        assert!(probe.read(&mut [0; 16]).unwrap() > 0);
        probe.write_all(b"REJECTED EXTERNAL\r\n").unwrap();
    }

    #[test]
    fn a_connection_on_demand_makes_one_attempt_each_time_it_is_opened() {
        let poll = Poll::new().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let missing = format!("unix:path={0}/a;unix:path={0}/b", dir.path().display());
        for address in [missing.as_str(), "tcp:host=x"] {
            let mut connection = BusConnection::<()>::on_demand(address, Token(1));
            assert!(connection.next(poll.registry(), Boot(0)).is_none());
            for _ in 0..2 {
                connection.open();
                assert_eq!(connection.next_deadline(), Some(Boot(0)));
                let (why, _) = closed(connection.next(poll.registry(), Boot(0)));
                assert!(why.contains("/a: No such") && why.contains("/b: No such") || why.contains("only unix:"));
                assert!(connection.is_closed() && connection.next_deadline().is_none());
            }
        }
    }

    #[test]
    fn s7_a_connection_in_background_tries_again() {
        let poll = Poll::new().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bus");
        let mut connection = BusConnection::<()>::in_background(&format!("unix:path={}", path.display()), Token(1));
        let mut now = Boot(0);
        connection.open();
        for millis in [0, 1000, 1000] {
            now = now + Duration::from_millis(millis);
            assert!(connection.next_deadline().is_some_and(|at| at <= now));
            closed(connection.next(poll.registry(), now));
            assert!(connection.next(poll.registry(), now).is_none());
        }
        // The watch sees the new socket before the next attempt is due.
        let listener = UnixListener::bind(&path).unwrap();
        assert!(connection.next(poll.registry(), now).is_none());
        assert_eq!(connection.next_deadline(), Some(now + SILENT));
        let later = now + SILENT;
        assert!(matches!(connection.next(poll.registry(), later), Some(Incident::Silent { .. })));
        assert!(connection.next(poll.registry(), later).is_none());
        assert_eq!(connection.next_deadline(), None);
        answer_the_probe(&listener);
        assert!(matches!(connection.next(poll.registry(), later), Some(Incident::Opened)));
        assert!(connection.is_open());
        let mut other = BusConnection::<()>::in_background("tcp:host=x", Token(2));
        other.open();
        closed(other.next(poll.registry(), now));
        assert_eq!(other.next_deadline(), Some(Boot(u64::MAX)));
    }

    #[test]
    fn a_lost_connection_returns_the_calls_in_flight() {
        let poll = Poll::new().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bus");
        let listener = UnixListener::bind(&path).unwrap();
        let address = format!("unix:path={}", path.display());
        let mut connection = BusConnection::on_demand(&address, Token(1));
        let opened = |connection: &mut BusConnection<&'static str>| {
            connection.open();
            assert!(connection.next(poll.registry(), Boot(0)).is_none());
            answer_the_probe(&listener);
            assert!(matches!(connection.next(poll.registry(), Boot(0)), Some(Incident::Opened)));
        };
        assert!(connection.send(reply::hello(), "too early", Boot(9)).is_err());
        opened(&mut connection);
        connection.send(reply::hello(), "late", Boot(9)).unwrap();
        connection.send(reply::hello(), "in flight", Boot(20)).unwrap();
        assert_eq!(connection.next_deadline(), Some(Boot(9)));
        assert!(matches!(connection.next(poll.registry(), Boot(9)), Some(Incident::Late("late"))));
        assert!(connection.next(poll.registry(), Boot(9)).is_none());
        drop(listener.accept().unwrap());
        // libdbus itself reports the loss with a signal.
        assert!(matches!(connection.next(poll.registry(), Boot(9)), Some(Incident::Signal(_))));
        assert_eq!(closed(connection.next(poll.registry(), Boot(9))), (LOST.to_owned(), vec!["in flight"]));

        opened(&mut connection);
        connection.send(reply::hello(), "in flight", Boot(20)).unwrap();
        connection.fail("first".to_owned());
        connection.fail("second".to_owned());
        assert_eq!(closed(connection.next(poll.registry(), Boot(9))), ("first".to_owned(), vec!["in flight"]));

        drop(listener.accept().unwrap());
        opened(&mut connection);
        connection.send(reply::hello(), "in flight", Boot(20)).unwrap();
        assert_eq!(connection.close(), ["in flight"]);
        assert!(connection.is_closed());
    }
}
