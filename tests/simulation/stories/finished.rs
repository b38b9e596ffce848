//! Finished pods (W7, W22, W23), and how a list refreshes pods that are not finished (P7).

use crate::runtime::Life;
use crate::story::{NEVER, ONE, node};
use crate::world::{Fault, World};
use std::time::Duration;
use wherry::api::facts::ContainerState;
use wherry::engine::effect::Measure;

/// A job that succeeded and has a terminal record.
fn completed() -> World {
    let mut w = node();
    w.life("job/main", &[Life::exits(0, Duration::from_secs(1))]);
    w.file("job", NEVER);
    w.run(5);
    assert_eq!(w.shown("job"), "Succeeded main#0:terminated Completed 0");
    w.take_calls();
    w
}

/// The runtime reports the job's dead container as running: after a cancelled call, or because it lost the exit.
fn turns_up(w: &mut World) {
    for c in w.runtime.containers.values_mut() {
        c.state = ContainerState::Running;
        c.dead = false;
        c.life = Life::FOREVER;
    }
}

#[test]
fn w7_a_pod_recorded_as_terminal_ends_immediately_if_no_container_runs() {
    let mut w = completed();
    w.restart_engine();
    w.run(1);
    assert_eq!(w.shown("job"), "Succeeded main#0:terminated Completed 0");
    w.run(100);
    assert_eq!(w.take_calls(), Vec::<String>::new());
}

#[test]
fn w7_a_pod_recorded_as_terminal_that_runs_is_stopped_and_never_started() {
    let mut w = completed();
    w.kill_engine();
    turns_up(&mut w);
    w.start();
    w.run(60);
    let said = w.take_calls();
    assert_eq!(said.iter().filter(|c| c.starts_with("StopContainer")).count(), 1, "{said:?}");
    assert!(!said.iter().any(|c| c.starts_with("StartContainer") || c.starts_with("RunSandbox")), "{said:?}");
    assert!(!w.runs("job/main"));
    assert!(matches!(w.status("job").phase.as_deref(), Some("Succeeded" | "Failed")));
    w.assert_well();
}

#[test]
fn w7_a_pod_recorded_as_terminal_waits_for_its_status_to_be_read() {
    let mut w = completed();
    w.kill_engine();
    for _ in 0..20 {
        w.fault("ReadPod", Fault::Error("busy".into()));
    }
    w.start();
    w.run(5);
    let uid = w.files["/m/job.yaml"].uid.clone();
    assert!(!w.engine.is_finished(&uid));
    w.faults.planned.clear();
    w.run(5);
    assert!(w.engine.is_finished(&uid));
    assert_eq!(w.take_calls(), Vec::<String>::new());
}

#[test]
fn w23_a_container_that_appears_running_for_a_finished_pod_is_stopped() {
    let mut w = completed();
    turns_up(&mut w);
    w.run(40);
    let said = w.take_calls();
    assert_eq!(said.iter().filter(|c| c.starts_with("StopContainer")).count(), 1, "{said:?}");
    assert!(said.iter().any(|c| c.ends_with(" 2000ms")), "the shortest time there is: {said:?}");
    assert!(!w.runtime.containers.values().any(|c| c.may_run()));
    w.assert_well();
}

#[test]
fn w22_a_forgotten_pod_whose_file_returns_is_started_and_is_no_orphan() {
    let mut w = completed();
    w.remove("job");
    w.run(5);
    w.assert_clean();
    w.file("job", NEVER);
    w.run(5);
    assert_eq!(w.times("StartContainer", 0).len(), 1);
    assert_eq!(w.shown("job"), "Succeeded main#0:terminated Completed 0");
    assert!(
        !w.observed.measures.contains(&Measure::OrphanedPod) && !w.observed.measures.contains(&Measure::RestartedPod)
    );
}

#[test]
fn p7_a_pod_without_an_event_is_not_read_again_and_one_with_an_event_is() {
    let mut w = node();
    w.file("a", ONE);
    w.file("b", ONE);
    w.run(5);
    let (reads, lists) = (w.observed.reads, w.observed.lists);
    w.run(30);
    assert_eq!(w.observed.reads, reads);
    assert_eq!(w.observed.lists, lists + 30);
    let id = w.running("a/main");
    w.exit(&id, 3);
    w.run_ms(1100);
    assert_eq!(w.observed.reads, reads + 1, "of the one that changed");
    w.run(5);
    assert!(w.runs("a/main") && w.runs("b/main"));
}
