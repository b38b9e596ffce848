//! DaemonSets: the node admits their pod or not; a new template replaces it.

use super::cluster;
use super::deployments::{controller, pod_names, probed, running};
use crate::story::{ONE, node};
use crate::world::{S, World};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use wherry::api::names::Uid;
use wherry::api::workload::key::WorkloadKind;
use wherry::engine::control::Request;
use wherry::engine::workloads::any_controller::AnyController;
use wherry::engine::workloads::controller::Controller;
use wherry::engine::workloads::daemon_set::{Daemon, DaemonCounts};
use wherry::engine::workloads::shown;

/// Values that differ only in what a test is about.
const WELL: DaemonCounts = DaemonCounts { desired: true, has_pod: true, ready: true, available: true, updated: true };

/// A pod whose image does not exist.
fn broken() -> String {
    probed(9).replace("busybox:1.35", "busybox:1.35 no")
}

fn agent(w: &World) -> Option<&AnyController> {
    controller(w, WorkloadKind::DaemonSet, "agent")
}

fn daemon(w: &World) -> Option<&Daemon> {
    if let Some(AnyController::DaemonSet(daemon)) = agent(w) { Some(daemon) } else { None }
}

fn counts(w: &World) -> DaemonCounts {
    daemon(w).map(|daemon| *daemon.counts()).unwrap_or_default()
}

/// The names of the pods that are not being deleted.
fn pods(w: &World) -> BTreeSet<String> {
    agent(w).map(pod_names).unwrap_or_default()
}

fn revision(w: &World) -> u64 {
    daemon(w).map_or(0, |daemon| daemon.state().history.number())
}

fn with_agent(spec: &str) -> World {
    let mut w = node();
    w.define_daemon_set("agent", spec, &probed(1));
    w.until("the pod is available", 30, |w| counts(w) == WELL);
    w
}

#[test]
fn y13_a_daemon_set_has_one_pod_and_replaces_one_that_is_deleted() {
    let mut w = with_agent("minReadySeconds: 0");
    let before = pods(&w);
    assert_eq!((before.len(), w.notices("SuccessfulCreate").len()), (1, 1));
    let pod = daemon(&w).and_then(|daemon| daemon.state().history.pods().next()).expect("a pod").clone();
    let owner = &pod.object.metadata.owner_references.as_ref().expect("an owner")[0];
    assert_eq!((owner.kind.as_str(), owner.name.as_str()), ("DaemonSet", "agent"));
    assert!(pod.spec().tolerations.iter().flatten().any(|t| t.key.as_deref() == Some("node.kubernetes.io/not-ready")));
    let uid = Uid::from(w.shown_uid(before.first().expect("a pod")).as_str());
    w.ask(Request::DeleteReplica { uid, grace: None });
    w.until("it is replaced", 60, |w| counts(w) == WELL && pods(w).is_disjoint(&before));
    w.run(60);
    assert_eq!(running(&w), 1);
    w.assert_well();
}

#[test]
fn y13_the_node_selector_decides_whether_the_pod_runs() {
    let mut w = node();
    let elsewhere = format!("nodeSelector: {{disk: none}}, {ONE}");
    w.define_daemon_set("agent", "minReadySeconds: 0", &elsewhere);
    w.run(60);
    assert_eq!((counts(&w), pods(&w).len()), (DaemonCounts::default(), 0));
    let said = w.notices("FailedPlacement");
    assert!(said.len() == 1 && said[0].contains("nodeSelector") && said[0].contains("disk"), "{said:?}");
    let status = agent(&w).map(shown::object).expect("the DaemonSet")["status"].take();
    assert_eq!(
        (&status["conditions"][0]["type"], &status["conditions"][0]["status"]),
        (&json!("Placed"), &json!("False"))
    );
    w.define_daemon_set("agent", "minReadySeconds: 0", ONE);
    w.until("the pod is available", 30, |w| counts(w) == WELL);
    w.define_daemon_set("agent", "minReadySeconds: 0", &elsewhere);
    w.until("the pod is gone", 120, |w| !counts(w).has_pod);
    assert_eq!(running(&w), 0);
    w.assert_well();
}

#[test]
fn y13_labels_and_taints_of_the_node_at_the_server_take_effect_at_once() {
    let mut w = cluster::running("web");
    let set = |w: &mut World, change: &dyn Fn(&mut Value)| {
        let mut node = w.api.node().cloned().expect("the node");
        change(&mut node);
        w.api_set("/api/v1/nodes", node);
    };
    w.define_daemon_set("agent", "minReadySeconds: 0", &format!("nodeSelector: {{zone: north}}, {}", probed(1)));
    w.run(60);
    assert_eq!(pods(&w).len(), 0);
    set(&mut w, &|node| node["metadata"]["labels"]["zone"] = json!("north"));
    w.until("the pod is available", 10, |w| counts(w) == WELL);
    let first = pods(&w);
    // The labels are in a record.
    w.api_away(true);
    w.restart_engine();
    w.run(90);
    assert_eq!((counts(&w), pods(&w)), (WELL, first));
    w.api_away(false);
    w.run(60);
    set(&mut w, &|node| node["spec"]["taints"] = json!([{ "key": "closed", "effect": "NoExecute" }]));
    w.until("the pod is gone", 60, |w| !counts(w).has_pod);
    assert!(w.notices("FailedPlacement").last().is_some_and(|said| said.contains("closed:NoExecute")));
    set(&mut w, &|node| {
        node["spec"]["taints"] = json!([{ "key": "node.kubernetes.io/not-ready", "effect": "NoExecute" }])
    });
    w.until("the pod is available", 10, |w| counts(w) == WELL);
    w.assert_well();
}

