//! The config of one container, for CreateContainer.

use super::{RequestConfig, annotations, init_containers, resources, security};
use crate::adapters::cri::proto;
use crate::api::expand;
use crate::api::layout::Layout;
use crate::engine::effect::CreateContainer;
use k8s_openapi::api::core::v1 as core;
use protobuf::MessageField;

/// The mount point of the managed hosts file in a container.
const ETC_HOSTS: &str = "/etc/hosts";

/// Builds the config of a container.
///
/// # Errors
/// A field cannot be represented in the CRI. The error names the container and the field.
pub fn container_config(create: &CreateContainer, cfg: &RequestConfig) -> Result<proto::ContainerConfig, String> {
    let pod = &create.pod;
    let spec = pod.spec();
    let container = spec
        .containers
        .iter()
        .chain(init_containers(spec))
        .find(|c| c.name == create.container)
        .ok_or_else(|| format!("pod {} has no container {}", pod.name, create.container))?;
    literal(container)?;
    // A record of an earlier version may contain values that validation rejects today.
    let expanded = expand::container(container).map_err(|e| format!("container {}: {e}", container.name))?;
    Ok(proto::ContainerConfig {
        metadata: MessageField::some(proto::ContainerMetadata {
            name: container.name.clone(),
            attempt: create.attempt,
            ..Default::default()
        }),
        image: MessageField::some(proto::ImageSpec {
            image: create.image.id.clone(),
            user_specified_image: container.image.clone().unwrap_or_default(),
            ..Default::default()
        }),
        command: expanded.command,
        args: expanded.args,
        working_dir: container.working_dir.clone().unwrap_or_default(),
        envs: expanded
            .env
            .into_iter()
            .map(|(key, value)| proto::KeyValue { key, value, ..Default::default() })
            .collect(),
        mounts: mounts(create, container, cfg),
        labels: annotations::container_labels(pod, &container.name),
        annotations: annotations::container_annotations(create, container, cfg),
        log_path: Layout::log_path(&container.name, create.attempt),
        stdin: container.stdin == Some(true),
        stdin_once: container.stdin_once == Some(true),
        tty: container.tty == Some(true),
        linux: MessageField::some(proto::LinuxContainerConfig {
            resources: MessageField::some(resources::container(pod, container, cfg)),
            security_context: MessageField::some(security::container(pod, container, &create.image, cfg)?),
            ..Default::default()
        }),
        ..Default::default()
    })
}

/// Rejects `envFrom` and `valueFrom`. Validation rejects them as well; this check ensures that none is dropped silently.
fn literal(container: &core::Container) -> Result<(), String> {
    if container.env_from.as_ref().is_some_and(|e| !e.is_empty()) {
        return Err(format!("container {}: envFrom is not supported", container.name));
    }
    match container.env.iter().flatten().find(|e| e.value_from.is_some()) {
        Some(e) => Err(format!("container {}: env {}: valueFrom is not supported", container.name, e.name)),
        None => Ok(()),
    }
}

/// The mounts of /etc/hosts and of the termination message file, in this order.
fn mounts(create: &CreateContainer, container: &core::Container, cfg: &RequestConfig) -> Vec<proto::Mount> {
    let mut mounts = vec![mount(ETC_HOSTS, cfg.layout.etc_hosts(&create.pod.uid))];
    if let Some(path) = container.termination_message_path.as_deref().filter(|p| !p.is_empty()) {
        mounts.push(mount(path, create.termination_file.clone()));
    }
    mounts
}

fn mount(container_path: &str, host_path: String) -> proto::Mount {
    proto::Mount { container_path: container_path.to_owned(), host_path, ..Default::default() }
}
