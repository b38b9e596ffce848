//! Wherry as a node: registration, pods of controllers, ConfigMaps and Secrets, deletions, and absences of the API server.

use crate::support::agent::Agent;
use crate::support::control_plane::ControlPlane;
use crate::support::cri::{ContainerState, Cri};
use crate::support::lab::Runtime;
use crate::support::yaml::TRAP;
use crate::{ok, ok_with, pods, wait_for_pods};
use serde_json::{Value, json};

/// A Wherry that is a node of the cluster, with the label `node=NAME`.
pub fn join(plane: &ControlPlane, name: &str) -> Agent {
    let mut agent = Agent::prepare(name, &Runtime::shared());
    agent.set_cluster(name, &plane.kubeconfig_of_node(name));
    agent.run();
    plane.wait(&format!("{name} is ready"), |plane| is_ready(plane, name));
    agent
}

pub fn is_ready(plane: &ControlPlane, name: &str) -> bool {
    let node = plane.get(&format!("/api/v1/nodes/{name}")).unwrap_or_default();
    let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True")
}

/// A Deployment for one node, whose pods need no token. `more`: fields of the pod's spec and of its container.
pub fn deployment(name: &str, replicas: u32, node: &str, more: &Value) -> String {
    let labels = json!({ "app": name });
    let mut container = json!({ "name": "main", "image": "localhost/busybox:1.35", "command": ["sleep", "3600"] });
    let mut spec = json!({
        "nodeSelector": { "node": node },
        "automountServiceAccountToken": false,
        "terminationGracePeriodSeconds": 1,
        "hostNetwork": true,
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        match key.as_str() {
            "automountServiceAccountToken" | "volumes" => spec[key] = value.clone(),
            _ => container[key] = value.clone(),
        }
    }
    spec["containers"] = json!([container]);
    json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name },
        "spec": { "replicas": replicas, "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": spec } } })
    .to_string()
}

pub fn is_running(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    pod["status"]["phase"] == "Running" && conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True")
}

pub fn all_run(plane: &ControlPlane, namespace: &str, count: usize) -> bool {
    let pods = pods(plane, namespace);
    pods.len() == count && pods.iter().all(is_running)
}

