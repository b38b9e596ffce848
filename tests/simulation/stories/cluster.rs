//! A node of a cluster: pods of the API server, with and without the server.

use crate::runtime::Life;
use crate::story::{NEVER, ONE, node_with};
use crate::world::api_server::PODS;
use crate::world::{Fault, S, World, config};
use serde_json::json;
use std::time::Duration;
use wherry::engine::cluster::traffic::Traffic;
use wherry::engine::config::{ClusterConfig, EngineConfig};

pub fn cluster() -> EngineConfig {
    EngineConfig {
        cluster: Some(ClusterConfig { addresses: vec!["10.0.0.7".into()], ..ClusterConfig::default() }),
        ..config()
    }
}

/// A node that is registered.
pub fn member() -> World {
    let mut w = node_with(cluster());
    w.run(5);
    assert!(w.api.node().is_some(), "{}", w.trace());
    w
}

/// With a pod that runs.
pub fn running(name: &str) -> World {
    let mut w = member();
    w.api_pod(name, "uid-1", ONE);
    w.run(3);
    assert!(w.runs(&format!("{name}/main")), "{}", w.trace());
    w
}

impl World {
    fn api_phase(&self, name: &str) -> String {
        let pod = self.api.pod(name);
        pod.and_then(|pod| pod["status"]["phase"].as_str()).unwrap_or_default().to_owned()
    }

    fn api_node_ready(&self) -> String {
        let node = self.api.node().cloned().unwrap_or_default();
        let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let ready = conditions.iter().find(|c| c["type"] == "Ready").cloned().unwrap_or_default();
        ready["status"].as_str().unwrap_or_default().to_owned()
    }

    fn api_ready(&self, name: &str) -> String {
        let pod = self.api.pod(name).cloned().unwrap_or_default();
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let ready = conditions.iter().find(|c| c["type"] == "Ready").cloned().unwrap_or_default();
        ready["status"].as_str().unwrap_or_default().to_owned()
    }
}

