//! Validation of a complete ReplicaSet, with the messages of Kubernetes.

use super::{data_metadata, workload};
use crate::api::k8s::ReplicaSet;
use crate::api::problem::{At, Fault, Faults};

pub(crate) fn replica_set(replica_set: &ReplicaSet) -> Vec<Fault> {
    let mut faults = Faults::default();
    data_metadata(&replica_set.metadata, "replicaset", &mut faults);
    let Some(spec) = &replica_set.spec else { return faults.0 };
    let root = At::Root;
    let at = root.field("spec");
    let numbers = [("replicas", spec.replicas), ("minReadySeconds", spec.min_ready_seconds)];
    workload::not_negative(&numbers, at, &mut faults);
    workload::replicas(spec.replicas, at, &mut faults);
    if let Some(template) = &spec.template {
        workload::selector(&spec.selector, template, at, &mut faults);
        workload::template(template, "ReplicaSet", &mut faults);
    }
    faults.0
}
