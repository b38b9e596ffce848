//! The record of a pod (W25): the accepted spec and its source, the time when the pod was first seen (A4), the progress
//! of its termination (W4, W7), and the conditions for its restart (W6). Each pod has one JSON object. The status of a
//! terminal pod is in the usual place inside the pod object.

use crate::api::devices::PodDevices;
use crate::api::names::{ContainerId, FullName, Uid};
use crate::api::ordered::CollectOrdered;
use crate::api::pod::{Pod, Source};
use crate::api::reason::Reason;
use crate::api::time::{Boot, Wall};
use crate::engine::pod::kill::TerminationSource;
use crate::engine::pod::status::Cause;
use crate::engine::pod::worker::restarting::{Restart, Restarting};
use crate::engine::pod::worker::{Earlier, Outdated};
use crate::engine::record_error::{self, RecordError};
use k8s_openapi::api::core::v1 as core;
use serde::de::DeserializeOwned;
use serde::{Deserialize as _, Serialize};
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
    /// When the pod was first seen.
    pub start_time: Wall,
    /// When the record was written; None in records of older versions.
    pub kept: Option<Kept>,
    /// The part of activeDeadlineSeconds that had passed when the record was written.
    pub active: Duration,
    /// The pod waited for its name (W8) and nothing of it was ever started.
    pub waiting: bool,
    /// A10: the pod, or the version before it, has started on this node.
    pub bound: bool,
    /// A3: why the pod was rejected.
    pub rejected: Option<Cause>,
    /// W6: the pod starts again after its end if it is still desired.
    pub again: bool,
    /// W6: the causes that must end before the pod starts again.
    pub waits_for: BTreeSet<TerminationSource>,
    pub preempted: Option<Preempted>,
    /// E5: the last eviction.
    pub evicted: Option<Evicted>,
    pub termination: Option<Termination>,
    /// R3: a resize is in progress; the containers that still have their old resources.
    pub resizing: Option<Outdated>,
    /// G3: the devices of each container.
    pub devices: PodDevices,
    /// W29: the ephemeral containers that were started.
    pub begun_ephemeral: BTreeSet<String>,
    /// W10: the containers that were stopped to start again.
    pub restarting: Restarting,
    /// C5: the containers before a shutdown.
    pub earlier: Earlier,
    /// The terminal status that the pod showed (W7).
    pub terminal: Option<core::PodStatus>,
    /// Containers whose preStop hook has started (W4: it runs once).
    pub pre_stopped: BTreeSet<ContainerId>,
}

/// The time when a record was written, on the boot clock, because the wall clock may be wrong then or be set
/// before the record is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// The boot to which `boot` belongs.
    pub boot_id: String,
    pub boot: Boot,
    /// The wall clock at the same time; the times in `termination` refer to it.
    pub wall: Wall,
}

impl Record {
    /// The time since the record was written; None if it was written in another boot.
    pub fn age(&self, now: Boot, boot_id: &str) -> Option<Duration> {
        let kept = self.kept.as_ref().filter(|k| !boot_id.is_empty() && k.boot_id == boot_id)?;
        Some(now.since(kept.boot))
    }
}

impl Record {
    /// For a pod of an API server: the grace period of its deletion.
    pub fn deletion(&self) -> Option<Duration> {
        let termination = self.termination.as_ref().filter(|t| t.undesired)?;
        Some(termination.grace_deadline.since(termination.began))
    }

    /// The pod ends because no document defines it any more.
    pub fn is_undesired(&self) -> bool {
        self.termination.as_ref().is_some_and(|t| t.undesired)
    }

    /// The pod had started, and nothing ended it.
    pub fn goes_on(&self) -> bool {
        !self.waiting && !self.again && self.rejected.is_none() && self.termination.is_none() && self.terminal.is_none()
    }
}

/// A8, A9: the pod was preempted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Preempted {
    /// When the pod was killed.
    pub at: Wall,
    /// The first resource in short supply.
    pub signal: Rc<str>,
}

/// The last eviction of a pod, and how many followed each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Evicted {
    pub at: Wall,
    pub times: u32,
}

