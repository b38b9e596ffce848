//! Tests of the logind adapter on an event loop, without an agent.

use crate::support::agent::patience;
use crate::support::logind::{LOGIND_PATH, MANAGER, Node, wait};
use dbus::Message;
use mio::Token;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};
use wherry::adapters::bus::logind::{BusEvent, Lock, Logind, dropin};
use wherry::engine::effect::LogindCall;
use wherry::engine::event::{Answer, LogindEvent};
use wherry::engine::op::{Code, OpError, OpId};
use wherry::event_loop::{EventLoop, clock};

const TOKEN: Token = Token(7);
/// A `drive` that takes longer has blocked on the stopped bus.
const BLOCKED: Duration = Duration::from_secs(5);

struct Rig {
    event_loop: EventLoop,
    logind: Logind,
    lock: Option<Lock>,
    /// The events of the adapter that a test has not taken yet, in order.
    received: Vec<LogindEvent>,
    done: Vec<(OpId, Result<Answer, OpError>)>,
    next_op: u64,
    slowest: Duration,
    drives: usize,
}

impl Rig {
    fn new(address: &str) -> Rig {
        let mut rig = Rig {
            event_loop: EventLoop::new().unwrap(),
            logind: Logind::new(address, TOKEN),
            lock: None,
            received: Vec::new(),
            done: Vec::new(),
            next_op: 0,
            slowest: Duration::ZERO,
            drives: 0,
        };
        rig.logind.set_enabled(true);
        rig
    }

    /// Connects and waits for the event `Up`.
    fn up(node: &Node) -> Rig {
        let mut rig = Rig::new(&node.address());
        rig.expect_event(LogindEvent::Up);
        rig
    }

    fn drive(&mut self) {
        let mut out = Vec::new();
        let begin = Instant::now();
        self.logind.drive(self.event_loop.registry(), clock::boot(), &mut out);
        self.slowest = self.slowest.max(begin.elapsed());
        self.drives += 1;
        for event in out {
            match event {
                BusEvent::Logind(event) => self.received.push(event),
                BusEvent::Done { op, result } => self.done.push((op, result)),
                BusEvent::Locked { op, lock } => {
                    self.lock = Some(lock);
                    self.done.push((op, Ok(Answer::Ok)));
                }
                BusEvent::Listed { op, takers } => {
                    let ours = self.lock.as_ref().is_some_and(|lock| lock.is_among(&takers));
                    self.done.push((op, Ok(Answer::Inhibited(ours))));
                }
            }
        }
    }

    /// Like the agent, calls `drive` only when the poll reports the token or a deadline is due.
    fn turns(&mut self, how_long: Duration, mut enough: impl FnMut(&mut Rig) -> bool) -> bool {
        let end = clock::boot() + how_long;
        let mut ready = Vec::new();
        loop {
            if self.logind.next_deadline().is_some_and(|at| at <= clock::boot()) {
                self.drive();
            }
            if enough(self) {
                return true;
            }
            if clock::boot() >= end {
                return false;
            }
            let deadline = self.logind.next_deadline().map_or(end, |at| at.min(end));
            self.event_loop.turn(Some(deadline), &mut ready).unwrap();
            if ready.contains(&TOKEN) {
                self.drive();
            }
        }
    }

    fn until(&mut self, what: &str, enough: impl FnMut(&mut Rig) -> bool) {
        let happened = self.turns(patience(240), enough);
        assert!(happened, "timed out: {what}; events {:?}, results {:?}", self.received, self.done);
    }

    /// Waits for the next event, which must be this one.
    fn expect_event(&mut self, event: LogindEvent) {
        assert_eq!(self.next_event(), event);
    }

    fn next_event(&mut self) -> LogindEvent {
        self.until("an event", |rig| !rig.received.is_empty());
        self.received.remove(0)
    }

    fn next_down(&mut self) -> String {
        match self.next_event() {
            LogindEvent::Down { why } => why,
            other => panic!("{other:?}"),
        }
    }

    fn begin(&mut self, call: LogindCall, timeout: Duration) -> OpId {
        let op = OpId(self.next_op);
        self.next_op += 1;
        self.logind.start(op, call, timeout, clock::boot());
        self.drive();
        op
    }

