//! The record of a pod (W25): the accepted spec and its source, the pod's history, and its state when the record was
//! written. Each pod has one JSON object, and `History` and `Snapshot` define its form. The status of a terminal pod
//! is in the field `status` of the pod object.

use crate::api::k8s;
use crate::api::names::{ContainerId, FullName, Uid};
use crate::api::pod::Pod;
use crate::api::source::Source;
use crate::api::time::{Boot, Wall};
use crate::engine::nanoseconds;
use crate::engine::pod::kill::Cause;
use crate::engine::pod::kill::TerminationSource;
pub use crate::engine::pod::worker::history::{Evicted, History, Preempted};
use crate::engine::pod::worker::resize::Outdated;
use crate::engine::pod::worker::restart::Restart;
use crate::engine::record_error::RecordError;
use crate::engine::record_fields as fields;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

/// The kind of these records. A key is `pods/<uid>`.
pub const KIND: &str = "pods";
const VERSION: u64 = 1;

/// The content of a record.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Record {
    pub pod: Rc<Pod>,
    /// The terminal status that the pod showed (W7).
    pub terminal: Option<k8s::PodStatus>,
    /// The part of the state that the worker itself keeps.
    pub history: History,
    /// The part of the state that the worker derives from its state machines.
    pub snapshot: Snapshot,
}

/// The pod's state when the record was written. The field names are those in the record.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// None in records of older versions.
    #[serde(rename = "kept", skip_serializing_if = "Option::is_none")]
    pub written: Option<WriteTime>,
    /// The part of activeDeadlineSeconds that had passed.
    #[serde(default, with = "nanoseconds", skip_serializing_if = "Duration::is_zero")]
    pub active: Duration,
    /// A3: why the pod was rejected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejected: Option<Cause>,
    /// W6: the pod starts again after its end if it is still desired.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub again: bool,
    /// W6: the causes that must end before the pod starts again.
    #[serde(default, deserialize_with = "termination_sources", skip_serializing_if = "BTreeSet::is_empty")]
    pub waits_for: BTreeSet<TerminationSource>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub termination: Option<Termination>,
    /// R3: a resize is in progress; the containers that still have their old resources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resizing: Option<Outdated>,
}

/// The time when a record was written. It is on the boot clock, because the wall clock may be wrong at that time, or
/// may be set before the record is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WriteTime {
    /// The boot to which `boot` belongs.
    #[serde(default)]
    pub boot_id: String,
    #[serde(default, with = "nanoseconds")]
    pub boot: Boot,
    /// The wall clock at the same time; the times in `termination` refer to it.
    #[serde(default, with = "nanoseconds")]
    pub wall: Wall,
}

/// A termination that was requested.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Termination {
    #[serde(default, with = "nanoseconds")]
    pub began: Wall,
    /// The end of the grace period.
    #[serde(rename = "cut", default, with = "nanoseconds")]
    pub grace_deadline: Wall,
    #[serde(flatten)]
    pub cause: Option<Cause>,
    /// No source defines the pod any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub undesired: bool,
}

/// The accepted spec and its source, in the form of the record.
#[derive(Serialize, Deserialize)]
struct Accepted {
    #[serde(default)]
    path: String,
    #[serde(default = "first")]
    document: u32,
    #[serde(default)]
    digest: String,
    pod: Value,
}

fn first() -> u32 {
    1
}

/// Parses the sources. The error shows only the unknown source.
fn termination_sources<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeSet<TerminationSource>, D::Error> {
    let unknown = |source: &Value| serde::de::Error::custom(source);
    let sources = Vec::<Value>::deserialize(deserializer)?;
    sources.iter().map(|source| TerminationSource::deserialize(source).map_err(|_| unknown(source))).collect()
}

impl Record {
    /// Returns the time since the record was written; None if it was written in another boot.
    pub fn age(&self, now: Boot, boot_id: &str) -> Option<Duration> {
        let written = self.snapshot.written.as_ref().filter(|w| !boot_id.is_empty() && w.boot_id == boot_id)?;
        Some(now.since(written.boot))
    }

    /// Returns the grace period with which the API server deletes the pod; None if the pod is not being deleted.
    pub fn deletion(&self) -> Option<Duration> {
        let termination = self.snapshot.termination.as_ref().filter(|t| t.undesired)?;
        Some(termination.grace_deadline.since(termination.began))
    }

    /// Returns true if the pod ends because no document defines it any more.
    pub fn is_undesired(&self) -> bool {
        self.snapshot.termination.as_ref().is_some_and(|t| t.undesired)
    }

    /// Returns true if the pod had started, and nothing ended it.
    pub fn goes_on(&self) -> bool {
        let Snapshot { again, rejected, termination, .. } = &self.snapshot;
        !self.history.waiting && !again && rejected.is_none() && termination.is_none() && self.terminal.is_none()
    }
}

pub fn key(uid: &Uid) -> String {
    format!("{KIND}/{uid}")
}

