//! DaemonSets with kubectl: apply, a new template, undo, a node selector, a kill in the middle of an update.

use crate::support::agent::{Agent, patience};
use crate::support::kubectl::{Kubectl, Printed};
use serde_json::Value;
use std::collections::BTreeMap;

const IMAGE: &str = "localhost/busybox:1.35";

fn text() -> String {
    format!(
        "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {{name: agent}}\nspec:\n  \
         selector: {{matchLabels: {{app: agent}}}}\n  template:\n    metadata: {{labels: {{app: agent}}}}\n    spec:\n      \
         terminationGracePeriodSeconds: 1\n      containers:\n      - name: main\n        image: {IMAGE}\n        \
         command: [sh, -c, 'echo begun $VERSION; exec sleep 3600']\n        env: [{{name: VERSION, value: v1}}]\n"
    )
}

fn run_text(k: &Kubectl, text: &str) -> Printed {
    k.run_words(&["apply", "-f", &k.file("agent.yaml", text)], b"")
}

fn rolled_out(k: &Kubectl) {
    let seconds = patience(120).as_secs();
    let said = k.ok(&["rollout", "status", "daemonset/agent", &format!("--timeout={seconds}s")]);
    assert!(said.contains("successfully rolled out"), "{said}");
}

/// The names of the pods that are not being deleted, with their versions.
fn pods(k: &Kubectl) -> BTreeMap<String, String> {
    let list: Value = serde_json::from_str(&k.ok(&["get", "pods", "-l", "app=agent", "-o", "json"])).expect("JSON");
    let items = list["items"].as_array().expect("items");
    let stays = items.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    stays.map(|pod| (text(&pod["metadata"]["name"]), text(&pod["spec"]["containers"][0]["env"][0]["value"]))).collect()
}

fn version(k: &Kubectl) -> Vec<String> {
    pods(k).into_values().collect()
}

/// The cells of `kubectl get daemonset agent`: desired, current, ready, up-to-date, available, node selector.
fn cells(k: &Kubectl) -> Vec<String> {
    let line = k.ok(&["get", "daemonset", "agent", "--no-headers"]);
    line.split_whitespace().skip(1).take(6).map(str::to_owned).collect()
}

#[test]
fn y13_y14_a_daemon_set_is_created_updated_and_rolled_back_with_kubectl() {
    let agent = Agent::serving("daemonroll");
    let k = Kubectl::newest(&agent, "daemonsets");
    assert_eq!(run_text(&k, &text()).code, 0);
    rolled_out(&k);
    assert_eq!(cells(&k), ["1", "1", "1", "1", "1", "<none>"]);
    assert_eq!(k.ok(&["get", "all", "-o", "name"]).matches("daemonset.apps/agent").count(), 1);
    let first = pods(&k);
    k.ok(&["set", "env", "daemonset/agent", "VERSION=v2"]);
    rolled_out(&k);
    agent.wait("the second version runs", |_| version(&k) == ["v2"]);
    let history = k.ok(&["rollout", "history", "daemonset/agent"]);
    assert_eq!(history.lines().filter(|line| line.starts_with(['1', '2'])).count(), 2, "{history}");
    assert!(k.ok(&["rollout", "history", "daemonset/agent", "--revision=1"]).contains("v1"));
    k.ok(&["rollout", "undo", "daemonset/agent"]);
    rolled_out(&k);
    agent.wait("the first version runs again", |_| version(&k) == ["v1"]);
    assert!(first.keys().all(|name| !pods(&k).contains_key(name)));
    // Undo brings the same template back, not a copy of it with other defaults.
    let revisions = k.ok(&["get", "controllerrevisions", "--no-headers"]);
    assert!(revisions.lines().count() == 2 && revisions.contains("daemonset.apps/agent"), "{revisions}");
    let before = pods(&k);
    k.ok(&["rollout", "restart", "daemonset/agent"]);
    rolled_out(&k);
    agent.wait("the pod is new", |_| pods(&k).len() == 1 && pods(&k) != before);
    let before = pods(&k);
    k.ok(&["delete", "pod", before.keys().next().expect("a pod")]);
    agent.wait("the pod is replaced", |_| pods(&k).len() == 1 && pods(&k) != before);
    rolled_out(&k);
    assert!(k.ok(&["logs", "daemonset/agent"]).contains("begun v1"));
    let described = k.ok(&["describe", "daemonset", "agent"]);
    for part in ["Desired Number of Nodes Scheduled: 1", "Pods Status:  1 Running", "SuccessfulCreate"] {
        assert!(described.contains(part), "{part}: {described}");
    }
    let node = k.ok(&["get", "nodes", "-o", "jsonpath={.items[0].metadata.name}"]);
    let Printed { code, err, .. } = k.run_words(&["drain", &node], b"");
    assert!(code != 0 && err.contains("DaemonSet"), "kubectl drain sees the owner: {err}");
    k.ok(&["drain", &node, "--ignore-daemonsets"]);
    assert_eq!(pods(&k).len(), 1);
    k.ok(&["uncordon", &node]);
    k.ok(&["delete", "daemonset", "agent"]);
    agent.wait("nothing is left", |agent| agent.pods().is_empty());
}

