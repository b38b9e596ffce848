//! StatefulSets: order, stable names, updates from the highest number, partitions, restarts at every moment.

use super::deployments::{controller, probed, running};
use super::shutdown::with_shutdown;
use crate::runtime::Life;
use crate::story::{node, node_with};
use crate::world::handlers::{BADLY, WELL};
use crate::world::{S, World};
use std::collections::BTreeMap;
use wherry::api::names::Uid;
use wherry::api::workload::key::WorkloadKind;
use wherry::engine::control::Request;
use wherry::engine::workloads::any_controller::AnyController;
use wherry::engine::workloads::controller::Controller;
use wherry::engine::workloads::shown;
use wherry::engine::workloads::stateful_set::Sequence;

/// A pod whose image does not exist.
fn broken() -> String {
    probed(9).replace("busybox:1.35", "busybox:1.35 no")
}

fn sequence(w: &World) -> Option<&Sequence> {
    if let Some(AnyController::StatefulSet(of)) = controller(w, WorkloadKind::StatefulSet, "db") {
        Some(of)
    } else {
        None
    }
}

/// Replicas, ready and updated pods.
fn counts(w: &World) -> [u32; 3] {
    sequence(w)
        .map(|sequence| *sequence.counts())
        .map_or([0; 3], |counts| [counts.replicas, counts.ready, counts.updated])
}

/// The pods that are not being deleted, with their versions.
fn pods(w: &World) -> BTreeMap<String, String> {
    let all = sequence(w).into_iter().flat_map(|sequence| sequence.state().history.pods());
    let version = |value: &serde_json::Value| value.pointer("/spec/containers/0/env/0/value").cloned();
    all.map(|pod| {
        let object = serde_json::json!(pod.object);
        (pod.name.name.to_string(), version(&object).and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default())
    })
    .collect()
}

fn names(w: &World) -> Vec<String> {
    pods(w).into_keys().collect()
}

fn versions(w: &World) -> Vec<String> {
    pods(w).into_values().collect()
}

fn with_db(spec: &str, replicas: u32) -> World {
    let mut w = node();
    w.define_stateful_set("db", spec, &probed(1));
    w.until("all pods are ready", 60, |w| counts(w) == [replicas; 3]);
    w
}

#[test]
fn y15_pods_have_stable_names_and_start_in_order() {
    let mut w = node();
    w.define_stateful_set("db", "replicas: 3, serviceName: data, ordinals: {start: 5}", &probed(1));
    let mut most_waiting = 0;
    for _ in 0..600 {
        w.run_ms(100);
        let [replicas, ready, _] = counts(&w);
        most_waiting = most_waiting.max(replicas - ready);
    }
    assert_eq!((counts(&w), names(&w), most_waiting), ([3; 3], ["db-5", "db-6", "db-7"].map(str::to_owned).into(), 1));
    let mut all = sequence(&w).expect("the StatefulSet").state().history.pods();
    let pod = all.find(|pod| &*pod.name.name == "db-5").expect("a pod").clone();
    drop(all);
    let (spec, labels) = (pod.spec(), pod.object.metadata.labels.clone().unwrap_or_default());
    assert_eq!((spec.hostname.as_deref(), spec.subdomain.as_deref()), (Some("db-5"), Some("data")));
    assert_eq!(labels.get("apps.kubernetes.io/pod-index").map(String::as_str), Some("5"));
    let uid = Uid::from(w.shown_uid("db-6").as_str());
    w.ask(Request::DeleteReplica { uid: uid.clone(), grace: None });
    w.until("it is replaced", 60, |w| counts(w) == [3; 3] && w.shown_uid("db-6") != uid.as_str());
    w.run(60);
    assert_eq!(running(&w), 3);
    w.assert_well();
}

#[test]
fn y15_with_parallel_all_pods_start_at_once() {
    let mut w = node();
    w.define_stateful_set("db", "replicas: 3, podManagementPolicy: Parallel", &broken());
    w.run(10);
    assert_eq!(counts(&w), [3, 0, 3]);
    w.define_stateful_set("db", "replicas: 1, podManagementPolicy: Parallel", &broken());
    w.until("two pods are gone", 60, |w| counts(w)[0] == 1);
    assert_eq!(names(&w), ["db-0"]);
}

