//! Deployments: roll-outs, failed roll-outs, scaling, restarts of Wherry at every moment.

use crate::story::{ONE, node};
use crate::world::handlers::BADLY;
use crate::world::{S, World};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;
use wherry::api::names::{FullName, Uid};
use wherry::api::workload::key::{WorkloadKey, WorkloadKind};
use wherry::engine::control::{Reply, Request};
use wherry::engine::workloads::any_controller::AnyController;
use wherry::engine::workloads::controller::Controller;
use wherry::engine::workloads::deployment::Rollout;
use wherry::engine::workloads::inputs::MAX_PODS;
use wherry::engine::workloads::shown;

/// A pod that is ready when its readiness probe succeeds. `version` makes templates differ.
pub fn probed(version: u32) -> String {
    format!(
        "containers: [{{name: main, image: 'busybox:1.35', env: [{{name: VERSION, value: 'v{version}'}}], \
         readinessProbe: {{exec: {{command: [sh]}}, periodSeconds: 1}}}}]"
    )
}

/// The controller of an object in the namespace `default`; None before the manifests are read.
pub fn controller<'w>(w: &'w World, kind: WorkloadKind, name: &str) -> Option<&'w AnyController> {
    w.engine.workloads().get(&WorkloadKey::new(kind, FullName::new("default", name)))
}

/// The names of its pods that are not being deleted.
pub fn pod_names(controller: &AnyController) -> BTreeSet<String> {
    controller.get().state().history.pods().map(|pod| pod.name.name.to_string()).collect()
}

fn web(w: &World) -> Option<&AnyController> {
    controller(w, WorkloadKind::Deployment, "web")
}

fn rollout(w: &World) -> &Rollout {
    let Some(AnyController::Deployment(rollout)) = web(w) else { panic!("no Deployment web") };
    rollout
}

/// The number of the present revision.
fn revision(w: &World) -> u64 {
    rollout(w).state().history.number()
}

/// Replicas, updated, ready and available pods.
fn counts(w: &World) -> [u32; 4] {
    let Some(AnyController::Deployment(rollout)) = web(w) else { return [0; 4] };
    let counts = rollout.counts();
    [counts.replicas, counts.updated, counts.ready, counts.available]
}

/// The status and the reason of a condition.
fn condition(w: &World, type_: &str) -> (String, String) {
    let status = web(w).map(shown::object).unwrap_or_default();
    let conditions = status.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    let found = conditions.iter().find(|condition| condition["type"] == type_);
    let text = |field: &str| found.and_then(|found| Some(found[field].as_str()?.to_owned())).unwrap_or_default();
    (text("status"), text("reason"))
}

fn complete(w: &World) -> bool {
    condition(w, "Progressing").1 == "NewReplicaSetAvailable"
}

/// The names of the pods of the Deployment that are not being deleted.
fn pods(w: &World) -> BTreeSet<String> {
    web(w).map(pod_names).unwrap_or_default()
}

/// The number of running containers.
pub fn running(w: &World) -> usize {
    w.runtime.containers.values().filter(|container| container.runs()).count()
}

/// The number of records of Deployments.
fn records(w: &World) -> usize {
    w.disk.records.keys().filter(|key| key.starts_with("deployments/")).count()
}

fn deployed(replicas: u32) -> World {
    let mut w = node();
    w.define_deployment("web", &format!("replicas: {replicas}"), &probed(1));
    w.until("all pods are available", 30, |w| counts(w)[3] == replicas && complete(w));
    w
}

#[test]
fn y1_a_deployment_creates_its_pods_and_replaces_one_that_is_deleted() {
    let mut w = deployed(3);
    assert_eq!((counts(&w), pods(&w).len()), ([3, 3, 3, 3], 3));
    assert_eq!(w.notices("ScalingReplicaSet").len(), 1, "{:?}", w.notices("ScalingReplicaSet"));
    assert_eq!(w.notices("SuccessfulCreate").len(), 3);
    let before = pods(&w);
    let first = before.first().cloned().expect("a pod");
    let uid = Uid::from(w.shown_uid(&first).as_str());
    let id = w.ask(Request::DeleteReplica { uid, grace: Some(Duration::from_secs(1)) });
    w.run(1);
    assert_eq!(w.answer(id), Some(&Ok(Reply::Shortened)));
    w.until("the pod is replaced", 60, |w| counts(w)[3] == 3 && !w.runs(&format!("{first}/main")));
    assert_eq!(pods(&w).difference(&before).count(), 1);
    assert!(!pods(&w).contains(&first));
    w.assert_well();
}