    fn call(&mut self, call: LogindCall) -> Result<Answer, OpError> {
        let op = self.begin(call, Duration::from_secs(30));
        self.until("an answer", |rig| !rig.done.is_empty());
        let (done, result) = self.done.remove(0);
        assert_eq!(done, op);
        result
    }

    fn quiet(&mut self, how_long: Duration) {
        self.turns(how_long, |_| false);
        assert!(self.received.is_empty() && self.done.is_empty(), "{:?} {:?}", self.received, self.done);
    }
}

#[test]
fn s3_a_lock_is_in_loginds_list_until_it_is_let_go() {
    let node = Node::start("lock");
    let mut rig = Rig::up(&node);
    assert_eq!(rig.call(LogindCall::ListInhibitors), Ok(Answer::Inhibited(false)));
    assert_eq!(rig.call(LogindCall::Inhibit), Ok(Answer::Ok));
    assert_eq!(rig.call(LogindCall::ListInhibitors), Ok(Answer::Inhibited(true)));
    let list = node.inhibitors();
    assert_eq!(list.len(), 1, "{list:?}");
    let (lock, pid) = (&list[0], std::process::id());
    assert_eq!(
        (lock.what.as_str(), lock.who.as_str(), lock.mode.as_str(), lock.pid),
        ("shutdown", "wherry", "delay", pid)
    );
    let fd = rig.lock.as_ref().unwrap();
    assert!(rustix::io::fcntl_getfd(fd).unwrap().contains(rustix::io::FdFlags::CLOEXEC));

    // The second lock is taken before the first one is closed.
    assert_eq!(rig.call(LogindCall::Inhibit), Ok(Answer::Ok));
    wait("one lock", || (node.locks() == 1).then_some(()));
    rig.lock = None;
    wait("no lock", || (node.locks() == 0).then_some(()));
    assert_eq!(rig.call(LogindCall::ListInhibitors), Ok(Answer::Inhibited(false)));
}

#[test]
fn s2_the_drop_in_and_a_reload_change_logind_delay() {
    let node = Node::start("delay");
    let mut rig = Rig::up(&node);
    let before = node.delay();
    assert_eq!(rig.call(LogindCall::ReadDelay), Ok(Answer::Delay(before)));
    for seconds in [47, 3] {
        let wanted = Duration::from_secs(seconds);
        assert_eq!(dropin::write(&node.conf_dir(), wanted), Ok(true));
        assert_eq!(rig.call(LogindCall::Reload), Ok(Answer::Ok));
        let mut answer = rig.call(LogindCall::ReadDelay);
        for _ in 0..5000 {
            if answer == Ok(Answer::Delay(wanted)) {
                break;
            }
            rig.quiet(Duration::from_millis(20));
            answer = rig.call(LogindCall::ReadDelay);
        }
        assert_eq!(answer, Ok(Answer::Delay(wanted)));
        assert_eq!(node.delay(), wanted);
    }
    assert_eq!(node.signals(1), 2);
}

#[test]
fn s4_a_shutdown_is_announced_and_waits_for_the_lock() {
    let node = Node::start("shutdown");
    node.jobs_last(Some(Duration::from_millis(100)));
    dropin::write(&node.conf_dir(), Duration::from_secs(300)).unwrap();
    let mut rig = Rig::up(&node);
    rig.call(LogindCall::Reload).unwrap();
    rig.call(LogindCall::Inhibit).unwrap();
    assert_eq!(rig.call(LogindCall::Subscribe), Ok(Answer::Ok));
    // A second subscription changes nothing.
    assert_eq!(rig.call(LogindCall::Subscribe), Ok(Answer::Ok));
    assert_eq!(rig.call(LogindCall::ReadPreparing), Ok(Answer::Preparing(false)));
    node.power_off();
    rig.expect_event(LogindEvent::Preparing(true));
    assert_eq!(rig.call(LogindCall::ReadPreparing), Ok(Answer::Preparing(true)));
    // logind grants no lock during a shutdown.
    match rig.call(LogindCall::Inhibit) {
        Err(OpError::Answered { code: Code::FailedPrecondition, message }) => {
            assert!(message.contains("org.freedesktop.login1.OperationInProgress"), "{message}");
        }
        other => panic!("{other:?}"),
    }
    rig.quiet(Duration::from_millis(300));
    assert!(node.started().is_empty(), "logind did not wait for the lock");
    rig.lock = None;
    let started = node.wait_started("poweroff.target");
    assert_eq!(node.started().len(), 1, "{started:?}");
    // The machine still runs when the job ends, and logind reports the end of the shutdown.
    rig.expect_event(LogindEvent::Preparing(false));
    assert_eq!(rig.call(LogindCall::ReadPreparing), Ok(Answer::Preparing(false)));
}

