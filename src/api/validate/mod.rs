//! Validation of a defaulted pod. All problems are reported at once, with the messages of Kubernetes.
//!
//! `unsupported` rejects fields that are not implemented yet. Admission, not this module, checks whether the pod fits
//! the node.

mod address;
pub(crate) mod claim;
mod claim_spec;
mod complaints;
mod container;
pub(crate) mod cron_job;
pub(crate) mod daemon_set;
pub(crate) mod deployment;
pub(crate) mod disruption_budget;
pub(crate) mod endpoint_slice;
mod environment;
mod ephemeral;
pub(crate) mod job;
mod network;
mod part_of_byte;
mod placement;
pub(crate) mod plain_object;
mod probes;
pub(crate) mod replica_set;
mod resources;
mod security;
pub(crate) mod service;
pub(crate) mod stateful_set;
mod stop_signals;
mod syntax;
mod unsupported;
mod user_namespace;
mod volumes;
pub(crate) mod workload;

use crate::api::data_object::{self, DockerFormat};
use crate::api::image;
use crate::api::k8s::ObjectMeta;
use crate::api::k8s::PriorityClass;
use crate::api::k8s::RuntimeClass;
use crate::api::k8s::{ConfigMap, Container, Pod, PodSpec, Secret};
use crate::api::priority;
use crate::api::problem::{At, Fault, Faults, What};
use complaints::{complain, one_of};
pub(crate) use ephemeral::ephemeral;
pub(crate) use part_of_byte::parts_of_bytes;
use std::collections::{BTreeMap, BTreeSet};
use syntax::Complaints;

/// The maximum total size of the keys and values of all annotations of an object, in bytes.
const MAX_ANNOTATIONS: usize = 256 * 1024;

pub(crate) fn pod(pod: &Pod) -> Vec<Fault> {
    let mut faults = Faults::default();
    let root = At::Root;
    metadata(&pod.metadata, root.field("metadata"), &mut faults);
    security::apparmor_annotations(pod, root.field("metadata").field("annotations"), &mut faults);
    let empty = PodSpec::default();
    spec(pod.spec.as_ref().unwrap_or(&empty), root.field("spec"), &mut faults);
    faults.0
}

/// Returns the faults of `pod`, except those for fields that are not implemented yet.
pub(crate) fn pod_with_unsupported(pod: &Pod) -> Vec<Fault> {
    let mut faults = self::pod(pod);
    faults.retain(|fault| fault.what != What::NotYet);
    faults
}

/// Returns the faults of a pod from an API server, which has already validated it (C18). They are only fields that
/// this version does not support, and errors that keep the pod from running.
pub(crate) fn pod_of_cluster(pod: &Pod) -> Vec<Fault> {
    let mut faults = self::pod(pod);
    faults.retain(|fault| !matches!(fault.what, What::NeedsCluster(_) | What::OfManifests(_)));
    let mut all = Faults(faults);
    if let Some(spec) = &pod.spec {
        volumes::claims_of_cluster(spec, At::Root.field("spec"), &mut all);
    }
    all.0
}

/// Returns warnings about fields that have no effect on this machine: the options for Windows.
pub(crate) fn without_effect(pod: &Pod) -> Vec<Fault> {
    let mut faults = Faults::default();
    let root = At::Root;
    let at = root.field("spec");
    let Some(spec) = &pod.spec else { return faults.0 };
    let why = "has no effect on Linux; remove it";
    if spec.security_context.as_ref().is_some_and(|context| context.windows_options.is_some()) {
        faults.add(at.field("securityContext").field("windowsOptions"), why);
    }
    let init = spec.init_containers.as_deref().unwrap_or_default();
    for (field, list) in [("initContainers", init), ("containers", &spec.containers)] {
        let at = at.field(field);
        for (i, container) in list.iter().enumerate() {
            if container.security_context.as_ref().is_some_and(|context| context.windows_options.is_some()) {
                faults.add(at.item(i).field("securityContext").field("windowsOptions"), why);
            }
        }
    }
    faults.0
}

