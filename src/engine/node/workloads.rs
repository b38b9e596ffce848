//! Connects workloads (`engine/workloads`) with the workers: passes them the published states of their pods, and makes
//! the pods that they create desired.

use super::Engine;
use super::cluster::with_own;
use crate::api::k8s::{PodSpec, PodStatus};
use crate::api::names::{FullName, Uid};
use crate::api::pod::Pod;
use crate::api::priority::Classes;
use crate::engine::admission::placement;
use crate::engine::control::{Reply, RequestError, RequestId};
use crate::engine::desired::classes;
use crate::engine::effect::Effect;
use crate::engine::pod::worker::Worker;
use crate::engine::workloads::Workloads;
use crate::engine::workloads::inputs::WorkloadInputs;
use crate::engine::workloads::revision::{SeenEnd, SeenPod};
use std::rc::Rc;
use std::time::Duration;

/// The maximum number of times that workloads are stepped in one step of the engine. Anything further follows in the
/// next step.
const ROUNDS: usize = 4;

impl Engine {
    /// Returns the workloads in force.
    pub fn workloads(&self) -> &Workloads {
        &self.workloads
    }

    /// Takes the workloads of the manifests. Before the sources are known, it also takes over the pods of earlier runs,
    /// so that they continue (W25).
    pub(super) fn workloads_changed(&mut self) {
        let Engine { workloads, desired, outbox, now, .. } = self;
        workloads.change(desired.workloads(), *now, outbox);
        workloads.adopt(desired.records().map(|record| (&record.pod, record.is_undesired())), *now);
    }

    /// Steps the workloads whose pods or manifests have changed, and then the pods that they create or delete.
    pub(super) fn step_workloads(&mut self) {
        self.note_published();
        // A recorded version that a newer file replaces in a moment must not reverse a roll-out.
        let waits = self.desired.files.are_settling(self.now.boot);
        if !waits && self.desired.is_known() && !self.workloads.is_empty() {
            for _ in 0..ROUNDS {
                if !self.step_controllers() {
                    break;
                }
                self.compare();
                self.settle_all();
                self.note_published();
            }
        }
        if !waits && self.desired.is_known() {
            self.workloads.write_records(self.now.boot, &mut self.outbox);
        }
        if self.workloads.take_changed() {
            self.outbox.push(Effect::PublishWorkloads);
        }
    }

    /// Notes the pods whose published states have changed, and those that have ended.
    fn note_published(&mut self) {
        for (uid, _) in self.outbox.published() {
            self.workloads.pod_changed(uid);
        }
        for uid in self.outbox.take_ended() {
            self.workloads.pod_changed(&uid);
        }
    }

    fn step_controllers(&mut self) -> bool {
        let Engine { workloads, workers, desired, config, cluster, rng, outbox, now, .. } = self;
        let seen = |uid: &Uid| workers.get(uid).map(|worker| seen(worker));
        let is_gone = |uid: &Uid| workers.get(uid).is_none_or(|worker| !worker.is_shown());
        let is_taken = |name: &FullName, uid: &Uid| workers.contains_key(uid) || desired.names().is_taken(name);
        let (priority_classes, runtime_classes) = (desired.priority_classes(), desired.runtime_classes());
        let accept = |pod: Pod| {
            let (classes, _) = Classes::collect(priority_classes);
            let given = classes::give(&pod, &classes, runtime_classes).map_err(|problem| problem.message)?;
            Ok(classes::with_values(Rc::new(pod), given).pod)
        };
        workloads.step(&mut WorkloadInputs {
            now: *now,
            node_name: &config.node.name,
            rng,
            outbox,
            seen: &seen,
            status: &|uid: &Uid| workers.get(uid).map(|worker| &worker.shown.status),
            is_gone: &is_gone,
            is_taken: &is_taken,
            accept: &accept,
            placement: &|spec: &PodSpec| placement::of(spec, &with_own(&config.node, cluster)),
        })
    }

    /// Deletes a Job of a CronJob for a user, with its pods.
    ///
    /// # Errors
    /// There is no such Job, or a manifest defines it.
    pub(super) fn delete_job(&mut self, id: RequestId, name: &FullName) -> Result<Option<Reply>, RequestError> {
        let before = self.outbox.begun_records().len();
        if !self.workloads.delete_created(name, self.now.boot, &mut self.outbox) {
            return Err(RequestError::UnknownJob(name.clone()));
        }
        self.compare();
        self.settle_all();
        self.answer_durably(id, Reply::Shortened, &[], before)
    }

    /// Deletes a pod of a workload for a user. The workload creates another one.
    ///
    /// # Errors
    /// There is no such pod.
    pub(super) fn delete_replica(
        &mut self,
        id: RequestId,
        uid: &Uid,
        grace: Option<Duration>,
    ) -> Result<Option<Reply>, RequestError> {
        self.check_pods(std::slice::from_ref(uid))?;
        let before = self.outbox.begun_records().len();
        if !self.workloads.delete(uid) {
            return Err(RequestError::UnknownPod(uid.clone()));
        }
        self.compare();
        if let Some(grace) = grace {
            self.with_worker(uid, |worker, entry, ctx| worker.shorten(grace, entry, ctx));
            self.steps.touch(uid.clone());
        }
        self.settle_all();
        self.answer_durably(id, Reply::Shortened, std::slice::from_ref(uid), before)
    }
}

fn seen(worker: &Worker) -> SeenPod {
    let status = &worker.shown.status;
    SeenPod {
        end: match () {
            // Y1: after an eviction, for example, it starts again under its name.
            () if worker.demand.runs_again() => SeenEnd::Open,
            () if worker.ending.end.is_terminal() => SeenEnd::Ended,
            () if worker.admission.is_rejected_for_good(worker.pod.as_ref()) => SeenEnd::Rejected,
            () => SeenEnd::Open,
        },
        runs: status.phase.as_deref() == Some("Running"),
        is_ready: status.conditions.iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True"),
        restarts: restarts(status),
    }
}

fn restarts(status: &PodStatus) -> u32 {
    let all = status.container_statuses.iter().flatten();
    all.filter_map(|container| u32::try_from(container.restart_count).ok()).sum()
}