#[test]
fn s6_the_cancellation_of_a_shutdown_is_announced_except_for_a_scheduled_one() {
    let node = Node::start("cancelled");
    let mut rig = Rig::up(&node);
    rig.call(LogindCall::Inhibit).unwrap();
    rig.call(LogindCall::Subscribe).unwrap();
    node.schedule_shutdown("reboot", Duration::from_secs(3600));
    assert!(node.cancel_scheduled_shutdown());
    rig.quiet(Duration::from_millis(200));
    node.refuse_jobs();
    node.reboot();
    rig.expect_event(LogindEvent::Preparing(true));
    rig.lock = None;
    rig.expect_event(LogindEvent::Preparing(false));
    assert_eq!(node.started().iter().map(|s| s.unit.as_str()).collect::<Vec<_>>(), ["reboot.target"]);
    assert_eq!(rig.call(LogindCall::Inhibit), Ok(Answer::Ok));
}

#[test]
fn s7_a_restart_of_logind_is_reported_as_down_and_up_on_the_same_connection() {
    let mut node = Node::start("restart");
    node.jobs_last(Some(Duration::ZERO));
    let mut rig = Rig::up(&node);
    rig.call(LogindCall::Subscribe).unwrap();
    let me = own_name(&node);
    for _ in 0..3 {
        assert_eq!(rig.call(LogindCall::Inhibit), Ok(Answer::Ok));
        node.kill_logind();
        assert_eq!(rig.next_down(), "logind has left the system bus");
        match rig.call(LogindCall::ReadDelay) {
            Err(OpError::NotSent(why)) => assert!(why.contains("logind is not on the system bus"), "{why}"),
            other => panic!("{other:?}"),
        }
        rig.quiet(Duration::from_millis(100));
        node.start_logind();
        rig.expect_event(LogindEvent::Up);
        // The lock survived the restart of logind.
        assert_eq!(rig.call(LogindCall::ListInhibitors), Ok(Answer::Inhibited(true)));
        assert_eq!(node.locks(), 1);
    }
    // The lock can still be released.
    rig.lock = None;
    wait("no lock", || (node.locks() == 0).then_some(()));
    rig.call(LogindCall::Inhibit).unwrap();
    node.kill_logind();
    node.forget_locks();
    rig.next_down();
    node.start_logind();
    rig.expect_event(LogindEvent::Up);
    assert_eq!(rig.call(LogindCall::ListInhibitors), Ok(Answer::Inhibited(false)));
    assert_eq!(own_name(&node), me);
    // The adapter is still subscribed exactly once.
    assert_eq!(rig.call(LogindCall::Subscribe), Ok(Answer::Ok));
    node.power_off();
    rig.expect_event(LogindEvent::Preparing(true));
    rig.expect_event(LogindEvent::Preparing(false));
    rig.quiet(Duration::from_millis(100));
}

/// The unique names on the bus except those of logind and systemd: normally only the adapter's.
fn own_name(node: &Node) -> Vec<String> {
    let known = ["org.freedesktop.login1", "org.freedesktop.systemd1"].map(|n| node.owner(n).unwrap());
    // Each query of the test uses a short-lived connection. Only lasting names are in both lists.
    let first = node.connections();
    let second = node.connections();
    first.into_iter().filter(|n| second.contains(n) && !known.contains(n)).collect()
}

