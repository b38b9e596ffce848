//! `wherry keep`: a pod of the cluster continues as a pod of a manifest.

use crate::support::agent::Agent;
use crate::support::control_plane::ControlPlane;
use crate::wherry::{all_run, deployment, join, name};
use crate::{ok, ok_with, pods};
use serde_json::json;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;

/// The exit code, the output and the messages.
fn keep(agent: &Agent, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = agent.command_of("keep").args(arguments).output().expect("wherry");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// The names of the manifests, with their permissions.
fn manifests(agent: &Agent) -> BTreeMap<String, u32> {
    let files = std::fs::read_dir(agent.manifests()).expect("manifests").map(|entry| entry.expect("an entry"));
    files
        .map(|file| {
            let mode = file.metadata().expect("metadata").permissions().mode() & 0o777;
            (file.file_name().to_string_lossy().into_owned(), mode)
        })
        .collect()
}

#[test]
fn a_pod_of_the_cluster_continues_as_a_pod_of_a_manifest() {
    let plane = ControlPlane::shared();
    let (namespace, node) = ("kept", "locker");
    let admin = plane.namespace(namespace);
    let mut agent = join(plane, node);
    ok(&admin, "create configmap words --from-literal=greeting=hello");
    ok(&admin, "create secret generic keys --from-literal=password=hunter2");
    let script = "echo $greeting-$(cat /keys/password); exec sleep 3600";
    let more = json!({
        "automountServiceAccountToken": true,
        "volumes": [{ "name": "keys", "secret": { "secretName": "keys" } }],
        "command": ["sh", "-c", script],
        "envFrom": [{ "configMapRef": { "name": "words" } }],
        "volumeMounts": [{ "name": "keys", "mountPath": "/keys" }],
    });
    ok_with(&admin, "create -f -", &deployment("web", 1, node, &more));
    plane.wait("the pod runs", |plane| all_run(plane, namespace, 1));
    let pod = pods(plane, namespace).remove(0);
    let web = name(&pod);

    let shown = agent.wherry(&["describe", &web]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    for line in [
        "reboot: starts",
        "outage: keeps running; its token expires in",
        "return: deleted if the node was unreachable for longer than 300s",
    ] {
        assert!(shown.contains(line), "{shown}");
    }

    let (code, _, why) = keep(&agent, &["web-0"]);
    assert!(code == Some(1) && why.contains("pod web-0 was not found"), "{why}");
    agent.write("local.yaml", "{apiVersion: v1, kind: Pod, metadata: {name: local}, spec: {terminationGracePeriodSeconds: 1, hostNetwork: true, containers: [{name: main, image: 'localhost/busybox:1.35', command: [sleep, '3600']}]}}");
    agent.wait_running("local");
    let shown = agent.wherry(&["describe", "local"]);
    assert!(!String::from_utf8_lossy(&shown.stdout).contains("Without Server"));
    let (code, _, why) = keep(&agent, &["local"]);
    assert!(code == Some(1) && why.contains("does not belong to a cluster") && why.contains("local.yaml"), "{why}");

    // It needs no agent.
    agent.kill();
    let before = manifests(&agent);
    let (code, out, why) = keep(&agent, &[&web, "--dry-run"]);
    assert_eq!((code, manifests(&agent)), (Some(0), before), "{why}");
    assert_eq!(out.matches("---").count(), 3, "{out}");
    assert!(
        !out.contains("restartPolicy") && !out.contains("kube-api-access"),
        "defaults and tokens are left out: {out}"
    );
    let (code, out, why) = keep(&agent, &[&web]);
    assert_eq!(code, Some(0), "{why}");
    assert_eq!(out.lines().filter(|line| line.starts_with("wrote ")).count(), 3, "{out}");
    assert!(why.contains("no service account token (volume ") && why.contains("ReplicaSet web-"), "{why}");
    assert!(!out.contains("hunter2") && !why.contains("hunter2"));
    let mine = |name: &str| format!("kubectl_{namespace}_{name}.yaml");
    let files = manifests(&agent);
    let modes = ["configmap_words", "secret_keys", &format!("pod_{web}")].map(|name| files.get(&mine(name)).copied());
    assert_eq!(modes, [Some(0o644), Some(0o600), Some(0o644)], "{files:?}");
    let (code, _, why) = keep(&agent, &[&web]);
    assert!(code == Some(1) && why.contains("already"), "{why}");

    // The pod of the cluster runs on, and the manifest waits for its end.
    agent.run();
    let waits =
        format!("the cluster has a pod {namespace}/{web}; the pod of this manifest starts when that pod is gone");
    agent.wait("the manifest waits", |agent| {
        String::from_utf8_lossy(&agent.wherry(&["status"]).stdout).contains(&waits)
    });
    let running = || agent.pod(&web).map(|shown| shown["metadata"]["uid"].clone());
    assert_eq!(running().as_ref(), Some(&pod["metadata"]["uid"]));
    ok(&admin, "scale deployment web --replicas=0");
    let shown = agent.wait_for("the pod of the manifest runs", |agent| {
        let shown = agent.pod(&web).filter(crate::support::agent::is_running)?;
        (shown["metadata"]["uid"] != pod["metadata"]["uid"]).then_some(shown)
    });
    assert_eq!(shown["metadata"]["annotations"]["kubernetes.io/config.source"], "file", "{shown:#}");
    agent.wait("it has its values", |agent| agent.output(&shown, "main", 0) == "hello-hunter2\n");
    let mirror = format!("{web}-{node}");
    plane.wait("it has a mirror", |plane| pods(plane, namespace).iter().any(|pod| name(pod) == mirror));
    for file in [mine(&format!("pod_{web}")), "local.yaml".to_owned()] {
        std::fs::remove_file(agent.manifests().join(file)).expect("a manifest");
    }
    agent.wait_gone(&web);
    plane.wait("the mirror is gone", |plane| pods(plane, namespace).is_empty());
    ok(&admin, &format!("delete namespace {namespace} --wait=false"));
    ok(&admin, &format!("delete node {node}"));
}
