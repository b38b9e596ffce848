//! The pod lifecycle event generator: detects changes by listing, and caches each pod's last status.
//!
//! `Pleg` is the state machine: `schedule` decides when to relist, `relist` compares a list with the cache, `reads`
//! reads the status of changed pods, `cache` keeps that status, `watch` and `runtime_events` cause earlier reads,
//! `foreign_objects` and `without_worker` track the objects that belong to no worker. Only lists and status reads are
//! trusted. The node steps the workers whose pods changed, and adopts the pods that a list shows.

pub mod cache;
pub mod foreign_objects;
mod reads;
pub mod relist;
pub mod runtime_events;
pub mod schedule;
pub mod watch;
pub mod without_worker;

use crate::api::names::Uid;
use crate::api::time::Boot;
use crate::engine::event::Answer;
use crate::engine::op::{OpError, OpId};
use crate::engine::outbox::Outbox;
use crate::engine::timers::Timers;
use cache::{Cache, Entry, Generation, StepTime};
use foreign_objects::ForeignObjects;
use reads::Reads;
use relist::{ByPod, Kind, ListedPod, PlegEvent};
use runtime_events::WaitingEvents;
use schedule::Schedule;
use serde::Serialize;
use std::time::Duration;
use watch::Watches;
use without_worker::WithoutWorker;

#[derive(Debug, Serialize)]
pub struct Pleg {
    pub schedule: Schedule,
    /// The last status of each pod with a worker.
    pub cache: Cache,
    pub reads: Reads,
    watches: Watches,
    pub waiting_events: WaitingEvents,
    pub without_worker: WithoutWorker,
    /// The last list was older than the cached status of at least one pod.
    skipped: bool,
}

impl Pleg {
    pub fn new(parallel_reads: usize) -> Pleg {
        Pleg {
            schedule: Schedule::default(),
            cache: Cache::new(),
            reads: Reads::new(parallel_reads),
            watches: Watches::default(),
            waiting_events: WaitingEvents::default(),
            without_worker: WithoutWorker::default(),
            skipped: false,
        }
    }

    /// Returns true if a list has been compared with the cache.
    pub fn was_compared(&self) -> bool {
        self.schedule.last_ok.is_some()
    }

    /// Returns true if the runtime has nothing of this pod: a list showed neither the pod nor another owner's pod
    /// with its UID.
    pub fn knows_nothing_of(&self, uid: &Uid) -> bool {
        let others = &self.without_worker;
        self.was_compared() && !others.shows(uid) && !others.shares(uid)
    }
}

/// The cached status of the pods with a worker.
impl Pleg {
    pub fn add(&mut self, uid: Uid, entry: Entry) {
        self.cache.insert(uid, entry);
    }

    /// Returns the entry that the worker of this pod reads and updates.
    pub fn entry(&mut self, uid: &Uid) -> &mut Entry {
        self.cache.entry(uid.clone()).or_default()
    }

    /// Follows up on a step of this pod's worker: queues a status read that the worker requested, and updates the
    /// watches if one of its calls changed the facts. `has_begun`: the worker has to know the status.
    pub fn worker_stepped(&mut self, uid: &Uid, has_begun: bool, now: Boot, outbox: &mut Outbox) {
        let Some(entry) = self.cache.get_mut(uid) else { return };
        if has_begun {
            self.reads.queue(uid, entry);
        }
        if entry.take_changed_facts() {
            self.watches.update(uid, entry, now, outbox);
        }
    }

    /// Forgets the pod after its worker was dropped.
    pub fn forget(&mut self, uid: &Uid, generation: Generation, outbox: &mut Outbox) {
        self.watches.forget(uid, outbox);
        self.waiting_events.forget(uid);
        self.cache.remove(uid);
        self.reads.forget(uid);
        if self.schedule.is_relisting() {
            self.without_worker.forgotten(uid, generation);
        }
    }
}

/// Relists.
impl Pleg {
    /// Returns the time of the next relist: one period after the start of the last one.
    pub fn next_relist(&self, up: bool, period: Duration) -> Option<Boot> {
        // P8: true if every change causes a runtime event.
        let all_seen = !self.skipped && self.without_worker.is_empty() && self.watches.cover_all();
        self.schedule.next(up, all_seen, period)
    }

    /// Compares a list with the cache, and queues the status reads of the pods that differ (P1 to P3, P7). Returns the
    /// pods whose workers have to be stepped.
    pub fn compare(&mut self, pods: &ByPod<'_>, (began, at): StepTime, now: Boot) -> Vec<Uid> {
        let mut changed = Vec::new();
        self.skipped = false;
        let absent: Vec<Uid> = self.cache.keys().filter(|uid| !pods.shows(uid)).cloned().collect();
        let absent = absent.iter().map(|uid| (uid, ListedPod::default()));
        for (uid, shown) in pods.pods().chain(absent) {
            if self.compare_pod(uid, &shown, began) {
                changed.push(uid.clone());
            }
        }
        for (uid, entry) in &mut self.cache {
            let shared = self.without_worker.shares(uid);
            let foreign = if shared { pods.foreign(uid) } else { ForeignObjects::default() };
            if entry.meet(foreign, began, at) {
                changed.push(uid.clone());
            }
        }
        self.without_worker.compared(now);
        for uid in self.watches.uncovered() {
            self.update_cover(&uid, now);
        }
        // P3: pods with a failed status read are read again. This follows the comparison, which needs the errors.
        let failed = self.cache.iter_mut().filter_map(|(uid, entry)| entry.error.take().is_some().then_some(uid));
        changed.extend(failed.cloned());
        changed
    }

