//! Converts objects to their form in the API: with their kind, version and all defaults.

use super::pod_object::pod_object;
use super::snapshot::Snapshot;
use super::state::KubectlApi;
use super::{namespaces, node};
use crate::api::claim::ClaimKey;
use crate::api::data_object::{DataKey, DataKind, DataObject, DataValue};
use crate::api::disruption_budget::DisruptionBudget;
use crate::api::k8s::ByteString;
use crate::api::kube::plain_objects;
use crate::api::kube::resources::{Kind, Resource};
use crate::api::kube::versions::Key;
use crate::api::names::FullName;
use crate::api::network_object::NetworkObject;
use crate::api::plain_object::{PlainKey, PlainKind, PlainObject};
use crate::api::priority::{self, PriorityClass};
use crate::api::source::Source;
use crate::api::storage_class::StorageClass;
use crate::api::uid::of_name as uid;
use crate::api::workload::key::{WorkloadKey, WorkloadKind};
use crate::engine::claims::shown as claims;
use crate::engine::node::Engine;
use crate::engine::services::shown as services;
use crate::engine::workloads::shown;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::rc::Rc;

/// The namespace of the node's lease.
const LEASES: &str = "kube-node-lease";
/// The duration of the lease, as in a kubelet.
const LEASE_SECONDS: u32 = 40;

impl KubectlApi {
    /// Returns the current state of an object, or None if it is gone.
    pub(super) fn object(&self, snapshot: &Snapshot<'_>, key: &Key) -> Option<Value> {
        let mut object = self.bare(snapshot, key)?;
        let resource = Resource::of(key.kind);
        let metadata = object.as_object_mut()?.entry("metadata").or_insert_with(|| json!({}));
        metadata["resourceVersion"] = self.objects.versions.of(key).to_string().into();
        if metadata.get("uid").is_none() {
            metadata["uid"] = uid(resource.kind_name, &key.namespace, &key.name).into();
        }
        if metadata.get("creationTimestamp").is_none() {
            metadata["creationTimestamp"] = self.objects.first_seen(key).into();
        }
        object["kind"] = resource.kind_name.into();
        object["apiVersion"] = resource.api_version().into();
        Some(object)
    }

    fn bare(&self, snapshot: &Snapshot<'_>, key: &Key) -> Option<Value> {
        let (namespace, name) = (&*key.namespace, &*key.name);
        match key.kind {
            Kind::Pod => {
                let pod = snapshot.engine.pod_named(&FullName::new(namespace, name))?;
                Some(pod_object(&pod))
            }
            Kind::Node => {
                (name == snapshot.node_name).then(|| node::object(snapshot, &self.machine, &self.objects.addresses))
            }
            Kind::Namespace => self.namespace(snapshot, key),
            Kind::Event => snapshot.events.value(namespace, name, snapshot.now.boot),
            Kind::ConfigMap | Kind::Secret => {
                let kind = if key.kind == Kind::Secret { DataKind::Secret } else { DataKind::ConfigMap };
                let key = DataKey { kind, name: FullName::new(namespace, name) };
                snapshot.engine.data_objects().get(&key).map(data_object)
            }
            Kind::Claim => {
                let key = ClaimKey(FullName::new(namespace, name));
                claims::claim(&key, snapshot.engine.claims().get(&key)?, snapshot.engine.storage_classes())
            }
            Kind::Volume => volume(snapshot, name),
            Kind::StorageClass => storage_class(snapshot.engine.storage_classes(), name),
            Kind::Service => service(snapshot, &FullName::new(namespace, name)),
            Kind::Endpoints => endpoints(snapshot, &FullName::new(namespace, name)),
            Kind::EndpointSlice => endpoint_slice(snapshot, &FullName::new(namespace, name)),
            Kind::PriorityClass => priority_class(snapshot.engine.priority_classes(), name),
            Kind::RuntimeClass => runtime_class(snapshot.engine, name),
            Kind::ServiceAccount
            | Kind::Role
            | Kind::RoleBinding
            | Kind::ClusterRole
            | Kind::ClusterRoleBinding
            | Kind::NetworkPolicy => Some(plain_object(snapshot.engine, key)?.content()),
            Kind::DisruptionBudget => disruption_budget(snapshot.engine, key),
            Kind::Autoscaler | Kind::AutoscalerV1 => autoscaler(snapshot, key),
            Kind::Deployment
            | Kind::ReplicaSet
            | Kind::DaemonSet
            | Kind::Job
            | Kind::CronJob
            | Kind::StatefulSet
            | Kind::ControllerRevision => workload(snapshot, key.kind, &FullName::new(namespace, name)),
            Kind::Lease => (namespace == LEASES && name == snapshot.node_name).then(|| {
                let renewed = snapshot.now.wall.timestamp().map(|t| format!("{t:.6}"));
                json!({
                    "metadata": { "name": name, "namespace": namespace },
                    "spec": { "holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": renewed },
                })
            }),
            // Objects of these kinds are never stored.
            Kind::Ingress
            | Kind::ReplicationController
            | Kind::PodMetrics
            | Kind::NodeMetrics
            | Kind::SelfSubjectAccessReview
            | Kind::SelfSubjectRulesReview
            | Kind::SelfSubjectReview => None,
        }
    }
}