/// A termination that was requested.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Termination {
    pub began: Wall,
    /// The end of the grace period.
    pub grace_deadline: Wall,
    pub cause: Option<Cause>,
    /// No source desires the pod any more.
    pub undesired: bool,
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
    let mut value = json!({
        "version": VERSION,
        "path": pod.source.path,
        "document": pod.source.document,
        "digest": pod.digest,
        "startTime": record.start_time.0,
        "pod": object,
    });
    // A pod that does not wait is bound.
    let bound = record.bound && record.waiting;
    for (name, is_so) in [("waiting", record.waiting), ("bound", bound), ("again", record.again)] {
        if is_so {
            value[name] = json!(true);
        }
    }
    if let Some(kept) = &record.kept {
        value["kept"] = json!({ "bootId": kept.boot_id, "boot": kept.boot.0, "wall": kept.wall.0 });
    }
    if !record.active.is_zero() {
        value["active"] = json!(u64::try_from(record.active.as_nanos()).unwrap_or(u64::MAX));
    }
    if let Some(cause) = &record.rejected {
        value["rejected"] = json!({ "reason": cause.reason, "message": cause.message });
    }
    if !record.waits_for.is_empty() {
        value["waitsFor"] = json!(record.waits_for);
    }
    if let Some(of) = &record.preempted {
        value["preempted"] = json!({ "at": of.at.0, "signal": &*of.signal });
    }
    if let Some(of) = &record.evicted {
        value["evicted"] = json!({ "at": of.at.0, "times": of.times });
    }
    if let Some(outdated) = &record.resizing {
        value["resizing"] = json!(outdated);
    }
    write_of_containers(record, &mut value);
    if let Some(termination) = &record.termination {
        value["termination"] = write_termination(termination);
    }
    value.to_string()
}

/// What the record says about containers, unless it says nothing.
fn write_of_containers(record: &Record, value: &mut Value) {
    if !record.devices.is_empty() {
        value["devices"] = json!(record.devices);
    }
    if !record.earlier.is_empty() {
        value["earlier"] = json!(record.earlier);
    }
    if !record.begun_ephemeral.is_empty() {
        value["begunEphemeral"] = json!(record.begun_ephemeral);
    }
    if !record.restarting.is_empty() {
        value["restarting"] = json!(record.restarting);
    }
    if !record.pre_stopped.is_empty() {
        value["preStopped"] = record.pre_stopped.iter().map(ContainerId::as_str).collect();
    }
}

fn write_termination(of: &Termination) -> Value {
    let mut value = json!({ "began": of.began.0, "cut": of.grace_deadline.0 });
    if of.undesired {
        value["undesired"] = json!(true);
    }
    if let Some(cause) = &of.cause {
        value["reason"] = json!(cause.reason);
        value["message"] = json!(cause.message);
        if let Some(by) = cause.by {
            value["by"] = json!(by);
        }
    }
    value
}

