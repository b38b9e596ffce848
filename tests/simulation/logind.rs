//! A model of logind and of systemd's descriptor store, as far as graceful shutdown meets them.

use std::collections::BTreeMap;
use std::time::Duration;
use wherry::engine::effect::LogindCall;
use wherry::engine::event::Answer;
use wherry::engine::op::{Code, OpError};

#[derive(Debug)]
pub struct Logind {
    /// The bus, and logind on it.
    pub up: bool,
    /// What it was told to wait at most; what it read.
    pub configured: Duration,
    pub delay: Duration,
    /// Another drop-in, of a later name.
    pub other: Option<Duration>,
    /// The drop-in cannot be written; logind cannot be reloaded; it gives no lock; the signal cannot be had.
    pub read_only: bool,
    pub no_reload: bool,
    pub no_lock: bool,
    pub no_signal: bool,
    /// systemd keeps the lock's descriptor when the process is gone.
    pub store: bool,
    pub locked: bool,
    /// By that life of the engine.
    pub subscribed: Option<u32>,
    /// The shutdown in progress: since when, in ns, and whether there was a lock to wait for.
    pub preparing: Option<(u64, bool)>,
    /// Calls as they came.
    pub calls: Vec<LogindCall>,
    pub releases: Vec<u64>,
    /// When the first pod of a group was killed, in this shutdown.
    pub groups: BTreeMap<usize, u64>,
}

impl Default for Logind {
    fn default() -> Logind {
        let delay = Duration::from_secs(5);
        Logind {
            up: true,
            configured: delay,
            delay,
            other: None,
            read_only: false,
            no_reload: false,
            no_lock: false,
            no_signal: false,
            store: true,
            locked: false,
            subscribed: None,
            preparing: None,
            calls: Vec::new(),
            releases: Vec::new(),
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
            LogindCall::WriteDropIn { delay } => {
                self.configured = *delay;
                Ok(Answer::Ok)
            }
            _ if !self.up => Err(OpError::NotSent("no bus".into())),
            LogindCall::ReadDelay => Ok(Answer::Delay(self.delay)),
            LogindCall::Reload if self.no_reload => no("access denied"),
            LogindCall::Reload => {
                self.delay = self.other.unwrap_or(self.configured);
                Ok(Answer::Ok)
            }
            LogindCall::Inhibit if self.no_lock || self.preparing.is_some() => {
                no("The operation inhibition has been requested for is already running")
            }
            LogindCall::Inhibit => {
                self.locked = true;
                Ok(Answer::Ok)
            }
            LogindCall::Subscribe if self.no_signal => no("too many matches"),
            LogindCall::Subscribe => {
                self.subscribed = Some(life);
                Ok(Answer::Ok)
            }
            LogindCall::ReadPreparing => Ok(Answer::Preparing(self.preparing.is_some())),
            LogindCall::ListInhibitors => Ok(Answer::Inhibited(self.locked)),
        }
    }
}
