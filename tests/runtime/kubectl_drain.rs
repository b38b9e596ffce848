//! A10, A11: `kubectl cordon`, `drain` and `uncordon` with each kubectl of the lab against a real agent and runtime.

use crate::support::agent::Agent;
use crate::support::api_client::ApiClient;
use crate::support::kubectl::{Kubectl, Printed, programs};
use serde_json::{Value, json};

const STEADY: &str = "{terminationGracePeriodSeconds: 2, volumes: [{name: scratch, emptyDir: {}}], containers: [{name: main, \
     image: 'localhost/busybox:1.35', command: [sh, -c, 'while :; do sleep 1; done'], volumeMounts: [{name: scratch, \
     mountPath: /scratch}]}]}";
/// Its preStop hook takes three seconds.
const SLOW: &str = "{terminationGracePeriodSeconds: 20, containers: [{name: main, image: 'localhost/busybox:1.35', command: \
     [sh, -c, 'trap \"exit 0\" TERM; while :; do sleep 0.1; done'], lifecycle: {preStop: {exec: {command: [sleep, '3']}}}}]}";
const ONCE: &str =
    "{restartPolicy: Never, containers: [{name: main, image: 'localhost/busybox:1.35', command: [sh, -c, 'exit 0']}]}";

fn ok(k: &Kubectl, line: &str) -> String {
    let Printed { code, out, err } = k.run(line);
    assert_eq!(code, 0, "1.{} {line}: {out} {err}", k.minor);
    out + &err
}

fn object(k: &Kubectl, what: &str) -> Value {
    let Printed { out, err, .. } = k.run(&format!("get {what} -o json"));
    serde_json::from_str(&out).unwrap_or_else(|e| panic!("{what}: {e} {out} {err}"))
}

fn node(k: &Kubectl) -> String {
    ok(k, "get nodes -o name").trim().trim_start_matches("node/").to_owned()
}

fn drain(node: &str) -> String {
    format!("drain {node} --force --ignore-daemonsets --delete-emptydir-data --timeout=60s")
}

