//! Compares the desired pods with the workers (W20, W22, W23), decides which pod has a full name (W8, D4), and restores
//! pods from their records (W25).

use super::Engine;
use crate::api::names::{FullName, Uid};
use crate::api::pod::{Pod, Source};
use crate::api::priority;
use crate::engine::context::Owner;
use crate::engine::effect::{Effect, Notice, RecordChange, Severity};
use crate::engine::pleg::cache::Entry;
use crate::engine::pod::kill::TerminationSource;
use crate::engine::pod::record::{self, Record};
use crate::engine::pod::status::Cause;
use crate::engine::pod::worker::Worker;
use crate::engine::shutdown;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

/// A document that yields to another one with the same name or UID (D4).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Conflict {
    pub source: Source,
    pub message: String,
}

impl Engine {
    pub(super) fn take_records(&mut self, records: Vec<(String, String)>) {
        let of_shutdown = records.iter().find(|(key, _)| key == shutdown::record::KEY);
        self.take_shutdown_record(of_shutdown.map(|(_, value)| value.as_str()));
        for (key, value) in records {
            if !record::is_pod(&key) {
                continue;
            }
            match record::read(&key, &value) {
                Ok(record) => {
                    self.recorded.insert(record.pod.uid.clone(), record);
                }
                Err(why) => {
                    let message = format!("record {key} is unusable; moving it aside: {why}");
                    self.outbox.tell_of_node(Severity::Warning, "BadRecord", message);
                    self.outbox.record(Owner::Worker(Uid::from("")), RecordChange::SetAside { key });
                }
            }
        }
    }

    pub(super) fn reconcile(&mut self) {
        let chosen = self.choose();
        // W25: recorded pods come first. Among them, a desired pod that had started precedes others of its name,
        // because they had finished before it started (W8). Pods that were waiting keep their order.
        let mut recorded: Vec<Record> = std::mem::take(&mut self.recorded).into_values().collect();
        recorded.sort_by_key(|r| (r.waiting, !r.waiting && !chosen.contains_key(&r.pod.uid), r.start_time));
        for record in recorded {
            let (uid, name) = (record.pod.uid.clone(), record.pod.name.clone());
            if !self.workers.contains_key(&uid) {
                self.remember_victim(&record);
                self.insert_worker(&uid, Entry::default(), Worker::revive(record, self.now, &self.config.boot_id));
                self.queue_for_name(&uid, name);
            }
        }
        // W21: a pod without a worker in a list from before the sources were read takes its name before new pods.
        for (uid, unclaimed) in self.pleg.without_worker().unclaimed().clone() {
            if self.workers.contains_key(&uid) {
                match unclaimed.runs {
                    true => self.adopt(&uid),
                    false => self.put_first(&uid),
                }
            } else if !chosen.contains_key(&uid) {
                self.adopt_orphan(&uid, unclaimed);
            }
        }
        let drained = self.drained_names();
        let undesired: Vec<Uid> = self.workers.keys().filter(|uid| !chosen.contains_key(*uid)).cloned().collect();
        let names: BTreeSet<&FullName> = chosen.values().map(|pod| &pod.name).collect();
        let (edited, removed): (Vec<_>, Vec<_>) =
            undesired.into_iter().partition(|uid| self.workers.get(uid).is_some_and(|w| names.contains(&w.name)));
        for uid in removed {
            self.undesire(&uid);
        }
        for uid in edited {
            if self.outdate(&uid) {
                if let Some(worker) = self.workers.get_mut(&uid) {
                    worker.restart = None;
                }
            } else {
                self.undesire(&uid);
            }
        }
        let (known, mut new): (Vec<_>, Vec<_>) =
            chosen.into_values().partition(|pod| self.workers.contains_key(&pod.uid));
        for pod in known {
            self.desire_again(&pod.uid.clone(), pod);
        }
        // A1: of the pods that arrive together, those with the higher priority come first.
        new.sort_by(|a, b| {
            let key = |p: &Pod| (Reverse(priority::of(p.spec())), p.source.clone());
            key(a).cmp(&key(b))
        });
        for pod in new {
            let (uid, holds) = (pod.uid.clone(), drained.contains(&pod.name));
            self.add_worker(pod, None);
            if holds {
                self.drain_successor(&uid);
            }
        }
        self.pleg.all_claimed();
    }

