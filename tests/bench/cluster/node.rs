//! The time until a node is ready, its cost with ten pods, and the latency in both directions.

use super::{do_with, is_ready, nanoseconds};
use crate::idle::{wait_started, window};
use crate::latency::{ms, seen_by_runtime, until};
use crate::process::{self, now};
use crate::support::agent::Agent;
use crate::support::control_plane::{ControlPlane, NodeRequest};
use crate::support::cri::ContainerState;
use crate::support::lab::{Runtime, signal};
use crate::table::{Table, median};
use serde_json::{Value, json};
use std::time::Duration;

const ROUNDS: usize = 9;
const NAMESPACE: &str = "bench";

/// When the server received a request, in nanoseconds since the epoch.
fn at(request: &NodeRequest) -> i64 {
    nanoseconds(&request.at)
}

/// With what each pod of a Deployment has: a token. `name`: also a pod of its own, bound to the node.
fn spec(node: &str, bound: bool) -> Value {
    let mut spec = json!({ "hostNetwork": true, "terminationGracePeriodSeconds": 1,
        "containers": [{ "name": "main", "image": "localhost/busybox:1.35", "command": ["sleep", "36000"] }] });
    match bound {
        true => spec["nodeName"] = node.into(),
        false => spec["nodeSelector"] = json!({ "node": node }),
    }
    spec
}

pub fn node(table: &mut Table) {
    let plane = ControlPlane::start("bench");
    let admin = plane.namespace(NAMESPACE);
    let (node, runtime) = ("bench", Runtime::shared());
    let mut agent = Agent::prepare(node, &runtime);
    agent.set_cluster(node, &plane.kubeconfig_of_node(node));
    let mut ready = Vec::new();
    for round in 0..ROUNDS {
        let (seen, begun) = (plane.requests_of_node(node).len(), now());
        agent.run();
        ready.push(until("the node is ready", || {
            let requests = plane.requests_of_node(node);
            requests[seen.min(requests.len())..].iter().find(is_ready).map(|request| ms(begun, at(request)))
        }));
        if round + 1 < ROUNDS {
            agent.terminate();
            do_with(&admin, &format!("delete node {node}"), "");
        }
    }
    table.row("cluster: start to Ready, ms", median(ready), None, 500.0, "1000");

    let labels = json!({ "app": "bench" });
    let deployment = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "bench" },
        "spec": { "replicas": 10, "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": spec(node, false) } } });
    do_with(&admin, "create -f -", &deployment.to_string());
    let mut cri = agent.cri();
    wait_started(&mut cri, NAMESPACE, 10);
    std::thread::sleep(Duration::from_secs(20));
    let (pid, before, sent) = (agent.pid(), process::cpu(agent.pid()), plane.requests_of_node(node).len());
    std::thread::sleep(window());
    let minutes = window().as_secs_f64() / 60.0;
    let memory = process::memory(pid);
    table.row("cluster: 10 pods: anonymous memory, MB", memory.anonymous, None, 4.0, "");
    table.row("cluster: 10 pods: PSS, MB", memory.proportional, None, 12.0, "");
    table.row("cluster: 10 pods: resident memory, MB", memory.resident, None, 12.0, "80");
    table.row("cluster: 10 pods: CPU seconds per minute", (process::cpu(pid) - before) / minutes, None, 0.03, "0.61");
    let requests = plane.requests_of_node(node);
    let calls = requests[sent..].iter().filter(|request| request.stage == "ResponseComplete").count();
    table.row("cluster: 10 pods: requests per minute", calls as f64 / minutes, None, 6.0, "6");

    let (mut begins, mut reports) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let name = format!("one-{round}");
        let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name }, "spec": spec(node, true) });
        do_with(&admin, "create -f -", &pod.to_string());
        let seen = until("the runtime gets the pod", || seen_by_runtime(&runtime, &name));
        let created = until("the audit log has the pod", || plane.time_of_creation(NAMESPACE, &name));
        begins.push(ms(created, seen));
        let id = until("the container runs", || crate::latency::running(&mut cri, NAMESPACE, &name, ""));
        let patches = |requests: &[NodeRequest]| {
            let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}/status");
            requests.iter().filter(|r| r.verb == "patch" && r.path == path).cloned().collect::<Vec<_>>()
        };
        std::thread::sleep(Duration::from_secs(2));
        let before = patches(&plane.requests_of_node(node)).len();
        signal(&cri.container_pid(&id).to_string(), "KILL");
        let ended = until("the runtime shows the end", || {
            let all = cri.containers(NAMESPACE);
            let runs = all.iter().any(|c| c.id == id && c.state.enum_value() == Ok(ContainerState::CONTAINER_RUNNING));
            (!runs).then(now)
        });
        reports.push(until("the end is reported", || {
            patches(&plane.requests_of_node(node)).get(before).map(|request| ms(ended, at(request)))
        }));
        do_with(&admin, &format!("delete pod {name} --wait=false"), "");
    }
    table.row("cluster: pod created to RunPodSandbox, ms", median(begins), None, 5.0, "");
    table.row("cluster: the runtime shows the end of a container to PATCH, ms", median(reports), None, 5.0, "");
}