/// Returns the invalid image names of a valid pod. The pod is accepted nevertheless.
pub(crate) fn image_names(pod: &Pod) -> Vec<Fault> {
    let mut faults = Faults::default();
    let root = At::Root;
    let at = root.field("spec");
    let spec = pod.spec.as_ref();
    let containers = spec.map(|spec| spec.containers.as_slice()).unwrap_or_default();
    let init = spec.and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
    for (field, list) in [("containers", containers), ("initContainers", init)] {
        let at = at.field(field);
        for (i, container) in list.iter().enumerate() {
            let image = container.image.as_deref().unwrap_or_default();
            if let Err(why) = image::check(image) {
                let at = at.item(i);
                let detail = format_args!("{why}; the container would wait with InvalidImageName");
                faults.invalid(at.field("image"), image, detail);
            }
        }
    }
    let at_volumes = at.field("volumes");
    for (i, volume) in spec.and_then(|spec| spec.volumes.as_deref()).unwrap_or_default().iter().enumerate() {
        let Some(image) = volume.image.as_ref().and_then(|image| image.reference.as_deref()) else { continue };
        if let Err(why) = image::check(image) {
            let at = at_volumes.item(i);
            let detail = format_args!("{why}; the containers that mount it would wait with InvalidImageName");
            faults.invalid(at.field("image").field("reference"), image, detail);
        }
    }
    faults.0
}

/// Validates a PriorityClass. `says_value` is true if the manifest contains the value. The typed value alone cannot
/// tell 0 from a missing field.
pub(crate) fn priority_class(class: &PriorityClass, says_value: bool) -> Vec<Fault> {
    let mut faults = Faults::default();
    let root = At::Root;
    let at = root.field("metadata");
    let name = class.metadata.name.as_deref().unwrap_or_default();
    if name.starts_with(priority::SYSTEM_PREFIX) {
        let remedy = match priority::system_class(name) {
            Some(_) => format!("{name} is built in and needs no manifest"),
            None => "choose another name".to_owned(),
        };
        let reserved = "priority class names with 'system-' prefix are reserved for system use only";
        faults.forbidden(at.field("name"), format_args!("{reserved}; {remedy}"));
    }
    if class.metadata.namespace.as_deref().is_some_and(|namespace| !namespace.is_empty()) {
        faults.forbidden(at.field("namespace"), "not allowed on this type");
    }
    any_metadata(&class.metadata, "priority class", syntax::dns_subdomain, at, &mut faults);
    if !says_value {
        faults.required(root.field("value"), "");
    } else if class.value > priority::HIGHEST_OF_USERS {
        let most = priority::HIGHEST_OF_USERS;
        let detail = format_args!("maximum allowed value of a user defined priority is {most}");
        faults.forbidden(root.field("value"), detail);
    }
    let at = root.field("preemptionPolicy");
    match class.preemption_policy.as_deref() {
        Some("") => faults.required(at, ""),
        Some(policy) => one_of(Some(policy), &["PreemptLowerPriority", "Never"], at, &mut faults),
        None => {}
    }
    faults.0
}

pub(crate) fn runtime_class(class: &RuntimeClass) -> Vec<Fault> {
    let mut faults = Faults::default();
    let root = At::Root;
    let at = root.field("metadata");
    if class.metadata.namespace.as_deref().is_some_and(|namespace| !namespace.is_empty()) {
        faults.forbidden(at.field("namespace"), "not allowed on this type");
    }
    any_metadata(&class.metadata, "runtime class", syntax::dns_subdomain, at, &mut faults);
    let at = root.field("handler");
    if class.handler.is_empty() {
        faults.required(at, "the name of a handler in the configuration of the runtime");
    } else {
        complain(syntax::dns_label(&class.handler), &class.handler, at, &mut faults);
    }
    if let Some(overhead) = class.overhead.as_ref().and_then(|overhead| overhead.pod_fixed.as_ref()) {
        resources::overhead(overhead, root.field("overhead").field("podFixed"), &mut faults);
    }
    faults.0
}

pub(crate) fn config_map(map: &ConfigMap) -> Vec<Fault> {
    let mut faults = Faults::default();
    let root = At::Root;
    data_metadata(&map.metadata, "config map", &mut faults);
    let (data, binary) = (root.field("data"), root.field("binaryData"));
    let mut size = 0;
    for (key, value) in map.data.iter().flatten() {
        complain(syntax::config_key(key), key, data.key(key), &mut faults);
        if map.binary_data.as_ref().is_some_and(|binary| binary.contains_key(key)) {
            faults.invalid(data.key(key), key, "duplicate of key present in binaryData");
        }
        size += value.len();
    }
    for (key, value) in map.binary_data.iter().flatten() {
        complain(syntax::config_key(key), key, binary.key(key), &mut faults);
        size += value.0.len();
    }
    too_large(size, root.field("data"), &mut faults);
    faults.0
}

