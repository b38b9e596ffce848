//! W11, W13: init containers and sidecars, their order, and the status meanwhile, as in recordings 15a and 15d of a
//! kubelet.

use crate::runtime::Life;
use crate::story::*;
use crate::world::{Fault, World};
use std::time::Duration;

fn seconds(s: u64) -> Duration {
    Duration::from_secs(s)
}

/// The starts and stops so far, without those of sandboxes.
fn order(w: &mut World) -> Vec<String> {
    let mut said = w.take_calls();
    said.retain(|s| s.starts_with("StartContainer") || s.starts_with("StopContainer"));
    said.iter().map(|s| s.replace("Container", "")).collect()
}

fn condition(w: &World, kind: &str) -> (String, String) {
    let (status, reason, message) = w.condition("web", kind);
    (format!("{status} {reason}"), message)
}

#[test]
fn w11_init_containers_run_one_after_another_each_to_success_before_the_main_ones() {
    let mut w = node();
    w.life("web/i1", &[Life::exits(0, seconds(2))]);
    w.life("web/i2", &[Life::exits(0, seconds(2))]);
    w.file("web", INIT);
    w.run(1);
    assert_eq!(w.shown("web"), "Pending i1#0:running i2#0:waiting PodInitializing main#0:waiting PodInitializing");
    let not = "False ContainersNotInitialized".to_string();
    assert_eq!(condition(&w, "Initialized"), (not.clone(), "containers with incomplete status: [i1 i2]".into()));
    let unready = ("False ContainersNotReady".into(), "containers with unready status: [main]".into());
    assert_eq!(condition(&w, "Ready"), unready);
    let i1 = w.container_status("web", "i1");
    assert_eq!((i1.ready, i1.started), (false, Some(true)));
    w.run(3);
    assert_eq!(w.shown("web"), "Pending i1#0:terminated Completed 0 i2#0:running main#0:waiting PodInitializing");
    assert_eq!(condition(&w, "Initialized"), (not, "containers with incomplete status: [i2]".into()));
    let i1 = w.container_status("web", "i1");
    assert_eq!((i1.ready, i1.started), (true, Some(false)));
    w.run(4);
    assert_eq!(w.shown("web"), "Running i1#0:terminated Completed 0 i2#0:terminated Completed 0 main#0:running");
    assert_eq!(condition(&w, "Initialized"), ("True ".into(), String::new()));
    assert_eq!(condition(&w, "Ready"), ("True ".into(), String::new()));
    assert_eq!(order(&mut w), ["Start web/i1#0", "Start web/i2#0", "Start web/main#0"]);
    // They do not run again, neither later nor after the removal of the dead containers.
    let remains: Vec<String> = w.runtime.containers.values().filter(|c| !c.runs()).map(|c| c.id.clone()).collect();
    remains.iter().for_each(|id| w.runtime.forget(id));
    w.run(200);
    w.restart_engine();
    w.run(200);
    assert_eq!(order(&mut w), Vec::<String>::new());
    w.exit_of("web/main", 1);
    w.run(3);
    assert_eq!(order(&mut w), ["Start web/main#1"], "a main container restarts alone");
}

#[test]
fn w11_the_result_of_an_init_container_survives_a_restart_of_wherry() {
    let mut w = node();
    w.life("web/i1", &[Life::exits(0, seconds(1))]);
    w.life("web/i2", &[Life::exits(0, seconds(20))]);
    w.file("web", INIT);
    w.run(5);
    w.restart_engine();
    w.run(30);
    assert_eq!(order(&mut w), ["Start web/i1#0", "Start web/i2#0", "Start web/main#0"]);
}