pub fn is_pod(key: &str) -> bool {
    key.split_once('/').is_some_and(|(kind, _)| kind == KIND)
}

pub fn write(record: &Record) -> String {
    let pod = &record.pod;
    let mut object = json!(pod.object);
    if let (Some(status), Value::Object(map)) = (&record.terminal, &mut object) {
        map.insert("status".into(), json!(status));
    }
    let Source { path, document } = pod.source.clone();
    let accepted = Accepted { path, document, digest: pod.digest.clone(), pod: object };
    let mut all = fields::of(VERSION);
    fields::put(&accepted, &mut all);
    fields::put(&record.history, &mut all);
    fields::put(&record.snapshot, &mut all);
    Value::Object(all).to_string()
}

/// Parses the record stored under `record_key`.
///
/// # Errors
/// The text is not JSON, a required field is missing, the version is not supported, or the UID does not match the
/// key.
pub fn read(record_key: &str, text: &str) -> Result<Record, RecordError> {
    let mut all = fields::parse(text, VERSION)?;
    let mut history: History = fields::take(&mut all)?;
    // An older version of Wherry recorded replaced containers in this field.
    let replaced = all.get("replaced").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    history.restarting.extend(replaced.map(|id| (ContainerId::from(id), Restart::Image)));
    let (pod, terminal) = read_pod(fields::take(&mut all)?)?;
    if key(&pod.uid) != record_key {
        return Err(RecordError::OtherPod(pod.uid.clone()));
    }
    Ok(Record { pod, terminal, history, snapshot: fields::take(&mut all)? })
}

