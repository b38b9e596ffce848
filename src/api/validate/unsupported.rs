//! Rejects fields of Kubernetes that are not implemented yet, by name, so that they are not ignored silently.
//!
//! Fields that have no effect without a scheduler and an API server are allowed: tolerations, schedulerName,
//! podAffinity, podAntiAffinity, topologySpreadConstraints, preferred node affinity, serviceAccountName,
//! automountServiceAccountToken, enableServiceLinks.

use crate::api::k8s::{Container, PodSpec};
use crate::api::problem::{At, Faults};

pub(super) fn some<T>(list: Option<&Vec<T>>) -> bool {
    list.is_some_and(|list| !list.is_empty())
}

pub(super) fn of_pod(spec: &PodSpec, at: At<'_>, faults: &mut Faults) {
    for (used, field) in [
        (some(spec.ephemeral_containers.as_ref()), "ephemeralContainers"),
        (some(spec.resource_claims.as_ref()), "resourceClaims"),
        (some(spec.scheduling_gates.as_ref()), "schedulingGates"),
    ] {
        if used {
            faults.not_yet(at.field(field));
        }
    }
    if some(spec.readiness_gates.as_ref()) {
        let detail = "nothing on a node without a cluster sets the conditions of readiness gates; remove them";
        faults.needs_cluster(at.field("readinessGates"), detail);
    }
}

pub(super) fn of_container(container: &Container, at: At<'_>, faults: &mut Faults) {
    for (used, field) in [
        (some(container.volume_devices.as_ref()), "volumeDevices"),
        (some(container.restart_policy_rules.as_ref()), "restartPolicyRules"),
    ] {
        if used {
            faults.not_yet(at.field(field));
        }
    }
}