#[test]
fn y2_a_roll_out_keeps_pods_available_and_removes_the_old_ones() {
    let mut w = deployed(4);
    w.define_deployment("web", "replicas: 4", &probed(2));
    let mut least = u32::MAX;
    let mut most = 0;
    for _ in 0..600 {
        w.run_ms(100);
        least = least.min(counts(&w)[3]);
        most = most.max(counts(&w)[0]);
        if complete(&w) {
            break;
        }
    }
    assert!(complete(&w), "{:?} {}", counts(&w), w.trace());
    // 25 % of 4.
    assert_eq!((least, most), (3, 5));
    assert_eq!((counts(&w), rollout(&w).sets().len(), revision(&w)), ([4, 4, 4, 4], 2, 2));
    w.run(60);
    assert_eq!(running(&w), 4);
    w.assert_well();
}

#[test]
fn y3_a_version_that_never_becomes_ready_leaves_the_old_pods_and_the_deadline_is_reported() {
    let mut w = deployed(2);
    let old = pods(&w);
    let broken = probed(2).replace("busybox:1.35", "busybox:1.35 no");
    w.define_deployment("web", "replicas: 2, progressDeadlineSeconds: 60", &broken);
    w.run(50);
    assert_eq!(condition(&w, "Progressing").0, "True");
    w.run(40);
    assert_eq!(condition(&w, "Progressing"), ("False".into(), "ProgressDeadlineExceeded".into()));
    assert_eq!(condition(&w, "Available").0, "True");
    assert!(old.is_subset(&pods(&w)), "{:?}", pods(&w));
    // Back to the old version: its revision gets a new number, and its pods were never touched.
    w.define_deployment("web", "replicas: 2, progressDeadlineSeconds: 60", &probed(1));
    w.until("it is complete", 60, complete);
    assert_eq!((pods(&w), revision(&w)), (old, 3));
    w.assert_well();
}

/// The record of a manifest is written after the record of its Deployment, and a kill can come between the two.
#[test]
fn y4_a_record_of_the_manifest_that_is_older_than_the_roll_out_does_not_reverse_it() {
    const FILE: &str = "/m/deployment-web.yaml";
    let mut w = node();
    w.define_deployment("web", "replicas: 2", &probed(1));
    w.until("the roll-out is complete", 60, complete);
    let record = w.manifests.recorded(FILE).cloned().expect("a record");
    w.define_deployment("web", "replicas: 2", &probed(2));
    w.run(3);
    assert_eq!(revision(&w), 2);
    w.kill_engine();
    w.manifests.set_recorded(FILE, record);
    w.manifests.written_at_start.insert(FILE.to_owned());
    w.start();
    w.until("the roll-out is complete", 120, |w| w.engine.workloads().iter().next().is_some() && complete(w));
    let created = w.notices("SuccessfulCreate").len();
    assert_eq!((revision(&w), created), (2, 4), "no pod is created twice");
    w.assert_well();
}

#[test]
fn y4_a_restart_at_any_moment_of_a_roll_out_loses_nothing() {
    for reboots in [false, true] {
        for at in 0..12 {
            let mut w = deployed(3);
            w.define_deployment("web", "replicas: 3", &probed(2));
            w.run_ms(at * 700);
            match reboots {
                false => w.restart_engine(),
                true => w.reboot(S),
            }
            w.until("the roll-out is complete", 300, |w| complete(w) && counts(w) == [3, 3, 3, 3]);
            assert_eq!((rollout(&w).sets().len(), revision(&w)), (2, 2), "{at} {reboots}");
            w.run(60);
            assert_eq!(running(&w), 3, "{at} {reboots}");
            w.assert_well();
        }
    }
}

