//! Termination: grace periods, retries and deadlines.

use crate::runtime::Life;
use crate::story::*;
use crate::world::{Fault, S, World};
use std::time::Duration;

#[test]
fn w4_the_pods_own_grace_period_is_given_and_never_less_than_two_seconds() {
    let mut w = node();
    for (name, grace, stop) in [("a", 1, 2000), ("b", 3, 3000), ("c", 5, 5000)] {
        w.life(&format!("{name}/main"), &[Life::deaf()]);
        w.file(name, &format!("terminationGracePeriodSeconds: {grace}, {ONE}"));
        w.run(1);
        w.take_calls();
        w.remove(name);
        w.run(8);
        assert_eq!(w.take_calls()[0], format!("StopContainer {name}/main#0 {stop}ms"));
        w.assert_clean();
    }
}

#[test]
fn w4_all_containers_are_stopped_at_one_time() {
    let mut w = node();
    w.file("web", TWO);
    w.run(2);
    w.take_calls();
    w.remove("web");
    w.run(2);
    let mut said = w.take_calls();
    said[..2].sort();
    assert_eq!(said[..2], ["StopContainer web/one#0 30000ms", "StopContainer web/two#0 30000ms"]);
    assert_eq!(said.iter().filter(|s| s.starts_with("StopContainer")).count(), 2);
}

#[test]
fn w2_a_stopped_container_gets_no_second_stop_while_another_one_stops() {
    let mut w = node();
    w.life("web/two", &[Life::deaf()]);
    w.file("web", &format!("terminationGracePeriodSeconds: 5, {TWO}"));
    w.run(2);
    w.take_calls();
    // The status read that would show the end of the first container is slow.
    let uid = w.engine.pods()[0].pod.uid.clone();
    w.fault(&format!("ReadPod {uid}"), Fault::Slow(Duration::from_secs(1)));
    w.remove("web");
    w.run(8);
    let said = w.take_calls();
    assert_eq!(said.iter().filter(|s| s.starts_with("StopContainer")).count(), 2, "{said:?}");
    w.assert_clean();
}

#[test]
fn w4_a_restarted_wherry_continues_with_the_rest_of_the_grace_period() {
    let mut w = node();
    w.life("web/main", &[Life::deaf()]);
    w.file("web", ONE);
    w.run(2);
    let begin = w.clock.now;
    w.remove("web");
    w.run(20);
    w.take_calls();
    w.restart_engine();
    w.run(5);
    let said = w.take_calls();
    assert_eq!(said.len(), 1, "{said:?}");
    let left: u64 = said[0].trim_start_matches("StopContainer web/main#0 ").trim_end_matches("ms").parse().unwrap();
    assert_eq!(left, 10_000);
    let took = w.until("it is gone", 10, |w| w.runtime.containers.is_empty());
    let all = (w.clock.now - begin) / S;
    assert!((29..32).contains(&all), "{all} s, {took} ms");
}

#[test]
fn w2_a_failed_stop_is_retried_with_a_back_off_until_no_container_runs() {
    let mut w = node();
    w.file("web", ONE);
    w.run(2);
    for _ in 0..5 {
        w.fault("StopContainer", Fault::Error("shim is gone".into()));
    }
    let begin = w.clock.now;
    w.remove("web");
    w.run(40);
    let at = w.times("StopContainer", begin);
    assert_eq!(at.len(), 6, "{at:?}");
    let gaps: Vec<u64> = at.windows(2).map(|p| p[1] - p[0]).collect();
    for (gap, least) in gaps.iter().zip([500, 1000, 2000, 4000, 8000]) {
        assert!((least..=least * 3 / 2 + 20).contains(gap), "{gaps:?}");
    }
    assert_eq!(w.notices("FailedKillPod").len(), 5);
    w.assert_clean();
}

