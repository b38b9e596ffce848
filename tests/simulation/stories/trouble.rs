//! Lasting errors, the order of starts, and restarts of Wherry that change nothing.

use crate::runtime::Life;
use crate::story::*;
use crate::world::{Fault, S, config};
use std::time::Duration;
use wherry::api::facts::ContainerState;
use wherry::engine::config::EngineConfig;
use wherry::engine::event::Event;
use wherry::engine::pod::kill::TerminationSource;

#[test]
fn w9_start_slots_are_granted_in_order() {
    let mut w = node_with(EngineConfig { parallel_sandboxes: 1, ..config() });
    // An order that is neither that of the names nor that of the UIDs.
    let names = ["d", "a", "e", "c", "b"];
    for name in names {
        w.file(name, ONE);
        w.run_ms(2);
    }
    w.run(10);
    let said = w.take_calls();
    let began: Vec<&str> = said.iter().filter_map(|c| c.strip_prefix("RunSandbox ")).collect();
    assert_eq!(began, ["d#0", "a#0", "e#0", "c#0", "b#0"]);
}

#[test]
fn w2_a_kill_cancels_a_pull_and_the_pod_ends_at_once() {
    let mut w = node();
    w.fault("PullImage", Fault::Slow(Duration::from_secs(600)));
    w.file("web", "containers: [{name: main, image: 'big:1'}]");
    w.run(5);
    assert_eq!(w.times("PullImage", 0).len(), 1);
    w.remove("web");
    w.until("nothing of it is left", 5, |w| w.runtime.sandboxes.is_empty() && w.disk.records.is_empty());
    // Its slot is free for another pod.
    w.file("next", "containers: [{name: main, image: 'other:1'}]");
    w.until("it runs", 5, |w| w.runs("next/main"));
    w.remove("next");
    w.run(10);
    w.assert_clean();
}

#[test]
fn w25_a_pod_with_a_fixed_uid_runs_on_over_restarts_of_wherry() {
    let mut w = node();
    w.file_with_uid("web", "fixed", ONE);
    w.file("other", ONE);
    w.run(5);
    let ids = (w.running("web/main"), w.running("other/main"));
    w.take_calls();
    for _ in 0..3 {
        w.restart_engine();
        w.run(10);
        assert_eq!((w.running("web/main"), w.running("other/main")), ids);
        assert_eq!(w.take_calls(), Vec::<String>::new());
        assert_eq!(w.shown("web"), "Running main#0:running");
    }
}

#[test]
fn w2_a_successful_stop_without_effect_is_repeated() {
    let mut w = node();
    w.file("web", &format!("terminationGracePeriodSeconds: 5, {ONE}"));
    w.run(5);
    for _ in 0..2 {
        w.fault("StopContainer", Fault::Sham);
    }
    w.take_calls();
    w.remove("web");
    w.run(1);
    assert!(w.runs("web/main"));
    w.run(10);
    let said = w.take_calls();
    let stops = said.iter().filter(|c| c.starts_with("StopContainer")).count();
    assert_eq!(stops, 3, "{said:?}");
    w.assert_clean();
}

#[test]
fn w2_a_process_that_cannot_be_killed_delays_only_its_pod() {
    let mut w = node();
    w.file("web", &format!("terminationGracePeriodSeconds: 2, {ONE}"));
    w.file("other", ONE);
    w.run(5);
    let id = w.running("web/main");
    w.hold_process(&id, 1000 * S);
    w.remove("web");
    w.remove("other");
    w.run(20);
    assert!(!w.runs("other/main") && w.sandbox("other").is_empty());
    w.file("next", ONE);
    w.run(300);
    assert!(w.runs("next/main"));
    // W3, W25: the pod runs, so it is not finished, and its record stays.
    assert!(w.runs("web/main"));
    assert!(w.engine.pods().iter().any(|v| &*v.pod.name.name == "web"));
    assert!(w.disk.records.keys().any(|k| k.starts_with("pods/")));
    w.free_process(&id);
    w.remove("next");
    w.run(60);
    w.assert_clean();
}

#[test]
fn p6_while_relists_fail_running_pods_continue_and_no_pod_is_stopped() {
    let mut w = node();
    w.file("web", ONE);
    w.run(5);
    let id = w.running("web/main");
    w.fail_lists(400 * S);
    w.run(300);
    w.file("new", ONE);
    w.run(50);
    assert!(!w.runs("new/main"), "PLEG is unhealthy");
    assert_eq!(w.running("web/main"), id);
    w.until("the lists come, and it starts", 120, |w| w.runs("new/main"));
    assert_eq!(w.running("web/main"), id);
}

#[test]
fn w25_after_a_power_cut_that_lost_a_record_the_pod_runs_once() {
    let mut w = node();
    w.file("web", ONE);
    w.file("job", NEVER);
    w.life("job/main", &[Life::exits(0, Duration::from_secs(1)), Life::exits(0, Duration::from_secs(1))]);
    w.run(20);
    let lost = w.disk.records.keys().next().cloned().expect("a record");
    w.disk.records.remove(&lost);
    w.power_cut(5 * S);
    w.run(60);
    assert_eq!(w.runtime.containers.values().filter(|c| c.runs()).count(), 1);
    assert!(w.runs("web/main"));
    assert_eq!(w.status("job").phase.as_deref(), Some("Succeeded"));
}

#[test]
fn w9_a_reload_of_other_limits_stops_nothing_and_counts_at_once() {
    let mut w = node_with(EngineConfig { parallel_sandboxes: 1, ..config() });
    w.file("web", ONE);
    w.run(5);
    w.take_calls();
    w.config.parallel_sandboxes = 3;
    w.step(Event::Configure(Box::new(w.config.clone())));
    w.run(5);
    assert_eq!(w.take_calls(), Vec::<String>::new());
    for name in ["a", "b", "c"] {
        w.file(name, ONE);
    }
    w.run_ms(20);
    let begun = w.take_calls().iter().filter(|c| c.starts_with("RunSandbox")).count();
    assert_eq!(begun, 3);
}

#[test]
fn a3_a_retry_of_a_running_pod_changes_nothing() {
    let mut w = node();
    w.file("web", ONE);
    w.run(5);
    let uid = w.engine.pods()[0].pod.uid.clone();
    w.take_calls();
    w.retry(uid.clone());
    w.run(5);
    assert_eq!(w.take_calls(), Vec::<String>::new());
    w.kill_uid(uid.clone(), TerminationSource::Drain, None);
    w.run(60);
    w.retry(uid);
    w.run(60);
    assert!(!w.runs("web/main"), "it waits for undrain");
}

#[test]
fn p1_a_container_whose_state_is_unknown_counts_as_running_until_it_is_stopped() {
    let mut w = node();
    w.life("web/main", &[Life::deaf()]);
    w.file("web", &format!("terminationGracePeriodSeconds: 3, {ONE}"));
    w.run(5);
    let id = w.running("web/main");
    w.lose_state(&id);
    w.remove("web");
    w.run(1);
    assert!(w.runtime.containers.get(&id).is_none_or(|c| c.state == ContainerState::Exited));
    w.run(20);
    w.assert_clean();
}