#[test]
fn y15_a_pod_that_is_not_ready_holds_back_the_next_one() {
    let mut w = node();
    w.define_stateful_set("db", "replicas: 3", &broken());
    w.run(120);
    assert_eq!((names(&w), counts(&w)), (vec!["db-0".to_owned()], [1, 0, 1]));
    // In a cluster, the pod that never becomes ready would block the version that repairs it.
    w.define_stateful_set("db", "replicas: 3", &probed(1));
    w.until("all pods are ready", 120, |w| counts(w) == [3; 3]);
    w.assert_well();
}

#[test]
fn y15_pods_end_from_the_highest_number() {
    let mut w = with_db("replicas: 4", 4);
    w.define_stateful_set("db", "replicas: 1", &probed(1));
    let mut most_ending = 0;
    for _ in 0..1200 {
        w.run_ms(100);
        let left = names(&w).len();
        assert_eq!(names(&w), ["db-0", "db-1", "db-2", "db-3"][..left]);
        most_ending = most_ending.max(counts(&w)[0] as usize - left);
    }
    assert_eq!((names(&w).len(), most_ending, running(&w)), (1, 1, 1));
    w.assert_well();
}

#[test]
fn y16_an_update_goes_from_the_highest_number_down_and_waits_for_each_pod() {
    for policy in ["OrderedReady", "Parallel"] {
        let spec = format!("replicas: 3, podManagementPolicy: {policy}");
        let mut w = with_db(&spec, 3);
        w.define_stateful_set("db", &spec, &probed(2));
        let mut least = u32::MAX;
        for _ in 0..1500 {
            w.run_ms(100);
            least = least.min(counts(&w)[1]);
            let versions = versions(&w);
            assert!(versions.is_sorted(), "an older version has a higher number: {versions:?}");
        }
        assert_eq!((counts(&w), versions(&w), least), ([3; 3], vec!["v2".to_owned(); 3], 2), "{policy}");
        let status = controller(&w, WorkloadKind::StatefulSet, "db").map(shown::object).expect("it")["status"].take();
        assert!(
            status["currentRevision"].is_string() && status["currentRevision"] == status["updateRevision"],
            "{status}"
        );
        w.assert_well();
    }
}

#[test]
fn y16_max_unavailable_pods_are_replaced_at_a_time() {
    let spec = "replicas: 4, podManagementPolicy: Parallel, updateStrategy: {rollingUpdate: {maxUnavailable: 50%}}";
    let mut w = with_db(spec, 4);
    w.define_stateful_set("db", spec, &probed(2));
    let mut least = u32::MAX;
    for _ in 0..1500 {
        w.run_ms(100);
        least = least.min(counts(&w)[1]);
    }
    assert_eq!((counts(&w), least), ([4; 3], 2));
}

#[test]
fn y16_pods_below_the_partition_keep_their_template() {
    let mut w = with_db("replicas: 3", 3);
    let partition = "replicas: 3, updateStrategy: {rollingUpdate: {partition: 2}}";
    w.define_stateful_set("db", partition, &probed(2));
    w.until("one pod is updated", 120, |w| counts(w) == [3, 3, 1]);
    w.run(60);
    assert_eq!(versions(&w), ["v1", "v1", "v2"]);
    let uid = Uid::from(w.shown_uid("db-0").as_str());
    w.ask(Request::DeleteReplica { uid: uid.clone(), grace: None });
    w.until("it is replaced", 60, |w| counts(w)[1] == 3 && w.shown_uid("db-0") != uid.as_str());
    assert_eq!(versions(&w), ["v1", "v1", "v2"]);
    w.restart_engine();
    w.run(120);
    assert_eq!(versions(&w), ["v1", "v1", "v2"]);
    w.assert_well();
}

#[test]
fn y16_a_restart_at_any_moment_of_an_update_loses_nothing() {
    for reboots in [false, true] {
        for at in 0..12 {
            let mut w = with_db("replicas: 2", 2);
            w.define_stateful_set("db", "replicas: 2", &probed(2));
            w.run_ms(at * 3000);
            match reboots {
                false => w.restart_engine(),
                true => w.reboot(S),
            }
            w.until("the update is complete", 600, |w| counts(w) == [2; 3] && versions(w) == ["v2", "v2"]);
            w.run(60);
            assert_eq!((names(&w).len(), running(&w)), (2, 2), "{at} {reboots}");
            w.assert_well();
        }
    }
}

