//! Security contexts of pods and containers.

use crate::api::apparmor;
use crate::api::k8s::{AppArmorProfile, Pod, PodSecurityContext, PodSpec, SeccompProfile, SecurityContext};
use crate::api::problem::{At, Faults};
use crate::api::sysctls;
use crate::api::validate::syntax;

pub(super) fn of_pod(context: &PodSecurityContext, spec: &PodSpec, at: At<'_>, faults: &mut Faults) {
    id(context.run_as_user, at.field("runAsUser"), faults);
    id(context.run_as_group, at.field("runAsGroup"), faults);
    id(context.fs_group, at.field("fsGroup"), faults);
    let groups = at.field("supplementalGroups");
    for (i, group) in context.supplemental_groups.iter().flatten().enumerate() {
        id(Some(*group), groups.item(i), faults);
    }
    match context.supplemental_groups_policy.as_deref() {
        None | Some("" | "Merge" | "Strict") => {}
        Some(other) => {
            faults.unsupported_value(at.field("supplementalGroupsPolicy"), other, &["Merge", "Strict"]);
        }
    }
    if let Some(policy) = context.fs_group_change_policy.as_deref()
        && !matches!(policy, "Always" | "OnRootMismatch")
    {
        faults.unsupported_value(at.field("fsGroupChangePolicy"), policy, &["Always", "OnRootMismatch"]);
    }
    if let Some(policy) = context.se_linux_change_policy.as_deref()
        && !matches!(policy, "MountOption" | "Recursive")
    {
        faults.unsupported_value(at.field("seLinuxChangePolicy"), policy, &["MountOption", "Recursive"]);
    }
    apparmor_profile(context.app_armor_profile.as_ref(), at.field("appArmorProfile"), faults);
    seccomp(context.seccomp_profile.as_ref(), at.field("seccompProfile"), faults);
    of_sysctls(context, spec, at.field("sysctls"), faults);
}

pub(super) fn of_container(context: &SecurityContext, at: At<'_>, faults: &mut Faults) {
    id(context.run_as_user, at.field("runAsUser"), faults);
    id(context.run_as_group, at.field("runAsGroup"), faults);
    match context.proc_mount.as_deref() {
        None | Some("" | "Default" | "Unmasked") => {}
        Some(other) => faults.unsupported_value(at.field("procMount"), other, &["Default", "Unmasked"]),
    }
    apparmor_profile(context.app_armor_profile.as_ref(), at.field("appArmorProfile"), faults);
    seccomp(context.seccomp_profile.as_ref(), at.field("seccompProfile"), faults);

    let at_capabilities = at.field("capabilities");
    let mut added = [].iter();
    if let Some(capabilities) = &context.capabilities {
        for (list, field) in [(&capabilities.add, "add"), (&capabilities.drop, "drop")] {
            let at = at_capabilities.field(field);
            for (i, name) in list.iter().flatten().enumerate() {
                if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
                    faults.invalid(at.item(i), name, "must be the name of a capability, such as NET_ADMIN, or ALL");
                }
            }
        }
        added = capabilities.add.as_deref().unwrap_or_default().iter();
    }
    if context.allow_privilege_escalation == Some(false) {
        let at = at.field("allowPrivilegeEscalation");
        if context.privileged == Some(true) {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            faults.invalid(at, false, detail);
        }
        if added.any(|name| matches!(name.as_str(), "SYS_ADMIN" | "CAP_SYS_ADMIN")) {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            faults.invalid_in_manifest(at, false, detail);
        }
    }
}

fn id(id: Option<i64>, at: At<'_>, faults: &mut Faults) {
    if let Some(id) = id
        && !(0..=i64::from(i32::MAX)).contains(&id)
    {
        faults.invalid(at, id, "must be between 0 and 2147483647, inclusive");
    }
}

/// The maximum length of an AppArmor profile name, in bytes: the same as for a path.
const MAX_PROFILE: usize = 4095;