#[test]
fn y13_a_cordon_does_not_hold_back_the_pod() {
    let mut w = node();
    w.ask(Request::Cordon { on: true });
    w.run(1);
    w.define_daemon_set("agent", "minReadySeconds: 0", &probed(1));
    w.define_deployment("web", "replicas: 1", ONE);
    w.until("the pod is available", 30, |w| counts(w) == WELL);
    w.run(60);
    assert_eq!(running(&w), 1, "the pod of the Deployment waits");
}

#[test]
fn y13_a_removed_daemon_set_ends_its_pod_and_its_record() {
    let mut w = with_agent("minReadySeconds: 0");
    w.run(5);
    let records = |w: &World| w.disk.records.keys().filter(|key| key.starts_with("daemonsets/")).count();
    assert_eq!(records(&w), 1);
    w.remove_daemon_set("agent");
    w.until("the pod is gone", 120, |w| running(w) == 0);
    w.run(60);
    assert_eq!(records(&w), 0);
    w.assert_well();
}

#[test]
fn y14_the_old_pod_is_gone_before_the_new_one_starts() {
    for restarts_after in [None, Some(1), Some(3), Some(30)] {
        let mut w = with_agent("minReadySeconds: 0");
        w.define_daemon_set("agent", "minReadySeconds: 0", &probed(2));
        for tenth in 0..900 {
            w.run_ms(100);
            assert!(running(&w) <= 1, "{restarts_after:?}: {}", w.trace());
            if restarts_after == Some(tenth) {
                w.restart_engine();
            }
        }
        assert_eq!((counts(&w), revision(&w)), (WELL, 2), "{restarts_after:?}: {}", w.trace());
        w.assert_well();
    }
}

#[test]
fn y14_a_new_run_waits_for_the_old_pod_that_does_not_end() {
    let mut w = with_agent("minReadySeconds: 0");
    w.hang("StopContainer");
    w.define_daemon_set("agent", "minReadySeconds: 0", &probed(2));
    w.run(10);
    w.restart_engine();
    w.run(60);
    assert_eq!((pods(&w).len(), running(&w)), (0, 1), "{}", w.trace());
    w.faults.hangs.clear();
    w.until("the new pod is available", 600, |w| counts(w) == WELL);
}

#[test]
fn y14_with_a_surge_the_old_pod_ends_when_the_new_one_is_available() {
    let surge = "updateStrategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}";
    let mut w = with_agent(surge);
    let old = pods(&w);
    w.define_daemon_set("agent", surge, &broken());
    w.run(120);
    assert!(pods(&w).len() == 2 && old.is_subset(&pods(&w)), "{:?}", pods(&w));
    for _ in 0..3 {
        w.restart_engine();
        w.run(90);
        assert!(old.is_subset(&pods(&w)), "a restart ended the pod that works\n{}", w.trace());
    }
    w.define_daemon_set("agent", surge, &probed(2));
    for _ in 0..900 {
        w.run_ms(100);
        assert!(counts(&w).available && running(&w) <= 2, "{}", w.trace());
    }
    assert_eq!((counts(&w), pods(&w).is_disjoint(&old)), (WELL, true));
    w.assert_well();
}

#[test]
fn y14_a_surge_with_a_port_of_the_node_is_none() {
    let surge = "updateStrategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}";
    let with_port = |version: u32| {
        probed(version).replace("readinessProbe", "ports: [{containerPort: 80, hostPort: 8080}], readinessProbe")
    };
    let mut w = node();
    w.define_daemon_set("agent", surge, &with_port(1));
    w.until("the pod is available", 30, |w| counts(w) == WELL);
    w.define_daemon_set("agent", surge, &with_port(2));
    w.until("the new pod is available", 120, |w| counts(w) == WELL && revision(w) == 2);
    let said = w.notices("ReplacingInPlace");
    assert!(said.len() == 1 && said[0].contains("port TCP/8080"), "{said:?}");
    w.assert_well();
}

#[test]
fn y14_with_on_delete_the_new_template_waits_until_the_pod_is_deleted() {
    let spec = "updateStrategy: {type: OnDelete}";
    let mut w = with_agent(spec);
    let old = pods(&w);
    w.define_daemon_set("agent", spec, &probed(2));
    w.run(60);
    assert_eq!((pods(&w), counts(&w).updated, revision(&w)), (old.clone(), false, 2));
    w.reboot(S);
    w.until("the pod is ready", 120, |w| counts(w).ready);
    w.run(90);
    assert_eq!(pods(&w), old, "a reboot is not a deletion");
    let uid = Uid::from(w.shown_uid(old.first().expect("a pod")).as_str());
    w.ask(Request::DeleteReplica { uid, grace: None });
    w.until("the new pod is available", 120, |w| counts(w) == WELL);
    assert!(pods(&w).is_disjoint(&old));
    w.assert_well();
}

#[test]
fn y14_an_earlier_template_brings_its_revision_back() {
    let mut w = with_agent("revisionHistoryLimit: 1");
    for version in [2, 3, 2] {
        w.define_daemon_set("agent", "revisionHistoryLimit: 1", &probed(version));
        w.run(60);
        assert_eq!(counts(&w), WELL);
    }
    let history = &daemon(&w).expect("the DaemonSet").state().history;
    let numbers: Vec<u64> = history.revisions.iter().map(|revision| revision.number).collect();
    assert_eq!(numbers, [3, 4], "revision 2 has become revision 4, and 1 is forgotten");
    let patch = shown::revision(agent(&w).expect("the DaemonSet"), &history.revisions[0], w.clock.time().boot);
    assert_eq!(patch.pointer("/data/spec/template/$patch"), Some(&"replace".into()));
    assert_eq!(patch.pointer("/data/spec/template/spec/containers/0/env/0/value"), Some(&"v3".into()));
    w.assert_well();
}
