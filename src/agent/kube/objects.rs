//! The objects in the form of the API: with their kind, version and every default.

use super::Kube;
use super::node;
use crate::agent::content::View;
use crate::agent::views;
use crate::api::data_object::{DataKey, DataKind, DataObject, DataValue};
use crate::api::k8s::ByteString;
use crate::api::kube::eviction;
use crate::api::kube::resources::{Kind, Resource};
use crate::api::kube::versions::Key;
use crate::api::names::FullName;
use crate::api::priority::{self, PriorityClass};
use crate::api::uid::digest_of_bytes;
use crate::engine::node::PodView;
use crate::engine::pod::placement::Placement;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The namespaces that always exist.
pub(super) const NAMESPACES: [&str; 3] = ["default", "kube-node-lease", "kube-system"];
/// The namespace of the node's lease.
const LEASES: &str = "kube-node-lease";
/// As in a kubelet.
const LEASE_SECONDS: u32 = 40;

impl Kube {
    /// The present state of an object; None if it is gone.
    pub(super) fn object(&self, view: &View<'_>, key: &Key) -> Option<Value> {
        let mut object = self.bare(view, key)?;
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

    fn bare(&self, view: &View<'_>, key: &Key) -> Option<Value> {
        let (namespace, name) = (&*key.namespace, &*key.name);
        match key.kind {
            Kind::Pod => {
                let pod = view.engine.pod_named(&FullName::new(namespace, name))?;
                Some(pod_object(&pod))
            }
            Kind::Node => {
                (name == view.config.node_name).then(|| node::object(view, &self.machine, &self.objects.addresses))
            }
            Kind::Namespace => self.objects.namespaces.contains(name).then(|| {
                json!({
                    "metadata": { "name": name, "labels": { "kubernetes.io/metadata.name": name } },
                    "spec": { "finalizers": ["kubernetes"] },
                    "status": { "phase": "Active" },
                })
            }),
            Kind::Event => view.event_cache.value(namespace, name, view.now.boot),
            Kind::ConfigMap | Kind::Secret => {
                let kind = if key.kind == Kind::Secret { DataKind::Secret } else { DataKind::ConfigMap };
                let key = DataKey { kind, name: FullName::new(namespace, name) };
                view.engine.data_objects().get(&key).map(data_object)
            }
            Kind::PriorityClass => priority_class(view.engine.priority_classes(), name),
            Kind::RuntimeClass => {
                let class = view.engine.runtime_classes().iter().find(|class| class.name == name)?;
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
            Kind::Lease => (namespace == LEASES && name == view.config.node_name).then(|| {
                let renewed = view.now.wall.timestamp().map(|t| format!("{t:.6}"));
                json!({
                    "metadata": { "name": name, "namespace": namespace },
                    "spec": { "holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": renewed },
                })
            }),
            // These are never stored.
            Kind::PodMetrics
            | Kind::NodeMetrics
            | Kind::SelfSubjectAccessReview
            | Kind::SelfSubjectRulesReview
            | Kind::SelfSubjectReview => None,
        }
    }
}

/// A pod with the fields that an API server would have filled in.
pub(super) fn pod_object(view: &PodView<'_>) -> Value {
    let mut object = views::pod_value(view);
    let first_seen = object.pointer("/metadata/annotations/kubernetes.io~1config.seen").cloned();
    let metadata = &mut object["metadata"];
    if metadata.get("creationTimestamp").is_none_or(Value::is_null)
        && let Some(Value::String(seen)) = first_seen
    {
        // The API has whole seconds.
        let seen = seen.parse::<jiff::Timestamp>().map(|t| t.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        metadata["creationTimestamp"] = seen.unwrap_or_default().into();
    }
    if metadata.get("generation").is_none() {
        metadata["generation"] = 1.into();
    }
    // An API server sets these also without a class.
    let defaults = [("priority", json!(0)), ("preemptionPolicy", json!(priority::PREEMPT))];
    for (field, default) in defaults {
        if object["spec"].get(field).is_none_or(Value::is_null) {
            object["spec"][field] = default;
        }
    }
    object["kind"] = "Pod".into();
    object["apiVersion"] = "v1".into();
    match view.placement {
        Placement::Bound => {}
        Placement::Gone => eviction::leave(&mut object),
        Placement::Unscheduled => eviction::unschedule(&mut object, UNCORDON),
        Placement::Successor { drained } => {
            object["metadata"]["uid"] = shown_uid(view).into();
            eviction::unschedule(&mut object, if drained { UNDRAIN } else { UNCORDON });
        }
    }
    object
}

const UNCORDON: &str = "the node is cordoned; kubectl uncordon lets the pod start";
const UNDRAIN: &str = "the pod is drained; wherry undrain lets it start";

/// The UID of the object that the API shows: a pod that has ended and waits to start again is shown as its successor.
pub(super) fn shown_uid(view: &PodView<'_>) -> String {
    match view.placement {
        Placement::Successor { .. } => eviction::successor_uid(view.pod.uid.as_str()),
        Placement::Bound | Placement::Gone | Placement::Unscheduled => view.pod.uid.to_string(),
    }
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

/// The UID of an object that has none of its own: the same after a restart.
pub(super) fn uid(kind: &str, namespace: &str, name: &str) -> String {
    let digest = digest_of_bytes(format!("{kind}/{namespace}/{name}").as_bytes());
    let part = |range: std::ops::Range<usize>| digest.get(range).unwrap_or_default().to_owned();
    [part(0..8), part(8..12), part(12..16), part(16..20), part(20..32)].join("-")
}
