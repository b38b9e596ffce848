//! Workers: starts, waits for a name, returns of a pod.

use crate::runtime::Life;
use crate::story::*;
use crate::world::{Fault, S};
use std::time::Duration;
use wherry::engine::effect::Measure;

#[test]
fn w1_a_pod_starts_and_ends_with_its_file() {
    let mut w = node();
    w.file("web", ONE);
    w.run(2);
    assert_eq!(w.take_calls(), ["RunSandbox web#0", "CreateContainer web/main#0", "StartContainer web/main#0"]);
    assert_eq!(w.shown("web"), "Running main#0:running");
    w.remove("web");
    w.run(2);
    assert_eq!(w.take_calls(), ["StopContainer web/main#0 30000ms", "StopSandbox web#0", "RemoveSandbox web#0"]);
    assert_eq!(w.shown("web"), "");
    w.assert_clean();
}

#[test]
fn w1_a_start_emits_the_events_of_a_kubelet() {
    let mut w = node();
    w.file("web", ONE);
    w.run(2);
    let reported: Vec<String> =
        w.observed.notices.iter().map(|(_, n)| format!("{}: {}", n.reason, n.message)).collect();
    assert_eq!(
        reported,
        [
            "Pulled: Container image \"busybox:1.35\" already present on machine",
            "Created: Created container: main",
            "Started: Started container main",
        ]
    );
    w.remove("web");
    w.run(2);
    assert_eq!(w.notices("Killing"), ["Stopping container main"]);
}

#[test]
fn w11_containers_start_in_the_order_of_the_spec() {
    let mut w = node();
    w.file("web", TWO);
    w.run(2);
    let said = w.take_calls();
    let starts: Vec<&String> = said.iter().filter(|s| s.starts_with("Start")).collect();
    assert_eq!(starts, ["StartContainer web/one#0", "StartContainer web/two#0"]);
}

#[test]
fn w6_a_pod_restarts_if_its_file_returns_during_the_termination() {
    let mut w = node();
    w.life("web/main", &[Life::deaf()]);
    w.file("web", &format!("terminationGracePeriodSeconds: 4, {ONE}"));
    w.run(2);
    let first = w.running("web/main");
    w.remove("web");
    w.run(1);
    w.file("web", &format!("terminationGracePeriodSeconds: 4, {ONE}"));
    w.run(2);
    assert_eq!(w.running("web/main"), first, "its grace period goes on");
    w.run(3);
    assert!(w.runs("web/main") && w.running("web/main") != first);
    assert_eq!(w.container_status("web", "main").restart_count, 0);
    assert_eq!(w.observed.measures.iter().filter(|m| **m == Measure::RestartedPod).count(), 1);
    w.assert_well();
}

#[test]
fn w6_a_file_added_and_removed_during_the_termination_leaves_no_state() {
    let mut w = node();
    w.file("web", ONE);
    w.run(2);
    w.remove("web");
    w.file("web", ONE);
    w.remove("web");
    w.run(3);
    w.assert_clean();
}

#[test]
fn d3_a_changed_pod_is_a_new_pod() {
    let mut w = node();
    w.file("web", ONE);
    w.run(2);
    let before = w.engine.pods()[0].pod.uid.clone();
    w.file("web", &format!("terminationGracePeriodSeconds: 3, {ONE}"));
    let took = w.until("the new one runs", 5, |w| {
        w.engine.pods().iter().any(|v| v.pod.uid != before && v.status.phase.as_deref() == Some("Running"))
    });
    assert!(took < 500, "{took} ms");
    w.run(2);
    assert_eq!(w.engine.pods().len(), 1);
    w.assert_well();
}

#[test]
fn d3_a_change_under_a_fixed_uid_replaces_the_pod() {
    let mut w = node();
    w.file_with_uid("web", "u-1", ONE);
    w.run(2);
    let first = w.running("web/main");
    w.file_with_uid("web", "u-1", &format!("terminationGracePeriodSeconds: 3, {ONE}"));
    w.run(2);
    assert!(w.runs("web/main") && w.running("web/main") != first);
    assert_eq!(w.engine.pods()[0].pod.grace_period(), Duration::from_secs(3));
    // The manifest changes back before the second version has started.
    w.file_with_uid("web", "u-1", TWO);
    w.run_ms(30);
    w.file_with_uid("web", "u-1", ONE);
    w.run(3);
    assert_eq!(w.shown("web"), "Running main#0:running");
    assert_eq!(w.runtime.containers.len(), 1);
    w.assert_well();
}

