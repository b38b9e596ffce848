//! Validation of a complete CronJob, with the messages of Kubernetes.

use super::complaints::one_of;
use super::{data_metadata, job, workload};
use crate::api::k8s::{CronJob, CronJobSpec, Job, JobTemplateSpec, ObjectMeta};
use crate::api::problem::{At, Fault, Faults, FieldStep};
use crate::api::workload::cron_job::MAX_NAME;
use crate::api::workload::job as job_type;
use crate::api::workload::schedule::Schedule;

/// A rule of ours: the maximum number of Jobs that stay after their end. Each needs memory.
const MAX_HISTORY: i32 = 100;

pub(crate) fn cron_job(of: &CronJob) -> Vec<Fault> {
    let mut faults = Faults::default();
    data_metadata(&of.metadata, "cronjob", &mut faults);
    let root = At::Root;
    if let Some(name) = of.metadata.name.as_deref().filter(|name| name.len() > MAX_NAME) {
        let at = root.field("metadata");
        faults.invalid(at.field("name"), name, format_args!("must be no more than {MAX_NAME} characters"));
    }
    let Some(spec) = &of.spec else { return faults.0 };
    let at = root.field("spec");
    schedule(spec, at, &mut faults);
    let policy = spec.concurrency_policy.as_deref();
    one_of(policy, &["Allow", "Forbid", "Replace"], at.field("concurrencyPolicy"), &mut faults);
    let limits = [
        ("failedJobsHistoryLimit", spec.failed_jobs_history_limit),
        ("successfulJobsHistoryLimit", spec.successful_jobs_history_limit),
    ];
    workload::not_negative(&limits, at, &mut faults);
    for (field, limit) in limits {
        if let Some(limit) = limit.filter(|limit| *limit > MAX_HISTORY) {
            faults.invalid(at.field(field), limit, format_args!("must be at most {MAX_HISTORY} on one machine"));
        }
    }
    if let Some(seconds) = spec.starting_deadline_seconds.filter(|seconds| *seconds < 0) {
        faults.invalid(at.field("startingDeadlineSeconds"), seconds, "must be greater than or equal to 0");
    }
    job_template(&spec.job_template, at.field("jobTemplate"), &mut faults);
    faults.0
}

fn schedule(spec: &CronJobSpec, at: At<'_>, faults: &mut Faults) {
    let text = spec.schedule.as_str();
    if text.is_empty() {
        faults.required(at.field("schedule"), "for example \"30 6 * * mon-fri\" or \"@daily\"");
    } else if text.contains("TZ") {
        let message = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
        faults.invalid(at.field("schedule"), text, message);
    } else if let Err(why) = Schedule::parse(text) {
        faults.invalid(at.field("schedule"), text, why);
    }
    if let Some(zone) = &spec.time_zone {
        time_zone(zone, at.field("timeZone"), faults);
    }
}

/// Checks the name of a time zone. Whether the machine knows it is seen when its file is read.
fn time_zone(zone: &str, at: At<'_>, faults: &mut Faults) {
    let is_part = |part: &str| {
        let is_valid = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'+');
        !part.is_empty() && part.bytes().all(is_valid)
    };
    if zone.is_empty() {
        faults.invalid(at, zone, "timeZone must be nil or non-empty string");
    } else if zone.eq_ignore_ascii_case("Local") {
        let message = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        faults.invalid(at, zone, message);
    } else if !zone.split('/').all(is_part) {
        faults.invalid(at, zone, "unknown time zone; write a name like \"Europe/Berlin\" or \"Etc/UTC\"");
    }
}

/// Checks the template of the Jobs like a Job.
fn job_template(of: &JobTemplateSpec, at: At<'_>, faults: &mut Faults) {
    let own = of.metadata.clone().unwrap_or_default();
    let metadata = ObjectMeta {
        name: Some("name".to_owned()),
        namespace: Some("default".to_owned()),
        labels: own.labels,
        annotations: own.annotations,
        ..ObjectMeta::default()
    };
    let mut spec = of.spec.clone().unwrap_or_default();
    let at_spec = at.field("spec");
    if spec.selector.take().is_some() {
        faults.invalid(at_spec.field("selector"), "selector", "`selector` will be auto-generated");
    }
    if spec.manual_selector.take() == Some(true) {
        faults.unsupported_value(at_spec.field("manualSelector"), "true", &["false"]);
    }
    let mut object = Job { metadata, spec: Some(spec), status: None };
    job_type::complete(&mut object);
    let front = ["spec", "jobTemplate"].map(|field| FieldStep::Field(field.to_owned()));
    faults.0.extend(job::job(&object).into_iter().map(|mut fault| {
        fault.at.0.splice(0..0, front.clone());
        fault
    }));
}