#[test]
fn y13_a_daemon_set_for_other_nodes_has_no_pod_and_says_why() {
    let agent = Agent::serving("daemonnone");
    let k = Kubectl::newest(&agent, "daemonsets");
    let elsewhere = text().replacen("    spec:\n", "    spec:\n      nodeSelector: {disk: none}\n", 1);
    assert_eq!(run_text(&k, &elsewhere).code, 0);
    agent.wait("it is seen", |_| cells(&k) == ["0", "0", "0", "0", "0", "disk=none"]);
    assert_eq!(agent.pods().len(), 0);
    rolled_out(&k);
    let described = k.ok(&["describe", "daemonset", "agent"]);
    assert!(described.contains("FailedPlacement") && described.contains("node affinity/selector"), "{described}");
    let condition = k.ok(&["get", "daemonset", "agent", "-o", "jsonpath={.status.conditions[0].type}"]);
    assert_eq!(condition, "Placed");
    assert_eq!(run_text(&k, &text()).code, 0);
    rolled_out(&k);
    agent.wait("the pod runs", |_| version(&k) == ["v1"]);
    for (from, to, why) in [
        ("        image: ", "        imagge: ", "spec.template.spec.containers[0].imagge"),
        ("matchLabels: {app: agent}", "matchLabels: {app: other}", "`selector` does not match template `labels`"),
        ("  template:", "  replicas: 2\n  template:", "spec.replicas"),
        (
            "  template:",
            "  updateStrategy: {type: Recreate}\n  template:",
            "supported values: \"OnDelete\", \"RollingUpdate\"",
        ),
    ] {
        let Printed { code, out, err } = run_text(&k, &text().replacen(from, to, 1));
        assert!(code == 1 && err.contains(why), "{to}: {out} {err}");
    }
    assert_eq!(version(&k), ["v1"]);
}

#[test]
fn y14_an_update_continues_after_a_kill() {
    let mut agent = Agent::serving("daemonkill");
    let k = Kubectl::newest(&agent, "daemonsets");
    assert_eq!(run_text(&k, &text()).code, 0);
    rolled_out(&k);
    k.ok(&["set", "env", "daemonset/agent", "VERSION=v2"]);
    agent.kill();
    agent.run_with_kubectl();
    rolled_out(&k);
    agent.wait("the second version runs", |_| version(&k) == ["v2"]);
    let before = pods(&k);
    // A kill at rest changes nothing.
    agent.kill();
    agent.run_with_kubectl();
    rolled_out(&k);
    assert_eq!(pods(&k), before);
    let history = k.ok(&["rollout", "history", "daemonset/agent"]);
    assert_eq!(history.lines().filter(|line| line.starts_with(['1', '2'])).count(), 2, "{history}");
}
