//! The agent's part of graceful shutdown: calls to logind, the drop-in, and the inhibitor lock. systemd's file
//! descriptor store holds a copy of the lock (S7).

use super::event_recorder::EventRecorder;
use super::jobs::{JobSpec, Jobs};
use super::tokens::LOGIND;
use crate::adapters::bus;
use crate::adapters::bus::logind::{BusEvent, Lock, Logind, dropin};
use crate::adapters::systemd;
use crate::api::reason::Reason;
use crate::api::time::{Boot, Now};
use crate::config::Config;
use crate::engine::effect::{LogindCall, Severity};
use crate::engine::event::{Answer, Event, LogindEvent};
use crate::engine::op::{Code, OpError, OpId};
use crate::event_loop::Class;
use mio::Registry;
use std::collections::BTreeSet;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// Prefix of a lock's name in systemd's store. The pid of the process that took the lock, `-` and a number follow.
/// systemd can remove descriptors only by name, so each lock has a unique name: a late removal cannot remove another
/// lock.
const NAME: &str = "wherry-lock-";

/// gRPC's code INTERNAL, for Wherry's own errors.
const INTERNAL: u32 = 13;

/// The connection to logind, and the lock that delays a shutdown.
pub(super) struct Connection {
    pub(super) bus: Logind,
    pub(super) lock: HeldLock,
}

/// The lock, if one is held, and the outdated locks in systemd's file descriptor store.
#[derive(Default)]
pub(super) struct HeldLock {
    held: Option<Held>,
    /// The names that must be removed from systemd's store.
    stale: BTreeSet<String>,
}

struct Held {
    name: String,
    lock: Lock,
    /// Whether the lock's descriptor is in systemd's file descriptor store.
    stored: bool,
}

impl HeldLock {
    /// Takes over the descriptors that systemd kept from a previous run. Must be called once, before any descriptor
    /// is opened.
    pub(super) fn inherited() -> HeldLock {
        HeldLock::one_of(systemd::inherited())
    }

    fn one_of(given: Vec<(String, OwnedFd)>) -> HeldLock {
        let mut this = HeldLock::default();
        for (name, fd) in given {
            let Some(taker) = taker(&name) else {
                log::warn!("closing an unknown descriptor from systemd's store name={name:?}");
                continue;
            };
            let lock = Lock::new(fd, taker);
            match &this.held {
                None => this.held = Some(Held { name, lock, stored: true }),
                Some(first) if first.name == name => {
                    log::info!("closing a second lock from systemd's store name={name}")
                }
                // The previous run ended between taking a new lock and closing the old one.
                Some(first) if systemd::is_broken(first.lock.as_fd()) => {
                    this.stale.insert(first.name.clone());
                    this.held = Some(Held { name, lock, stored: true });
                }
                Some(_) => {
                    log::info!("closing a second lock from systemd's store name={name}");
                    this.stale.insert(name);
                }
            }
        }
        this
    }

    pub(super) fn descriptor(&self) -> Option<i32> {
        self.held.as_ref().map(|held| held.lock.as_fd().as_raw_fd())
    }

    pub(super) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Reports whether logind still has the lock. `takers` are the processes in logind's list of locks. If logind has
    /// lost a lock, the lock's FIFO has no reader.
    fn is_in_force(&self, takers: &[u32]) -> bool {
        let known = |held: &Held| !systemd::is_broken(held.lock.as_fd()) && held.lock.is_among(takers);
        self.held.as_ref().is_some_and(known)
    }

    /// Replaces the lock. The old lock is closed only after the new one was taken.
    fn take(&mut self, lock: Lock) {
        self.release();
        let name = |n: u32| format!("{NAME}{}-{n}", std::process::id());
        // An earlier process may have had the same pid, so try numbers until the name is free.
        let free = (0..).map(name).find(|name| !self.stale.contains(name)).unwrap_or_default();
        self.held = Some(Held { name: free, lock, stored: false });
    }

    /// S4: closes the lock. The next `store` removes systemd's copy.
    fn release(&mut self) {
        self.stale.extend(self.held.take().map(|held| held.name));
    }

