//! Requests of kubectl, and the watch of a client.

use crate::story::*;
use crate::world::{Fault, S, World};
use serde_json::{Value, json};
use std::time::Duration;
use wherry::engine::control::RequestId;

const PODS: &str = "/api/v1/namespaces/default/pods";

fn pod_object(name: &str, class: &str) -> serde_json::Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name },
        "spec": { "priorityClassName": class, "containers": [{ "name": "main", "image": "busybox:1.35" }] },
    })
}

fn status_of(w: &World, id: RequestId) -> Option<u16> {
    w.kubectl_answer(id).map(|(status, _)| status)
}

#[test]
fn a_pod_of_which_nothing_runs_leaves_the_watches_before_its_sandbox_is_removed() {
    let mut w = node();
    w.file("web", ONE);
    w.run(3);
    w.clients_see_the_pods();
    w.hang("RemoveSandbox");
    w.remove("web");
    for _ in 0..100 {
        w.run_ms(1);
        w.clients_see_the_pods();
    }
    assert!(!w.times("RemoveSandbox", 0).is_empty() && !w.runs("web/main"));
}

#[test]
fn a_new_pod_is_there_when_its_client_has_the_answer() {
    let mut w = node();
    let created = w.kubectl_sends("POST", PODS, pod_object("web", ""));
    w.run_ms(1);
    assert_eq!(status_of(&w, created), Some(201));
    let again = w.kubectl_sends("POST", PODS, pod_object("web", ""));
    assert_eq!(status_of(&w, again), Some(409));
    w.run(3);
    assert!(w.runs("web/main"));
    w.clients_see_the_pods();
}

#[test]
fn a_pod_that_the_engine_refuses_leaves_no_file() {
    let mut w = node();
    let refused = w.kubectl_sends("POST", PODS, pod_object("web", "missing"));
    w.run_ms(1);
    let (status, why) = w.kubectl_answer(refused).unwrap();
    assert!(status == 422 && why.contains("missing"), "{status} {why}");
    assert!(w.files.is_empty());
    w.run(3);
    assert_eq!((w.engine.pods().len(), w.engine.manifest_problems().count()), (0, 0));
}

#[test]
fn a_client_waits_twenty_seconds_for_a_directory_that_cannot_be_read() {
    let mut w = node();
    w.file("web", ONE);
    w.run(3);
    let labelled = w.kubectl_sends("PUT", &format!("{PODS}/web"), {
        let mut live =
            json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "web", "labels": { "a": "b" } } });
        live["spec"] = json!({ "containers": [{ "name": "main", "image": "busybox:1.35" }] });
        live
    });
    // The file is written, and the engine cannot see it.
    w.manifests_away_silently();
    w.run(19);
    assert_eq!(status_of(&w, labelled), None);
    w.run(2);
    let (status, why) = w.kubectl_answer(labelled).unwrap();
    assert!(status == 504 && why.contains("was written, but not accepted within 20 s"), "{status} {why}");
    w.directory_is_away(false);
    w.run(3);
    assert_eq!(w.engine.pods()[0].pod.object.metadata.labels.as_ref().unwrap()["a"], "b", "the change stays");
}

#[test]
fn changes_are_carried_out_one_after_the_other() {
    let mut w = node();
    let ids: Vec<RequestId> =
        (0..70).map(|n| w.kubectl_sends("POST", PODS, pod_object(&format!("p{n}"), ""))).collect();
    let refused = ids.iter().filter(|id| status_of(&w, **id) == Some(429)).count();
    assert_eq!(refused, 70 - 64, "too many changes wait");
    w.run_ms(10);
    assert_eq!(ids.iter().filter(|id| status_of(&w, **id) == Some(201)).count(), 64);
    assert_eq!(w.files.len(), 64);
}

#[test]
fn a_second_deletion_shortens_the_grace_period() {
    let mut w = node();
    w.fault("StopContainer", Fault::Slow(Duration::from_secs(20)));
    w.file("web", &format!("terminationGracePeriodSeconds: 60, {ONE}"));
    w.run(3);
    let first = w.kubectl_sends("DELETE", &format!("{PODS}/web"), serde_json::Value::Null);
    w.run_ms(10);
    assert_eq!(status_of(&w, first), Some(200));
    assert!(w.files.is_empty(), "the file goes at once");
    let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 1 });
    let second = w.kubectl_sends("DELETE", &format!("{PODS}/web"), options);
    w.run_ms(10);
    let (status, body) = w.kubectl_answer(second).unwrap();
    let shown: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!((status, &shown["metadata"]["deletionGracePeriodSeconds"]), (200, &json!(1)));
}

