//! The identity of an object that creates pods.

use crate::api::names::{FullName, Uid};
use crate::api::uid;
use serde::Serialize;
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum WorkloadKind {
    CronJob,
    Deployment,
    DaemonSet,
    Job,
    ReplicaSet,
    StatefulSet,
}

/// The identity of an object that creates pods.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct WorkloadKey {
    pub kind: WorkloadKind,
    pub name: FullName,
}

impl WorkloadKind {
    pub const ALL: [WorkloadKind; 6] = [
        WorkloadKind::CronJob,
        WorkloadKind::Deployment,
        WorkloadKind::DaemonSet,
        WorkloadKind::Job,
        WorkloadKind::ReplicaSet,
        WorkloadKind::StatefulSet,
    ];

    /// Returns the kind with this name.
    pub fn of(name: &str) -> Option<WorkloadKind> {
        WorkloadKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Returns the value of `apiVersion` in a manifest.
    pub const fn api_version(self) -> &'static str {
        match self {
            WorkloadKind::CronJob | WorkloadKind::Job => "batch/v1",
            WorkloadKind::Deployment
            | WorkloadKind::DaemonSet
            | WorkloadKind::ReplicaSet
            | WorkloadKind::StatefulSet => "apps/v1",
        }
    }

    /// Returns the value of `kind` in a manifest.
    pub const fn name(self) -> &'static str {
        match self {
            WorkloadKind::CronJob => "CronJob",
            WorkloadKind::Deployment => "Deployment",
            WorkloadKind::DaemonSet => "DaemonSet",
            WorkloadKind::Job => "Job",
            WorkloadKind::ReplicaSet => "ReplicaSet",
            WorkloadKind::StatefulSet => "StatefulSet",
        }
    }
}

impl WorkloadKey {
    pub fn new(kind: WorkloadKind, name: FullName) -> WorkloadKey {
        WorkloadKey { kind, name }
    }

    /// Returns the UID of the object. It depends on the kind, the namespace and the name alone, so that it stays when
    /// the manifest changes.
    pub fn uid(&self) -> Uid {
        Uid::from(uid::of_name(self.kind.name(), &self.name.namespace, &self.name.name))
    }
}

/// Formats as `Deployment NAMESPACE/NAME`.
impl fmt::Display for WorkloadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.name(), self.name)
    }
}
