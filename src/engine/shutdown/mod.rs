//! Graceful node shutdown (S1 to S10), the pure part: `lock` is what logind is asked for, `round` its states, `problem` what
//! logind refuses, `store` systemd's copy of the lock, `record` what survives wherry and the machine. Here: how far a shutdown in
//! progress is, in time. Who is killed, and has ended, the composition knows (`node/shutdown`); what people see is in
//! `api::shutdown::view`.

pub mod lock;
pub mod problem;
pub mod record;
pub mod round;
pub mod store;

use crate::api::names::Uid;
use crate::api::shutdown::Groups;
use crate::api::time::{Boot, Now, Wall};
use lock::Lock;
use record::Record;
use serde::Serialize;
use std::collections::BTreeSet;
use std::time::Duration;

/// S7: without a lock nobody waits for the pods. Each group gets so long (StopContainer takes no less than 2 s).
const MINIMUM: Duration = Duration::from_secs(2);

/// How long the first group waits for logind to say its delay once more.
const DELAY: Duration = Duration::from_secs(1);

/// So long a new wherry waits for logind's word on the shutdown that its record tells of.
const WORD: Duration = Duration::from_secs(10);

#[derive(Debug, Serialize)]
pub struct Shutdown {
    pub lock: Lock,
    /// The one in progress.
    pub progress: Option<Progress>,
    /// The last one, the one in progress included.
    pub last: Option<Record>,
    /// The record tells of a shutdown in progress; until then logind has time to say whether it is so.
    pub in_doubt: Option<Boot>,
    /// It began in an earlier life of wherry, or before this one knew its pods: nobody knows yet which groups have begun, and
    /// nothing is started.
    pub undecided: bool,
    /// Its record could not be written: again then.
    pub keep_at: Option<Boot>,
    /// The timer.
    pub armed: Option<Boot>,
}

#[derive(Debug, Serialize)]
pub struct Progress {
    pub began: Boot,
    /// As they were then: other settings do not change what has begun.
    pub groups: Groups,
    /// What each group gets, lowest priority first.
    pub periods: Vec<Duration>,
    /// The group that is being stopped; their number once all are done.
    pub group: usize,
    pub phase: Phase,
    /// There is no lock: everything is killed with the minimum.
    pub unlocked: bool,
    pub released: bool,
}

#[derive(Debug, Serialize)]
pub enum Phase {
    /// logind is asked for its delay; no group begins before it has answered, or before then.
    Asking {
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
    /// The lock is released then, whatever happened (S4).
    pub fn end(&self) -> Boot {
        self.began + self.periods.iter().sum()
    }

    /// Until when the next group may take. A group that begins sooner than planned, as those before it ended sooner, has its
    /// own period; one that begins late, as wherry was away meanwhile, has what is left.
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

    /// When something is due if no pod ends. `groups_go_on`: the pods are known, so the next group can begin.
    pub fn next(&self, groups_go_on: bool) -> Option<Boot> {
        let end = Some(self.end()).filter(|_| !self.released && !self.unlocked);
        let group = match &self.phase {
            Phase::Asking { until } => Some(*until),
            Phase::Next => None,
            Phase::Stopping(current) => Some(current.until),
        };
        end.into_iter().chain(group.filter(|_| groups_go_on)).min()
    }

    /// logind waits for nobody any more: the group that is being stopped, and those after it, get the minimum.
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
            armed: None,
        }
    }

    /// Nothing is to be started.
    pub fn is_on(&self) -> bool {
        self.progress.is_some() || self.in_doubt.is_some()
    }

    /// The record of an earlier life. True if the node has come back since that shutdown, or was never down: pods that were
    /// stopped by it run again.
    pub fn found(&mut self, record: Option<Record>, boot_id: &str, configured: &Groups, now: Now) -> bool {
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

    /// It begins, or goes on in a new life of wherry.
    pub fn begin(&mut self, configured: &Groups, boot_id: &str, now: Now) {
        let goes_on = self.in_doubt.take().and(self.last.clone());
        let groups = goes_on.as_ref().map_or(configured, |r| &r.groups).clone();
        let unlocked = !self.lock.is_held();
        let (began, periods) = match (&goes_on, unlocked) {
            (_, true) => (now.boot, vec![MINIMUM; groups.iter().len()]),
            (Some(r), false) if r.periods.len() == groups.iter().len() => (r.began, r.periods.clone()),
            (Some(r), false) => (r.began, groups.within(r.periods.iter().sum())),
            // Unknown: the drop-in of an earlier round is likely to be in force.
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

    /// Nobody knows yet which groups have begun, or the first one is about to.
    pub fn holds_starts(&self) -> bool {
        let asking = |p: &Progress| matches!(p.phase, Phase::Asking { .. });
        self.undecided || self.progress.as_ref().is_some_and(asking)
    }

    /// The groups that count: those of the shutdown in progress, or in doubt; else the configured ones.
    pub fn groups<'a>(&'a self, configured: &'a Groups) -> &'a Groups {
        let in_doubt = self.in_doubt.and(self.last.as_ref()).map(|r| &r.groups);
        self.progress.as_ref().map(|p| &p.groups).or(in_doubt).unwrap_or(configured)
    }

    /// logind is asked for its delay before the first group begins: another file may have changed it.
    pub fn waits_for_delay(&mut self, now: Boot) {
        if let Some(progress) = &mut self.progress {
            progress.phase = Phase::Asking { until: now + DELAY };
        }
    }

    /// True if the shutdown that waits for it gets other periods now.
    pub fn delay_is(&mut self, delay: Option<Duration>) -> bool {
        let Some(progress) = &mut self.progress else { return false };
        if !matches!(progress.phase, Phase::Asking { .. }) {
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

    /// Its work is done: the lock may go.
    pub fn ended(&mut self, now: Now) {
        if let Some(last) = &mut self.last {
            last.ended = now.wall;
        }
    }

    /// It was called off.
    pub fn over(&mut self, now: Now) {
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