#[test]
fn a_deletion_ends_the_pod_within_the_grace_period_of_its_client() {
    let mut w = node();
    w.fault("StopContainer", Fault::Slow(Duration::from_secs(20)));
    w.file("web", &format!("terminationGracePeriodSeconds: 60, {ONE}"));
    w.run(3);
    let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 2 });
    let deleted = w.kubectl_sends("DELETE", &format!("{PODS}/web"), options);
    w.run_ms(10);
    assert_eq!(status_of(&w, deleted), Some(200));
    assert_eq!(w.engine.pods()[0].deletion.map(|(_, grace)| grace), Some(2));
}

#[test]
fn a_dry_run_and_an_outdated_replacement_change_nothing() {
    let mut w = node();
    w.file("web", ONE);
    w.run(3);
    let before = w.files.values().next().unwrap().text.clone();
    let dry = w.kubectl_sends("DELETE", &format!("{PODS}/web?dryRun=All"), serde_json::Value::Null);
    let mut outdated = pod_object("web", "");
    outdated["metadata"]["resourceVersion"] = json!("1");
    let replaced = w.kubectl_sends("PUT", &format!("{PODS}/web"), outdated);
    w.run_ms(10);
    assert_eq!((status_of(&w, dry), status_of(&w, replaced)), (Some(200), Some(409)));
    assert_eq!(w.files.values().next().unwrap().text, before);
}

/// A node of a cluster. Its manifest `web` runs, and a pod of the cluster with this name waits behind it.
fn behind_a_manifest() -> World {
    let mut w = crate::stories::cluster::member();
    w.file("web", ONE);
    w.run(5);
    w.api_pod("web", "pod-1", ONE);
    w.run(5);
    assert!(w.runs("web/main") && w.engine.conflicts().len() == 1, "{}", w.trace());
    w
}

#[test]
fn a_pod_whose_manifest_goes_ends_although_a_pod_of_the_api_server_follows_it() {
    let mut w = behind_a_manifest();
    let old = w.running("web/main");
    w.disk_full(3600 * S);
    w.remove("web");
    w.run(40);
    assert!(!w.runs("web/main") || w.running("web/main") != old, "{}", w.trace());
}

#[test]
fn a_deletion_of_a_pod_of_the_api_server_leaves_the_manifest_behind_it_alone() {
    let mut w = crate::stories::cluster::member();
    w.api_pod("web", "pod-1", ONE);
    w.run(5);
    w.file("web", ONE);
    w.run(5);
    let deleted = w.kubectl_sends("DELETE", &format!("{PODS}/web"), serde_json::Value::Null);
    w.run_ms(10);
    let (status, why) = w.kubectl_answer(deleted).unwrap();
    assert!(status == 403 && why.contains("it is a pod of the API server"), "{status} {why}");
    assert_eq!(w.files.len(), 1);
}

#[test]
fn y8_a_foreground_deletion_is_answered_when_the_pods_have_ended() {
    for (policy, waits) in
        [("?propagationPolicy=Foreground", true), ("?propagationPolicy=Background", false), ("", false)]
    {
        let mut w = node();
        w.define_deployment("web", "replicas: 2", ONE);
        w.run(5);
        w.hang("StopContainer");
        let path = format!("/apis/apps/v1/namespaces/default/deployments/web{policy}");
        let id = w.kubectl_sends("DELETE", &path, Value::Null);
        w.run(3);
        assert!(w.engine.workloads().is_empty() && !w.engine.pods().is_empty(), "{policy}");
        assert_eq!(status_of(&w, id), (!waits).then_some(200), "{policy}");
        w.faults.hangs.clear();
        w.until("the client has its answer", 600, |w| status_of(w, id) == Some(200));
        assert_eq!(w.engine.pods().is_empty(), waits, "{policy}");
    }
}
