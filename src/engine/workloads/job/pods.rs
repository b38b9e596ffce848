//! Creates and deletes the pods of a Job.

use super::JobRun;
use crate::api::names::Uid;
use crate::api::ordered::OrderSlice;
use crate::api::pod::Pod;
use crate::api::time::Boot;
use crate::api::workload::job::Completions;
use crate::api::workload::job_pod;
use crate::api::workload::key::WorkloadKind;
use crate::api::workload::replica::PodOwner;
use crate::engine::workloads::inputs::{NameEnd, WorkloadInputs, create_pod};
use crate::engine::workloads::revision::{Replica, ReplicaState};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::rc::Rc;

/// A pod that is not deleted and whose result is not known.
pub(super) struct ActivePod {
    pub(super) uid: Uid,
    pub(super) index: Option<u32>,
    pub(super) state: ReplicaState,
    /// The position in the order of creation.
    number: u64,
}

impl JobRun {
    pub(super) fn active_pods(&self) -> Vec<ActivePod> {
        let active = self.replicas().filter(|(uid, _)| !self.tally.has_counted(uid));
        let pod = |(uid, replica): (&Uid, &Replica)| ActivePod {
            uid: uid.clone(),
            index: job_pod::index_of(&replica.pod),
            state: replica.state,
            number: replica.number,
        };
        active.map(pod).collect()
    }

    pub(super) fn has_active_pods(&self) -> bool {
        self.replicas().any(|(uid, _)| !self.tally.has_counted(uid))
    }

    /// Returns the number of deleted pods that are still terminating.
    pub(super) fn leaving(&self) -> usize {
        self.state.history.revisions.iter().map(|revision| revision.leaving.len()).sum()
    }

    /// Creates and deletes pods of an active Job. Returns true if there were any.
    pub(super) fn manage_pods(&mut self, room: &mut usize, inputs: &mut WorkloadInputs<'_>) -> bool {
        if self.job.is_suspended() {
            return self.end_pods(false, inputs);
        }
        let active = self.active_pods();
        let wanted = self.wanted(active.len());
        let surplus = self.surplus(active, wanted);
        if !surplus.is_empty() {
            for uid in surplus {
                self.delete(&uid, false, inputs);
            }
            return true;
        }
        self.create(wanted, room, inputs)
    }

    /// Returns how many pods may be active.
    fn wanted(&self, active: usize) -> usize {
        let size = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        let parallelism = size(self.job.parallelism());
        match self.job.completions() {
            Completions::Any if self.tally.succeeded > 0 => active,
            Completions::Any => parallelism,
            Completions::Number(number) | Completions::Indexed(number) => {
                size(number.saturating_sub(self.tally.succeeded)).min(parallelism)
            }
        }
    }

    /// Returns the pods above the number that may be active, in the order of the Job controller: those with an index
    /// that the Job no longer has, those that do not run, those that are not ready, and the newest.
    fn surplus(&self, mut active: Vec<ActivePod>, wanted: usize) -> Vec<Uid> {
        let has_no_place = |pod: &ActivePod| match self.job.completions() {
            Completions::Indexed(number) => pod.index.is_none_or(|index| index >= number),
            Completions::Any | Completions::Number(_) => false,
        };
        let rank = |pod: &ActivePod| match pod.state {
            ReplicaState::Ended | ReplicaState::Pending => 0,
            ReplicaState::Running { .. } => 1,
            ReplicaState::Ready { .. } => 2,
        };
        let misplaced = active.iter().filter(|pod| has_no_place(pod)).count();
        let surplus = active.len().saturating_sub(wanted).max(misplaced);
        active.order_by_key(|pod| (!has_no_place(pod), rank(pod), Reverse(pod.number)));
        active.into_iter().take(surplus).map(|pod| pod.uid).collect()
    }

    /// Creates the pods that are missing, unless a failure was too short ago.
    fn create(&mut self, wanted: usize, room: &mut usize, inputs: &mut WorkloadInputs<'_>) -> bool {
        let mut there = self.active_pods().len();
        if self.job.replaces_failed_only() {
            there += self.leaving();
        }
        let subject = self.subject();
        let mut changed = false;
        for index in self.next_indexes(wanted.saturating_sub(there), inputs.now.boot) {
            match self.new_pod(index, room, inputs) {
                Ok(pod) => {
                    self.state.add(0, pod, &subject, inputs.outbox);
                    changed = true;
                }
                Err(why) => {
                    self.state.note_failure(Some((subject, why)), inputs);
                    return changed;
                }
            }
        }
        self.state.note_failure(None, inputs);
        changed
    }

    /// Returns the indexes of up to `count` pods that may be created now: the lowest ones without a pod, a success or a
    /// failure. None: a Job without indexes.
    fn next_indexes(&self, count: usize, now: Boot) -> Vec<Option<u32>> {
        let is_over = |until: Option<Boot>| until.is_none_or(|at| at <= now);
        let per_index = self.job.backoff_limit_per_index().is_some();
        if count == 0 || !per_index && !is_over(self.delayed_until()) {
            return Vec::new();
        }
        let Completions::Indexed(number) = self.job.completions() else { return vec![None; count] };
        let taken: BTreeSet<u32> = self.active_pods().into_iter().filter_map(|pod| pod.index).collect();
        let may_start = |index: &u32| !per_index || is_over(self.index_delayed_until(*index));
        let is_free = |index: &u32| self.tally.is_open(*index) && !taken.contains(index) && may_start(index);
        (0..number).filter(is_free).take(count).map(Some).collect()
    }

    /// Returns until when no pod is created after the last failure. None: now.
    pub(super) fn delayed_until(&self) -> Option<Boot> {
        Some(self.last_failure? + self.tally.delay())
    }

    /// Returns until when no pod of this index is created, if there is a limit for each index.
    pub(super) fn index_delayed_until(&self, index: u32) -> Option<Boot> {
        Some(*self.last_failures.get(&index)? + self.tally.index_delay(index))
    }

    fn new_pod(
        &self,
        index: Option<u32>,
        room: &mut usize,
        inputs: &mut WorkloadInputs<'_>,
    ) -> Result<Rc<Pod>, String> {
        let Some(revision) = self.state.history.revisions.first() else {
            return Err("the Job has no template".to_owned());
        };
        let owner = PodOwner {
            kind: WorkloadKind::Job,
            name: &self.job.head.key.name,
            uid: &self.job.head.uid,
            hash: None,
            source: &self.job.head.source,
        };
        let end = index.map_or(NameEnd::Random, NameEnd::Indexed);
        let pod = create_pod(owner, revision, end, room, inputs)?;
        Ok(Rc::new(job_pod::identified(Rc::unwrap_or_clone(pod), &self.job, index)))
    }

    /// Deletes a pod. `counts`: as a failure.
    fn delete(&mut self, uid: &Uid, counts: bool, inputs: &mut WorkloadInputs<'_>) {
        if !counts {
            self.tally.disregard(uid);
            self.state.record_changed();
        }
        let subject = self.subject();
        self.state.delete(uid, &subject, inputs.outbox);
    }

    /// Deletes all active pods. `counts`: as failures. Returns true if there were any.
    pub(super) fn end_pods(&mut self, counts: bool, inputs: &mut WorkloadInputs<'_>) -> bool {
        let active = self.active_pods();
        for pod in &active {
            self.delete(&pod.uid, counts, inputs);
        }
        if counts && !active.is_empty() {
            self.count_results(inputs);
        }
        !active.is_empty()
    }
}