/// Parses the record stored under `record_key`.
///
/// # Errors
/// If the text is not JSON, a required field is missing, the version is not supported, or the UID does not match the
/// key.
pub fn read(record_key: &str, text: &str) -> Result<Record, RecordError> {
    use RecordError::Missing;
    let mut value = record_error::parse(text, VERSION)?;
    let start = value.get("startTime").and_then(Value::as_i64).ok_or(Missing("startTime"))?;
    let rejected = value.get("rejected").map(|r| Cause {
        reason: Reason::from_text(&text_of(r, "reason")),
        message: text_of(r, "message"),
        by: None,
    });
    let is_so = |name| value.get(name).and_then(Value::as_bool) == Some(true);
    let (waiting, again) = (is_so("waiting"), is_so("again"));
    let bound = !waiting || is_so("bound");
    let preempted = value.get("preempted").map(|p| Preempted {
        at: Wall(p.get("at").and_then(Value::as_i64).unwrap_or_default()),
        signal: text_of(p, "signal").into(),
    });
    let evicted = value.get("evicted").map(|e| Evicted {
        at: Wall(e.get("at").and_then(Value::as_i64).unwrap_or_default()),
        times: e.get("times").and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok()).unwrap_or(1),
    });
    let (pod, terminal) = read_pod(&mut value)?;
    if key(&pod.uid) != record_key {
        return Err(RecordError::OtherPod(pod.uid.clone()));
    }
    Ok(Record {
        pod,
        start_time: Wall(start),
        kept: value.get("kept").map(read_kept),
        active: Duration::from_nanos(value.get("active").and_then(Value::as_u64).unwrap_or_default()),
        waiting,
        bound,
        rejected,
        again,
        waits_for: read_waits_for(&value)?,
        preempted,
        evicted,
        termination: value.get("termination").map(read_termination),
        begun_ephemeral: strings(&value, "begunEphemeral").map(str::to_owned).collect_set(),
        pre_stopped: strings(&value, "preStopped").map(ContainerId::from).collect_set(),
        restarting: read_restarting(&mut value)?,
        resizing: take(&mut value, "resizing")?,
        devices: take(&mut value, "devices")?.unwrap_or_default(),
        earlier: take(&mut value, "earlier")?.unwrap_or_default(),
        terminal,
    })
}

/// The string under `name`; empty if there is none.
fn text_of(value: &Value, name: &str) -> String {
    value.get(name).and_then(Value::as_str).unwrap_or_default().to_string()
}

fn strings<'v>(value: &'v Value, name: &str) -> impl Iterator<Item = &'v str> {
    value.get(name).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// The value of an optional field.
fn take<T: DeserializeOwned>(value: &mut Value, field: &'static str) -> Result<Option<T>, RecordError> {
    let taken = value.get_mut(field).map(Value::take).map(serde_json::from_value).transpose();
    taken.map_err(|e| RecordError::Invalid { field, why: e.to_string() })
}

fn read_kept(kept: &Value) -> Kept {
    Kept {
        boot_id: text_of(kept, "bootId"),
        boot: Boot(kept.get("boot").and_then(Value::as_u64).unwrap_or_default()),
        wall: Wall(kept.get("wall").and_then(Value::as_i64).unwrap_or_default()),
    }
}

fn read_termination(of: &Value) -> Termination {
    let time = |name| Wall(of.get(name).and_then(Value::as_i64).unwrap_or_default());
    let reason = text_of(of, "reason");
    let by = of.get("by").and_then(|by| TerminationSource::deserialize(by).ok());
    let message = || text_of(of, "message");
    let cause = (!reason.is_empty()).then(|| Cause { reason: Reason::from_text(&reason), message: message(), by });
    let undesired = of.get("undesired").and_then(Value::as_bool) == Some(true);
    Termination { began: time("began"), grace_deadline: time("cut"), cause, undesired }
}

fn read_waits_for(value: &Value) -> Result<BTreeSet<TerminationSource>, RecordError> {
    let sources = value.get("waitsFor").and_then(Value::as_array).into_iter().flatten();
    let unknown = |source: &Value| RecordError::Invalid { field: "waitsFor", why: source.to_string() };
    sources.map(|source| TerminationSource::deserialize(source).map_err(|_| unknown(source))).collect()
}

fn read_restarting(value: &mut Value) -> Result<Restarting, RecordError> {
    let mut restarting: Restarting = take(value, "restarting")?.unwrap_or_default();
    // The name of an older version.
    restarting.extend(strings(value, "replaced").map(|id| (ContainerId::from(id), Restart::Image)));
    Ok(restarting)
}

