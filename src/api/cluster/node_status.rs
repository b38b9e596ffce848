//! Patches of this node's status: the differences from the server's state, and the heartbeat of the conditions.
//!
//! Others change the node, too: the node controller sets `Ready` to `Unknown` if it has not heard from the node for
//! some time, and older servers drop fields that they do not know. `Sent` distinguishes the two cases: a field that
//! the server did not store as it was sent is not sent again, but a field that changed later is.

use super::node::{Condition, MACHINE_LABELS, NodeReport, seconds};
use crate::api::devices::is_device_resource;
use crate::api::ordered::CollectOrdered;
use crate::api::time::Wall;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// A change of these fields alone waits for the next patch.
const NOT_URGENT: [&str; 1] = ["images"];

/// The server's state of the node, as far as this node reports it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sent {
    /// Fields of the status, and `metadata/labels/<key>` and `metadata/annotations/<key>`.
    fields: BTreeMap<String, SentField>,
    /// By type, with the time of the last transition.
    conditions: BTreeMap<String, (Condition, String)>,
    /// Conditions that the server did not store as they were sent: ours, and the one that the server has instead.
    altered: BTreeMap<String, (Condition, Option<Condition>)>,
    /// The conditions of the last patch, until its answer arrives.
    awaited: Vec<Condition>,
    /// The labels that were reported, with their values. None: the node has just been registered.
    labels: Option<BTreeMap<String, String>>,
    /// The resource version of the observed state.
    version: Option<u64>,
}

#[derive(Clone, Debug, PartialEq)]
struct SentField {
    /// The value as sent, or as another client has changed it since.
    value: Value,
    /// The value as the server stores it. None: not known yet.
    stored: Option<Value>,
}

impl Sent {
    /// Creates the state from the answer to the registration, or from the existing object. The transition times of
    /// its conditions stay.
    pub fn of(node: &Value) -> Sent {
        let mut sent = Sent::default();
        sent.observe(node);
        sent
    }

    /// Returns false if a node from a watch or a list is older than the observed state, which may come from the
    /// answer to a patch. An older node must not be observed. Resource versions increase with each change; Kubernetes
    /// guarantees this from 1.35 on.
    pub fn is_current(&self, node: &Value) -> bool {
        self.version.zip(version(node)).is_none_or(|(observed, version)| version >= observed)
    }

    /// Takes over the state of this node from an answer, or from a list or a watch if it is current (`is_current`).
    pub fn observe(&mut self, node: &Value) {
        self.version = version(node);
        let stored = stored(node);
        let known: BTreeSet<String> = self.fields.keys().chain(stored.keys()).cloned().collect_set();
        for key in known {
            let stored = stored.get(&key).cloned().unwrap_or_default();
            let field = self.fields.entry(key).or_insert_with(|| SentField { value: stored.clone(), stored: None });
            // The first state after a patch shows how the server has stored it.
            if field.stored.as_ref().is_some_and(|before| *before != stored) {
                field.value = stored.clone();
            }
            field.stored = Some(stored);
        }
        self.conditions.clear();
        for condition in node.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten() {
            let text = |field: &str| condition.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
            let (kind, transition) = (text("type"), text("lastTransitionTime"));
            let parsed = Condition {
                kind: kind.clone(),
                status: text("status"),
                reason: text("reason"),
                message: text("message"),
            };
            self.conditions.insert(kind, (parsed, transition));
        }
        for ours in std::mem::take(&mut self.awaited) {
            let stored = self.conditions.get(&ours.kind).map(|(stored, _)| stored.clone());
            if stored.as_ref() == Some(&ours) {
                self.altered.remove(&ours.kind);
            } else {
                self.altered.insert(ours.kind.clone(), (ours, stored));
            }
        }
    }

    /// Decides which labels the node sets when it registers. As in a kubelet, it sets the labels of its machine, and
    /// other labels only if they are missing. Later changes by an administrator stay.
    pub fn begin(&mut self, report: &NodeReport) {
        let Sent { fields, labels, .. } = self;
        labels.get_or_insert_with(|| {
            let at_server = |key: &str| fields.get(&format!("metadata/labels/{key}")).map(|field| &field.value);
            let is_kept =
                |(key, _): &(&String, &String)| !MACHINE_LABELS.contains(&key.as_str()) && at_server(key).is_some();
            report.labels.iter().filter(is_kept).map(|(key, value)| (key.clone(), value.clone())).collect_map()
        });
    }

    /// Returns true if the node has reported the label with this value. An administrator may have changed it since.
    fn was_reported(&self, key: &str, value: &Value) -> bool {
        let Some(name) = key.strip_prefix("metadata/labels/") else { return false };
        let reported = self.labels.as_ref().and_then(|labels| labels.get(name));
        reported.is_some_and(|reported| *value == **reported)
    }

    fn is_stored(&self, condition: &Condition) -> bool {
        let stored = self.conditions.get(&condition.kind).map(|(stored, _)| stored);
        let altered = || self.altered.get(&condition.kind);
        stored == Some(condition)
            || altered().is_some_and(|(ours, theirs)| ours == condition && theirs.as_ref() == stored)
    }

