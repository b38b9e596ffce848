//! The objects that create pods: Deployments, DaemonSets, Jobs, ReplicaSets and StatefulSets, and CronJobs, which
//! create Jobs (`created_jobs`). Each has a controller in
//! a file with its name (`controller` is what they have in common), which owns the `history` of its revisions and their
//! pods. `rolling` is the arithmetic of a roll-out, `progress` has the conditions, `record` what the disk keeps, and
//! `shown` the objects that the API shows.
//!
//! The manifests define the workloads. The pods that a controller creates are desired like the pods of manifests
//! (`engine/desired`), and their workers know nothing of it.

pub mod any_controller;
pub mod controller;
mod created_jobs;
pub mod cron;
pub mod daemon_set;
pub mod deployment;
pub mod history;
pub mod inputs;
pub mod job;
pub mod progress;
pub mod record;
mod removed_records;
pub mod replica_set;
pub mod revision;
pub mod rolling;
pub mod shown;
mod shown_fields;
pub mod stateful_set;

use crate::api::names::{FullName, Uid};
use crate::api::ordered::OrderSlice;
use crate::api::pod::Pod;
use crate::api::reason::Reason;
use crate::api::time::{Boot, Now};
use crate::api::workload::key::{WorkloadKey, WorkloadKind};
use crate::api::workload::{Workload, replica};
use crate::engine::effect::{RecordChange, Severity};
use crate::engine::event::Answer;
use crate::engine::op::OpError;
use crate::engine::outbox::Outbox;
use crate::engine::owner::Owner;
use any_controller::AnyController;
use controller::ControllerState;
use inputs::{MAX_PODS, WorkloadInputs};
use record::StoredWorkload;
use removed_records::RemovedRecords;
use revision::Revision;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

#[derive(Debug, Default, Serialize)]
pub struct Workloads {
    #[serde(serialize_with = "controllers")]
    all: BTreeMap<WorkloadKey, AnyController>,
    /// The records of workloads, until the manifests are known.
    #[serde(skip)]
    stored: BTreeMap<WorkloadKey, StoredWorkload>,
    /// The workloads to step: their manifest has changed, or one of their pods.
    #[serde(skip)]
    touched: BTreeSet<WorkloadKey>,
    /// The records of workloads that are gone.
    removed: RemovedRecords,
    /// Counts the changes of the set of workloads.
    version: u64,
    /// The version that was published last.
    published: u64,
}

