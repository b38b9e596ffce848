//! Containers that end: restart policies, back-off (W10) and phases.

use crate::runtime::Life;
use crate::story::*;
use crate::world::{Fault, MS, S, World};
use std::time::Duration;

/// The seconds from each end of `web/main` to the following start.
fn delays(w: &World) -> Vec<f64> {
    let mut of: Vec<_> = w.runtime.containers.values().filter(|c| c.name == "main").collect();
    of.sort_by_key(|c| c.attempt);
    of.windows(2).map(|p| p[1].created_at.since(p[0].finished_at).as_secs_f64()).collect()
}

#[test]
fn w10_restarts_follow_immediately_then_10_20_40_seconds_after_the_end() {
    let mut w = node();
    w.life("web/main", &[Life::exits(1, Duration::from_millis(500))]);
    w.file("web", ONE);
    let mut seen = Vec::new();
    let mut last = 0;
    while w.clock.now < 1400 * S {
        w.run_ms(25);
        if w.container_status("web", "main").restart_count > last {
            last += 1;
            seen.push(*delays(&w).last().unwrap_or(&-1.0));
        }
    }
    let expected = [1.0, 10.0, 20.0, 40.0, 80.0, 160.0];
    assert_eq!(seen.len(), 6, "{seen:?}");
    for (got, want) in seen.iter().zip(expected) {
        // The first restart is immediate, once the list has shown the end.
        let late = if want == 1.0 { 0.0..1.1 } else { want..want + 0.05 };
        assert!(late.contains(got), "{seen:?}");
    }
}

#[test]
fn w10_the_back_off_level_survives_a_restart_of_wherry() {
    let mut w = node();
    w.life("web/main", &[Life::exits(1, Duration::from_millis(500))]);
    w.file("web", ONE);
    w.run(40);
    assert_eq!(w.container_status("web", "main").restart_count, 3);
    w.restart_engine();
    w.run(3);
    let (reason, message) = w.waiting("web", "main");
    assert_eq!(reason, "CrashLoopBackOff");
    assert!(message.starts_with("back-off 40s restarting failed container=main pod=web_default("), "{message}");
    w.until("the fourth restart", 40, |w| w.container_status("web", "main").restart_count == 4);
    let last = delays(&w).last().copied().unwrap_or_default();
    assert!((40.0..40.1).contains(&last), "{last}");
}

#[test]
fn w10_a_container_that_ran_for_ten_minutes_starts_again_from_the_first_level() {
    let mut w = node();
    let short = Life::exits(1, Duration::from_millis(500));
    w.life("web/main", &[short, short, short, Life::exits(1, Duration::from_secs(600)), short]);
    w.file("web", ONE);
    w.until("it runs for long", 60, |w| w.container_status("web", "main").restart_count == 3);
    w.until("it restarts at once", 602, |w| w.container_status("web", "main").restart_count == 4);
    w.until("the next waits 10 s", 15, |w| w.container_status("web", "main").restart_count == 5);
    let last = delays(&w).last().copied().unwrap_or_default();
    assert!((10.0..10.1).contains(&last), "{last}");
}

#[test]
fn w10_a_clock_that_is_set_makes_no_storm_and_no_hang() {
    let mut w = node();
    w.life("web/main", &[Life::exits(1, Duration::from_millis(500))]);
    w.file("web", ONE);
    w.run(15);
    w.set_clock(-(20 * 365 * 86_400 * S as i64));
    let begin = w.clock.now;
    w.run(200);
    let starts = w.times("StartContainer", begin).len();
    assert!((2..6).contains(&starts), "{starts} starts in 200 s");
    w.set_clock(40 * 365 * 86_400 * S as i64);
    let begin = w.clock.now;
    w.run(200);
    let starts = w.times("StartContainer", begin).iter().filter(|t| **t > 0).count();
    assert!((1..8).contains(&starts), "{starts} starts in 200 s");
}

#[test]
fn w10_several_power_cuts_in_a_short_time_delay_no_healthy_pod() {
    let mut c = crate::world::config();
    c.fixed.boot_id = "boot".into();
    let mut w = node_with(c);
    w.file("web", ONE);
    w.until("it runs", 30, |w| w.shown("web") == "Running main#0:running");
    for cut in 1..=6 {
        w.run(20);
        w.power_cut(1000);
        w.until("it runs again at once", 8, |w| w.shown("web") == format!("Running main#{cut}:running"));
    }
    // A restart of Wherry in the same boot does not reset the level.
    w.life("web/main", &[Life::exits(1, Duration::from_millis(500))]);
    w.exit_of("web/main", 1);
    w.run(15);
    w.kill_engine();
    w.start_in(100 * MS);
    let begin = w.clock.now;
    w.run(60);
    let starts = w.times("StartContainer", begin).len();
    assert!((1..5).contains(&starts), "{starts} starts in 60 s");
}

