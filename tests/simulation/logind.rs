//! A model of logind and of systemd's descriptor store, as far as graceful shutdown uses them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use wherry::engine::effect::LogindCall;
use wherry::engine::event::Answer;
use wherry::engine::op::{Code, OpError};

/// A problem with logind, until it is fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It does not answer how long it waits.
    NoDelay,
    /// It grants no lock.
    NoLock,
    /// The signal cannot be subscribed to.
    NoSignal,
    /// A drop-in with a later name sets a shorter delay.
    Overruled,
    /// systemd ignores requests to store or remove a descriptor.
    DeafStore,
    /// It restarts and has lost our lock.
    Lost,
    /// It has lost our lock during a shutdown and grants no other.
    LostInShutdown,
}

pub const TROUBLES: [Trouble; 7] = [
    Trouble::NoDelay,
    Trouble::NoLock,
    Trouble::NoSignal,
    Trouble::Overruled,
    Trouble::DeafStore,
    Trouble::Lost,
    Trouble::LostInShutdown,
];

#[derive(Debug)]
pub struct Logind {
    /// The bus and logind are up.
    pub up: bool,
    /// Wherry wants a connection.
    pub wanted: bool,
    /// The delay in logind's files, and the delay that logind has read.
    pub configured: Duration,
    pub delay: Duration,
    /// The delay in another drop-in with a later name.
    pub other: Option<Duration>,
    /// Our drop-in exists.
    pub drop_in: bool,
    /// Failures: the drop-in cannot be written, logind cannot be reloaded, it grants no lock, the signal is not available.
    pub read_only: bool,
    pub no_reload: bool,
    pub no_lock: bool,
    pub no_signal: bool,
    /// Failures: it does not answer how long it waits, or whether the node is shutting down.
    pub no_delay: bool,
    pub no_state: bool,
    /// Failures: it answers nothing, or only after this delay (ns).
    pub silent: bool,
    pub slow: Option<u64>,
    /// systemd keeps the lock's descriptor after the process has ended.
    pub store: bool,
    /// systemd ignores the descriptor store messages.
    pub deaf_store: bool,
    /// The locks that logind knows, the one that the process has open, and those that systemd has open.
    known: BTreeSet<u64>,
    mine: Option<u64>,
    kept: BTreeSet<u64>,
    last: u64,
    /// The run of the engine that has subscribed.
    pub subscribed: Option<u32>,
    /// The shutdown in progress: its start in ns, and whether there was a lock to wait for.
    pub preparing: Option<(u64, bool)>,
    /// The calls in order.
    pub calls: Vec<LogindCall>,
    pub releases: Vec<u64>,
    /// The number of requests to change the descriptor store.
    pub stores: usize,
    /// When the first pod of each group was killed in this shutdown.
    pub groups: BTreeMap<usize, u64>,
}

impl Default for Logind {
    fn default() -> Logind {
        let delay = Duration::from_secs(5);
        Logind {
            up: true,
            wanted: false,
            configured: delay,
            delay,
            other: None,
            drop_in: false,
            read_only: false,
            no_reload: false,
            no_lock: false,
            no_signal: false,
            no_delay: false,
            no_state: false,
            silent: false,
            slow: None,
            store: true,
            deaf_store: false,
            known: BTreeSet::new(),
            mine: None,
            kept: BTreeSet::new(),
            last: 0,
            subscribed: None,
            preparing: None,
            calls: Vec::new(),
            releases: Vec::new(),
            stores: 0,
            groups: BTreeMap::new(),
        }
    }
}

fn no(message: &str) -> Result<Answer, OpError> {
    Err(OpError::Answered { code: Code::Other(2), message: message.into() })
}