    /// Makes systemd's store contain this lock and no other. `keep` and `remove` send the messages to systemd.
    fn store(
        &mut self,
        keep: impl Fn(&str, BorrowedFd<'_>) -> Result<(), String>,
        remove: impl Fn(&str) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut result = Ok(());
        if let Some(held) = self.held.as_mut().filter(|held| !held.stored) {
            result = keep(&held.name, held.lock.as_fd());
            held.stored = result.is_ok();
        }
        self.stale.retain(|name| {
            let removed = remove(name);
            let left = removed.is_err();
            if result.is_ok() {
                result = removed;
            }
            left
        });
        result
    }
}

/// Returns the pid of the process that took the lock of this name, or None if the name is not one of Wherry's.
fn taker(name: &str) -> Option<u32> {
    let (pid, number) = name.strip_prefix(NAME)?.split_once('-')?;
    number.parse::<u32>().ok()?;
    pid.parse().ok()
}

pub(super) fn bus(config: &Config) -> Logind {
    let mut logind = Logind::new(&bus::system_address(), LOGIND);
    logind.set_enabled(!config.shutdown.is_off());
    logind
}

impl Connection {
    pub(super) fn drive(&mut self, registry: &Registry, recorder: &mut EventRecorder, now: Now) -> Vec<Event> {
        let mut out = Vec::new();
        self.bus.drive(registry, now.boot, &mut out);
        let mut events = Vec::with_capacity(out.len());
        for event in out {
            events.push(match event {
                BusEvent::Logind(event) => {
                    self.report(&event, recorder, now);
                    Event::Logind(event)
                }
                BusEvent::Done { op, result } => {
                    log::debug!("logind={result:?}");
                    Event::Done { op, result }
                }
                BusEvent::Locked { op, lock } => {
                    log::debug!("logind=locked");
                    self.lock.take(lock);
                    Event::Done { op, result: Ok(Answer::Locked) }
                }
                BusEvent::Listed { op, takers } => {
                    let ours = self.lock.is_in_force(&takers);
                    log::debug!("logind=locks takers={takers:?} ours={ours}");
                    Event::Done { op, result: Ok(Answer::Inhibited(ours)) }
                }
            });
        }
        events
    }

    /// Starts a call on the bus, or starts changing the drop-in in `directory`. Returns true if `drive` must be called
    /// to send the call.
    pub(super) fn call(
        &mut self,
        op: OpId,
        call: LogindCall,
        timeout: Duration,
        directory: &Path,
        jobs: &mut Jobs,
        now: Now,
    ) -> bool {
        log::debug!("logind call={call:?}");
        let deadline = now.boot + timeout;
        match call {
            LogindCall::WriteDropIn { delay } => change_drop_in(op, dropin::write, delay, directory, jobs, deadline),
            LogindCall::LowerDropIn { delay } => change_drop_in(op, dropin::lower, delay, directory, jobs, deadline),
            call => {
                self.bus.start(op, call, timeout, now.boot);
                return true;
            }
        }
        false
    }

    pub(super) fn release_lock(&mut self) {
        if self.lock.is_held() {
            log::debug!("logind=released");
        }
        self.lock.release();
    }

    pub(super) fn store_lock(&mut self, op: OpId) -> Event {
        let stored = self.lock.store(systemd::store, systemd::remove);
        Event::Done { op, result: stored.map(|()| Answer::Ok).map_err(internal) }
    }

