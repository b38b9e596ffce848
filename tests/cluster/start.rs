//! The components, and what they create by themselves.

use crate::support::control_plane::ControlPlane;
use crate::support::http;
use crate::{node, ok, ok_with};
use std::time::Instant;

#[test]
fn all_components_are_ready_and_a_namespace_gets_its_account() {
    let begin = Instant::now();
    let plane = ControlPlane::start("ready");
    println!("started in {:?}", begin.elapsed());
    let admin = plane.namespace("ready");
    println!("resident memory in MiB: {:?}", plane.memory());
    // This includes etcd and the informers of the server.
    let ready = ok(&admin, "get --raw /readyz?verbose");
    assert!(ready.contains("[+]etcd ok") && !ready.contains("[-]"), "{ready}");
    let version = plane.get("/version").expect("a version");
    assert_eq!((&version["major"], &version["minor"]), (&"1".into(), &"20".into()), "{version}");
    let names: Vec<String> = plane.memory().into_iter().filter(|(_, mib)| *mib > 0).map(|(name, _)| name).collect();
    assert_eq!(names, ["kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd"]);
    let ca = plane.get("/api/v1/namespaces/ready/configmaps/kube-root-ca.crt").expect("the CA");
    assert_eq!(ca["data"]["ca.crt"], plane.ca().as_str());
    // Pods find the server at this address.
    let service = plane.get("/api/v1/namespaces/default/services/kubernetes").expect("the service");
    assert_eq!(service["spec"]["clusterIP"], plane.service_address.as_str());
}

#[test]
fn nothing_remains_of_a_control_plane() {
    let plane = ControlPlane::start("gone");
    let (dir, server) = (plane.dir.clone(), plane.server.replace("https://", ""));
    let started = processes(&dir.display().to_string());
    assert_eq!(started.len(), 4, "{started:?}");
    drop(plane);
    assert_eq!(processes(&dir.display().to_string()), Vec::<String>::new());
    assert!(!dir.exists());
    assert!(http::get_tcp(&server, "/readyz").is_err());
}

/// The command lines that contain this text.
fn processes(text: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(text)).collect()
}

#[test]
fn the_requests_of_a_node_are_counted() {
    let plane = ControlPlane::shared();
    let name = "counted";
    let kubectl = plane.kubectl_of_node(name, "default");
    ok_with(&kubectl, "create --raw /api/v1/nodes -f -", &node(name));
    for _ in 0..3 {
        ok(&kubectl, &format!("get --raw /api/v1/nodes/{name}?timeout=10s"));
    }
    // The same requests of others are not the node's.
    assert!(plane.get(&format!("/api/v1/nodes/{name}")).is_some());
    let requests = plane.requests_of_node(name);
    let seen: Vec<_> = requests.iter().map(|r| (r.verb.as_str(), r.path.as_str(), r.query.as_str(), r.code)).collect();
    let path = format!("/api/v1/nodes/{name}");
    let get = ("get", path.as_str(), "timeout=10s", 200);
    assert_eq!(seen, [("create", "/api/v1/nodes", "", 201), get, get, get]);
    assert_eq!(requests[0].body["metadata"]["name"], name);
    assert_eq!(requests[1].response["metadata"]["uid"], requests[0].response["metadata"]["uid"]);
    assert!(requests.iter().all(|r| r.stage == "ResponseComplete" && !r.at.is_empty()), "{requests:?}");
    ok(&plane.kubectl("default"), &format!("delete node {name}"));
}
