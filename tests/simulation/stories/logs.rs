//! The rotation of container logs (L1 to L3).

use crate::story::*;
use crate::world::{Fault, World, config};
use wherry::engine::config::EngineConfig;
use wherry::engine::event::Event;
use wherry::engine::rotation_policy::RotationPolicy;

/// A log of 100 bytes is rotated.
fn policy() -> RotationPolicy {
    RotationPolicy { max_size: Some(100), ..RotationPolicy::default() }
}

fn node_with_rotation() -> World {
    node_with(EngineConfig { log_rotation: policy(), ..config() })
}

fn reopened(w: &World) -> usize {
    w.observed.calls.iter().filter(|(_, call)| call.starts_with("ReopenContainerLog")).count()
}

#[test]
fn l1_a_log_of_the_maximum_size_is_rotated_and_reopened() {
    let mut w = node_with_rotation();
    w.file("web", ONE);
    w.run(3);
    w.writes("web/main", 99);
    w.run(15);
    assert_eq!(w.log_file("web/main"), (0, Some(99)));
    w.writes("web/main", 1);
    w.run(15);
    assert_eq!(w.log_file("web/main"), (1, Some(0)));
    assert_eq!(reopened(&w), 1);
    w.writes("web/main", 200);
    w.run(15);
    assert_eq!(w.log_file("web/main"), (2, Some(0)));
    w.remove("web");
    w.run(40);
    assert_eq!(w.watched_logs(), 0);
    w.assert_clean();
}

#[test]
fn l1_a_container_that_writes_nothing_is_not_checked() {
    let mut w = node_with_rotation();
    w.file("web", ONE);
    w.run(15);
    let before = w.logs.measured;
    w.run(600);
    assert_eq!(w.logs.measured, before);
    // One check in each interval, however often it writes.
    for _ in 0..600 {
        w.writes("web/main", 0);
        w.run_ms(100);
    }
    assert!((5..=7).contains(&(w.logs.measured - before)), "{}", w.logs.measured - before);
}

#[test]
fn l1_without_watches_each_log_is_checked_in_each_interval() {
    let mut w = node_with_rotation();
    w.logs.can_watch = false;
    w.file("web", ONE);
    w.run(5);
    let before = w.logs.measured;
    w.run(100);
    assert!((9..=10).contains(&(w.logs.measured - before)), "{}", w.logs.measured - before);
    w.writes("web/main", 100);
    w.run(12);
    assert_eq!(w.log_file("web/main"), (1, Some(0)));
}

#[test]
fn l1_a_reload_turns_the_rotation_off_and_on() {
    let mut w = node_with_rotation();
    w.file("web", ONE);
    w.run(3);
    w.config.log_rotation.max_size = None;
    w.step(Event::Configure(Box::new(w.config.clone())));
    w.run(90);
    w.writes("web/main", 500);
    w.run(60);
    assert_eq!((w.log_file("web/main"), w.watched_logs()), ((0, Some(500)), 0));
    w.config.log_rotation = policy();
    w.step(Event::Configure(Box::new(w.config.clone())));
    w.run(100);
    assert_eq!(w.log_file("web/main"), (1, Some(0)));
}

#[test]
fn l2_rotations_wait_for_a_worker() {
    for workers in [1, 2] {
        let mut w = node_with_rotation();
        w.config.log_rotation.workers = workers;
        w.step(Event::Configure(Box::new(w.config.clone())));
        let names: Vec<String> = (0..5).map(|i| format!("p{i}")).collect();
        for name in &names {
            w.file(name, ONE);
        }
        w.run(10);
        for name in &names {
            w.writes(&format!("{name}/main"), 100);
        }
        w.run(15);
        for name in &names {
            assert_eq!(w.log_file(&format!("{name}/main")), (1, Some(0)), "{name}, {workers} workers");
        }
    }
}

#[test]
fn l2_a_runtime_that_does_not_reopen_a_log_loses_nothing() {
    let mut w = node_with_rotation();
    w.file("web", ONE);
    w.run(3);
    w.fault("ReopenContainerLog", Fault::Error("busy".into()));
    w.fault("ReopenContainerLog", Fault::Error("busy".into()));
    w.writes("web/main", 100);
    w.run(12);
    assert_eq!(w.log_file("web/main"), (0, Some(100)), "it has its name back");
    let message = w.notices("FailedLogRotation");
    assert_eq!(message.len(), 1);
    assert!(
        message[0].starts_with("failed to rotate the log /logs/") && message[0].contains(" = busy; it grows"),
        "{message:?}"
    );
    w.run(12);
    assert_eq!(w.notices("FailedLogRotation").len(), 1, "only the first failure is reported");
    w.run(12);
    assert_eq!(w.log_file("web/main"), (1, Some(0)));
}

#[test]
fn l2_a_disk_that_refuses_a_rotation_is_tried_again() {
    let mut w = node_with_rotation();
    w.logs.read_only = true;
    w.file("web", ONE);
    w.run(3);
    w.writes("web/main", 100);
    w.run(40);
    assert_eq!((w.log_file("web/main"), reopened(&w)), ((0, Some(100)), 0));
    w.logs.read_only = false;
    w.run(12);
    assert_eq!(w.log_file("web/main"), (1, Some(0)));
}

#[test]
fn l2_the_end_of_a_container_ends_its_rotation() {
    for ms in (0..200).step_by(5) {
        let mut w = node_with_rotation();
        w.file("web", ONE);
        w.run(12);
        w.writes("web/main", 100);
        w.run_ms(ms);
        w.remove("web");
        w.run(40);
        w.assert_clean();
        assert!(w.notices("FailedLogRotation").len() <= 1);
        w.file("web", ONE);
        w.run(12);
        w.writes("web/main", 100);
        w.run(12);
        // (The path is that of the first container.)
        assert_eq!(w.log_file("web/main").1, Some(0), "after {ms} ms");
    }
}

#[test]
fn l3_a_kill_between_the_rename_and_the_reopening_leaves_no_container_without_a_log() {
    for effects in 0..12 {
        let mut w = node_with_rotation();
        w.file("web", ONE);
        w.run(12);
        w.writes("web/main", 100);
        w.kill_after(effects, 2_000_000_000);
        w.run(30);
        assert_eq!(w.lost_log(), None, "after {effects} effects");
        w.writes("web/main", 100);
        w.run(15);
        assert!(w.log_file("web/main").0 >= 1);
    }
}

#[test]
fn l3_a_log_that_was_removed_is_opened_again_after_a_restart() {
    let mut w = node_with_rotation();
    w.file("web", ONE);
    w.run(12);
    w.remove_log("web/main");
    w.restart_engine();
    w.run(5);
    assert_eq!((w.lost_log(), reopened(&w)), (None, 1));
}