pub fn name(pod: &Value) -> String {
    pod["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

/// The ids of the running containers in a namespace.
pub fn running(cri: &mut Cri, namespace: &str) -> Vec<String> {
    let all = cri.containers(namespace).into_iter();
    all.filter(|c| c.state.enum_value() == Ok(ContainerState::CONTAINER_RUNNING)).map(|c| c.id).collect()
}

/// The restart counts of the pods' containers.
fn restarts(plane: &ControlPlane, namespace: &str) -> Vec<i64> {
    let of = |pod: &Value| pod["status"]["containerStatuses"][0]["restartCount"].as_i64().unwrap_or(-1);
    pods(plane, namespace).iter().map(of).collect()
}

#[test]
fn a_deployment_runs_is_scaled_and_disappears() {
    let plane = ControlPlane::shared();
    let (namespace, node) = ("deployed", "harbour");
    let admin = plane.namespace(namespace);
    let agent = join(plane, node);
    let object = plane.get(&format!("/api/v1/nodes/{node}")).expect("the node");
    assert_eq!(object["metadata"]["labels"]["node"], node, "{object:#}");
    assert!(object["status"]["nodeInfo"]["containerRuntimeVersion"].as_str().unwrap_or_default().contains("://"));
    plane.wait("the node has no taint", |plane| {
        plane.get(&format!("/api/v1/nodes/{node}")).is_some_and(|node| node["spec"]["taints"].is_null())
    });
    ok_with(&admin, "create -f -", &deployment("web", 2, node, &json!({})));
    plane.wait("both pods run", |plane| all_run(plane, namespace, 2));
    for pod in pods(plane, namespace) {
        let status = &pod["status"];
        assert!(status["containerStatuses"][0]["containerID"].as_str().is_some_and(|id| id.contains("://")), "{pod:#}");
        assert!(status["startTime"].is_string(), "{pod:#}");
    }
    plane.wait("the events of the pods are there", |plane| {
        let events = plane.list(&format!("/api/v1/namespaces/{namespace}/events?fieldSelector=reason=Started"));
        events.len() >= 2 && events.iter().all(|e| e["source"]["host"] == node)
    });
    // A pod that a user deletes is replaced.
    let before: Vec<String> = pods(plane, namespace).iter().map(name).collect();
    ok(&admin, &format!("delete pod {}", before[0]));
    plane.wait("the pod is replaced", |plane| {
        all_run(plane, namespace, 2) && pods(plane, namespace).iter().all(|pod| name(pod) != before[0])
    });
    ok(&admin, "scale deployment web --replicas=0");
    wait_for_pods(plane, namespace, 0);
    assert_eq!(agent.cri().sandboxes(namespace).len(), 0, "nothing is left in the runtime");
    // Nothing was refused, and each pod was removed once.
    let requests = plane.requests_of_node(node);
    let refused: Vec<_> = requests.iter().filter(|r| r.code >= 400 && r.code != 404 && r.code != 403).collect();
    assert!(refused.is_empty(), "{refused:#?}");
    assert_eq!(requests.iter().filter(|r| r.verb == "delete" && r.path.contains("/pods/")).count(), 3);
    ok(&admin, &format!("delete namespace {namespace} --wait=false"));
    ok(&admin, &format!("delete node {node}"));
}

#[test]
fn configmaps_and_secrets_are_in_the_pod() {
    let plane = ControlPlane::shared();
    let (namespace, node) = ("settings", "quay");
    let admin = plane.namespace(namespace);
    let agent = join(plane, node);
    ok(&admin, "create configmap words --from-literal=greeting=hello");
    ok(&admin, "create secret generic keys --from-literal=password=hunter2");
    let more = json!({
        "env": [
            { "name": "GREETING", "valueFrom": { "configMapKeyRef": { "name": "words", "key": "greeting" } } },
            { "name": "PASSWORD", "valueFrom": { "secretKeyRef": { "name": "keys", "key": "password" } } },
        ],
        "command": ["sh", "-c", "[ $GREETING-$PASSWORD = hello-hunter2 ] && [ $(cat /words/greeting) = hello ] && sleep 3600"],
        "volumeMounts": [{ "name": "words", "mountPath": "/words" }],
        "volumes": [{ "name": "words", "configMap": { "name": "words" } }],
    });
    ok_with(&admin, "create -f -", &deployment("web", 1, node, &more));
    plane.wait("the pod runs", |plane| all_run(plane, namespace, 1));
    assert_eq!(restarts(plane, namespace), [0]);
    // The copies on the disk are only for root, and the log does not contain the value.
    let records = agent.root().join("records/objects");
    let mode = |path: &std::path::Path| {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::metadata(path).expect("a file").permissions().mode() & 0o777
    };
    let files: Vec<_> = std::fs::read_dir(&records).expect("records").map(|e| e.expect("an entry").path()).collect();
    assert_eq!(files.len(), 2, "{files:?}");
    assert!(files.iter().all(|file| mode(file) == 0o600), "{files:?}");
    assert!(!agent.log().contains("hunter2"));
    ok(&admin, &format!("delete namespace {namespace} --wait=false"));
    wait_for_pods(plane, namespace, 0);
    ok(&admin, &format!("delete node {node}"));
}

#[test]
fn pods_run_on_without_the_api_server_also_after_a_restart_of_wherry() {
    let plane = ControlPlane::start("absent");
    let (namespace, node) = ("absent", "islet");
    let admin = plane.namespace(namespace);
    let mut agent = join(&plane, node);
    ok(&admin, "create configmap words --from-literal=greeting=hello");
    let more = json!({
        "envFrom": [{ "configMapRef": { "name": "words" } }],
        "command": ["sh", "-c", "[ $greeting = hello ] && sleep 3600"],
    });
    ok_with(&admin, "create -f -", &deployment("web", 1, node, &more));
    plane.wait("the pod runs", |plane| all_run(plane, namespace, 1));
    let pod = name(&pods(&plane, namespace)[0]);
    plane.stop_api_server();
    let mut cri = agent.cri();
    let first = running(&mut cri, namespace);
    assert_eq!(first.len(), 1);
    // A crash, with a ConfigMap that only the disk has.
    agent.kill();
    crate::support::lab::signal(&cri.container_pid(&first[0]).to_string(), "KILL");
    agent.run();
    plane
        .wait("the container was restarted", |_| running(&mut agent.cri(), namespace).iter().any(|id| *id != first[0]));
    plane.start_api_server();
    plane.wait("the restart is reported", |plane| restarts(plane, namespace) == [1] && all_run(plane, namespace, 1));
    assert_eq!(name(&pods(&plane, namespace)[0]), pod, "the same pod");
    plane.wait("the node is ready", |plane| is_ready(plane, node));
    ok(&admin, "delete deployment web");
    wait_for_pods(&plane, namespace, 0);
    assert_eq!(agent.cri().sandboxes(namespace).len(), 0);
}

#[test]
fn a_kubeconfig_that_cannot_be_used_stops_no_manifest_and_is_read_again() {
    let plane = ControlPlane::shared();
    let node = "skerry";
    let (mut agent, good) = (Agent::prepare(node, &Runtime::shared()), plane.kubeconfig_of_node(node));
    let path = agent.dir.join("kubeconfig");
    std::fs::write(&path, "apiVersion: v1\nkind: Config\ncurrent-context: c\n").expect("a file");
    agent.set_cluster(node, &path);
    agent.run();
    agent.apply("local", TRAP);
    agent.wait_running("local");
    let text = format!("{}: contexts[\"c\"].context: missing; add the entry, or correct the name", path.display());
    assert!(agent.log().contains(&text), "{}", agent.log());
    std::fs::copy(&good, &path).expect("a copy");
    plane.wait("the node is ready", |plane| is_ready(plane, node));
    agent.wait_running("local");
    plane.kubectl("default").run(&format!("delete node {node}"));
}

#[test]
fn a_new_node_has_the_taints_and_the_provider_of_its_configuration() {
    let plane = ControlPlane::shared();
    let node = "taints";
    let mut agent = Agent::prepare(node, &Runtime::shared());
    agent.set_cluster(node, &plane.kubeconfig_of_node(node));
    let more = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nproviderID: dock://7\n\
        registerWithTaints: [{key: quay, value: east, effect: NoSchedule}]\n";
    std::fs::write(agent.dir.join("config.d/30-taints.yaml"), more).expect("a drop-in");
    agent.run();
    plane.wait("the node is ready", |plane| is_ready(plane, node));
    let spec = plane.get(&format!("/api/v1/nodes/{node}")).expect("the node")["spec"].clone();
    let taints = spec["taints"].as_array().cloned().unwrap_or_default();
    assert!(taints.contains(&json!({ "key": "quay", "value": "east", "effect": "NoSchedule" })), "{spec:#}");
    assert_eq!(spec["providerID"], "dock://7");
    ok(&plane.kubectl("default"), &format!("delete node {node}"));
}

#[test]
fn pods_of_manifests_have_mirrors() {
    let plane = ControlPlane::shared();
    let (namespace, node) = ("default", "mirrors");
    let admin = plane.kubectl(namespace);
    let agent = join(plane, node);
    // A Secret of a manifest is not at the server, and NodeRestriction permits no reference to one.
    let local = "apiVersion: v1\nkind: Secret\nmetadata: {name: keys}\nstringData: {password: hunter2}\n---\n\
        apiVersion: v1\nkind: Pod\nmetadata: {name: local, labels: {app: local}}\nspec:\n  terminationGracePeriodSeconds: 1\n  \
        hostNetwork: true\n  containers:\n  - name: main\n    image: localhost/busybox:1.35\n    command: [sleep, '3600']\n    \
        envFrom: [{secretRef: {name: keys}}]\n    resources: {requests: {cpu: 70m}}\n";
    agent.write("local.yaml", local);
    let path = format!("/api/v1/namespaces/{namespace}/pods/local-{node}");
    let mirror = plane.wait_for("the mirror shows that the pod runs", |plane| plane.get(&path).filter(is_running));
    assert_eq!(mirror["spec"]["nodeName"], node);
    assert_eq!(mirror["spec"]["containers"][0]["resources"]["requests"]["cpu"], "70m", "the scheduler counts it");
    assert_eq!(mirror["metadata"]["annotations"]["wherry.io/mirror-omits"], "envFrom");
    assert!(!mirror.to_string().contains("hunter2"));
    let described = plane.wait_for("kubectl shows the events of the pod", |_| {
        Some(ok(&admin, &format!("describe pod local-{node}"))).filter(|text| text.contains("Started container main"))
    });
    assert!(described.contains(&format!("Controlled By:  Node/{node}")), "{described}");
    // A user can delete the mirror, but not the pod.
    let before = running(&mut agent.cri(), namespace);
    ok(&admin, &format!("delete pod local-{node} --wait=false"));
    let uid = &mirror["metadata"]["uid"];
    plane.wait("the mirror is created again", |plane| {
        plane.get(&path).is_some_and(|pod| pod["metadata"]["uid"] != *uid && is_running(&pod))
    });
    assert_eq!(running(&mut agent.cri(), namespace), before);
    agent.delete("local");
    plane.wait("the mirror ends with its pod", |plane| plane.get(&path).is_none());
    ok(&admin, &format!("delete node {node}"));
}

#[test]
fn labels_and_readiness_gates_reach_a_running_pod() {
    let plane = ControlPlane::shared();
    let (namespace, node) = ("changes", "tidal");
    let admin = plane.namespace(namespace);
    let agent = join(plane, node);
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "web", "labels": { "tier": "old" } }, "spec": {
        "nodeName": node, "hostNetwork": true, "terminationGracePeriodSeconds": 1,
        "readinessGates": [{ "conditionType": "example.com/gate" }],
        "volumes": [{ "name": "self", "downwardAPI": { "items": [
            { "path": "labels", "fieldRef": { "fieldPath": "metadata.labels" } }] } }],
        "containers": [{ "name": "main", "image": "localhost/busybox:1.35", "command": ["sleep", "3600"],
            "volumeMounts": [{ "name": "self", "mountPath": "/self" }] }] } });
    ok_with(&admin, "create -f -", &pod.to_string());
    let path = format!("/api/v1/namespaces/{namespace}/pods/web");
    let condition = |pod: &Value, kind: &str| {
        let all = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        all.iter().find(|c| c["type"] == kind).map(|c| (c["status"].clone(), c["reason"].clone()))
    };
    plane.wait("the gate keeps the pod from being ready", |plane| {
        let pod = plane.get(&path).unwrap_or_default();
        condition(&pod, "ContainersReady").is_some_and(|(status, _)| status == "True")
            && condition(&pod, "Ready") == Some((json!("False"), json!("ReadinessGatesNotReady")))
    });
    let mut object = plane.get(&path).expect("the pod");
    let conditions = object["status"]["conditions"].as_array_mut().expect("conditions");
    conditions.push(json!({ "type": "example.com/gate", "status": "True" }));
    object["metadata"]["resourceVersion"] = Value::Null;
    ok_with(&admin, &format!("replace --raw {path}/status -f -"), &object.to_string());
    plane.wait("the pod is ready", |plane| plane.get(&path).is_some_and(|pod| is_running(&pod)));
    ok(&admin, "label pod web tier=new --overwrite");
    let mut cri = agent.cri();
    let before = running(&mut cri, namespace);
    let labels = format!("/proc/{}/root/self/labels", cri.container_pid(&before[0]));
    plane.wait("the file has the new label", |_| {
        std::fs::read_to_string(&labels).is_ok_and(|text| text.contains("tier=\"new\""))
    });
    assert_eq!(running(&mut cri, namespace), before);
    ok(&admin, &format!("delete namespace {namespace} --wait=false"));
    wait_for_pods(plane, namespace, 0);
    ok(&admin, &format!("delete node {node}"));
}
