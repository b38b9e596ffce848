//! Drives PLEG: lists all sandboxes and containers, compares them with the cache, reads the status of changed pods (P1
//! to P7), and finds orphans (W21).

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

/// P6: without a successful relist for this time, PLEG is unhealthy.
const UNHEALTHY_AFTER: Duration = Duration::from_secs(180);
/// P8: the relist period while every change causes a runtime event.
const IDLE_PERIOD: Duration = Duration::from_secs(30);
/// P8: the minimum time between relists that runtime events cause.
const EVENT_PERIOD: Duration = Duration::from_millis(100);
/// W21: the grace period of an orphan without one in its annotations.
const ORPHAN_GRACE: Duration = Duration::from_secs(1);

#[derive(Debug, Serialize)]
pub struct Pleg {
    /// The start of the relist in flight.
    began: Option<(Generation, Boot)>,
    last_began: Option<Boot>,
    /// The start of the last successful relist.
    pub last_ok: Option<Boot>,
    pub error: Option<String>,
    /// A runtime event for an unknown pod has arrived since the last relist started.
    event_arrived: bool,
    armed: Option<Boot>,
    /// Our pods in the last list that have no worker (before the sources were read), and whether something of them
    /// runs.
    unclaimed: BTreeMap<Uid, (FullName, Duration, bool)>,
    /// UIDs that other owners use, according to the last list.
    shared: BTreeSet<Uid>,
    /// Workers dropped since the list in flight started: the list is out of date for them.
    forgotten: BTreeMap<Uid, Generation>,
    /// W2: sandboxes that may still appear although their worker was dropped: the attempt, and until when.
    lost: BTreeMap<Uid, (u32, Boot)>,
    /// The status reads in flight.
    reading: InFlight,
    /// The last list was older than the cached status of a pod.
    skipped: bool,
    /// Pods with a due status read, first come first served.
    due: VecDeque<Uid>,
}