#[test]
fn s7_wherry_reconnects_to_a_restarted_bus() {
    let mut node = Node::start("bus");
    let mut rig = Rig::up(&node);
    rig.call(LogindCall::Inhibit).unwrap();
    let op = rig.begin(LogindCall::ListInhibitors, Duration::from_secs(30));
    rig.until("an answer", |rig| !rig.done.is_empty());
    rig.done.clear();
    node.pause_bus();
    let lost = rig.begin(LogindCall::ReadDelay, Duration::from_secs(30));
    assert_ne!(op, lost);
    node.kill_bus();
    node.kill_logind();
    rig.until("the end of the call", |rig| !rig.done.is_empty());
    let (done, result) = rig.done.remove(0);
    assert!(done == lost && matches!(result, Err(OpError::Unknown(_))), "{result:?}");
    assert!(rig.next_down().contains("lost"));
    // A refused connection is reported once, until the reason changes.
    assert!(rig.next_down().contains("refused"));
    rig.quiet(Duration::from_millis(1500));
    match rig.call(LogindCall::ReadDelay) {
        Err(OpError::NotSent(why)) => assert!(why.contains("refused"), "{why}"),
        other => panic!("{other:?}"),
    }
    node.start_bus();
    node.start_logind();
    rig.until("up", |rig| rig.received.last() == Some(&LogindEvent::Up));
    rig.received.clear();
    // The lock is a FIFO and does not depend on the bus.
    assert_eq!(rig.call(LogindCall::ListInhibitors), Ok(Answer::Inhibited(true)));
    assert!(rig.slowest < BLOCKED, "{:?}", rig.slowest);
}

#[test]
fn s7_a_stopped_bus_uses_no_cpu_and_continues_afterwards() {
    let node = Node::start("stopped");
    let mut rig = Rig::up(&node);
    node.pause_bus();
    // More calls than fit into the socket buffer.
    for _ in 0..3000 {
        rig.begin(LogindCall::ReadPreparing, Duration::from_millis(500));
    }
    rig.until("all have ended", |rig| rig.done.len() == 3000);
    let unknown = |(_, r): &(OpId, Result<Answer, OpError>)| matches!(r, Err(OpError::Unknown(_)));
    assert!(rig.done.iter().all(unknown), "{:?}", rig.done.first());
    rig.done.clear();
    let drives = rig.drives;
    rig.quiet(Duration::from_secs(1));
    assert!(rig.drives <= drives + 1, "{} unexpected drives", rig.drives - drives);

    // The connection of a new client waits in the listen queue and gets no answer.
    let mut other = Rig::new(&node.address());
    assert!(other.next_down().contains("does not respond"));
    let drives = other.drives;
    other.quiet(Duration::from_secs(2));
    assert!(other.drives <= drives + 1, "{} unexpected drives", other.drives - drives);
    node.resume_bus();
    other.expect_event(LogindEvent::Up);
    // The bus may refuse calls because of its limits until it has processed the backlog.
    wait("the bus answers", || (rig.call(LogindCall::ReadPreparing) == Ok(Answer::Preparing(false))).then_some(()));
    assert!(rig.slowest < BLOCKED && other.slowest < BLOCKED, "{:?} {:?}", rig.slowest, other.slowest);
}

#[test]
fn s9_a_missing_bus_is_reported_once_and_used_once_it_exists() {
    let mut node = Node::without_bus("none");
    let mut rig = Rig::new(&node.address());
    assert!(rig.next_down().contains("No such file"));
    match rig.call(LogindCall::ReadDelay) {
        Err(OpError::NotSent(why)) => assert!(why.contains("No such file"), "{why}"),
        other => panic!("{other:?}"),
    }
    let drives = rig.drives;
    rig.quiet(Duration::from_secs(3));
    assert!((1..=4).contains(&(rig.drives - drives)), "{} drives in 3 s", rig.drives - drives);

    // A listening socket that accepts no connection and has a full queue.
    let path = node.dir.join("bus");
    let listener = UnixListener::bind(&path).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let _first = std::os::unix::net::UnixStream::connect(&path).unwrap();
    let why = rig.next_down();
    assert!(why.contains("accepts no connections"), "{why}");
    rig.quiet(Duration::from_secs(2));
    drop(listener);
    std::fs::remove_file(&path).unwrap();
    rig.until("the missing socket is reported", |rig| !rig.received.is_empty());
    rig.received.clear();

    node.start_bus();
    rig.until("the bus is found", |rig| {
        rig.received
            .iter()
            .any(|e| matches!(e, LogindEvent::Down { why } if why.contains("no logind on the system bus")))
    });
    rig.received.clear();
    node.start_logind();
    rig.expect_event(LogindEvent::Up);
    assert!(rig.slowest < BLOCKED, "{:?}", rig.slowest);
}

