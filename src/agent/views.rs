//! What the server shows of the engine: pods as Kubernetes objects, the node's status, health.

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