#[test]
fn w2_a_sandbox_that_cannot_be_stopped_delays_the_end_by_five_attempts() {
    let mut w = node();
    w.file("web", ONE);
    w.run(2);
    for _ in 0..20 {
        w.fault("StopSandbox", Fault::Error("cni is gone".into()));
    }
    let begin = w.clock.now;
    w.remove("web");
    w.run(60);
    assert_eq!(w.times("StopSandbox", begin).len(), 5);
    w.assert_clean();
}

#[test]
fn w2_no_terminated_without_a_read_after_the_last_call() {
    let mut w = node();
    w.file("web", ONE);
    w.run(2);
    for _ in 0..3 {
        let uid = w.engine.pods()[0].pod.uid.clone();
        w.fault(&format!("ReadPod {uid}"), Fault::Error("busy".into()));
    }
    w.remove("web");
    w.run_ms(500);
    assert_ne!(w.shown("web"), "", "the stop was answered, and nothing was seen since");
    w.run(6);
    w.assert_clean();
}

#[test]
fn w20_a_termination_continues_after_an_outage_of_the_runtime() {
    let mut w = node();
    w.life("web/main", &[Life::deaf()]);
    w.file("web", &format!("terminationGracePeriodSeconds: 5, {ONE}"));
    w.run(2);
    w.remove("web");
    w.run(1);
    w.runtime_down();
    w.run(3600);
    assert!(w.runs("web/main"));
    assert!(!w.engine.pods().is_empty());
    w.runtime_up();
    w.run(4);
    w.assert_clean();
}

#[test]
fn w20_and_when_wherry_is_killed_in_the_middle_too() {
    for ms in (0..200).step_by(7) {
        let mut w = node();
        w.file("web", TWO);
        w.run(2);
        w.remove("web");
        w.run_ms(ms);
        w.restart_engine();
        w.run(5);
        assert!(w.engine.pods().is_empty() && w.disk.records.is_empty());
        w.run(30);
        w.assert_clean();
    }
}

#[test]
fn the_active_deadline_ends_the_pod() {
    let mut w = node();
    w.life("web/main", &[Life::deaf()]);
    w.file("web", &format!("activeDeadlineSeconds: 5, terminationGracePeriodSeconds: 3, {ONE}"));
    w.run(6);
    // W3 (ours): no terminal phase while it runs.
    assert_eq!(w.shown("web"), "Running (DeadlineExceeded) main#0:running");
    w.run(4);
    assert_eq!(w.shown("web"), "Failed (DeadlineExceeded) main#0:terminated Error 137");
    let message = "Pod was active on the node longer than the specified deadline";
    assert_eq!(w.status("web").message.as_deref(), Some(message));
    assert_eq!(w.notices("DeadlineExceeded"), [message]);
    assert_eq!(w.condition("web", "Ready").1, "PodFailed");
    // The phase stays, also over a restart.
    w.take_calls();
    w.restart_engine();
    w.run(100);
    assert_eq!(w.shown("web"), "Failed (DeadlineExceeded) main#0:terminated Error 137");
    assert_eq!(w.take_calls(), Vec::<String>::new());
    w.assert_well();
}

#[test]
fn the_active_deadline_counts_over_a_restart_of_wherry() {
    let mut w = node();
    w.file("web", &format!("activeDeadlineSeconds: 10, {ONE}"));
    w.run(6);
    w.kill_engine();
    w.run(2);
    w.start();
    w.run(3);
    assert_eq!(w.status("web").reason.as_deref(), Some("DeadlineExceeded"));
}

#[test]
fn w3_a_removed_pod_shows_its_phase_so_far_until_nothing_runs() {
    let mut w = node();
    w.life("web/main", &[Life::deaf()]);
    w.file("web", &format!("terminationGracePeriodSeconds: 5, {ONE}"));
    w.run(2);
    w.remove("web");
    w.run(3);
    assert_eq!(w.shown("web"), "Running main#0:running");
    let view = &w.engine.pods()[0];
    assert_eq!(view.deletion.map(|(_, s)| s), Some(5));
    w.run(4);
    w.assert_clean();
}

