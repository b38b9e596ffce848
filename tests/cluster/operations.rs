//! The work of an administrator on pods that run on Wherry nodes: rollout, drain, removal by force; and a network that drops
//! packets.

use crate::support::agent::Agent;
use crate::support::control_plane::{ControlPlane, partition};
use crate::support::lab::{Runtime, signal};
use crate::wherry::{all_run, is_ready, is_running, join, name, running};
use crate::{ok, ok_with, pods, wait_for_pods};
use serde_json::{Value, json};
use std::fs;

/// A Deployment on the nodes of a pool. `marker`: a change of it is a new version.
fn deployment(pool: &str, marker: &str) -> String {
    let labels = json!({ "app": "web" });
    let container = json!({ "name": "main", "image": "localhost/busybox:1.35", "command": ["sleep", "3600"],
        "env": [{ "name": "MARKER", "value": marker }] });
    json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web" },
        "spec": { "replicas": 3, "selector": { "matchLabels": labels }, "template": { "metadata": { "labels": labels },
            "spec": { "nodeSelector": { "pool": pool }, "hostNetwork": true, "terminationGracePeriodSeconds": 1,
                "containers": [container] } } } })
    .to_string()
}

fn node_of(pod: &Value) -> &str {
    pod["spec"]["nodeName"].as_str().unwrap_or_default()
}

#[test]
fn a_rollout_replaces_the_pods_and_a_drain_moves_them() {
    let plane = ControlPlane::shared();
    let (namespace, nodes) = ("moves", ["leeward", "windward"]);
    let admin = plane.namespace(namespace);
    let agents = nodes.map(|node| join(plane, node));
    ok(&admin, &format!("label node {} pool=moves", nodes.join(" ")));
    ok_with(&admin, "apply -f -", &deployment("moves", "1"));
    ok(&admin, "rollout status deployment web --timeout=60s");
    let before: Vec<String> = pods(plane, namespace).iter().map(name).collect();
    ok_with(&admin, "apply -f -", &deployment("moves", "2"));
    ok(&admin, "rollout status deployment web --timeout=60s");
    plane.wait("the pods of the first version are gone", |plane| {
        all_run(plane, namespace, 3) && pods(plane, namespace).iter().all(|pod| !before.contains(&name(pod)))
    });
    // A pod of a manifest is no obstacle: its mirror stays, and so does the pod.
    agents[0].write(
        "local.yaml",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: local}\nspec:\n  hostNetwork: true\n  containers:\n  - name: main\n    \
         image: localhost/busybox:1.35\n    command: [sleep, '3600']\n",
    );
    let mirror = format!("/api/v1/namespaces/default/pods/local-{}", nodes[0]);
    plane.wait("the mirror is there", |plane| plane.get(&mirror).is_some_and(|pod| is_running(&pod)));
    ok(&admin, &format!("drain {} --timeout=60s", nodes[0]));
    plane.wait("all pods run on the other node", |plane| {
        all_run(plane, namespace, 3) && pods(plane, namespace).iter().all(|pod| node_of(pod) == nodes[1])
    });
    assert!(plane.get(&mirror).is_some_and(|pod| is_running(&pod)));
    ok(&admin, &format!("uncordon {}", nodes[0]));
    ok(&admin, "delete deployment web");
    wait_for_pods(plane, namespace, 0);
    ok(&admin, &format!("delete namespace {namespace} --wait=false"));
    for agent in &agents {
        assert_eq!(agent.cri().sandboxes(namespace).len(), 0, "nothing is left in the runtime");
    }
    agents[0].delete("local");
    plane.wait("the mirror ends with its pod", |plane| plane.get(&mirror).is_none());
    ok(&admin, &format!("delete node {}", nodes.join(" ")));
}