#[test]
fn y4_a_restart_does_not_end_old_pods_whose_state_is_not_known_yet() {
    let mut w = deployed(2);
    let old = pods(&w);
    w.define_deployment("web", "replicas: 2", &probed(2).replace("busybox:1.35", "busybox:1.35 no"));
    w.run(10);
    for _ in 0..3 {
        w.restart_engine();
        w.run(90);
        assert!(old.is_subset(&pods(&w)), "{:?}\n{}", pods(&w), w.trace());
    }
    w.assert_well();
}

#[test]
fn y4_a_run_with_the_random_numbers_of_the_last_one_creates_other_pods() {
    let mut w = deployed(3);
    w.define_deployment("web", "replicas: 3", &probed(2));
    // A restart increases the seed.
    w.config.fixed.seed -= 1;
    w.restart_engine();
    w.until("the roll-out is complete", 300, |w| complete(w) && counts(w) == [3, 3, 3, 3]);
    w.run(60);
    assert_eq!(running(&w), 3, "{}", w.trace());
    w.assert_well();
}

/// The roll-out has to end the pod that is not ready first, although a new run knows of none whether it is ready.
#[test]
fn y4_a_new_run_ends_the_old_pod_that_is_not_ready_first() {
    for bad in 0..3 {
        let (mut w, spec) = (node(), "replicas: 3, strategy: {rollingUpdate: {maxUnavailable: 1, maxSurge: 0}}");
        w.define_deployment("web", spec, &probed(1));
        w.until("it is complete", 30, complete);
        let old: Vec<String> = pods(&w).into_iter().collect();
        w.handlers.answers(&format!("{}/main/Readiness", old[bad]), &[BADLY]);
        w.until("one is not ready", 30, |w| counts(w)[2] == 2);
        w.kill_engine();
        w.define_deployment("web", spec, &probed(2));
        w.start();
        w.until("an old pod ends", 120, |w| old.iter().any(|pod| !pods(w).contains(pod)));
        let left: Vec<&String> = old.iter().filter(|pod| pods(&w).contains(*pod)).collect();
        assert!(left.len() == 2 && !left.contains(&&old[bad]), "{bad}: {left:?}\n{}", w.trace());
        w.run(120);
        assert!(complete(&w) && counts(&w) == [3, 3, 3, 3], "{bad}: {:?}", counts(&w));
        w.assert_well();
    }
}

#[test]
fn y5_scaling_changes_the_number_of_pods_alone() {
    let mut w = deployed(2);
    let before = pods(&w);
    w.define_deployment("web", "replicas: 5", &probed(1));
    w.until("five pods are available", 30, |w| counts(w)[3] == 5);
    assert!(before.is_subset(&pods(&w)) && rollout(&w).sets().len() == 1);
    w.define_deployment("web", "replicas: 1", &probed(1));
    w.run(60);
    assert_eq!((counts(&w), running(&w)), ([1, 1, 1, 1], 1));
    w.define_deployment("web", "replicas: 0", &probed(1));
    w.run(60);
    assert_eq!((counts(&w), running(&w)), ([0, 0, 0, 0], 0));
    w.define_deployment("web", "replicas: 2", &probed(1));
    w.until("two pods are available", 30, |w| counts(w)[3] == 2);
    w.assert_well();
}

#[test]
fn y6_recreate_starts_the_new_pods_when_the_old_ones_are_gone() {
    let mut w = node();
    let spec = "replicas: 2, strategy: {type: Recreate}";
    w.define_deployment("web", spec, &probed(1));
    w.until("it is complete", 30, complete);
    let old = pods(&w);
    w.define_deployment("web", spec, &probed(2));
    for _ in 0..600 {
        w.run_ms(100);
        let (now, runs) = (pods(&w), |pod: &String| w.runs(&format!("{pod}/main")));
        assert!(!(old.iter().any(runs) && now.difference(&old).any(runs)), "{}", w.trace());
    }
    assert!(complete(&w) && old.is_disjoint(&pods(&w)));
    w.assert_well();
}

#[test]
fn y6_recreate_waits_for_an_old_pod_that_does_not_end() {
    let (mut w, spec) = (node(), "replicas: 2, strategy: {type: Recreate}");
    w.define_deployment("web", spec, &probed(1));
    w.until("it is complete", 30, complete);
    w.hang("StopContainer");
    w.define_deployment("web", spec, &probed(2));
    w.run(60);
    assert_eq!((pods(&w).len(), running(&w)), (0, 2), "{}", w.trace());
    w.faults.hangs.clear();
    w.until("it is complete", 600, complete);
}