#[test]
fn the_end_is_seen_before_the_back_off() {
    let mut w = node();
    w.life("web/main", &[Life::exits(3, Duration::from_millis(500))]);
    w.file("web", ONE);
    w.run_ms(1200);
    w.until("the second end", 5, |w| w.shown("web") == "Running main#1:terminated Error 3");
    assert_eq!(w.container_status("web", "main").last_state.unwrap().terminated.unwrap().exit_code, 3);
    w.run(1);
    assert_eq!(w.waiting("web", "main").0, "CrashLoopBackOff");
    let status = w.container_status("web", "main");
    assert_eq!(status.last_state.unwrap().terminated.unwrap().reason.as_deref(), Some("Error"));
    assert_eq!(status.restart_count, 1);
    let not_ready = ("False".into(), "ContainersNotReady".into(), "containers with unready status: [main]".into());
    assert_eq!(w.condition("web", "Ready"), not_ready);
    assert_eq!(w.notices("BackOff").len(), 1);
    assert!(w.notices("BackOff")[0].starts_with("Back-off restarting failed container main in pod web_default("));
}

#[test]
fn w26_only_the_newest_dead_containers_stay() {
    let mut w = node();
    w.life("web/main", &[Life::exits(1, Duration::from_millis(500))]);
    w.file("web", ONE);
    w.run(100);
    let mut attempts: Vec<u32> = w.runtime.containers.values().map(|c| c.attempt).collect();
    attempts.sort_unstable();
    assert_eq!(attempts, [3, 4]);
}

#[test]
fn always_restarts_a_success_on_failure_and_never_do_not() {
    let mut w = node();
    for (name, spec) in [("always", ONE), ("failure", ON_FAILURE), ("never", NEVER)] {
        w.life(&format!("{name}/main"), &[Life::exits(0, Duration::from_secs(1)), Life::FOREVER]);
        w.file(name, spec);
    }
    w.run(4);
    assert_eq!(w.shown("always"), "Running main#1:running");
    assert_eq!(w.shown("failure"), "Succeeded main#0:terminated Completed 0");
    assert_eq!(w.shown("never"), "Succeeded main#0:terminated Completed 0");
    let completed: (String, String, String) = ("False".into(), "PodCompleted".into(), String::new());
    assert_eq!(w.condition("never", "Ready"), completed);
    assert_eq!(w.condition("never", "ContainersReady"), completed);
    assert_eq!(w.condition("never", "Initialized").1, "PodCompleted");
    assert_eq!(w.condition("never", "PodReadyToStartContainers").0, "False", "its sandbox is stopped");
    w.assert_well();
}

#[test]
fn on_failure_restarts_a_failure_and_never_fails() {
    let mut w = node();
    for (name, spec) in [("failure", ON_FAILURE), ("never", NEVER)] {
        w.life(&format!("{name}/main"), &[Life::exits(3, Duration::from_secs(1)), Life::FOREVER]);
        w.file(name, spec);
    }
    w.run(4);
    assert_eq!(w.shown("failure"), "Running main#1:running");
    assert_eq!(w.shown("never"), "Failed main#0:terminated Error 3");
    assert_eq!(w.condition("never", "Ready").1, "PodFailed");
    assert_eq!(w.condition("never", "Initialized"), ("True".into(), String::new(), String::new()));
}

#[test]
fn one_failed_and_one_runs_is_running_until_the_last_has_ended() {
    let mut w = node();
    w.life("web/one", &[Life::exits(3, Duration::from_secs(1))]);
    w.life("web/two", &[Life::exits(0, Duration::from_secs(5))]);
    w.file("web", &format!("restartPolicy: Never, {TWO}"));
    w.run(4);
    assert_eq!(w.shown("web"), "Running one#0:terminated Error 3 two#0:running");
    w.run(4);
    assert_eq!(w.shown("web"), "Failed one#0:terminated Error 3 two#0:terminated Completed 0");
    w.assert_well();
}

#[test]
fn w23_a_pod_that_completed_is_not_run_again_whatever_becomes_of_its_remains() {
    let mut w = node();
    w.life("job/main", &[Life::exits(0, Duration::from_secs(1))]);
    w.file("job", NEVER);
    w.run(5);
    w.take_calls();
    w.runtime.containers.clear();
    w.run(70);
    w.restart_engine();
    w.run(70);
    assert_eq!(w.take_calls(), Vec::<String>::new());
    assert_eq!(w.shown("job"), "Succeeded main#0:terminated Completed 0");
}