/// The answer to the start is lost, the container still runs, and the dead container of the first one is removed
/// externally.
#[test]
fn w11_an_init_container_does_not_run_again_while_the_start_of_a_later_one_is_in_doubt() {
    for uid in ["", "own"] {
        let mut w = node();
        w.life("web/i1", &[Life::exits(0, seconds(1))]);
        w.life("web/i2", &[Life::exits(0, seconds(20))]);
        // The call times out after 120 s but takes effect later.
        w.fault("StartContainer web/i2#0", Fault::Slow(seconds(150)));
        w.file_with_uid("web", uid, INIT);
        w.run(10);
        let i1 = w.runtime.containers.values().find(|c| c.name == "i1").map(|c| c.id.clone()).unwrap();
        w.runtime.forget(&i1);
        w.run(300);
        let order = order(&mut w);
        assert!(!order.contains(&"Start web/i1#1".to_string()), "{order:?}");
        assert_eq!(order.iter().filter(|s| s.starts_with("Start web/i1")).count(), 1, "{order:?}");
        assert!(w.runs("web/main"), "{}", w.trace());
        w.assert_well();
    }
}

#[test]
fn w11_an_init_container_that_fails_is_tried_again_with_the_back_off_and_holds_the_rest() {
    for policy in ["Always", "OnFailure"] {
        let mut w = node();
        w.life("web/i1", &[Life::exits(3, seconds(1)), Life::exits(3, seconds(1)), Life::exits(0, seconds(1))]);
        w.life("web/i2", &[Life::exits(0, seconds(1))]);
        w.file("web", &format!("restartPolicy: {policy}, {INIT}"));
        w.run(6);
        let waits = "Pending i1#1:waiting CrashLoopBackOff i2#0:waiting PodInitializing main#0:waiting PodInitializing";
        assert_eq!(w.shown("web"), waits, "{policy}");
        w.run(20);
        assert!(w.runs("web/main"), "{policy}: {}", w.shown("web"));
        let expected = ["Start web/i1#0", "Start web/i1#1", "Start web/i1#2", "Start web/i2#0", "Start web/main#0"];
        assert_eq!(order(&mut w), expected, "{policy}");
    }
}

#[test]
fn w1_an_init_container_that_fails_under_never_fails_the_pod() {
    let mut w = node();
    w.life("web/i1", &[Life::exits(3, seconds(1))]);
    w.file("web", &format!("restartPolicy: Never, {INIT}"));
    w.run(5);
    let shown = "Failed i1#0:terminated Error 3 i2#0:waiting PodInitializing main#0:waiting PodInitializing";
    assert_eq!(w.shown("web"), shown);
    assert_eq!(condition(&w, "Ready").0, "False PodFailed");
    assert_eq!(condition(&w, "Initialized").0, "False ContainersNotInitialized");
    w.restart_engine();
    w.run(100);
    assert_eq!(order(&mut w), ["Start web/i1#0"]);
    assert_eq!(w.shown("web"), shown);
    w.remove("web");
    w.run(5);
    w.assert_clean();
}

#[test]
fn w13_in_a_new_sandbox_the_init_containers_run_again_from_the_first() {
    let mut w = node();
    w.life("web/i1", &[Life::exits(0, seconds(1))]);
    w.life("web/i2", &[Life::exits(0, seconds(1))]);
    w.file("web", INIT);
    w.run(15);
    order(&mut w);
    let sandbox = w.sandbox("web");
    w.kill_sandbox(&sandbox);
    w.run(10);
    let expected = ["Stop web/main#0 30000ms", "Start web/i1#1", "Start web/i2#1", "Start web/main#1"];
    assert_eq!(order(&mut w), expected);
    assert_eq!(w.shown("web"), "Running i1#1:terminated Completed 0 i2#1:terminated Completed 0 main#1:running");
}

#[test]
fn w13_under_never_a_sandbox_that_dies_during_initialization_ends_the_pod() {
    let mut w = node();
    w.life("web/i1", &[Life::exits(0, seconds(1))]);
    w.life("web/i2", &[Life::FOREVER]);
    w.file("web", &format!("restartPolicy: Never, terminationGracePeriodSeconds: 2, {INIT}"));
    w.until("i2 runs", 5, |w| w.runs("web/i2"));
    let sandbox = w.sandbox("web");
    w.kill_sandbox(&sandbox);
    w.run(10);
    assert_eq!(order(&mut w), ["Start web/i1#0", "Start web/i2#0", "Stop web/i2#0 2000ms"]);
    assert_eq!(w.status("web").phase.as_deref(), Some("Failed"), "{}", w.shown("web"));
}