impl Logind {
    pub fn call(&mut self, life: u32, call: &LogindCall) -> Result<Answer, OpError> {
        self.calls.push(call.clone());
        match call {
            LogindCall::WriteDropIn { .. } if self.read_only => no("/etc: read-only file system"),
            LogindCall::LowerDropIn { .. } if !self.drop_in => Ok(Answer::Written(false)),
            LogindCall::LowerDropIn { .. } if self.read_only => no("/etc: read-only file system"),
            LogindCall::WriteDropIn { delay } | LogindCall::LowerDropIn { delay } => {
                let written = !self.drop_in || self.configured != *delay;
                self.drop_in = true;
                self.configured = *delay;
                Ok(Answer::Written(written))
            }
            _ if !self.up => Err(OpError::NotSent("no bus".into())),
            _ if self.silent => Err(OpError::Unknown("no response in time".into())),
            LogindCall::ReadDelay if self.no_delay => Err(OpError::Unknown("no response in time".into())),
            LogindCall::ReadDelay => Ok(Answer::Delay(self.delay)),
            LogindCall::Reload if self.no_reload => no("access denied"),
            LogindCall::Reload => {
                self.reload();
                Ok(Answer::Ok)
            }
            LogindCall::Inhibit if self.no_lock || self.preparing.is_some() => {
                no("The operation inhibition has been requested for is already running")
            }
            LogindCall::Inhibit => {
                self.last += 1;
                self.known.insert(self.last);
                self.mine = Some(self.last);
                Ok(Answer::Locked)
            }
            LogindCall::Subscribe if self.no_signal => no("too many matches"),
            LogindCall::Subscribe => {
                self.subscribed = Some(life);
                Ok(Answer::Ok)
            }
            LogindCall::ReadPreparing if self.no_state => Err(OpError::Unknown("no response in time".into())),
            LogindCall::ReadPreparing => Ok(Answer::Preparing(self.preparing.is_some())),
            LogindCall::ListInhibitors => Ok(Answer::Inhibited(self.mine.is_some_and(|m| self.known.contains(&m)))),
        }
    }

    /// logind reads its files again.
    pub fn reload(&mut self) {
        self.delay = self.other.unwrap_or(self.configured);
    }

    /// Wherry closes its lock.
    pub fn release(&mut self, now: u64) {
        self.releases.push(now);
        self.mine = None;
    }

    /// Requests systemd to keep the lock of the process and no other.
    pub fn store(&mut self) -> Result<Answer, OpError> {
        self.stores += 1;
        if self.deaf_store {
            return no("systemd is not reading its messages");
        }
        self.kept = self.mine.filter(|_| self.store).into_iter().collect();
        Ok(Answer::Ok)
    }

    /// The process has ended, and its descriptors are closed.
    pub fn process_dies(&mut self) {
        self.mine = None;
        self.subscribed = None;
        if !self.store {
            self.kept.clear();
        }
    }

    /// Gives a stored lock to the new process, preferably one that logind knows. Returns true if there is one.
    pub fn inherit(&mut self) -> bool {
        let kept = || self.kept.iter().rev();
        self.mine = kept().find(|id| self.known.contains(id)).or_else(|| kept().next()).copied();
        self.mine.is_some()
    }

    pub fn boots(&mut self) {
        self.preparing = None;
        self.mine = None;
        self.known.clear();
        self.kept.clear();
    }

    pub fn loses_locks(&mut self) {
        self.known.clear();
    }

    /// logind waits for a lock.
    pub fn locked(&self) -> bool {
        self.locks() > 0
    }

    /// The number of our locks that logind knows and that are still open.
    pub fn locks(&self) -> usize {
        self.known.iter().filter(|id| self.mine == Some(**id) || self.kept.contains(id)).count()
    }

    pub fn trouble(&mut self, trouble: Trouble) {
        match trouble {
            Trouble::NoDelay => self.no_delay = true,
            Trouble::NoLock => self.no_lock = true,
            Trouble::NoSignal => self.no_signal = true,
            Trouble::DeafStore => self.deaf_store = true,
            Trouble::Overruled => {
                self.other = Some(Duration::from_secs(4));
                self.reload();
            }
            // A restarted logind knows of no shutdown.
            Trouble::Lost => {
                self.preparing = None;
                self.loses_locks();
            }
            Trouble::LostInShutdown => self.loses_locks(),
        }
    }

    /// Fixes all problems.
    pub fn well(&mut self) {
        self.no_delay = false;
        self.no_lock = false;
        self.no_signal = false;
        self.deaf_store = false;
        if self.other.take().is_some() {
            self.reload();
        }
    }
}