/// The pod and its terminal status.
fn read_pod(value: &mut Value) -> Result<(Rc<Pod>, Option<core::PodStatus>), RecordError> {
    use RecordError::Missing;
    let (path, digest) = (text_of(value, "path"), text_of(value, "digest"));
    let document = value.get("document").and_then(Value::as_u64).and_then(|d| u32::try_from(d).ok()).unwrap_or(1);
    let object = value.get_mut("pod").map(Value::take).ok_or(Missing("pod"))?;
    let mut object = crate::api::document::from_value::<core::Pod>(&object).map_err(RecordError::NotAPod)?;
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
    use crate::api::resize::How;
    use crate::engine::pod::worker::Before;

    fn pod() -> Rc<Pod> {
        let text =
            "{apiVersion: v1, kind: Pod, metadata: {name: a, uid: u1}, spec: {containers: [{name: m, image: i:1}]}}";
        let context = document::Context::new("lab", "2027-01-15T08:00:00Z");
        Rc::new(document::read(text.as_bytes(), "/m/a.yaml", context).0.remove(0))
    }

    /// The status of a pod whose container has ended.
    fn ended() -> core::PodStatus {
        let ended = serde_json::json!({ "containerStatuses": [{ "name": "m", "image": "i:1", "imageID": "",
            "ready": false,
            "restartCount": 4, "state": { "terminated": { "exitCode": 143 } } }] });
        serde_json::from_value(ended).unwrap()
    }

    fn plain(pod: &Rc<Pod>) -> Record {
        Record {
            pod: pod.clone(),
            start_time: Wall(5),
            kept: None,
            active: Duration::ZERO,
            waiting: false,
            bound: true,
            rejected: None,
            again: false,
            waits_for: BTreeSet::new(),
            preempted: None,
            evicted: None,
            termination: None,
            resizing: None,
            devices: PodDevices::default(),
            begun_ephemeral: BTreeSet::new(),
            restarting: Restarting::default(),
            earlier: Earlier::default(),
            terminal: None,
            pre_stopped: BTreeSet::new(),
        }
    }

    #[test]
    fn w25_a_record_is_read_as_it_was_written() {
        let pod = pod();
        let plain = plain(&pod);
        assert_eq!(read("pods/u1", &write(&plain)).unwrap(), plain);

        let by = Some(TerminationSource::Preemption);
        let cause = Cause { reason: Reason::Preempting, message: "room".into(), by };
        let before = Before { name: "m".into(), how: How::Restart, resources: core::ResourceRequirements::default() };
        let allocated = Allocated { cdi: vec!["v.io/cam=a".into()], ..Allocated::default() };
        let granted = Granted { ids: vec!["a".into()], allocated };
        let list = serde_json::json!([{ "name": "d", "image": "b", "targetContainerName": "m" }]);
        let mut restarting = Restarting::default();
        restarting.extend([("c2".into(), Restart::Image), ("c3".into(), Restart::Failure)]);
        let full = Record {
            pod: Rc::new(pod.with_ephemeral(serde_json::from_value(list).unwrap())),
            begun_ephemeral: ["d".to_owned()].into(),
            restarting,
            earlier: Earlier::of(&ended()),
            kept: Some(Kept { boot_id: "b1".into(), boot: Boot(7), wall: Wall(8) }),
            active: Duration::from_millis(1500),
            waiting: true,
            rejected: Some(Cause { reason: Reason::out_of("cpu"), message: "too much".into(), by: None }),
            again: true,
            pre_stopped: ["c1".into()].into(),
            waits_for: [TerminationSource::Drain, TerminationSource::Preemption].into(),
            preempted: Some(Preempted { at: Wall(6), signal: "cpu".into() }),
            evicted: Some(Evicted { at: Wall(7), times: 3 }),
            termination: Some(Termination {
                began: Wall(6),
                grace_deadline: Wall(9),
                cause: Some(cause),
                undesired: true,
            }),
            resizing: Some([("c1".into(), before)].into()),
            devices: [("m".into(), [("v.io/cam".into(), granted)].into())].into(),
            terminal: Some(core::PodStatus { phase: Some("Failed".into()), ..Default::default() }),
            ..plain
        };
        assert_eq!(read("pods/u1", &write(&full)).unwrap(), full);
        let new = Record { bound: false, ..full };
        assert_eq!(read("pods/u1", &write(&new)).unwrap(), new);
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
        let restarting = |more: &str| read("pods/u1", &older(more)).unwrap().restarting;
        assert!(restarting("").is_empty());
        assert!(restarting(r#""replaced":["c2"],"#).starts_at_once(&"c2".into()));
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