#[test]
fn s4_signals_of_others_and_of_another_form_are_ignored() {
    let node = Node::start("forged");
    let mut rig = Rig::up(&node);
    rig.call(LogindCall::Subscribe).unwrap();
    let me = own_name(&node);
    assert_eq!(me.len(), 1, "{me:?}");
    let forger = node.connect().unwrap();
    for interface in [MANAGER, "org.freedesktop.login1.Other"] {
        let signal = || Message::new_signal(LOGIND_PATH, interface, "PrepareForShutdown").unwrap();
        for mut message in [signal().append1(true), signal().append1("true"), signal(), signal().append2(true, 1u8)] {
            message.set_destination(Some(me[0].clone().into()));
            forger.send(message).unwrap();
        }
    }
    let mut owner = Message::new_signal("/org/freedesktop/DBus", "org.freedesktop.DBus", "NameOwnerChanged")
        .unwrap()
        .append3("org.freedesktop.login1", "", forger.unique_name().unwrap().to_owned());
    owner.set_destination(Some(me[0].clone().into()));
    forger.send(owner).unwrap();
    forger.flush();
    rig.quiet(Duration::from_millis(300));
    // A ping from another peer is not an event for the adapter.
    let ping = Message::new_method_call(me[0].clone(), "/", "org.freedesktop.DBus.Peer", "Ping").unwrap();
    forger.send(ping).unwrap();
    forger.flush();
    let begin = rig.drives;
    rig.until("the ping is read", |rig| rig.drives > begin);
    assert_eq!(rig.call(LogindCall::ReadPreparing), Ok(Answer::Preparing(false)));
    assert!(rig.received.is_empty(), "{:?}", rig.received);
}

#[test]
fn an_idle_bus_connection_causes_no_wakeups() {
    let node = Node::start("idle");
    let mut rig = Rig::up(&node);
    rig.call(LogindCall::Inhibit).unwrap();
    rig.call(LogindCall::Subscribe).unwrap();
    rig.quiet(Duration::from_millis(200));
    assert_eq!(rig.logind.next_deadline(), None);
    let drives = rig.drives;
    rig.quiet(Duration::from_secs(3));
    assert_eq!(rig.drives, drives);
}

#[test]
fn a_disabled_client_has_no_connection_and_reconnects_when_enabled() {
    let node = Node::start("off");
    let mut rig = Rig::up(&node);
    rig.call(LogindCall::Inhibit).unwrap();
    node.pause_bus();
    let op = rig.begin(LogindCall::ReadDelay, Duration::from_secs(30));
    rig.logind.set_enabled(false);
    assert!(rig.next_down().contains("turned off"));
    rig.until("the end of the call", |rig| !rig.done.is_empty());
    let (done, result) = rig.done.remove(0);
    assert!(done == op && matches!(&result, Err(OpError::Unknown(why)) if why.contains("turned off")), "{result:?}");
    node.resume_bus();
    wait("the adapter has left the bus", || own_name(&node).is_empty().then_some(()));
    assert_eq!((rig.logind.next_deadline(), rig.logind.is_enabled()), (None, false));
    // The adapter keeps the lock: the engine decides when to release it.
    assert_eq!(node.locks(), 1);
    rig.logind.set_enabled(true);
    rig.expect_event(LogindEvent::Up);
    assert_eq!(rig.call(LogindCall::ListInhibitors), Ok(Answer::Inhibited(true)));
}
