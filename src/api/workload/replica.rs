//! A pod that is created from a template.

use super::key::{WorkloadKey, WorkloadKind};
use super::{stateful_set, template};
use crate::api::defaults;
use crate::api::document::context::Context;
use crate::api::k8s::{self, ObjectMeta, OwnerReference, PodTemplateSpec};
use crate::api::names::{FullName, Uid, annotation};
use crate::api::pod::Pod;
use crate::api::source::Source;
use crate::api::uid;

/// The maximum length of a generated name before its five random characters, as in an API server.
const MAX_PREFIX: usize = 58;

/// The controller of a pod, and the revision of its template.
#[derive(Clone, Copy, Debug)]
pub struct PodOwner<'a> {
    pub kind: WorkloadKind,
    /// The name of a pod begins with this name.
    pub name: &'a FullName,
    pub uid: &'a Uid,
    /// The label with the hash of the template, and its value. A ReplicaSet of its own has none.
    pub hash: Option<(&'static str, &'a str)>,
    /// The document that asks for the pod.
    pub source: &'a Source,
}

/// Makes a new pod. `end`: the end of its name, `random`: 64 hexadecimal digits, which become its digest.
pub fn new(owner: PodOwner<'_>, template: &PodTemplateSpec, end: &str, random: String, context: Context<'_>) -> Pod {
    let prefix = format!("{}-", owner.name.name);
    let most = prefix.char_indices().nth(MAX_PREFIX).map_or(prefix.len(), |(most, _)| most);
    let name = FullName::new(&owner.name.namespace, &format!("{}{end}", &prefix[..most]));
    let uid = uid::of(&owner.source.path, &random);
    let of_template = template.metadata.clone().unwrap_or_default();
    let mut labels = of_template.labels.unwrap_or_default();
    labels.extend(owner.hash.map(|(label, hash)| (label.to_owned(), hash.to_owned())));
    let metadata = ObjectMeta {
        name: Some(name.name.to_string()),
        namespace: Some(name.namespace.to_string()),
        generate_name: Some(prefix),
        labels: Some(labels),
        annotations: of_template.annotations,
        owner_references: Some(vec![OwnerReference {
            api_version: owner.kind.api_version().to_owned(),
            kind: owner.kind.name().to_owned(),
            name: owner.name.name.to_string(),
            uid: owner.uid.to_string(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }]),
        ..ObjectMeta::default()
    };
    let mut object = k8s::Pod { metadata, spec: template.spec.clone(), status: None };
    defaults::apply(&mut object, &uid, context);
    Pod { uid, name, source: owner.source.clone(), digest: random, object, ephemeral: Vec::new() }
}

/// Returns when the pod was created; None if it does not say so.
pub fn created(pod: &Pod) -> Option<jiff::Timestamp> {
    pod.object.metadata.annotations.as_ref()?.get(annotation::CONFIG_SEEN)?.parse().ok()
}

/// Returns the template from which a pod was probably created, without the fields that each pod gets.
pub fn template_of(pod: &Pod) -> PodTemplateSpec {
    let metadata = &pod.object.metadata;
    let mut labels = metadata.labels.clone().unwrap_or_default();
    for label in template::HASH_LABELS.into_iter().chain([stateful_set::NAME_LABEL, stateful_set::INDEX_LABEL]) {
        labels.remove(label);
    }
    let mut annotations = metadata.annotations.clone().unwrap_or_default();
    for key in [annotation::CONFIG_HASH, annotation::CONFIG_SEEN, annotation::CONFIG_SOURCE] {
        annotations.remove(key);
    }
    let metadata = ObjectMeta { labels: Some(labels), annotations: Some(annotations), ..ObjectMeta::default() };
    let mut spec = pod.spec().clone();
    spec.node_name = None;
    if controller(&pod.object.metadata).is_some_and(|owner| owner.kind == "StatefulSet") {
        (spec.hostname, spec.subdomain) = (None, None);
        let is_of_template = |volume: &k8s::Volume| {
            let claim = volume.persistent_volume_claim.as_ref().map(|source| source.claim_name.as_str());
            claim == Some(stateful_set::claim_name(&volume.name, &pod.name.name).as_str())
        };
        spec.volumes.get_or_insert_default().retain(|volume| !is_of_template(volume));
        spec.volumes = spec.volumes.take().filter(|volumes| !volumes.is_empty());
    }
    PodTemplateSpec { metadata: Some(metadata), spec: Some(spec) }
}

/// Returns the ports of the node that each pod of this template needs: protocol and number.
pub fn host_ports(template: &PodTemplateSpec) -> Vec<String> {
    let spec = template.spec.iter();
    let ports = spec.flat_map(|spec| &spec.containers).flat_map(|container| container.ports.iter().flatten());
    let of = |port: &k8s::ContainerPort| {
        let number = port.host_port.filter(|number| *number > 0)?;
        Some(format!("{}/{number}", port.protocol.as_deref().unwrap_or("TCP")))
    };
    ports.filter_map(of).collect()
}

/// Returns true if the controller of the pod is a DaemonSet, here or in a cluster.
pub fn is_of_daemon_set(pod: &Pod) -> bool {
    controller(&pod.object.metadata).is_some_and(|owner| owner.kind == "DaemonSet")
}

/// Returns true if the object with this key is the controller of the pod.
pub fn belongs_to(pod: &Pod, key: &WorkloadKey) -> bool {
    let is_own = |owner: &OwnerReference| owner.kind == key.kind.name() && owner.uid == key.uid().as_str();
    pod.name.namespace == key.name.namespace && controller(&pod.object.metadata).is_some_and(is_own)
}

/// Returns the controller of a pod: kind, name and UID.
pub fn controller(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}
