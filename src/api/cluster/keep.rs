//! Converts a pod of the API server to manifests with which the pod continues without the server (`wherry keep`).
//!
//! A manifest has neither fields for a scheduler nor a service account. Fields that have their default value are left
//! out, so that people can read the manifest.

use crate::api::cluster::mirror;
use crate::api::document::Document;
use crate::api::document::context::Context;
use crate::api::k8s;
use crate::api::ordered::CollectOrdered;
use crate::api::pod::Pod;
use crate::api::problem::Problem;
use crate::api::runtime_class;
use serde_json::{Map, Value, json};

/// The name, in errors, of a manifest that has no file yet.
const PATH: &str = "the manifest";
/// Fields for the scheduler, which has chosen this node, and for the API server.
const OF_SERVER: [&str; 10] = [
    "affinity",
    "automountServiceAccountToken",
    "ephemeralContainers",
    "nodeName",
    "nodeSelector",
    "schedulerName",
    "schedulingGates",
    "serviceAccount",
    "serviceAccountName",
    "topologySpreadConstraints",
];
/// The tolerations that the API server adds to each pod.
const ADDED_TOLERATIONS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
/// The labels by which controllers know their pods.
const OF_CONTROLLERS: [&str; 3] = ["pod-template-hash", "controller-revision-hash", "pod-template-generation"];
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The name prefix of the volume that the API server adds to each pod.
const DEFAULT_TOKEN: &str = "kube-api-access-";

/// The manifest of a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    pub object: Value,
    /// The pod that Wherry reads from the manifest.
    pub pod: Pod,
    /// The names of the volumes with tokens. The manifest does not contain the tokens.
    pub tokens: Vec<String>,
    /// The overhead, which belongs in the manifest of the RuntimeClass.
    pub overhead: Option<Value>,
}

/// Converts a pod of the API server to a manifest.
///
/// # Errors
/// A manifest does not support a field of the pod.
pub fn pod(pod: &Pod, context: Context<'_>) -> Result<Kept, Vec<Problem>> {
    let mut spec = pod.spec().clone();
    let tokens = without_tokens(&mut spec);
    if !spec.priority_class_name.as_deref().is_some_and(|name| name.starts_with(mirror::SYSTEM_CLASS)) {
        spec.priority_class_name = None;
    }
    if spec.dns_policy.as_deref() == Some("ClusterFirst") {
        spec.dns_policy = None;
    }
    if let Some(list) = &mut spec.tolerations {
        list.retain(|t| !t.key.as_deref().is_some_and(|key| ADDED_TOLERATIONS.contains(&key)));
    }
    let mut spec = serde_json::to_value(&spec).unwrap_or_default();
    let mut overhead = None;
    if let Some(fields) = spec.as_object_mut() {
        OF_SERVER.iter().for_each(|field| drop(fields.remove(*field)));
        fields.retain(|_, value| !is_empty(value));
        if runtime_class::named(pod.spec()).is_some() {
            overhead = fields.remove("overhead");
        }
    }
    let labels = pod.object.metadata.labels.iter().flatten();
    let labels = labels.filter(|(key, _)| !OF_CONTROLLERS.contains(&key.as_str()));
    let annotations = pod.object.metadata.annotations.iter().flatten();
    let annotations = annotations.filter(|(key, _)| is_of_author(key));
    let mut metadata = json!({ "name": &*pod.name.name, "namespace": &*pod.name.namespace });
    let mut add = |field: &str, all: Map<String, Value>| {
        if !all.is_empty() {
            metadata[field] = Value::Object(all);
        }
    };
    add("labels", labels.map(|(key, value)| (key.clone(), json!(value))).collect_object());
    add("annotations", annotations.map(|(key, value)| (key.clone(), json!(value))).collect_object());
    let mut object = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec });
    let read = |object: &Value| Document::from_content(1, object.clone()).pod(PATH, None, context);
    let wanted = read(&object)?;
    shorten(&mut object, "/spec", &|object| read(object).is_ok_and(|pod| pod.spec() == wanted.spec()));
    let pod = read(&object)?;
    Ok(Kept { object, pod, tokens, overhead })
}