/// A new run must find the pod that the last one was ending.
#[test]
fn y6_recreate_waits_for_an_old_pod_that_does_not_end_also_after_a_restart() {
    let (mut w, spec) = (node(), "replicas: 2, strategy: {type: Recreate}");
    w.define_deployment("web", spec, &probed(1));
    w.until("it is complete", 30, complete);
    w.hang("StopContainer");
    w.define_deployment("web", spec, &probed(2));
    w.run(10);
    w.restart_engine();
    w.run(60);
    assert_eq!((pods(&w).len(), running(&w)), (0, 2), "{}", w.trace());
    w.faults.hangs.clear();
    w.until("it is complete", 600, complete);
}

#[test]
fn y7_replicas_with_a_port_of_the_node_are_replaced_in_place() {
    let mut w = node();
    let with_port = |version: u32| {
        probed(version).replace("readinessProbe", "ports: [{containerPort: 80, hostPort: 8080}], readinessProbe")
    };
    w.define_deployment("web", "replicas: 1", &with_port(1));
    w.until("it is complete", 30, complete);
    w.define_deployment("web", "replicas: 1", &with_port(2));
    w.until("it is complete", 120, |w| complete(w) && revision(w) == 2);
    let said = w.notices("ReplacingInPlace");
    assert!(said.len() == 1 && said[0].contains("port TCP/8080"), "{said:?}");
    w.assert_well();
}

#[test]
fn y8_a_removed_deployment_ends_its_pods_and_its_record() {
    let mut w = deployed(2);
    assert_eq!(records(&w), 1);
    w.remove_deployment("web");
    w.run(60);
    assert_eq!((running(&w), w.engine.pods().len(), records(&w)), (0, 0, 0));
    w.restart_engine();
    w.run(5);
    assert!(w.engine.workloads().is_empty());
    w.assert_well();
}

#[test]
fn y8_a_broken_document_and_a_second_one_change_nothing() {
    let mut w = deployed(2);
    let before = pods(&w);
    w.define_deployment("web", "replicaz: 5", &probed(2));
    w.run(30);
    let said = w.manifest_problems();
    assert!(said.len() == 1 && said[0].contains("spec.replicaz: unknown field; did you mean replicas?"), "{said:?}");
    w.restart_engine();
    w.run(60);
    assert_eq!((pods(&w), counts(&w)), (before.clone(), [2, 2, 2, 2]), "{}", w.trace());
    w.define_deployment("web", "replicas: 2", &probed(1));
    w.copy_deployment("web", "replicas: 7");
    w.run(30);
    let said = w.manifest_problems();
    assert!(said.len() == 1 && said[0].contains("the Deployment in /m/deployment-web.yaml (document 1)"), "{said:?}");
    assert_eq!(pods(&w), before);
}

#[test]
fn y1_a_pod_that_the_node_rejects_is_not_created_again_and_again() {
    let mut w = node();
    w.define_deployment("web", "replicas: 2", &format!("nodeSelector: {{disk: none}}, {ONE}"));
    w.run(600);
    assert_eq!((w.notices("SuccessfulCreate").len(), pods(&w).len()), (2, 2), "{}", w.trace());
    assert_eq!(condition(&w, "Available").0, "False");
}

#[test]
fn y1_pods_wait_for_a_class_that_is_missing() {
    let mut w = node();
    w.define_deployment("web", "replicas: 2", &format!("priorityClassName: gold, {ONE}"));
    w.run(30);
    assert_eq!((counts(&w)[0], condition(&w, "ReplicaFailure").1), (0, "FailedCreate".to_owned()));
    let said = w.notices("FailedCreate");
    assert!(said.len() == 1 && said[0].contains("no PriorityClass with name gold was found"), "{said:?}");
    w.define_class("gold", 7);
    w.until("both are available", 30, |w| counts(w)[3] == 2);
    assert_eq!(condition(&w, "ReplicaFailure").0, "");
    assert_eq!(w.priority_of(pods(&w).first().expect("a pod")), Some(7));
    w.assert_well();
}

