//! The mirror of a manifest's pod: an object on the API server that shows the pod to the scheduler and to people.
//!
//! NodeRestriction refuses mirrors that refer to a service account, ConfigMaps or Secrets. For a manifest, these are
//! local objects anyway. *(ours)* The mirror omits the references, and an annotation names the fields. A kubelet
//! creates no mirror of such a pod.

use crate::api::k8s;
use crate::api::names::FullName;
use crate::api::ordered::OrderSlice;
use crate::api::pod::Pod;
use serde_json::{Value, json};

/// The annotation with the UID of the mirrored pod. kubectl looks for events under this UID.
pub const MIRROR: &str = "kubernetes.io/config.mirror";
/// The annotation with the digest of the mirrored pod, because pods with the same UID can differ in version.
pub const DIGEST: &str = "wherry.io/digest";
/// The annotation with the names of the fields that the mirror omits.
const OMITTED: &str = "wherry.io/mirror-omits";
/// The prefix of the priority classes that exist in each cluster.
pub(super) const SYSTEM_CLASS: &str = "system-";

/// Returns the name of the mirror: `POD-NODE`, as in a kubelet.
pub fn name(pod: &FullName, node: &str) -> FullName {
    FullName::new(&pod.namespace, &format!("{}-{node}", pod.name))
}

/// Returns the mirror of the pod. `node_uid`: the UID of the node on the server.
pub fn object(pod: &Pod, node: &str, node_uid: &str) -> String {
    let mut spec = pod.spec().clone();
    let mut omitted = Vec::new();
    strip(&mut spec, &mut omitted);
    spec.node_name = Some(node.to_owned());
    let mut annotations = pod.object.metadata.annotations.clone().unwrap_or_default();
    annotations.insert(MIRROR.to_owned(), pod.uid.to_string());
    annotations.insert(DIGEST.to_owned(), pod.digest.clone());
    if !omitted.is_empty() {
        omitted.order();
        omitted.dedup();
        annotations.insert(OMITTED.to_owned(), omitted.join(","));
    }
    let name = name(&pod.name, node);
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": &*name.name,
            "namespace": &*name.namespace,
            "labels": pod.object.metadata.labels,
            "annotations": annotations,
            "ownerReferences": [
                { "apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid, "controller": true },
            ],
        },
        "spec": without_nulls(serde_json::to_value(&spec).unwrap_or_default()),
    })
    .to_string()
}

fn without_nulls(mut value: Value) -> Value {
    if let Value::Object(map) = &mut value {
        map.retain(|_, value| !value.is_null());
    }
    value
}

/// Removes fields that a mirror must not have, and fields that depend on local objects.
fn strip(spec: &mut k8s::PodSpec, omitted: &mut Vec<&'static str>) {
    let mut take = |is_there: bool, field: &'static str| {
        if is_there {
            omitted.push(field);
        }
    };
    take(spec.service_account_name.take().is_some_and(|name| !name.is_empty()), "serviceAccountName");
    spec.service_account = None;
    spec.automount_service_account_token = None;
    take(spec.image_pull_secrets.take().is_some_and(|list| !list.is_empty()), "imagePullSecrets");
    take(spec.ephemeral_containers.take().is_some(), "ephemeralContainers");
    // The server would refuse a class that it does not know, so only system classes are kept. The server computes the
    // priority itself.
    let is_system = spec.priority_class_name.as_ref().is_some_and(|name| name.starts_with(SYSTEM_CLASS));
    if !is_system {
        take(spec.priority_class_name.take().is_some_and(|name| !name.is_empty()), "priorityClassName");
    }
    spec.priority = None;
    spec.preemption_policy = None;
    // The class is a local object, and the overhead comes from it.
    take(spec.runtime_class_name.take().is_some_and(|name| !name.is_empty()), "runtimeClassName");
    spec.overhead = None;
    let mut removed = Vec::new();
    if let Some(volumes) = &mut spec.volumes {
        volumes.retain(|volume| {
            let refers = refers(volume);
            if refers {
                removed.push(volume.name.clone());
            }
            !refers
        });
    }
    take(!removed.is_empty(), "volumes");
    let containers = spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten());
    for container in containers {
        take(container.env_from.take().is_some_and(|list| !list.is_empty()), "envFrom");
        if let Some(env) = &mut container.env {
            let before = env.len();
            env.retain(|variable| {
                let from = variable.value_from.as_ref();
                from.is_none_or(|from| from.config_map_key_ref.is_none() && from.secret_key_ref.is_none())
            });
            take(env.len() < before, "env");
        }
        if let Some(mounts) = &mut container.volume_mounts {
            mounts.retain(|mount| !removed.contains(&mount.name));
        }
    }
}

