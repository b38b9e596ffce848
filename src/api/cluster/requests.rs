//! The requests of a node to the API server, other than lists and watches (`watched`).

use super::paths::{self, LEASES, NODES, namespaced, object, with_query};
use super::request::{ApiRequest, BodyDelivery, Content, Method};
use crate::api::names::{FullName, Uid};
use serde::Serialize;
use serde_json::{Value, json};
use std::time::Duration;

/// The time limit of the server for requests that concern the Node and its Lease, as in a kubelet: a late answer is
/// of no use.
const LIMIT: [(&str, &str); 1] = [("timeout", "10s")];

fn request(method: Method, path: String, body: Option<(Content, String)>) -> ApiRequest {
    ApiRequest { method, path, body, reading: BodyDelivery::Whole }
}

pub(super) fn post(path: String, body: String) -> ApiRequest {
    request(Method::Post, path, Some((Content::Json, body)))
}

/// Registers the node. `body`: see `node::NodeReport::object`. 409 `AlreadyExists`: read the node instead.
pub fn create_node(body: String) -> ApiRequest {
    post(with_query(NODES, &LIMIT), body)
}

pub fn read_node(name: &str) -> ApiRequest {
    request(Method::Get, with_query(&object(NODES, name), &LIMIT), None)
}

/// Patches the status of the node. `body`: see `node_status::Sent::patch`.
pub fn patch_node_status(name: &str, body: String) -> ApiRequest {
    let path = with_query(&format!("{}/status", object(NODES, name)), &LIMIT);
    request(Method::Patch, path, Some((Content::StrategicMergePatch, body)))
}

/// Patches the node. `body`: see `cordon::patch`.
pub fn patch_node(name: &str, body: String) -> ApiRequest {
    let path = with_query(&object(NODES, name), &LIMIT);
    request(Method::Patch, path, Some((Content::MergePatch, body)))
}

/// Creates the Lease of the node. `body`: see `lease::new`.
pub fn create_lease(body: String) -> ApiRequest {
    post(with_query(LEASES, &LIMIT), body)
}

/// Renews the Lease of the node. `body`: see `lease::renewal`.
pub fn patch_lease(node: &str, body: String) -> ApiRequest {
    let path = with_query(&object(LEASES, node), &LIMIT);
    request(Method::Patch, path, Some((Content::MergePatch, body)))
}

fn pod(name: &FullName) -> String {
    object(&namespaced(&name.namespace, "pods"), &name.name)
}

/// Creates a mirror: a node may create only mirrors of its static pods.
pub fn create_pod(namespace: &str, body: String) -> ApiRequest {
    post(namespaced(namespace, "pods"), body)
}

/// Patches the status of a pod. `body`: see `pod_status::Reported::patch`. 409: another pod has the name.
pub fn patch_pod_status(name: &FullName, body: String) -> ApiRequest {
    let path = format!("{}/status", pod(name));
    request(Method::Patch, path, Some((Content::StrategicMergePatch, body)))
}

/// Removes the object of a pod whose containers have all ended. 409: another pod has the name.
pub fn delete_pod(name: &FullName, uid: &Uid) -> ApiRequest {
    let options = json!({
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": 0,
        "preconditions": { "uid": uid.as_str() },
    });
    request(Method::Delete, pod(name), Some((Content::Json, options.to_string())))
}

/// Creates an event. `body`: see `event::Event::object`.
pub fn create_event(namespace: &str, body: String) -> ApiRequest {
    post(namespaced(namespace, "events"), body)
}

/// Patches an event that has occurred again. `body`: see `event::Event::repeated`. 404: the event has expired and has
/// to be created again.
pub fn patch_event(namespace: &str, name: &str, body: String) -> ApiRequest {
    let path = object(&namespaced(namespace, "events"), name);
    request(Method::Patch, path, Some((Content::StrategicMergePatch, body)))
}

/// A token of a service account that is valid as long as the pod exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token<'a> {
    pub account: &'a str,
    pub pod: &'a FullName,
    pub uid: &'a Uid,
    /// The audience, which the spec of the pod has to name from Kubernetes 1.33 on. None: the API server itself.
    pub audience: Option<&'a str>,
    /// At least 10 minutes. The server may grant another lifetime.
    pub lifetime: Duration,
}

impl Token<'_> {
    /// Requests the token. The answer has `status.token` and `status.expirationTimestamp`.
    pub fn request(&self) -> ApiRequest {
        let mut spec = json!({
            "expirationSeconds": self.lifetime.as_secs(),
            "boundObjectRef": {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": &*self.pod.name,
                "uid": self.uid.as_str(),
            },
        });
        if let Some(audience) = self.audience {
            spec["audiences"] = json!([audience]);
        }
        let body = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec });
        let accounts = namespaced(&self.pod.namespace, "serviceaccounts");
        post(format!("{}/token", object(&accounts, self.account)), body.to_string())
    }
}

/// The purpose of a certificate. It determines the signer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Signer {
    /// The node's client certificate: its credential.
    Client,
    /// The certificate of the node's server.
    Serving,
}