    /// Returns the strategic merge patch, and the state after it. None: nothing has changed and it is not time for a
    /// heartbeat. `heartbeat`: the last patch is older than the period (5 minutes in a kubelet). After the answer,
    /// the caller has to take over the new `Sent` and let it `observe` the answer.
    pub fn patch(&self, report: &NodeReport, now: Wall, heartbeat: bool) -> Option<(String, Sent)> {
        let mut wanted = wanted(report);
        self.keep_foreign(&mut wanted);
        let is_known = |key: &str, value: &Value| {
            self.was_reported(key, value) || self.fields.get(key).is_some_and(|field| field.value == *value)
        };
        let mut changed: Vec<(&String, &Value)> = wanted.iter().filter(|(key, value)| !is_known(key, value)).collect();
        // A field that the node no longer reports, such as the last image.
        let removed = self.fields.keys().filter(|key| REPORTED.contains(&key.as_str()) && !wanted.contains_key(*key));
        let removed: Vec<&String> = removed.filter(|key| !self.fields[*key].value.is_null()).collect();
        changed.extend(removed.into_iter().map(|key| (key, &Value::Null)));
        let is_urgent = changed.iter().any(|(key, _)| !NOT_URGENT.contains(&key.as_str()));
        if !heartbeat && !is_urgent && report.conditions.iter().all(|condition| self.is_stored(condition)) {
            return None;
        }
        let (mut sent, now) = (self.clone(), seconds(now));
        let (mut status, mut metadata) = (Map::new(), Map::new());
        for (key, value) in changed {
            let before = self.fields.get(key).map(|field| field.stored.as_ref().unwrap_or(&field.value));
            match key.split('/').collect::<Vec<_>>()[..] {
                ["metadata", part, ..] => {
                    let name = key.splitn(3, '/').nth(2).unwrap_or_default();
                    let map = metadata.entry(part.to_owned()).or_insert_with(|| json!({}));
                    map[name] = value.clone();
                }
                _ => {
                    status.insert(key.clone(), patch_of(key, before, value));
                }
            }
            sent.fields.insert(key.clone(), SentField { value: value.clone(), stored: None });
        }
        let mut conditions = Vec::new();
        for condition in &report.conditions {
            let before = self.conditions.get(&condition.kind).filter(|(before, _)| before.status == condition.status);
            let transition = before.map(|(_, at)| at.as_str()).filter(|at| !at.is_empty()).unwrap_or(&now);
            // All fields are sent, because the server's state may differ from the one that this node has seen.
            conditions.push(condition.object(&now, transition));
            sent.conditions.insert(condition.kind.clone(), (condition.clone(), transition.to_owned()));
        }
        sent.awaited = report.conditions.clone();
        sent.labels = Some(report.labels.clone());
        status.insert("conditions".to_owned(), conditions.into());
        let mut patch = json!({ "status": status });
        if !metadata.is_empty() {
            patch["metadata"] = metadata.into();
        }
        Some((patch.to_string(), sent))
    }
}

impl Sent {
    /// Keeps extended resources that an administrator has added to the node. Their whole capacity is allocatable, as
    /// in a kubelet.
    fn keep_foreign(&self, wanted: &mut BTreeMap<String, Value>) {
        let [Some(Value::Object(own)), Some(Value::Object(at_server))] =
            [wanted.get("capacity"), self.fields.get("capacity").and_then(|field| field.stored.as_ref())]
        else {
            return;
        };
        let is_foreign = |name: &String| is_device_resource(name) && !own.contains_key(name);
        let foreign = at_server.iter().filter(|(name, _)| is_foreign(name));
        let foreign: Vec<(String, Value)> = foreign.map(|(name, value)| (name.clone(), value.clone())).collect();
        for part in ["capacity", "allocatable"] {
            if let Some(Value::Object(map)) = wanted.get_mut(part) {
                map.extend(foreign.iter().cloned());
            }
        }
    }
}

/// The fields of the status that this node reports. Other fields, such as `volumesInUse`, belong to others.
const REPORTED: [&str; 8] =
    ["addresses", "allocatable", "capacity", "daemonEndpoints", "features", "images", "nodeInfo", "runtimeHandlers"];
const METADATA: [&str; 2] = ["annotations", "labels"];

/// Returns the reported fields by key.
fn wanted(report: &NodeReport) -> BTreeMap<String, Value> {
    let mut all: BTreeMap<String, Value> =
        report.status_fields().into_iter().map(|(name, value)| (name.to_owned(), value)).collect_map();
    for (part, map) in METADATA.into_iter().zip([&report.annotations, &report.labels]) {
        all.extend(map.iter().map(|(key, value)| (format!("metadata/{part}/{key}"), value.as_str().into())));
    }
    all
}

fn version(node: &Value) -> Option<u64> {
    node.pointer("/metadata/resourceVersion")?.as_str()?.parse().ok()
}

/// Returns the fields of the server's object by key.
fn stored(node: &Value) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    for name in REPORTED {
        if let Some(value) = node.get("status").and_then(|status| status.get(name)) {
            all.insert(name.to_owned(), value.clone());
        }
    }
    for part in METADATA {
        let map = node.get("metadata").and_then(|metadata| metadata.get(part)).and_then(Value::as_object);
        all.extend(map.into_iter().flatten().map(|(key, value)| (format!("metadata/{part}/{key}"), value.clone())));
    }
    all
}

/// Returns the new value of a field in a strategic merge patch.
fn patch_of(key: &str, before: Option<&Value>, value: &Value) -> Value {
    let mut value = value.clone();
    match (&mut value, before) {
        // The merge key of the addresses is their type, although several can have the same type, so the list has to
        // be replaced. If there is no list to replace, older servers take the directive for an address.
        (Value::Array(list), Some(Value::Array(before))) if key == "addresses" && !before.is_empty() => {
            list.insert(0, json!({ "$patch": "replace" }));
        }
        // Maps are merged, so removed keys have to be set to null.
        (Value::Object(map), Some(Value::Object(before))) => {
            for name in before.keys().filter(|_| matches!(key, "capacity" | "allocatable")) {
                map.entry(name.clone()).or_insert(Value::Null);
            }
        }
        _ => {}
    }
    value
}

#[cfg(test)]
mod tests;
