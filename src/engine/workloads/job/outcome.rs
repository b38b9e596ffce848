//! Decides whether a Job has ended, with the reasons and messages of the Job controller.

use super::JobRun;
use super::phase::{JobEnd, JobPhase};
use crate::api::k8s::{PodStatus, SuccessPolicyRule};
use crate::api::reason::Reason;
use crate::api::time::{Boot, Wall};
use crate::api::workload::indexes::IndexSet;
use crate::api::workload::job::Completions;
use crate::engine::effect::Severity;
use crate::engine::workloads::inputs::WorkloadInputs;

impl JobRun {
    /// Returns the result of the Job, once it is known. The order of the checks is that of the Job controller.
    pub(super) fn outcome(&self, inputs: &WorkloadInputs<'_>) -> Option<JobEnd> {
        let now = inputs.now;
        if self.tally.failed > self.job.backoff_limit() || self.exceeds_restarts(inputs) {
            let message = "Job has reached the specified backoff limit";
            return Some(JobEnd::failed("BackoffLimitExceeded", message, now.wall));
        }
        if self.deadline().is_some_and(|at| at <= now.boot) {
            let message = "Job was active longer than specified deadline";
            return Some(JobEnd::failed("DeadlineExceeded", message, now.wall));
        }
        self.outcome_of_indexes(now.wall).or_else(|| {
            let message = "Reached expected number of succeeded pods";
            self.is_complete().then(|| JobEnd::succeeded("CompletionsReached", message, now.wall))
        })
    }

    fn is_complete(&self) -> bool {
        let has_enough = match self.job.completions() {
            Completions::Any => self.tally.succeeded > 0,
            Completions::Number(number) | Completions::Indexed(number) => self.tally.succeeded >= number,
        };
        has_enough && !self.has_active_pods()
    }

    fn outcome_of_indexes(&self, now: Wall) -> Option<JobEnd> {
        let Completions::Indexed(number) = self.job.completions() else { return None };
        let failed = u32::try_from(self.tally.failed_indexes.len()).unwrap_or(u32::MAX);
        if self.job.backoff_limit_per_index().is_some() {
            if self.job.max_failed_indexes().is_some_and(|most| failed > most) {
                let message = "Job has exceeded the specified maximal number of failed indexes";
                return Some(JobEnd::failed("MaxFailedIndexesExceeded", message, now));
            }
            if failed > 0 && failed + self.tally.succeeded >= number {
                return Some(JobEnd::failed("FailedIndexes", "Job has failed indexes", now));
            }
        }
        let met = self.job.success_rules().iter().position(|rule| self.meets(rule, number))?;
        Some(JobEnd::succeeded("SuccessPolicy", format!("Matched rules at index {met}"), now))
    }

    /// `number`: that of the completions.
    fn meets(&self, rule: &SuccessPolicyRule, number: u32) -> bool {
        let completed = &self.tally.completed_indexes;
        let count = rule.succeeded_count.and_then(|count| usize::try_from(count).ok());
        match rule.succeeded_indexes.as_deref().map(|text| IndexSet::parse(text, number)) {
            Some(Ok(wanted)) => completed.count_common(&wanted) >= count.unwrap_or(wanted.len()),
            // (After a change of the completions, a rule may name indexes that do not exist.)
            Some(Err(_)) => false,
            None => count.is_some_and(|count| completed.len() >= count),
        }
    }

    /// With restartPolicy OnFailure, the restarts of the containers count as failures.
    fn exceeds_restarts(&self, inputs: &WorkloadInputs<'_>) -> bool {
        let spec = self.job.head.template.spec.as_ref();
        if spec.and_then(|spec| spec.restart_policy.as_deref()) != Some("OnFailure") {
            return false;
        }
        let statuses = self.active_pods().into_iter().filter_map(|pod| (inputs.status)(&pod.uid));
        let restarts = statuses.map(restarts).fold(0, u32::saturating_add);
        match self.job.backoff_limit() {
            0 => restarts > 0,
            limit => restarts >= limit,
        }
    }

    pub(super) fn deadline(&self) -> Option<Boot> {
        let started = self.started.filter(|_| self.phase == JobPhase::Active && !self.job.is_suspended())?;
        Some(started.reaches(self.job.active_deadline()?))
    }

    /// Ends the Job when its result is known and nothing of its pods is left.
    pub(super) fn finish(&mut self, inputs: &mut WorkloadInputs<'_>) {
        let JobPhase::Ending(end) = &self.phase else { return };
        if self.has_active_pods() || self.leaving() > 0 {
            return;
        }
        let end = end.clone();
        let (severity, reason, message) = match end.is_success {
            true => (Severity::Normal, Reason::Completed, "Job completed".to_owned()),
            false => (Severity::Warning, Reason::from_text(&end.reason), end.message.clone()),
        };
        inputs.outbox.emit(self.subject(), severity, reason, message);
        self.set_phase(JobPhase::Ended(end, inputs.now.wall));
    }
}

fn restarts(status: &PodStatus) -> u32 {
    if !matches!(status.phase.as_deref(), Some("Running" | "Pending")) {
        return 0;
    }
    let all = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    all.filter_map(|container| u32::try_from(container.restart_count).ok()).fold(0, u32::saturating_add)
}
