//! Deployments with kubectl: roll-outs, scaling, undo, a version that never becomes ready, a kill in the middle.

use crate::support::agent::{Agent, patience};
use crate::support::kubectl::{Kubectl, Printed};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;

const IMAGE: &str = "localhost/busybox:1.35";

fn text(replicas: u32) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web}}\nspec:\n  replicas: {replicas}\n  \
         selector: {{matchLabels: {{app: web}}}}\n  template:\n    metadata: {{labels: {{app: web}}}}\n    spec:\n      \
         terminationGracePeriodSeconds: 1\n      containers:\n      - name: main\n        image: {IMAGE}\n        \
         command: [sh, -c, 'echo begun $VERSION; exec sleep 3600']\n        env: [{{name: VERSION, value: v1}}]\n"
    )
}

fn apply(k: &Kubectl, replicas: u32) {
    k.ok(&["apply", "-f", &k.file("web.yaml", &text(replicas))]);
}

fn rolled_out(k: &Kubectl) {
    let seconds = patience(120).as_secs();
    let said = k.ok(&["rollout", "status", "deployment/web", &format!("--timeout={seconds}s")]);
    assert!(said.contains("successfully rolled out"), "{said}");
}

/// The names of the pods that are not being deleted.
fn pods(k: &Kubectl) -> BTreeSet<String> {
    let list: Value = serde_json::from_str(&k.ok(&["get", "pods", "-l", "app=web", "-o", "json"])).expect("JSON");
    let items = list["items"].as_array().expect("items");
    let stays = items.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    stays.map(|pod| pod["metadata"]["name"].as_str().expect("a name").to_owned()).collect()
}

/// The version that the pods run.
fn versions(k: &Kubectl) -> BTreeSet<String> {
    let path = "jsonpath={range .items[*]}{.spec.containers[0].env[0].value}{\"\\n\"}{end}";
    k.ok(&["get", "pods", "-l", "app=web", "-o", path]).lines().map(str::to_owned).collect()
}