/// Validates a Secret. No message contains a value, or a key that is invalid.
pub(crate) fn secret(secret: &Secret) -> Vec<Fault> {
    let mut faults = Faults::default();
    let root = At::Root;
    data_metadata(&secret.metadata, "secret", &mut faults);
    let (data, text) = (root.field("data"), root.field("stringData"));
    let mut size = 0;
    for (key, value) in secret.data.iter().flatten() {
        secret_key(key, data.key(key), &mut faults);
        size += value.0.len();
    }
    for (key, value) in secret.string_data.iter().flatten() {
        secret_key(key, text.key(key), &mut faults);
        size += value.len();
    }
    too_large(size, root.field("data"), &mut faults);
    if let Some(format) = secret.type_.as_deref().and_then(DockerFormat::of_type) {
        docker(secret, format, &mut faults);
    }
    faults.0
}

fn secret_key(key: &str, at: At<'_>, faults: &mut Faults) {
    syntax::config_key(key).into_iter().for_each(|complaint| faults.add(at, format!("Invalid value: {complaint}")));
}

pub(crate) fn is_config_key(key: &str) -> bool {
    syntax::config_key(key).is_empty()
}

/// Validates the registry credentials in a Secret of such a type.
fn docker(secret: &Secret, format: DockerFormat, faults: &mut Faults) {
    let root = At::Root;
    let (data, text) = (root.field("data"), root.field("stringData"));
    let key = format.key();
    let in_text = secret.string_data.as_ref().and_then(|all| all.get(key)).map(|value| value.as_bytes());
    let in_data = secret.data.as_ref().and_then(|all| all.get(key)).map(|value| value.0.as_slice());
    let (at, value) = match (in_text, in_data) {
        (Some(value), _) => (text.key(key), value),
        (None, Some(value)) => (data.key(key), value),
        (None, None) => return faults.required(data.key(key), ""),
    };
    if let Err(why) = format.read(value) {
        faults.add(at, format!("Invalid value: \"<secret contents redacted>\": {why}"));
    }
}

fn data_metadata(metadata: &ObjectMeta, kind: &str, faults: &mut Faults) {
    named_metadata(metadata, kind, syntax::dns_subdomain, faults);
}

/// Checks the metadata of an object in a namespace, whose name has its own grammar.
fn named_metadata(metadata: &ObjectMeta, kind: &str, grammar: fn(&str) -> Complaints, faults: &mut Faults) {
    let root = At::Root;
    let at = root.field("metadata");
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    complain(syntax::dns_label(namespace), namespace, at.field("namespace"), faults);
    any_metadata(metadata, kind, grammar, at, faults);
}

fn too_large(size: usize, at: At<'_>, faults: &mut Faults) {
    if size > data_object::MAX_SIZE {
        faults.add(at, format!("Too long: may not be more than {} bytes", data_object::MAX_SIZE));
    }
}

/// Returns the errors in the name of most kinds of objects. Empty if it is valid.
pub fn subdomain(name: &str) -> Vec<String> {
    syntax::dns_subdomain(name)
}

/// Returns the errors in a label's key or value, with the messages of Kubernetes. Empty if both are valid.
pub fn label(key: &str, value: &str) -> Vec<String> {
    syntax::qualified_name(key).into_iter().chain(syntax::label_value(value)).collect()
}

/// Reports whether the name is valid for an extended resource: it has a domain that is not Kubernetes' own.
pub fn is_extended_resource(name: &str) -> bool {
    resources::is_extended(name)
}

fn metadata(metadata: &ObjectMeta, at: At<'_>, faults: &mut Faults) {
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    complain(syntax::dns_label(namespace), namespace, at.field("namespace"), faults);
    let uid = metadata.uid.as_deref().unwrap_or_default();
    complain(syntax::uid(uid), uid, at.field("uid"), faults);
    if metadata.deletion_timestamp.is_some() {
        faults.forbidden(at.field("deletionTimestamp"), "to remove the pod, remove its manifest");
    }
    any_metadata(metadata, "pod", syntax::dns_subdomain, at, faults);
}

/// Checks the metadata common to all kinds. `grammar` is that of the name.
fn any_metadata(metadata: &ObjectMeta, kind: &str, grammar: fn(&str) -> Complaints, at: At<'_>, faults: &mut Faults) {
    match metadata.name.as_deref() {
        None | Some("") => faults.required(at.field("name"), &format!("name is needed for the {kind}")),
        Some(name) => complain(grammar(name), name, at.field("name"), faults),
    }
    labels(metadata.labels.as_ref(), at.field("labels"), faults);
    let at_annotations = at.field("annotations");
    let mut size = 0;
    for (key, value) in metadata.annotations.iter().flatten() {
        size += key.len() + value.len();
        complain(syntax::qualified_name(&key.to_lowercase()), key, at_annotations.key(key), faults);
    }
    if size > MAX_ANNOTATIONS {
        faults.add(at_annotations, format!("Too long: may not be more than {MAX_ANNOTATIONS} bytes"));
    }
}