fn apparmor_profile(profile: Option<&AppArmorProfile>, at: At<'_>, faults: &mut Faults) {
    let Some(profile) = profile else { return };
    let at_name = at.field("localhostProfile");
    match (profile.type_.as_str(), profile.localhost_profile.as_deref()) {
        ("Localhost", None) => faults.required(at_name, "must be set when AppArmor type is Localhost"),
        ("Localhost", Some(name)) if name.trim() != name => {
            faults.invalid(at_name, name, "must not be padded with whitespace");
        }
        ("Localhost", Some("")) => faults.required(at_name, "must be set when AppArmor type is Localhost"),
        ("Localhost", Some(name)) if name.len() > MAX_PROFILE => {
            faults.invalid(at_name, name, format_args!("may not be more than {MAX_PROFILE} bytes"));
        }
        ("Localhost", Some(_)) | ("RuntimeDefault" | "Unconfined", None) => {}
        ("RuntimeDefault" | "Unconfined", Some(name)) => {
            faults.invalid(at_name, name, "can only be set when AppArmor type is Localhost");
        }
        ("", _) => faults.required(at.field("type"), "type is required when appArmorProfile is set"),
        (other, _) => {
            faults.unsupported_value(at.field("type"), other, &["Localhost", "RuntimeDefault", "Unconfined"]);
        }
    }
}

/// Checks the annotations that older manifests have instead of `appArmorProfile`.
pub(super) fn apparmor_annotations(pod: &Pod, at: At<'_>, faults: &mut Faults) {
    let spec = pod.spec.iter();
    let names: Vec<&String> =
        spec.flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers)).map(|c| &c.name).collect();
    for (key, value) in pod.metadata.annotations.iter().flatten() {
        let Some(container) = key.strip_prefix(apparmor::ANNOTATION) else { continue };
        if !value.is_empty() && apparmor::of_annotation(value).is_none() {
            let detail = "must be runtime/default, unconfined, or localhost/ and the name of a profile";
            faults.invalid(at.key(key), value, detail);
        }
        if !names.iter().any(|name| *name == container) {
            faults.invalid(at.key(key), container, "container not found");
        }
    }
}

fn seccomp(profile: Option<&SeccompProfile>, at: At<'_>, faults: &mut Faults) {
    let Some(profile) = profile else { return };
    let at_file = at.field("localhostProfile");
    let file = profile.localhost_profile.as_deref().filter(|file| !file.is_empty());
    match (profile.type_.as_str(), file) {
        ("Localhost", None) => faults.required(at_file, "must be set when seccomp type is Localhost"),
        ("Localhost", Some(file)) => {
            // The path is relative to the seccomp directory below the root directory, and must stay inside it.
            if file.starts_with('/') {
                faults.invalid(at_file, file, "must be a relative path");
            }
            if file.split('/').any(|part| part == "..") {
                faults.invalid(at_file, file, "must not contain '..'");
            }
        }
        ("RuntimeDefault" | "Unconfined", None) => {}
        ("RuntimeDefault" | "Unconfined", Some(file)) => {
            faults.invalid(at_file, file, "can only be set when seccomp type is Localhost");
        }
        ("", _) => faults.required(at.field("type"), "type is required when seccompProfile is set"),
        (other, _) => {
            faults.unsupported_value(at.field("type"), other, &["Localhost", "RuntimeDefault", "Unconfined"]);
        }
    }
}

/// Validates the sysctls. Admission, not this function, checks whether the node allows them (A3).
fn of_sysctls(context: &PodSecurityContext, spec: &PodSpec, at: At<'_>, faults: &mut Faults) {
    let mut seen: Vec<String> = Vec::new();
    for (i, sysctl) in context.sysctls.iter().flatten().enumerate() {
        let item = at.item(i);
        let at = item.field("name");
        if sysctl.name.is_empty() {
            faults.required(at, "");
            continue;
        }
        let complaints = syntax::sysctl_name(&sysctl.name);
        if !complaints.is_empty() {
            complaints.into_iter().for_each(|complaint| faults.invalid(at, &sysctl.name, complaint));
            continue;
        }
        let name = sysctls::dotted(&sysctl.name).into_owned();
        if seen.contains(&name) {
            faults.duplicate(at, &sysctl.name);
        }
        let network = name.starts_with("net.");
        let ipc = ["kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue."].iter().any(|p| name.starts_with(p));
        if network && spec.host_network == Some(true) {
            faults.invalid(at, &sysctl.name, "may not be specified when 'hostNetwork' is true");
        } else if ipc && spec.host_ipc == Some(true) {
            faults.invalid(at, &sysctl.name, "may not be specified when 'hostIPC' is true");
        }
        seen.push(name);
    }
}
