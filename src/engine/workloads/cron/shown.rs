//! A CronJob as an object of the API.

use super::CronRun;
use crate::api::k8s::{self, CronJobStatus, ObjectReference};
use crate::api::time::Wall;
use crate::api::workload::key::{WorkloadKey, WorkloadKind};
use crate::engine::workloads::controller::Controller;
use crate::engine::workloads::progress::whole;
use crate::engine::workloads::shown_fields::{complete, shown_template};

/// Returns a CronJob with its status.
pub fn cron_job(run: &CronRun) -> k8s::CronJob {
    let mut object = run.cron.object.clone();
    complete(&mut object.metadata, run.state());
    if let Some(spec) = object.spec.as_mut().and_then(|spec| spec.job_template.spec.as_mut()) {
        spec.template = shown_template(&run.cron.head.template, &[]);
    }
    let time = |at: Option<Wall>| at.and_then(Wall::timestamp).map(whole);
    object.status = Some(CronJobStatus {
        active: Some(run.active.iter().map(reference).collect()).filter(|all: &Vec<_>| !all.is_empty()),
        last_schedule_time: time(run.last),
        last_successful_time: time(run.last_success),
    });
    object
}

fn reference(job: &WorkloadKey) -> ObjectReference {
    ObjectReference {
        api_version: Some(WorkloadKind::Job.api_version().to_owned()),
        kind: Some(WorkloadKind::Job.name().to_owned()),
        name: Some(job.name.name.to_string()),
        namespace: Some(job.name.namespace.to_string()),
        uid: Some(job.uid().to_string()),
        ..ObjectReference::default()
    }
}