impl Workloads {
    /// Takes the records that were found at the start. An unusable record is moved aside.
    pub fn records_found<'r>(&mut self, records: impl Iterator<Item = (&'r str, &'r str)>, outbox: &mut Outbox) {
        for (key, value) in records {
            match record::read(key, value) {
                None => {}
                Some(Ok(stored)) => {
                    self.stored.insert(stored.key.clone(), stored);
                }
                Some(Err(why)) => {
                    let message = format!("record {key} is unusable: {why}; moving it aside");
                    outbox.emit_node_event(Severity::Warning, Reason::BadRecord, message);
                    let change = RecordChange::SetAside { key: key.to_owned() };
                    outbox.record(Owner::Worker(Uid::from("")), change);
                }
            }
        }
    }

    /// Takes the workloads that are in force. All of them are stepped next, because a class that was missing may exist
    /// now.
    pub fn change(&mut self, workloads: &[Workload], now: Now, outbox: &mut Outbox) {
        let mut before = std::mem::take(&mut self.all);
        for workload in workloads {
            let key = workload.head().key.clone();
            // Of two documents with the same name, the first is in force (D6).
            if self.all.contains_key(&key) {
                continue;
            }
            let controller = match before.remove(&key) {
                Some(mut controller) => {
                    controller.change(workload);
                    controller
                }
                None => {
                    self.version += 1;
                    AnyController::new(workload, self.stored.remove(&key), now, outbox)
                }
            };
            self.removed.is_back(&key);
            self.touched.insert(key.clone());
            self.all.insert(key, controller);
        }
        self.keep_created(&mut before);
        self.restore_created(now, outbox);
        self.version += before.values().map(|one| one.get().state().version() + 1).sum::<u64>();
        for key in before.into_keys().chain(std::mem::take(&mut self.stored).into_keys()) {
            self.removed.remove(key, now.boot, outbox);
        }
    }

    /// Takes over the pods of earlier runs, in the order of their creation. The second value of a pair: the pod was
    /// deleted.
    pub fn adopt<'p>(&mut self, recorded: impl Iterator<Item = (&'p Rc<Pod>, bool)>, now: Now) {
        let mut pods: Vec<(&Rc<Pod>, bool)> = recorded.collect();
        pods.order_by_key(|(pod, _)| replica::created(pod));
        for (pod, is_deleted) in pods {
            let owner = self.all.values_mut().find_map(|one| Some((one.get().revision_of(pod)?, one)));
            if let Some((hash, controller)) = owner {
                controller.get_mut().adopt(&hash, pod, is_deleted, now);
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Notes that the published state of a pod has changed.
    pub fn pod_changed(&mut self, uid: &Uid) {
        let of_pod = self.all.iter().find(|(_, one)| one.get().state().history.has(uid));
        if let Some((key, _)) = of_pod {
            self.touched.insert(key.clone());
        }
    }

    /// Reports whether a pod belongs to this workload, or to a Job that it has created.
    pub fn owns(&self, key: &WorkloadKey, pod: &Uid) -> bool {
        let is_of = |other: &WorkloadKey, one: &AnyController| other == key || one.creator() == Some(key);
        self.all.iter().any(|(other, one)| is_of(other, one) && one.get().state().history.has(pod))
    }

    /// Notes that the labels or the taints of the node have changed, on which the pods of DaemonSets depend.
    pub fn node_changed(&mut self) {
        self.touched.extend(self.all.keys().filter(|key| key.kind == WorkloadKind::DaemonSet).cloned());
    }

    /// Steps the workloads that need it. Returns true if pods were created or deleted.
    pub fn step(&mut self, inputs: &mut WorkloadInputs<'_>) -> bool {
        // What another workload does may make room for a pod.
        let has_events = !self.touched.is_empty();
        let is_due = |state: &ControllerState| {
            let on_time = state.next_step().is_some_and(|at| at <= inputs.now.boot);
            on_time || has_events && state.failure().is_some()
        };
        let due = self.all.iter().filter(|(_, one)| is_due(one.get().state()));
        self.touched.extend(due.map(|(key, _)| key.clone()));
        let touched = std::mem::take(&mut self.touched);
        let mut changed = false;
        for (_, one) in self.all.iter_mut().filter(|(key, _)| touched.contains(*key)) {
            changed |= one.get_mut().observe(inputs);
        }
        let there = self.all.values().map(|one| one.get().state().history.pods_there()).sum();
        let mut room = MAX_PODS.saturating_sub(there);
        for (_, one) in self.all.iter_mut().filter(|(key, _)| touched.contains(*key)) {
            changed |= one.get_mut().step(&mut room, inputs);
        }
        changed | self.schedule(&touched, inputs)
    }

    /// Writes the records that have to be written. That of a CronJob waits for those of its Jobs: it says which of them
    /// exist.
    pub fn write_records(&mut self, now: Boot, outbox: &mut Outbox) {
        self.removed.retry(now, outbox);
        let waiting = self.creators_of_unrecorded();
        for (key, one) in self.all.iter_mut().filter(|(key, _)| !waiting.contains(key)) {
            if one.get_mut().state_mut().begins_record(now) {
                let change = RecordChange::Put { key: record::key(key), value: one.get().record() };
                outbox.record(Owner::Workload(key.clone()), change);
            }
        }
    }

    /// Handles the end of writing the record of a workload.
    pub fn recorded(&mut self, key: &WorkloadKey, well: bool, now: Boot) {
        let Some(one) = self.all.get_mut(key) else { return };
        one.get_mut().state_mut().recorded(well, now);
        // A Job forgets pods whose results are on disk.
        if let AnyController::Job(_) = one {
            self.touched.insert(key.clone());
        }
    }

    /// Handles the end of deleting the record of a workload that is gone.
    pub fn record_removed(&mut self, key: &WorkloadKey, well: bool, now: Boot) {
        self.removed.ended(key, well, now);
    }

    /// Handles the end of removing the manifest of a workload.
    pub fn manifest_removed(
        &mut self,
        key: &WorkloadKey,
        result: Result<Answer, OpError>,
        now: Now,
        outbox: &mut Outbox,
    ) {
        if let Some(AnyController::Job(run)) = self.all.get_mut(key) {
            run.manifest_removed(result.err().map(|why| why.to_string()), now, outbox);
        }
    }

    /// Deletes a pod because a user asks for it. Returns false if it belongs to no workload.
    pub fn delete(&mut self, uid: &Uid) -> bool {
        let mut all = self.all.iter_mut();
        let deleted = all.find_map(|(key, one)| {
            let history = &mut one.get_mut().state_mut().history;
            history.delete(uid).map(|_| key.clone())
        });
        self.touched.extend(deleted.clone());
        deleted.is_some()
    }

    /// Returns the pods that are desired now.
    pub fn pods(&self) -> impl Iterator<Item = &Rc<Pod>> {
        self.all.values().flat_map(|one| one.get().state().history.pods())
    }

    pub fn get(&self, key: &WorkloadKey) -> Option<&AnyController> {
        self.all.get(key)
    }

    /// Returns the revision with this name of a workload of this kind, and the controller of the workload.
    pub fn revision(&self, kind: WorkloadKind, name: &FullName) -> Option<(&AnyController, &Revision)> {
        let mut all = self.all.iter().filter(|(key, _)| key.kind == kind);
        all.find_map(|(_, one)| {
            let mut revisions = one.get().state().history.revisions.iter();
            Some((one, revisions.find(|revision| revision.name == *name)?))
        })
    }

    pub fn iter(&self) -> impl Iterator<Item = (&WorkloadKey, &AnyController)> {
        self.all.iter()
    }

    /// Returns true if the API has to show something else than after the last call.
    pub fn take_changed(&mut self) -> bool {
        let version = self.all.values().map(|one| one.get().state().version()).sum::<u64>() + self.version;
        std::mem::replace(&mut self.published, version) != version
    }

    pub fn next_deadline(&self) -> Option<Boot> {
        let steps = self.all.values().filter_map(|one| one.get().state().next_step());
        // A record that waits for others is written when those are.
        let has_failed = self.all.values().any(|one| one.get().state().next_write().is_some());
        let waiting = if has_failed { self.creators_of_unrecorded() } else { BTreeSet::new() };
        let writes = self.all.iter().filter(|(key, _)| !waiting.contains(key));
        let writes = writes.filter_map(|(_, one)| one.get().state().next_write());
        steps.chain(writes).chain(self.removed.next_deadline()).min()
    }
}

/// Writes the controllers by their names, for a dump.
fn controllers<S: serde::Serializer>(all: &BTreeMap<WorkloadKey, AnyController>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(all.iter().map(|(key, one)| (key.to_string(), one)))
}