impl KubectlApi {
    fn namespace(&self, snapshot: &Snapshot<'_>, key: &Key) -> Option<Value> {
        let exists = self.objects.namespaces.contains_key(&*key.name);
        namespaces::shown(plain_object(snapshot.engine, key), &key.name, exists)
    }
}

fn volume(snapshot: &Snapshot<'_>, name: &str) -> Option<Value> {
    let (key, entry) = snapshot.engine.claims().iter().find(|(key, _)| key.volume_name() == name)?;
    claims::volume(key, entry, snapshot.node_name)
}

fn storage_class(classes: &[StorageClass], name: &str) -> Option<Value> {
    let (at, class) = classes.iter().enumerate().find(|(_, class)| class.name == name)?;
    Some(claims::class(class, at == 0))
}

fn service(snapshot: &Snapshot<'_>, name: &FullName) -> Option<Value> {
    Some(services::service(name, snapshot.engine.services().get(name)?))
}

fn endpoints(snapshot: &Snapshot<'_>, name: &FullName) -> Option<Value> {
    let entry = snapshot.engine.services().get(name).filter(|entry| entry.has_selector())?;
    Some(services::endpoints(name, entry, snapshot.node_name))
}

/// Returns an EndpointSlice of a manifest, or one of a service with a selector.
fn endpoint_slice(snapshot: &Snapshot<'_>, name: &FullName) -> Option<Value> {
    let of_manifest = snapshot.engine.network_objects().iter().find(|object| object.name == *name);
    if let Some(shown) = of_manifest.and_then(|object| services::manifest_slice(object)) {
        return Some(shown);
    }
    // The name of the service is the part before the last dash.
    let (service, _) = name.name.rsplit_once('-')?;
    let service = FullName::new(&name.namespace, service);
    let entry = snapshot.engine.services().get(&service).filter(|entry| entry.has_selector())?;
    services::slices(&service, entry, snapshot.node_name).remove(&*name.name)
}

/// Returns the document that defines an object that is only kept and shown.
pub(super) fn plain_object<'a>(engine: &'a Engine, key: &Key) -> Option<&'a Rc<PlainObject>> {
    let key = PlainKey::new(PlainKind::of(Resource::of(key.kind).kind_name)?, &key.namespace, &key.name);
    engine.plain_objects().iter().find(|object| object.key == key)
}

/// Returns a budget with its present status.
fn disruption_budget(engine: &Engine, key: &Key) -> Option<Value> {
    let object = plain_object(engine, key)?;
    let mut shown = object.content();
    let status = DisruptionBudget::of(object).map(|budget| engine.budget_status(&budget)).unwrap_or_default();
    shown["status"] = json!(status);
    Some(shown)
}

/// Returns an autoscaler in the version of the key. It shows the present replicas of its target.
fn autoscaler(snapshot: &Snapshot<'_>, key: &Key) -> Option<Value> {
    let object = plain_object(snapshot.engine, key)?;
    let mut shown = plain_objects::in_version(&object.content(), Resource::of(key.kind).version);
    let target = &shown["spec"]["scaleTargetRef"];
    let kind = target["kind"].as_str().and_then(WorkloadKind::of).map(Kind::of_workload);
    let name = FullName::new(&key.namespace, target["name"].as_str().unwrap_or_default());
    let target = kind.and_then(|kind| workload(snapshot, kind, &name));
    let replicas = target.and_then(|target| target["status"]["replicas"].as_i64()).unwrap_or_default();
    plain_objects::complete_autoscaler(&mut shown, replicas, &object.warning().unwrap_or_default());
    Some(shown)
}

fn runtime_class(engine: &Engine, name: &str) -> Option<Value> {
    let class = engine.runtime_classes().iter().find(|class| class.name == name)?;
    let metadata = metadata(name, &class.labels, &class.annotations);
    let mut object = json!({ "metadata": metadata, "handler": class.handler });
    if !class.overhead.is_empty() {
        object["overhead"] = json!({ "podFixed": class.overhead });
    }
    if !class.node_selector.is_empty() {
        object["scheduling"] = json!({ "nodeSelector": class.node_selector });
    }
    Some(object)
}

/// Returns a workload, or a revision of one.
fn workload(snapshot: &Snapshot<'_>, kind: Kind, name: &FullName) -> Option<Value> {
    let workloads = snapshot.engine.workloads();
    let own = WorkloadKind::of(Resource::of(kind).kind_name).map(|kind| WorkloadKey::new(kind, name.clone()));
    if let Some(own) = own.and_then(|own| workloads.get(&own)) {
        return Some(shown::object(own));
    }
    let owners = match kind {
        Kind::ReplicaSet => &[WorkloadKind::Deployment][..],
        Kind::ControllerRevision => &[WorkloadKind::DaemonSet, WorkloadKind::StatefulSet],
        _ => return None,
    };
    let (of, revision) = owners.iter().find_map(|kind| workloads.revision(*kind, name))?;
    Some(shown::revision(of, revision, snapshot.now.boot))
}

