//! A Job as an object of the API.

use super::JobRun;
use super::phase::JobPhase;
use crate::api::k8s::{self, DeploymentCondition, JobCondition, JobStatus, UncountedTerminatedPods};
use crate::api::time::Wall;
use crate::engine::workloads::controller::Controller;
use crate::engine::workloads::progress::whole;
use crate::engine::workloads::shown_fields::{complete, shown_template, some};

/// Returns a Job with its status.
pub fn job(run: &JobRun) -> k8s::Job {
    let mut object = run.job().object.clone();
    complete(&mut object.metadata, run.state());
    let own = run.job().own_labels();
    let labels: Vec<(&str, &str)> = own.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    if let Some(spec) = &mut object.spec {
        spec.template = shown_template(&run.job().head.template, &labels);
        spec.selector = Some(run.job().selector().clone());
    }
    let (counts, tally) = (run.counts(), run.tally());
    let time = |at: Wall| at.timestamp().map(whole);
    let ended = if let JobPhase::Ended(end, at) = run.phase() { Some((end, *at)) } else { None };
    let has_limit = run.job().backoff_limit_per_index().is_some();
    object.status = Some(JobStatus {
        active: some(counts.active),
        completed_indexes: Some(tally.completed_indexes.to_string()).filter(|text| !text.is_empty()),
        completion_time: ended.filter(|(end, _)| end.is_success).and_then(|(_, at)| time(at)),
        conditions: Some(job_conditions(run)).filter(|all| !all.is_empty()),
        failed: some(tally.failed),
        failed_indexes: has_limit.then(|| tally.failed_indexes.to_string()),
        ready: i32::try_from(counts.ready).ok(),
        start_time: run.started().and_then(time),
        succeeded: some(tally.succeeded),
        terminating: i32::try_from(counts.terminating).ok(),
        uncounted_terminated_pods: Some(UncountedTerminatedPods::default()),
    });
    object
}

/// Returns the conditions of a Job: first the result that is being reached, then the result.
fn job_conditions(run: &JobRun) -> Vec<JobCondition> {
    let suspended = run.suspension().map(|condition| {
        let DeploymentCondition { last_transition_time, message, reason, status, type_, .. } =
            condition.object("Suspended");
        JobCondition {
            last_probe_time: last_transition_time.clone(),
            last_transition_time,
            message,
            reason,
            status,
            type_,
        }
    });
    let (end, ended) = match run.phase() {
        JobPhase::Active => return suspended.into_iter().collect(),
        JobPhase::Ending(end) => (end, None),
        JobPhase::Ended(end, at) => (end, Some(*at)),
    };
    let types = if end.is_success { ["SuccessCriteriaMet", "Complete"] } else { ["FailureTarget", "Failed"] };
    let of_end = types.into_iter().zip([Some(end.known), ended].into_iter().flatten());
    let of_end = of_end.map(|(type_, at)| JobCondition {
        last_probe_time: at.timestamp().map(whole),
        last_transition_time: at.timestamp().map(whole),
        message: Some(end.message.clone()),
        reason: Some(end.reason.clone()),
        status: "True".to_owned(),
        type_: type_.to_owned(),
    });
    suspended.into_iter().chain(of_end).collect()
}
