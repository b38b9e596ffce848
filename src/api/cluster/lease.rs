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

/// Formats a time in RFC 3339 with microseconds, the format of `MicroTime`.
fn micro(now: Wall) -> String {
    format!("{:.6}", now.timestamp().unwrap_or(jiff::Timestamp::UNIX_EPOCH))
}

/// Returns the owner of the lease: the cluster removes the lease together with it.
fn owner(node: &str, uid: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Node", "name": node, "uid": uid })
}

/// Returns a new lease in JSON. `uid`: the UID of the Node object; without it, a lease would outlive its node.
pub fn new(node: &str, uid: &str, duration_s: u32, now: Wall) -> String {
    let lease = New {
        api_version: "coordination.k8s.io/v1",
        kind: "Lease",
        metadata: Metadata { name: node, namespace: NAMESPACE, owner_references: [owner(node, uid)] },
        spec: Spec { holder_identity: node, lease_duration_seconds: duration_s, renew_time: micro(now) },
    };
    // Serialization cannot fail: all keys are strings.
    serde_json::to_string(&lease).unwrap_or_default()
}

/// Returns a renewal as a merge patch. The patch is much smaller than a kubelet's PUT and needs no version, but does
/// not notice that another holder has taken the lease.
///
/// `managed`: the server keeps `managedFields`, the list of the fields that each client has set. Otherwise, an empty
/// entry in the patch removes the list from the object.
pub fn renewal(now: Wall, managed: bool) -> String {
    let mut patch = json!({ "spec": { "renewTime": micro(now) } });
    if !managed {
        patch["metadata"] = json!({ "managedFields": [{}] });
    }
    patch.to_string()
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
    fn a_renewal_changes_only_the_time() {
        assert_eq!(value(&renewal(NOW, true)), json!({ "spec": { "renewTime": "2026-11-22T07:40:35.310631Z" } }));
        assert_eq!(value(&renewal(NOW, false))["metadata"], json!({ "managedFields": [{}] }));
        assert!(renewal(Wall(0), true).contains("1970-01-01T00:00:00.000000Z"));
    }
}
