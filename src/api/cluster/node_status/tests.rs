use super::super::node::tests::{NOW, conditions, report};
use super::super::node::{Address, HandlerFeatures, Image, RuntimeHandler};
use super::*;
use crate::api::kube::strategic;

fn registered() -> Value {
    serde_json::from_str(&report().object(NOW)).unwrap()
}

fn later(seconds: i64) -> Wall {
    Wall(NOW.0 + seconds * 1_000_000_000)
}

/// Patches the server's node, and lets the node see the answer.
fn send(sent: &mut Sent, node: &mut Value, report: &NodeReport, now: Wall, heartbeat: bool) -> Option<Value> {
    let (body, after) = sent.patch(report, now, heartbeat)?;
    let patch: Value = serde_json::from_str(&body).unwrap();
    *node = strategic::merge(node.clone(), patch.clone()).unwrap();
    *sent = after;
    sent.observe(node);
    Some(patch)
}

#[test]
fn only_a_change_or_the_period_is_a_reason_for_a_patch() {
    let (mut node, mut report) = (registered(), report());
    let mut sent = Sent::of(&node);
    assert_eq!(send(&mut sent, &mut node, &report, later(10), false), None);
    report.conditions = conditions(None);
    let patch = send(&mut sent, &mut node, &report, later(20), false).unwrap();
    let status = patch["status"].as_object().unwrap();
    assert_eq!((status.len(), patch.as_object().unwrap().len()), (1, 1));
    let expected = json!({
        "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status",
        "lastHeartbeatTime": "2026-11-22T07:40:45Z", "lastTransitionTime": "2026-11-22T07:40:45Z",
    });
    assert_eq!(status["conditions"][3], expected);
    // A condition that has not changed keeps its transition time.
    assert_eq!(status["conditions"][0]["lastTransitionTime"], "2026-11-22T07:40:25Z");
    assert_eq!(status["conditions"][0]["lastHeartbeatTime"], "2026-11-22T07:40:45Z");
    assert_eq!(send(&mut sent, &mut node, &report, later(30), false), None);
    let beat = send(&mut sent, &mut node, &report, later(320), true).unwrap();
    assert_eq!(beat["status"].as_object().unwrap().len(), 1);
    assert_eq!(beat["status"]["conditions"][3]["lastTransitionTime"], "2026-11-22T07:40:45Z");
}

#[test]
fn a_condition_that_another_set_is_corrected_and_others_conditions_stay() {
    let mut node = registered();
    let report = NodeReport { conditions: conditions(None), ..report() };
    let mut sent = Sent::of(&node);
    send(&mut sent, &mut node, &report, later(1), false).unwrap();
    for (i, status) in [(3, "Unknown"), (0, "Unknown")] {
        node["status"]["conditions"][i]["status"] = status.into();
        node["status"]["conditions"][i]["reason"] = "NodeStatusUnknown".into();
    }
    let network = json!({ "type": "NetworkUnavailable", "status": "False", "reason": "FlannelIsUp" });
    node["status"]["conditions"].as_array_mut().unwrap().push(network.clone());
    sent.observe(&node);
    let patch = send(&mut sent, &mut node, &report, later(100), false).unwrap();
    assert_eq!(patch["status"]["conditions"].as_array().unwrap().len(), 4);
    assert_eq!(node["status"]["conditions"][3]["lastTransitionTime"], "2026-11-22T07:42:05Z");
    assert_eq!(node["status"]["conditions"][4], network);
    assert_eq!(send(&mut sent, &mut node, &report, later(110), false), None);
}

#[test]
fn addresses_are_replaced_and_resources_removed() {
    let (mut node, mut report) = (registered(), report());
    let mut sent = Sent::of(&node);
    let address = |kind: &str, address: &str| Address { kind: kind.into(), address: address.into() };
    report.addresses =
        vec![address("InternalIP", "10.0.0.2"), address("InternalIP", "fd00::2"), address("Hostname", "n1")];
    report.capacity.set("pods", 0);
    report.capacity.set("cpu", 1500);
    let patch = send(&mut sent, &mut node, &report, later(1), false).unwrap();
    let addresses = &patch["status"]["addresses"];
    assert_eq!((&addresses[0], addresses.as_array().unwrap().len()), (&json!({ "$patch": "replace" }), 4));
    assert_eq!(patch["status"]["capacity"], json!({ "cpu": "1500m", "memory": "24684096Ki", "pods": null }));
    assert_eq!(node["status"]["capacity"], json!({ "cpu": "1500m", "memory": "24684096Ki" }));
    assert_eq!(send(&mut sent, &mut node, &report, later(2), false), None);
    // Without addresses on the server, there is nothing to replace.
    let mut bare = registered();
    bare["status"].as_object_mut().unwrap().remove("addresses");
    let (body, _) = Sent::of(&bare).patch(&report, later(1), false).unwrap();
    let patch: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(patch["status"]["addresses"][0]["type"], "InternalIP");
}

