//! What the server shows of the engine: pods as Kubernetes objects, the node's status, health.

use crate::api::names::{FullName, Uid};
use crate::engine::node::PodView;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::Serialize;
use std::borrow::Cow;

/// A pod as it stands in a PodList: borrowed, so that a list of a hundred costs no second copy.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Item<'a> {
    metadata: Cow<'a, ObjectMeta>,
    spec: Option<&'a core::PodSpec>,
    status: &'a core::PodStatus,
}

/// Appends the pod as a JSON object.
pub fn write_pod(view: &PodView<'_>, out: &mut Vec<u8>) {
    let object = &view.pod.object;
    let mut metadata = Cow::Borrowed(&object.metadata);
    if let Some((at, grace)) = view.deletion {
        let metadata = metadata.to_mut();
        metadata.deletion_timestamp = at.timestamp().map(Time);
        metadata.deletion_grace_period_seconds = Some(grace);
    }
    let item = Item { metadata, spec: object.spec.as_ref(), status: view.status };
    if let Err(e) = serde_json::to_writer(&mut *out, &item) {
        // The types have no keys that JSON lacks, and a Vec takes everything.
        log::error!("pod={} could not be written as JSON: {e}", view.pod.name);
    }
}

/// A line of a watch: what happened to the pod (`ADDED`, `MODIFIED`), and the pod.
pub fn write_change(kind: &str, view: &PodView<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("{{\"type\":\"{kind}\",\"object\":").as_bytes());
    write_pod(view, out);
    out.extend_from_slice(b"}\n");
}

/// A line of a watch: the pod is gone. Of the object only what names it.
pub fn write_gone(uid: &Uid, name: &FullName, out: &mut Vec<u8>) {
    let metadata = serde_json::json!({ "namespace": &*name.namespace, "name": &*name.name, "uid": uid.as_str() });
    let line = serde_json::json!({ "type": "DELETED", "object": { "metadata": metadata } });
    out.extend_from_slice(line.to_string().as_bytes());
    out.push(b'\n');
}

/// The line that ends the list at the begin of a watch.
pub const BOOKMARK: &[u8] = b"{\"type\":\"BOOKMARK\",\"object\":{}}\n";