#[test]
fn c1_the_node_registers_and_renews_its_lease() {
    let mut w = member();
    let node = w.api.node().unwrap();
    assert_eq!(node["metadata"]["name"], "lab");
    let ready = node["status"]["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "Ready").unwrap();
    assert_eq!(ready["status"], "True", "{}", w.trace());
    let before = w.api.count("PATCH /apis/coordination.k8s.io");
    w.run(600);
    let renewals = w.api.count("PATCH /apis/coordination.k8s.io") - before;
    assert!((57..=63).contains(&renewals), "{renewals}");
    // Nothing else but the heartbeat of the status, and the watch that ended.
    let all = w.api.requests.len();
    w.run(600);
    assert!(w.api.requests.len() - all < 75, "{:?}", &w.api.requests[all..]);
}

#[test]
fn c1_the_status_follows_the_runtime_at_once() {
    let mut w = member();
    for (down, ready) in [(true, "False"), (false, "True")] {
        match down {
            true => w.runtime_down(),
            false => w.runtime_up(),
        }
        w.run(2);
        assert_eq!(w.api_node_ready(), ready, "{}", w.trace());
    }
    // The API server answers before the runtime.
    let mut w = World::new(cluster());
    w.history = Some(Vec::new());
    w.runtime_down();
    w.start();
    w.run(2);
    assert_eq!(w.api_node_ready(), "False", "{}", w.trace());
    w.runtime_up();
    w.run(2);
    assert_eq!(w.api_node_ready(), "True", "{}", w.trace());
}

#[test]
fn c1_a_status_that_was_refused_is_reported_again() {
    let mut w = member();
    w.api_refuses_for(5 * S, 0);
    w.runtime_down();
    w.run(15);
    assert_eq!(w.api_node_ready(), "False", "{}", w.trace());
}

#[test]
fn c1_a_node_that_was_deleted_is_created_again() {
    let mut w = running("web");
    // The lease has just been renewed: only the watch shows it soon.
    w.run(4);
    w.api_remove("/api/v1/nodes", "lab");
    w.run(2);
    assert!(w.api.node().is_some(), "{}", w.trace());
    w.api_remove("/api/v1/nodes", "lab");
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    w.api_remove(leases, "lab");
    w.run(15);
    assert!(w.api.node().is_some() && w.api.object(leases, "lab").is_some(), "{}", w.trace());
    assert!(w.runs("web/main"));
    w.assert_well();
}

#[test]
fn c2_a_pod_runs_is_reported_and_its_deletion_is_confirmed() {
    let mut w = running("web");
    assert_eq!((w.api_phase("web"), w.api_ready("web")), ("Running".into(), "True".into()), "{}", w.trace());
    let events = w.api.events();
    assert!(events.contains(&"Started".to_owned()) && events.contains(&"NodeRegistered".to_owned()), "{events:?}");
    w.api_delete_pod("web", 5);
    w.run(10);
    assert!(w.api.pod("web").is_none(), "{}", w.trace());
    assert_eq!(w.api.count("DELETE /api/v1/namespaces/default/pods/web"), 1);
    w.run(60);
    w.assert_clean();
}

#[test]
fn c2_a_deletion_is_confirmed_only_when_nothing_runs() {
    let mut w = member();
    w.life("web/main", &[Life::deaf()]);
    w.api_pod("web", "uid-1", ONE);
    w.run(3);
    w.api_delete_pod("web", 20);
    w.run(15);
    assert!(w.runs("web/main") && w.api.count("DELETE") == 0, "{}", w.trace());
    // The grace period becomes shorter.
    w.api_delete_pod("web", 1);
    w.run(3);
    assert!(!w.runs("web/main"), "{}", w.trace());
    w.run(10);
    assert!(w.api.pod("web").is_none(), "{}", w.trace());
}

#[test]
fn c2_a_kill_of_wherry_loses_no_deletion() {
    for after in 0..12 {
        let mut w = running("web");
        w.api_delete_pod("web", 2);
        w.run_ms(after * 400);
        w.restart_engine();
        w.run(40);
        assert!(w.api.pod("web").is_none() && !w.runs("web/main"), "{after}: {}", w.trace());
        w.assert_clean();
    }
}

#[test]
fn c2_a_deletion_counts_after_a_kill_of_wherry_without_the_server() {
    let mut w = member();
    w.life("web/main", &[Life::deaf()]);
    w.api_pod("web", "uid-1", ONE);
    w.run(3);
    w.api_delete_pod("web", 20);
    w.run(2);
    w.api_away(true);
    w.restart_engine();
    w.run(20);
    for _ in 0..60 {
        assert!(!w.runs("web/main"), "{}", w.trace());
        w.run(1);
    }
    w.restart_engine();
    w.run(10);
    assert!(!w.runs("web/main"), "{}", w.trace());
    w.api_away(false);
    w.run(20);
    assert!(w.api.pod("web").is_none(), "{}", w.trace());
    assert_eq!(w.api.count("DELETE /api/v1/namespaces/default/pods/web"), 1);
    w.assert_clean();
}

#[test]
fn c2_a_job_that_has_completed_stays_completed() {
    let mut w = member();
    w.life("job/main", &[Life::exits(0, std::time::Duration::from_secs(1))]);
    w.api_pod("job", "uid-1", NEVER);
    w.run(10);
    assert_eq!(w.api_phase("job"), "Succeeded", "{}", w.trace());
    w.restart_engine();
    w.run(30);
    assert_eq!((w.api_phase("job"), w.runs("job/main")), ("Succeeded".into(), false), "{}", w.trace());
    w.api_delete_pod("job", 30);
    w.run(5);
    assert!(w.api.pod("job").is_none(), "{}", w.trace());
}

#[test]
fn c3_without_the_server_pods_run_on_and_restart() {
    let mut w = running("web");
    w.api_away(true);
    w.run(3600);
    assert!(w.engine.dump()["cluster"].to_string().contains("connection refused"), "the dump shows why");
    let first = w.running("web/main");
    w.exit_of("web/main", 1);
    w.run(30);
    assert!(w.runs("web/main") && w.running("web/main") != first, "{}", w.trace());
    w.api_away(false);
    w.run(2);
    let ready = w.until("the restart is reported", 3, |w| {
        let pod = w.api.pod("web").cloned().unwrap_or_default();
        pod["status"]["containerStatuses"][0]["restartCount"] == json!(1)
    });
    assert!(ready < 3000);
    w.assert_well();
}

#[test]
fn c3_a_reboot_without_the_server_starts_the_pods_again() {
    let mut w = running("web");
    w.api_away(true);
    w.run(60);
    w.reboot(S);
    w.run(60);
    assert!(w.runs("web/main"), "{}", w.trace());
    w.api_away(false);
    w.run(20);
    assert!(w.runs("web/main"), "{}", w.trace());
    assert_eq!((w.api_phase("web"), w.api_ready("web")), ("Running".into(), "True".into()), "{}", w.trace());
    w.assert_well();
}

/// The pod `web` runs in this container without a record, because the disk is full; the server is away, and Wherry is killed.
fn killed_without_a_record() -> (World, String) {
    let mut w = member();
    w.disk_full(3600 * S);
    w.api_pod("web", "uid-1", ONE);
    w.run(10);
    let container = w.running("web/main");
    w.api_away(true);
    w.kill_engine();
    assert!(!container.is_empty() && !w.disk.records.contains_key("pods/uid-1"), "{}", w.trace());
    (w, container)
}

#[test]
fn c3_a_pod_whose_record_could_not_be_written_is_no_orphan_before_the_first_list() {
    let (mut w, first) = killed_without_a_record();
    w.start();
    // Longer than the wait before the removal of a directory without a pod (W26).
    w.run(300);
    assert_eq!(w.running("web/main"), first, "{}", w.trace());
    w.api_away(false);
    w.run(5);
    assert_eq!((w.running("web/main"), w.api_phase("web").as_str()), (first, "Running"), "{}", w.trace());
    w.assert_well();
}

#[test]
fn c3_a_pod_without_a_record_that_the_list_does_not_contain_is_an_orphan() {
    let (mut w, _) = killed_without_a_record();
    w.api_remove(PODS, "web");
    w.start();
    w.run(60);
    assert!(w.runs("web/main"), "{}", w.trace());
    w.api_away(false);
    w.run(10);
    assert!(!w.runs("web/main"), "{}", w.trace());
}

#[test]
fn c3_an_empty_or_foreign_answer_is_no_list() {
    for text in [
        "",
        "{}",
        "<html>login</html>",
        r#"{"kind":"PodList","apiVersion":"v1","metadata":{}}"#,
        r#"{"kind":"Status"}"#,
    ] {
        let mut w = running("web");
        w.api.foreign = Some(text.to_owned());
        w.api.forgets_versions();
        w.restart_engine();
        w.run(120);
        assert!(w.runs("web/main"), "{text}: {}", w.trace());
        w.api.foreign = None;
        w.run(60);
        assert!(w.runs("web/main"));
        w.api_delete_pod("web", 1);
        w.run(40);
        assert!(!w.runs("web/main"), "{text}: {}", w.trace());
    }
}

#[test]
fn c3_a_pod_that_was_removed_by_force_during_an_absence_stops() {
    let mut w = running("web");
    w.api_away(true);
    w.run(60);
    w.api_remove("/api/v1/namespaces/default/pods", "web");
    w.run(60);
    assert!(w.runs("web/main"));
    w.api_away(false);
    w.run(60);
    assert!(!w.runs("web/main"), "{}", w.trace());
    assert_eq!(w.api.count("DELETE"), 0);
    w.assert_clean();
}

#[test]
fn c3_an_expired_version_is_listed_again() {
    let mut w = running("web");
    w.api_away(true);
    w.api_pod("db", "uid-2", ONE);
    w.api.forgets_versions();
    w.api_away(false);
    w.run(20);
    assert!(w.runs("db/main") && w.runs("web/main"), "{}", w.trace());
}

/// A pod with a ConfigMap that the server refuses this number of times.
fn with_configmap(refusals: u32) -> World {
    let mut w = member();
    let spec = "containers: [{name: main, image: 'busybox:1.35', envFrom: [{configMapRef: {name: settings}}]}]";
    w.api.unrelated = refusals;
    let metadata = json!({ "name": "settings", "namespace": "default" });
    let object = json!({ "kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata, "data": { "A": "1" } });
    w.api_set("/api/v1/namespaces/default/configmaps", object);
    w.api_pod("web", "uid-1", spec);
    w.run(if refusals > 0 { 30 } else { 5 });
    assert!(w.runs("web/main"), "{}", w.trace());
    w
}

#[test]
fn c4_a_pod_waits_silently_until_the_server_permits_its_configmap() {
    let w = with_configmap(3);
    let warnings: Vec<_> = w.observed.notices.iter().filter(|(_, n)| n.subject.pod().is_some()).collect();
    let is_warning = |n: &wherry::engine::effect::Notice| n.severity == wherry::engine::effect::Severity::Warning;
    assert!(!warnings.iter().any(|(_, n)| is_warning(n)), "{warnings:?}");
}

#[test]
fn c4_a_pod_does_not_stop_because_the_copy_of_its_configmap_is_lost() {
    let mut w = with_configmap(0);
    let before = w.running("web/main");
    w.api_away(true);
    w.kill_engine();
    w.disk.records.retain(|key, _| key.starts_with("pods/"));
    w.start();
    w.run(60);
    assert_eq!(w.running("web/main"), before, "{}", w.trace());
}

#[test]
fn c3_a_server_that_is_back_is_found_within_two_seconds() {
    // Without pods, relists are rare, and do not wake the node at all of these moments.
    for away in [600, 607, 614, 621] {
        let mut w = member();
        w.api_away(true);
        w.run(away);
        w.api_away(false);
        let before = w.api.requests.len();
        w.until("the server gets a request", 2, |w| w.api.requests.len() > before);
    }
}

#[test]
fn c4_a_pod_has_its_configmap_offline() {
    let mut w = with_configmap(0);
    w.api_away(true);
    w.reboot(S);
    w.run(60);
    assert!(w.runs("web/main"), "{}", w.trace());
    w.exit_of("web/main", 1);
    w.run(60);
    assert!(w.runs("web/main"), "{}", w.trace());
}

#[test]
fn c4_a_node_that_has_left_its_cluster_keeps_nothing_of_it() {
    let mut w = with_configmap(0);
    let kinds = ["objects/", "tokens/", "lists/", "cluster/", "diary/"];
    let of_cluster = |w: &World| w.disk.records.keys().filter(|key| kinds.iter().any(|k| key.starts_with(k))).count();
    assert!(of_cluster(&w) > 0, "{:?}", w.disk.records.keys());
    w.config.cluster = None;
    w.restart_engine();
    w.run(60);
    assert!(!w.runs("web/main") && of_cluster(&w) == 0, "{:?} {}", w.disk.records.keys(), w.trace());
}

#[test]
fn c2_a_sandbox_that_is_shown_before_its_creation_is_answered_is_kept() {
    for wait in 0..30 {
        let mut w = member();
        w.run(wait);
        w.fault("RunSandbox web", Fault::Stale(Duration::from_secs(5)));
        w.api_pod("web", "uid-1", ONE);
        w.run(60);
        assert!(w.runs("web/main"), "{}", w.trace());
        assert_eq!(w.times("RunSandbox web", 0).len(), 1, "{wait}: {}", w.trace());
        w.assert_well();
    }
}

#[test]
fn c5_a_pod_that_was_evicted_by_the_node_has_failed() {
    let mut w = running("web");
    w.kill_uid("uid-1".into(), wherry::engine::pod::kill::TerminationSource::Eviction, Some(1));
    w.run(10);
    w.release(wherry::engine::pod::kill::TerminationSource::Eviction);
    w.run(60);
    assert_eq!((w.api_phase("web"), w.runs("web/main")), ("Failed".into(), false), "{}", w.trace());
}

#[test]
fn c5_a_pod_that_cannot_run_fails_with_the_remedy_and_can_be_deleted() {
    let claim = "volumes: [{name: c, persistentVolumeClaim: {claimName: a}}]";
    let trust = "volumes: [{name: t, projected: {sources: [{clusterTrustBundle: {path: a, name: b}}]}}]";
    for (spec, why) in [(claim, "persistentVolumeClaim"), (trust, "clusterTrustBundle")] {
        let mut w = member();
        w.api_pod("web", "uid-1", &format!("{ONE}, {spec}"));
        w.run(3);
        let status = &w.api.pod("web").unwrap()["status"];
        assert_eq!((&status["phase"], &status["reason"]), (&json!("Failed"), &json!("PodFeatureUnsupported")));
        assert!(status["message"].as_str().unwrap().contains(why), "{status}");
        w.api_delete_pod("web", 30);
        w.run(3);
        assert!(w.api.pod("web").is_none(), "{}", w.trace());
    }
}

#[test]
fn c5_pods_of_manifests_do_not_depend_on_the_server() {
    let mut w = World::new(cluster());
    w.history = Some(Vec::new());
    w.runtime.images.insert(crate::story::IMAGE.into());
    w.api.away = true;
    w.start();
    w.file("local", ONE);
    w.run(5);
    assert!(w.runs("local/main"), "{}", w.trace());
    w.api_away(false);
    w.run(10);
    assert!(w.api.node().is_some() && w.runs("local/main"));
    w.assert_well();
}

#[test]
fn c2_a_new_pod_does_not_start_on_a_node_with_a_taint_that_it_does_not_tolerate() {
    let mut w = running("web");
    let mut node = w.api.node().cloned().unwrap();
    node["spec"]["taints"] = json!([
        { "key": "limited", "effect": "NoSchedule" },
        { "key": "dedicated", "value": "quay", "effect": "NoExecute" },
    ]);
    w.api_set("/api/v1/nodes", node);
    w.run(1);
    w.api_pod("late", "uid-2", ONE);
    w.api_pod("tolerant", "uid-3", &format!("tolerations: [{{key: dedicated, operator: Exists}}], {ONE}"));
    w.file("local", ONE);
    w.run(10);
    let late = w.api.pod("late").unwrap();
    assert_eq!((&late["status"]["phase"], &late["status"]["reason"]), (&json!("Failed"), &json!("TaintToleration")));
    let message = "Predicate TaintToleration failed: node(s) had untolerated taint(s): dedicated=quay:NoExecute";
    assert_eq!(late["status"]["message"], message);
    // As for a kubelet, pods of manifests tolerate everything. A pod that has started here stays, also after a reboot.
    for _ in 0..2 {
        for name in ["web/main", "tolerant/main", "local/main"] {
            assert!(w.runs(name), "{name}: {}", w.trace());
        }
        assert!(!w.runs("late/main"), "{}", w.trace());
        w.reboot(S);
        w.run(30);
    }
    w.assert_well();
}

#[test]
fn c3_a_pod_without_a_record_stops_for_a_manifest_with_its_name() {
    // The list of the runtime comes after the manifests, or before them.
    for late in [0, 2 * S] {
        let (mut w, first) = killed_without_a_record();
        w.file("web", ONE);
        w.manifests_take(late);
        w.start();
        w.run(60);
        let container = &w.runtime.containers[w.running("web/main").as_str()];
        assert!(container.id != first && container.uid.as_str() != "uid-1", "{}", w.trace());
        // W8: the check of each RunSandbox has seen that the first one had stopped.
        w.assert_well();
    }
}

#[test]
fn c1_labels_of_the_server_count_for_admission_also_after_a_reboot_without_it() {
    let mut w = member();
    let spec = format!("nodeSelector: {{pool: quay}}, {ONE}");
    let mut node = w.api.node().cloned().unwrap();
    node["metadata"]["labels"]["pool"] = json!("quay");
    w.api_set("/api/v1/nodes", node);
    w.run(1);
    w.api_pod("web", "uid-1", &spec);
    w.run(5);
    assert!(w.runs("web/main"), "{}", w.trace());
    w.api_away(true);
    w.reboot(S);
    w.run(60);
    assert!(w.runs("web/main"), "{}", w.trace());
    w.api_away(false);
    w.run(20);
    assert!(w.runs("web/main") && w.api_phase("web") == "Running", "{}", w.trace());
}

#[test]
fn c1_the_status_has_the_images_after_their_next_list() {
    let mut w = member();
    w.run(900);
    let node = w.api.node().unwrap();
    assert!(node["status"]["images"].as_array().is_some_and(|images| !images.is_empty()), "{}", node["status"]);
}

#[test]
fn c1_a_status_that_another_changes_is_reported_again() {
    let mut w = member();
    let mut node = w.api.node().cloned().unwrap();
    for condition in node["status"]["conditions"].as_array_mut().unwrap() {
        condition["status"] = json!("Unknown");
    }
    w.api_set("/api/v1/nodes", node);
    w.run(1);
    assert_eq!(w.api_node_ready(), "True", "{}", w.trace());
    let patches = w.api.count("PATCH /api/v1/nodes/lab/status");
    w.run(200);
    assert_eq!(w.api.count("PATCH /api/v1/nodes/lab/status"), patches, "our own patch is no change of another");
}

#[test]
fn c2_a_running_pod_follows_labels_and_ephemeral_containers() {
    let mut w = member();
    let volume = "volumes: [{name: d, downwardAPI: {items: [{path: l, fieldRef: {fieldPath: metadata.labels}}]}}]";
    let mounts = "containers: [{name: main, image: 'busybox:1.35', volumeMounts: [{name: d, mountPath: /d}]}]";
    w.api_pod("web", "uid-1", &format!("{mounts}, {volume}"));
    w.run(5);
    let mut pod = w.api.pod("web").cloned().unwrap();
    pod["metadata"]["labels"] = json!({ "a": "x" });
    w.api_set("/api/v1/namespaces/default/pods", pod.clone());
    w.run(5);
    let files = &w.volumes.files[&"uid-1".into()];
    assert!(files.contains(&"d/l 644 a=\"x\"".to_owned()), "{files:?}");
    pod["metadata"]["generation"] = json!(2);
    pod["spec"]["ephemeralContainers"] = json!([{ "name": "debug", "image": "busybox:1.35" }]);
    w.api_set("/api/v1/namespaces/default/pods", pod.clone());
    w.run(5);
    assert!(w.runs("web/debug"), "{}", w.trace());
    assert_eq!(w.api.pod("web").unwrap()["status"]["observedGeneration"], 2);
    // Another command does not count, and the status says so, also when it changes.
    pod["spec"]["containers"][0]["command"] = json!(["other"]);
    pod["metadata"]["generation"] = json!(3);
    w.api_set("/api/v1/namespaces/default/pods", pod);
    w.run(5);
    w.exit_of("web/main", 1);
    w.run(20);
    assert_eq!(w.api.pod("web").unwrap()["status"]["observedGeneration"], 2);
    let first = w.running("web/main");
    // All of it also after a restart.
    w.restart_engine();
    w.run(30);
    assert_eq!(w.running("web/main"), first, "{}", w.trace());
    let status = &w.api.pod("web").unwrap()["status"];
    assert_eq!(
        (&status["observedGeneration"], &status["ephemeralContainerStatuses"][0]["name"]),
        (&json!(2), &json!("debug"))
    );
    w.assert_well();
}

#[test]
fn c2_a_readiness_gate_keeps_a_pod_from_being_ready() {
    let mut w = member();
    w.api_pod("web", "uid-1", &format!("{ONE}, readinessGates: [{{conditionType: example.com/gate}}]"));
    w.run(5);
    assert!(w.runs("web/main"), "{}", w.trace());
    assert_eq!(w.api_ready("web"), "False");
    let mut pod = w.api.pod("web").cloned().unwrap();
    let conditions = pod["status"]["conditions"].as_array_mut().unwrap();
    conditions.push(json!({ "type": "example.com/gate", "status": "True" }));
    w.api_set("/api/v1/namespaces/default/pods", pod);
    w.run(2);
    assert_eq!(w.api_ready("web"), "True", "{}", w.trace());
    assert_eq!(
        w.api.pod("web").unwrap()["status"]["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|c| c["type"] == "example.com/gate")
            .count(),
        1
    );
}

#[test]
fn c2_a_restart_of_wherry_reports_nothing_that_the_server_has() {
    let mut w = member();
    w.api_pod("web", "uid-1", &format!("{ONE}, readinessGates: [{{conditionType: example.com/gate}}]"));
    w.run(5);
    let mut pod = w.api.pod("web").cloned().unwrap();
    let conditions = pod["status"]["conditions"].as_array_mut().unwrap();
    conditions.push(json!({ "type": "example.com/gate", "status": "True" }));
    w.api_set("/api/v1/namespaces/default/pods", pod);
    w.run(5);
    assert_eq!(w.api_ready("web"), "True", "{}", w.trace());
    let patches = w.api.count("PATCH /api/v1/namespaces/default/pods/web/status");
    w.restart_engine();
    w.run(30);
    assert_eq!(w.api.count("PATCH /api/v1/namespaces/default/pods/web/status"), patches, "{}", w.trace());
}

#[test]
fn c11_a_metered_node_renews_its_lease_each_20_s_and_reports_its_status_each_hour() {
    let of = |traffic| {
        let mut config = cluster();
        config.cluster.as_mut().unwrap().traffic = traffic;
        let mut w = node_with(config);
        w.api_pod(
            "web",
            "uid-1",
            &format!("{ONE}, volumes: [{{name: v, configMap: {{name: words, optional: true}}}}]"),
        );
        w.run(300);
        let before = w.api.requests.len();
        w.run(7200);
        let (rest, at_start) = (&w.api.requests[before..], &w.api.requests[..before]);
        let count = |text: &str| rest.iter().filter(|(_, request)| request.starts_with(text)).count();
        let watches = |of: &str| -> Vec<bool> {
            let all = at_start.iter().filter(|(_, r)| r.contains("watch=true") && r.contains(of));
            all.map(|(_, r)| r.contains("allowWatchBookmarks=true")).collect()
        };
        let names = ["/pods?", "/nodes?", "/configmaps?", "/services?"].map(|of| watches(of).into_iter().all(|b| b));
        (count("PATCH /apis/coordination"), count("PATCH /api/v1/nodes/lab/status"), names)
    };
    let (leases, reports, bookmarks) = of(Traffic::Ordinary);
    assert!((700..=740).contains(&leases) && (20..=30).contains(&reports), "{leases} {reports}");
    assert_eq!(bookmarks, [true; 4]);
    let (leases, reports, bookmarks) = of(Traffic::Metered);
    assert!((350..=370).contains(&leases) && (1..=3).contains(&reports), "{leases} {reports}");
    assert_eq!(bookmarks, [true, false, false, true]);
}