#[test]
fn c16_a_cordon_at_the_node_keeps_the_scheduler_away() {
    let plane = ControlPlane::shared();
    let (namespace, node) = ("sheltered", "lagoon");
    let admin = plane.namespace(namespace);
    let mut agent = join(plane, node);
    ok(&admin, &format!("label node {node} pool={namespace}"));
    ok_with(&admin, "apply -f -", &deployment(namespace, "1"));
    plane.wait("the pods run", |plane| all_run(plane, namespace, 3));
    let object = format!("/api/v1/nodes/{node}");
    let unschedulable = |plane: &ControlPlane| plane.get(&object).expect("the node")["spec"]["unschedulable"] == true;
    let cordoned = agent.wherry(&["cordon"]);
    assert!(cordoned.status.success(), "{cordoned:?}");
    plane.wait("the server shows the cordon", unschedulable);
    ok(&admin, &format!("delete pod {}", name(&pods(plane, namespace)[0])));
    let is_alone = |plane: &ControlPlane| {
        let all = pods(plane, namespace);
        all.len() == 3 && all.iter().filter(|pod| node_of(pod).is_empty()).count() == 1
    };
    plane.wait("the next pod has no node, and the others stay", is_alone);
    // The end of the cordon reaches the server although Wherry is killed meanwhile.
    let uncordoned = agent.wherry(&["uncordon"]);
    agent.kill();
    assert!(uncordoned.status.success(), "{uncordoned:?}");
    agent.run();
    plane.wait("all pods run", |plane| all_run(plane, namespace, 3) && !unschedulable(plane));
    ok(&admin, "delete deployment web");
    wait_for_pods(plane, namespace, 0);
    ok(&admin, &format!("delete namespace {namespace} --wait=false"));
    ok(&admin, &format!("delete node {node}"));
}

#[test]
fn a_pod_that_is_removed_by_force_stops_and_another_takes_its_name() {
    let plane = ControlPlane::shared();
    let (namespace, node) = ("force", "breaker");
    let admin = plane.namespace(namespace);
    let agent = join(plane, node);
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "deaf" }, "spec": {
        "nodeName": node, "hostNetwork": true, "terminationGracePeriodSeconds": 2,
        "containers": [{ "name": "main", "image": "localhost/busybox:1.35",
            "command": ["sh", "-c", "trap '' TERM; while :; do sleep 1; done"] }] } })
    .to_string();
    ok_with(&admin, "create -f -", &pod);
    plane.wait("the pod runs", |plane| all_run(plane, namespace, 1));
    let first = running(&mut agent.cri(), namespace);
    ok(&admin, "delete pod deaf --grace-period=0 --force");
    ok_with(&admin, "create -f -", &pod);
    plane.wait("the second pod of the name runs", |plane| all_run(plane, namespace, 1));
    let now = running(&mut agent.cri(), namespace);
    assert!(now.len() == 1 && now != first, "{first:?} {now:?}");
    assert_eq!(pods(plane, namespace)[0]["status"]["containerStatuses"][0]["restartCount"], 0);
    ok(&admin, "delete pod deaf --grace-period=0 --force");
    plane.wait("nothing is left in the runtime", |_| agent.cri().sandboxes(namespace).is_empty());
    ok(&admin, &format!("delete namespace {namespace} --wait=false"));
    ok(&admin, &format!("delete node {node}"));
}

