//! The Lease of the node, whose renewals tell the cluster that the node is alive.

use crate::api::time::Wall;
use serde::Serialize;
use serde_json::{Value, json};

/// The namespace of the leases of nodes.
pub const NAMESPACE: &str = "kube-node-lease";
/// The default of a kubelet (`nodeLeaseDurationSeconds`). A node renews its lease after a quarter of it.
pub const DURATION_S: u32 = 40;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct New<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata<'a>,
    spec: Spec<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    name: &'a str,
    namespace: &'static str,
    owner_references: [Value; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Spec<'a> {
    holder_identity: &'a str,
    lease_duration_seconds: u32,
    renew_time: String,
}

/// RFC 3339 with microseconds, the form of `MicroTime`.
fn micro(now: Wall) -> String {
    format!("{:.6}", now.timestamp().unwrap_or(jiff::Timestamp::UNIX_EPOCH))
}

/// The owner, with which the cluster removes the lease.
fn owner(node: &str, uid: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Node", "name": node, "uid": uid })
}

/// A new lease in JSON. `uid`: of the object Node; without it a lease would outlive its node.
pub fn new(node: &str, uid: &str, duration_s: u32, now: Wall) -> String {
    let lease = New {
        api_version: "coordination.k8s.io/v1",
        kind: "Lease",
        metadata: Metadata { name: node, namespace: NAMESPACE, owner_references: [owner(node, uid)] },
        spec: Spec { holder_identity: node, lease_duration_seconds: duration_s, renew_time: micro(now) },
    };
    // The type has no keys that JSON lacks.
    serde_json::to_string(&lease).unwrap_or_default()
}

/// A renewal as a merge patch. It is a tenth of the bytes of `Lease::renewed` and needs no version, but is not noticed if another
/// holder has taken the lease.
pub fn renewal(now: Wall) -> String {
    json!({ "spec": { "renewTime": micro(now) } }).to_string()
}

/// The lease as the server has answered it last. A renewal returns it with a new time, so that everything else of it stays.
#[derive(Clone, Debug, PartialEq)]
pub struct Lease(Value);

impl Lease {
    /// # Errors
    /// The answer is not a lease with a UID and a resource version.
    pub fn parse(body: &[u8]) -> Result<Lease, String> {
        let mut lease: Value = serde_json::from_slice(body).map_err(|e| format!("the answer is not a Lease: {e}"))?;
        if lease.get("kind").and_then(Value::as_str) != Some("Lease") || !lease["spec"].is_object() {
            return Err("the answer is not a Lease".to_owned());
        }
        super::list::strip(&mut lease).map_err(|why| format!("the Lease {why}"))?;
        let lease = Lease(lease);
        if lease.uid().is_empty() {
            return Err("the Lease has no uid".to_owned());
        }
        Ok(lease)
    }

    fn metadata(&self, field: &str) -> &str {
        self.0["metadata"][field].as_str().unwrap_or_default()
    }

    pub fn uid(&self) -> &str {
        self.metadata("uid")
    }

    pub fn resource_version(&self) -> &str {
        self.metadata("resourceVersion")
    }

    /// The lease in JSON with a new time, for a PUT. The resource version makes it conditional.
    pub fn renewed(&self, node: &str, node_uid: &str, duration_s: u32, now: Wall) -> String {
        let mut lease = self.0.clone();
        let owners = &mut lease["metadata"]["ownerReferences"];
        let is_ours = |owner: &Value| owner["kind"] == "Node" && owner["uid"] == node_uid;
        if !owners.as_array().is_some_and(|list| list.iter().any(is_ours)) {
            // The node was registered anew: the owner with the old UID would have the lease removed.
            *owners = json!([owner(node, node_uid)]);
        }
        lease["spec"]["holderIdentity"] = node.into();
        lease["spec"]["leaseDurationSeconds"] = duration_s.into();
        lease["spec"]["renewTime"] = micro(now).into();
        lease.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-22T07:40:35.310631Z
    const NOW: Wall = Wall(1_795_333_235_310_631_999);

    fn value(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    fn recorded() -> Value {
        let owner = json!({ "apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "502b4faa" });
        json!({
            "kind": "Lease",
            "apiVersion": "coordination.k8s.io/v1",
            "metadata": { "name": "n1", "namespace": "kube-node-lease", "ownerReferences": [owner] },
            "spec": { "holderIdentity": "n1", "leaseDurationSeconds": 40, "renewTime": "2026-11-22T07:40:35.310631Z" },
        })
    }

    #[test]
    fn a_new_lease_is_that_of_a_kubelet() {
        assert_eq!(value(&new("n1", "502b4faa", DURATION_S, NOW)), recorded());
    }

    #[test]
    fn a_renewal_keeps_what_others_wrote() {
        let mut answer = recorded();
        answer["metadata"]["uid"] = "b17e".into();
        answer["metadata"]["resourceVersion"] = "228".into();
        answer["metadata"]["labels"] = json!({ "a": "b" });
        let mut expected = answer.clone();
        answer["metadata"]["managedFields"] = json!([{ "manager": "x" }]);
        answer["spec"]["renewTime"] = "2026-01-01T00:00:00.000000Z".into();
        expected["spec"]["renewTime"] = "2026-11-22T07:40:35.310631Z".into();
        let lease = Lease::parse(answer.to_string().as_bytes()).unwrap();
        assert_eq!((lease.uid(), lease.resource_version()), ("b17e", "228"));
        assert_eq!(value(&lease.renewed("n1", "502b4faa", DURATION_S, NOW)), expected);
        let anew = value(&lease.renewed("n1", "other", DURATION_S, NOW));
        assert_eq!(anew["metadata"]["ownerReferences"][0]["uid"], "other");
        assert_eq!(value(&renewal(NOW)), json!({ "spec": { "renewTime": "2026-11-22T07:40:35.310631Z" } }));
    }

    #[test]
    fn a_foreign_answer_is_no_lease() {
        let mut unnamed = recorded();
        unnamed["metadata"] = json!({});
        let mut odd = recorded();
        odd["metadata"] = json!({ "name": "n1", "uid": "u", "resourceVersion": "1" });
        odd["spec"] = json!(7);
        for body in ["", "{}", "[]", "7", r#"{"kind": "Status"}"#, &unnamed.to_string(), &odd.to_string()] {
            assert!(Lease::parse(body.as_bytes()).is_err(), "{body}");
        }
        let mut owners = recorded();
        owners["metadata"] = json!({ "name": "n1", "uid": "u", "resourceVersion": "1", "ownerReferences": [7] });
        let lease = Lease::parse(owners.to_string().as_bytes()).unwrap();
        assert!(lease.renewed("n1", "u", 40, Wall(0)).contains("1970-01-01T00:00:00.000000Z"));
    }
}
