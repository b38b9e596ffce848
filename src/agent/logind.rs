//! Graceful shutdown's ways out and in: logind's bus, its drop-in, and the lock, which is held here and kept by systemd, too (S7).

use super::effects::{Job, Work};
use super::{Agent, LOGIND};
use crate::adapters::bus::DEFAULT_ADDRESS;
use crate::adapters::bus::logind::{BusEvent, Lock, Logind, dropin};
use crate::adapters::systemd;
use crate::api::time::Now;
use crate::config::Config;
use crate::engine::effect::{LogindCall, Severity};
use crate::engine::event::{Answer, Event, LogindEvent};
use crate::engine::op::{Code, OpError, OpId};
use crate::event_loop::Class;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

/// What systemd keeps is removed by its name only: the new lock and the old one, for a moment both there, have different ones.
const NAMES: [&str; 2] = ["wherry-lock-a", "wherry-lock-b"];

/// gRPC's number for an error of our own.
const INTERNAL: u32 = 13;

/// The lock, if there is one.
#[derive(Default)]
pub(super) struct HeldLock(Option<(&'static str, Lock)>);

impl HeldLock {
    /// From what systemd kept for an earlier wherry. To be called once, before anything is opened.
    pub(super) fn inherited() -> HeldLock {
        HeldLock::one_of(systemd::inherited())
    }

    fn one_of(given: Vec<(String, OwnedFd)>) -> HeldLock {
        let mut held: Option<(&'static str, Lock)> = None;
        for (name, fd) in given {
            let Some(known) = NAMES.into_iter().find(|n| *n == name) else {
                log::warn!("a descriptor given by systemd is of no use and closed name={name:?}");
                continue;
            };
            let lock = Lock::new(fd);
            match &held {
                None => held = Some((known, lock)),
                // A wherry that ended between taking a new one and letting go of the old.
                Some((other, first)) if *other != known && systemd::is_broken(first.as_fd()) => {
                    told(systemd::remove(other));
                    held = Some((known, lock));
                }
                Some((other, _)) => {
                    if *other != known {
                        told(systemd::remove(known));
                    }
                    log::info!("a second lock given by systemd is closed name={name}");
                }
            }
        }
        HeldLock(held)
    }

    pub(super) fn descriptor(&self) -> Option<i32> {
        self.0.as_ref().map(|(_, lock)| lock.as_fd().as_raw_fd())
    }

    pub(super) fn is_held(&self) -> bool {
        self.0.is_some()
    }

    /// A new one; the old one is let go after it.
    fn take(&mut self, lock: Lock) {
        let old = self.0.take();
        let name = NAMES.into_iter().find(|n| old.as_ref().is_none_or(|(old, _)| old != n)).unwrap_or(NAMES[0]);
        told(systemd::store(name, lock.as_fd()));
        if let Some((old, _)) = &old {
            told(systemd::remove(old));
        }
        self.0 = Some((name, lock));
    }

    /// S4: out of systemd's store, and closed.
    fn release(&mut self) {
        if self.0.is_some() {
            // Both: an earlier removal may have failed.
            for name in NAMES {
                told(systemd::remove(name));
            }
        }
        self.0 = None;
    }
}

/// wherry goes on: without systemd's copy a restart in the middle of a shutdown has less time, that is all.
fn told(result: Result<(), String>) {
    if let Err(e) = result {
        log::warn!("the lock and systemd's descriptor store error={e:?}");
    }
}

pub(super) fn bus(config: &Config) -> Logind {
    // As libdbus takes it: also an empty one counts as none.
    let address = std::env::var("DBUS_SYSTEM_BUS_ADDRESS").ok().filter(|a| !a.is_empty());
    let mut logind = Logind::new(address.as_deref().unwrap_or(DEFAULT_ADDRESS), LOGIND);
    logind.set_enabled(!config.shutdown.is_off());
    logind
}

impl Agent {
    pub(super) fn drive_logind(&mut self, now: Now) {
        let mut out = Vec::new();
        self.logind.drive(self.event_loop.registry(), now.boot, &mut out);
        for event in out {
            match event {
                BusEvent::Said(event) => {
                    self.tell_logind(&event, now);
                    self.events.push_back(Event::Logind(event));
                }
                BusEvent::Done { op, result } => {
                    log::debug!("logind={result:?}");
                    self.events.push_back(Event::Done { op, result });
                }
                BusEvent::Locked { op, lock } => {
                    log::debug!("logind=locked");
                    self.lock.take(lock);
                    self.events.push_back(Event::Done { op, result: Ok(Answer::Ok) });
                }
            }
        }
    }

    pub(super) fn ask_logind(&mut self, op: OpId, call: LogindCall, timeout: Duration, now: Now) {
        log::debug!("logind call={call:?}");
        match call {
            LogindCall::WriteDropIn { delay } => {
                let directory = self.config.logind_conf_dir.clone();
                let deadline = now.boot + timeout;
                // (Not a record: a hung directory must not keep records from being written.)
                let path = directory.clone();
                let id = self.helpers.submit_for(Class::Paths, "write logind's drop-in", &path, deadline, move || {
                    let written = dropin::write(&directory, delay);
                    if let Ok(true) = written {
                        let path = directory.join(dropin::NAME);
                        log::info!("wrote file={} delay={}s", path.display(), delay.as_secs());
                    }
                    let failed = |message| OpError::Answered { code: Code::Other(INTERNAL), message };
                    Work::Files(written.map(drop).map_err(failed))
                });
                self.jobs.insert(id, Job::Files(op));
            }
            call => {
                self.logind.start(op, call, timeout, now.boot);
                self.drive_logind(now);
            }
        }
    }

    pub(super) fn release_lock(&mut self) {
        if self.lock.is_held() {
            log::debug!("logind=released");
        }
        self.lock.release();
    }

    /// The rest is the engine's to tell.
    fn tell_logind(&mut self, event: &LogindEvent, now: Now) {
        match event {
            LogindEvent::Up => {
                log::info!("logind=connected");
                self.keep_node_event(Severity::Normal, "LogindConnected", "connected to logind", now);
            }
            LogindEvent::Down { why } if !self.logind.is_enabled() => log::info!("logind=disconnected why={why:?}"),
            LogindEvent::Down { why } => {
                log::warn!("logind=disconnected error={why:?}");
                self.keep_node_event(Severity::Warning, "LogindDisconnected", why, now);
            }
            LogindEvent::Preparing(begins) => log::info!("logind=PrepareForShutdown begins={begins}"),
            LogindEvent::Inherited => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::pipe;

    /// As a lock: the end to write to; logind has the other.
    fn lock() -> (OwnedFd, OwnedFd) {
        pipe().unwrap()
    }

    fn broken() -> OwnedFd {
        lock().1
    }

    fn given(locks: Vec<(&str, OwnedFd)>) -> Option<&'static str> {
        let locks = locks.into_iter().map(|(name, fd)| (name.to_owned(), fd)).collect();
        HeldLock::one_of(locks).0.map(|(name, _)| name)
    }

    #[test]
    fn s7_of_the_locks_that_systemd_kept_the_one_that_logind_has_is_taken_back() {
        let (a, b) = (lock(), lock());
        let again = |fd: &OwnedFd| fd.try_clone().unwrap();
        assert_eq!(given(vec![]), None);
        assert_eq!(given(vec![("stored", again(&a.1))]), None);
        assert_eq!(given(vec![("x", again(&b.1)), (NAMES[1], again(&a.1))]), Some(NAMES[1]));
        assert_eq!(given(vec![(NAMES[0], again(&a.1)), (NAMES[1], again(&b.1))]), Some(NAMES[0]));
        assert_eq!(given(vec![(NAMES[0], broken()), (NAMES[1], again(&b.1))]), Some(NAMES[1]));
        assert_eq!(given(vec![(NAMES[1], again(&b.1)), (NAMES[0], broken())]), Some(NAMES[1]));
        // The engine asks logind about it.
        assert_eq!(given(vec![(NAMES[0], broken())]), Some(NAMES[0]));
    }

    #[test]
    fn a_new_lock_takes_the_other_name_and_closes_the_old_one() {
        let mut held = HeldLock::default();
        let mut readers = Vec::new();
        for name in [NAMES[0], NAMES[1], NAMES[0]] {
            let (read, write) = lock();
            held.take(Lock::new(write));
            readers.push(read);
            assert_eq!(held.0.as_ref().map(|(n, _)| *n), Some(name));
            let closed = readers.iter().filter(|r| systemd::is_broken(r.as_fd())).count();
            assert_eq!(closed, readers.len() - 1);
        }
        held.release();
        held.release();
        assert!(!held.is_held() && readers.iter().all(|r| systemd::is_broken(r.as_fd())));
    }
}
