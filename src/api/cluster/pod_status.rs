//! The status of a pod for the server: a strategic merge patch with the differences from the server's status.
//!
//! Older servers drop fields that they do not know (`hostIPs`, `containerStatuses[].volumeMounts`). With such a
//! server, a kubelet patches each pod every 10 s. To avoid this, `Reported` remembers which fields the server did not
//! store as they were sent.

use super::final_ends::FinalEnds;
use super::pod_changes::{Fields, differences};
use crate::api::k8s::Time;
use crate::api::k8s::{HostIP, PodIP, PodStatus};
use crate::api::names::Uid;
use crate::api::reason::Reason;
use crate::api::time::Wall;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// Adds the fields that only a node in a cluster reports: its own addresses, which for a host-network pod are also
/// the pod's addresses, and the generation of the spec that the node has acted on. `host_ips`: one per family,
/// primary first. `closed_gate`: see `in_place::closed_gate`.
pub fn complete(
    status: &mut PodStatus,
    host_ips: &[String],
    host_network: bool,
    generation: Option<i64>,
    closed_gate: Option<String>,
) {
    if let Some(why) = closed_gate {
        let ready = status.conditions.iter_mut().flatten().find(|c| c.type_ == "Ready" && c.status == "True");
        if let Some(ready) = ready {
            ready.status = "False".to_owned();
            ready.reason = Some(Reason::ReadinessGatesNotReady.to_string());
            ready.message = Some(why);
        }
    }
    status.host_ip = host_ips.first().cloned();
    status.host_ips = Some(host_ips.iter().map(|ip| HostIP { ip: ip.clone() }).collect());
    if host_network && status.pod_ip.is_none() {
        status.pod_ip = host_ips.first().cloned();
        status.pod_ips = Some(host_ips.iter().map(|ip| PodIP { ip: ip.clone() }).collect());
    }
    // Servers before 1.34 do not set the generation of pods.
    let generation = generation.filter(|generation| *generation > 0);
    status.observed_generation = generation;
    for condition in status.conditions.iter_mut().flatten() {
        condition.observed_generation = generation;
    }
}

/// Sets the transition time of the condition Ready, which also depends on readiness gates: the time at which a change
/// of its status was first seen. `last`: the previous status.
pub fn keep_transition(status: &mut PodStatus, last: Option<&PodStatus>, now: Wall) {
    let of = |status: &PodStatus| status.conditions.iter().flatten().find(|c| c.type_ == "Ready").cloned();
    let Some(before) = last.and_then(of) else { return };
    let Some(ready) = status.conditions.iter_mut().flatten().find(|c| c.type_ == "Ready") else { return };
    ready.last_transition_time = match ready.status == before.status {
        true => before.last_transition_time,
        false => now.timestamp().map(Time),
    };
}

/// A patch, and the data about it that is needed when the server acknowledges it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// A strategic merge patch. It applies only to the pod with the UID: if another pod has the name, the server
    /// answers 409.
    pub body: String,
    /// The fields in the patch, with digests of our values.
    sent: Vec<(String, u64)>,
}

/// What the server has acknowledged about the status of one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reported {
    /// Fields that the server did not store as they were sent: digests of our value and of the stored one.
    altered: BTreeMap<String, (u64, u64)>,
    /// The resource version of the pod after the last patch.
    version: Option<u64>,
}

impl Reported {
    /// Returns the patch that makes the server's status equal to ours. None: there is nothing to report. `server`:
    /// the last known status on the server, which must not be older than an acknowledged patch (`is_current`); None:
    /// the server has no status.
    pub fn patch(
        &self,
        uid: &Uid,
        server: Option<&PodStatus>,
        ours: &PodStatus,
        final_ends: &FinalEnds,
    ) -> Option<Patch> {
        let server = server.map(Fields::of).unwrap_or_default();
        let mut changes = differences(&server, Fields::of(ours), final_ends);
        changes.retain(|change| {
            let digests = (digest(&change.ours), digest(&server.get(&change.key)));
            self.altered.get(&change.key) != Some(&digests)
        });
        if changes.is_empty() {
            return None;
        }
        let (mut status, mut conditions, mut sent) = (Map::new(), Vec::new(), Vec::new());
        for change in changes {
            sent.push((change.key.clone(), digest(&change.ours)));
            if change.key.starts_with("conditions/") {
                conditions.push(change.patch);
            } else {
                status.insert(change.key, change.patch);
            }
        }
        if !conditions.is_empty() {
            status.insert("conditions".to_owned(), conditions.into());
        }
        let body = json!({ "metadata": { "uid": uid.as_str() }, "status": status }).to_string();
        Some(Patch { body, sent })
    }

    /// Records that the server has carried out the patch. `stored` and `version`: the status and the resource version
    /// in its answer.
    pub fn acknowledge(&mut self, patch: &Patch, stored: &PodStatus, version: &str) {
        let stored = Fields::of(stored);
        for (key, ours) in &patch.sent {
            let theirs = digest(&stored.get(key));
            if theirs == *ours {
                self.altered.remove(key);
            } else {
                self.altered.insert(key.clone(), (*ours, theirs));
            }
        }
        self.version = version.parse().ok();
    }

    /// Returns false if a pod with this resource version, from a watch or a list, is older than the last acknowledged
    /// patch. Its status must not be compared with ours. Resource versions increase with each change; Kubernetes
    /// guarantees this from 1.35 on.
    pub fn is_current(&self, version: &str) -> bool {
        match (self.version, version.parse::<u64>()) {
            (Some(acknowledged), Ok(version)) => version >= acknowledged,
            _ => true,
        }
    }
}

fn digest(value: &Value) -> u64 {
    // `DefaultHasher::new` uses fixed keys, so the digest does not depend on the process.
    let mut hasher = DefaultHasher::new();
    value.to_string().hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests;