#[test]
fn w2_a_stop_whose_deadline_passes_is_retried() {
    let mut w = node();
    w.file("web", &format!("terminationGracePeriodSeconds: 2, {ONE}"));
    w.run(2);
    w.fault("StopContainer", Fault::Slow(Duration::from_secs(100_000)));
    let begin = w.clock.now;
    w.remove("web");
    w.run(130);
    assert_eq!(w.times("StopContainer", begin).len(), 2);
    w.assert_clean();
}

#[test]
fn a_disk_that_is_full_stops_nothing() {
    let mut w = node();
    w.disk.full = true;
    w.file("web", ONE);
    w.run(3);
    assert!(w.runs("web/main"));
    w.remove("web");
    w.run(3);
    assert_eq!(w.shown("web"), "");
    w.disk.full = false;
    w.run(90);
    w.assert_clean();
}

#[test]
fn w5_a_removal_does_not_take_the_cause_of_an_earlier_kill_away() {
    let mut w = node();
    w.life("web/main", &[Life::deaf()]);
    w.file("web", &format!("activeDeadlineSeconds: 5, terminationGracePeriodSeconds: 20, {ONE}"));
    w.run(7);
    assert_eq!(w.status("web").reason.as_deref(), Some("DeadlineExceeded"));
    w.remove("web");
    w.run(5);
    assert_eq!(w.shown("web"), "Running (DeadlineExceeded) main#0:running");
    w.run(30);
    w.assert_clean();
}

/// containerd does this when its client disconnects during RunPodSandbox: it never shows a sandbox, and a moment later
/// runc creates the pod's cgroup.
#[test]
fn w26_a_cgroup_created_late_by_a_cancelled_sandbox_is_removed() {
    let late = || {
        let mut w = node();
        w.fault("RunSandbox", Fault::GivenUp(Duration::from_secs(2)));
        w.file("web", ONE);
        w.run_ms(20);
        w
    };
    // The end of the pod cancels the call.
    let mut w = late();
    w.run_ms(60);
    w.remove("web");
    w.run(1);
    assert!(w.engine.pods().is_empty() && w.runtime.cgroups.is_empty() && w.disk.directories.len() == 1);
    w.run(2);
    assert_eq!(w.runtime.cgroups.len(), 1);
    w.run(60);
    w.assert_clean();
    // Wherry is killed once or twice. The manifest is removed meanwhile, or 1 s later.
    for (twice, gone) in [(false, true), (true, true), (false, false), (true, false)] {
        let mut w = late();
        w.kill_engine();
        if gone {
            w.files.clear();
        }
        w.start();
        w.run(1);
        if !gone {
            w.remove("web");
            w.run_ms(300);
        }
        if twice {
            w.restart_engine();
        }
        w.run(60);
        w.assert_clean();
    }
}

#[test]
fn w26_a_late_cgroup_of_a_finished_pod_is_removed_and_the_pod_stays() {
    let mut w = node();
    w.fault("RunSandbox", Fault::GivenUp(Duration::from_secs(35)));
    w.life("web/main", &[Life::exits(0, Duration::from_millis(100))]);
    w.file("web", NEVER);
    w.until("it is over", 34, |w| w.shown("web").starts_with("Succeeded") && w.runtime.cgroups.is_empty());
    w.until("it turns up", 30, |w| !w.runtime.cgroups.is_empty());
    w.run(40);
    assert!(w.runtime.cgroups.is_empty());
    assert_eq!(w.shown("web"), "Succeeded main#0:terminated Completed 0");
    w.assert_well();
}

