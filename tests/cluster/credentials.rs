//! What a node may do (Node authorizer, NodeRestriction), and how it gets a certificate.

use crate::support::control_plane::ControlPlane;
use crate::support::control_plane::certificates::request_of_node;
use crate::{forbidden, node, ok, ok_with};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use std::process::Command;

/// A pod on this node that uses the Secret `login`.
fn pod(name: &str, node: &str) -> String {
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name }, "spec": {
        "nodeName": node, "terminationGracePeriodSeconds": 0,
        "containers": [{ "name": "main", "image": "x", "envFrom": [{ "secretRef": { "name": "login" } }] }] } })
    .to_string()
}

#[test]
fn a_node_may_change_itself_and_no_other_node() {
    let plane = ControlPlane::shared();
    let (name, other) = ("itself", "another");
    let admin = plane.kubectl("default");
    let kubectl = plane.kubectl_of_node(name, "default");
    let error = forbidden(&kubectl, "create -f -", &node(other));
    assert!(error.contains(&format!("node \"{name}\" is not allowed to modify node \"{other}\"")), "{error}");
    ok_with(&kubectl, "create -f -", &node(name));
    ok_with(&admin, "create -f -", &node(other));
    ok(&kubectl, &format!("label node {name} colour=blue"));
    let error = forbidden(&kubectl, &format!("label node {name} node-restriction.kubernetes.io/colour=blue"), "");
    assert!(error.contains("node-restriction.kubernetes.io/colour"), "{error}");
    forbidden(&kubectl, &format!("taint node {name} key=value:NoSchedule"), "");
    forbidden(&kubectl, &format!("label node {other} colour=blue"), "");
    forbidden(&kubectl, &format!("delete node {name}"), "");
    ok(&admin, &format!("delete node {name} {other}"));
}

#[test]
fn a_node_reads_only_what_its_pods_use() {
    let plane = ControlPlane::shared();
    let namespace = "secrets";
    let admin = plane.namespace(namespace);
    let [name, other] = ["reader", "stranger"];
    let [kubectl, foreign] = [name, other].map(|name| {
        let kubectl = plane.kubectl_of_node(name, namespace);
        ok_with(&kubectl, "create -f -", &node(name));
        kubectl
    });
    ok(&admin, "create secret generic login --from-literal=password=topsecret");
    let error = forbidden(&kubectl, "get secret login", "");
    assert!(error.contains("no relationship found between node 'reader' and this object"), "{error}");
    forbidden(&kubectl, "get secrets", "");
    forbidden(&kubectl, "create -f -", &pod("own", name));
    ok_with(&admin, "create -f -", &pod("user", name));
    // The authorizer learns of the pod from its own watch.
    plane.wait("the node can read the Secret of its pod", |_| kubectl.run("get secret login").code == 0);
    forbidden(&foreign, "get secret login", "");
    forbidden(&kubectl, "get secrets", "");
    // Only the node of a pod may report its status, and only it may delete the pod.
    let path = format!("/api/v1/namespaces/{namespace}/pods/user");
    let mut object = plane.get(&path).expect("the pod");
    object["status"]["phase"] = json!("Running");
    let (status, delete) = (format!("replace --raw {path}/status -f -"), format!("delete --raw {path}"));
    let error = forbidden(&foreign, &status, &object.to_string());
    assert!(error.contains("spec.nodeName set to itself"), "{error}");
    ok_with(&kubectl, &status, &object.to_string());
    let error = forbidden(&foreign, &delete, "");
    assert!(error.contains("spec.nodeName set to itself"), "{error}");
    ok(&kubectl, &delete);
    plane.wait("the permission ends with the pod", |_| kubectl.run("get secret login").code != 0);
    ok(&admin, &format!("delete node {name} {other}"));
}

#[test]
fn an_approved_request_for_a_certificate_of_a_node_is_signed() {
    let plane = ControlPlane::shared();
    let admin = plane.kubectl("default");
    let request = json!({ "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": { "name": "joins" },
        "spec": { "request": STANDARD.encode(request_of_node("joins")), "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
                  "usages": ["digital signature", "key encipherment", "client auth"] } });
    ok_with(&admin, "create -f -", &request.to_string());
    ok(&admin, "certificate approve joins");
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests/joins";
    let certificate = plane.wait_for("the certificate is issued", |plane| {
        plane.get(path)?["status"]["certificate"].as_str().map(|text| STANDARD.decode(text).expect("base64"))
    });
    // The API server trusts the same CA.
    let (ca, signed) = (admin.home.join("ca.crt"), admin.home.join("signed.crt"));
    std::fs::write(&ca, plane.ca()).expect("a file");
    std::fs::write(&signed, certificate).expect("a file");
    let mut verify = Command::new("openssl");
    let verified =
        verify.args(["verify", "-purpose", "sslclient", "-CAfile"]).arg(&ca).arg(&signed).output().expect("openssl");
    assert!(verified.status.success(), "{verified:?}");
}
