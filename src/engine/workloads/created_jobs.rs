//! The Jobs that CronJobs create. No manifest defines them: their records contain the whole object. They end with their
//! CronJob, or earlier (its history, `ttlSecondsAfterFinished`, a user).

use super::Workloads;
use super::any_controller::AnyController;
use super::controller::Controller;
use super::cron::CronAction;
use super::cron::created::CreatedJob;
use super::inputs::WorkloadInputs;
use super::job::JobRun;
use super::job::phase::StoredCreatedJob;
use super::record::{self, StoredOwn, StoredWorkload};
use crate::api::document::from_value;
use crate::api::k8s;
use crate::api::names::{FullName, Uid};
use crate::api::reason::Reason;
use crate::api::time::{Boot, Now};
use crate::api::workload::job::Job;
use crate::api::workload::key::{WorkloadKey, WorkloadKind};
use crate::engine::effect::{RecordChange, Severity};
use crate::engine::event::Answer;
use crate::engine::op::OpError;
use crate::engine::outbox::Outbox;
use crate::engine::owner::Owner;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

impl Workloads {
    /// Keeps the Jobs of the CronJobs that are still in force. `before`: the controllers before a change of the
    /// manifests.
    pub(super) fn keep_created(&mut self, before: &mut BTreeMap<WorkloadKey, AnyController>) {
        for (key, controller) in std::mem::take(before) {
            match controller.creator() {
                Some(by) if self.all.contains_key(by) => self.all.insert(key, controller),
                _ => before.insert(key, controller),
            };
        }
    }

    /// Restores the Jobs of the CronJobs in force from their records.
    pub(super) fn restore_created(&mut self, now: Now, outbox: &mut Outbox) {
        for (key, stored) in std::mem::take(&mut self.stored) {
            match self.restored(&stored) {
                Some(Ok(job)) if !self.all.contains_key(&key) => {
                    self.insert_created(JobRun::new(Rc::new(job), Some(stored), now, outbox));
                }
                Some(Err(why)) => {
                    let message = format!("the Job in the record of {key} is unusable: {why}; moving it aside");
                    outbox.emit_node_event(Severity::Warning, Reason::BadRecord, message);
                    let change = RecordChange::SetAside { key: record::key(&key) };
                    outbox.record(Owner::Worker(Uid::from("")), change);
                }
                Some(Ok(_)) | None => {
                    self.stored.insert(key, stored);
                }
            }
        }
    }

    /// Returns the Job of a record, if a CronJob in force has created it.
    fn restored(&self, stored: &StoredWorkload) -> Option<Result<Job, String>> {
        let StoredOwn::Job(own) = &stored.own else { return None };
        let StoredCreatedJob { cron_job, object } = own.created_job.as_ref()?;
        let by = WorkloadKey::new(WorkloadKind::CronJob, FullName::new(&stored.base.namespace, cron_job));
        let source = self.all.get(&by)?.get().head().source.clone();
        Some(whole(stored, object).map(|object| Job::created(object, source, by)))
    }

    fn insert_created(&mut self, run: JobRun) {
        let key = run.head().key.clone();
        self.version += 1;
        self.removed.is_back(&key);
        self.touched.insert(key.clone());
        self.all.insert(key, AnyController::Job(Box::new(run)));
    }

    /// Steps the CronJobs that were touched, and those whose Jobs were. Returns true if Jobs were created or removed.
    pub(super) fn schedule(&mut self, touched: &BTreeSet<WorkloadKey>, inputs: &mut WorkloadInputs<'_>) -> bool {
        let of_job = |key: &WorkloadKey| self.all.get(key)?.creator().cloned();
        let creator = |key: &WorkloadKey| match key.kind {
            WorkloadKind::CronJob => Some(key.clone()),
            WorkloadKind::Job => of_job(key),
            _ => None,
        };
        let creators: BTreeSet<WorkloadKey> = touched.iter().filter_map(creator).collect();
        let mut changed = false;
        for of in creators {
            let jobs = self.created_by(&of, inputs.now);
            let Some(AnyController::CronJob(run)) = self.all.get_mut(&of) else { continue };
            for action in run.plan(&jobs, inputs.now, inputs.outbox) {
                match action {
                    CronAction::Create(job) => self.create(&of, *job, inputs),
                    CronAction::Remove(job) => self.remove(job, inputs.now.boot, inputs.outbox),
                }
                changed = true;
            }
        }
        changed
    }

    fn created_by(&self, of: &WorkloadKey, now: Now) -> Vec<CreatedJob> {
        let jobs = self.all.values().filter(|one| one.creator() == Some(of));
        jobs.filter_map(|one| if let AnyController::Job(run) = one { Some(run.as_created(now)) } else { None })
            .collect()
    }

    /// Creates a Job for a CronJob, unless another Job has its name.
    fn create(&mut self, of: &WorkloadKey, job: Job, inputs: &mut WorkloadInputs<'_>) {
        let name = job.head.name().name.to_string();
        let is_taken = self.all.contains_key(&job.head.key);
        let failure = is_taken.then(|| format!("jobs.batch {name:?} already exists"));
        if !is_taken {
            self.insert_created(JobRun::created(Rc::new(job), inputs.now, inputs.outbox));
        }
        if let Some(AnyController::CronJob(run)) = self.all.get(of) {
            run.report_created(&name, failure.as_deref(), inputs.outbox);
        }
    }

    fn remove(&mut self, job: WorkloadKey, now: Boot, outbox: &mut Outbox) {
        let Some(controller) = self.all.remove(&job) else { return };
        self.version += controller.get().state().version() + 1;
        self.removed.remove(job, now, outbox);
    }

    /// Deletes a Job of a CronJob because a user asks for it. Returns false if there is none of this name.
    pub fn delete_created(&mut self, name: &FullName, now: Boot, outbox: &mut Outbox) -> bool {
        let key = WorkloadKey::new(WorkloadKind::Job, name.clone());
        let Some(by) = self.all.get(&key).and_then(AnyController::creator).cloned() else { return false };
        self.remove(key, now, outbox);
        self.touched.insert(by);
        true
    }

    /// Returns the CronJobs of which a Job is not on disk in its present state.
    pub(super) fn creators_of_unrecorded(&self) -> BTreeSet<WorkloadKey> {
        let unrecorded = self.all.values().filter(|one| !one.get().state().is_recorded());
        unrecorded.filter_map(AnyController::creator).cloned().collect()
    }

    /// Takes the file of the time zone of a CronJob.
    pub fn time_zone_read(
        &mut self,
        of: &WorkloadKey,
        name: Option<&str>,
        result: Result<Answer, OpError>,
        now: Boot,
        outbox: &mut Outbox,
    ) {
        if let Some(AnyController::CronJob(run)) = self.all.get_mut(of) {
            run.time_zone_read(name, result, now, outbox);
            self.touched.insert(of.clone());
        }
    }
}

/// Returns the object of a recorded Job with its template.
fn whole(stored: &StoredWorkload, object: &Value) -> Result<k8s::Job, String> {
    let revision = stored.base.revisions.first().ok_or("it has no template")?;
    let mut object: k8s::Job = from_value(object)?;
    object.spec.get_or_insert_default().template = from_value(&revision.template)?;
    Ok(object)
}
