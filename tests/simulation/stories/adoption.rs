//! Adoption after a restart of Wherry (W25), and orphans (W21).

use crate::runtime::{GivenUp, Life};
use crate::stories::admission::{cpu_requests, small};
use crate::story::*;
use crate::world::{MS, S, World};
use std::time::Duration;
use wherry::api::names::{SandboxId, Uid};
use wherry::engine::effect::Measure;
use wherry::engine::event::Event;

#[test]
fn w25_running_pods_are_adopted_with_their_counts_and_times() {
    let mut w = node();
    w.life("web/main", &[Life::exits(1, Duration::from_secs(1)), Life::FOREVER]);
    w.file("web", ONE);
    w.run(10);
    let (before, id) = (w.status("web"), w.running("web/main"));
    w.take_calls();
    w.kill_engine();
    w.run(100);
    w.start();
    w.run(5);
    assert_eq!(w.running("web/main"), id);
    assert_eq!(w.take_calls(), Vec::<String>::new());
    let after = w.status("web");
    assert_eq!(after.start_time, before.start_time);
    assert_eq!(after.container_statuses, before.container_statuses);
    assert_eq!(after.pod_ip, before.pod_ip);
    assert_eq!(after.phase.as_deref(), Some("Running"));
}

#[test]
fn w25_a_kill_at_any_instant_of_the_start_ends_in_one_running_container() {
    for ms in 0..180 {
        let mut w = node();
        w.file("web", ONE);
        w.run_ms(ms);
        w.restart_engine();
        w.run(20);
        assert_eq!(w.shown("web"), "Running main#0:running", "killed after {ms} ms");
        assert_eq!((w.runtime.containers.len(), w.runtime.sandboxes.len()), (1, 1), "killed after {ms} ms");
        w.assert_well();
    }
}

#[test]
fn w25_empty_network_results_of_own_sandboxes_are_removed_once_in_a_run() {
    let mut w = node();
    w.file("web", ONE);
    w.run(5);
    assert_eq!(w.networks.removals, Vec::<Vec<SandboxId>>::new(), "the first list had no sandbox");
    let ours: Vec<SandboxId> = w.runtime.sandboxes.keys().map(|id| SandboxId::from(id.as_str())).collect();
    w.runtime.sandboxes.values_mut().for_each(|s| s.empty_network = true);
    w.kill_engine();
    w.remove("web");
    w.networks.removal_takes = 3 * S;
    w.start();
    w.run(2);
    assert_eq!(w.networks.removals, [ours]);
    assert!(!w.engine.pleg_healthy(w.time().boot), "the first list waits for the removal");
    w.until("the pod is removed", 20, |w| w.runtime.sandboxes.is_empty() && w.disk.records.is_empty());
    w.file("next", ONE);
    w.run(60);
    assert_eq!(w.networks.removals.len(), 1, "later lists do not wait");
    w.assert_well();
}

#[test]
fn w26_the_cgroups_of_dead_pods_are_removed_once_in_a_run() {
    let mut w = node();
    w.file("web", ONE);
    w.run(5);
    let web = w.files["/m/web.yaml"].uid.clone();
    w.restart_engine();
    w.cgroups.sweeps.clear();
    let dead = Uid::from("dead");
    w.cgroups.dead.extend([web.clone(), dead.clone()]);
    w.run(5);
    assert_eq!(w.cgroups.sweeps.len(), 1);
    assert!(w.cgroups.dead.contains(&web), "the runtime has objects of this pod");
    assert!(!w.cgroups.dead.contains(&dead));
    w.run(90);
    assert_eq!(w.cgroups.sweeps.len(), 1);
}

#[test]
fn w26_no_sweep_of_cgroups_touches_a_pod_without_a_worker_that_the_runtime_shows() {
    let mut w = node();
    w.file("web", ONE);
    w.run(5);
    let web = w.files["/m/web.yaml"].uid.clone();
    w.kill_engine();
    w.disk.records.clear();
    w.disk.directories.clear();
    w.process.alive = true;
    w.cgroups.sweeps.clear();
    w.step(Event::Records(Vec::new()));
    w.step(Event::RuntimeUp);
    w.run(1);
    assert_eq!(w.cgroups.sweeps, [[web].into()], "the manifests are not read yet");
}

#[test]
fn w25_a_container_that_ended_while_wherry_was_away_is_restarted() {
    let mut w = node();
    w.file("web", ONE);
    w.run(5);
    w.kill_engine();
    w.exit_of("web/main", 2);
    w.run(30);
    w.start();
    w.run(2);
    assert_eq!(w.shown("web"), "Running main#1:running");
}

#[test]
fn w25_a_pod_whose_file_was_removed_during_downtime_ends_with_its_own_grace_period() {
    let mut w = node();
    w.life("web/main", &[Life::deaf()]);
    w.file("web", &format!("terminationGracePeriodSeconds: 7, {ONE}"));
    w.run(3);
    w.kill_engine();
    w.files.clear();
    w.take_calls();
    w.start();
    w.run(10);
    assert_eq!(w.take_calls()[0], "StopContainer web/main#0 7000ms");
    w.assert_clean();
}

