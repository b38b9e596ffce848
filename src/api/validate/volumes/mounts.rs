//! The volumeMounts of a container.

use super::paths::descending;
use crate::api::k8s::{Container, PodSpec, VolumeMount};
use crate::api::problem::{At, Faults};
use crate::api::validate::complaints::one_of;

/// Checks the volumeMounts of a container of any kind.
pub(in crate::api::validate) fn mounts(container: &Container, spec: &PodSpec, at: At<'_>, faults: &mut Faults) {
    let at_mounts = at.field("volumeMounts");
    let mut points: Vec<&str> = Vec::new();
    for (i, mount) in container.volume_mounts.iter().flatten().enumerate() {
        let at = at_mounts.item(i);
        if mount.name.is_empty() {
            faults.required(at.field("name"), "");
        }
        if !spec.volumes.iter().flatten().any(|volume| volume.name == mount.name) {
            faults.not_found(at.field("name"), &mount.name);
        }
        let path = mount.mount_path.as_str();
        let at_path = at.field("mountPath");
        if path.is_empty() {
            faults.required(at_path, "");
        } else if points.contains(&path) {
            faults.invalid(at_path, path, "must be unique");
        } else if path.contains(':') {
            faults.invalid_in_manifest(at_path, path, "must not contain ':'");
        }
        points.push(path);
        sub_path(mount, at, faults);
        propagation(mount, container, at, faults);
    }
}

fn sub_path(mount: &VolumeMount, at: At<'_>, faults: &mut Faults) {
    let given = |path: &'_ Option<String>| path.clone().filter(|path| !path.is_empty());
    let (plain, expr) = (given(&mount.sub_path), given(&mount.sub_path_expr));
    if let Some(path) = &plain {
        descending(path, at.field("subPath"), faults);
    }
    if let Some(input) = &expr {
        let at = at.field("subPathExpr");
        if plain.is_some() {
            faults.invalid(at, input, "subPathExpr and subPath are mutually exclusive");
        }
        descending(input, at, faults);
    }
}

fn propagation(mount: &VolumeMount, container: &Container, at: At<'_>, faults: &mut Faults) {
    let at_propagation = at.field("mountPropagation");
    let propagation = mount.mount_propagation.as_deref();
    if propagation.is_some() {
        one_of(propagation, &["Bidirectional", "HostToContainer", "None"], at_propagation, faults);
    }
    let privileged = container.security_context.as_ref().and_then(|context| context.privileged) == Some(true);
    if propagation == Some("Bidirectional") && !privileged {
        let detail = "Bidirectional mount propagation is available only to privileged containers";
        faults.forbidden(at_propagation, detail);
    }
    let at = at.field("recursiveReadOnly");
    match mount.recursive_read_only.as_deref() {
        None | Some("Disabled") => {}
        Some("Enabled" | "IfPossible") => {
            if mount.read_only != Some(true) {
                faults.forbidden(at, "may only be specified when readOnly is true");
            }
            if propagation.is_some_and(|propagation| propagation != "None") {
                faults.forbidden(at, "may only be specified when mountPropagation is None or not specified");
            }
        }
        Some(other) => faults.unsupported_value(at, other, &["Disabled", "Enabled", "IfPossible"]),
    }
}