#[test]
fn y16_a_version_that_never_becomes_ready_stops_at_its_first_pod_and_can_be_reverted() {
    let mut w = with_db("replicas: 3", 3);
    w.define_stateful_set("db", "replicas: 3", &broken());
    w.run(300);
    assert_eq!(versions(&w), ["v1", "v1", "v9"]);
    w.restart_engine();
    w.run(120);
    assert_eq!(versions(&w), ["v1", "v1", "v9"]);
    w.define_stateful_set("db", "replicas: 3", &probed(1));
    w.until("all pods are ready", 120, |w| counts(w) == [3; 3]);
    assert_eq!(versions(&w), ["v1", "v1", "v1"]);
    w.assert_well();
}

#[test]
fn y16_old_revisions_are_forgotten_also_after_a_restart_but_not_the_current_one() {
    let spec = "replicas: 2, revisionHistoryLimit: 0";
    let mut w = with_db(spec, 2);
    w.restart_engine();
    w.define_stateful_set("db", spec, &probed(2));
    w.until("the update is complete", 120, |w| counts(w) == [2; 3] && versions(w) == ["v2", "v2"]);
    let revisions = |w: &World| sequence(w).map_or(0, |of| of.state().history.revisions.len());
    assert_eq!(revisions(&w), 1);
    // With this partition, no pod is updated, and the current template is needed while there is no pod.
    let held = |replicas: u32| {
        format!("replicas: {replicas}, revisionHistoryLimit: 0, updateStrategy: {{rollingUpdate: {{partition: 5}}}}")
    };
    w.define_stateful_set("db", &held(0), &probed(3));
    w.until("there is no pod", 60, |w| running(w) == 0);
    w.define_stateful_set("db", &held(1), &probed(4));
    w.until("there is a pod", 60, |w| running(w) == 1);
    assert_eq!(versions(&w), ["v2"]);
    w.assert_well();
}

/// After a start, the states of the pods are not known yet, but db-1 is the one that is not ready.
#[test]
fn y16_a_new_run_ends_no_ready_pod_out_of_order() {
    let mut w = with_db("replicas: 3", 3);
    w.handlers.answers("db-1/main/Readiness", &[BADLY]);
    w.until("one is not ready", 30, |w| counts(w)[1] == 2);
    w.kill_engine();
    w.define_stateful_set("db", "replicas: 3", &probed(2));
    w.start();
    let is = |w: &World, name: &str, version: &str| pods(w).get(name).is_some_and(|is| is == version);
    let mut saw_repair = false;
    for _ in 0..1200 {
        w.run_ms(100);
        let repaired = is(&w, "db-1", "v2");
        saw_repair |= repaired && is(&w, "db-0", "v1") && is(&w, "db-2", "v1");
        assert!(repaired || !saw_repair);
        assert!(saw_repair || is(&w, "db-0", "v1") || pods(&w).is_empty(), "{:?}", pods(&w));
    }
    assert!(saw_repair);
    w.handlers.answers("db-1/main/Readiness", &[WELL]);
    w.until("the update is complete", 600, |w| counts(w) == [3; 3]);
}

#[test]
fn y15_a_pod_whose_name_is_taken_starts_when_the_name_is_free() {
    let mut w = node();
    w.file("db-0", &format!("terminationGracePeriodSeconds: 20, {}", probed(1)));
    w.life("db-0/main", &[Life::deaf(), Life::FOREVER]);
    w.until("the other pod runs", 30, |w| running(w) == 1);
    w.define_stateful_set("db", "replicas: 1", &probed(1));
    w.run(30);
    assert_eq!((counts(&w), w.notices("FailedCreate").len()), ([0; 3], 1));
    w.set_files(BTreeMap::new());
    w.run(5);
    assert_eq!((counts(&w), running(&w)), ([0; 3], 1), "the other pod is terminating");
    w.until("it has started", 60, |w| counts(w) == [1; 3]);
    w.assert_well();
}

#[test]
fn y15_of_two_pods_of_one_name_the_newer_stays_after_a_restart() {
    for ms in 0..60 {
        let mut w = node_with(with_shutdown());
        w.define_stateful_set("db", "replicas: 2", &probed(1));
        w.until("all pods are ready", 60, |w| counts(w) == [2; 3]);
        w.power_off();
        // A pod whose end is being recorded is replaced: the record cannot say yet that it is deleted.
        w.run_ms(ms);
        w.define_stateful_set("db", "replicas: 2", &probed(2));
        w.restart_engine();
        w.call_off();
        w.until("the new pods run", 120, |w| counts(w) == [2; 3]);
        assert_eq!((names(&w), versions(&w)), (vec!["db-0".to_owned(), "db-1".to_owned()], vec!["v2".to_owned(); 2]));
        w.run(60);
        assert_eq!(running(&w), 2, "{ms}");
        w.assert_well();
    }
}
