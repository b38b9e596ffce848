//! A pod as an object of the API.

use crate::api::cluster::expectation::Expectation;
use crate::api::k8s::{self, ObjectMeta, Time};
use crate::api::kube::eviction;
use crate::api::names::{FullName, Uid};
use crate::api::priority;
use crate::engine::node::PodView;
use crate::engine::pod::placement::Placement;
use crate::engine::pod::worker::WorkerStatus;
use serde::Serialize;
use serde_json::{Value, json};
use std::borrow::Cow;

/// A pod as an item of a PodList. It borrows its data, so that a large list needs no second copy.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Item<'a> {
    metadata: Cow<'a, ObjectMeta>,
    spec: Option<Cow<'a, k8s::PodSpec>>,
    status: &'a k8s::PodStatus,
    /// Present only with `?verbose`.
    #[serde(skip_serializing_if = "Option::is_none")]
    wherry: Option<Own<'a>>,
}

/// Wherry's own data about a pod, for which the API has no field.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Own<'a> {
    /// The file of the manifest.
    path: &'a str,
    document: u32,
    digest: &'a str,
    desired: bool,
    log_directory: String,
    /// Present only for a pod of an API server.
    #[serde(skip_serializing_if = "Option::is_none")]
    without_server: Option<Expectation>,
    #[serde(flatten)]
    worker_status: WorkerStatus,
}

impl<'a> Own<'a> {
    pub fn new(
        view: &PodView<'a>,
        worker_status: WorkerStatus,
        log_directory: String,
        without_server: Option<Expectation>,
    ) -> Own<'a> {
        let pod = view.pod;
        let (path, document) = (pod.source.path.as_str(), pod.source.document);
        Own { path, document, digest: &pod.digest, desired: view.desired, log_directory, without_server, worker_status }
    }
}

fn item<'a>(view: &PodView<'a>, wherry: Option<Own<'a>>) -> Item<'a> {
    let object = &view.pod.object;
    let mut metadata = Cow::Borrowed(&object.metadata);
    if let Some((at, grace)) = view.deletion {
        let metadata = metadata.to_mut();
        metadata.deletion_timestamp = at.timestamp().map(Time);
        metadata.deletion_grace_period_seconds = Some(grace);
    }
    let spec = object.spec.as_ref().map(with_dns_policy);
    Item { metadata, spec, status: view.status, wherry }
}

/// Adds the default DNS policy, as a kubelet does. The stored spec does not contain the default, because only a pod
/// that names a policy gets a warning.
fn with_dns_policy(spec: &k8s::PodSpec) -> Cow<'_, k8s::PodSpec> {
    let mut spec = Cow::Borrowed(spec);
    if spec.dns_policy.is_none() {
        spec.to_mut().dns_policy = Some("ClusterFirst".to_owned());
    }
    spec
}

/// Returns the pod as a JSON object.
pub fn pod_value(view: &PodView<'_>) -> serde_json::Value {
    // All keys of the types are valid in JSON.
    serde_json::to_value(item(view, None)).unwrap_or_default()
}

/// Appends the pod as a JSON object.
pub fn write_pod(view: &PodView<'_>, wherry: Option<Own<'_>>, out: &mut Vec<u8>) {
    let item = item(view, wherry);
    // All keys of the types are valid in JSON, and writing to a Vec does not fail.
    let _ = serde_json::to_writer(out, &item);
}

/// Appends a line of a watch: the change (`ADDED`, `MODIFIED`), and the pod.
pub fn write_change(kind: &str, view: &PodView<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("{{\"type\":\"{kind}\",\"object\":").as_bytes());
    write_pod(view, None, out);
    out.extend_from_slice(b"}\n");
}

/// Appends a line of a watch for a pod that is gone. The object has only the fields that identify the pod.
pub fn write_gone(uid: &Uid, name: &FullName, out: &mut Vec<u8>) {
    let metadata = serde_json::json!({ "namespace": &*name.namespace, "name": &*name.name, "uid": uid.as_str() });
    let line = serde_json::json!({ "type": "DELETED", "object": { "metadata": metadata } });
    out.extend_from_slice(line.to_string().as_bytes());
    out.push(b'\n');
}

/// The line that ends the initial list of a watch.
pub const BOOKMARK: &[u8] = b"{\"type\":\"BOOKMARK\",\"object\":{}}\n";

/// Returns a pod with the fields that an API server would have filled in.
pub(super) fn pod_object(view: &PodView<'_>) -> Value {
    let mut object = pod_value(view);
    let first_seen = object.pointer("/metadata/annotations/kubernetes.io~1config.seen").cloned();
    let metadata = &mut object["metadata"];
    if metadata.get("creationTimestamp").is_none_or(Value::is_null)
        && let Some(Value::String(seen)) = first_seen
    {
        // The API uses whole seconds.
        let seen = seen.parse::<jiff::Timestamp>().map(|t| t.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        metadata["creationTimestamp"] = seen.unwrap_or_default().into();
    }
    if metadata.get("generation").is_none() {
        metadata["generation"] = 1.into();
    }
    // An API server sets these fields even without a class.
    let defaults = [("priority", json!(0)), ("preemptionPolicy", json!(priority::PREEMPT))];
    for (field, default) in defaults {
        if object["spec"].get(field).is_none_or(Value::is_null) {
            object["spec"][field] = default;
        }
    }
    object["kind"] = "Pod".into();
    object["apiVersion"] = "v1".into();
    match view.placement {
        Placement::Bound | Placement::Removed => {}
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

/// Returns the UID of the object that the API shows: a pod that has ended and waits to start again is shown as its
/// successor.
pub(super) fn shown_uid(view: &PodView<'_>) -> String {
    match view.placement {
        Placement::Successor { .. } => eviction::successor_uid(view.pod.uid.as_str()),
        Placement::Bound | Placement::Gone | Placement::Unscheduled | Placement::Removed => view.pod.uid.to_string(),
    }
}
