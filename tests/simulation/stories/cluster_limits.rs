//! C17: an API server that sends too much, or what makes no sense.

use crate::runtime::Life;
use crate::stories::cluster::{cluster, member, running};
use crate::story::{ONE, node_with};
use crate::world::api_server::{OfNode, PODS};
use crate::world::{Fault, World};
use serde_json::{Value, json};
use wherry::api::resources;

/// A member with room for ten pods.
fn small() -> World {
    let mut config = cluster();
    config.node.capacity.set(resources::PODS, 10);
    config.node.allocatable.set(resources::PODS, 10);
    let mut w = node_with(config);
    w.run(5);
    w
}

fn bind(w: &mut World, numbers: std::ops::Range<u32>) {
    for n in numbers {
        w.api_pod(&format!("pod-{n:03}"), &format!("uid-{n:03}"), ONE);
    }
}

/// The numbers of pods at the server in each phase, with the reason.
fn phases(w: &World) -> Vec<(String, usize)> {
    let mut all = std::collections::BTreeMap::new();
    for pod in w.api.bound() {
        let text = |field: &str| pod["status"][field].as_str().unwrap_or_default().to_owned();
        *all.entry(format!("{} {}", text("phase"), text("reason")).trim().to_owned()).or_default() += 1;
    }
    all.into_iter().collect()
}

fn expected(failed: usize) -> Vec<(String, usize)> {
    vec![("Failed OutOfpods".to_owned(), failed), ("Running".to_owned(), 10)]
}

#[test]
fn c17_pods_beyond_what_the_node_can_hold_are_rejected() {
    for by_list in [true, false] {
        let mut w = small();
        if by_list {
            w.kill_engine();
            bind(&mut w, 0..70);
            w.start();
        } else {
            bind(&mut w, 0..70);
        }
        w.run(60);
        assert_eq!(phases(&w), expected(60), "{by_list}: {}", w.trace());
        // Twice the room of the node is read completely, for admission.
        assert!(w.engine.pods().len() <= 20, "{}", w.engine.pods().len());
        let notices = w.notices("ApiServerError");
        assert!(matches!(notices.as_slice(), [one] if one.contains("beyond the 20")), "{notices:?}");
        // They are deleted as any others.
        for n in 0..70 {
            w.api_delete_pod(&format!("pod-{n:03}"), 1);
        }
        w.run(60);
        assert_eq!(w.api.bound().count(), 0, "{}", w.trace());
        bind(&mut w, 100..105);
        w.run(10);
        assert!(w.runs("pod-104/main"), "{}", w.trace());
    }
}

#[test]
fn c17_pods_that_run_stay_beside_too_many_others() {
    let mut w = small();
    w.api_pod("zebra", "uid-z", ONE);
    w.run(5);
    let first = w.running("zebra/main");
    w.kill_engine();
    bind(&mut w, 0..70);
    w.start();
    w.run(60);
    assert_eq!((w.running("zebra/main"), phases(&w)), (first, expected(61)), "{}", w.trace());
}

#[test]
fn c17_pods_that_have_ended_take_no_room() {
    let mut w = small();
    w.kill_engine();
    for n in 0..60 {
        w.api_pod(&format!("job-{n:03}"), &format!("job-{n:03}"), ONE);
        let mut pod = w.api.pod(&format!("job-{n:03}")).cloned().expect("a pod");
        pod["status"]["phase"] = json!("Succeeded");
        w.api_set(PODS, pod);
    }
    bind(&mut w, 0..5);
    w.start();
    w.run(30);
    let wanted = [("Running".to_owned(), 5), ("Succeeded".to_owned(), 60)];
    assert_eq!(phases(&w), wanted, "{}", w.trace());
    assert!(w.notices("ApiServerError").is_empty(), "{:?}", w.notices("ApiServerError"));
}

#[test]
fn c17_rejections_of_excess_pods_are_repeated_until_they_succeed() {
    let mut w = small();
    bind(&mut w, 0..20);
    w.run(10);
    w.api_refuses_for(20 * crate::world::S, 1);
    bind(&mut w, 20..40);
    w.run(90);
    assert_eq!(phases(&w), expected(30), "{}", w.trace());
}

