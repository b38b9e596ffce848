//! A CronJob (batch/v1): Jobs of a template, at the times of a schedule.

use super::head::WorkloadHead;
use super::job::{self, Job};
use super::key::{WorkloadKey, WorkloadKind};
use super::schedule::Schedule;
use super::template;
use crate::api::defaults;
use crate::api::k8s::{self, ObjectMeta, OwnerReference};
use crate::api::names::FullName;
use crate::api::source::Source;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::time::Duration;

/// The defaults of the API.
const SUCCESSFUL_JOBS: i32 = 3;
const FAILED_JOBS: i32 = 1;
/// The annotation of a Job with the time for which it was scheduled.
pub const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
/// The maximum length of the name. The name of a Job has 11 characters more, and is the value of a label.
pub const MAX_NAME: usize = 52;

/// The names of the time zone that needs no file.
const UTC: [&str; 3] = ["UTC", "Etc/UTC", "GMT"];
/// The message about a time zone that the machine does not have.
pub const UNKNOWN_ZONE: &str =
    "this machine does not have the time zone; correct the name, or install the package tzdata";

/// A valid CronJob of a manifest.
#[derive(Clone, Debug, PartialEq)]
pub struct CronJob {
    pub head: WorkloadHead,
    /// With all defaults, except for the template of the pods, which is empty.
    pub object: k8s::CronJob,
    /// None: the schedule of a recorded version is not valid any more.
    pub schedule: Option<Schedule>,
}

/// What happens at the time of a Job while an earlier one is active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Concurrency {
    Allow,
    Forbid,
    Replace,
}

/// Fills in the defaults of the API.
pub fn complete(object: &mut k8s::CronJob) {
    defaults::namespace(&mut object.metadata);
    let spec = object.spec.get_or_insert_default();
    spec.concurrency_policy.get_or_insert_with(|| "Allow".to_owned());
    spec.suspend.get_or_insert(false);
    spec.successful_jobs_history_limit.get_or_insert(SUCCESSFUL_JOBS);
    spec.failed_jobs_history_limit.get_or_insert(FAILED_JOBS);
    template::complete(&mut spec.job_template.spec.get_or_insert_default().template);
}

/// Returns true for the time zone that needs no file.
pub fn is_utc(zone: &str) -> bool {
    UTC.contains(&zone)
}

impl CronJob {
    /// Makes a CronJob of a complete, valid object.
    pub fn new(mut object: k8s::CronJob, source: Source, digest: String) -> CronJob {
        let spec = object.spec.as_mut();
        let schedule = spec.as_ref().and_then(|spec| Schedule::parse(&spec.schedule).ok());
        let of_pods = spec.and_then(|spec| spec.job_template.spec.as_mut()).map(|spec| &mut spec.template);
        let of_pods = of_pods.map(std::mem::take).unwrap_or_default();
        let head = WorkloadHead::new(WorkloadKind::CronJob, &mut object.metadata, of_pods, source, digest);
        CronJob { head, object, schedule }
    }

    fn spec(&self) -> &k8s::CronJobSpec {
        static EMPTY: std::sync::LazyLock<k8s::CronJobSpec> = std::sync::LazyLock::new(k8s::CronJobSpec::default);
        self.object.spec.as_ref().unwrap_or(&EMPTY)
    }

    /// Returns the name of the time zone. None: that of the machine.
    pub fn time_zone(&self) -> Option<&str> {
        self.spec().time_zone.as_deref()
    }

    pub fn is_suspended(&self) -> bool {
        self.spec().suspend == Some(true)
    }

    pub fn concurrency(&self) -> Concurrency {
        match self.spec().concurrency_policy.as_deref() {
            Some("Forbid") => Concurrency::Forbid,
            Some("Replace") => Concurrency::Replace,
            _ => Concurrency::Allow,
        }
    }

    /// Returns how late a Job may start.
    pub fn starting_deadline(&self) -> Option<Duration> {
        self.spec().starting_deadline_seconds.and_then(|n| u64::try_from(n).ok()).map(Duration::from_secs)
    }

    /// Returns the number of Jobs that stay after they have succeeded, or failed.
    pub fn history_limit(&self, succeeded: bool) -> usize {
        let spec = self.spec();
        let limit = if succeeded { spec.successful_jobs_history_limit } else { spec.failed_jobs_history_limit };
        limit.and_then(|n| usize::try_from(n).ok()).unwrap_or_default()
    }

    /// Returns the identity of the Job of a time.
    pub fn job_key(&self, at: Timestamp) -> WorkloadKey {
        let FullName { namespace, name } = self.head.name();
        WorkloadKey::new(WorkloadKind::Job, FullName::new(namespace, &format!("{name}-{}", self.number(at))))
    }

    /// Makes the Job of a time.
    pub fn job(&self, at: Timestamp, zone: &TimeZone) -> Job {
        let WorkloadHead { key, uid, template, source, .. } = &self.head;
        let WorkloadKey { name, .. } = self.job_key(at);
        let of_jobs = &self.spec().job_template;
        let metadata = of_jobs.metadata.clone().unwrap_or_default();
        let mut annotations = metadata.annotations.unwrap_or_default();
        let scheduled = at.to_zoned(zone.clone()).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string();
        annotations.insert(SCHEDULED.to_owned(), scheduled.replace("+00:00", "Z"));
        let metadata = ObjectMeta {
            name: Some(name.name.to_string()),
            namespace: Some(name.namespace.to_string()),
            labels: metadata.labels,
            annotations: Some(annotations),
            owner_references: Some(vec![OwnerReference {
                api_version: WorkloadKind::CronJob.api_version().to_owned(),
                kind: WorkloadKind::CronJob.name().to_owned(),
                name: key.name.name.to_string(),
                uid: uid.to_string(),
                controller: Some(true),
                block_owner_deletion: Some(true),
            }]),
            ..ObjectMeta::default()
        };
        let spec = k8s::JobSpec { template: (**template).clone(), ..of_jobs.spec.clone().unwrap_or_default() };
        let mut object = k8s::Job { metadata, spec: Some(spec), status: None };
        job::complete(&mut object);
        let mut job = Job::created(object, source.clone(), key.clone());
        // All Jobs share the template.
        if job.head.hash == self.head.hash {
            job.head.template = template.clone();
        }
        job
    }

    /// Returns the number in the name of the Job of a time: as in a cluster, the minutes since 1970. With an interval
    /// of less than a minute, it is the seconds: in a cluster, only the first Job of a minute is created.
    fn number(&self, at: Timestamp) -> i64 {
        let is_short = |interval: &Duration| interval.as_secs() < 60;
        match &self.schedule {
            Some(Schedule::Every(interval)) if is_short(interval) => at.as_second(),
            _ => at.as_second().div_euclid(60),
        }
    }
}
