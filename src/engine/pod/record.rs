//! The record of a pod that may have containers (W25): its accepted spec, where it came from, when it started, and how far
//! its end is (W4, W7). One JSON object a pod; a terminal pod's status stands where Kubernetes has it, in the pod.

use crate::api::names::{FullName, Uid};
use crate::api::pod::{Pod, Source};
use crate::api::time::Wall;
use crate::engine::pod::status::Cause;
use k8s_openapi::api::core::v1 as core;
use serde_json::{Value, json};
use std::rc::Rc;

/// The kind of these records: their keys are `pods/<uid>`.
pub const KIND: &str = "pods";
const VERSION: u64 = 1;

/// What a record tells.
#[derive(Clone, Debug)]
pub struct Record {
    pub pod: Rc<Pod>,
    pub start_time: Wall,
    pub termination: Option<Termination>,
    /// It ended by itself, or for a cause, and was shown so (W7).
    pub terminal: Option<core::PodStatus>,
}

/// A termination that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Termination {
    pub began: Wall,
    /// The end of the grace period.
    pub cut: Wall,
    pub cause: Option<Cause>,
}

pub fn key(uid: &Uid) -> String {
    format!("{KIND}/{uid}")
}

pub fn is_pod(key: &str) -> bool {
    key.split_once('/').is_some_and(|(kind, _)| kind == KIND)
}

pub fn write(
    pod: &Pod,
    start_time: Wall,
    termination: Option<&Termination>,
    terminal: Option<&core::PodStatus>,
) -> String {
    let mut object = json!(pod.object);
    if let (Some(status), Value::Object(map)) = (terminal, &mut object) {
        map.insert("status".into(), json!(status));
    }
    let mut value = json!({
        "version": VERSION,
        "path": pod.source.path,
        "document": pod.source.document,
        "digest": pod.digest,
        "startTime": start_time.0,
        "pod": object,
    });
    if let Some(t) = termination {
        value["termination"] = json!({ "began": t.began.0, "cut": t.cut.0 });
        if let Some(cause) = &t.cause {
            value["termination"]["reason"] = json!(cause.reason);
            value["termination"]["message"] = json!(cause.message);
        }
    }
    value.to_string()
}

/// What the record under `key` says; an error says what is wrong with it.
///
/// # Errors
/// If it is no JSON, lacks something, is of another version, or does not belong under its key.
pub fn read(record_key: &str, text: &str) -> Result<Record, String> {
    let mut value: Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
    let text_of = |v: &Value, name: &str| v.get(name).and_then(Value::as_str).unwrap_or_default().to_string();
    match value.get("version").and_then(Value::as_u64) {
        Some(VERSION) => {}
        other => return Err(format!("version {other:?}; this wherry reads version {VERSION}")),
    }
    let start = value.get("startTime").and_then(Value::as_i64).ok_or("no startTime")?;
    let (path, digest) = (text_of(&value, "path"), text_of(&value, "digest"));
    let document = value.get("document").and_then(Value::as_u64).and_then(|d| u32::try_from(d).ok()).unwrap_or(1);
    let termination = value.get("termination").map(|t| {
        let time = |name| Wall(t.get(name).and_then(Value::as_i64).unwrap_or_default());
        let reason = text_of(t, "reason");
        let cause = (!reason.is_empty()).then(|| Cause { reason, message: text_of(t, "message") });
        Termination { began: time("began"), cut: time("cut"), cause }
    });
    let object = value.get_mut("pod").map(Value::take).ok_or("no pod")?;
    let mut object = crate::api::document::pod_from_value(&object)?;
    let terminal = object.status.take();
    let meta = &object.metadata;
    let uid = Uid::from(meta.uid.as_deref().filter(|u| !u.is_empty()).ok_or("no metadata.uid")?);
    if key(&uid) != record_key {
        return Err(format!("it is of the pod {uid}"));
    }
    let name = meta.name.as_deref().ok_or("no metadata.name")?;
    let name = FullName::new(meta.namespace.as_deref().ok_or("no metadata.namespace")?, name);
    let pod = Rc::new(Pod { uid, name, source: Source { path, document }, digest, object });
    Ok(Record { pod, start_time: Wall(start), termination, terminal })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::document;

    fn pod() -> Rc<Pod> {
        let text =
            "{apiVersion: v1, kind: Pod, metadata: {name: a, uid: u1}, spec: {containers: [{name: m, image: i:1}]}}";
        let context = document::Context { node_name: "lab", unsafe_sysctls: &[], seen: "2027-01-15T08:00:00Z" };
        Rc::new(document::read(text.as_bytes(), "/m/a.yaml", context).0.remove(0))
    }

    #[test]
    fn w25_what_was_written_is_read_back() {
        let pod = pod();
        let record = read("pods/u1", &write(&pod, Wall(5), None, None)).unwrap();
        assert_eq!((record.pod, record.start_time), (pod.clone(), Wall(5)));
        assert!(record.termination.is_none() && record.terminal.is_none());

        let cause = Cause { reason: "DeadlineExceeded".into(), message: "too long".into() };
        let termination = Termination { began: Wall(6), cut: Wall(9), cause: Some(cause) };
        let status = core::PodStatus { phase: Some("Failed".into()), ..Default::default() };
        let record = read("pods/u1", &write(&pod, Wall(5), Some(&termination), Some(&status))).unwrap();
        assert_eq!((record.termination, record.terminal), (Some(termination), Some(status)));
        assert_eq!(record.pod, pod, "the status is not part of what was accepted");
    }

    #[test]
    fn a_record_of_no_use_says_why() {
        let good = write(&pod(), Wall(5), None, None);
        for (key, text, why) in [
            ("pods/u2", good.as_str(), "it is of the pod u1"),
            ("pods/u1", "{", "EOF while parsing an object at line 1 column 1"),
            ("pods/u1", r#"{"version": 2}"#, "version Some(2); this wherry reads version 1"),
            ("pods/u1", r#"{"version": 1}"#, "no startTime"),
            ("pods/u1", r#"{"version": 1, "startTime": 1}"#, "no pod"),
        ] {
            assert_eq!(read(key, text).unwrap_err(), why);
        }
    }
}
