//! The record of a pod that may have containers (W25): its accepted spec, where it came from and when it started.

use crate::api::names::{FullName, Uid};
use crate::api::pod::{Pod, Source};
use crate::api::time::Wall;
use serde_json::{Value, json};

const KIND: &str = "pods/";

pub fn key(uid: &Uid) -> String {
    format!("{KIND}{uid}")
}

pub fn is_pod(key: &str) -> bool {
    key.starts_with(KIND)
}

pub fn write(pod: &Pod, start_time: Wall) -> String {
    json!({
        "path": pod.source.path,
        "document": pod.source.document,
        "digest": pod.digest,
        "startTime": start_time.0,
        "pod": pod.object,
    })
    .to_string()
}

/// The pod and its start time; an error says what is wrong with the record.
pub fn read(text: &str) -> Result<(Pod, Wall), String> {
    let mut value: Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
    let text_of = |v: &Value, name: &str| v.get(name).and_then(Value::as_str).unwrap_or_default().to_string();
    let start = value.get("startTime").and_then(Value::as_i64).ok_or("no startTime")?;
    let (path, digest) = (text_of(&value, "path"), text_of(&value, "digest"));
    let document = value.get("document").and_then(Value::as_u64).and_then(|d| u32::try_from(d).ok()).unwrap_or(1);
    let object = value.get_mut("pod").map(Value::take).ok_or("no pod")?;
    let object = crate::api::document::pod_from_value(&object)?;
    let meta = &object.metadata;
    let uid = Uid::from(meta.uid.as_deref().filter(|u| !u.is_empty()).ok_or("no metadata.uid")?);
    let name = meta.name.as_deref().ok_or("no metadata.name")?;
    let name = FullName::new(meta.namespace.as_deref().ok_or("no metadata.namespace")?, name);
    Ok((Pod { uid, name, source: Source { path, document }, digest, object }, Wall(start)))
}