#[test]
fn a_start_that_fails_is_a_run_container_error_and_then_a_crash_loop() {
    let mut w = node();
    w.life("web/main", &[Life::cannot_start()]);
    w.file("web", ONE);
    w.run_ms(170);
    let (reason, message) = w.waiting("web", "main");
    assert_eq!((reason.as_str(), message.as_str()), ("RunContainerError", "exec: no such file"));
    w.run(4);
    assert_eq!(w.waiting("web", "main").0, "CrashLoopBackOff");
    let last = w.container_status("web", "main").last_state.unwrap().terminated.unwrap();
    assert_eq!((last.exit_code, last.reason.as_deref()), (128, Some("StartError")));
    assert_eq!(last.started_at.unwrap().0.to_string(), "1970-01-01T00:00:00Z");
    assert_eq!(w.notices("Failed")[0], "Error: exec: no such file");
    assert_eq!(w.status("web").phase.as_deref(), Some("Running"));
}

#[test]
fn a_start_that_fails_under_never_fails_the_pod() {
    let mut w = node();
    w.life("web/main", &[Life::cannot_start()]);
    w.file("web", NEVER);
    w.run(3);
    assert_eq!(w.shown("web"), "Failed main#0:terminated StartError 128");
}

#[test]
fn a_create_that_fails_is_tried_again() {
    let mut w = node();
    w.fault("CreateContainer", Fault::Error("no such device".into()));
    w.file("web", ONE);
    w.run(3);
    assert_eq!(w.waiting("web", "main"), ("CreateContainerError".into(), "no such device".into()));
    assert_eq!(w.notices("Failed"), ["Error: no such device"]);
    w.run(15);
    assert_eq!(w.shown("web"), "Running main#0:running");
}

/// The call is not sent although there is a connection, for example because the request is too large for the transport.
#[test]
fn w9_a_call_that_is_refused_though_there_is_a_connection_gets_an_event_a_reason_and_a_back_off() {
    let why = "message of 20000000 bytes is over the limit of 16 MiB";
    for (call, reason, event) in [
        ("ImageStatus", "ImageInspectError", "Error: ImageInspectError".to_owned()),
        ("CreateContainer", "CreateContainerError", format!("Error: {why}")),
        ("StartContainer", "RunContainerError", format!("Error: {why}")),
    ] {
        let mut w = node();
        (0..100).for_each(|_| w.fault(call, Fault::Refused(why.into())));
        w.file("web", ONE);
        w.run(3);
        assert_eq!(w.waiting("web", "main"), (reason.into(), why.into()), "{call}");
        assert_eq!(w.notices("Failed"), [event], "{call}");
        w.run(117);
        let tries = 100 - w.faults.planned.len();
        assert!((8..=13).contains(&tries), "{call}: {tries} tries in 120 s");
        assert_eq!(w.notices("Failed").len(), tries, "{call}");
        w.faults.planned.clear();
        w.starts_within(16, "web");
    }
}

#[test]
fn w9_a_sandbox_that_is_refused_though_there_is_a_connection_gets_an_event_and_a_back_off() {
    let why = "message of 20000000 bytes is over the limit of 16 MiB";
    let mut w = node();
    (0..100).for_each(|_| w.fault("RunSandbox", Fault::Refused(why.into())));
    w.file("web", ONE);
    w.run(120);
    let tries = 100 - w.faults.planned.len();
    assert!((8..=13).contains(&tries), "{tries} tries in 120 s");
    let said = w.notices("FailedCreatePodSandBox");
    assert_eq!((said.len(), said[0].as_str()), (tries, &*format!("Failed to create pod sandbox: {why}")));
    assert_eq!(w.waiting("web", "main").0, "ContainerCreating");
    w.faults.planned.clear();
    w.starts_within(16, "web");
}

/// The same error, but because the connection is lost: the node reports it, the pod does not.
#[test]
fn w9_a_call_not_sent_because_of_a_lost_connection_is_repeated_immediately_without_an_event() {
    for call in ["RunSandbox", "CreateContainer", "StartContainer"] {
        let mut w = node();
        w.fault(call, Fault::Slow(Duration::from_secs(5)));
        w.file("web", ONE);
        w.run(1);
        w.runtime_down_unsent();
        w.run(30);
        assert_eq!((w.notices("Failed").len(), w.notices("FailedCreatePodSandBox").len()), (0, 0), "{call}");
        w.runtime_up();
        w.starts_within(3, "web");
    }
}

