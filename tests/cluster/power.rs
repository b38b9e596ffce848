//! A node that loses its power while it cannot reach the API server.

use crate::support::agent::{Agent, make_cgroup};
use crate::support::control_plane::ControlPlane;
use crate::support::control_plane::partition::{self, Partition};
use crate::support::lab::Runtime;
use crate::wherry::{deployment, is_ready, is_running, running};
use crate::{ok, ok_with, pods, wait_for_pods};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::process::Command;

/// Nothing of the node is left but its files on the disk. As the service manager does at a boot, this makes the parent of its cgroups.
fn cut_power(agent: &mut Agent, runtime: &Runtime) {
    agent.kill();
    runtime.cut_power();
    let root = agent.root().display().to_string();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    let mut below: Vec<&str> =
        mounts.lines().filter_map(|l| l.split(' ').nth(4)).filter(|m| m.starts_with(&root)).collect();
    below.sort_unstable();
    for mount in below.into_iter().rev() {
        assert!(Command::new("umount").arg(mount).status().expect("umount").success(), "{mount}");
    }
    make_cgroup(&agent.cgroup);
}

pub fn uids(pods: &[Value]) -> BTreeSet<String> {
    pods.iter().map(|pod| pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned()).collect()
}

/// The sum of the restarts of all pods of the namespace.
pub fn restarts(plane: &ControlPlane, namespace: &str) -> i64 {
    let all = pods(plane, namespace);
    let of = |pod: &Value| pod["status"]["containerStatuses"][0]["restartCount"].as_i64();
    all.iter().filter_map(of).sum()
}

/// When the event occurred, in whole seconds since the epoch.
fn time_of(event: &Value) -> i64 {
    let text = event["lastTimestamp"].as_str().expect("a time");
    text.parse::<jiff::Timestamp>().expect("a time").as_second()
}

#[test]
fn after_a_power_failure_without_the_api_server_the_pods_start_from_the_disk() {
    let plane = ControlPlane::start("dark");
    let (namespace, node) = ("dark", "lantern");
    let admin = plane.namespace(namespace);
    let runtime = Runtime::own("dark");
    let mut agent = Agent::prepare(node, &runtime);
    agent.set_cluster(node, &partition::kubeconfig(&plane, node, &agent));
    agent.run();
    plane.wait("the node is ready", |plane| is_ready(plane, node));
    ok(&admin, "create configmap words --from-literal=greeting=hello");
    ok(&admin, "create secret generic keys --from-literal=password=hunter2");
    let script = "[ $(cat /words/greeting)-$PASSWORD = hello-hunter2 ] && \
                  [ -s /var/run/secrets/kubernetes.io/serviceaccount/token ] && echo started && sleep 3600";
    let more = json!({
        "automountServiceAccountToken": true,
        "env": [{ "name": "PASSWORD", "valueFrom": { "secretKeyRef": { "name": "keys", "key": "password" } } }],
        "command": ["sh", "-c", script],
        "volumeMounts": [{ "name": "words", "mountPath": "/words" }],
        "volumes": [{ "name": "words", "configMap": { "name": "words" } }],
    });
    ok_with(&admin, "create -f -", &deployment("web", 2, node, &more));
    let once = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "once" }, "spec": { "nodeName": node,
        "restartPolicy": "Never", "hostNetwork": true, "automountServiceAccountToken": false,
        "containers": [{ "name": "main", "image": "localhost/busybox:1.35", "command": ["true"] }] } });
    ok_with(&admin, "create -f -", &once.to_string());
    // Its init container runs again after the boot, which the server refuses to store.
    let of =
        |name: &str, command: Value| json!({ "name": name, "image": "localhost/busybox:1.35", "command": command });
    let steps = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "steps" }, "spec": { "nodeName": node,
        "restartPolicy": "OnFailure", "hostNetwork": true, "automountServiceAccountToken": false,
        "initContainers": [of("first", json!(["true"]))], "containers": [of("main", json!(["sleep", "3600"]))] } });
    ok_with(&admin, "create -f -", &steps.to_string());
    let phase = |pod: &Value| pod["status"]["phase"].as_str().unwrap_or_default().to_owned();
    let settled = |plane: &ControlPlane| {
        let all = pods(plane, namespace);
        all.len() == 4
            && all.iter().filter(|pod| is_running(pod)).count() == 3
            && all.iter().filter(|pod| phase(pod) == "Succeeded").count() == 1
    };
    plane.wait("three pods run, and one has ended", settled);
    let (before, first) = (uids(&pods(&plane, namespace)), running(&mut agent.cri(), namespace));
    assert_eq!(first.len(), 3);
    let events = format!("/api/v1/namespaces/{namespace}/events?fieldSelector=reason=Started");
    let started = |plane: &ControlPlane| plane.list(&events);
    plane.wait("the starts are reported", |plane| started(plane).len() == 5);

    let partition = Partition::begin(&plane);
    plane.wait("the node notices that nothing answers", |_| agent.log().contains("reason=ApiServerDisconnected"));
    cut_power(&mut agent, &runtime);
    // The values that the node has not seen.
    ok(&admin, "delete configmap words");
    ok(&admin, "delete secret keys");
    let begun = jiff::Timestamp::now().as_second();
    runtime.start_again();
    agent.run();
    plane.wait("all pods run again", |_| {
        let now = running(&mut agent.cri(), namespace);
        now.len() == 3 && now.iter().all(|id| !first.contains(id))
    });
    plane.wait("the starts are known", |_| agent.log().matches("reason=Started").count() == 5 + 4);
    assert_eq!(agent.metric("wherry_api_server_connected"), 0.0);
    assert!(agent.metric("wherry_events_waiting") >= 4.0);
    // An orderly stop before the next regular write of the events.
    assert_eq!(agent.terminate(), Some(0));
    agent.run();
    assert!(!started(&plane).iter().any(|event| time_of(event) >= begun), "no event is posted without the server");
    let back = jiff::Timestamp::now().as_second();
    drop(partition);
    plane.wait("the restarts are reported", |plane| settled(plane) && restarts(plane, namespace) == 3);
    plane.wait("the node is ready", |plane| is_ready(plane, node));
    assert_eq!(uids(&pods(&plane, namespace)), before, "the same pods");
    // The events have the times at which they occurred.
    let meanwhile = |event: &Value| time_of(event) >= begun && time_of(event) <= back;
    plane.wait("the starts are reported with their times", |plane| {
        started(plane).iter().filter(|event| meanwhile(event)).count() == 4
    });
    assert_eq!(agent.metric("wherry_api_server_connected"), 1.0);
    let steps = plane.get(&format!("/api/v1/namespaces/{namespace}/pods/steps")).expect("the pod");
    assert!(steps["status"]["initContainerStatuses"][0]["state"]["terminated"].is_object(), "{steps}");
    assert!(!agent.log().contains("refuses the status"), "{}", agent.log());
    ok(&admin, "delete deployment web");
    ok(&admin, "delete pod once steps");
    wait_for_pods(&plane, namespace, 0);
    assert_eq!(agent.cri().sandboxes(namespace).len(), 0);
}