#[test]
fn w8_a_new_pod_of_the_name_waits_until_the_old_one_has_finished_and_starts_at_once() {
    let mut w = node();
    w.life("web/main", &[Life::deaf()]);
    w.file("web", &format!("terminationGracePeriodSeconds: 5, {ONE}"));
    w.run(2);
    w.take_calls();
    w.file("web", TWO);
    w.run(1);
    let waiting = w.engine.pods().into_iter().find(|v| v.desired).map(|v| v.status.clone()).unwrap_or_default();
    assert_eq!(waiting.phase.as_deref(), Some("Pending"));
    assert_eq!((waiting.conditions, waiting.container_statuses), (None, None));
    w.run(5);
    assert_eq!(w.shown("web"), "Running one#0:running two#0:running");
    let said = w.take_calls();
    assert_eq!(said[..2], ["StopContainer web/main#0 5000ms", "StopSandbox web#0"]);
    w.assert_well();
}

#[test]
fn w8_a_pod_killed_while_it_waits_starts_nothing_and_delays_no_other_pod() {
    let mut w = node();
    w.life("web/main", &[Life::deaf()]);
    w.file("web", &format!("terminationGracePeriodSeconds: 5, {ONE}"));
    w.run(2);
    w.file("web", NEVER);
    w.run(1);
    w.file("web", TWO);
    w.run_ms(10);
    assert_eq!(w.engine.pods().len(), 2, "the one between is gone at once");
    w.run(6);
    assert_eq!(w.shown("web"), "Running one#0:running two#0:running");
    w.assert_well();
}

#[test]
fn w9_nothing_starts_while_the_network_is_not_ready_but_a_host_network_pod() {
    let mut w = node();
    w.runtime.network_ready = false;
    w.run(100);
    w.file("web", ONE);
    w.file("host", &format!("hostNetwork: true, {ONE}"));
    w.run(5);
    assert!(w.runs("host/main") && !w.runs("web/main"));
    w.runtime.network_ready = true;
    w.run(3);
    assert!(w.runs("web/main"));
}

#[test]
fn w9_an_error_is_tried_again_after_10_to_15_seconds() {
    let mut w = node();
    w.fault("RunSandbox", Fault::Error("no more addresses".into()));
    let since = w.clock.now;
    w.file("web", ONE);
    w.run(20);
    let tries = w.times("RunSandbox", since);
    assert_eq!(tries.len(), 2);
    assert!((10_000..15_200).contains(&tries[1]), "{tries:?}");
    let message = "Failed to create pod sandbox: rpc error: code = Unknown desc = no more addresses";
    assert_eq!(w.notices("FailedCreatePodSandBox"), [message]);
    assert!(w.runs("web/main"));
}

#[test]
fn w9_pods_that_are_well_share_their_wake_ups() {
    let mut w = node();
    for i in 0..20 {
        w.file(&format!("web{i}"), ONE);
        w.run_ms(700);
    }
    w.run(100);
    let (steps, wake_ups, published, lists) =
        (w.observed.steps, w.observed.wake_ups, w.observed.published, w.observed.lists);
    w.run(120);
    let lists = w.observed.lists - lists;
    // Each list takes two wake-ups, and the resyncs of all pods share a few.
    assert!(w.observed.wake_ups - wake_ups <= 2 * lists + 8, "{} for {lists} lists", w.observed.wake_ups - wake_ups);
    assert!(w.observed.steps - steps <= 2 * lists + 8 + 20 * 3);
    assert_eq!(w.observed.published, published);
}

#[test]
fn w9_a_sync_is_late_by_at_most_half_the_sync_frequency() {
    for frequency in [1, 2, 10, 40, 60, 100] {
        let mut config = crate::world::config();
        config.sync_frequency = Duration::from_secs(frequency);
        let mut w = node_with(config);
        w.file("web", ONE);
        w.starts_within(3, "web");
        w.run(2 * frequency);
        for _ in 0..5 {
            let (uid, at) = w.pod_deadlines().pop().expect("a sync is due");
            // The deadline was set between the last sync and now. The next period counts from the deadline itself.
            w.until(uid.as_str(), 2 * frequency, |w| w.pod_deadlines().first().is_none_or(|(_, due)| *due != at));
            let (_, next) = w.pod_deadlines().pop().expect("the next sync");
            let later = next - at;
            let (least, most) = (frequency * S, frequency * S * 3 / 2);
            assert!(
                (least - S / 2..=most).contains(&later),
                "{frequency} s: the next sync {} ms later",
                later / 1_000_000
            );
        }
    }
}

