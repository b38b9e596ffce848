//! ReplicaSets of manifests: their number of pods, a new template for new pods only, restarts, ReplicaSets of a Deployment.

use super::deployments::{controller, pod_names, probed, running};
use crate::story::node;
use crate::world::{S, World};
use std::collections::{BTreeMap, BTreeSet};
use wherry::api::names::Uid;
use wherry::api::workload::key::WorkloadKind;
use wherry::engine::control::Request;
use wherry::engine::workloads::any_controller::AnyController;
use wherry::engine::workloads::shown;

fn set(w: &World) -> Option<&AnyController> {
    controller(w, WorkloadKind::ReplicaSet, "old")
}

/// Replicas, ready and available pods.
fn counts(w: &World) -> [u32; 3] {
    let Some(AnyController::ReplicaSet(of)) = set(w) else { return [0; 3] };
    [of.counts().replicas, of.counts().ready, of.counts().available]
}

fn pods(w: &World) -> BTreeSet<String> {
    set(w).map(pod_names).unwrap_or_default()
}

/// The number of pods with each version of the template.
fn versions(w: &World) -> BTreeMap<String, usize> {
    let mut versions = BTreeMap::new();
    for pod in set(w).into_iter().flat_map(|of| of.get().state().history.pods()) {
        let value = pod.spec().containers[0].env.iter().flatten().find_map(|variable| variable.value.clone());
        *versions.entry(value.unwrap_or_default()).or_default() += 1;
    }
    versions
}

fn with_old(replicas: u32) -> World {
    let mut w = node();
    w.define_replica_set("old", &format!("replicas: {replicas}"), &probed(1));
    w.until("all pods are available", 60, |w| counts(w) == [replicas; 3]);
    w
}

#[test]
fn y17_a_replica_set_keeps_its_number_of_pods() {
    let mut w = with_old(3);
    let before = pods(&w);
    let of_first = w.shown_uid(before.first().expect("a pod"));
    w.ask(Request::DeleteReplica { uid: Uid::from(of_first.as_str()), grace: None });
    w.until("it is replaced", 60, |w| counts(w) == [3; 3] && pods(w).intersection(&before).count() == 2);
    w.define_replica_set("old", "replicas: 1", &probed(1));
    w.until("one pod stays", 60, |w| counts(w) == [1; 3] && running(w) == 1);
    assert!(before.is_superset(&pods(&w)), "the newest pods end first");
    w.define_replica_set("old", "replicas: 2", &probed(1));
    w.until("there are two", 60, |w| counts(w) == [2; 3]);
    w.remove_replica_set("old");
    w.until("nothing is left", 60, |w| running(w) == 0);
    w.assert_well();
}

#[test]
fn y17_a_new_template_is_that_of_new_pods() {
    let mut w = with_old(2);
    let before = pods(&w);
    w.define_replica_set("old", "replicas: 3", &probed(2));
    w.until("there are three", 60, |w| counts(w) == [3; 3]);
    w.run(120);
    assert!(before.is_subset(&pods(&w)));
    assert_eq!(versions(&w), [("v1".to_owned(), 2), ("v2".to_owned(), 1)].into());
    let shown = set(&w).map(shown::object).expect("the ReplicaSet");
    assert_eq!(shown["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"], "v2");
    assert_eq!((&shown["status"]["fullyLabeledReplicas"], &shown["metadata"]["generation"]), (&3.into(), &2.into()));
    w.assert_well();
}

#[test]
fn y17_the_pods_survive_restarts_and_reboots() {
    for reboots in [false, true] {
        for at in 0..6 {
            let mut w = node();
            w.define_replica_set("old", "replicas: 3", &probed(1));
            w.run_ms(at * 500);
            match reboots {
                false => w.restart_engine(),
                true => w.reboot(S),
            }
            w.until("all pods are available", 600, |w| counts(w) == [3; 3]);
            let before = pods(&w);
            w.restart_engine();
            w.run(120);
            assert_eq!((pods(&w), running(&w)), (before, 3), "{at} {reboots}");
            w.assert_well();
        }
    }
}

#[test]
fn y17_a_replica_set_and_a_deployment_do_not_take_each_others_pods() {
    let mut w = with_old(1);
    w.define_deployment("web", "replicas: 2", &probed(1));
    w.until("there are three", 60, |w| running(w) == 3);
    w.restart_engine();
    w.run(120);
    assert_eq!((pods(&w).len(), running(&w)), (1, 3));
    w.assert_well();
}
