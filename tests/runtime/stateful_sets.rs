//! StatefulSets with kubectl: order, scaling, a new template, undo, a partition, a kill in the middle of an update.

use crate::support::agent::{Agent, patience};
use crate::support::kubectl::{Kubectl, Printed};
use serde_json::Value;
use std::collections::BTreeMap;

const IMAGE: &str = "localhost/busybox:1.35";

fn text(more: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {{name: db}}\nspec:\n  serviceName: data\n{more}  \
         selector: {{matchLabels: {{app: db}}}}\n  template:\n    metadata: {{labels: {{app: db}}}}\n    spec:\n      \
         terminationGracePeriodSeconds: 1\n      containers:\n      - name: main\n        image: {IMAGE}\n        \
         command: [sh, -c, 'echo begun $VERSION on $(hostname -f); exec sleep 3600']\n        \
         env: [{{name: VERSION, value: v1}}]\n"
    )
}

fn run_text(k: &Kubectl, text: &str) -> Printed {
    k.run_words(&["apply", "-f", &k.file("db.yaml", text)], b"")
}

fn rolled_out(k: &Kubectl) {
    let seconds = patience(120).as_secs();
    let said = k.ok(&["rollout", "status", "statefulset/db", &format!("--timeout={seconds}s")]);
    assert!(said.contains("complete") || said.contains("roll out"), "{said}");
}

/// The names of the pods that are not being deleted, with their versions.
fn pods(k: &Kubectl) -> BTreeMap<String, String> {
    let list: Value = serde_json::from_str(&k.ok(&["get", "pods", "-l", "app=db", "-o", "json"])).expect("JSON");
    let items = list["items"].as_array().expect("items");
    let stays = items.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    stays.map(|pod| (text(&pod["metadata"]["name"]), text(&pod["spec"]["containers"][0]["env"][0]["value"]))).collect()
}

fn versions(k: &Kubectl) -> Vec<String> {
    pods(k).into_values().collect()
}

#[test]
fn y15_y16_a_stateful_set_is_created_scaled_updated_and_rolled_back_with_kubectl() {
    let agent = Agent::serving("statefulroll");
    let k = Kubectl::newest(&agent, "statefulsets");
    assert_eq!(run_text(&k, &text("  replicas: 2\n")).code, 0);
    rolled_out(&k);
    agent.wait("both run", |_| versions(&k) == ["v1", "v1"]);
    let table = k.ok(&["get", "statefulset", "db", "--no-headers", "-o", "wide"]);
    assert!(table.contains("2/2") && table.contains(IMAGE), "{table}");
    assert!(k.ok(&["logs", "db-1"]).contains("begun v1 on db-1.data."), "the host name is stable");
    k.ok(&["scale", "statefulset/db", "--replicas=3"]);
    agent.wait("the third runs", |_| pods(&k).len() == 3);
    rolled_out(&k);
    k.ok(&["set", "env", "statefulset/db", "VERSION=v2"]);
    rolled_out(&k);
    agent.wait("the second version runs", |_| versions(&k) == ["v2", "v2", "v2"]);
    let history = k.ok(&["rollout", "history", "statefulset/db"]);
    assert_eq!(history.lines().filter(|line| line.starts_with(['1', '2'])).count(), 2, "{history}");
    k.ok(&["rollout", "undo", "statefulset/db"]);
    rolled_out(&k);
    agent.wait("the first version runs again", |_| versions(&k) == ["v1", "v1", "v1"]);
    assert_eq!(k.ok(&["get", "controllerrevisions", "--no-headers"]).lines().count(), 2);
    k.ok(&[
        "patch",
        "statefulset",
        "db",
        "--type=merge",
        "-p",
        r#"{"spec": {"updateStrategy": {"rollingUpdate": {"partition": 2}}}}"#,
    ]);
    k.ok(&["set", "env", "statefulset/db", "VERSION=v3"]);
    rolled_out(&k);
    agent.wait("one pod is updated", |_| versions(&k) == ["v1", "v1", "v3"]);
    k.ok(&["scale", "statefulset/db", "--replicas=1"]);
    agent.wait("one pod stays", |_| pods(&k).keys().eq(["db-0"]));
    let described = k.ok(&["describe", "statefulset", "db"]);
    for part in ["Partition:", "SuccessfulDelete", "Pods Status:"] {
        assert!(described.contains(part), "{part}: {described}");
    }
    k.ok(&["delete", "statefulset", "db"]);
    agent.wait("nothing is left", |agent| agent.pods().is_empty());
}

#[test]
fn y16_an_update_of_a_stateful_set_continues_after_a_kill() {
    let mut agent = Agent::serving("statefulkill");
    let k = Kubectl::newest(&agent, "statefulsets");
    assert_eq!(run_text(&k, &text("  replicas: 2\n")).code, 0);
    rolled_out(&k);
    k.ok(&["set", "env", "statefulset/db", "VERSION=v2"]);
    agent.kill();
    agent.run_with_kubectl();
    rolled_out(&k);
    agent.wait("the second version runs", |_| versions(&k) == ["v2", "v2"]);
    assert!(pods(&k).keys().eq(["db-0", "db-1"]));
    for (from, to, why) in [
        ("serviceName: data", "serviceName: other", "spec.serviceName: Forbidden"),
        ("  serviceName", "  podManagementPolicy: Parallel\n  serviceName", "spec.podManagementPolicy: Forbidden"),
        (
            "  serviceName",
            "  podManagementPolicy: Any\n  serviceName",
            "supported values: \"OrderedReady\", \"Parallel\"",
        ),
        (
            "  serviceName",
            "  volumeClaimTemplates: [{metadata: {name: d}}]\n  serviceName",
            "spec.volumeClaimTemplates[0].spec.accessModes: Required value",
        ),
    ] {
        let Printed { code, out, err } = run_text(&k, &text("  replicas: 2\n").replacen(from, to, 1));
        assert!(code == 1 && err.contains(why), "{to}: {out} {err}");
    }
    assert_eq!(versions(&k), ["v2", "v2"]);
}
