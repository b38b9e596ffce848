//! ReplicaSets with kubectl: scaling, a new template for new pods only, a kill, the ReplicaSet of a Deployment.

use crate::support::agent::{Agent, patience};
use crate::support::kubectl::Kubectl;
use serde_json::Value;
use std::collections::BTreeMap;

const IMAGE: &str = "localhost/busybox:1.35";

fn text(kind: &str, name: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec:\n  replicas: 2\n  \
         selector: {{matchLabels: {{app: {name}}}}}\n  template:\n    metadata: {{labels: {{app: {name}}}}}\n    spec:\n      \
         terminationGracePeriodSeconds: 1\n      containers:\n      - name: main\n        image: {IMAGE}\n        \
         command: [sh, -c, 'echo begun $VERSION; exec sleep 3600']\n        env: [{{name: VERSION, value: v1}}]\n"
    )
}

fn ready(k: &Kubectl, count: u32) {
    let (path, timeout) = (
        format!("--for=jsonpath={{.status.readyReplicas}}={count}"),
        format!("--timeout={}s", patience(120).as_secs()),
    );
    k.ok(&["wait", "replicaset/old", &path, &timeout]);
}

/// The names of the pods that are not being deleted, with their versions.
fn pods(k: &Kubectl) -> BTreeMap<String, String> {
    let list: Value = serde_json::from_str(&k.ok(&["get", "pods", "-l", "app=old", "-o", "json"])).expect("JSON");
    let items = list["items"].as_array().expect("items");
    let stays = items.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    stays.map(|pod| (text(&pod["metadata"]["name"]), text(&pod["spec"]["containers"][0]["env"][0]["value"]))).collect()
}

#[test]
fn y17_a_replica_set_is_created_scaled_changed_and_deleted_with_kubectl() {
    let mut agent = Agent::serving("replicasets");
    let k = Kubectl::newest(&agent, "replicasets");
    k.ok(&["apply", "-f", &k.file("old.yaml", &text("ReplicaSet", "old"))]);
    ready(&k, 2);
    let line = k.ok(&["get", "replicaset", "old", "--no-headers", "-o", "wide"]);
    let cells: Vec<&str> = line.split_whitespace().collect();
    assert!(cells[1..4] == ["2", "2", "2"] && cells[6] == IMAGE, "{line}");
    let first = pods(&k);
    let labels = k.object(&format!("pod/{}", first.keys().next().expect("a pod")))["metadata"]["labels"].take();
    assert_eq!(labels, serde_json::json!({"app": "old"}));
    k.ok(&["set", "env", "replicaset/old", "VERSION=v2"]);
    k.ok(&["scale", "replicaset/old", "--replicas=3"]);
    ready(&k, 3);
    assert!(first.iter().all(|(name, version)| pods(&k).get(name) == Some(version)));
    agent.wait("the third has the new version", |_| pods(&k).values().filter(|version| *version == "v2").count() == 1);
    let before = pods(&k);
    agent.kill();
    agent.run_with_kubectl();
    ready(&k, 3);
    assert_eq!(pods(&k), before);
    k.ok(&["delete", "pod", first.keys().next().expect("a pod")]);
    agent.wait("it is replaced by the new version", |_| {
        pods(&k).len() == 3 && pods(&k).values().filter(|version| *version == "v2").count() == 2
    });
    ready(&k, 3);
    assert!(k.ok(&["logs", "replicaset/old"]).contains("begun v"));
    let described = k.ok(&["describe", "replicaset", "old"]);
    for part in ["3 current / 3 desired", "SuccessfulCreate", "3 Running / 0 Waiting"] {
        assert!(described.contains(part), "{part}: {described}");
    }
    // The ReplicaSet of a Deployment belongs to it.
    k.ok(&["apply", "-f", &k.file("web.yaml", &text("Deployment", "web"))]);
    agent.wait("it has a ReplicaSet", |_| k.ok(&["get", "replicasets", "-o", "name"]).lines().count() == 2);
    let of_deployment = k.ok(&["get", "replicasets", "-l", "app=web", "-o", "name"]);
    for words in [["delete", of_deployment.trim(), "--wait=false"], ["scale", of_deployment.trim(), "--replicas=5"]] {
        let said = k.fails(&words);
        assert!(said.contains("change the object that it names"), "{said}");
    }
    let wrong = k.file("wrong.yaml", &text("ReplicaSet", "old").replace("replicas: 2", "replicas: -1"));
    assert!(k.fails(&["apply", "-f", &wrong]).contains("spec.replicas: Invalid value: -1"));
    k.ok(&["delete", "deployment/web", "replicaset/old"]);
    agent.wait("nothing is left", |agent| agent.pods().is_empty());
}