/// The pod is shown as its unscheduled successor.
fn assert_unscheduled(k: &Kubectl, pod: &str, before: &Value) {
    let shown = object(k, &format!("pod/{pod}"));
    assert_eq!(shown["status"]["phase"], "Pending", "{shown}");
    assert_eq!(shown["spec"].get("nodeName"), None, "{shown}");
    assert_eq!(shown["status"].get("containerStatuses"), None, "{shown}");
    let condition = &shown["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["reason"]), (&json!("PodScheduled"), &json!("Unschedulable")));
    assert!(condition["message"].as_str().expect("a message").contains("uncordon"), "{condition}");
    assert_ne!(shown["metadata"]["uid"], before["metadata"]["uid"]);
}

#[test]
fn a11_each_kubectl_drains_and_uncordons_the_node() {
    let agent = Agent::serving("kubedrain");
    agent.apply("steady", STEADY);
    agent.apply("slow", SLOW);
    agent.apply("once", ONCE);
    agent.wait_phase("once", "Succeeded");
    for (minor, program) in programs() {
        let k = Kubectl::new(&agent, minor, &program, &format!("k{minor}"), "");
        let node = node(&k);
        let before = [agent.wait_running("steady"), agent.wait_running("slow")];
        let files = std::fs::read_dir(agent.manifests()).expect("manifests").count();
        let watch = k.start("get pods -w --output-watch-events");
        watch.wait(&["ADDED", "steady"]);

        // A10: a new pod waits.
        assert_eq!(ok(&k, &format!("cordon {node}")), format!("node/{node} cordoned\n"));
        assert_eq!(ok(&k, &format!("cordon {node}")), format!("node/{node} already cordoned\n"));
        assert!(ok(&k, "get nodes").contains("Ready,SchedulingDisabled"));
        let shown = object(&k, &format!("node/{node}"));
        assert_eq!(shown["spec"]["taints"][0]["key"], "node.kubernetes.io/unschedulable");
        assert!(ok(&k, "get events -A").contains("NodeNotSchedulable"));
        assert_eq!(agent.metric("wherry_node_cordoned"), 1.0);
        let new = format!("new{minor}");
        ok(&k, &format!("run {new} --image=localhost/busybox:1.35 -- sleep 1000"));
        assert_eq!(object(&k, &format!("pod/{new}"))["status"]["phase"], "Pending");
        assert!(ok(&k, "get pods").lines().any(|line| line.contains(&new) && line.contains("Pending")));

        // Without --force, and in a dry run, nothing happens.
        let refused = k.run(&format!("drain {node}"));
        assert!(refused.code != 0 && refused.err.contains("--force"), "{refused:?}");
        // (The oldest kubectl downloads a document first that the agent does not have.)
        let dry_run = if minor < 29 { "client" } else { "server" };
        ok(&k, &format!("{} --dry-run={dry_run}", drain(&node)));
        assert!(agent.running("steady", "main").is_some());
        // One pod.
        ok(&k, &format!("{} --pod-selector=nothing=selected", drain(&node)));

        let printed = ok(&k, &drain(&node));
        for pod in ["steady", "slow"] {
            assert!(printed.contains(&format!("evicting pod {}/{pod}", agent.namespace)), "{printed}");
            assert!(printed.contains(&format!("pod/{pod} evicted")), "{printed}");
            assert!(agent.running(pod, "main").is_none());
        }
        assert!(!printed.contains("once") && !printed.contains(&new), "{printed}");
        for (pod, before) in ["steady", "slow"].into_iter().zip(&before) {
            assert_unscheduled(&k, pod, before);
            watch.wait(&["MODIFIED", pod, "Terminating"]);
            watch.wait(&["DELETED", pod]);
        }
        // The manifests stay, and a second drain has nothing to do.
        assert_eq!(std::fs::read_dir(agent.manifests()).expect("manifests").count(), files + 1);
        let printed = ok(&k, &drain(&node));
        assert!(!printed.contains("evicting") && printed.contains("drained"), "{printed}");
        assert_eq!(object(&k, "pod/once")["status"]["phase"], "Succeeded");

        assert_eq!(ok(&k, &format!("uncordon {node}")), format!("node/{node} uncordoned\n"));
        for (pod, before) in ["steady", "slow"].into_iter().zip(&before) {
            agent.wait_running(pod);
            let shown = object(&k, &format!("pod/{pod}"));
            assert_eq!(
                (&shown["metadata"]["uid"], &shown["spec"]["nodeName"]),
                (&before["metadata"]["uid"], &json!(node))
            );
        }
        agent.wait_running(&new);
        assert!(!ok(&k, "get nodes").contains("SchedulingDisabled"));
        ok(&k, &format!("delete pod {new} --now"));
        agent.wait_gone(&new);
    }
}

#[test]
fn a11_a_kill_in_the_middle_of_a_drain_loses_nothing() {
    let mut agent = Agent::serving("kubekilldrain");
    let Some((minor, program)) = programs().pop() else { return };
    let k = Kubectl::new(&agent, minor, &program, "editor", "");
    let node = node(&k);
    agent.apply("slow", SLOW);
    agent.apply("steady", STEADY);
    let before = agent.wait_running("slow");
    agent.wait_running("steady");
    let mut draining = k.start(&drain(&node));
    draining.wait(&["evicting pod", "slow"]);
    agent.wait("the eviction is recorded", |a| a.pod("slow").is_some_and(|pod| pod["status"]["reason"] == "Evicted"));
    agent.kill();
    draining.ended();
    agent.run_with_kubectl();
    agent.wait("the node is cordoned", |_| k.run("get nodes").out.contains("SchedulingDisabled"));
    ok(&k, &drain(&node));
    assert!(agent.running("slow", "main").is_none() && agent.running("steady", "main").is_none());
    assert_unscheduled(&k, "slow", &before);
    agent.kill();
    agent.run_with_kubectl();
    agent.wait("the API answers", |_| k.run("get pods").code == 0);
    assert_unscheduled(&k, "slow", &before);
    let status = String::from_utf8(agent.wherry(&["status"]).stdout).expect("UTF-8");
    assert!(status.contains("Cordoned:   yes, 2 pods waiting"), "{status}");
    let printed = String::from_utf8(agent.wherry(&["uncordon"]).stdout).expect("UTF-8");
    assert_eq!(printed, "the node is not cordoned\n");
    agent.wait_running("slow");
    agent.wait_running("steady");
    assert!(agent.wherry(&["cordon"]).status.success());
    assert!(ok(&k, "get nodes").contains("SchedulingDisabled"));
}

#[test]
fn a11_a_drained_pod_is_not_evicted_and_bad_requests_are_refused() {
    let agent = Agent::serving("kubebadevict");
    let Some((minor, program)) = programs().pop() else { return };
    let k = Kubectl::new(&agent, minor, &program, "editor", "");
    let viewer = Kubectl::new(&agent, minor, &program, "viewer", "--view");
    let node = node(&k);
    agent.apply("steady", STEADY);
    agent.apply("other", STEADY);
    let before = agent.wait_running("steady");
    agent.wait_running("other");
    for (line, expected) in [
        (format!("label node {node} a=b"), "only spec.unschedulable of the node can be changed"),
        (format!("taint node {node} a=b:NoSchedule"), "only spec.unschedulable of the node can be changed"),
        (format!("delete node {node}"), "does not allow this method"),
        ("cordon other".to_owned(), "not found"),
    ] {
        let Printed { code, out, err } = k.run(&line);
        assert!(code != 0 && err.contains(expected), "{line}: {out} {err}");
    }
    for line in [format!("cordon {node}"), drain(&node)] {
        let Printed { err, .. } = viewer.run(&line);
        assert!(err.contains("role view"), "{line}: {err}");
    }
    assert_eq!(ok(&k, "auth can-i create pods/eviction"), "yes\n");
    assert!(viewer.run("auth can-i create pods/eviction").out.starts_with("no"));

    let api = ApiClient::new(&agent, &[]);
    let path = format!("/api/v1/namespaces/{}/pods/steady/eviction", agent.namespace);
    let eviction = |more: Value| {
        let mut body = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": "steady" } });
        for (key, value) in more.as_object().expect("a map") {
            body[key] = value.clone();
        }
        body
    };
    for (body, code) in [
        (eviction(json!({ "apiVersion": "policy/v2" })), 400),
        (eviction(json!({ "kind": "Pod" })), 400),
        (eviction(json!({ "deleteOptions": { "preconditions": { "uid": "other" } } })), 409),
        (eviction(json!({ "deleteOptions": { "gracePeriodSeconds": 10_000_000 } })), 400),
        (eviction(json!({ "deleteOptions": { "dryRun": ["All"] } })), 201),
    ] {
        assert_eq!(api.post(&path, "application/json", body.to_string().as_bytes()), code, "{body}");
    }
    let protobuf = "application/vnd.kubernetes.protobuf";
    for body in [&b"k8s\0"[..], b"k8s\0\x0a\xff\xff\xff", b"\xff", b""] {
        assert!(matches!(api.post(&path, protobuf, body), 400 | 415), "{body:?}");
    }
    let missing = path.replace("steady", "missing");
    assert_eq!(api.post(&missing, "application/json", b"{}"), 404);
    assert_eq!(object(&k, "pod/steady")["metadata"]["uid"], before["metadata"]["uid"]);

    // W27: undrain does not end a cordon, and uncordon no drain.
    assert!(agent.wherry(&["drain", "other"]).status.success());
    ok(&k, &drain(&node));
    assert_unscheduled(&k, "steady", &before);
    let message = object(&k, "pod/other")["status"]["conditions"][0]["message"].clone();
    assert!(message.as_str().expect("a message").contains("wherry undrain"), "{message}");
    ok(&k, &format!("uncordon {node}"));
    agent.wait_running("steady");
    assert!(agent.running("other", "main").is_none());
    // Without a cordon, an evicted pod starts again at once.
    let container = agent.running("steady", "main");
    assert_eq!(api.post(&path, "application/json", eviction(json!({})).to_string().as_bytes()), 201);
    agent.wait("the pod runs again", |a| a.running("steady", "main").is_some_and(|c| Some(&c) != container.as_ref()));
}