#[test]
fn w21_a_pod_without_record_and_manifest_is_an_orphan() {
    let mut w = node();
    w.life("web/main", &[Life::deaf()]);
    w.file("web", &format!("terminationGracePeriodSeconds: 4, {ONE}"));
    w.run(3);
    w.kill_engine();
    w.files.clear();
    w.disk.records.clear();
    w.take_calls();
    w.start();
    w.run(10);
    assert_eq!(w.take_calls(), ["StopContainer web/main#0 4000ms", "StopSandbox web#0", "RemoveSandbox web#0"]);
    assert_eq!(w.observed.measures.iter().filter(|m| **m == Measure::OrphanedPod).count(), 1);
    w.assert_clean();
}

#[test]
fn w25_a_pod_without_a_record_whose_state_is_unknown_is_not_rejected() {
    let mut w = small();
    w.file("b", &cpu_requests(600));
    w.run(5);
    let (id, sandbox) = (w.running("b/main"), w.sandbox("b"));
    w.disk.records.clear();
    w.kill_engine();
    w.lose_state(&id);
    w.kill_sandbox(&sandbox);
    // Of two new pods, this one would be the first.
    w.file("a", &cpu_requests(600));
    w.start();
    w.run(30);
    assert!(w.runs("b/main") && w.shown("a").starts_with("Failed (OutOfcpu)"), "{}", w.trace());
    w.assert_well();
}

#[test]
fn w25_a_running_pod_with_a_manifest_but_no_record_is_adopted() {
    let mut w = node();
    w.file("web", ONE);
    w.run(3);
    let id = w.running("web/main");
    w.disk.records.clear();
    w.kill_engine();
    w.start();
    w.run(5);
    assert_eq!(w.running("web/main"), id);
    assert_eq!(w.disk.records.len(), 1, "and recorded");
}

#[test]
fn w21_pods_of_others_are_left_alone() {
    let mut w = node();
    w.file("web", ONE);
    w.run(3);
    w.kill_engine();
    for s in w.runtime.sandboxes.values_mut() {
        s.owner = Some("root-2".into());
    }
    for c in w.runtime.containers.values_mut() {
        c.owner = Some("root-2".into());
    }
    w.files.clear();
    w.disk.records.clear();
    w.take_calls();
    w.start();
    w.run(60);
    assert_eq!(w.take_calls(), Vec::<String>::new());
    assert!(w.runs("web/main"));
}

#[test]
fn d1_nothing_is_an_orphan_before_the_sources_were_read() {
    let mut w = node();
    w.file("web", ONE);
    w.run(3);
    w.disk.records.clear();
    w.kill_engine();
    w.take_calls();
    let records = Vec::new();
    w.step(wherry::engine::event::Event::Records(records));
    w.step(wherry::engine::event::Event::RuntimeUp);
    w.run(300);
    assert_eq!(w.take_calls(), Vec::<String>::new());
    w.read_manifests();
    w.run(3);
    assert_eq!(w.take_calls(), Vec::<String>::new());
    assert!(w.runs("web/main"));
}

#[test]
fn w25_a_runtime_that_is_away_at_the_start_is_waited_for() {
    let mut w = World::new(crate::world::config());
    w.runtime.images.insert(IMAGE.into());
    w.connection.up = false;
    w.start();
    w.file("web", ONE);
    w.run(3600);
    assert!(w.observed.steps < 10, "{} steps in an hour without a runtime", w.observed.steps);
    assert_eq!(w.shown("web"), "Pending");
    assert!(w.engine.checks(w.time().boot)[0].result.is_err());
    w.runtime_up();
    w.run(2);
    assert_eq!(w.shown("web"), "Running main#0:running");
}

#[test]
fn a_runtime_has_answered_once_it_did_so_on_this_connection() {
    let mut w = node();
    let heard = |w: &World| {
        let summary = w.engine.summary(w.time().boot);
        (summary.runtime_up, summary.runtime_answered)
    };
    assert_eq!(heard(&w), (true, true));
    w.runtime_down();
    assert_eq!(heard(&w), (false, false));
    w.runtime_up();
    assert_eq!(heard(&w), (true, false), "answers before the connection loss do not count");
    w.run(3);
    assert_eq!(heard(&w), (true, true));
}

#[test]
fn an_outage_of_the_runtime_changes_no_pod() {
    let mut w = node();
    w.file("web", ONE);
    w.run(3);
    let before = w.status("web");
    w.take_calls();
    w.runtime_down();
    let steps = w.observed.steps;
    w.run(3600);
    assert!(w.observed.steps - steps < 100, "{}", w.observed.steps - steps);
    assert_eq!(w.status("web"), before);
    w.exit_of("web/main", 1);
    w.runtime_up();
    w.run(2);
    assert_eq!(w.shown("web"), "Running main#1:running");
    assert_eq!(w.take_calls(), ["CreateContainer web/main#1", "StartContainer web/main#1"]);
}