    /// D4: of two documents with the same full name or UID, the one that already runs, otherwise the first by path.
    fn choose(&mut self) -> BTreeMap<Uid, Rc<Pod>> {
        // 0: the running pod (perhaps edited), 1: another document with its UID, 2: the others.
        let rank = |p: &Pod| {
            let of_worker =
                self.workers.get(&p.uid).filter(|w| w.desired).and_then(|w| w.restart.as_ref().or(w.pod.as_ref()));
            let of_before = self.recorded.get(&p.uid).map(|r| &r.pod);
            match of_worker.or(of_before) {
                None if self.pleg.without_worker().unclaimed().contains_key(&p.uid) => 1,
                Some(runs) if runs.source == p.source => 0,
                Some(_) => 1,
                None => 2,
            }
        };
        let mut order: Vec<&Rc<Pod>> = self.manifests.iter().collect();
        order.sort_by_cached_key(|p| rank(p));
        let mut names: BTreeMap<&FullName, &Rc<Pod>> = BTreeMap::new();
        let mut chosen: BTreeMap<Uid, Rc<Pod>> = BTreeMap::new();
        let mut conflicts = Vec::new();
        for pod in order {
            let (what, other) = match (names.get(&pod.name), chosen.get(&pod.uid)) {
                (Some(other), _) => (format!("metadata.name: pod {} is already defined in", pod.name), *other),
                (None, Some(other)) => {
                    (format!("metadata.uid: {} already belongs to {} in", pod.uid, other.name), other)
                }
                (None, None) => {
                    names.insert(&pod.name, pod);
                    chosen.insert(pod.uid.clone(), pod.clone());
                    continue;
                }
            };
            let at = &other.source;
            let message = format!("{what} {} (document {}); change one of them", at.path, at.document);
            conflicts.push(Conflict { source: pod.source.clone(), message });
        }
        conflicts.sort();
        for c in conflicts.iter().filter(|c| !self.conflicts.contains(c)) {
            self.outbox.push(Effect::Notice(Notice {
                pod: None,
                container: None,
                severity: Severity::Warning,
                reason: "Conflict",
                message: format!("{} (document {}): {}", c.source.path, c.source.document, c.message),
            }));
        }
        self.conflicts = conflicts;
        chosen
    }

    pub(super) fn undesire(&mut self, uid: &Uid) {
        self.outdated.remove(uid);
        let Some(worker) = self.workers.get_mut(uid) else { return };
        let name = worker.name.clone();
        worker.restart = None;
        if std::mem::take(&mut worker.desired) {
            self.with_worker(uid, |worker, entry, ctx| worker.replace(entry, ctx));
            self.outbox.push(Effect::Publish { uid: uid.clone(), name });
            self.dirty.insert(uid.clone());
        }
    }

    fn desire_again(&mut self, uid: &Uid, pod: Rc<Pod>) {
        let Some(worker) = self.workers.get_mut(uid) else { return };
        if worker.is_up_to_date_again(&pod) {
            self.outdated.remove(uid);
            self.room_changed();
        }
        let Some(worker) = self.workers.get_mut(uid) else { return };
        let name = worker.name.clone();
        // It is desired again while it terminates (W6), or it changed under a fixed UID (D3).
        if worker.is_other_than(&pod) {
            let another = name != pod.name;
            worker.restart = Some(pod);
            worker.desired = true;
            self.with_worker(uid, |worker, _, ctx| {
                // A9 applies only to the pod that was preempted.
                if another {
                    worker.release(TerminationSource::Preemption, ctx);
                }
            });
            if !self.outdate(uid) {
                self.with_worker(uid, |worker, entry, ctx| worker.replace(entry, ctx));
            }
            self.outbox.push(Effect::Publish { uid: uid.clone(), name });
            self.dirty.insert(uid.clone());
        } else if worker.pod.as_ref().is_some_and(|p| p.source != pod.source) {
            // The same pod in another file.
            worker.pod = Some(pod);
        }
    }