/// Without its UID the object is unusable.
fn spoil(w: &mut World, name: &str) {
    let mut pod = w.api.pod(name).cloned().expect("a pod");
    pod["metadata"]["uid"] = Value::Null;
    w.api_set(PODS, pod);
}

#[test]
fn c17_an_unusable_item_costs_itself_alone() {
    let mut w = running("web");
    let first = w.running("web/main");
    w.kill_engine();
    spoil(&mut w, "web");
    w.api_pod("other", "uid-2", ONE);
    w.start();
    w.run(20);
    assert!(w.runs("other/main"), "{}", w.trace());
    // What the item is at the server is not known, so its pod runs on.
    assert_eq!(w.running("web/main"), first, "{}", w.trace());
    let notices = w.notices("ApiServerError");
    assert!(matches!(notices.as_slice(), [one] if one.contains("\"default/web\" is unusable")), "{notices:?}");
    w.run(300);
    assert_eq!(w.running("web/main"), first, "{}", w.trace());
    assert_eq!(w.notices("ApiServerError").len(), 1);
}

#[test]
fn c17_an_unusable_line_costs_itself_alone() {
    let mut w = running("web");
    let first = w.running("web/main");
    let watches = w.api.count("GET /api/v1/pods");
    spoil(&mut w, "web");
    w.api_pod("other", "uid-2", ONE);
    w.run(5);
    assert!(w.runs("other/main") && w.running("web/main") == first, "{}", w.trace());
    assert_eq!(w.api.count("GET /api/v1/pods"), watches, "the watch continues");
    let notices = w.notices("ApiServerError");
    assert!(matches!(notices.as_slice(), [one] if one.contains("\"default/web\" is unusable")), "{notices:?}");
}

#[test]
fn c17_the_services_of_a_namespace_have_a_limit() {
    let mut w = member();
    let collection = "/api/v1/namespaces/default/services";
    for n in 0..5_010 {
        let metadata = json!({ "name": format!("s-{n:05}"), "namespace": "default" });
        let spec = json!({ "clusterIP": "10.1.0.1", "ports": [{ "port": 80 }] });
        w.api_set(collection, json!({ "kind": "Service", "apiVersion": "v1", "metadata": metadata, "spec": spec }));
    }
    w.api_pod("web", "uid-1", ONE);
    w.run(10);
    let id = w.running("web/main");
    let env = &w.runtime.containers[&id].env;
    let hosts = env.iter().filter(|(name, _)| name.starts_with("S_") && name.ends_with("_SERVICE_HOST")).count();
    assert_eq!(hosts, 5_000);
    let notices = w.notices("ApiServerError");
    assert!(matches!(notices.as_slice(), [one] if one.contains("and 5000 are kept")), "{notices:?}");
}

#[test]
fn c1_a_lease_that_cannot_be_created_is_tried_with_a_back_off() {
    let mut w = node_with(cluster());
    w.api.no_leases = true;
    w.run(5);
    w.api_remove("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", "lab");
    let before = w.api.requests.len();
    w.run(60);
    let requests = w.api.requests.len() - before;
    assert!((5..60).contains(&requests), "{:?}", &w.api.requests[before..]);
    let notices = w.notices("ApiServerError");
    assert!(matches!(notices.as_slice(), [one] if one.contains("kube-node-lease")), "{notices:?}");
    w.api.no_leases = false;
    w.run(15);
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    assert!(w.api.object(leases, "lab").is_some(), "{}", w.trace());
}

fn is_ready(w: &World) -> bool {
    let node = w.api.node().cloned().unwrap_or_default();
    let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True")
}

const REPORTS: &str = "PATCH /api/v1/nodes/lab/status";

#[test]
fn c1_a_status_that_the_server_does_not_store_is_reported_once() {
    let mut w = member();
    w.api.of_node = OfNode::Dropped;
    let before = w.api.count(REPORTS);
    w.runtime_down();
    w.run(120);
    assert_eq!(w.api.count(REPORTS) - before, 1, "{}", w.trace());
    // A change is reported nevertheless.
    w.runtime_up();
    w.run(20);
    assert!(is_ready(&w), "{}", w.trace());
}