    /// Compares one pod. Returns true if its worker has to be stepped now.
    fn compare_pod(&mut self, uid: &Uid, shown: &ListedPod<'_>, began: Generation) -> bool {
        let Some(entry) = self.cache.get_mut(uid) else { return false };
        if !entry.known() {
            // P7: a pod without sandboxes and containers needs no status read.
            if shown.sandboxes.is_empty() && shown.containers.is_empty() && !entry.is_busy() {
                *entry = Entry::empty(began);
            }
            return true;
        }
        // The list is older than the cached status. The next list decides.
        if entry.fresh() > began {
            self.skipped = true;
            return false;
        }
        if relist::same(entry.facts(), shown) {
            entry.list_agrees();
            return false;
        }
        let events = relist::changes(entry.facts(), shown);
        let changed = events.iter().all(|e| e.kind == Kind::ContainerChanged);
        // P2: a container may stay in the state unknown while its status differs. Each such change causes one read; a
        // read at each relist would show nothing new.
        if changed && !entry.doubts(events.into_iter().map(|e| e.id)) {
            return false;
        }
        // The worker is stepped with the result of the read.
        entry.want_read();
        self.reads.queue(uid, entry);
        false
    }
}

/// Status reads.
impl Pleg {
    /// P8: returns the times of the repeated reads.
    pub fn rereads(&self) -> &Timers<Uid> {
        self.watches.rereads()
    }

    /// Takes the pods whose repeated reads are due.
    pub fn due_rereads(&mut self, now: Boot) -> Vec<Uid> {
        self.watches.due_rereads(now)
    }

    /// Requests a status read of the pod now.
    pub fn read_soon(&mut self, uid: &Uid) {
        if let Some(entry) = self.cache.get_mut(uid) {
            entry.want_read();
            self.reads.queue(uid, entry);
        }
    }

    /// P3: starts the status reads that are due. Those of different pods run in parallel, up to a limit. `has_begun`:
    /// the pod has a worker that has to know its status.
    pub fn begin_reads(
        &mut self,
        has_begun: impl Fn(&Uid) -> bool,
        step: StepTime,
        timeout: Duration,
        outbox: &mut Outbox,
    ) {
        self.reads.begin(&mut self.cache, has_begun, step, timeout, outbox);
    }

    /// Handles the result of a status read. Returns false if the read is out of date. `owner`: the value of our own
    /// annotation.
    pub fn pod_read(
        &mut self,
        op: OpId,
        uid: &Uid,
        result: Result<Answer, OpError>,
        owner: &str,
        now: Boot,
        outbox: &mut Outbox,
    ) -> bool {
        // The pod may have been forgotten in the meantime and added again with the same UID.
        let Some(entry) = self.cache.get_mut(uid).filter(|e| e.is_reading(op)) else { return false };
        self.reads.ended(uid);
        entry.read_done(match result {
            // W21: the read filters by UID, and other owners may use the same UID, so their objects are separated.
            Ok(Answer::Pod(facts)) => Ok(ForeignObjects::split(facts, owner)),
            Ok(_) => Err("unexpected response from the runtime".into()),
            Err(e) => Err(e.to_string()),
        });
        if entry.take_changed_facts() {
            self.watches.update(uid, entry, now, outbox);
            if entry.error.is_none() {
                self.watches.was_read(uid, entry, now);
            }
        }
        true
    }
}

/// P8: watches and runtime events, which cause earlier status reads.
impl Pleg {
    pub fn watch_answered(&mut self, uid: &Uid, id: &str, ok: bool, now: Boot) {
        if self.watches.answered(uid, id, ok) {
            self.update_cover(uid, now);
        }
    }

    /// Handles the exit of a process, which its pidfd reports. `stopping`: the worker is stopping this container, and
    /// the response to the stop causes a read anyway.
    pub fn process_ended(&mut self, uid: &Uid, id: &str, stopping: bool, now: Boot) {
        if self.watches.ended(uid, id) {
            if !stopping {
                self.read_soon(uid);
            }
            self.update_cover(uid, now);
        }
    }

    /// Returns true if the pidfds of all containers that the cache shows as running have reported the exit.
    pub fn all_processes_ended(&self, uid: &Uid) -> bool {
        let running = self.cache.get(uid).into_iter().flat_map(Entry::running);
        running.into_iter().all(|c| self.watches.has_ended(uid, c.id.as_str()))
    }

    fn update_cover(&mut self, uid: &Uid, now: Boot) {
        if let Some(entry) = self.cache.get(uid) {
            self.watches.update_cover(uid, entry, now);
        }
    }

    /// Handles a runtime event of a pod without a worker.
    pub fn event_of_unknown_pod(&mut self, event: &PlegEvent) {
        // A removal needs no relist.
        if event.kind != Kind::ContainerRemoved {
            self.schedule.relist_soon();
        }
    }

    /// Handles a runtime event of a pod with a worker. `will_report`: a call of the worker is in flight, and its
    /// response will show the same.
    pub fn event(&mut self, uid: &Uid, event: PlegEvent, will_report: bool) {
        let Some(entry) = self.cache.get(uid) else { return };
        if relist::shows(entry.facts(), &event) {
            return;
        }
        if entry.is_busy() || will_report {
            self.waiting_events.add(uid, event);
        } else {
            self.read_soon(uid);
        }
    }
}
