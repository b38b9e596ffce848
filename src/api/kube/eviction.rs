//! The body of `pods/eviction` (policy/v1), and the form in which the API shows pods that are not on the node.

use super::pod_row::text;
use super::status::Failure;
use crate::api::uid::digest_of_bytes;
use serde_json::{Value, json};

/// An eviction that a client requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    pub grace_seconds: Option<u64>,
    /// The preconditions `uid` and `resourceVersion`; each is empty if it is not set.
    pub uid: String,
    pub resource_version: String,
    pub dry_run: bool,
}

const KIND: &str = "Eviction";
const VERSIONS: [&str; 2] = ["policy/v1", "policy/v1beta1"];

/// Reads the body of a request for this pod.
///
/// # Errors
/// The object is not an Eviction, or names another pod.
pub fn read(object: &Value, namespace: &str, name: &str) -> Result<Eviction, Failure> {
    let version = text(object, "/apiVersion");
    // An eviction of kubectl 1.20 has no kind.
    if !matches!(text(object, "/kind"), KIND | "") || !(version.is_empty() || VERSIONS.contains(&version)) {
        let expected = VERSIONS.join(" or ");
        let why = format!("expected kind {KIND:?} of {expected}, found {:?} of {version:?}", text(object, "/kind"));
        return Err(Failure::bad_request(why));
    }
    for (field, own) in [("name", name), ("namespace", namespace)] {
        let wanted = text(object, &format!("/metadata/{field}"));
        if !wanted.is_empty() && wanted != own {
            let why = format!("{field} of the eviction is {wanted:?}, but the request is for {own:?}");
            return Err(Failure::bad_request(why));
        }
    }
    let options = object.get("deleteOptions").unwrap_or(&Value::Null);
    if !matches!(options, Value::Null | Value::Object(_)) {
        return Err(Failure::bad_request("deleteOptions of the eviction is not a map"));
    }
    let grace_seconds = match options.get("gracePeriodSeconds") {
        None | Some(Value::Null) => None,
        Some(seconds) => Some(seconds.as_u64().ok_or_else(|| {
            Failure::bad_request(format!(
                "deleteOptions.gracePeriodSeconds is {seconds}; it must be a number of seconds"
            ))
        })?),
    };
    let dry_run = options.get("dryRun").and_then(Value::as_array).is_some_and(|all| all.iter().any(|v| v == "All"));
    let precondition = |field: &str| text(options, &format!("/preconditions/{field}")).to_owned();
    Ok(Eviction { grace_seconds, uid: precondition("uid"), resource_version: precondition("resourceVersion"), dry_run })
}

/// Returns the answer to a successful eviction.
pub fn success() -> Value {
    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201 })
}

/// Returns the UID of the successor of a pod that has ended and waits to start again. The UID is the same after a
/// restart of Wherry.
pub fn successor_uid(uid: &str) -> String {
    let digest = digest_of_bytes(format!("successor/{uid}").as_bytes());
    let part = |range: std::ops::Range<usize>| digest.get(range).unwrap_or_default().to_owned();
    [part(0..8), part(8..12), part(12..16), part(16..20), part(20..32)].join("-")
}

/// Shows the pod as one that no scheduler has placed on a node yet. `why`: what has to happen before it can start.
pub fn unschedule(pod: &mut Value, why: &str) {
    leave(pod);
    let qos = pod.pointer("/status/qosClass").cloned();
    let scheduled = json!({
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": why,
        "lastProbeTime": null,
        "lastTransitionTime": pod.pointer("/metadata/creationTimestamp"),
    });
    pod["status"] = json!({ "phase": "Pending", "conditions": [scheduled] });
    if let Some(qos) = qos {
        pod["status"]["qosClass"] = qos;
    }
}

/// Shows the pod without a node.
pub fn leave(pod: &mut Value) {
    if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("nodeName");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn eviction() -> Value {
        json!({
            "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": "web", "namespace": "shop" },
            "deleteOptions": { "gracePeriodSeconds": 5, "preconditions": { "uid": "u" }, "dryRun": ["All"] },
        })
    }

    fn with(path: &str, value: Value) -> Value {
        let mut object = eviction();
        *object.pointer_mut(path).unwrap() = value;
        object
    }

    #[test]
    fn a11_an_eviction_has_options_and_preconditions() {
        let expected =
            Eviction { grace_seconds: Some(5), uid: "u".to_owned(), resource_version: String::new(), dry_run: true };
        assert_eq!(read(&eviction(), "shop", "web"), Ok(expected.clone()));
        assert_eq!(read(&with("/apiVersion", "policy/v1beta1".into()), "shop", "web"), Ok(expected));
        let none = read(&with("/deleteOptions", Value::Null), "shop", "web").unwrap();
        assert_eq!((none.grace_seconds, none.dry_run), (None, false));
    }

    #[test]
    fn a11_an_invalid_eviction_is_a_bad_request() {
        for (path, value) in [
            ("/apiVersion", json!("policy/v2")),
            ("/kind", json!("Pod")),
            ("/metadata/name", json!("other")),
            ("/metadata/namespace", json!("other")),
            ("/deleteOptions", json!([])),
            ("/deleteOptions/gracePeriodSeconds", json!(-1)),
            ("/deleteOptions/gracePeriodSeconds", json!("x")),
        ] {
            assert_eq!(read(&with(path, value), "shop", "web").unwrap_err().code, 400, "{path}");
        }
    }

    #[test]
    fn a11_a_successor_has_its_own_uid_and_no_node() {
        assert_eq!(successor_uid("u"), successor_uid("u"));
        assert_ne!(successor_uid("u"), successor_uid("v"));
        let mut pod = json!({
            "metadata": { "name": "web" }, "spec": { "nodeName": "n", "containers": [] },
            "status": { "phase": "Failed", "qosClass": "BestEffort", "containerStatuses": [{}] },
        });
        unschedule(&mut pod, "the reason");
        assert_eq!(pod["spec"], json!({ "containers": [] }));
        assert_eq!((&pod["status"]["phase"], &pod["status"]["qosClass"]), (&"Pending".into(), &"BestEffort".into()));
        assert_eq!(pod["status"]["conditions"][0]["message"], "the reason");
        assert!(pod["status"].get("containerStatuses").is_none());
    }
}
