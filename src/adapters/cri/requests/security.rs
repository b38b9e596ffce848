//! Users, groups, capabilities, profiles and namespaces. The container's security context overrides the pod's, as in
//! a kubelet. The engine has already checked runAsNonRoot.

use super::request_config::RequestConfig;
use crate::adapters::cri::proto::{self, NamespaceMode, security_profile::ProfileType};
use crate::api::apparmor;
use crate::api::k8s;
use crate::api::names::ContainerId;
use crate::api::ordered::CollectOrdered;
use crate::api::pod::Pod;
use crate::api::user_namespace::{IDS_PER_POD, IdRange};
use crate::engine::effect::CreateContainer;
use protobuf::{EnumOrUnknown, MessageField};
use std::collections::BTreeMap;

/// Paths that are hidden from a container, and paths that are read-only, unless `procMount: Unmasked`.
const MASKED_PATHS: [&str; 12] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];
const READONLY_PATHS: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

pub fn sandbox(pod: &Pod, user_namespace: Option<IdRange>) -> proto::LinuxSandboxSecurityContext {
    let spec = pod.spec();
    // Each CreateContainer repeats the sandbox's configuration, and containerd checks the container against this
    // copy. Therefore, a privileged ephemeral container is possible even if the sandbox was not created as
    // privileged.
    let privileged =
        pod.every_container().any(|c| c.security_context.as_ref().is_some_and(|s| s.privileged == Some(true)));
    let mut sc = proto::LinuxSandboxSecurityContext {
        namespace_options: namespaces(pod, user_namespace),
        // The only process is the runtime's pause process, so the profiles of the containers do not apply.
        seccomp: profile(ProfileType::RuntimeDefault, String::new()),
        privileged,
        ..Default::default()
    };
    if let Some(p) = &spec.security_context {
        sc.run_as_user = number(p.run_as_user);
        // containerd rejects a group without a user. The group of the pause process does not matter.
        sc.run_as_group = number(p.run_as_group.filter(|_| p.run_as_user.is_some()));
        sc.selinux_options = selinux(p.se_linux_options.as_ref());
        (sc.supplemental_groups, sc.supplemental_groups_policy) = groups(p);
    }
    sc
}

pub fn container(
    create: &CreateContainer,
    c: &k8s::Container,
    cfg: &RequestConfig,
) -> Result<proto::LinuxContainerSecurityContext, String> {
    let (pod, image) = (&create.pod, &create.image);
    let pod_context = pod.spec().security_context.as_ref();
    let own = c.security_context.as_ref();
    let mut sc = proto::LinuxContainerSecurityContext {
        namespace_options: with_target(namespaces(pod, create.user_namespace), create.target.as_ref()),
        seccomp: seccomp(pod, c, cfg)?,
        apparmor: apparmor(pod, c),
        ..Default::default()
    };
    match own.and_then(|s| s.run_as_user).or(pod_context.and_then(|p| p.run_as_user)) {
        Some(uid) => sc.run_as_user = number(Some(uid)),
        // Otherwise, the image's user applies, which is root by default.
        None if image.uid.is_none() && !image.username.is_empty() => sc.run_as_username.clone_from(&image.username),
        None => sc.run_as_user = number(Some(image.uid.unwrap_or(0))),
    }
    sc.run_as_group = number(own.and_then(|s| s.run_as_group).or(pod_context.and_then(|p| p.run_as_group)));
    sc.selinux_options = selinux(
        own.and_then(|s| s.se_linux_options.as_ref()).or(pod_context.and_then(|p| p.se_linux_options.as_ref())),
    );
    if let Some(p) = pod_context {
        (sc.supplemental_groups, sc.supplemental_groups_policy) = groups(p);
    }
    if let Some(s) = own {
        sc.privileged = s.privileged == Some(true);
        sc.readonly_rootfs = s.read_only_root_filesystem == Some(true);
        sc.no_new_privs = s.allow_privilege_escalation == Some(false);
        if let Some(caps) = &s.capabilities {
            sc.capabilities = MessageField::some(proto::Capability {
                add_capabilities: caps.add.clone().unwrap_or_default(),
                drop_capabilities: caps.drop.clone().unwrap_or_default(),
                ..Default::default()
            });
        }
    }
    if own.and_then(|s| s.proc_mount.as_deref()) != Some("Unmasked") {
        sc.masked_paths = MASKED_PATHS.map(str::to_owned).into_iter().chain(cfg.masked_paths.iter().cloned()).collect();
        sc.readonly_paths = READONLY_PATHS.map(str::to_owned).to_vec();
    }
    Ok(sc)
}

/// Returns the pod's sysctls by dotted name: `net/ipv4/conf/eth0.1/x` becomes `net.ipv4.conf.eth0/1.x`.
pub fn sysctls(pod: &Pod) -> BTreeMap<String, String> {
    let list = pod.spec().security_context.as_ref().and_then(|p| p.sysctls.as_deref()).unwrap_or_default();
    list.iter().map(|s| (dotted(&s.name), s.value.clone())).collect_map()
}

fn dotted(name: &str) -> String {
    match name.find(['.', '/']) {
        Some(at) if name.as_bytes().get(at) == Some(&b'/') => {
            let swap = |c| match c {
                '/' => '.',
                '.' => '/',
                other => other,
            };
            name.chars().map(swap).collect()
        }
        _ => name.to_owned(),
    }
}

