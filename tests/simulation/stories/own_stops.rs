//! W10: containers that Wherry itself stops to start them again. Their programs end with 0 at SIGTERM.

use crate::runtime::Life;
use crate::story::*;
use crate::world::handlers::{BADLY, WELL};
use crate::world::{Fault, World};
use std::time::Duration;

const EXEC: &str = "{exec: {command: [sh]}, periodSeconds: 5, failureThreshold: 1}";

/// The program ends with 0 at SIGTERM, after this time.
fn polite(milliseconds: u64) -> Life {
    Life { on_term: Some((Duration::from_millis(milliseconds), 0)), ..Life::FOREVER }
}

fn with(policy: &str, more: &str) -> String {
    format!("restartPolicy: {policy}, containers: [{{name: main, image: 'busybox:1.35', {more}}}]")
}

/// A pod of this policy whose liveness probe is about to fail.
fn failing(policy: &str, life: Life) -> World {
    let mut w = node();
    w.life("web/main", &[life]);
    w.handlers.answers("web/main/Liveness", &[WELL, BADLY, WELL]);
    w.file("web", &with(policy, &format!("livenessProbe: {EXEC}")));
    w.until("it runs", 3, |w| w.runs("web/main"));
    w
}

fn until_stopped(w: &mut World) {
    w.until("the stop", 10, |w| !w.runs("web/main"));
}

fn is_second(w: &World) {
    assert_eq!(w.shown("web"), "Running main#1:running", "{}", w.trace());
    let last = w.container_status("web", "main").last_state.and_then(|s| s.terminated).expect("an end");
    assert_eq!(last.exit_code, 0);
    w.assert_well();
}

#[test]
fn w10_a_failed_liveness_probe_restarts_a_container_that_ends_with_0() {
    let mut w = failing("OnFailure", polite(20));
    w.run(15);
    is_second(&w);
}

#[test]
fn w10_a_failed_startup_probe_restarts_a_container_that_ends_with_0() {
    let mut w = node();
    w.life("web/main", &[polite(20)]);
    w.handlers.answers("web/main/Startup", &[BADLY, WELL]);
    w.file("web", &with("OnFailure", &format!("startupProbe: {EXEC}")));
    w.run(15);
    is_second(&w);
}

#[test]
fn w10_a_failed_post_start_hook_restarts_a_container_that_ends_with_0() {
    let mut w = node();
    w.life("web/main", &[polite(20)]);
    w.handlers.answers("web/main/PostStart", &[BADLY, WELL]);
    w.file("web", &with("OnFailure", "lifecycle: {postStart: {exec: {command: [sh]}}}"));
    w.run(15);
    is_second(&w);
}

#[test]
fn w10_a_survivor_of_a_dead_sandbox_that_ends_with_0_runs_again() {
    let mut w = node();
    w.life("web/main", &[polite(20)]);
    w.file("web", ON_FAILURE);
    w.run(15);
    let sandbox = w.sandbox("web");
    w.kill_sandbox(&sandbox);
    w.run(30);
    is_second(&w);
}

#[test]
fn w10_a_container_that_ends_by_itself_with_0_is_complete() {
    let mut w = failing("OnFailure", Life::exits(0, Duration::from_secs(3)));
    w.run(15);
    assert_eq!(w.shown("web"), "Succeeded main#0:terminated Completed 0");
    w.assert_well();
}

#[test]
fn w10_under_never_a_stopped_container_does_not_run_again() {
    let mut w = failing("Never", polite(20));
    w.run(15);
    assert!(!w.runs("web/main"));
    assert_eq!(w.times("StartContainer", 0).len(), 1);
}

#[test]
fn w10_the_record_says_that_a_container_starts_again_before_its_stop() {
    let mut w = failing("OnFailure", polite(3000));
    w.until("the stop", 10, |w| !w.times("StopContainer", 0).is_empty());
    let record = w.disk.records.values().find(|r| r.contains("\"restarting\"")).expect("a record");
    assert!(record.contains("Failure"), "{record}");
}

#[test]
fn w10_a_kill_of_wherry_between_stop_and_restart_completes_nothing() {
    // Before the container has ended, and after it.
    for ended in [false, true] {
        let mut w = failing("OnFailure", polite(2500));
        w.fault("StopContainer", Fault::Lost);
        match ended {
            true => until_stopped(&mut w),
            false => drop(w.until("the stop", 10, |w| !w.times("StopContainer", 0).is_empty())),
        }
        w.kill_engine();
        w.start();
        w.run(20);
        is_second(&w);
    }
}

#[test]
fn w10_a_stop_that_was_recorded_and_not_begun_continues_after_a_kill_of_wherry() {
    let mut w = failing("OnFailure", polite(20));
    w.hang("StopContainer");
    w.until("the stop", 10, |w| !w.times("StopContainer", 0).is_empty());
    w.kill_engine();
    w.faults.hangs.clear();
    w.start();
    w.run(20);
    is_second(&w);
}

#[test]
fn w10_a_pod_that_is_deleted_between_stop_and_restart_has_not_succeeded() {
    let mut w = failing("OnFailure", polite(20));
    w.fault("CreateContainer web/main", Fault::Slow(Duration::from_secs(5)));
    until_stopped(&mut w);
    w.remove("web");
    w.run(25);
    let trace = w.trace();
    let published: Vec<&str> = trace.lines().filter(|line| line.contains("< publish")).collect();
    let has = |phase: &str| published.iter().any(|line| line.contains(phase));
    assert!(has(" Failed ") && !has(" Succeeded "), "{published:#?}");
    w.assert_clean();
}

#[test]
fn r3_a_restart_for_a_resize_has_no_back_off_and_completes_nothing() {
    let policy = "resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}]";
    for restart in ["OnFailure", "Always"] {
        let mut w = node();
        w.life("web/main", &[Life::exits(1, Duration::from_secs(3)), polite(20)]);
        let of = |milli: u32| with(restart, &format!("{policy}, resources: {{requests: {{cpu: {milli}m}}}}"));
        w.file("web", &of(100));
        w.run(20);
        assert_eq!(w.shown("web"), "Running main#1:running");
        // A second crash would wait for 10 s.
        w.file("web", &of(200));
        w.until("the restart", 5, |w| w.shown("web") == "Running main#2:running");
        w.run(30);
        assert_eq!(w.shown("web"), "Running main#2:running", "{}", w.trace());
        w.assert_well();
    }
}