#[test]
fn w9_at_most_four_sandboxes_and_four_containers_are_started_at_the_same_time() {
    let mut config = crate::world::config();
    config.node.allocatable.set("pods", 150);
    let mut w = node_with(config);
    let mut files = w.files.clone();
    for i in 0..150 {
        let path = format!("/m/p{i}.yaml");
        files.insert(path.clone(), pod(&path, &format!("p{i}"), "", ONE));
    }
    w.set_files(files);
    let mut most = (0, 0);
    for _ in 0..10_000 {
        if !w.happen(w.clock.now + 100 * S) {
            break;
        }
        let (sandboxes, containers) = w.starting();
        most = (sandboxes.max(most.0), containers.max(most.1));
    }
    w.run(60);
    assert_eq!(most, (4, 4));
    assert_eq!(w.runtime.containers.values().filter(|c| c.runs()).count(), 150);
    w.set_files(Default::default());
    w.run(30);
    w.assert_clean();
}

#[test]
fn w2_a_kill_cancels_what_is_being_started() {
    let mut w = node();
    w.fault("RunSandbox", Fault::Slow(Duration::from_secs(60)));
    w.file("web", ONE);
    w.run(5);
    w.remove("web");
    w.run(2);
    assert_eq!(w.shown("web"), "");
    assert!(w.disk.records.is_empty());
    // For a while its cgroup could still appear.
    w.run(30);
    w.assert_clean();
}

#[test]
fn w21_a_sandbox_that_appears_after_its_worker_was_dropped_is_removed() {
    let mut w = node();
    w.fault("RunSandbox", Fault::Slow(Duration::from_secs(6)));
    w.file("web", ONE);
    w.run(1);
    w.faults.late_cancellation = true;
    w.remove("web");
    w.run(3);
    assert_eq!(w.engine.pods().len(), 0);
    w.run(6);
    assert!(w.observed.measures.contains(&Measure::OrphanedPod));
    w.assert_clean();
}

#[test]
fn a_thousand_pods_leave_no_state_behind() {
    let mut w = node();
    w.history = None;
    w.pidfds.available = true;
    for i in 0..1000 {
        w.file_with_uid(
            "web",
            if i % 3 == 0 { "u" } else { "" },
            &format!("activeDeadlineSeconds: {}, {ONE}", i + 100),
        );
        w.run_ms(30 * (i % 20));
        w.remove("web");
        w.run_ms(40 * (i % 7));
    }
    w.run(300);
    w.assert_clean();
    assert_eq!(w.pending_ops(), 0);
    assert_eq!(w.deadlines().len(), 3, "{:?}", w.deadlines());
    assert!(w.pidfds.watched.is_empty());
    assert_eq!(w.operations_in_flight(), 0);
}

#[test]
fn w21_a_list_that_is_older_than_a_pods_end_makes_no_orphan_of_it() {
    let mut w = node();
    w.file("web", ONE);
    w.run(5);
    w.fault("List", crate::world::Fault::Stale(Duration::from_secs(5)));
    w.run_ms(1200);
    w.remove("web");
    w.run(20);
    assert_eq!(w.notices("OrphanedPod"), Vec::<String>::new());
    w.assert_clean();
}

#[test]
fn w23_a_late_container_of_a_finished_pod_is_stopped() {
    let mut w = node();
    w.life("web/main", &[crate::runtime::Life::exits(0, Duration::from_secs(2))]);
    w.file("web", NEVER);
    w.run(10);
    assert_eq!(w.shown("web"), "Succeeded main#0:terminated Completed 0");
    w.take_calls();
    for c in w.runtime.containers.values_mut() {
        c.state = wherry::api::facts::ContainerState::Running;
        c.dead = false;
    }
    w.run(40);
    assert!(!w.runs("web/main"));
    assert_eq!(w.take_calls().iter().filter(|s| s.starts_with("StopContainer web/main#0")).count(), 1);
}
