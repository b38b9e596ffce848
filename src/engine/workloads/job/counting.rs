//! Counts the results of a Job's pods, and the pods of its status.

use super::failure::{self, FailureVerdict};
use super::phase::{JobEnd, JobPhase};
use super::tally::PodResult;
use super::{JobCounts, JobRun};
use crate::api::k8s::PodStatus;
use crate::api::names::{FullName, Uid};
use crate::api::ordered::OrderSlice;
use crate::api::workload::job::Completions;
use crate::api::workload::job_pod;
use crate::engine::workloads::inputs::WorkloadInputs;
use crate::engine::workloads::revision::SeenEnd;

/// *(ours)* The number of pods that have ended and stay visible.
const ENDED: usize = 10;

/// A result that is not counted yet.
struct NewResult {
    uid: Uid,
    index: Option<u32>,
    result: PodResult,
}

impl JobRun {
    /// Counts the pods that have ended, and those that a user has deleted, which have failed.
    pub(super) fn count_results(&mut self, inputs: &WorkloadInputs<'_>) {
        let limit = self.job.backoff_limit_per_index();
        for NewResult { uid, index, result } in self.new_results(inputs) {
            if let PodResult::Failed(FailureVerdict::FailJob(why)) = &result
                && self.phase == JobPhase::Active
            {
                let end = JobEnd::failed("PodFailurePolicy", why.clone(), inputs.now.wall);
                self.phase = JobPhase::Ending(end);
            }
            if result != PodResult::Succeeded {
                self.last_failure = Some(inputs.now.boot);
                self.last_failures.extend(index.map(|index| (index, inputs.now.boot)));
            }
            self.tally.count(&uid, index, &result, limit);
            self.changed();
        }
        let tally = &self.tally;
        self.last_failures.retain(|index, _| tally.is_open(*index));
    }

    fn new_results(&self, inputs: &WorkloadInputs<'_>) -> Vec<NewResult> {
        let mut results = Vec::new();
        for (uid, replica) in self.replicas().filter(|(uid, _)| !self.tally.has_counted(uid)) {
            let end = (inputs.seen)(uid).map_or(SeenEnd::Open, |seen| seen.end);
            let result = match end {
                SeenEnd::Open => continue,
                // *(ours)* In a cluster, the pod would wait for a node that has room.
                SeenEnd::Rejected => PodResult::Failed(FailureVerdict::Ignore),
                SeenEnd::Ended => self.result(&replica.pod.name, (inputs.status)(uid)),
            };
            results.push(NewResult { uid: uid.clone(), index: job_pod::index_of(&replica.pod), result });
        }
        let leaving = self.state.history.revisions.iter().flat_map(|revision| &revision.leaving);
        for (uid, name) in leaving.filter(|(uid, _)| !self.tally.has_counted(uid)) {
            let has_succeeded = (inputs.status)(uid).is_some_and(has_succeeded);
            let result = if has_succeeded { PodResult::Succeeded } else { PodResult::Failed(FailureVerdict::Count) };
            results.push(NewResult { uid: uid.clone(), index: self.index_in(name), result });
        }
        results
    }

    fn result(&self, pod: &FullName, status: Option<&PodStatus>) -> PodResult {
        match status {
            Some(status) if has_succeeded(status) => PodResult::Succeeded,
            Some(status) => PodResult::Failed(failure::judge(self.job.failure_rules(), pod, status)),
            None => PodResult::Failed(FailureVerdict::Count),
        }
    }

    /// Returns the index in the name of a pod.
    fn index_in(&self, pod: &FullName) -> Option<u32> {
        match self.job.completions() {
            Completions::Indexed(_) => job_pod::index_in_name(&pod.name),
            Completions::Any | Completions::Number(_) => None,
        }
    }

    /// Deletes the oldest pods that have ended, once their results are on disk. Returns true if there were any.
    pub(super) fn forget_pods(&mut self) -> bool {
        let mut ended: Vec<(u64, Uid)> = Vec::new();
        for (uid, replica) in self.replicas().filter(|(uid, _)| self.tally.has_counted(uid)) {
            ended.push((replica.number, uid.clone()));
        }
        ended.order();
        let surplus = if self.state.is_recorded() { ended.len().saturating_sub(ENDED) } else { 0 };
        for (_, uid) in ended.into_iter().take(surplus) {
            self.state.history.delete(&uid);
        }
        let history = &self.state.history;
        if self.tally.forget(|uid| history.has(uid)) {
            self.state.record_changed();
        }
        surplus > 0
    }

    /// Counts the pods of the status.
    pub(super) fn count_pods(&mut self) {
        let active = self.active_pods();
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let counts = JobCounts {
            active: number(active.len()),
            ready: number(active.iter().filter(|pod| pod.state.is_ready()).count()),
            terminating: number(self.leaving()),
        };
        if self.counts != counts {
            self.counts = counts;
            self.state.shown_changed();
        }
    }
}

fn has_succeeded(status: &PodStatus) -> bool {
    status.phase.as_deref() == Some("Succeeded")
}
