//! A Deployment, with the controller manager and the scheduler between it and a node.

use crate::support::control_plane::ControlPlane;
use crate::{deployment, node, ok, ok_with, pods, report_ready, wait_for_pods};

#[test]
fn pods_of_a_deployment_wait_for_a_node_and_go_to_one_that_is_ready() {
    let plane = ControlPlane::shared();
    let (namespace, name) = ("waiting", "waited-for");
    let admin = plane.namespace(namespace);
    ok_with(&admin, "create -f -", &deployment("web", 2, name));
    wait_for_pods(plane, namespace, 2);
    let events = format!("/api/v1/namespaces/{namespace}/events?fieldSelector=reason=FailedScheduling");
    plane.wait("both pods have a FailedScheduling event", |plane| {
        let events = plane.list(&events);
        let named =
            |pod: &serde_json::Value| events.iter().any(|e| e["involvedObject"]["uid"] == pod["metadata"]["uid"]);
        pods(plane, namespace).iter().all(named)
    });
    for pod in pods(plane, namespace) {
        assert_eq!(pod["status"]["phase"], "Pending", "{pod:#}");
        assert_eq!(pod["spec"]["nodeName"], serde_json::Value::Null, "{pod:#}");
    }
    // A new node has a taint until it is ready.
    let kubectl = plane.kubectl_of_node(name, namespace);
    ok_with(&kubectl, "create -f -", &node(name));
    let created = plane.get(&format!("/api/v1/nodes/{name}")).expect("the node");
    assert_eq!(created["spec"]["taints"][0]["key"], "node.kubernetes.io/not-ready", "{created:#}");
    plane.wait("both pods are on the node", |plane| {
        report_ready(&kubectl, name);
        pods(plane, namespace).iter().all(|pod| pod["spec"]["nodeName"] == name)
    });
    // A pod that is deleted before it started is replaced.
    let first = pods(plane, namespace)[0]["metadata"].clone();
    ok(&admin, &format!("delete pod {} --grace-period=0 --force", first["name"].as_str().expect("a name")));
    plane.wait("the deleted pod is replaced", |plane| {
        report_ready(&kubectl, name);
        let now = pods(plane, namespace);
        now.len() == 2
            && now.iter().all(|pod| pod["metadata"]["uid"] != first["uid"] && pod["spec"]["nodeName"] == name)
    });
    ok(&admin, &format!("delete namespace {namespace} --wait=false"));
    ok(&admin, &format!("delete node {name}"));
}
