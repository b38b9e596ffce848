//! An API server that stops and comes back.

use crate::support::control_plane::ControlPlane;
use crate::{deployment, ok, ok_with, wait_for_pods};
use serde_json::Value;
use std::collections::BTreeSet;

#[test]
fn objects_and_controllers_survive_a_stop_of_the_api_server() {
    let plane = ControlPlane::start("outage");
    let namespace = "lasting";
    let admin = plane.namespace(namespace);
    ok_with(&admin, "create -f -", &deployment("web", 2, "none"));
    let uid = |uid: &Value| uid.as_str().unwrap_or_default().to_owned();
    let uids = |count| -> BTreeSet<String> {
        wait_for_pods(&plane, namespace, count).iter().map(|pod| uid(&pod["metadata"]["uid"])).collect()
    };
    let before = uids(2);
    plane.stop_api_server();
    let refused = admin.run("get pods");
    assert!(refused.code != 0 && refused.err.contains("refused"), "{refused:?}");
    plane.start_api_server();
    assert_eq!(uids(2), before);
    // The certificates are the same, so existing kubeconfigs are still accepted; the controller manager and the scheduler go on.
    ok(&admin, "scale deployment web --replicas=3");
    let after = uids(3);
    assert!(after.is_superset(&before), "{before:?} {after:?}");
    let new = after.difference(&before).next().expect("a new pod");
    let events = format!("/api/v1/namespaces/{namespace}/events?fieldSelector=reason=FailedScheduling");
    plane.wait("the scheduler has looked at the new pod", |plane| {
        plane.list(&events).iter().any(|event| event["involvedObject"]["uid"] == new.as_str())
    });
}