    /// W22: adds a worker, behind the pods with the same full name (W8). `place`: the place of the worker that it
    /// replaces under its UID (A1).
    pub(super) fn add_worker(&mut self, pod: Rc<Pod>, place: Option<u64>) {
        let (uid, name) = (pod.uid.clone(), pod.name.clone());
        // For a new pod the runtime has nothing, so that no status read has to precede its start. A UID from the
        // manifest is an exception: another owner may use it since the last list (W21).
        let nothing = self.pleg.knows_nothing_of(&uid) && !pod.has_own_uid();
        let entry = if nothing { Entry::empty(self.generation) } else { Entry::default() };
        let (start, first_attempt) = (self.now.wall, self.pleg.without_worker().first_attempt(&uid));
        self.insert_worker(&uid, entry, Worker::new(pod, start, self.now));
        let refused = !self.may_begin(&uid);
        if let Some(worker) = self.workers.get_mut(&uid) {
            worker.begin_at(first_attempt);
            worker.place = place.unwrap_or(worker.place);
            // A pod that runs without a record counts as admitted.
            if self.pleg.without_worker().unclaimed().get(&uid).is_some_and(|shown| shown.runs) {
                worker.admit();
            }
        }
        if refused {
            self.with_worker(&uid, |worker, _, ctx| worker.reject(Cause::node_shutdown(), ctx));
        }
        self.queue_for_name(&uid, name);
        self.admitting.new.push(uid);
    }

    /// S4: during a shutdown only pods that may already be running start.
    pub(super) fn may_begin(&self, uid: &Uid) -> bool {
        // (Meanwhile only pods that were found running are admitted.)
        let runs = || self.workers.get(uid).is_some_and(|w| w.was_begun() || w.is_admitted());
        !self.shutdown.is_on() || runs() || !self.pleg.knows_nothing_of(uid)
    }

    /// W8: first come first served.
    pub(super) fn queue_for_name(&mut self, uid: &Uid, name: FullName) {
        let queue = self.names.entry(name).or_default();
        queue.push_back(uid.clone());
        if queue.len() == 1 {
            self.begin(uid);
        }
        self.room_changed();
        self.dirty.insert(uid.clone());
    }

    pub(super) fn add_orphan(&mut self, uid: &Uid, name: FullName, grace: Duration) {
        let worker = Worker::orphan(uid.clone(), name.clone(), grace, self.now);
        self.insert_worker(uid, Entry::default(), worker);
        self.names.entry(name).or_default().push_back(uid.clone());
        self.put_first(uid);
        self.dirty.insert(uid.clone());
    }

    /// W8: a running pod takes its name before a pod that has not started.
    pub(super) fn put_first(&mut self, uid: &Uid) {
        let Some(name) = self.workers.get(uid).map(|w| w.name.clone()) else { return };
        let first = self.names.get(&name).and_then(|q| q.front()).cloned();
        let Some(first) = first.filter(|first| first != uid) else { return };
        let begins = self.wait_again(&first);
        let Some(queue) = self.names.get_mut(&name) else { return };
        queue.retain(|u| u != uid);
        queue.insert(usize::from(!begins), uid.clone());
        if begins && let Some(worker) = self.workers.get_mut(uid) {
            // A running pod counts as admitted.
            worker.admit();
            worker.begin();
            self.dirty.insert(uid.clone());
        }
        self.room_changed();
    }

    /// Sends a worker that has started nothing back to waiting. False if it has started something.
    fn wait_again(&mut self, uid: &Uid) -> bool {
        let nothing = self.pleg.cache().get(uid).is_none_or(|e| e.facts().sandboxes.is_empty());
        self.workers.get_mut(uid).is_some_and(|w| nothing && w.wait_again())
    }

    pub(super) fn insert_worker(&mut self, uid: &Uid, entry: Entry, mut worker: Worker) {
        if let Some(leftover) = self.orphaned_directories.take(uid) {
            leftover.hand_over(&mut worker);
        }
        worker.place = self.next_place(&worker);
        self.workers.insert(uid.clone(), worker);
        self.pleg.add(uid.clone(), entry);
    }

    /// W8: the next pod with this name may start.
    pub(super) fn free_name(&mut self, name: &FullName, uid: &Uid) {
        let Some(queue) = self.names.get_mut(name) else { return };
        queue.retain(|u| u != uid);
        match queue.front().cloned() {
            None => {
                self.names.remove(name);
            }
            Some(next) => {
                self.begin(&next);
            }
        }
    }
}
