//! The fields of a pod's status that a node reports, and the differences between our status and the server's.
//!
//! The node shares the status with others: a condition of another type, `resourceClaimStatuses`, `nominatedNodeName`
//! and `qosClass` are not ours.

use super::final_ends::FinalEnds;
use crate::api::k8s::PodStatus;
use crate::api::printable::cut;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The maximum size of the termination messages of all containers of a pod, in bytes, as in a kubelet.
const MAX_MESSAGES: usize = 12 << 10;

const SCALARS: [&str; 7] = ["hostIP", "message", "observedGeneration", "phase", "podIP", "reason", "startTime"];
/// Lists that a patch replaces as a whole.
const CONTAINERS: [&str; 3] = ["containerStatuses", "ephemeralContainerStatuses", "initContainerStatuses"];
/// Lists that a patch merges by `ip`.
const ADDRESSES: [&str; 2] = ["hostIPs", "podIPs"];
/// Fields that are removed from the server's status if ours does not have them. If ours lacks any other field, our
/// status is only incomplete.
const REMOVABLE: [&str; 4] = ["message", "podIP", "podIPs", "reason"];
/// Conditions that only a node sets, and that disappear again.
const ENDING: [&str; 2] = ["PodResizeInProgress", "PodResizePending"];
/// A condition that others also set.
const DISRUPTION: &str = "DisruptionTarget";

/// The reported fields of a status, without nulls.
#[derive(Debug, Default)]
pub(super) struct Fields {
    plain: BTreeMap<&'static str, Value>,
    /// By type.
    conditions: BTreeMap<String, Map<String, Value>>,
}

/// A field in which our status differs from the server's.
#[derive(Debug)]
pub(super) struct Difference {
    /// The name of the field, or `conditions/<type>`.
    pub key: String,
    /// Our value, without the transition time of a condition; null if our status does not have the field.
    pub ours: Value,
    /// The value for the patch.
    pub patch: Value,
}

impl Fields {
    pub fn of(status: &PodStatus) -> Fields {
        // A time beyond the year 9999 cannot be written.
        let Ok(Value::Object(mut status)) = serde_json::to_value(status) else { return Fields::default() };
        status.values_mut().for_each(remove_nulls);
        cut_messages(&mut status);
        let mut fields = Fields::default();
        for name in SCALARS.into_iter().chain(CONTAINERS).chain(ADDRESSES) {
            let is_empty =
                |value: &Value| value.is_null() || value == "" || value.as_array().is_some_and(Vec::is_empty);
            if let Some(value) = status.remove(name).filter(|value| !is_empty(value)) {
                fields.plain.insert(name, value);
            }
        }
        if let Some(Value::Array(conditions)) = status.remove("conditions") {
            for condition in conditions {
                let Value::Object(condition) = condition else { continue };
                let kind = condition.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
                fields.conditions.insert(kind, condition);
            }
        }
        fields
    }

    /// Returns the value of the field, in the form of `Difference::ours`.
    pub fn get(&self, key: &str) -> Value {
        match key.strip_prefix("conditions/") {
            None => self.plain.get(key).cloned().unwrap_or_default(),
            Some(kind) => self.conditions.get(kind).map_or(Value::Null, without_time),
        }
    }

    fn is_terminal(&self) -> bool {
        self.plain.get("phase").is_some_and(|phase| phase == "Succeeded" || phase == "Failed")
    }

    /// Takes over the server's values that a node must not change.
    fn adopt(&mut self, server: &Fields, final_ends: &FinalEnds) {
        let mut keep = vec!["startTime"];
        // If the record of the pod's end was lost, only the server has the reason.
        let has_no_reason = !self.plain.contains_key("reason");
        if server.is_terminal() && (has_no_reason || server.plain.get("phase") != self.plain.get("phase")) {
            for name in ["message", "phase", "reason"] {
                self.plain.remove(name);
            }
            keep.extend(["message", "phase", "reason"]);
        }
        for name in keep {
            if let Some(value) = server.plain.get(name) {
                self.plain.insert(name, value.clone());
            }
        }
        let is_terminal = self.is_terminal();
        for name in CONTAINERS {
            keep_restarts(self.plain.get_mut(name), server.plain.get(name));
            keep_ends(self.plain.get_mut(name), server.plain.get(name), |ours, theirs| {
                // The server's status also stays if the container is gone from the runtime and a restarted Wherry
                // knows nothing about it.
                final_ends.has(theirs) || is_terminal && ours["containerID"].is_null()
            });
        }
        for (kind, condition) in &mut self.conditions {
            let Some(theirs) = server.conditions.get(kind) else { continue };
            // The transition time changes only with the status, and the server may know an earlier one.
            if theirs.get("status") == condition.get("status")
                && let Some(since) = theirs.get("lastTransitionTime")
            {
                condition.insert("lastTransitionTime".to_owned(), since.clone());
            }
        }
        // Only a pod that has ended shows why the node ended it. A reason that another client has set takes
        // precedence.
        let is_set = |c: &Map<String, Value>| c.get("status").is_some_and(|status| status == "True");
        if !self.is_terminal() || server.conditions.get(DISRUPTION).is_some_and(is_set) {
            self.conditions.remove(DISRUPTION);
        }
    }
}

