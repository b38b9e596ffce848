//! The tokens of service accounts.

use crate::support::control_plane::ControlPlane;
use crate::support::kubectl::Kubectl;
use crate::{forbidden, node, ok, ok_with};
use serde_json::{Value, json};

#[test]
fn a_pod_gets_a_projected_token_that_only_its_node_can_request() {
    let plane = ControlPlane::shared();
    let (namespace, name, other) = ("tokens", "issuer", "other-issuer");
    let admin = plane.namespace(namespace);
    let [kubectl, foreign] = [name, other].map(|name| {
        let kubectl = plane.kubectl_of_node(name, namespace);
        ok_with(&kubectl, "create -f -", &node(name));
        kubectl
    });
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "user" },
        "spec": { "nodeName": name, "containers": [{ "name": "main", "image": "x" }] } });
    let pod: Value = serde_json::from_str(&ok_with(&admin, "create -o json -f -", &pod.to_string())).expect("JSON");
    // Admission has added the volume, as it is since 1.21.
    let sources = &pod["spec"]["volumes"][0]["projected"]["sources"];
    assert_eq!(sources[0]["serviceAccountToken"]["expirationSeconds"], 3607, "{pod:#}");
    assert_eq!(sources[1]["configMap"]["name"], "kube-root-ca.crt", "{pod:#}");
    assert_eq!(sources[2]["downwardAPI"]["items"][0]["path"], "namespace", "{pod:#}");
    assert_eq!(
        pod["spec"]["containers"][0]["volumeMounts"][0]["mountPath"],
        "/var/run/secrets/kubernetes.io/serviceaccount"
    );
    let request = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {
        "expirationSeconds": 3607, "audiences": ["https://kubernetes.default.svc"],
        "boundObjectRef": { "apiVersion": "v1", "kind": "Pod", "name": "user", "uid": pod["metadata"]["uid"] } } })
    .to_string();
    let line = format!("create --raw /api/v1/namespaces/{namespace}/serviceaccounts/default/token -f -");
    plane.wait("the authorizer knows the pod", |_| kubectl.run_with(&line, request.as_bytes()).code == 0);
    let issued: Value = serde_json::from_str(&ok_with(&kubectl, &line, &request)).expect("JSON");
    let token = issued["status"]["token"].as_str().expect("a token").to_owned();
    forbidden(&foreign, &line, &request);
    let user = review(&admin, &token);
    assert_eq!(user["user"]["username"], format!("system:serviceaccount:{namespace}:default"), "{user:#}");
    ok(&admin, "delete pod user --grace-period=0 --force");
    // The server may remember a token that it has verified for ten seconds.
    plane.wait("the token ends with the pod", |_| review(&admin, &token)["authenticated"] != true);
    ok(&admin, &format!("delete node {name} {other}"));
}

/// What the server says of a token.
fn review(admin: &Kubectl, token: &str) -> Value {
    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": { "token": token } });
    let line = "create --raw /apis/authentication.k8s.io/v1/tokenreviews -f -";
    let answer: Value = serde_json::from_str(&ok_with(admin, line, &review.to_string())).expect("JSON");
    answer["status"].clone()
}
