//! The config of one container, for CreateContainer.

use super::request_config::RequestConfig;
use super::{annotations, resources, security};
use crate::adapters::cri::proto;
use crate::api::devices::DeviceNode;
use crate::api::k8s::Container;
use crate::api::layout::Layout;
use crate::api::mount::{Access, Mount, MountSource, Propagation};
use crate::api::pod::Pod;
use crate::api::stop_signal;
use crate::api::user_namespace::IdRange;
use crate::engine::effect::CreateContainer;
use protobuf::{EnumOrUnknown, MessageField};

/// Builds the config of a container. Environment, command, arguments and mounts are those of `create`; all other fields
/// come from the pod's spec and the node's settings.
///
/// # Errors
/// A field cannot be represented in the CRI. The error names the container and the field.
pub fn container_config(create: &CreateContainer, cfg: &RequestConfig) -> Result<proto::ContainerConfig, String> {
    let pod = &create.pod;
    let container = named(pod, &create.container)?;
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
        command: create.process.command.clone(),
        args: create.process.args.clone(),
        working_dir: container.working_dir.clone().unwrap_or_default(),
        envs: create.process.env.iter().map(env).collect(),
        mounts: create.mounts.iter().map(|m| mount(m, create.user_namespace, cfg)).collect(),
        devices: create.devices.nodes.iter().map(device).collect(),
        CDI_devices: create.devices.cdi.iter().map(|name| cdi_device(name)).collect(),
        labels: annotations::container_labels(pod, &container.name),
        annotations: annotations::container_annotations(create, container, cfg),
        log_path: Layout::log_path(&container.name, create.attempt),
        stdin: container.stdin == Some(true),
        stdin_once: container.stdin_once == Some(true),
        tty: container.tty == Some(true),
        stop_signal: stop_signal_of(container).unwrap_or(0),
        linux: MessageField::some(proto::LinuxContainerConfig {
            resources: MessageField::some(resources::container(pod, container, cfg)),
            security_context: MessageField::some(security::container(create, container, cfg)?),
            ..Default::default()
        }),
        ..Default::default()
    })
}

/// Returns the resources of a container, for an in-place resize.
///
/// # Errors
/// The pod has no such container.
pub fn container_resources(
    pod: &Pod,
    container: &str,
    cfg: &RequestConfig,
) -> Result<proto::LinuxContainerResources, String> {
    Ok(resources::container(pod, named(pod, container)?, cfg))
}

fn named<'p>(pod: &'p Pod, container: &str) -> Result<&'p Container, String> {
    pod.container(container).ok_or_else(|| format!("pod {} has no container {container}", pod.name))
}

fn stop_signal_of(container: &Container) -> Option<i32> {
    stop_signal::number(container.lifecycle.as_ref()?.stop_signal.as_deref()?)
}

fn env((key, value): &(String, String)) -> proto::KeyValue {
    proto::KeyValue { key: key.clone(), value: value.clone(), ..Default::default() }
}

fn device(node: &DeviceNode) -> proto::Device {
    proto::Device {
        container_path: node.container_path.clone(),
        host_path: node.host_path.clone(),
        permissions: node.permissions.clone(),
        ..Default::default()
    }
}

fn cdi_device(name: &str) -> proto::CDIDevice {
    proto::CDIDevice { name: name.to_owned(), ..Default::default() }
}

/// Converts a mount. In a user namespace, the mount is id-mapped, so the owners of the files on the disk do not
/// change.
pub(super) fn mount(mount: &Mount, user_namespace: Option<IdRange>, cfg: &RequestConfig) -> proto::Mount {
    let (host_path, image, image_sub_path) = match &mount.source {
        MountSource::Host(path) => (path.clone(), MessageField::none(), String::new()),
        MountSource::Image(source) => {
            let image = proto::ImageSpec {
                image: source.id.clone(),
                user_specified_image: source.reference.clone(),
                ..Default::default()
            };
            (String::new(), MessageField::some(image), source.sub_path.clone())
        }
    };
    // The runtime itself gives the files of an image the right owners.
    let mapped = user_namespace.filter(|_| image.is_none());
    proto::Mount {
        uidMappings: security::id_mappings(mapped),
        gidMappings: security::id_mappings(mapped),
        container_path: mount.container_path.clone(),
        host_path,
        image,
        image_sub_path,
        readonly: mount.access != Access::ReadWrite,
        recursive_read_only: mount.access == Access::RecursiveReadOnly,
        selinux_relabel: mount.owned && cfg.selinux,
        propagation: EnumOrUnknown::new(match mount.propagation {
            Propagation::Private => proto::MountPropagation::PROPAGATION_PRIVATE,
            Propagation::HostToContainer => proto::MountPropagation::PROPAGATION_HOST_TO_CONTAINER,
            Propagation::Bidirectional => proto::MountPropagation::PROPAGATION_BIDIRECTIONAL,
        }),
        ..Default::default()
    }
}