/// Returns the changes that make the server's status equal to ours. A terminal phase never changes. If the pod has
/// ended on the server but not here, there are no changes, because a pod cannot run again.
pub(super) fn differences(server: &Fields, mut ours: Fields, final_ends: &FinalEnds) -> Vec<Difference> {
    if server.is_terminal() && !ours.is_terminal() {
        return Vec::new();
    }
    ours.adopt(server, final_ends);
    let mut all = Vec::new();
    for name in SCALARS.into_iter().chain(CONTAINERS).chain(ADDRESSES) {
        let (theirs, value) = (server.plain.get(name), ours.plain.get(name));
        if theirs == value || (value.is_none() && !REMOVABLE.contains(&name)) {
            continue;
        }
        let ours = value.cloned().unwrap_or_default();
        let mut patch = ours.clone();
        // If there is no list to replace, older servers take the directive for an address.
        if let Value::Array(list) = &mut patch
            && ADDRESSES.contains(&name)
            && theirs.is_some()
        {
            list.insert(0, json!({ "$patch": "replace" }));
        }
        all.push(Difference { key: name.to_owned(), ours, patch });
    }
    for (kind, condition) in &ours.conditions {
        let theirs = server.conditions.get(kind);
        if theirs == Some(condition) || is_included(condition, theirs) {
            continue;
        }
        let mut patch = condition.clone();
        for field in ["message", "reason"] {
            if !condition.contains_key(field) && theirs.is_some_and(|theirs| theirs.contains_key(field)) {
                patch.insert(field.to_owned(), Value::Null);
            }
        }
        all.push(Difference { key: key_of(kind), ours: without_time(condition), patch: patch.into() });
    }
    for kind in ENDING {
        if server.conditions.contains_key(kind) && !ours.conditions.contains_key(kind) {
            let patch = json!({ "type": kind, "$patch": "delete" });
            all.push(Difference { key: key_of(kind), ours: Value::Null, patch });
        }
    }
    all
}

/// Keeps restart counts from decreasing. CRI-O removes a container that cannot start, so an earlier one is the newest
/// again.
fn keep_restarts(ours: Option<&mut Value>, server: Option<&Value>) {
    let count = |container: &Value| container["restartCount"].as_i64().unwrap_or_default();
    let server = server.and_then(Value::as_array);
    for container in ours.and_then(Value::as_array_mut).into_iter().flatten() {
        let theirs = server.into_iter().flatten().find(|theirs| theirs["name"] == container["name"]);
        if let Some(restarts) = theirs.map(count).filter(|theirs| *theirs > count(container)) {
            container["restartCount"] = restarts.into();
        }
    }
}

/// Keeps the server's status of a container that has ended there, but not here, if `stays` is true. `stays` gets our
/// status of the container and the server's.
fn keep_ends(ours: Option<&mut Value>, server: Option<&Value>, stays: impl Fn(&Value, &Value) -> bool) {
    let has_ended = |container: &Value| container.pointer("/state/terminated").is_some();
    let server = server.and_then(Value::as_array);
    for container in ours.and_then(Value::as_array_mut).into_iter().flatten().filter(|ours| !has_ended(ours)) {
        let theirs =
            server.into_iter().flatten().find(|theirs| theirs["name"] == container["name"] && has_ended(theirs));
        if let Some(theirs) = theirs.filter(|theirs| stays(container, theirs)) {
            container.clone_from(theirs);
        }
    }
}

fn key_of(condition: &str) -> String {
    format!("conditions/{condition}")
}

/// Reports whether the server's condition has all fields of ours, and no reason or message that ours does not have.
fn is_included(ours: &Map<String, Value>, theirs: Option<&Map<String, Value>>) -> bool {
    let Some(theirs) = theirs else { return false };
    ours.iter().all(|(name, value)| theirs.get(name) == Some(value))
        && ["message", "reason"].into_iter().all(|name| theirs.get(name) == ours.get(name))
}

fn without_time(condition: &Map<String, Value>) -> Value {
    let mut condition = condition.clone();
    condition.remove("lastTransitionTime");
    condition.into()
}

fn remove_nulls(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(remove_nulls),
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(remove_nulls);
        }
        _ => {}
    }
}

/// Cuts termination messages. Each container gets an equal share of the limit, as in a kubelet.
fn cut_messages(status: &mut Map<String, Value>) {
    let count: usize = CONTAINERS.iter().filter_map(|name| Some(status.get(*name)?.as_array()?.len())).sum();
    let most = MAX_MESSAGES / count.max(1);
    for name in CONTAINERS {
        for container in status.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten() {
            for state in ["/state/terminated/message", "/lastState/terminated/message"] {
                if let Some(Value::String(message)) = container.pointer_mut(state) {
                    message.truncate(cut(message, most).len());
                }
            }
        }
    }
}
