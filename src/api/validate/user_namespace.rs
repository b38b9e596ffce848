//! The fields that depend on `hostUsers`.

use crate::api::k8s::{Container, PodSpec};
use crate::api::problem::{At, Faults};
use crate::api::user_namespace::IDS_PER_POD;

pub(super) fn of_pod(spec: &PodSpec, at: At<'_>, faults: &mut Faults) {
    let own = spec.host_users == Some(false);
    if own {
        for (on, field) in [(spec.host_network, "hostNetwork"), (spec.host_pid, "hostPID"), (spec.host_ipc, "hostIPC")]
        {
            if on == Some(true) {
                faults.forbidden(at.field(field), "when `hostUsers` is false");
            }
        }
        if let Some(context) = &spec.security_context {
            let at = at.field("securityContext");
            id(context.run_as_user, at.field("runAsUser"), faults);
            id(context.run_as_group, at.field("runAsGroup"), faults);
            id(context.fs_group, at.field("fsGroup"), faults);
            let at = at.field("supplementalGroups");
            for (i, group) in context.supplemental_groups.iter().flatten().enumerate() {
                id(Some(*group), at.item(i), faults);
            }
        }
    }
    let init = spec.init_containers.as_deref().unwrap_or_default();
    for (field, list) in [("initContainers", init), ("containers", &spec.containers)] {
        let at = at.field(field);
        for (i, container) in list.iter().enumerate() {
            of_container(container, own, at.item(i), faults);
        }
    }
}

pub(super) fn of_container(container: &Container, own: bool, at: At<'_>, faults: &mut Faults) {
    let Some(context) = &container.security_context else { return };
    let at = at.field("securityContext");
    if own {
        id(context.run_as_user, at.field("runAsUser"), faults);
        id(context.run_as_group, at.field("runAsGroup"), faults);
    } else if context.proc_mount.as_deref() == Some("Unmasked") {
        // `podman generate kube` writes `Unmasked` for a container with unmasked paths.
        let detail =
            "`hostUsers` must be false to use `Unmasked`; set hostUsers: false in the spec, or remove procMount";
        faults.invalid(at.field("procMount"), "Unmasked", detail);
    }
}

/// Rejects an id that does not exist in the pod. *(Ours: in a kubelet, the runtime fails to start the container.)*
fn id(id: Option<i64>, at: At<'_>, faults: &mut Faults) {
    if let Some(id) = id.filter(|id| *id >= i64::from(IDS_PER_POD)) {
        faults.invalid(at, id, "must be less than 65536 when `hostUsers` is false");
    }
}
