//! A real control plane: etcd, API server, controller manager and scheduler (`tests/support/control_plane`). `make test-cluster`
//! builds it and runs these tests in namespaces with a containerd of their own (`tests/lab/in-lab.sh`).
//!
//! The tests share one control plane, so each of them uses namespaces and nodes with names of its own, and its pods select its own
//! nodes. A test that stops a component has a control plane of its own.

// The ban is for the engine (clippy.toml).
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

#[path = "../support/mod.rs"]
mod support;

mod addresses;
mod controllers;
mod credentials;
mod join;
mod keep;
mod machine;
mod metered;
mod network;
mod operations;
mod outage;
mod power;
mod scheduling;
mod sealed;
mod server;
mod serving;
mod start;
mod tokens;
mod wherry;

use serde_json::{Value, json};
use support::control_plane::ControlPlane;
use support::kubectl::Kubectl;

/// Runs a command that must succeed. Returns its output.
fn ok(kubectl: &Kubectl, line: &str) -> String {
    ok_with(kubectl, line, "")
}

/// Like `ok`, with this input.
fn ok_with(kubectl: &Kubectl, line: &str, input: &str) -> String {
    let printed = kubectl.run_with(line, input.as_bytes());
    assert_eq!(printed.code, 0, "kubectl {line}: {printed:?}");
    printed.out
}

/// Runs a command that the server must forbid. Returns its words.
fn forbidden(kubectl: &Kubectl, line: &str, input: &str) -> String {
    let printed = kubectl.run_with(line, input.as_bytes());
    assert!(printed.code != 0 && printed.err.contains("(Forbidden)"), "kubectl {line}: {printed:?}");
    printed.err
}

/// A node that only exists as an object. Its name is also its label `node`. It is not ready, as a node that has just joined:
/// without this condition, the controller manager would take it for a node that pods may go to.
fn node(name: &str) -> String {
    let now = jiff::Timestamp::now().to_string();
    let ready = json!({ "type": "Ready", "status": "False", "lastHeartbeatTime": now, "lastTransitionTime": now });
    json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "labels": { "node": name } },
        "status": { "conditions": [ready] } })
    .to_string()
}

/// Reports the node as ready, with its own credentials. After 40 s without a report, the controller manager does not believe it
/// any longer.
fn report_ready(kubectl: &Kubectl, node: &str) {
    let (now, room) = (jiff::Timestamp::now().to_string(), json!({ "cpu": "2", "memory": "4Gi", "pods": "110" }));
    let ready = json!({ "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "a test reports this",
        "lastHeartbeatTime": now, "lastTransitionTime": now });
    // (`kubectl patch --subresource` reads the status first, as a subresource, which a node may not do.)
    let path = format!("/api/v1/nodes/{node}");
    let mut object: Value = serde_json::from_str(&ok(kubectl, &format!("get --raw {path}"))).expect("JSON");
    object["status"] = json!({ "capacity": room, "allocatable": room, "conditions": [ready] });
    // Others may change the node meanwhile.
    object["metadata"]["resourceVersion"] = Value::Null;
    ok_with(kubectl, &format!("replace --raw {path}/status -f -"), &object.to_string());
}

/// A Deployment of pods for the nodes with the label `node=NODE`.
fn deployment(name: &str, replicas: u32, node: &str) -> String {
    let labels = json!({ "app": name });
    let containers = json!([{ "name": "main", "image": "localhost/busybox:1.35", "command": ["sleep", "3600"] }]);
    json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name },
        "spec": { "replicas": replicas, "selector": { "matchLabels": labels }, "template": {
            "metadata": { "labels": labels },
            "spec": { "nodeSelector": { "node": node }, "containers": containers } } } })
    .to_string()
}

/// The pods of a namespace.
fn pods(plane: &ControlPlane, namespace: &str) -> Vec<Value> {
    plane.list(&format!("/api/v1/namespaces/{namespace}/pods"))
}

/// Waits until the namespace has this number of pods, and returns them.
fn wait_for_pods(plane: &ControlPlane, namespace: &str, count: usize) -> Vec<Value> {
    plane.wait_for(&format!("{namespace} has {count} pods"), |plane| {
        Some(pods(plane, namespace)).filter(|pods| pods.len() == count)
    })
}
