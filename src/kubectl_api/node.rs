//! This machine as a Node object.

use super::snapshot::Snapshot;
use crate::api::cluster::machine::MachineIdentity;
use crate::api::kube::node_change;
use crate::api::time::Wall;
use crate::api::uid::of_name as uid;
use serde_json::{Value, json};

/// Returns the Node object. It contains no times that advance by themselves, so it changes only when the machine
/// changes.
pub(super) fn object(snapshot: &Snapshot<'_>, machine: &MachineIdentity, addresses: &[String]) -> Value {
    let summary = snapshot.engine.summary(snapshot.now.boot);
    let (facts, _) = snapshot.engine.node();
    let runtime = summary.runtime.clone().unwrap_or_default();
    let not_ready = snapshot.engine.not_ready(snapshot.now.boot);
    let text = |at: Wall| at.timestamp().map(|t| t.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    let heartbeat = text(snapshot.started);
    let condition = |kind: &str, is_true: bool, reason: &str, message: &str| {
        let since = snapshot.conditions.since(kind, is_true).unwrap_or(snapshot.started);
        json!({
            "type": kind,
            "status": if is_true { "True" } else { "False" },
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": heartbeat,
            "lastTransitionTime": text(since),
        })
    };
    let pressure: Vec<&str> = snapshot.engine.conditions().map(|c| c.name()).collect();
    let mut conditions: Vec<Value> = [
        ("MemoryPressure", "KubeletHasInsufficientMemory", "KubeletHasSufficientMemory", "memory"),
        ("DiskPressure", "KubeletHasDiskPressure", "KubeletHasNoDiskPressure", "disk space"),
        ("PIDPressure", "KubeletHasInsufficientPID", "KubeletHasSufficientPID", "process ids"),
    ]
    .iter()
    .map(|(kind, bad, good, of)| match pressure.contains(kind) {
        true => condition(kind, true, bad, &format!("the node lacks {of}")),
        false => condition(kind, false, good, &format!("the node has enough {of}")),
    })
    .collect();
    conditions.push(match &not_ready {
        None => condition("Ready", true, "KubeletReady", "wherry is ready"),
        Some((reason, message)) => condition("Ready", false, reason, message),
    });
    let internal = addresses.iter().map(|a| json!({ "type": "InternalIP", "address": a }));
    let host = std::iter::once(json!({ "type": "Hostname", "address": facts.name }));
    let mut node = json!({
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {
            "name": facts.name,
            "uid": uid("Node", "", &facts.name),
            "creationTimestamp": text(snapshot.created),
            "labels": facts.labels,
        },
        "spec": {},
        "status": {
            "capacity": facts.capacity.quantities(),
            "allocatable": facts.allocatable.quantities(),
            "conditions": conditions,
            "addresses": internal.chain(host).collect::<Vec<_>>(),
            "daemonEndpoints": { "kubeletEndpoint": { "Port": snapshot.port } },
            "nodeInfo": machine.info(format!("{}://{}", runtime.name, runtime.version)),
        },
    });
    node_change::show(&mut node, summary.cordoned);
    node
}