fn labels(labels: Option<&BTreeMap<String, String>>, at: At<'_>, faults: &mut Faults) {
    for (key, value) in labels.into_iter().flatten() {
        let at = at.key(key);
        complain(syntax::qualified_name(key), key, at, faults);
        complain(syntax::label_value(value), value, at, faults);
    }
}

fn spec(spec: &PodSpec, at: At<'_>, faults: &mut Faults) {
    one_of(spec.restart_policy.as_deref(), &["Always", "Never", "OnFailure"], at.field("restartPolicy"), faults);
    if let Some(policy) = &spec.preemption_policy {
        one_of(Some(policy), &["Never", "PreemptLowerPriority"], at.field("preemptionPolicy"), faults);
    }
    if let Some(class) = priority::named(spec) {
        complain(syntax::dns_subdomain(class), class, at.field("priorityClassName"), faults);
    }
    if let Some(grace) = spec.termination_grace_period_seconds.filter(|s| *s < 0) {
        let at = at.field("terminationGracePeriodSeconds");
        faults.invalid(at, grace, "must be greater than or equal to 0");
    }
    if let Some(deadline) = spec.active_deadline_seconds
        && !(1..=i64::from(i32::MAX)).contains(&deadline)
    {
        let at = at.field("activeDeadlineSeconds");
        faults.invalid(at, deadline, "must be between 1 and 2147483647, inclusive");
    }
    placement::placement(spec, at, faults);
    resources::of_pod(spec, at, faults);
    if let Some(overhead) = &spec.overhead {
        resources::overhead(overhead, at.field("overhead"), faults);
    }
    if spec.share_process_namespace == Some(true) && spec.host_pid == Some(true) {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        faults.invalid(at.field("shareProcessNamespace"), true, detail);
    }
    network::names(spec, at, faults);
    network::dns(spec, at, faults);
    if let Some(context) = &spec.security_context {
        security::of_pod(context, spec, at.field("securityContext"), faults);
    }
    unsupported::of_pod(spec, at, faults);
    user_namespace::of_pod(spec, at, faults);
    stop_signals::of_pod(spec, at, faults);
    volumes::volumes(spec, at, faults);

    containers(spec, at, faults);
}

/// Validates all containers. Their names must be unique. Main containers must not share a host port; init containers
/// may, because they run one after another.
fn containers(spec: &PodSpec, at: At<'_>, faults: &mut Faults) {
    let host_network = spec.host_network == Some(true);
    let at_containers = at.field("containers");
    if spec.containers.is_empty() {
        faults.required(at_containers, "");
    }
    let mut names = BTreeSet::new();
    let mut unique = |container: &Container, at: At<'_>, faults: &mut Faults| {
        if !container.name.is_empty() && !names.insert(container.name.clone()) {
            faults.duplicate(at.field("name"), &container.name);
        }
    };
    let grace = spec.termination_grace_period_seconds.unwrap_or(30);
    let restarts = spec.restart_policy.as_deref() != Some("Never");
    let mut host_ports = Vec::new();
    for (i, each) in spec.containers.iter().enumerate() {
        let at = at_containers.item(i);
        unique(each, at, faults);
        container::container(each, grace, at, faults);
        resources::resize_policy(each, restarts, at, faults);
        if each.restart_policy.is_some() {
            faults.forbidden(at.field("restartPolicy"), "may not be set for non-init containers");
        }
        volumes::mounts(each, spec, at, faults);
        let ports = each.ports.as_deref().unwrap_or_default();
        network::ports(ports, host_network, &mut host_ports, at.field("ports"), faults);
    }
    let at_init = at.field("initContainers");
    for (i, each) in spec.init_containers.iter().flatten().enumerate() {
        let at = at_init.item(i);
        unique(each, at, faults);
        container::container(each, grace, at, faults);
        resources::resize_policy(each, restarts, at, faults);
        container::init_container(each, at, faults);
        volumes::mounts(each, spec, at, faults);
        let ports = each.ports.as_deref().unwrap_or_default();
        network::ports(ports, host_network, &mut Vec::new(), at.field("ports"), faults);
    }
}

#[cfg(test)]
mod tests;