/// Returns the manifest of a ConfigMap or a Secret that the API server has sent.
pub fn data(mut object: Value) -> Value {
    let Some(fields) = object.as_object_mut() else { return object };
    if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|field, _| matches!(field.as_str(), "name" | "namespace" | "labels" | "annotations"));
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.retain(|key, _| key != LAST_APPLIED);
        }
        metadata.retain(|_, value| !is_empty(value));
    }
    object
}

/// Returns the manifest of a RuntimeClass.
pub fn runtime_class(name: &str, handler: &str, overhead: Option<Value>) -> Value {
    let mut object = json!({ "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": { "name": name },
        "handler": handler });
    if let Some(overhead) = overhead {
        object["overhead"] = json!({ "podFixed": overhead });
    }
    object
}

/// Reports whether the author of the object wrote the annotation, and not kubectl or a node.
fn is_of_author(key: &str) -> bool {
    key != LAST_APPLIED && !key.starts_with("kubernetes.io/config.")
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Removes the tokens of the service account, and the volumes that contain nothing else or that the API server has
/// added. Returns the names of all volumes that contained tokens.
fn without_tokens(spec: &mut k8s::PodSpec) -> Vec<String> {
    let (mut changed, mut removed) = (Vec::new(), Vec::new());
    let volumes = spec.volumes.take().into_iter().flatten();
    let volumes = volumes.filter_map(|mut volume| {
        let Some(sources) = volume.projected.as_mut().and_then(|p| p.sources.as_mut()) else { return Some(volume) };
        let before = sources.len();
        sources.retain(|source| source.service_account_token.is_none());
        if sources.len() == before {
            return Some(volume);
        }
        changed.push(volume.name.clone());
        if sources.is_empty() || volume.name.starts_with(DEFAULT_TOKEN) {
            removed.push(volume.name.clone());
            return None;
        }
        Some(volume)
    });
    spec.volumes = Some(volumes.collect());
    for container in spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()) {
        if let Some(mounts) = &mut container.volume_mounts {
            mounts.retain(|mount| !removed.contains(&mount.name));
        }
    }
    changed
}

