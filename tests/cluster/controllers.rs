//! Ordinary pods of controllers on two Wherry nodes: with the token that the API server adds to each pod, ConfigMaps, Secrets
//! and the variables of services.

use crate::support::control_plane::ControlPlane;
use crate::support::cri::{ContainerState, Cri};
use crate::wherry::{all_run, is_running, join, name};
use crate::{ok, ok_with, pods};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::PathBuf;

const MOUNT: &str = "var/run/secrets/kubernetes.io/serviceaccount";

/// A pod that ends with an error if something that it needs is missing. `then`: the last command.
fn template(pool: &str, then: &str, restart: &str) -> Value {
    let check = "[ $greeting-$password = hello-hunter2 ] && [ -n \"$KUBERNETES_SERVICE_HOST\" ] && [ -n \"$DB_SERVICE_PORT\" ] && \
                 cd /var/run/secrets/kubernetes.io/serviceaccount && [ -s token ] && grep -q CERTIFICATE ca.crt && \
                 [ $(cat namespace) = ordinary ]";
    json!({
        "metadata": { "labels": { "app": "ordinary" } },
        "spec": {
            "nodeSelector": { "pool": pool },
            "hostNetwork": true,
            "restartPolicy": restart,
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "main",
                "image": "localhost/busybox:1.35",
                "command": ["sh", "-c", format!("{check} && {then}")],
                "envFrom": [{ "configMapRef": { "name": "words" } }, { "secretRef": { "name": "keys" } }],
            }],
        },
    })
}

/// The path of the token in the file system of the pod's container.
fn token_file(cri: &mut Cri, namespace: &str, pod: &str) -> PathBuf {
    let all = cri.containers(namespace);
    let runs = |state| state == Ok(ContainerState::CONTAINER_RUNNING);
    let of_pod = all.iter().find(|c| runs(c.state.enum_value()) && c.labels["io.kubernetes.pod.name"] == pod);
    let pid = cri.container_pid(&of_pod.expect("a container").id);
    PathBuf::from(format!("/proc/{pid}/root/{MOUNT}/token"))
}

#[test]
fn deployments_daemon_sets_and_jobs_run_on_two_nodes_with_their_tokens() {
    let plane = ControlPlane::shared();
    let (namespace, nodes, pool) = ("ordinary", ["pilot", "purser"], "twins");
    let admin = plane.namespace(namespace);
    let agents = nodes.map(|node| join(plane, node));
    // The label is only at the server.
    ok(&admin, &format!("label node {} pool={pool}", nodes.join(" ")));
    ok(&admin, "create configmap words --from-literal=greeting=hello");
    ok(&admin, "create secret generic keys --from-literal=password=hunter2");
    ok(&admin, "create service clusterip db --tcp=5432");
    let labels = json!({ "matchLabels": { "app": "ordinary" } });
    let forever = template(pool, "sleep 3600", "Always");
    for object in [
        json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web" },
            "spec": { "replicas": 2, "selector": labels, "template": forever } }),
        json!({ "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": "probe" },
            "spec": { "selector": labels, "template": forever } }),
    ] {
        ok_with(&admin, "create -f -", &object.to_string());
    }
    plane.wait("all pods run", |plane| all_run(plane, namespace, 4));
    let all = pods(plane, namespace);
    let used: BTreeSet<&str> = all.iter().filter_map(|pod| pod["spec"]["nodeName"].as_str()).collect();
    assert_eq!(used, BTreeSet::from(nodes), "the DaemonSet has a pod on each node");
    // The token in the file system of a container is that of its account, and the copy on the disk is only for root.
    let (pod, agent) = all
        .iter()
        .find_map(|pod| Some((name(pod), &agents[nodes.iter().position(|node| pod["spec"]["nodeName"] == *node)?])))
        .expect("a pod");
    let token = std::fs::read_to_string(token_file(&mut agent.cri(), namespace, &pod)).expect("the token");
    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": { "token": token } });
    let line = "create --raw /apis/authentication.k8s.io/v1/tokenreviews -f -";
    let review: Value = serde_json::from_str(&ok_with(&admin, line, &review.to_string())).expect("JSON");
    assert_eq!(review["status"]["user"]["username"], "system:serviceaccount:ordinary:default", "{review:#}");
    for agent in &agents {
        use std::os::unix::fs::PermissionsExt as _;
        let files = std::fs::read_dir(agent.root().join("records/tokens")).expect("records");
        let modes: Vec<u32> =
            files.map(|f| f.expect("an entry").metadata().expect("metadata").permissions().mode() & 0o777).collect();
        assert!(!modes.is_empty() && modes.iter().all(|mode| *mode == 0o600), "{modes:?}");
        assert!(!agent.log().contains(&token));
    }
    // Each node follows the services of two namespaces, and no others.
    for node in nodes {
        let watched: BTreeSet<String> = plane
            .requests_of_node(node)
            .iter()
            .filter(|r| r.verb == "list" && r.path.contains("/services"))
            .map(|r| r.path.split('?').next().unwrap_or_default().to_owned())
            .collect();
        let expected = ["default", namespace].map(|of| format!("/api/v1/namespaces/{of}/services"));
        assert_eq!(watched, BTreeSet::from(expected));
    }
    ok(&admin, "delete deployment/web daemonset/probe");
    plane.wait("nothing is left", |plane| pods(plane, namespace).is_empty());
    // A service that appears later is in the environment of later pods.
    ok(&admin, "create service clusterip late --tcp=80");
    for agent in &agents {
        // (A node without pods follows no services.)
        let record = agent.root().join(format!("records/lists/services.{namespace}"));
        assert!(!record.exists(), "{}", record.display());
    }
    let job = json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "once" },
        "spec": { "completions": 3, "parallelism": 2, "template": template(pool, "[ -n \"$LATE_SERVICE_HOST\" ]", "Never") } });
    ok_with(&admin, "create -f -", &job.to_string());
    ok(&admin, "wait --for=condition=complete job/once --timeout=60s");
    let done = pods(plane, namespace);
    assert_eq!(done.iter().filter(|pod| pod["status"]["phase"] == "Succeeded").count(), 3, "{done:#?}");
    assert!(!done.iter().any(is_running));
    ok(&admin, "delete job once");
    plane.wait("nothing is left", |plane| pods(plane, namespace).is_empty());
    for agent in &agents {
        let tokens = agent.root().join("records/tokens");
        let left = || std::fs::read_dir(&tokens).map(Iterator::count).unwrap_or_default();
        plane.wait("no token is left on the disk", |_| left() == 0);
    }
    ok(&admin, &format!("delete namespace {namespace} --wait=false"));
    ok(&admin, &format!("delete node {}", nodes.join(" ")));
}