#[test]
fn a_new_image_restarts_one_container_and_leaves_the_other_alone() {
    let plane = ControlPlane::shared();
    let (namespace, node) = ("images", "refitter");
    let admin = plane.namespace(namespace);
    let mut agent = join(plane, node);
    let container = |name| json!({ "name": name, "image": "localhost/busybox:1.35", "command": ["sleep", "3600"] });
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "web" }, "spec": {
        "nodeName": node, "hostNetwork": true, "terminationGracePeriodSeconds": 3, "restartPolicy": "Never",
        "containers": [container("main"), container("other")] } })
    .to_string();
    ok_with(&admin, "create -f -", &pod);
    plane.wait("the pod runs", |plane| all_run(plane, namespace, 1));
    let status = |container: usize| pods(plane, namespace)[0]["status"]["containerStatuses"][container].clone();
    let other = status(1)["containerID"].clone();
    ok(&admin, "set image pod/web main=localhost/trap:1");
    plane.wait("the container runs with the new image", |_| {
        let main = status(0);
        main["restartCount"] == 1 && main["state"]["running"].is_object() && main["image"] == "localhost/trap:1"
    });
    assert_eq!((&status(1)["containerID"], &status(1)["restartCount"]), (&other, &json!(0)));
    // A wrong image is corrected without a back-off.
    ok(&admin, "set image pod/web main=localhost/missing:1");
    plane.wait("the pull fails", |_| status(0)["state"]["waiting"]["reason"] == "ImagePullBackOff");
    ok(&admin, "set image pod/web main=localhost/busybox:1.35");
    plane.wait("the container runs again", |_| status(0)["state"]["running"].is_object());
    assert_eq!((&status(0)["restartCount"], &status(1)["containerID"]), (&json!(2), &other));
    // A kill of Wherry while it stops the container: the record has the new image and the replaced container.
    let uid = pods(plane, namespace)[0]["metadata"]["uid"].as_str().expect("a UID").to_owned();
    let record = agent.root().join(format!("records/pods/{uid}.json"));
    ok(&admin, "set image pod/web main=localhost/trap:1");
    plane.wait("the container is to be replaced", |_| {
        fs::read_to_string(&record).is_ok_and(|text| text.contains("\"Image\"") && text.contains("trap:1"))
    });
    agent.kill();
    assert_eq!(status(0)["restartCount"], 2);
    agent.run();
    plane.wait("the container runs with the new image after the kill", |_| {
        let main = status(0);
        main["restartCount"] == 3 && main["state"]["running"].is_object() && main["image"] == "localhost/trap:1"
    });
    assert_eq!((&status(1)["containerID"], &status(1)["restartCount"]), (&other, &json!(0)));
    ok(&admin, "delete pod web");
    plane.wait("nothing is left in the runtime", |_| agent.cri().sandboxes(namespace).is_empty());
    ok(&admin, &format!("delete namespace {namespace} --wait=false"));
    ok(&admin, &format!("delete node {node}"));
}

#[test]
fn a_network_that_drops_packets_stops_no_pod_and_the_node_is_back_soon_after_it() {
    let plane = ControlPlane::start("dropped");
    let (namespace, node) = ("dropped", "shoal");
    let admin = plane.namespace(namespace);
    let mut agent = Agent::prepare(node, &Runtime::shared());
    agent.set_cluster(node, &partition::kubeconfig(&plane, node, &agent));
    agent.run();
    plane.wait("the node is ready", |plane| is_ready(plane, node));
    ok(&admin, &format!("label node {node} pool=dropped"));
    ok_with(&admin, "apply -f -", &deployment("dropped", "1"));
    plane.wait("the pods run", |plane| all_run(plane, namespace, 3));
    let before = running(&mut agent.cri(), namespace);
    let partition = partition::Partition::begin(&plane);
    plane.wait("the node notices that nothing answers", |_| agent.log().contains("reason=ApiServerDisconnected"));
    // A container ends meanwhile, and starts again.
    signal(&agent.cri().container_pid(&before[0]).to_string(), "KILL");
    plane.wait("the container runs again", |_| {
        let now = running(&mut agent.cri(), namespace);
        now.len() == 3 && !now.contains(&before[0])
    });
    drop(partition);
    plane.wait("the restart is reported", |plane| {
        let restarts = |pod: &Value| pod["status"]["containerStatuses"][0]["restartCount"].as_i64();
        let all = pods(plane, namespace);
        all.iter().filter_map(restarts).sum::<i64>() == 1 && all.iter().all(is_running)
    });
    plane.wait("the node is ready", |plane| is_ready(plane, node));
    let now = running(&mut agent.cri(), namespace);
    assert_eq!(now.iter().filter(|id| before.contains(id)).count(), 2, "the others ran on");
    ok(&admin, "delete deployment web");
    wait_for_pods(&plane, namespace, 0);
}
