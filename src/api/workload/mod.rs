//! The objects that create pods from a template (apps/v1 and batch/v1), and the pods that they create.

pub mod cron_job;
pub mod daemon_set;
pub mod deployment;
pub mod head;
pub mod indexes;
pub mod job;
pub mod job_pod;
pub mod key;
pub mod label_selector;
pub mod portion;
pub mod replica;
pub mod replica_set;
pub mod schedule;
pub mod stateful_set;
pub mod template;

use crate::api::duplicates;
use crate::api::k8s::LabelSelector;
use crate::api::problem::Problem;
use cron_job::CronJob;
use daemon_set::DaemonSet;
use deployment::Deployment;
use head::WorkloadHead;
use job::Job;
use replica_set::ReplicaSet;
use stateful_set::StatefulSet;
use std::rc::Rc;

/// A valid document of a manifest that creates pods.
#[derive(Clone, Debug, PartialEq)]
pub enum Workload {
    CronJob(Rc<CronJob>),
    Deployment(Rc<Deployment>),
    DaemonSet(Rc<DaemonSet>),
    Job(Rc<Job>),
    ReplicaSet(Rc<ReplicaSet>),
    StatefulSet(Rc<StatefulSet>),
}

impl Workload {
    pub fn head(&self) -> &WorkloadHead {
        match self {
            Workload::CronJob(of) => &of.head,
            Workload::Deployment(of) => &of.head,
            Workload::DaemonSet(of) => &of.head,
            Workload::Job(of) => &of.head,
            Workload::ReplicaSet(of) => &of.head,
            Workload::StatefulSet(of) => &of.head,
        }
    }

    /// Returns the first field that a later version changes although it must stay, as in a cluster.
    pub fn immutable_difference(&self, later: &Workload) -> Option<&'static str> {
        if self.selector() != later.selector() {
            return Some("spec.selector");
        }
        if let (Workload::Job(of), Workload::Job(later)) = (self, later) {
            return of.immutable_difference(later);
        }
        let (Workload::StatefulSet(of), Workload::StatefulSet(later)) = (self, later) else { return None };
        if of.service_name() != later.service_name() {
            return Some("spec.serviceName");
        }
        if of.claim_templates() != later.claim_templates() {
            return Some("spec.volumeClaimTemplates");
        }
        (of.is_ordered() != later.is_ordered()).then_some("spec.podManagementPolicy")
    }

    /// Returns the selector of the pods. A CronJob has none.
    pub fn selector(&self) -> Option<&LabelSelector> {
        Some(match self {
            Workload::CronJob(_) => return None,
            Workload::Deployment(of) => of.selector(),
            Workload::DaemonSet(of) => of.selector(),
            Workload::Job(of) => of.selector(),
            Workload::ReplicaSet(of) => of.selector(),
            Workload::StatefulSet(of) => of.selector(),
        })
    }
}

/// Returns a problem for each document that has the kind and the name of an earlier one, which is in force (D6).
pub fn duplicates(all: &[Workload]) -> Vec<Problem> {
    duplicates::find(all.iter().map(|workload| {
        let WorkloadHead { key, source, .. } = workload.head();
        (key.kind.name(), &key.name, source)
    }))
}