#[test]
fn y12_all_deployments_together_have_a_limited_number_of_pods() {
    let mut w = node();
    w.define_deployment("a", "replicas: 600", ONE);
    w.run(5);
    w.define_deployment("web", "replicas: 600", ONE);
    w.run(5);
    assert_eq!((counts(&w)[0] as usize, condition(&w, "ReplicaFailure").0.as_str()), (MAX_PODS - 600, "True"));
    let said = w.notices("FailedCreate");
    assert!(said.len() == 1 && said[0].contains("1000 pods, which is the maximum; reduce spec.replicas"), "{said:?}");
    w.define_deployment("a", "replicas: 1", ONE);
    w.until("the other one has all its pods", 120, |w| counts(w)[0] == 600);
    assert_eq!(condition(&w, "ReplicaFailure").0, "");
}

#[test]
fn y12_large_templates_of_earlier_revisions_are_forgotten() {
    let mut w = deployed(1);
    for version in 2..7 {
        let large = probed(version).replace(&format!("v{version}"), &"v".repeat(300_000 + version as usize));
        w.define_deployment("web", "replicas: 1", &large);
        w.until("it is complete", 60, |w| complete(w) && revision(w) == u64::from(version));
        w.run(60);
    }
    let kept: Vec<u64> = rollout(&w).sets().iter().map(|set| set.number).collect();
    assert_eq!(kept, [4, 5, 6], "three templates of 300 kB");
    w.assert_well();
}

#[test]
fn y9_a_pod_is_available_after_min_ready_seconds() {
    let mut w = node();
    w.define_deployment("web", "replicas: 2, minReadySeconds: 20", ONE);
    w.until("both are ready", 10, |w| counts(w)[2] == 2);
    assert_eq!(counts(&w)[3], 0);
    w.run(15);
    assert_eq!((counts(&w)[3], complete(&w)), (0, false));
    w.run(10);
    assert_eq!((counts(&w)[3], complete(&w)), (2, true));
    w.assert_well();
}

#[test]
fn y10_a_paused_deployment_keeps_its_template() {
    let mut w = deployed(2);
    let old = pods(&w);
    w.define_deployment("web", "replicas: 2, paused: true", &probed(2));
    w.run(60);
    assert_eq!((pods(&w), condition(&w, "Progressing")), (old.clone(), ("Unknown".into(), "DeploymentPaused".into())));
    assert_eq!(counts(&w)[1], 0, "no pod has the template of the manifest");
    assert_eq!(rollout(&w).sets().len(), 1, "a paused Deployment begins no revision");
    w.define_deployment("web", "replicas: 3, paused: true", &probed(2));
    w.until("it has three pods", 30, |w| counts(w)[3] == 3);
    assert!(old.is_subset(&pods(&w)));
    w.define_deployment("web", "replicas: 3", &probed(2));
    w.until("it is complete", 120, complete);
    assert!(old.is_disjoint(&pods(&w)));
    w.assert_well();
}

#[test]
fn y11_an_idle_deployment_causes_no_wake_ups() {
    let mut w = deployed(3);
    w.define_deployment("web", "replicas: 3", ONE);
    w.until("it is complete", 60, complete);
    w.run(120);
    let before = w.observed.steps;
    w.run(600);
    let with = w.observed.steps - before;
    let mut plain = node();
    for name in ["a", "b", "c"] {
        plain.file(name, ONE);
    }
    plain.run(120);
    let before = plain.observed.steps;
    plain.run(600);
    assert!(with <= plain.observed.steps - before + 2, "{with} steps, {} without", plain.observed.steps - before);
}

#[test]
fn y1_an_evicted_pod_is_not_replaced_but_starts_again() {
    let mut w = deployed(2);
    let names = pod_names(web(&w).expect("the Deployment"));
    w.ask(Request::Cordon { on: true });
    w.run(1);
    let uid = w.shown_uid(names.first().expect("a pod"));
    w.ask(Request::Evict { uid: Uid::from(uid.as_str()), grace: None });
    w.run(120);
    assert_eq!((running(&w), w.notices("SuccessfulCreate").len()), (1, 2), "{}", w.trace());
    w.ask(Request::Cordon { on: false });
    w.until("both are available", 60, |w| counts(w)[3] == 2);
    assert_eq!(pod_names(web(&w).expect("the Deployment")), names);
    w.assert_well();
}