    /// Logs events of the connection. The engine logs the other events.
    fn report(&self, event: &LogindEvent, recorder: &mut EventRecorder, now: Now) {
        match event {
            LogindEvent::Up => {
                log::info!("logind=connected");
                recorder.node_event(Severity::Normal, Reason::LogindConnected, "connected to logind", now);
            }
            LogindEvent::Down { why } if !self.bus.is_enabled() => log::info!("logind=disconnected why={why:?}"),
            LogindEvent::Down { why } => {
                log::warn!("logind=disconnected error={why:?}");
                recorder.node_event(Severity::Warning, Reason::LogindDisconnected, why, now);
            }
            LogindEvent::Preparing(begins) => log::info!("logind=PrepareForShutdown begins={begins}"),
            LogindEvent::Inherited => {}
        }
    }
}

/// Writes logind's drop-in on a helper thread. The class is `Paths` and not `Records`, because a hung directory must
/// not block records.
fn change_drop_in(
    op: OpId,
    write: fn(&Path, Duration) -> Result<bool, String>,
    delay: Duration,
    directory: &Path,
    jobs: &mut Jobs,
    deadline: Boot,
) {
    let of_thread = directory.to_owned();
    let spec = JobSpec::new(Class::Paths, "write logind's drop-in", deadline).on(directory);
    let work = move || {
        let written = write(&of_thread, delay);
        if let Ok(true) = written {
            let path = of_thread.join(dropin::NAME);
            log::info!("wrote file={} delay={}s", path.display(), delay.as_secs());
        }
        written.map_err(internal)
    };
    jobs.run_op(op, spec, work, Answer::Written);
}

fn internal(message: String) -> OpError {
    OpError::Answered { code: Code::Other(INTERNAL), message }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::pipe;

    /// Returns the reader and the writer of a pipe that stands for a lock. logind has the reader.
    fn lock() -> (OwnedFd, OwnedFd) {
        pipe().unwrap()
    }

    fn broken() -> OwnedFd {
        lock().1
    }

    fn one_of(locks: Vec<(&str, OwnedFd)>) -> HeldLock {
        HeldLock::one_of(locks.into_iter().map(|(name, fd)| (name.to_owned(), fd)).collect())
    }

    fn name(held: &HeldLock) -> Option<&str> {
        held.held.as_ref().map(|h| h.name.as_str())
    }

    fn stale(held: &HeldLock) -> Vec<&str> {
        held.stale.iter().map(String::as_str).collect()
    }

    #[test]
    fn s7_wherry_takes_over_the_stored_lock_that_logind_lists() {
        let (a, b) = (lock(), lock());
        let again = |fd: &OwnedFd| fd.try_clone().unwrap();
        let (first, second) = ("wherry-lock-7-0", "wherry-lock-7-1");
        assert_eq!(name(&one_of(vec![])), None);
        for other in ["stored", "wherry-lock-", "wherry-lock-7", "wherry-lock-x-1", "wherry-lock-7-x"] {
            assert_eq!(name(&one_of(vec![(other, again(&a.1))])), None, "{other}");
        }
        let of = |locks: Vec<(&str, OwnedFd)>, is: &str, rest: &[&str]| {
            let held = one_of(locks);
            assert_eq!((name(&held), stale(&held).as_slice()), (Some(is), rest));
        };
        of(vec![("x", again(&b.1)), (second, again(&a.1))], second, &[]);
        of(vec![(first, again(&a.1)), (second, again(&b.1))], first, &[second]);
        of(vec![(first, again(&a.1)), (first, again(&b.1))], first, &[]);
        of(vec![(first, broken()), (second, again(&b.1))], second, &[first]);
        of(vec![(second, again(&b.1)), (first, broken())], second, &[first]);
        // The engine later checks with logind whether this lock is in force.
        of(vec![(first, broken())], first, &[]);
    }

    #[test]
    fn s7_a_lock_is_in_force_if_logind_lists_the_process_that_took_it_and_reads_its_fifo() {
        let a = lock();
        let held = one_of(vec![("wherry-lock-7-0", a.1)]);
        assert!(held.is_in_force(&[8, 7]));
        assert!(!held.is_in_force(&[8]) && !held.is_in_force(&[]), "another Wherry's");
        assert!(held.is_in_force(&[0]), "logind does not know any more who took it");
        assert!(!one_of(vec![("wherry-lock-7-0", broken())]).is_in_force(&[7]));
        assert!(!HeldLock::default().is_in_force(&[7]));
    }

    #[test]
    fn a_new_lock_has_a_name_of_its_own_and_closes_the_old_one() {
        let mut held = HeldLock::default();
        let mut readers = Vec::new();
        let mut names = BTreeSet::new();
        for _ in 0..3 {
            let (read, write) = lock();
            held.take(Lock::new(write, 7));
            readers.push(read);
            names.insert(name(&held).unwrap().to_owned());
            let closed = readers.iter().filter(|r| systemd::is_broken(r.as_fd())).count();
            assert_eq!(closed, readers.len() - 1);
        }
        assert_eq!((names.len(), stale(&held).len()), (3, 2));
        held.release();
        held.release();
        assert!(!held.is_held() && readers.iter().all(|r| systemd::is_broken(r.as_fd())));
        assert_eq!(stale(&held), names.iter().collect::<Vec<_>>());
    }

    #[test]
    fn s7_only_failed_notifications_to_the_descriptor_store_are_repeated() {
        let mut held = HeldLock::default();
        let (_read, write) = lock();
        held.take(Lock::new(write, 7));
        let messages = std::cell::RefCell::new(Vec::new());
        let store = |held: &mut HeldLock, fails: bool| {
            let record = |what: &str, name: &str| {
                messages.borrow_mut().push(format!("{what} {name}"));
                if fails { Err("systemd does not read".to_owned()) } else { Ok(()) }
            };
            let result = held.store(|name, _| record("keep", name), |name| record("remove", name));
            assert_eq!(result.is_err(), fails && !messages.borrow().is_empty());
            std::mem::take(&mut *messages.borrow_mut())
        };
        let first = name(&held).unwrap().to_owned();
        for fails in [true, true, false] {
            assert_eq!(store(&mut held, fails), [format!("keep {first}")]);
        }
        assert_eq!(store(&mut held, false), [""; 0]);
        let (_read, write) = lock();
        held.take(Lock::new(write, 7));
        let second = name(&held).unwrap().to_owned();
        for fails in [true, false] {
            assert_eq!(store(&mut held, fails), [format!("keep {second}"), format!("remove {first}")]);
        }
        held.release();
        for fails in [true, false] {
            assert_eq!(store(&mut held, fails), [format!("remove {second}")]);
        }
        assert_eq!(store(&mut held, false), [""; 0]);
    }
}