/// The call was cancelled, and the sandbox holds an IP address.
#[test]
fn w23_a_late_sandbox_of_a_finished_pod_is_stopped() {
    // The cgroup may appear while Wherry still waits for it (W26), or later.
    for (stop_fails, takes) in [(false, 20), (true, 20), (false, 100)] {
        let mut w = node();
        w.fault("RunSandbox", Fault::Slow(Duration::from_secs(takes)));
        if stop_fails {
            w.fault("StopSandbox", Fault::Error("busy".into()));
        }
        w.file("web", &format!("activeDeadlineSeconds: 10, {ONE}"));
        w.faults.late_cancellation = true;
        w.run(15);
        assert_eq!(w.status("web").reason.unwrap_or_default(), "DeadlineExceeded", "{}", w.trace());
        assert!(w.runtime.sandboxes.is_empty());
        let is_there = |w: &World| w.runtime.sandboxes.len() == 1;
        w.until("it turns up", 100, is_there);
        w.until("it is stopped", 20, |w| w.runtime.sandboxes.values().all(|s| !s.ready));
        w.run(60);
        assert!(w.runtime.cgroups.is_empty(), "{}", w.trace());
        assert_eq!(w.status("web").reason.unwrap_or_default(), "DeadlineExceeded");
        w.assert_well();
        w.remove("web");
        w.run(60);
        w.assert_clean();
    }
}

#[test]
fn w2_the_removal_of_a_busy_cgroup_is_retried_before_the_pod_is_forgotten() {
    let mut w = node();
    w.life("web/main", &[Life::exits(0, Duration::from_secs(2))]);
    w.file("web", NEVER);
    w.run(1);
    // A cancelled start may leave such a process behind.
    let id = w.running("web/main");
    w.runtime.containers.get_mut(&id).expect("the container exists").stuck = true;
    w.run(20);
    assert_eq!(w.shown("web"), "Succeeded main#0:terminated Completed 0");
    assert!(w.runtime.cgroups.is_empty());
    w.remove("web");
    w.run(60);
    w.assert_clean();
}

/// The longest grace period that a manifest can contain is 292 billion years. In containerd, more than 292 years
/// overflow and end the container at once.
#[test]
fn w4_a_grace_period_that_a_runtime_cannot_count_is_the_longest_that_it_can() {
    const HUGE: &str = "terminationGracePeriodSeconds: 9223372036854775807";
    let stops = |w: &World| {
        w.observed.calls.iter().map(|(_, t)| t.clone()).filter(|t| t.starts_with("StopContainer")).collect::<Vec<_>>()
    };
    let longest = "StopContainer web/main#0 2147483647000ms".to_owned();

    let mut w = node();
    w.life("web/main", &[Life { on_term: Some((Duration::from_secs(100), 0)), ..Life::FOREVER }]);
    w.file("web", &format!("{HUGE}, {ONE}"));
    w.run(3);
    w.remove("web");
    w.run(50);
    w.restart_engine();
    w.run(40);
    assert!(w.runs("web/main"), "it has its time");
    assert_eq!(stops(&w)[0], longest);
    w.run(20);
    w.assert_clean();

    // A probe's own grace period, which replaces the pod's.
    let mut w = node();
    w.handlers.answers("web/main/Liveness", &[crate::world::handlers::BADLY]);
    let probe = format!("livenessProbe: {{exec: {{command: [x]}}, failureThreshold: 1, periodSeconds: 1, {HUGE}}}");
    w.file("web", &format!("containers: [{{name: main, image: 'busybox:1.35', {probe}}}]"));
    w.run(5);
    assert_eq!(stops(&w)[0], longest);

    // For a pod that only the runtime knows, an annotation contains the grace period.
    let mut w = node();
    w.file("web", ONE);
    w.run(3);
    w.runtime.sandboxes.values_mut().for_each(|s| s.grace_seconds = Some(u64::MAX));
    w.kill_engine();
    w.disk.records.clear();
    w.files.clear();
    w.observed.calls.clear();
    w.start();
    w.run(3);
    assert_eq!(stops(&w)[0], longest);
}