#[test]
fn w11_a_sidecar_runs_before_the_next_init_container_and_is_kept_running() {
    let mut w = node();
    w.life("web/side", &[Life::exits(1, seconds(12))]);
    w.life("web/i2", &[Life::exits(0, seconds(2))]);
    w.file("web", SIDECAR);
    w.run(1);
    assert_eq!(w.shown("web"), "Pending side#0:running i2#0:running main#0:waiting PodInitializing");
    assert_eq!(condition(&w, "Initialized").1, "containers with incomplete status: [i2]");
    assert_eq!(condition(&w, "Ready").1, "containers with unready status: [main]");
    let side = w.container_status("web", "side");
    assert_eq!((side.ready, side.started), (true, Some(true)));
    w.run(4);
    assert_eq!(w.shown("web"), "Running side#0:running i2#0:terminated Completed 0 main#0:running");
    w.processes.exit_lag = 2000;
    w.until("the sidecar has ended", 12, |w| !w.runs("web/side"));
    w.until("that is shown", 3, |w| w.condition("web", "Ready").0 == "False");
    assert_eq!(condition(&w, "Ready").1, "containers with unready status: [side]");
    assert_eq!(condition(&w, "Initialized").0, "True ");
    assert_eq!(w.status("web").phase.as_deref(), Some("Running"));
    w.until("it runs again", 3, |w| w.runs("web/side"));
    w.until("its second end is shown", 20, |w| w.waiting("web", "side").0 == "CrashLoopBackOff");
    assert_eq!(order(&mut w), ["Start web/side#0", "Start web/i2#0", "Start web/main#0", "Start web/side#1"]);
    w.run(12);
    assert_eq!(order(&mut w), ["Start web/side#2"]);
}

#[test]
fn w11_a_sidecar_restarts_while_a_later_init_container_runs_and_before_it_is_retried() {
    let mut w = node();
    w.life("web/side", &[Life::exits(0, seconds(2)), Life::FOREVER]);
    w.life("web/i2", &[Life::exits(1, seconds(6)), Life::exits(0, seconds(1))]);
    w.file("web", SIDECAR);
    w.run(20);
    let expected = ["Start web/side#0", "Start web/i2#0", "Start web/side#1", "Start web/i2#1", "Start web/main#0"];
    assert_eq!(order(&mut w), expected);
}

#[test]
fn w1_sidecars_are_stopped_when_the_main_containers_are_done_and_the_pod_succeeds() {
    for (policy, code, phase) in [("Never", 0, "Succeeded"), ("OnFailure", 0, "Succeeded"), ("Never", 3, "Failed")] {
        let mut w = node();
        w.life("web/i2", &[Life::exits(0, seconds(1))]);
        w.life("web/main", &[Life::exits(code, seconds(3))]);
        w.file("web", &format!("restartPolicy: {policy}, {SIDECAR}"));
        w.run(10);
        assert_eq!(w.status("web").phase.as_deref(), Some(phase), "{}", w.shown("web"));
        assert_eq!(order(&mut w)[3..], ["Stop web/side#0 30000ms"]);
        assert_eq!(w.container_status("web", "side").state.unwrap().terminated.unwrap().exit_code, 143);
        w.assert_well();
    }
}

#[test]
fn w1_while_its_sidecar_still_stops_a_pod_is_not_over() {
    let mut w = node();
    w.life("web/side", &[Life::deaf()]);
    w.life("web/i2", &[Life::exits(0, seconds(1))]);
    w.life("web/main", &[Life::exits(0, seconds(3))]);
    w.file("web", &format!("restartPolicy: Never, terminationGracePeriodSeconds: 5, {SIDECAR}"));
    w.until("the sidecar is being stopped", 9, |w| {
        w.observed.calls.iter().any(|(_, c)| c.starts_with("StopContainer"))
    });
    w.run(3);
    assert_eq!(w.status("web").phase.as_deref(), Some("Running"), "{}", w.shown("web"));
    w.run(4);
    assert_eq!(w.status("web").phase.as_deref(), Some("Succeeded"), "{}", w.shown("web"));
}
