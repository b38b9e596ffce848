//! PLEG's driver: lists everything, compares it with the cache, reads the status of the pods that changed (P1 to P7), and
//! finds the orphans (W21).

use super::Engine;
use crate::api::facts::Listed;
use crate::api::names::{FullName, Uid};
use crate::api::time::Boot;
use crate::engine::context::Owner;
use crate::engine::effect::{Effect, Measure, Notice, RuntimeCall, Severity, TimerKey};
use crate::engine::event::Answer;
use crate::engine::op::{OpError, OpId};
use crate::engine::pleg::cache::{Entry, Generation};
use crate::engine::pleg::relist::{self, Kind, ListedPod};
use crate::engine::pleg::strangers::Strangers;
use crate::engine::pod::worker::Worker;
use crate::engine::slots::{InFlight, READ_PATIENCE};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// P6: without a good relist for so long, PLEG is unhealthy.
const UNHEALTHY_AFTER: Duration = Duration::from_secs(180);
/// P8: the period while nothing can change without a hint.
const IDLE_PERIOD: Duration = Duration::from_secs(30);
/// P8: the least time between relists that hints ask for.
const HINTED_PERIOD: Duration = Duration::from_millis(100);
/// W21: the grace period of an orphan whose annotations tell none.
const ORPHAN_GRACE: Duration = Duration::from_secs(1);

#[derive(Debug, Serialize)]
pub struct Pleg {
    /// The relist in flight: when it began.
    began: Option<(Generation, Boot)>,
    last_began: Option<Boot>,
    /// The begin of the last relist that came back.
    pub last_ok: Option<Boot>,
    pub error: Option<String>,
    /// A hint of something that no worker knows came since the last relist began.
    hinted: bool,
    armed: Option<Boot>,
    /// Pods of ours that the last list showed and that have no worker (before the sources were read); whether something of
    /// them runs.
    unclaimed: BTreeMap<Uid, (FullName, Duration, bool)>,
    /// UIDs under which the last list showed something of other owners.
    shared: BTreeSet<Uid>,
    /// Workers dropped since a list in flight began: what it shows of them is old.
    forgotten: BTreeMap<Uid, Generation>,
    /// W2: sandboxes that may turn up though their workers were dropped, and how long that may take.
    lost: BTreeMap<Uid, (u32, Boot)>,
    /// The status reads in flight.
    reading: InFlight,
    /// The last list was older than what was known of some pod.
    skipped: bool,
    /// Pods whose reading is due, first come first served.
    due: VecDeque<Uid>,
}

impl Pleg {
    pub fn new(parallel_reads: usize) -> Pleg {
        Pleg {
            began: None,
            last_began: None,
            last_ok: None,
            error: None,
            hinted: false,
            armed: None,
            unclaimed: BTreeMap::new(),
            shared: BTreeSet::new(),
            forgotten: BTreeMap::new(),
            lost: BTreeMap::new(),
            reading: InFlight::new(parallel_reads, READ_PATIENCE),
            skipped: false,
            due: VecDeque::new(),
        }
    }

    pub fn set_parallel_reads(&mut self, limit: usize) {
        self.reading.set_limit(limit);
    }

    /// When a reading that is due begins though none in flight ends: those that hang do not hold it up.
    pub fn reads_at(&self) -> Option<Boot> {
        self.reading.frees_at().filter(|_| !self.due.is_empty())
    }

    /// P6.
    pub fn healthy(&self, now: Boot) -> bool {
        self.last_ok.is_some_and(|at| now.since(at) < UNHEALTHY_AFTER)
    }

    /// A list came back.
    pub fn was_compared(&self) -> bool {
        self.last_ok.is_some()
    }

    /// P8: a hint of what no worker knows.
    pub fn relist_soon(&mut self) {
        self.hinted = true;
    }

    pub fn timer_fired(&mut self) {
        self.armed = None;
    }

    /// The runtime has something of this pod, which has no worker yet.
    pub fn shows(&self, uid: &Uid) -> bool {
        self.unclaimed.contains_key(uid)
    }

    /// Something of this pod runs, and it has no worker yet.
    pub fn shows_running(&self, uid: &Uid) -> bool {
        self.unclaimed.get(uid).is_some_and(|(_, _, runs)| *runs)
    }

    /// Those pods, with their names and grace periods.
    pub fn unclaimed(&self) -> BTreeMap<Uid, (FullName, Duration, bool)> {
        self.unclaimed.clone()
    }

    /// Each of them has its worker now.
    pub fn all_claimed(&mut self) {
        self.unclaimed.clear();
    }

    /// A worker was dropped: what a list in flight shows of its pod is old.
    pub fn forgotten(&mut self, uid: &Uid, generation: Generation) {
        self.reading.forget(uid);
        if self.began.is_some() {
            self.forgotten.insert(uid.clone(), generation);
        }
    }