/// Removes each field below `at` that makes no difference (`is_same`).
fn shorten(object: &mut Value, at: &str, is_same: &dyn Fn(&Value) -> bool) {
    let names: Vec<String> = match object.pointer(at) {
        Some(Value::Object(map)) => map.keys().cloned().collect(),
        Some(Value::Array(list)) => (0..list.len()).map(|index| index.to_string()).collect(),
        _ => return,
    };
    // A volume without a source is an emptyDir too, but that surprises people.
    for name in names.into_iter().filter(|name| name != "emptyDir") {
        let removed = object.pointer_mut(at).and_then(Value::as_object_mut).and_then(|map| map.remove(&name));
        if let Some(value) = removed {
            if is_same(object) {
                continue;
            }
            if let Some(map) = object.pointer_mut(at).and_then(Value::as_object_mut) {
                map.insert(name.clone(), value);
            }
        }
        shorten(object, &format!("{at}/{}", name.replace('~', "~0").replace('/', "~1")), is_same);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::cluster::pod_object;

    const CONTEXT: Context<'_> = Context::new("lab", "2026-11-25T08:00:00Z");

    fn kept(spec: &str) -> Result<Kept, Vec<Problem>> {
        let text = format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: web-1, namespace: shop, uid: u, resourceVersion: '5', \
             labels: {{app: web, pod-template-hash: abc}}, annotations: {{note: hi, \
             kubectl.kubernetes.io/last-applied-configuration: x}}, \
             ownerReferences: [{{kind: ReplicaSet, name: web}}]}}, spec: {{{spec}}}}}"
        );
        let object = crate::api::document::value(text.as_bytes()).unwrap();
        let object = pod_object::read(object, CONTEXT).unwrap();
        pod(&object.pod.unwrap(), CONTEXT)
    }

    #[test]
    fn c10_a_manifest_has_the_fields_of_its_author() {
        let kept = kept(
            "nodeName: lab, nodeSelector: {zone: a}, serviceAccountName: robot, serviceAccount: robot, \
             schedulerName: default-scheduler, \
             priority: 5, priorityClassName: gold, preemptionPolicy: PreemptLowerPriority, restartPolicy: Always, \
             dnsPolicy: ClusterFirst, \
             enableServiceLinks: true, terminationGracePeriodSeconds: 30, securityContext: {}, \
             tolerations: [{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, \
             tolerationSeconds: 300}], \
             volumes: [{name: kube-api-access-x, projected: {defaultMode: 420, \
             sources: [{serviceAccountToken: {path: token}}, {configMap: {name: kube-root-ca.crt}}]}}, \
                       {name: both, projected: {sources: [{serviceAccountToken: {path: token}}, \
                       {configMap: {name: settings}}]}}, \
                       {name: data, emptyDir: {}}], \
             containers: [{name: main, image: 'i:1', imagePullPolicy: IfNotPresent, \
             terminationMessagePath: /dev/termination-log, \
               terminationMessagePolicy: File, resources: {}, ports: [{containerPort: 80, protocol: TCP}], \
               readinessProbe: {httpGet: {path: /, port: 80, scheme: HTTP}, periodSeconds: 10, timeoutSeconds: 2, \
               failureThreshold: 3, successThreshold: 1}, \
               volumeMounts: [{name: kube-api-access-x, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, \
               readOnly: true}, {name: data, mountPath: /d}]}]",
        )
        .unwrap();
        assert_eq!(
            kept.object,
            json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": { "name": "web-1", "namespace": "shop", "labels": { "app": "web" },
                    "annotations": { "note": "hi" } },
                "spec": {
                    "priority": 5,
                    "preemptionPolicy": "PreemptLowerPriority",
                    "volumes": [
                        { "name": "both", "projected": { "sources": [{ "configMap": { "name": "settings" } }] } },
                        { "name": "data", "emptyDir": {} },
                    ],
                    "containers": [{
                        "name": "main", "image": "i:1", "ports": [{ "containerPort": 80 }],
                        "readinessProbe": { "httpGet": { "port": 80 }, "timeoutSeconds": 2 },
                        "volumeMounts": [{ "name": "data", "mountPath": "/d" }],
                    }],
                },
            })
        );
        assert_eq!(kept.tokens, ["kube-api-access-x", "both"]);
    }

    #[test]
    fn the_overhead_of_a_runtime_class_belongs_to_its_manifest() {
        let kept =
            kept("runtimeClassName: kata, overhead: {memory: 8Mi}, containers: [{name: main, image: 'i:1'}]").unwrap();
        assert_eq!(
            kept.object["spec"],
            json!({ "runtimeClassName": "kata", "containers": [{ "name": "main", "image": "i:1" }] })
        );
        assert_eq!(
            runtime_class("kata", "kata", kept.overhead),
            json!({ "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": { "name": "kata" },
                "handler": "kata",
                "overhead": { "podFixed": { "memory": "8Mi" } } })
        );
    }

    #[test]
    fn a_class_of_each_cluster_stays() {
        let kept = kept(
            "priority: 2000001000, priorityClassName: system-node-critical, containers: [{name: main, image: 'i:1'}]",
        )
        .unwrap();
        assert_eq!(kept.object["spec"]["priorityClassName"], "system-node-critical");
    }

    #[test]
    fn c10_the_manifest_of_data_has_its_values_and_the_fields_of_its_author() {
        let object = json!({ "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": { "a": "YQ==" },
            "metadata": { "name": "s", "namespace": "shop", "uid": "u", "resourceVersion": "5",
                "creationTimestamp": "x",
                "annotations": { LAST_APPLIED: "x" }, "labels": { "l": "m" } } });
        assert_eq!(
            data(object),
            json!({ "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": { "a": "YQ==" },
                "metadata": { "name": "s", "namespace": "shop", "labels": { "l": "m" } } })
        );
    }
}
