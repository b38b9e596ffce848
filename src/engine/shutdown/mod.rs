//! Graceful node shutdown (S1 to S10): `transitions` handles logind's signals and responses and stops one group of
//! pods after another, `pods` determines which pods belong to a group and which have terminated, `lock` decides on
//! the calls to logind, `round` contains its states, `problem` its problems, `store` systemd's copy of the lock,
//! `record` the durable record, `views` the data for the API. This file tracks the progress and the deadlines of a
//! shutdown. `node/shutdown` kills the pods.

pub mod lock;
pub mod pods;
pub mod problem;
pub mod record;
pub mod round;
pub mod store;
pub mod transitions;
mod views;

use crate::api::names::Uid;
use crate::api::shutdown::Groups;
use crate::api::time::{Boot, Now, Wall};
use lock::Lock;
use record::Record;
use serde::Serialize;
use std::collections::BTreeSet;
use std::time::Duration;

/// S7: without a lock, logind does not wait for the pods. Each group gets this time (StopContainer takes at least 2
/// s).
const MINIMUM: Duration = Duration::from_secs(2);

/// How long the first group waits for logind to report its delay.
const DELAY: Duration = Duration::from_secs(1);

/// S7: how long a new process waits for logind to confirm the recorded shutdown.
const WORD: Duration = Duration::from_secs(10);

#[derive(Debug, Serialize)]
pub struct Shutdown {
    lock: Lock,
    /// The shutdown in progress.
    progress: Option<Progress>,
    /// The record of the last shutdown, or of the one in progress.
    last: Option<Record>,
    /// The record shows a shutdown in progress, which logind has to confirm before this time.
    in_doubt: Option<Boot>,
    /// The shutdown began under a previous process, or before this process knew its pods. Nothing is started until it
    /// is known which groups have begun.
    undecided: bool,
    /// When to retry a failed write of the record.
    keep_at: Option<Boot>,
}

#[derive(Debug, Serialize)]
pub struct Progress {
    pub began: Boot,
    /// The groups at the start: new settings do not change a shutdown in progress.
    pub groups: Groups,
    /// The time of each group, lowest priority first.
    pub periods: Vec<Duration>,
    /// The group that is being stopped; the number of groups once all are done.
    pub group: usize,
    pub phase: Phase,
    /// There is no lock: all pods are killed with the minimum grace period.
    pub unlocked: bool,
    pub released: bool,
}

#[derive(Debug, Serialize)]
pub enum Phase {
    /// The delay is being read from logind. No group begins until logind responds or the time `until` is reached.
    ReadingDelay {
        until: Boot,
    },
    /// The group has not begun.
    Next,
    Stopping(Current),
}

/// The group that is being stopped.
#[derive(Debug, Serialize)]
pub struct Current {
    pub began: Boot,
    pub until: Boot,
    pub pods: BTreeSet<Uid>,
}

impl Progress {
    /// Returns the time at which the lock is released in any case (S4).
    pub fn end(&self) -> Boot {
        self.began + self.periods.iter().sum()
    }

    /// Returns when the time of the next group ends. A group that begins early gets its full period. A group that
    /// begins late, because Wherry was not running, gets the rest of its period.
    pub fn until(&self, now: Boot) -> Boot {
        let planned = self.began + self.periods.iter().take(self.group + 1).sum();
        match self.periods.get(self.group) {
            Some(period) if self.unlocked => now + *period,
            Some(period) => (now + *period).min(planned),
            None => now,
        }
    }

    pub fn is_done(&self) -> bool {
        self.group >= self.periods.len()
    }

    /// Returns when the next step is due if no pod terminates before. `groups_go_on`: the pods are known, so the next
    /// group can begin.
    pub fn next(&self, groups_go_on: bool) -> Option<Boot> {
        let end = Some(self.end()).filter(|_| !self.released && !self.unlocked);
        let group = match &self.phase {
            Phase::ReadingDelay { until } => Some(*until),
            Phase::Next => None,
            Phase::Stopping(current) => Some(current.until),
        };
        end.into_iter().chain(group.filter(|_| groups_go_on)).min()
    }

    /// Gives the current group and the later ones the minimum time, because logind no longer waits.
    pub fn lose_lock(&mut self) {
        self.unlocked = true;
        self.periods = vec![MINIMUM; self.groups.iter().len()];
        self.phase = Phase::Next;
    }
}

impl Shutdown {
    pub fn new(groups: Groups) -> Shutdown {
        Shutdown {
            lock: Lock::new(groups),
            progress: None,
            last: None,
            in_doubt: None,
            undecided: false,
            keep_at: None,
        }
    }

    /// Returns true during a shutdown, or while one is in doubt. During this time, pods that are not running do not
    /// start.
    pub fn is_on(&self) -> bool {
        self.progress.is_some() || self.in_doubt.is_some()
    }

