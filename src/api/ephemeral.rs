//! Ephemeral containers (W29): containers that a user adds to a running pod in order to examine it. Manifests cannot
//! define them. The engine treats them like other containers: `of` converts one to the type of an ordinary container.

use crate::api::k8s;

#[derive(Clone, Debug, PartialEq)]
pub struct Ephemeral {
    pub container: k8s::Container,
    /// `targetContainerName`: the container whose processes the ephemeral container sees.
    pub target: Option<String>,
}

/// Converts an ephemeral container to an ordinary container.
pub fn of(spec: &k8s::EphemeralContainer) -> Ephemeral {
    let k8s::EphemeralContainer {
        args,
        command,
        env,
        env_from,
        image,
        image_pull_policy,
        lifecycle,
        liveness_probe,
        name,
        ports,
        readiness_probe,
        resize_policy,
        resources,
        restart_policy,
        restart_policy_rules,
        security_context,
        startup_probe,
        stdin,
        stdin_once,
        target_container_name,
        termination_message_path,
        termination_message_policy,
        tty,
        volume_devices,
        volume_mounts,
        working_dir,
    } = spec.clone();
    let container = k8s::Container {
        args,
        command,
        env,
        env_from,
        image,
        image_pull_policy,
        lifecycle,
        liveness_probe,
        name,
        ports,
        readiness_probe,
        resize_policy,
        resources,
        restart_policy,
        restart_policy_rules,
        security_context,
        startup_probe,
        stdin,
        stdin_once,
        termination_message_path,
        termination_message_policy,
        tty,
        volume_devices,
        volume_mounts,
        working_dir,
    };
    Ephemeral { container, target: target_container_name.filter(|name| !name.is_empty()) }
}
