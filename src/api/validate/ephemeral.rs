//! Ephemeral containers. They are not a part of the workload, so they cannot have ports, resources, probes or hooks.

use super::container::container;
use super::{unsupported, user_namespace, volumes};
use crate::api::ephemeral;
use crate::api::k8s::{Container, EphemeralContainer, PodSpec, ResourceRequirements};
use crate::api::ordered::CollectOrdered;
use crate::api::problem::{At, Fault, Faults};
use std::collections::BTreeSet;

const NOT_ALLOWED: &str = "cannot be set for an Ephemeral Container";

/// Returns the faults of all ephemeral containers of a pod.
pub(crate) fn ephemeral(spec: &PodSpec, list: &[EphemeralContainer]) -> Vec<Fault> {
    let mut faults = Faults::default();
    let root = At::Root;
    let (at_spec, ordinary) = (root.field("spec"), spec.init_containers.iter().flatten().chain(&spec.containers));
    let at = at_spec.field("ephemeralContainers");
    let ordinary: BTreeSet<&str> = ordinary.map(|c| c.name.as_str()).collect_set();
    let mut names = ordinary.clone();
    for (i, each) in list.iter().enumerate() {
        let at = at.item(i);
        let ephemeral::Ephemeral { container: common, target } = ephemeral::of(each);
        if !each.name.is_empty() && !names.insert(&each.name) {
            faults.duplicate(at.field("name"), &each.name);
        }
        if let Some(target) = target.filter(|target| !ordinary.contains(target.as_str())) {
            faults.not_found(at.field("targetContainerName"), &target);
        }
        allowed(&common, at, &mut faults);
        // The grace period matters only to probes and hooks.
        container(&Container { lifecycle: None, ..without_probes(&common) }, 0, at, &mut faults);
        user_namespace::of_container(&common, spec.host_users == Some(false), at, &mut faults);
        volumes::mounts(&common, spec, at, &mut faults);
        sub_paths(&common, at, &mut faults);
    }
    faults.0
}

fn without_probes(common: &Container) -> Container {
    Container {
        liveness_probe: None,
        readiness_probe: None,
        startup_probe: None,
        resources: None,
        ports: None,
        ..common.clone()
    }
}

fn allowed(common: &Container, at: At<'_>, faults: &mut Faults) {
    for (used, field) in [
        (unsupported::some(common.ports.as_ref()), "ports"),
        (common.resources.as_ref().is_some_and(|r| **r != ResourceRequirements::default()), "resources"),
        (common.liveness_probe.is_some(), "livenessProbe"),
        (common.readiness_probe.is_some(), "readinessProbe"),
        (common.startup_probe.is_some(), "startupProbe"),
        (common.lifecycle.is_some(), "lifecycle"),
        (common.restart_policy.is_some(), "restartPolicy"),
        (unsupported::some(common.resize_policy.as_ref()), "resizePolicy"),
    ] {
        if used {
            faults.forbidden(at.field(field), NOT_ALLOWED);
        }
    }
}

fn sub_paths(common: &Container, at: At<'_>, faults: &mut Faults) {
    let given = |path: &Option<String>| path.as_deref().is_some_and(|path| !path.is_empty());
    let at_mounts = at.field("volumeMounts");
    for (i, mount) in common.volume_mounts.iter().flatten().enumerate() {
        for (used, field) in [(given(&mount.sub_path), "subPath"), (given(&mount.sub_path_expr), "subPathExpr")] {
            if used {
                faults.forbidden(at_mounts.item(i).field(field), NOT_ALLOWED);
            }
        }
    }
}