    /// Nobody knows what became of the call for a sandbox of this attempt; it cannot take longer than `until`.
    pub fn lost(&mut self, uid: &Uid, attempt: u32, until: Boot) {
        self.lost.insert(uid.clone(), (attempt, until));
    }

    /// The first attempt of a new pod with this UID: what turns up of an earlier one is not its own.
    pub fn first_attempt(&self, uid: &Uid) -> u32 {
        self.lost.get(uid).map_or(0, |(attempt, _)| attempt.saturating_add(1))
    }

    /// A reading of this pod may be due.
    pub fn queue(&mut self, uid: &Uid, entry: &mut Entry) {
        if entry.error.is_none() && entry.queue() {
            self.due.push_back(uid.clone());
        }
    }

    /// Nothing of this pod can be in the runtime: a list came back and did not show it, nor anything of others under its
    /// UID.
    pub fn knows_nothing_of(&self, uid: &Uid) -> bool {
        self.last_ok.is_some() && !self.unclaimed.contains_key(uid) && !self.shared.contains(uid)
    }

    /// The last list showed something of others under this UID (W21).
    pub fn shares(&self, uid: &Uid) -> bool {
        self.shared.contains(uid)
    }
}

impl Engine {
    /// P6: one relist at a time.
    pub(super) fn relist(&mut self) {
        if self.pleg.began.is_some() || !self.runtime.up {
            return;
        }
        if let Some(last) = self.pleg.last_ok {
            self.out.push(Effect::Measure(Measure::RelistInterval(self.now.boot.since(last))));
        }
        self.pleg.hinted = false;
        self.pleg.began = Some((self.generation, self.now.boot));
        self.pleg.last_began = Some(self.now.boot);
        let op = self.ops.begin(Owner::Relist);
        self.out.push(Effect::Runtime { op, call: RuntimeCall::List, timeout: self.config.request_timeout });
    }

    /// The next relist: a period after the last one's begin.
    pub(super) fn arm_relist(&mut self) {
        // P8: nothing can change without a hint.
        let all_stopped = self.pleg.last_ok.is_some()
            && self.pleg.error.is_none()
            && !self.pleg.skipped
            && self.pleg.lost.is_empty()
            && self.pleg.unclaimed.is_empty()
            && self.watches.cover_all();
        let period = match (self.pleg.hinted, all_stopped) {
            (true, _) => HINTED_PERIOD.min(self.config.relist_period),
            (false, true) => IDLE_PERIOD,
            (false, false) => self.config.relist_period,
        };
        let at = match (self.runtime.up, self.pleg.began, self.pleg.last_began) {
            // It is made again when the connection is back; one in flight arms the next.
            (false, _, _) | (_, Some(_), _) | (_, _, None) => None,
            (true, None, Some(last)) => Some((last + period).max(self.now.boot)),
        };
        if at != self.pleg.armed {
            self.pleg.armed = at;
            self.out.push(Effect::Timer { key: TimerKey::Relist, at });
        }
    }

    pub(super) fn listed(&mut self, result: Result<Answer, OpError>) {
        let Some((began, at)) = self.pleg.began.take() else { return };
        self.out.push(Effect::Measure(Measure::RelistDuration(self.now.boot.since(at))));
        match result {
            Ok(Answer::Listed(listed)) => {
                let first_list = self.pleg.last_ok.replace(at).is_none();
                if first_list {
                    self.room_changed();
                }
                self.pleg.error = None;
                // (Before the failed readings are forgotten: those pods are in doubt.)
                self.compare(&listed, (began, at), first_list);
                // P3: pods whose reading failed are read again.
                for (uid, entry) in &mut self.cache {
                    if entry.error.take().is_some() {
                        self.dirty.insert(uid.clone());
                    }
                }
            }
            // P6: a failed list changes nothing.
            Ok(_) => {}
            Err(e) => self.pleg.error = Some(e.to_string()),
        }
    }