#[test]
fn w2_the_state_is_read_after_a_lost_answer_and_nothing_is_made_twice() {
    for call in ["RunSandbox", "CreateContainer", "StartContainer"] {
        let mut w = node();
        w.fault(call, Fault::Lost);
        w.file("web", ONE);
        w.run(20);
        assert_eq!(w.shown("web"), "Running main#0:running", "{call}");
        assert_eq!(w.runtime.containers.len(), 1, "{call}");
        assert_eq!(w.runtime.sandboxes.len(), 1, "{call}");
        w.assert_well();
    }
}

#[test]
fn the_status_contains_the_termination_message() {
    let mut w = node();
    w.disk.termination_message = "out of beans".into();
    w.life("web/main", &[Life::exits(3, Duration::from_secs(1))]);
    w.file("web", NEVER);
    w.run(4);
    let t = w.container_status("web", "main").state.unwrap().terminated.unwrap();
    assert_eq!(t.message.as_deref(), Some("out of beans"));
}

const FALLS_BACK: &str =
    "containers: [{name: main, image: 'busybox:1.35', terminationMessagePolicy: FallbackToLogsOnError}]";

/// As with containerd: a container's end is known from its process, and the rest of its log is written a moment later.
#[test]
fn the_end_of_a_log_that_comes_after_the_container_s_end_is_its_termination_message() {
    for policy in ["Never", "Always"] {
        let mut w = node();
        w.disk.termination_message = "out of beans".into();
        w.file("web", &format!("restartPolicy: {policy}, {FALLS_BACK}"));
        w.run(3);
        w.exit_of("web/main", 3);
        w.run(1);
        let status = w.container_status("web", "main");
        let ended = [status.state, status.last_state].into_iter().flatten().find_map(|s| s.terminated).unwrap();
        assert_eq!(ended.message.as_deref(), Some("out of beans"), "{policy}");
        w.assert_well();
    }
}

#[test]
fn the_end_of_a_container_is_reported_although_its_message_arrives_after_the_sandbox_s_end() {
    for (delay, spec) in [(2 * S, ONE), (0, FALLS_BACK)] {
        let mut w = node();
        w.disk.message_delay = delay;
        w.disk.termination_message = "out of beans".into();
        w.file("web", spec);
        w.run(3);
        w.remove("web");
        w.run(40);
        let ends: Vec<Option<&str>> = w.observed.ends.iter().map(|(_, end)| end.end.message.as_deref()).collect();
        assert_eq!(ends, [Some("out of beans")], "{spec}");
        w.assert_well();
    }
}

#[test]
fn a_clock_set_back_does_not_delay_a_termination() {
    let mut w = node();
    w.file("web", &format!("restartPolicy: Never, {FALLS_BACK}"));
    w.run(3);
    w.exit_of("web/main", 3);
    w.set_clock(-3600 * S as i64);
    w.run(1);
    assert!(w.container_status("web", "main").state.unwrap().terminated.is_some());
    w.assert_well();
}

#[test]
fn a_container_under_run_as_non_root_is_checked_against_its_image() {
    let spec = "securityContext: {runAsNonRoot: true}, containers: [{name: main, image: 'busybox:1.35'}]";
    for (user, why) in [
        ((Some(0), ""), "container has runAsNonRoot and image will run as root (pod: \"web_default("),
        ((None, ""), "container has runAsNonRoot and image will run as root (pod: \"web_default("),
        (
            (None, "app"),
            "container has runAsNonRoot and image has non-numeric user (app), cannot verify user is non-root",
        ),
    ] {
        let mut w = node();
        w.runtime.image_user = (user.0, user.1.into());
        w.file("web", spec);
        w.run(3);
        let (reason, message) = w.waiting("web", "main");
        assert_eq!(reason, "CreateContainerConfigError");
        assert!(message.starts_with(why), "{message}");
        w.runtime.image_user = (Some(1000), String::new());
        w.run(16);
        assert!(w.runs("web/main"));
    }
}

#[test]
fn w10_a_back_off_never_exceeds_its_maximum() {
    let mut c = crate::world::config();
    c.max_restart_backoff = Duration::from_secs(30);
    let mut w = node_with(c);
    w.life("web/main", &[Life::exits(1, Duration::from_secs(1))]);
    let begin = w.clock.now;
    w.file("web", ONE);
    w.run(200);
    let at = w.times("StartContainer web/main", begin);
    let gaps: Vec<u64> = at.windows(2).map(|p| (p[1] - p[0]) / 1000).collect();
    assert!(gaps.starts_with(&[2, 11, 21, 31, 31, 31]), "{gaps:?}");
}