fn condition(k: &Kubectl, type_: &str) -> (String, String) {
    let deployment = k.object("deployment/web");
    let conditions = deployment["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.into_iter().find(|condition| condition["type"] == type_).unwrap_or_default();
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"))
}

#[test]
fn y1_y2_y5_a_deployment_is_created_scaled_rolled_out_and_rolled_back_with_kubectl() {
    let agent = Agent::serving("deployroll");
    let k = Kubectl::newest(&agent, "deployments");
    apply(&k, 2);
    rolled_out(&k);
    let table = k.ok(&["get", "deployment,replicaset", "-o", "wide"]);
    assert!(table.contains("2/2") && table.contains(IMAGE) && table.contains("app=web"), "{table}");
    assert_eq!((pods(&k).len(), versions(&k)), (2, ["v1".to_owned()].into()));
    assert_eq!(k.ok(&["get", "all", "-o", "name"]).matches("deployment.apps/web").count(), 1);

    k.ok(&["scale", "deployment/web", "--replicas=3"]);
    rolled_out(&k);
    let three = pods(&k);
    assert_eq!(three.len(), 3);

    k.ok(&["set", "env", "deployment/web", "VERSION=v2"]);
    rolled_out(&k);
    agent.wait("the old pods are gone", |_| versions(&k) == ["v2".to_owned()].into());
    assert!(three.is_disjoint(&pods(&k)));
    let history = k.ok(&["rollout", "history", "deployment/web"]);
    assert_eq!(history.lines().filter(|line| line.starts_with(['1', '2'])).count(), 2, "{history}");
    k.ok(&["rollout", "undo", "deployment/web"]);
    rolled_out(&k);
    agent.wait("the first version runs again", |_| versions(&k) == ["v1".to_owned()].into());
    let shown = k.object("deployment/web");
    assert_eq!(shown["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "3");
    // Undo brings the same template back, not a copy of it with other defaults.
    assert_eq!(k.object("replicasets")["items"].as_array().map(Vec::len), Some(2));

    let before = pods(&k);
    let first = before.first().expect("a pod");
    k.ok(&["delete", "pod", first]);
    agent.wait("the pod is replaced", |_| {
        let now = pods(&k);
        now.len() == 3 && !now.contains(first)
    });
    rolled_out(&k);
    assert!(k.ok(&["logs", "deployment/web"]).contains("begun v1"));
    assert_eq!(k.ok(&["exec", "deployment/web", "--", "sh", "-c", "echo $VERSION"]), "v1\n");
    let described = k.ok(&["describe", "deployment", "web"]);
    for part in
        ["ScalingReplicaSet", "NewReplicaSetAvailable", "RollingUpdateStrategy:  25% max unavailable, 25% max surge"]
    {
        assert!(described.contains(part), "{part}: {described}");
    }
    let manifest =
        fs::read_to_string(agent.manifests().join(format!("kubectl_{}_deployment_web.yaml", agent.namespace)));
    let manifest = manifest.expect("the manifest");
    assert!(!manifest.contains("pod-template-hash") && !manifest.contains("kubernetes.io/revision"), "{manifest}");

    k.ok(&["delete", "deployment", "web"]);
    agent.wait("nothing is left", |agent| agent.pods().is_empty());
}

#[test]
fn y1_kubectl_create_makes_a_deployment() {
    let agent = Agent::serving("deploycreate");
    let k = Kubectl::newest(&agent, "deployments");
    let image = format!("--image={IMAGE}");
    k.ok(&["create", "deployment", "web", &image, "--replicas=2", "--", "sleep", "3600"]);
    rolled_out(&k);
    let container = k.object("deployment/web")["spec"]["template"]["spec"]["containers"][0].take();
    assert_eq!((&container["name"], &container["command"]), (&"busybox".into(), &serde_json::json!(["sleep", "3600"])));
    k.ok(&["delete", "deployment", "web", "--now"]);
    agent.wait("nothing is left", |agent| agent.pods().is_empty());
}

#[test]
fn y3_y10_a_version_that_never_starts_leaves_the_old_pods_and_a_paused_one_waits() {
    let agent = Agent::serving("deployfail");
    let k = Kubectl::newest(&agent, "deployments");
    apply(&k, 2);
    rolled_out(&k);
    let old = pods(&k);
    let patch = r#"{"spec": {"progressDeadlineSeconds": 5}}"#;
    k.ok(&["patch", "deployment", "web", "--type=merge", "-p", patch]);
    k.ok(&["set", "image", "deployment/web", "main=localhost/none:1"]);
    agent.wait("the deadline passes", |_| condition(&k, "Progressing").1 == "ProgressDeadlineExceeded");
    assert_eq!(condition(&k, "Available").0, "True");
    assert!(old.is_subset(&pods(&k)), "{:?}", pods(&k));
    let Printed { code, err, .. } = k.run_words(&["rollout", "status", "deployment/web"], b"");
    assert!(code == 1 && err.contains("exceeded its progress deadline"), "{err}");
    k.ok(&["rollout", "undo", "deployment/web"]);
    rolled_out(&k);
    assert_eq!(pods(&k), old);

    k.ok(&["rollout", "pause", "deployment/web"]);
    k.ok(&["set", "env", "deployment/web", "VERSION=v2"]);
    assert_eq!((pods(&k), condition(&k, "Progressing").1.as_str()), (old.clone(), "DeploymentPaused"));
    k.ok(&["rollout", "resume", "deployment/web"]);
    rolled_out(&k);
    agent.wait("the old pods are gone", |_| versions(&k) == ["v2".to_owned()].into());
    let second = pods(&k);
    k.ok(&["rollout", "restart", "deployment/web"]);
    rolled_out(&k);
    agent.wait("the pods are new", |_| second.is_disjoint(&pods(&k)) && pods(&k).len() == 2);
}

#[test]
fn y4_a_roll_out_continues_after_a_kill() {
    let mut agent = Agent::serving("deploykill");
    let k = Kubectl::newest(&agent, "deployments");
    apply(&k, 3);
    rolled_out(&k);
    let old = pods(&k);
    k.ok(&["set", "env", "deployment/web", "VERSION=v2"]);
    agent.kill();
    agent.run_with_kubectl();
    rolled_out(&k);
    agent.wait("the old pods are gone", |_| versions(&k) == ["v2".to_owned()].into());
    assert!(old.is_disjoint(&pods(&k)) && pods(&k).len() == 3);
    let history = k.ok(&["rollout", "history", "deployment/web"]);
    assert_eq!(history.lines().filter(|line| line.starts_with(['1', '2'])).count(), 2, "{history}");
    // A kill at rest changes nothing.
    let before = pods(&k);
    agent.kill();
    agent.run_with_kubectl();
    rolled_out(&k);
    assert_eq!(pods(&k), before);
}

#[test]
fn a_deployment_that_is_not_valid_is_refused_by_name() {
    let agent = Agent::serving("deploybad");
    let k = Kubectl::newest(&agent, "deployments");
    let refused = |name: &str, text: &str| k.fails(&["apply", "-f", &k.file(name, text)]);
    for (name, from, to, why) in [
        (
            "selector",
            "matchLabels: {app: web}",
            "matchLabels: {app: other}",
            "`selector` does not match template `labels`",
        ),
        ("empty", "selector: {matchLabels: {app: web}}", "selector: {}", "spec.selector: Required value"),
        (
            "policy",
            "terminationGracePeriodSeconds",
            "restartPolicy: Never\n      terminationGracePeriodSeconds",
            "supported values: \"Always\"",
        ),
        ("many", "replicas: 2", "replicas: 100000", "must be at most 1000 on one machine"),
        ("typo", "replicas: 2", "replicaz: 2", "did you mean replicas?"),
        ("template", "        image: ", "        imagge: ", "spec.template.spec.containers[0].imagge"),
    ] {
        let err = refused(name, &text(2).replacen(from, to, 1));
        assert!(err.contains(why), "{name}: {err}");
    }
    apply(&k, 1);
    let err = refused("immutable", &text(1).replace("app: web", "app: other"));
    assert!(err.contains("field is immutable"), "{err}");
    let Printed { code, err, .. } = k.run_words(&["delete", "deployment", "web", "--cascade=orphan"], b"");
    assert!(code == 1 && err.contains("--cascade=orphan"), "{err}");
    let Printed { code, err, .. } = k.run_words(&["label", "pods", "-l", "app=web", "x=y"], b"");
    assert!(code == 1 && err.contains("change the object that it names"), "{err}");
    k.ok(&["delete", "deployment", "web", "--cascade=foreground"]);
    assert_eq!(k.ok(&["get", "deployments,replicasets,pods", "-o", "name"]), "");
}