/// Returns true if the volume refers to an object of the API.
fn refers(volume: &k8s::Volume) -> bool {
    let of_projected = |source: &k8s::VolumeProjection| source.downward_api.is_none();
    volume.config_map.is_some()
        || volume.secret.is_some()
        || volume.projected.as_ref().is_some_and(|p| p.sources.iter().flatten().any(of_projected))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::document;
    use crate::api::document::context::Context;

    fn mirror(spec: &str) -> Value {
        let text = format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: web, namespace: shop, labels: {{a: x}}}}, \
             spec: {{{spec}}}}}"
        );
        let pod = document::read(text.as_bytes(), "/m/a.yaml", Context::new("lab", "")).0.remove(0);
        serde_json::from_str(&object(&pod, "lab", "n-uid")).unwrap()
    }

    #[test]
    fn a_mirror_belongs_to_its_node() {
        let object = mirror("containers: [{name: main, image: 'i:1'}]");
        assert_eq!(object["metadata"]["name"], "web-lab");
        assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], "n-uid");
        assert_eq!(object["spec"]["nodeName"], "lab");
        assert_eq!(object["spec"]["tolerations"], json!([{ "operator": "Exists", "effect": "NoExecute" }]));
        let annotations = &object["metadata"]["annotations"];
        assert_eq!(annotations[MIRROR], annotations["kubernetes.io/config.hash"]);
        assert_eq!(
            (annotations["kubernetes.io/config.source"].as_str(), annotations.get(OMITTED)),
            (Some("file"), None)
        );
    }

    #[test]
    fn a_mirror_refers_to_no_local_object() {
        let object = mirror(
            "serviceAccountName: robot, priorityClassName: mine, imagePullSecrets: [{name: r}], \
             volumes: [{name: s, secret: {secretName: x}}, {name: e, emptyDir: {}}], \
             containers: [{name: main, image: 'i:1', envFrom: [{secretRef: {name: x}}], \
             env: [{name: A, value: b}, {name: B, valueFrom: {secretKeyRef: {name: x, key: k}}}], \
             volumeMounts: [{name: s, mountPath: /s}, {name: e, mountPath: /e}]}]",
        );
        let spec = &object["spec"];
        let container = &spec["containers"][0];
        assert_eq!(container["env"], json!([{ "name": "A", "value": "b" }]));
        assert_eq!(
            (container["volumeMounts"].as_array().unwrap().len(), spec["volumes"].as_array().unwrap().len()),
            (1, 1)
        );
        for field in ["serviceAccountName", "priorityClassName", "priority", "imagePullSecrets"] {
            assert!(spec.get(field).is_none(), "{spec}");
        }
        assert!(container.get("envFrom").is_none(), "{container}");
        let omitted = &object["metadata"]["annotations"][OMITTED];
        assert_eq!(omitted, "env,envFrom,imagePullSecrets,priorityClassName,serviceAccountName,volumes");
    }

    #[test]
    fn a_class_of_each_cluster_stays() {
        let object = mirror("priorityClassName: system-node-critical, containers: [{name: main, image: 'i:1'}]");
        assert_eq!(object["spec"]["priorityClassName"], "system-node-critical");
    }
}
