//! Rejects fields of Kubernetes that are not implemented yet, by name, so that they are not ignored silently.
//!
//! Fields that have no effect without a scheduler and an API server are allowed: tolerations, schedulerName, podAffinity,
//! podAntiAffinity, topologySpreadConstraints, preferred node affinity, serviceAccountName, automountServiceAccountToken,
//! enableServiceLinks, resizePolicy.

use crate::api::problem::{At, Faults};
use k8s_openapi::api::core::v1::{Container, PodSpec};

fn some<T>(list: Option<&Vec<T>>) -> bool {
    list.is_some_and(|list| !list.is_empty())
}

pub(super) fn of_pod(spec: &PodSpec, at: At<'_>, faults: &mut Faults) {
    for (used, field) in [
        (some(spec.ephemeral_containers.as_ref()), "ephemeralContainers"),
        (spec.host_users == Some(false), "hostUsers"),
        (some(spec.image_pull_secrets.as_ref()), "imagePullSecrets"),
        (some(spec.readiness_gates.as_ref()), "readinessGates"),
        (some(spec.resource_claims.as_ref()), "resourceClaims"),
        (spec.resources.as_ref().is_some_and(|resources| *resources != Default::default()), "resources"),
        (spec.runtime_class_name.as_ref().is_some_and(|name| !name.is_empty()), "runtimeClassName"),
        (some(spec.scheduling_gates.as_ref()), "schedulingGates"),
        (some(spec.volumes.as_ref()), "volumes"),
    ] {
        if used {
            faults.not_yet(at.field(field));
        }
    }
}

pub(super) fn of_container(container: &Container, at: At<'_>, faults: &mut Faults) {
    for (used, field) in [
        (some(container.env_from.as_ref()), "envFrom"),
        (container.liveness_probe.is_some(), "livenessProbe"),
        (container.readiness_probe.is_some(), "readinessProbe"),
        (container.startup_probe.is_some(), "startupProbe"),
        (some(container.volume_devices.as_ref()), "volumeDevices"),
        (some(container.volume_mounts.as_ref()), "volumeMounts"),
    ] {
        if used {
            faults.not_yet(at.field(field));
        }
    }
    if let Some(lifecycle) = &container.lifecycle {
        let at = at.field("lifecycle");
        for (used, field) in [
            (lifecycle.post_start.is_some(), "postStart"),
            (lifecycle.pre_stop.is_some(), "preStop"),
            (lifecycle.stop_signal.is_some(), "stopSignal"),
        ] {
            if used {
                faults.not_yet(at.field(field));
            }
        }
    }
    let env = at.field("env");
    for (i, variable) in container.env.iter().flatten().enumerate() {
        if variable.value_from.is_some() {
            faults.not_yet(env.item(i).field("valueFrom"));
        }
    }
}