#[test]
fn c1_a_program_that_answers_each_report_of_the_node_gets_few() {
    let mut w = member();
    let before = w.api.count(REPORTS);
    for _ in 0..240 {
        let mut node = w.api.node().cloned().expect("a node");
        if node["status"]["conditions"][0]["status"] != "Unknown" {
            node["status"]["conditions"][0]["status"] = json!("Unknown");
            w.api_set("/api/v1/nodes", node);
        }
        w.run_ms(500);
    }
    let reports = w.api.count(REPORTS) - before;
    assert!((15..=35).contains(&reports), "{reports}");
    w.run(60);
    assert!(is_ready(&w), "{}", w.trace());
}

#[test]
fn c1_labels_that_an_administrator_changes_stay() {
    let mut config = cluster();
    config.node.labels.insert("example.com/pool".into(), "quay".into());
    let mut w = node_with(config);
    w.run(5);
    let pool = |w: &World| w.api.node().map(|node| node["metadata"]["labels"]["example.com/pool"].clone());
    assert_eq!(pool(&w), Some(json!("quay")));
    let mut node = w.api.node().cloned().expect("a node");
    node["metadata"]["labels"]["example.com/pool"] = json!("hill");
    w.api_set("/api/v1/nodes", node);
    w.run(30);
    assert_eq!(pool(&w), Some(json!("hill")), "{}", w.trace());
    w.restart_engine();
    w.run(600);
    assert_eq!(pool(&w), Some(json!("hill")), "{}", w.trace());
}

#[test]
fn c9_events_that_differ_only_in_their_message_are_combined() {
    let mut w = member();
    for n in 0..40 {
        w.fault("CreateContainer", Fault::Error(format!("failed at {n}")));
    }
    w.api_pod("web", "uid-1", ONE);
    w.run(590);
    let failed: Vec<Value> = w.api.all("/events").filter(|event| event["reason"] == "Failed").cloned().collect();
    assert!(failed.len() <= 10, "{}", failed.len());
    let message = failed.last().expect("an event")["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.starts_with("(combined from similar events): "), "{message}");
}

#[test]
fn c9_an_object_sends_few_events_in_a_long_time() {
    let mut w = member();
    w.life("web/main", &[Life::exits(1, std::time::Duration::from_secs(1)); 200]);
    w.api_pod("web", "uid-1", ONE);
    w.run(3 * 3600);
    let events = w.api.requests.iter().filter(|(_, request)| request.contains("/events")).count();
    // 25 of the pod, one each five minutes, and a few of the node.
    assert!((50..75).contains(&events), "{events}");
}

#[test]
fn a6_of_the_pods_of_an_api_server_only_critical_ones_preempt() {
    let mut config = cluster();
    config.node.capacity.set(resources::PODS, 1);
    config.node.allocatable.set(resources::PODS, 1);
    let mut w = node_with(config);
    w.run(5);
    w.api_pod("low", "uid-1", ONE);
    w.run(5);
    let phase = |w: &World, name: &str| w.api.pod(name).map(|pod| pod["status"]["phase"].clone());
    w.api_pod("high", "uid-2", &format!("{ONE}, priority: 1000"));
    w.run(10);
    assert_eq!((phase(&w, "low"), phase(&w, "high")), (Some(json!("Running")), Some(json!("Failed"))), "{}", w.trace());
    w.api_pod("critical", "uid-3", &format!("{ONE}, priority: 2000000000"));
    w.run(60);
    let phases = (phase(&w, "low"), phase(&w, "critical"));
    assert_eq!(phases, (Some(json!("Failed")), Some(json!("Running"))), "{}", w.trace());
}

#[test]
fn c1_the_node_has_the_features_of_its_runtime() {
    for knows_policies in [false, true] {
        let mut w = World::new(cluster());
        w.history = Some(Vec::new());
        w.runtime.features.supplemental_groups_policy = knows_policies;
        w.start();
        w.run(5);
        let expected = if knows_policies { json!({ "supplementalGroupsPolicy": true }) } else { Value::Null };
        let node = w.api.node().expect("a node");
        assert_eq!(node["status"]["features"], expected, "{}", w.trace());
    }
}