fn data_object(object: &DataObject) -> Value {
    let mut metadata = metadata(&object.key.name.name, &object.labels, &object.annotations);
    metadata["namespace"] = (*object.key.name.namespace).into();
    let mut result = json!({ "metadata": metadata });
    let (mut text, mut binary) = (Map::new(), Map::new());
    let secret = object.key.kind == DataKind::Secret;
    for (key, value) in &object.values {
        match value {
            DataValue::Text(value) if !secret => text.insert(key.to_string(), (&**value).into()),
            value => binary.insert(key.to_string(), json!(ByteString(value.bytes().to_vec()))),
        };
    }
    if secret {
        result["type"] = (&*object.secret_type).into();
        result["data"] = binary.into();
    } else {
        for (field, map) in [("data", text), ("binaryData", binary)] {
            if !map.is_empty() {
                result[field] = map.into();
            }
        }
    }
    if object.immutable {
        result["immutable"] = true.into();
    }
    result
}

fn priority_class(classes: &[PriorityClass], name: &str) -> Option<Value> {
    if let Some(value) = priority::system_class(name) {
        return Some(json!({
            "metadata": { "name": name },
            "value": value,
            "preemptionPolicy": "PreemptLowerPriority",
        }));
    }
    let class = classes.iter().find(|class| class.name == name)?;
    let mut object = json!({
        "metadata": metadata(name, &class.labels, &class.annotations),
        "value": class.value,
        "preemptionPolicy": class.preemption_policy,
    });
    if class.global_default {
        object["globalDefault"] = true.into();
    }
    if !class.description.is_empty() {
        object["description"] = (*class.description).into();
    }
    Some(object)
}

fn metadata(name: &str, labels: &BTreeMap<String, String>, annotations: &BTreeMap<String, String>) -> Value {
    let mut metadata = json!({ "name": name });
    for (field, map) in [("labels", labels), ("annotations", annotations)] {
        if !map.is_empty() {
            metadata[field] = json!(map);
        }
    }
    metadata
}

/// Returns the source (file and document) and the digest of the manifest that defines an object.
pub(super) fn in_force(engine: &Engine, key: &Key) -> Option<(Source, String)> {
    let name = FullName::new(&key.namespace, &key.name);
    let data = |kind| {
        let object = engine.data_objects().get(&DataKey { kind, name: name.clone() })?;
        Some((object.source.clone(), object.digest.clone()))
    };
    match key.kind {
        Kind::Pod => engine.manifest_of(&name).map(|pod| (pod.source.clone(), pod.digest.clone())),
        Kind::Deployment | Kind::DaemonSet | Kind::Job | Kind::CronJob | Kind::ReplicaSet | Kind::StatefulSet => {
            let kind = WorkloadKind::of(Resource::of(key.kind).kind_name)?;
            let controller = engine.workloads().get(&WorkloadKey::new(kind, name))?;
            // A CronJob has created it.
            if controller.creator().is_some() {
                return None;
            }
            let head = controller.get().head();
            Some((head.source.clone(), head.digest.clone()))
        }
        Kind::ConfigMap => data(DataKind::ConfigMap),
        Kind::Secret => data(DataKind::Secret),
        Kind::Claim => {
            let claim = engine.manifest_claims().iter().find(|claim| claim.key.0 == name)?;
            Some((claim.source.clone(), claim.digest.clone()))
        }
        Kind::Service | Kind::EndpointSlice => {
            let kind = Resource::of(key.kind).kind_name;
            let is_it = |object: &&Rc<NetworkObject>| object.name == name && object.key().kind.name() == kind;
            let object = engine.network_objects().iter().find(is_it)?;
            Some((object.source.clone(), object.digest.clone()))
        }
        Kind::Namespace
        | Kind::ServiceAccount
        | Kind::Role
        | Kind::RoleBinding
        | Kind::ClusterRole
        | Kind::ClusterRoleBinding
        | Kind::Autoscaler
        | Kind::AutoscalerV1
        | Kind::NetworkPolicy
        | Kind::DisruptionBudget => {
            let object = plain_object(engine, key)?;
            Some((object.source.clone(), object.digest.clone()))
        }
        Kind::PriorityClass => {
            let class = engine.priority_classes().iter().find(|class| *class.name == *key.name)?;
            Some((class.source.clone(), class.digest.clone()))
        }
        Kind::RuntimeClass => {
            let class = engine.runtime_classes().iter().find(|class| *class.name == *key.name)?;
            Some((class.source.clone(), class.digest.clone()))
        }
        _ => None,
    }
}