impl Pleg {
    pub fn new(parallel_reads: usize) -> Pleg {
        Pleg {
            began: None,
            last_began: None,
            last_ok: None,
            error: None,
            event_arrived: false,
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

    /// When a due status read can start although no read in flight has ended: hanging reads lose their slots.
    pub fn reads_at(&self) -> Option<Boot> {
        self.reading.frees_at().filter(|_| !self.due.is_empty())
    }

    /// P6: the last successful relist is recent enough.
    pub fn healthy(&self, now: Boot) -> bool {
        self.last_ok.is_some_and(|at| now.since(at) < UNHEALTHY_AFTER)
    }

    /// A list has been compared with the cache.
    pub fn was_compared(&self) -> bool {
        self.last_ok.is_some()
    }

    /// P8: a runtime event for an unknown pod causes a relist.
    pub fn relist_soon(&mut self) {
        self.event_arrived = true;
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

    /// The pods without a worker, with their names and grace periods.
    pub fn unclaimed(&self) -> BTreeMap<Uid, (FullName, Duration, bool)> {
        self.unclaimed.clone()
    }

    /// All pods have a worker now.
    pub fn all_claimed(&mut self) {
        self.unclaimed.clear();
    }

    /// A worker was dropped: the list in flight is out of date for its pod.
    pub fn forgotten(&mut self, uid: &Uid, generation: Generation) {
        self.reading.forget(uid);
        if self.began.is_some() {
            self.forgotten.insert(uid.clone(), generation);
        }
    }

    /// The outcome of a RunPodSandbox call of this attempt is unknown. It takes effect before `until` or never.
    pub fn lost(&mut self, uid: &Uid, attempt: u32, until: Boot) {
        self.lost.insert(uid.clone(), (attempt, until));
    }

    /// The first attempt of a new pod with this UID. A sandbox of an earlier attempt that appears late is not its own.
    pub fn first_attempt(&self, uid: &Uid) -> u32 {
        self.lost.get(uid).map_or(0, |(attempt, _)| attempt.saturating_add(1))
    }

    /// Queues the status read of this pod, if one is due.
    pub fn queue(&mut self, uid: &Uid, entry: &mut Entry) {
        if entry.error.is_none() && entry.queue() {
            self.due.push_back(uid.clone());
        }
    }

    /// True if the runtime has nothing of this pod: a list showed neither the pod nor another owner's pod with its UID.
    pub fn knows_nothing_of(&self, uid: &Uid) -> bool {
        self.last_ok.is_some() && !self.unclaimed.contains_key(uid) && !self.shared.contains(uid)
    }

    /// The last list showed a pod of another owner with this UID (W21).
    pub fn shares(&self, uid: &Uid) -> bool {
        self.shared.contains(uid)
    }
}

impl Engine {
    /// P6: one relist at a time.
    pub(super) fn relist(&mut self) {
        if self.pleg.began.is_some() || !self.runtime.is_up() {
            return;
        }
        if let Some(last) = self.pleg.last_ok {
            self.outbox.push(Effect::Measure(Measure::RelistInterval(self.now.boot.since(last))));
        }
        self.pleg.event_arrived = false;
        self.pleg.began = Some((self.generation, self.now.boot));
        self.pleg.last_began = Some(self.now.boot);
        let op = self.outbox.ops.begin(Owner::Relist);
        self.outbox.push(Effect::Runtime { op, call: RuntimeCall::List, timeout: self.config.request_timeout });
    }

    /// Sets the timer for the next relist: one period after the start of the last one.
    pub(super) fn arm_relist(&mut self) {
        // P8: every change causes a runtime event.
        let all_watched = self.pleg.last_ok.is_some()
            && self.pleg.error.is_none()
            && !self.pleg.skipped
            && self.pleg.lost.is_empty()
            && self.pleg.unclaimed.is_empty()
            && self.watches.cover_all();
        let period = match (self.pleg.event_arrived, all_watched) {
            (true, _) => EVENT_PERIOD.min(self.config.relist_period),
            (false, true) => IDLE_PERIOD,
            (false, false) => self.config.relist_period,
        };
        let at = match (self.runtime.is_up(), self.pleg.began, self.pleg.last_began) {
            // A new connection starts a relist, and the relist in flight arms the next one.
            (false, _, _) | (_, Some(_), _) | (_, _, None) => None,
            (true, None, Some(last)) => Some((last + period).max(self.now.boot)),
        };
        if at != self.pleg.armed {
            self.pleg.armed = at;
            self.outbox.push(Effect::Timer { key: TimerKey::Relist, at });
        }
    }

    pub(super) fn listed(&mut self, result: Result<Answer, OpError>) {
        let Some((began, at)) = self.pleg.began.take() else { return };
        self.outbox.push(Effect::Measure(Measure::RelistDuration(self.now.boot.since(at))));
        match result {
            Ok(Answer::Listed(listed)) => {
                let first_list = self.pleg.last_ok.replace(at).is_none();
                if first_list {
                    self.room_changed();
                }
                self.pleg.error = None;
                // (Before the errors of the last reads are cleared, because the comparison needs them.)
                self.compare(&listed, (began, at), first_list);
                // P3: pods with a failed status read are read again.
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
                // It runs since a previous run, whatever its record says.
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
            // P7: a pod without sandboxes and containers needs no status read.
            if shown.sandboxes.is_empty() && shown.containers.is_empty() && !entry.is_busy() {
                *entry = Entry::empty(began);
            }
            self.dirty.insert(uid.clone());
            return;
        }
        // The list is older than the cached status. The next list decides.
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
        // P2: a container may stay in the state unknown while its status differs. Each such change causes one read; a
        // read at each relist would show nothing new.
        if changed && !entry.doubts(events.into_iter().map(|e| e.id)) {
            return;
        }
        // The worker is stepped with the result of the read.
        entry.want_read();
        self.pleg.queue(uid, entry);
    }

    /// W21: a pod of ours without a worker.
    pub(super) fn adopt_orphan(&mut self, uid: &Uid, name: FullName, grace: Duration) {
        self.outbox.measure(Measure::OrphanedPod);
        self.outbox.push(Effect::Notice(Notice {
            pod: None,
            container: None,
            severity: Severity::Warning,
            reason: "OrphanedPod",
            message: format!("pod {name} (uid {uid}) is running but has no manifest; stopping and removing it"),
        }));
        self.add_orphan(uid, name, grace);
    }

    /// P3: status reads of different pods run in parallel, up to a limit.
    pub(super) fn begin_reads(&mut self) {
        if !self.runtime.is_up() {
            return;
        }
        while self.pleg.reading.has_room(self.now.boot) {
            let Some(uid) = self.pleg.due.pop_front() else { return };
            let Some(entry) = self.cache.get_mut(&uid) else { continue };
            entry.unqueue();
            if !entry.read_due() || entry.error.is_some() || !self.workers.get(&uid).is_some_and(Worker::has_begun) {
                continue;
            }
            let op = self.outbox.ops.begin(Owner::Read(uid.clone()));
            entry.read_began(op, self.generation, self.now.boot);
            self.pleg.reading.begin(&uid, self.now.boot);
            self.outbox.push(Effect::Runtime {
                op,
                call: RuntimeCall::ReadPod { uid },
                timeout: self.config.request_timeout,
            });
        }
    }

    pub(super) fn pod_read(&mut self, op: OpId, uid: &Uid, result: Result<Answer, OpError>) {
        // The pod may have been forgotten meanwhile and added again with the same UID.
        let Some(entry) = self.cache.get_mut(uid).filter(|e| e.is_reading(op)) else { return };
        self.pleg.reading.end(uid);
        entry.read_done(match result {
            // W21: the read filters by UID, which other owners may use too.
            Ok(Answer::Pod(facts)) => Ok(Strangers::split(facts, &self.config.owner)),
            Ok(_) => Err("unexpected answer from the runtime".into()),
            Err(e) => Err(e.to_string()),
        });
        if entry.take_changed_facts() {
            let failed = entry.error.is_some();
            self.watch_what_runs(uid);
            if !failed {
                self.reread_the_ended(uid);
            }
        }
        self.recheck_waiting_events(uid);
        self.dirty.insert(uid.clone());
    }
}

/// The full name and the grace period from the annotations of a pod's sandboxes and containers.
fn whose(shown: &ListedPod<'_>) -> Option<(FullName, Duration)> {
    let name = match (shown.sandboxes.first(), shown.containers.first()) {
        (Some(s), _) => s.name.clone(),
        (None, c) => c?.pod_name.clone(),
    };
    Some((name, shown.grace_seconds().map_or(ORPHAN_GRACE, Duration::from_secs)))
}