/// Returns the pod and its terminal status.
fn read_pod(accepted: Accepted) -> Result<(Rc<Pod>, Option<k8s::PodStatus>), RecordError> {
    use RecordError::Missing;
    let Accepted { path, document, digest, pod: object } = accepted;
    let mut object = crate::api::document::from_value::<k8s::Pod>(&object).map_err(RecordError::NotAPod)?;
    let terminal = object.status.take();
    let meta = &object.metadata;
    let uid = Uid::from(meta.uid.as_deref().filter(|u| !u.is_empty()).ok_or(Missing("metadata.uid"))?);
    let name = meta.name.as_deref().ok_or(Missing("metadata.name"))?;
    let name = FullName::new(meta.namespace.as_deref().ok_or(Missing("metadata.namespace"))?, name);
    let ephemeral = object.spec.as_ref().and_then(|spec| spec.ephemeral_containers.as_ref());
    let ephemeral = ephemeral.into_iter().flatten().map(crate::api::ephemeral::of).collect();
    Ok((Rc::new(Pod { uid, name, source: Source { path, document }, digest, object, ephemeral }), terminal))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::devices::{Allocated, Granted};
    use crate::api::document;
    use crate::api::document::context::Context;
    use crate::api::reason::Reason;
    use crate::api::resize::How;
    use crate::engine::pod::worker::earlier::Earlier;
    use crate::engine::pod::worker::resize::Before;
    use crate::engine::pod::worker::restarting::Restarting;

    fn pod() -> Rc<Pod> {
        let text =
            "{apiVersion: v1, kind: Pod, metadata: {name: a, uid: u1}, spec: {containers: [{name: m, image: i:1}]}}";
        let context = Context::new("lab", "2027-01-15T08:00:00Z");
        Rc::new(document::read(text.as_bytes(), "/m/a.yaml", context).0.remove(0))
    }

    /// Returns the status of a pod whose container has ended.
    fn ended() -> k8s::PodStatus {
        let ended = serde_json::json!({ "containerStatuses": [{ "name": "m", "image": "i:1", "imageID": "",
            "ready": false,
            "restartCount": 4, "state": { "terminated": { "exitCode": 143 } } }] });
        serde_json::from_value(ended).unwrap()
    }

    fn plain(pod: &Rc<Pod>) -> Record {
        let mut history = History::new(Wall(5));
        history.begin();
        Record { pod: pod.clone(), terminal: None, history, snapshot: Snapshot::default() }
    }

    fn full() -> Record {
        let by = Some(TerminationSource::Preemption);
        let cause = Cause { reason: Reason::Preempting, message: "room".into(), by };
        let before = Before { name: "m".into(), how: How::Restart, resources: k8s::ResourceRequirements::default() };
        let allocated = Allocated { cdi: vec!["v.io/cam=a".into()], ..Allocated::default() };
        let granted = Granted { ids: vec!["a".into()], allocated };
        let list = serde_json::json!([{ "name": "d", "image": "b", "targetContainerName": "m" }]);
        let mut history = History {
            preempted: Some(Preempted { at: Wall(6), signal: "cpu".into() }),
            evicted: Some(Evicted { at: Wall(7), times: 3 }),
            devices: [("m".into(), [("v.io/cam".into(), granted)].into())].into(),
            begun_ephemeral: ["d".to_owned()].into(),
            earlier: Earlier::of(&ended()),
            pre_stopped: ["c1".into()].into(),
            ..History::new(Wall(5))
        };
        history.bind(true);
        history.restarting.extend([("c2".into(), Restart::Image), ("c3".into(), Restart::Failure)]);
        let snapshot = Snapshot {
            written: Some(WriteTime { boot_id: "b1".into(), boot: Boot(7), wall: Wall(8) }),
            active: Duration::from_millis(1500),
            rejected: Some(Cause { reason: Reason::out_of("cpu"), message: "too much".into(), by: None }),
            again: true,
            waits_for: [TerminationSource::Drain, TerminationSource::Preemption].into(),
            termination: Some(Termination {
                began: Wall(6),
                grace_deadline: Wall(9),
                cause: Some(cause),
                undesired: true,
            }),
            resizing: Some([("c1".into(), before)].into()),
        };
        let terminal = Some(k8s::PodStatus { phase: Some("Failed".into()), ..Default::default() });
        Record {
            pod: Rc::new(pod().with_ephemeral(serde_json::from_value(list).unwrap())),
            terminal,
            history,
            snapshot,
        }
    }

    #[test]
    fn w25_a_record_is_read_as_it_was_written() {
        let plain = plain(&pod());
        assert_eq!(read("pods/u1", &write(&plain)).unwrap(), plain);
        let mut full = full();
        assert_eq!(read("pods/u1", &write(&full)).unwrap(), full);
        full.history.bind(false);
        assert_eq!(read("pods/u1", &write(&full)).unwrap(), full);
    }

    /// Other versions of Wherry read the record after a downgrade or an upgrade.
    #[test]
    fn w25_the_form_of_a_record_stays() {
        let mut value: Value = serde_json::from_str(&write(&full())).unwrap();
        let status = value["pod"]["status"].take();
        let (spec, digest) = (value["pod"].take(), value["digest"].take());
        assert_eq!((&status["phase"], spec.is_object(), digest.is_string()), (&json!("Failed"), true, true));
        let form = json!({
            "active": 1_500_000_000, "again": true, "begunEphemeral": ["d"], "bound": true,
            "devices": { "m": { "v.io/cam": { "ids": ["a"], "allocated":
                { "annotations": {}, "cdi": ["v.io/cam=a"], "env": {}, "mounts": [], "nodes": [] } } } },
            "digest": null, "document": 1,
            "earlier": { "m": { "end": { "terminated": { "exitCode": 143 } }, "restarts": 4 } },
            "evicted": { "at": 7, "times": 3 },
            "kept": { "boot": 7, "bootId": "b1", "wall": 8 },
            "path": "/m/a.yaml", "pod": null, "preStopped": ["c1"],
            "preempted": { "at": 6, "signal": "cpu" },
            "rejected": { "message": "too much", "reason": "OutOfcpu" },
            "resizing": { "c1": { "how": "Restart", "name": "m", "resources": {} } },
            "restarting": { "c2": "Image", "c3": "Failure" },
            "startTime": 5,
            "termination": { "began": 6, "by": "preemption", "cut": 9, "message": "room", "reason": "Preempting",
                "undesired": true },
            "version": 1, "waiting": true, "waitsFor": ["drain", "preemption"],
        });
        assert_eq!(value, form);
        let plain: Value = serde_json::from_str(&write(&plain(&pod()))).unwrap();
        let keys: Vec<&String> = plain.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["digest", "document", "path", "pod", "startTime", "version"]);
    }

    #[test]
    fn w25_a_record_of_an_older_version_has_the_replaced_containers_or_none() {
        let older = |more: &str| {
            format!(
                r#"{{"version":1,"path":"/m/a.yaml","document":1,"digest":"d","startTime":5,{more}
                "pod":{{"metadata":{{"name":"a","namespace":"default","uid":"u1"}},
                "spec":{{"containers":[{{"name":"m","image":"i:1"}}]}}}}}}"#
            )
        };
        let restarting = |more: &str| read("pods/u1", &older(more)).unwrap().history.restarting;
        assert!(restarting("").is_empty());
        let mut replaced = Restarting::default();
        replaced.insert(&"c2".into(), Restart::Image);
        assert_eq!(restarting(r#""replaced":["c2"],"#), replaced);
    }

    #[test]
    fn an_unusable_record_is_an_error_with_the_reason() {
        let good = write(&plain(&pod()));
        let strange = good.replacen('{', r#"{"waitsFor": ["rain"], "#, 1);
        for (key, text, why) in [
            ("pods/u2", good.as_str(), "it belongs to pod u1"),
            ("pods/u1", &strange, "waitsFor: \"rain\""),
            ("pods/u1", "{", "EOF while parsing an object at line 1 column 1"),
            ("pods/u1", r#"{"version": 2}"#, "version 2; this Wherry reads version 1"),
            ("pods/u1", r#"{"version": 1}"#, "no startTime"),
            ("pods/u1", r#"{"version": 1, "startTime": 1}"#, "no pod"),
        ] {
            assert_eq!(read(key, text).unwrap_err().to_string(), why);
        }
    }
}
