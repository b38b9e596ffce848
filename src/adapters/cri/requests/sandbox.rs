//! The config of a pod's sandbox. It is sent with RunPodSandbox, and unchanged with each CreateContainer.

use super::request_config::RequestConfig;
use super::{annotations, dns, resources, security};
use crate::adapters::cri::proto;
use crate::api::hostname;
use crate::api::k8s;
use crate::api::pod::{Pod, is_sidecar};
use crate::api::qos::Qos;
use crate::api::user_namespace::IdRange;
use protobuf::MessageField;
use std::collections::BTreeSet;

/// Builds the config of a sandbox. `user_namespace`: None for the users of the host.
///
/// # Errors
/// A field cannot be represented in the CRI. The error names the field.
pub fn sandbox_config(
    pod: &Pod,
    attempt: u32,
    user_namespace: Option<IdRange>,
    cfg: &RequestConfig,
) -> Result<proto::PodSandboxConfig, String> {
    let (sum, overhead) = resources::sandbox(pod, cfg);
    let linux = proto::LinuxPodSandboxConfig {
        cgroup_parent: cfg.cgroups.pod(Qos::of(pod.spec()), &pod.uid),
        security_context: MessageField::some(security::sandbox(pod, user_namespace)),
        sysctls: security::sysctls(pod),
        overhead: MessageField::some(overhead),
        resources: MessageField::some(sum),
        ..Default::default()
    };
    let hostname = if pod.host_network() { String::new() } else { hostname::kernel_name(pod, &cfg.cluster_domain)? };
    Ok(proto::PodSandboxConfig {
        metadata: MessageField::some(proto::PodSandboxMetadata {
            name: pod.name.name.to_string(),
            uid: pod.uid.to_string(),
            namespace: pod.name.namespace.to_string(),
            attempt,
            ..Default::default()
        }),
        hostname,
        log_directory: cfg.layout.pod_logs(&pod.name, &pod.uid),
        dns_config: MessageField::some(dns::dns_config(pod, cfg)),
        port_mappings: port_mappings(pod),
        labels: annotations::sandbox_labels(pod),
        annotations: annotations::sandbox_annotations(pod, user_namespace, cfg),
        linux: MessageField::some(linux),
        ..Default::default()
    })
}

/// Returns the ports of all main containers and sidecars, with or without a host port, without duplicates.
fn port_mappings(pod: &Pod) -> Vec<proto::PortMapping> {
    let spec = pod.spec();
    let staying = spec.containers.iter().chain(pod.init_containers().iter().filter(|c| is_sidecar(c)));
    let mut known = BTreeSet::new();
    let is_new = |p: &&k8s::ContainerPort| {
        let host_ip = p.host_ip.clone().unwrap_or_default();
        known.insert((protocol(p) as i32, p.container_port, p.host_port.unwrap_or(0), host_ip))
    };
    staying.flat_map(|c| c.ports.iter().flatten()).filter(is_new).map(mapping).collect()
}

fn protocol(port: &k8s::ContainerPort) -> proto::Protocol {
    match port.protocol.as_deref() {
        Some("UDP") => proto::Protocol::UDP,
        Some("SCTP") => proto::Protocol::SCTP,
        _ => proto::Protocol::TCP,
    }
}

fn mapping(port: &k8s::ContainerPort) -> proto::PortMapping {
    proto::PortMapping {
        protocol: protocol(port).into(),
        container_port: port.container_port,
        host_port: port.host_port.unwrap_or(0),
        host_ip: port.host_ip.clone().unwrap_or_default(),
        ..Default::default()
    }
}