    /// Takes the record of a previous process. Returns true if no recorded shutdown is in progress: there is none,
    /// the node has rebooted since, or the shutdown was cancelled. Then the pods that it stopped run again.
    fn found(&mut self, record: Option<Record>, boot_id: &str, configured: &Groups, now: Now) -> bool {
        let Some(mut record) = record else { return true };
        let back = record.over || record.boot_id != boot_id;
        if back {
            record.over = true;
            if record.ended == Wall(0) {
                record.ended = now.wall;
            }
        } else {
            if record.groups.is_off() {
                let all = record.periods.iter().sum::<Duration>().as_secs();
                let same = configured.iter().len() == record.periods.len();
                record.groups = if same { configured.clone() } else { Groups::by_priority([(0, all)]) };
            }
            self.lock = Lock::new(record.groups.clone());
            self.in_doubt = Some(now.boot + WORD);
            self.undecided = true;
        }
        self.last = Some(record);
        back
    }

    /// Begins a shutdown, or continues one that began under a previous process.
    fn begin(&mut self, configured: &Groups, boot_id: &str, now: Now) {
        let goes_on = self.in_doubt.take().and(self.last.clone());
        let groups = goes_on.as_ref().map_or(configured, |r| &r.groups).clone();
        let unlocked = !self.lock.is_held();
        let (began, periods) = match (&goes_on, unlocked) {
            (_, true) => (now.boot, vec![MINIMUM; groups.iter().len()]),
            (Some(r), false) if r.periods.len() == groups.iter().len() => (r.began, r.periods.clone()),
            (Some(r), false) => (r.began, groups.within(r.periods.iter().sum())),
            // If the delay is unknown, the groups get their full periods, because the drop-in of an earlier round is
            // probably in force.
            (None, false) => (now.boot, self.lock.granted().unwrap_or_else(|| groups.within(Duration::MAX))),
        };
        self.last = Some(match goes_on {
            Some(record) => Record { ended: Wall(0), ..record },
            None => Record {
                boot_id: boot_id.to_owned(),
                began,
                started: now.wall,
                ended: Wall(0),
                over: false,
                periods: periods.clone(),
                groups: groups.clone(),
            },
        });
        self.progress =
            Some(Progress { began, groups, periods, group: 0, phase: Phase::Next, unlocked, released: false });
    }

    /// Returns true if it is not known yet which groups have begun.
    pub fn is_undecided(&self) -> bool {
        self.undecided
    }

    /// Returns true if the machine waits for the pods to terminate: the lock is not released yet.
    pub fn is_hurried(&self) -> bool {
        self.progress.as_ref().is_some_and(|p| !p.released)
    }

    /// Returns true if it is not known yet which groups have begun, or the first group is about to begin.
    pub fn holds_starts(&self) -> bool {
        let reads_delay = |p: &Progress| matches!(p.phase, Phase::ReadingDelay { .. });
        self.undecided || self.progress.as_ref().is_some_and(reads_delay)
    }

    /// Returns the groups in force: those of the shutdown in progress or in doubt, otherwise the configured ones.
    pub fn groups<'a>(&'a self, configured: &'a Groups) -> &'a Groups {
        let in_doubt = self.in_doubt.and(self.last.as_ref()).map(|r| &r.groups);
        self.progress.as_ref().map(|p| &p.groups).or(in_doubt).unwrap_or(configured)
    }

    /// Postpones the first group until logind has reported its delay, because another file may have changed it.
    fn waits_for_delay(&mut self, now: Boot) {
        if let Some(progress) = &mut self.progress {
            progress.phase = Phase::ReadingDelay { until: now + DELAY };
        }
    }

    /// Takes logind's delay. Returns true if it changes the periods of a shutdown that waits for it.
    fn delay_is(&mut self, delay: Option<Duration>) -> bool {
        let Some(progress) = &mut self.progress else { return false };
        if !matches!(progress.phase, Phase::ReadingDelay { .. }) {
            return false;
        }
        progress.phase = Phase::Next;
        let periods = delay.map(|delay| progress.groups.within(delay));
        let Some(periods) = periods.filter(|p| *p != progress.periods && !progress.unlocked) else { return false };
        progress.periods.clone_from(&periods);
        if let Some(last) = &mut self.last {
            last.periods = periods;
        }
        true
    }

    /// Notes the time at which the lock is released.
    fn ended(&mut self, now: Now) {
        if let Some(last) = &mut self.last {
            last.ended = now.wall;
        }
    }

    /// Ends a shutdown that was cancelled or was not confirmed.
    fn over(&mut self, now: Now) {
        self.progress = None;
        self.in_doubt = None;
        self.undecided = false;
        if let Some(last) = &mut self.last {
            last.over = true;
            if last.ended == Wall(0) {
                last.ended = now.wall;
            }
        }
    }
}