#[test]
fn a_bad_record_is_set_aside_and_reported() {
    let mut w = node();
    w.kill_engine();
    w.disk.records.insert("pods/x".into(), "{".into());
    w.start();
    w.run(2);
    assert!(w.notices("BadRecord")[0].contains("pods/x"));
    assert!(w.disk.records.is_empty());
}

/// The pod `web`, after Wherry was killed while its container was starting and the runtime abandoned the start.
fn start_given_up(spec: &str, how: GivenUp) -> World {
    let mut w = node();
    w.file("web", spec);
    w.until("it is created", 5, |w| !w.runtime.containers.is_empty());
    w.kill_engine();
    let now = w.wall_now();
    let id = w.runtime.containers.keys().next().cloned().unwrap();
    w.runtime.give_up_start(&id, how, now);
    w.start();
    w.run(5);
    w
}

#[test]
fn w25_a_start_cancelled_by_a_kill_of_wherry_does_not_count_under_restart_policy_never() {
    let ways = [GivenUp::InTheShim, GivenUp::BeforeTheShim];
    for (spec, how) in [NEVER, ON_FAILURE, ONE].into_iter().flat_map(|s| ways.map(|h| (s, h))) {
        let mut w = start_given_up(spec, how);
        assert_eq!(w.shown("web"), "Running main#1:running", "{spec}");
        // An exit of the container itself counts as its run.
        w.exit_of("web/main", 3);
        w.run(5);
        assert_eq!(w.shown("web").starts_with("Failed"), spec == NEVER, "{}", w.shown("web"));
        w.assert_well();
    }
}

#[test]
fn w26_the_task_of_a_cancelled_start_is_deleted_so_that_the_pod_can_be_removed() {
    let mut w = start_given_up(ONE, GivenUp::InTheShim);
    assert_eq!(w.shown("web"), "Running main#1:running");
    w.take_calls();
    w.remove("web");
    w.run(5);
    assert_eq!(
        w.take_calls(),
        [
            "StopContainer web/main#1 30000ms",
            "StopSandbox web#0",
            "RemoveSandbox web#0",
            "DeleteTask web/main#1",
            "DeleteTask web/main#0",
            "RemoveSandbox web#0"
        ]
    );
    assert_eq!(w.notices("FailedCleanup").len(), 1);
    w.assert_clean();
}

#[test]
fn w21_a_directory_created_just_before_a_kill_is_removed_if_its_pod_is_no_longer_desired() {
    for ms in 0..60 {
        let mut w = node();
        w.file("web", ONE);
        w.run_ms(ms);
        w.kill_engine();
        w.files.clear();
        w.start();
        w.run(60);
        w.assert_clean();
    }
    // If the manifest returns during that time, the pod runs.
    let mut w = node();
    w.kill_engine();
    let pod = pod("/m/web.yaml", "web", "u1", ONE);
    w.disk.directories.insert(pod.uid.clone(), pod.name.clone());
    w.start();
    assert_eq!(w.notices("LeftoverDirectory").len(), 0, "the runtime has not been read yet");
    w.until("it is noticed", 40, |w| !w.notices("LeftoverDirectory").is_empty());
    w.document("/m/web.yaml", pod);
    w.run(20);
    assert_eq!(w.shown("web"), "Running main#0:running");
    assert_eq!(w.disk.directories.len(), 1);
    w.assert_well();
}

#[test]
fn w3_a_container_that_an_old_record_does_not_name_holds_back_the_terminal_phase() {
    let mut w = node();
    w.file_with_uid("web", "fixed", NEVER);
    w.run(3);
    w.life("web/two", &[Life::deaf(), Life::FOREVER]);
    let old = w.disk.records.clone();
    w.file_with_uid("web", "fixed", &format!("restartPolicy: Never, {TWO}").replace("name: one", "name: main"));
    w.run(10);
    w.exit_of("web/main", 3);
    w.run(3);
    // Neither the new version's record nor the old version's end was written to disk.
    w.kill_engine();
    w.disk.records = old;
    w.start();
    w.run(1);
    assert!(w.runs("web/two"));
    assert!(!["Failed", "Succeeded"].contains(&w.status("web").phase.unwrap_or_default().as_str()));
    w.run(60);
    assert_eq!(w.shown("web"), "Running main#0:running two#0:running");
}

#[test]
fn w25_no_container_is_created_before_the_record_is_durable() {
    let mut w = node();
    w.disk.delay = 2_000 * MS;
    w.file("web", ONE);
    w.run_ms(1900);
    assert_eq!((w.times("RunSandbox", 0).len(), w.times("CreateContainer", 0).len()), (1, 0));
    w.run(2);
    assert_eq!(w.times("CreateContainer", 0).len(), 1);
}