#[test]
fn labels_and_annotations_are_in_the_same_patch() {
    let (mut node, mut report) = (registered(), report());
    node["metadata"]["labels"]["example.com/other"] = "x".into();
    let mut sent = Sent::of(&node);
    report.labels.insert("example.com/a".into(), "1".into());
    let patch = send(&mut sent, &mut node, &report, later(1), false).unwrap();
    assert_eq!(patch["metadata"], json!({ "labels": { "example.com/a": "1" } }));
    assert_eq!(node["metadata"]["labels"]["example.com/other"], "x");
    assert_eq!(send(&mut sent, &mut node, &report, later(2), false), None);
    // Another client changes the label.
    node["metadata"]["labels"]["example.com/a"] = "2".into();
    sent.observe(&node);
    assert_eq!(send(&mut sent, &mut node, &report, later(3), false), None);
    // The configuration changes.
    report.labels.insert("example.com/a".into(), "3".into());
    let patch = send(&mut sent, &mut node, &report, later(4), false).unwrap();
    assert_eq!(patch["metadata"], json!({ "labels": { "example.com/a": "3" } }));
}

#[test]
fn at_its_registration_a_node_corrects_only_the_labels_of_its_machine() {
    let (mut node, mut report) = (registered(), report());
    report.labels.insert("example.com/a".into(), "1".into());
    report.labels.insert("example.com/b".into(), "1".into());
    node["metadata"]["labels"] = json!({ "kubernetes.io/os": "plan9", "example.com/a": "2" });
    let mut sent = Sent::of(&node);
    sent.begin(&report);
    let patch = send(&mut sent, &mut node, &report, later(1), false).unwrap();
    let expected = json!({ "example.com/b": "1", "kubernetes.io/hostname": "n1", "kubernetes.io/os": "linux" });
    assert_eq!(patch["metadata"]["labels"], expected);
    node["metadata"]["labels"]["kubernetes.io/os"] = "plan9".into();
    sent.observe(&node);
    sent.begin(&report);
    assert_eq!(send(&mut sent, &mut node, &report, later(3), false), None);
}

#[test]
fn a_condition_that_the_server_does_not_store_is_sent_once() {
    let mut node = registered();
    let report = NodeReport { conditions: conditions(None), ..report() };
    let sent = Sent::of(&node);
    let (_, mut after) = sent.patch(&report, later(1), false).unwrap();
    for _ in 0..2 {
        after.observe(&node);
        assert_eq!(after.patch(&report, later(2), false), None);
    }
    // Another change is reported.
    node["status"]["conditions"][3]["status"] = "Unknown".into();
    after.observe(&node);
    assert!(after.patch(&report, later(3), false).is_some());
}

#[test]
fn images_wait_for_the_next_patch() {
    let (mut node, mut report) = (registered(), report());
    let mut sent = Sent::of(&node);
    report.images.insert(0, Image { names: vec!["i:1".into()], size_bytes: 1_000_000 });
    assert_eq!(send(&mut sent, &mut node, &report, later(1), false), None);
    let patch = send(&mut sent, &mut node, &report, later(2), true).unwrap();
    assert_eq!(patch["status"]["images"].as_array().unwrap().len(), 2);
    report.images.clear();
    let patch = send(&mut sent, &mut node, &report, later(3), true).unwrap();
    assert_eq!(patch["status"]["images"], Value::Null);
    let patch = send(&mut sent, &mut node, &report, later(4), true).unwrap();
    assert_eq!(patch["status"].as_object().unwrap().len(), 1);
}

#[test]
fn a_field_that_an_old_server_drops_is_sent_once() {
    let (mut node, mut report) = (registered(), report());
    let features = HandlerFeatures { recursive_read_only_mounts: true, user_namespaces: true };
    report.runtime_handlers.push(RuntimeHandler { name: "runc".into(), features });
    let mut sent = Sent::of(&node);
    let (body, mut after) = sent.patch(&report, later(1), false).unwrap();
    let patch: Value = serde_json::from_str(&body).unwrap();
    let expected = json!([{ "name": "runc", "features": { "recursiveReadOnlyMounts": true, "userNamespaces": true } }]);
    assert_eq!(patch["status"]["runtimeHandlers"], expected);
    // Neither the answer nor a later state has the field.
    for _ in 0..2 {
        after.observe(&node);
        sent = after.clone();
        assert_eq!(send(&mut sent, &mut node, &report, later(2), false), None);
    }
    report.runtime_handlers[0].name = "crun".into();
    assert!(send(&mut sent, &mut node, &report, later(3), false).is_some());
}

#[test]
fn an_older_state_is_not_current() {
    let mut node = registered();
    assert!(Sent::of(&node).is_current(&node));
    node["metadata"]["resourceVersion"] = "225".into();
    let sent = Sent::of(&node);
    for (version, expected) in [("224", false), ("225", true), ("1000", true), ("x", true)] {
        node["metadata"]["resourceVersion"] = version.into();
        assert_eq!(sent.is_current(&node), expected, "{version}");
    }
}

#[test]
fn a_foreign_object_is_taken_for_a_node_without_anything() {
    for node in [Value::Null, json!([]), json!({ "metadata": 1, "status": { "conditions": [1, {}], "addresses": 7 } })]
    {
        let (body, _) = Sent::of(&node).patch(&report(), Wall(0), false).unwrap();
        assert!(serde_json::from_str::<Value>(&body).unwrap()["status"]["addresses"].is_array());
    }
}