    fn compare(&mut self, listed: &Listed, (began, at): (Generation, Boot), first_list: bool) {
        let pods = relist::by_pod(listed, &self.config.owner);
        if !pods.shared().eq(&self.pleg.shared) {
            self.pleg.shared = pods.shared().cloned().collect();
        }
        self.pleg.unclaimed.clear();
        self.pleg.skipped = false;
        for (uid, shown) in pods.pods() {
            if self.workers.contains_key(uid) {
                // It began in an earlier life, whatever its record says.
                if first_list && shown.runs() {
                    self.adopt(uid);
                }
                self.compare_pod(uid, &shown, began);
            } else if let Some((name, grace)) = whose(&shown) {
                if !self.sources_ready {
                    self.pleg.unclaimed.insert(uid.clone(), (name, grace, shown.runs()));
                } else if self.pleg.forgotten.get(uid).is_none_or(|generation| *generation < began) {
                    self.adopt_orphan(uid, name, grace);
                }
            }
        }
        let absent: Vec<Uid> = self.workers.keys().filter(|uid| !pods.shows(uid)).cloned().collect();
        for uid in absent {
            self.compare_pod(&uid, &ListedPod::default(), began);
        }
        for (uid, entry) in self.cache.iter_mut().filter(|(uid, _)| self.workers.contains_key(*uid)) {
            let strangers = if self.pleg.shared.contains(uid) { pods.strangers(uid) } else { Strangers::default() };
            if entry.meet(strangers, began, at) {
                self.dirty.insert(uid.clone());
            }
        }
        self.pleg.forgotten.clear();
        let now = self.now.boot;
        self.pleg.lost.retain(|_, (_, until)| *until > now);
        for uid in self.watches.uncovered() {
            self.look_at_cover(&uid);
        }
    }

    fn compare_pod(&mut self, uid: &Uid, shown: &ListedPod<'_>, began: Generation) {
        let entry = self.cache.entry(uid.clone()).or_default();
        if !entry.known() {
            // P7: of a pod without anything there is nothing to read.
            if shown.sandboxes.is_empty() && shown.containers.is_empty() && !entry.is_busy() {
                *entry = Entry::empty(began);
            }
            self.dirty.insert(uid.clone());
            return;
        }
        // The list is older than what is known: the next one tells.
        if entry.fresh() > began {
            self.pleg.skipped = true;
            return;
        }
        if relist::same(entry.facts(), shown) {
            entry.list_agrees();
            return;
        }
        let events = relist::changes(entry.facts(), shown);
        let changed = events.iter().all(|e| e.kind == Kind::ContainerChanged);
        // P2: a container in the state unknown may stay there, and its status may say something else. One read for each
        // such change: a read at every relist would tell no more.
        if changed && !entry.doubts(events.into_iter().map(|e| e.id)) {
            return;
        }
        // The worker is stepped with what the reading shows.
        entry.want_read();
        self.pleg.queue(uid, entry);
    }

    /// W21.
    pub(super) fn adopt_orphan(&mut self, uid: &Uid, name: FullName, grace: Duration) {
        self.out.push(Effect::Measure(Measure::OrphanedPod));
        self.out.push(Effect::Notice(Notice {
            pod: None,
            container: None,
            severity: Severity::Warning,
            reason: "OrphanedPod",
            message: format!("pod {name} (uid {uid}) runs and nothing asks for it: it is stopped and removed"),
        }));
        self.add_orphan(uid, name, grace);
    }

    /// P3: status reads of different pods run side by side, bounded.
    pub(super) fn begin_reads(&mut self) {
        if !self.runtime.up {
            return;
        }
        while self.pleg.reading.has_room(self.now.boot) {
            let Some(uid) = self.pleg.due.pop_front() else { return };
            let Some(entry) = self.cache.get_mut(&uid) else { continue };
            entry.unqueue();
            if !entry.read_due() || entry.error.is_some() || !self.workers.get(&uid).is_some_and(Worker::has_begun) {
                continue;
            }
            let op = self.ops.begin(Owner::Read(uid.clone()));
            entry.read_began(op, self.generation, self.now.boot);
            self.pleg.reading.begin(&uid, self.now.boot);
            self.out.push(Effect::Runtime {
                op,
                call: RuntimeCall::ReadPod { uid },
                timeout: self.config.request_timeout,
            });
        }
    }

    pub(super) fn pod_read(&mut self, op: OpId, uid: &Uid, result: Result<Answer, OpError>) {
        // The pod may have been forgotten meanwhile, and be here again under its UID.
        let Some(entry) = self.cache.get_mut(uid).filter(|e| e.is_reading(op)) else { return };
        self.pleg.reading.end(uid);
        entry.read_done(match result {
            // W21: the runtime is asked by the UID, which others may have too.
            Ok(Answer::Pod(facts)) => Ok(Strangers::split(facts, &self.config.owner)),
            Ok(_) => Err("an answer of another kind".into()),
            Err(e) => Err(e.to_string()),
        });
        if entry.take_changed_facts() {
            let failed = entry.error.is_some();
            self.watch_what_runs(uid);
            if !failed {
                self.reread_the_ended(uid);
            }
        }
        self.weigh_hints(uid);
        self.dirty.insert(uid.clone());
    }
}

/// The full name and the grace period that a pod's sandboxes and containers carry.
fn whose(shown: &ListedPod<'_>) -> Option<(FullName, Duration)> {
    let name = match (shown.sandboxes.first(), shown.containers.first()) {
        (Some(s), _) => s.name.clone(),
        (None, c) => c?.pod_name.clone(),
    };
    Some((name, shown.grace_seconds().map_or(ORPHAN_GRACE, Duration::from_secs)))
}