fn namespaces(pod: &Pod, user_namespace: Option<IdRange>) -> MessageField<proto::NamespaceOption> {
    let spec = pod.spec();
    let host = |on: Option<bool>| if on == Some(true) { NamespaceMode::NODE } else { NamespaceMode::POD };
    let pid = match (spec.host_pid, spec.share_process_namespace) {
        (Some(true), _) => NamespaceMode::NODE,
        (_, Some(true)) => NamespaceMode::POD,
        _ => NamespaceMode::CONTAINER,
    };
    MessageField::some(proto::NamespaceOption {
        network: host(spec.host_network).into(),
        pid: pid.into(),
        ipc: host(spec.host_ipc).into(),
        userns_options: MessageField::from_option(user_namespace.map(|range| proto::UserNamespace {
            mode: NamespaceMode::POD.into(),
            uids: id_mappings(Some(range)),
            gids: id_mappings(Some(range)),
            ..Default::default()
        })),
        ..Default::default()
    })
}

/// Sets the container whose process id namespace is shared. As in a kubelet, this target matters only if each
/// container has its own process id namespace.
fn with_target(
    mut namespaces: MessageField<proto::NamespaceOption>,
    target: Option<&ContainerId>,
) -> MessageField<proto::NamespaceOption> {
    if let (Some(options), Some(target)) = (namespaces.as_mut(), target)
        && options.pid == NamespaceMode::CONTAINER.into()
    {
        options.pid = NamespaceMode::TARGET.into();
        options.target_id = target.to_string();
    }
    namespaces
}

/// Returns the mapping of ids. The ids in the pod start at 0. Users and groups have the same mapping.
pub(super) fn id_mappings(user_namespace: Option<IdRange>) -> Vec<proto::IDMapping> {
    let mapping = |range: IdRange| proto::IDMapping {
        host_id: range.first(),
        container_id: 0,
        length: IDS_PER_POD,
        ..Default::default()
    };
    user_namespace.map(mapping).into_iter().collect()
}

/// Returns the fsGroup followed by the supplemental groups, and the policy for them.
fn groups(p: &k8s::PodSecurityContext) -> (Vec<i64>, EnumOrUnknown<proto::SupplementalGroupsPolicy>) {
    let list = p.fs_group.into_iter().chain(p.supplemental_groups.iter().flatten().copied()).collect();
    let policy = match p.supplemental_groups_policy.as_deref() {
        Some("Strict") => proto::SupplementalGroupsPolicy::Strict,
        _ => proto::SupplementalGroupsPolicy::Merge,
    };
    (list, policy.into())
}

fn seccomp(pod: &Pod, c: &k8s::Container, cfg: &RequestConfig) -> Result<MessageField<proto::SecurityProfile>, String> {
    let own = c.security_context.as_ref().and_then(|s| s.seccomp_profile.as_ref());
    let of_pod = pod.spec().security_context.as_ref().and_then(|p| p.seccomp_profile.as_ref());
    let Some(p) = own.or(of_pod) else {
        let kind = if cfg.seccomp_default { ProfileType::RuntimeDefault } else { ProfileType::Unconfined };
        return Ok(profile(kind, String::new()));
    };
    match p.type_.as_str() {
        "RuntimeDefault" => Ok(profile(ProfileType::RuntimeDefault, String::new())),
        "Unconfined" => Ok(profile(ProfileType::Unconfined, String::new())),
        "Localhost" => {
            let file = localhost(&c.name, "seccompProfile", p.localhost_profile.as_deref())?;
            if file.starts_with('/') || file.split('/').any(|part| part == "..") {
                return Err(format!(
                    "container {}: seccompProfile.localhostProfile: {file}: must be a path below {}",
                    c.name,
                    cfg.layout.seccomp()
                ));
            }
            Ok(profile(ProfileType::Localhost, format!("{}/{file}", cfg.layout.seccomp())))
        }
        other => Err(format!("container {}: seccompProfile.type: {other} is not supported", c.name)),
    }
}

/// Returns the AppArmor profile. If the pod sets none, none is sent, and the runtime applies its default.
fn apparmor(pod: &Pod, c: &k8s::Container) -> MessageField<proto::SecurityProfile> {
    match apparmor::of(&pod.object, c) {
        None => MessageField::none(),
        Some(apparmor::Profile::RuntimeDefault) => profile(ProfileType::RuntimeDefault, String::new()),
        Some(apparmor::Profile::Unconfined) => profile(ProfileType::Unconfined, String::new()),
        Some(apparmor::Profile::Localhost(name)) => profile(ProfileType::Localhost, name.to_owned()),
    }
}

fn localhost<'a>(container: &str, field: &str, name: Option<&'a str>) -> Result<&'a str, String> {
    name.filter(|n| !n.is_empty())
        .ok_or_else(|| format!("container {container}: {field}.localhostProfile: required with type Localhost"))
}

fn profile(kind: ProfileType, localhost_ref: String) -> MessageField<proto::SecurityProfile> {
    MessageField::some(proto::SecurityProfile { profile_type: kind.into(), localhost_ref, ..Default::default() })
}

fn selinux(options: Option<&k8s::SELinuxOptions>) -> MessageField<proto::SELinuxOption> {
    MessageField::from_option(options.map(|o| proto::SELinuxOption {
        user: o.user.clone().unwrap_or_default(),
        role: o.role.clone().unwrap_or_default(),
        type_: o.type_.clone().unwrap_or_default(),
        level: o.level.clone().unwrap_or_default(),
        ..Default::default()
    }))
}

fn number(value: Option<i64>) -> MessageField<proto::Int64Value> {
    MessageField::from_option(value.map(|value| proto::Int64Value { value, ..Default::default() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sysctl_names_with_slashes_become_dotted() {
        assert_eq!(dotted("net/ipv4/conf/eth0.1/x"), "net.ipv4.conf.eth0/1.x");
        assert_eq!(dotted("kernel.shm_rmid_forced"), "kernel.shm_rmid_forced");
    }
}