/// Requests a certificate. 409 `AlreadyExists`: the same request was made before. `name`: see
/// `certificate::request_name`. `request`: the PKCS #10 request as base64 of its PEM text.
pub fn create_csr(name: &str, request: &str, signer: Signer) -> ApiRequest {
    let (signer, usage) = match signer {
        Signer::Client => ("kubernetes.io/kube-apiserver-client-kubelet", "client auth"),
        Signer::Serving => ("kubernetes.io/kubelet-serving", "server auth"),
    };
    // The key is not an RSA key, so it cannot encrypt keys. But signers before 1.22 demand the usage "key
    // encipherment", and later ones accept it.
    let usages = ["digital signature", "key encipherment", usage];
    let body: Value = json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": { "name": name },
        "spec": { "request": request, "signerName": signer, "usages": usages },
    });
    post(paths::CSRS.to_owned(), body.to_string())
}

pub fn read_csr(name: &str) -> ApiRequest {
    request(Method::Get, object(paths::CSRS, name), None)
}

/// Reads the cluster's kubeconfig without a user, and its signatures. In a kubeadm cluster, this needs no credential.
pub fn read_cluster_info() -> ApiRequest {
    request(Method::Get, object(&namespaced("kube-public", "configmaps"), "cluster-info"), None)
}

/// Reads the KubeletConfiguration of a kubeadm cluster. It is in `data.kubelet` of the response.
pub fn read_kubelet_configuration() -> ApiRequest {
    request(Method::Get, object(&namespaced("kube-system", "configmaps"), "kubelet-config"), None)
}

/// Reads the version of the server. It is in `gitVersion` of the response.
pub fn read_version() -> ApiRequest {
    request(Method::Get, "/version".to_owned(), None)
}

/// Asks whether the user of this connection has this permission. `resource` can have a subresource, such as
/// `nodes/status`. The answer has `status.allowed`.
pub fn review_own_access(verb: &str, group: &str, resource: &str, name: &str, namespace: &str) -> ApiRequest {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let body = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": { "resourceAttributes": {
            "verb": verb,
            "group": group,
            "resource": resource,
            "subresource": subresource,
            "name": name,
            "namespace": namespace,
        } },
    });
    post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews".to_owned(), body.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(request: &ApiRequest) -> Value {
        serde_json::from_str(&request.body.as_ref().unwrap().1).unwrap()
    }

    #[test]
    fn node_and_lease_have_a_time_limit() {
        for (request, expected) in [
            (create_node("{}".into()), "POST /api/v1/nodes?timeout=10s (2 bytes of application/json)"),
            (read_node("n1"), "GET /api/v1/nodes/n1?timeout=10s"),
            (
                patch_node_status("n1", "{}".into()),
                "PATCH /api/v1/nodes/n1/status?timeout=10s (2 bytes of application/strategic-merge-patch+json)",
            ),
            (
                patch_node("n1", "{}".into()),
                "PATCH /api/v1/nodes/n1?timeout=10s (2 bytes of application/merge-patch+json)",
            ),
            (
                create_lease("{}".into()),
                "POST /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases?timeout=10s (2 bytes of \
                 application/json)",
            ),
            (
                patch_lease("n1", "{}".into()),
                "PATCH /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1?timeout=10s (2 bytes of \
                 application/merge-patch+json)",
            ),
        ] {
            assert_eq!(format!("{request:?}"), expected);
        }
    }

    #[test]
    fn requests_of_a_pod_name_its_uid() {
        let (name, uid) = (FullName::new("default", "life"), Uid::from("450ff913-c90e-4319-85e2-250652e43c46"));
        assert_eq!(patch_pod_status(&name, "{}".into()).path, "/api/v1/namespaces/default/pods/life/status");
        let delete = delete_pod(&name, &uid);
        assert_eq!((delete.method, delete.path.as_str()), (Method::Delete, "/api/v1/namespaces/default/pods/life"));
        assert_eq!(body(&delete)["gracePeriodSeconds"], 0);
        assert_eq!(body(&delete)["preconditions"], json!({ "uid": "450ff913-c90e-4319-85e2-250652e43c46" }));
    }

    #[test]
    fn a_token_is_bound_to_its_pod() {
        let (name, uid) = (FullName::new("default", "life"), Uid::from("u"));
        let lifetime = Duration::from_secs(3607);
        let token = Token { account: "default", pod: &name, uid: &uid, audience: None, lifetime };
        let request = token.request();
        assert_eq!(request.path, "/api/v1/namespaces/default/serviceaccounts/default/token");
        assert_eq!(
            body(&request),
            json!({
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {
                    "expirationSeconds": 3607,
                    "boundObjectRef": { "apiVersion": "v1", "kind": "Pod", "name": "life", "uid": "u" },
                },
            })
        );
        let vault = Token { audience: Some("vault"), ..token };
        assert_eq!(body(&vault.request())["spec"]["audiences"], json!(["vault"]));
    }

    #[test]
    fn certificates_are_requested_for_a_use() {
        let request = create_csr("node-csr-1", "LS0t", Signer::Client);
        assert_eq!(request.path, "/apis/certificates.k8s.io/v1/certificatesigningrequests");
        assert_eq!(body(&request)["metadata"]["name"], "node-csr-1");
        let spec = &body(&request)["spec"];
        assert_eq!(spec["usages"], json!(["digital signature", "key encipherment", "client auth"]));
        assert_eq!(spec["signerName"], "kubernetes.io/kube-apiserver-client-kubelet");
        assert_eq!(body(&create_csr("x", "", Signer::Serving))["spec"]["usages"][2], "server auth");
        assert_eq!(read_csr("csr-x").path, format!("{}/csr-x", request.path));
    }
}
