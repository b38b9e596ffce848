//! Kills by other requesters than the removal of the manifest: W4 to W6, W26, W27.

use crate::runtime::Life;
use crate::story::{NEVER, ONE, TWO, node};
use crate::text::brief;
use crate::world::{Fault, World};
use std::slice;
use std::time::Duration;
use wherry::api::names::Uid;
use wherry::engine::event::Event;
use wherry::engine::pod::kill::{Kill, KillId, TerminationSource};

fn uid_of(w: &World, name: &str) -> Uid {
    w.files[&format!("/m/{name}.yaml")].uid.clone()
}

impl World {
    pub fn kill(&mut self, name: &str, by: TerminationSource, grace: Option<u64>) -> KillId {
        let uid = uid_of(self, name);
        self.kill_uid(uid, by, grace)
    }

    pub fn kill_uid(&mut self, uid: Uid, by: TerminationSource, grace: Option<u64>) -> KillId {
        self.observed.kills += 1;
        let id = KillId::Event(self.observed.kills);
        self.checks.killed(&uid, by, &self.engine, &self.runtime);
        self.checks.bounds.end_requested(&uid, grace.map(Duration::from_secs), self.clock.now, &self.runtime);
        let kill = Kill { by, message: None, grace: grace.map(Duration::from_secs) };
        self.step(Event::Kill { id: id.clone(), uid, kill });
        id
    }

    pub fn release(&mut self, by: TerminationSource) {
        self.checks.released(by);
        self.step(Event::Release { by, uids: None });
    }
}

fn running(name: &str) -> World {
    let mut w = node();
    w.file(name, ONE);
    w.run(2);
    assert!(w.runs(&format!("{name}/main")));
    w
}

#[test]
fn w27_a_drained_pod_ends_as_failed_and_stays_so_until_undrain_over_restarts() {
    let mut w = running("web");
    let kill = w.kill("web", TerminationSource::Drain, None);
    // W3: the last phase, together with the reason of the kill.
    assert_eq!(w.status("web").reason.as_deref(), Some("Drained"));
    assert_eq!(w.status("web").phase.as_deref(), Some("Running"));
    w.run(5);
    assert_eq!(w.observed.killed, [kill]);
    assert_eq!(w.status("web").phase.as_deref(), Some("Failed"));
    w.read_manifests();
    w.restart_engine();
    w.run(120);
    assert_eq!(w.status("web").phase.as_deref(), Some("Failed"));
    assert_eq!(w.status("web").reason.as_deref(), Some("Drained"));
    assert!(!w.runs("web/main"));
    w.release(TerminationSource::Drain);
    w.run(3);
    assert!(w.runs("web/main"));
    assert_eq!(w.status("web").phase.as_deref(), Some("Running"));
    assert_eq!(w.status("web").reason, None);
    w.assert_well();
}

#[test]
fn w6_a_pod_that_waits_for_two_things_starts_when_both_are_over() {
    let mut w = running("web");
    w.has_no_room();
    w.kill("web", TerminationSource::Preemption, None);
    w.run(5);
    w.has_pressure();
    // After Terminated no kill changes the reason. A drain still holds the pod back (W27).
    w.kill("web", TerminationSource::Eviction, None);
    w.kill("web", TerminationSource::Drain, None);
    assert_eq!(w.status("web").reason.as_deref(), Some("Preempting"));
    w.has_room();
    w.has_no_pressure();
    w.release(TerminationSource::Preemption);
    w.run(3);
    assert!(!w.runs("web/main"));
    w.release(TerminationSource::Drain);
    w.run(3);
    assert!(w.runs("web/main"));

    w.life("web/main", &[Life::deaf()]);
    w.remove("web");
    w.run(40);
    w.file("web", ONE);
    w.run(3);
    w.kill("web", TerminationSource::Drain, None);
    w.run(1);
    w.kill("web", TerminationSource::Shutdown, None);
    assert_eq!(w.status("web").reason.as_deref(), Some("Terminated"), "the last one counts");
    w.run(40);
    w.release(TerminationSource::Shutdown);
    w.run(5);
    assert!(!w.runs("web/main"), "it is drained still");
    w.release(TerminationSource::Drain);
    w.run(5);
    assert!(w.runs("web/main"));
    w.assert_well();
}

#[test]
fn w6_a_release_in_the_middle_of_the_end_starts_it_anew_after_it() {
    for restart in [false, true] {
        let mut w = node();
        w.life("web/main", &[Life::deaf(), Life::FOREVER]);
        w.file("web", ONE);
        w.run(2);
        w.kill("web", TerminationSource::Shutdown, Some(10));
        w.run(2);
        w.release(TerminationSource::Shutdown);
        w.run(1);
        if restart {
            w.restart_engine();
        }
        w.run(4);
        assert!(w.runs("web/main"), "the end goes on");
        w.run(10);
        assert!(w.runs("web/main"));
        assert_eq!(w.status("web").reason, None);
        assert_eq!(w.times("StartContainer", 0).len(), 2);
        w.assert_well();
    }
}

#[test]
fn w6_a_release_is_not_forgotten_at_a_kill_of_wherry() {
    let mut w = running("web");
    w.kill("web", TerminationSource::Drain, None);
    w.run(5);
    // The runtime is away: nothing can be cleaned up yet.
    w.runtime_down();
    w.release(TerminationSource::Drain);
    w.run(1);
    w.restart_engine();
    w.run(1);
    w.runtime_up();
    w.run(5);
    assert!(w.runs("web/main"));
    w.assert_well();
}

#[test]
fn w4_the_shortest_requested_period_cuts_a_running_stop_short() {
    let mut w = node();
    w.life("web/main", &[Life::deaf()]);
    w.file("web", ONE);
    w.run(2);
    w.observed.calls.clear();
    w.kill("web", TerminationSource::Drain, Some(20));
    w.run(4);
    // A longer grace period changes nothing.
    w.kill("web", TerminationSource::Eviction, Some(60));
    w.run(1);
    // 8 s from the first request: 3 s are left.
    w.kill("web", TerminationSource::Shutdown, Some(8));
    let stops = w.take_calls().into_iter().filter(|c| c.starts_with("StopContainer")).collect::<Vec<_>>();
    assert_eq!(stops, ["StopContainer web/main#0 20000ms", "StopContainer web/main#0 3000ms"]);
    w.run(4);
    assert!(!w.runs("web/main"));
    assert_eq!(w.observed.killed.len(), 3, "each requester gets an answer");
    assert_eq!(w.status("web").reason.as_deref(), Some("Terminated"));
}

#[test]
fn w4_the_remaining_grace_period_and_the_cause_survive_a_restart() {
    let mut w = node();
    w.life("web/main", &[Life::deaf()]);
    w.file("web", ONE);
    w.run(2);
    w.has_no_room();
    w.kill("web", TerminationSource::Preemption, Some(20));
    w.run(5);
    w.observed.calls.clear();
    w.restart_engine();
    w.run(1);
    let stops = w.take_calls().into_iter().filter(|c| c.starts_with("StopContainer")).collect::<Vec<_>>();
    assert_eq!(stops, ["StopContainer web/main#0 15000ms"]);
    assert_eq!(w.status("web").reason.as_deref(), Some("Preempting"));
    w.run(20);
    assert_eq!(w.status("web").phase.as_deref(), Some("Failed"));
    w.run(60);
    assert!(!w.runs("web/main"));
}

#[test]
fn w5_a_kill_of_a_pod_that_does_not_run_is_answered_at_once() {
    let mut w = node();
    w.file("web", ONE);
    w.run(2);
    let unknown = w.kill_uid("nobody".into(), TerminationSource::Drain, None);
    assert_eq!(w.observed.killed, slice::from_ref(&unknown));
    // The runtime is away during the kill.
    let first = w.kill("web", TerminationSource::Shutdown, None);
    w.runtime_down();
    w.run(60);
    assert_eq!(w.observed.killed, slice::from_ref(&unknown));
    w.runtime_up();
    w.run(5);
    assert_eq!(w.observed.killed, [unknown.clone(), first.clone()]);
    let again = w.kill("web", TerminationSource::Shutdown, None);
    assert_eq!(w.observed.killed, [unknown, first, again]);
}

#[test]
fn w5_a_kill_that_comes_before_the_manifests_were_read_waits_for_them() {
    let mut w = running("web");
    w.kill_engine();
    let uid = uid_of(&w, "web");
    let records = w.disk.found();
    w.step(Event::Records(records));
    let kill = w.kill_uid(uid, TerminationSource::Drain, None);
    w.step(Event::RuntimeUp);
    w.run(5);
    assert!(w.observed.killed.is_empty() && w.runs("web/main"), "D1");
    w.read_manifests();
    w.run(5);
    assert_eq!(w.observed.killed, [kill]);
    assert_eq!(w.status("web").reason.as_deref(), Some("Drained"));
}

#[test]
fn w5_a_kill_during_a_start_is_answered_when_nothing_can_appear_any_more() {
    for ms in (0..260).step_by(10) {
        let mut w = node();
        w.fault("CreateContainer", Fault::Slow(Duration::from_secs(3)));
        w.faults.late_cancellation = true;
        w.file("web", TWO);
        w.run_ms(ms);
        let kill = w.kill("web", TerminationSource::Drain, None);
        for _ in 0..200 {
            w.run_ms(50);
            if w.observed.killed.contains(&kill) {
                assert!(!w.runtime.containers.values().any(|c| c.runs()), "after {ms} ms");
            }
        }
        assert_eq!(w.observed.killed, [kill], "after {ms} ms");
        w.run(20);
        assert!(!w.runtime.containers.values().any(|c| c.runs()), "after {ms} ms");
        assert_eq!(w.status("web").phase.as_deref(), Some("Failed"));
    }
}

#[test]
fn a_kill_does_not_fail_a_completed_pod() {
    let mut w = node();
    w.life("job/main", &[Life::exits(0, Duration::from_secs(1))]);
    w.file("job", NEVER);
    w.run(5);
    assert_eq!(w.status("job").phase.as_deref(), Some("Succeeded"));
    let kill = w.kill("job", TerminationSource::Shutdown, None);
    assert_eq!(w.observed.killed, [kill]);
    w.release(TerminationSource::Shutdown);
    w.run(60);
    assert_eq!(w.status("job").phase.as_deref(), Some("Succeeded"));
    assert_eq!(w.times("StartContainer", 0).len(), 1, "it is not run again");
}

#[test]
fn w26_the_content_of_an_evicted_pod_is_removed_and_its_status_survives_a_restart() {
    for (by, content_goes) in
        [(TerminationSource::Eviction, true), (TerminationSource::Preemption, true), (TerminationSource::Drain, false)]
    {
        let mut w = running("web");
        w.has_no_room();
        w.has_pressure();
        w.kill("web", by, None);
        w.run(10);
        assert_eq!(w.runtime.containers.is_empty(), content_goes, "{by:?}");
        let status = w.status("web");
        assert_eq!(status.phase.as_deref(), Some("Failed"));
        assert_eq!(status.container_statuses.as_ref().map(Vec::len), Some(1));
        w.restart_engine();
        w.run(60);
        assert_eq!(brief(&w.status("web")), brief(&status), "{by:?}");
        assert_eq!(w.status("web").reason, status.reason, "{by:?}");
        w.has_room();
        w.has_no_pressure();
        w.release(by);
        w.run(15);
        assert!(w.runs("web/main"), "{by:?}");
        w.assert_well();
    }
}

#[test]
fn a_disruption_is_a_condition_of_the_pod_and_a_drain_is_none() {
    for (by, disrupts) in
        [(TerminationSource::Shutdown, true), (TerminationSource::Preemption, true), (TerminationSource::Drain, false)]
    {
        let mut w = running("web");
        w.has_no_room();
        w.kill("web", by, None);
        w.run(5);
        let of_kind =
            w.status("web").conditions.unwrap_or_default().into_iter().find(|c| c.type_ == "DisruptionTarget");
        assert_eq!(of_kind.is_some(), disrupts, "{by:?}");
        if let Some(c) = of_kind {
            assert_eq!((c.status.as_str(), c.reason.as_deref()), ("True", Some("TerminationByKubelet")));
        }
    }
}

#[test]
fn w8_a_pod_drained_while_it_waits_for_its_name_starts_nothing() {
    let mut w = node();
    w.life("web/main", &[Life::deaf(), Life::FOREVER]);
    w.file("web", ONE);
    w.run(2);
    // After the edit, the new version waits 30 s for the old one.
    w.file("web", TWO);
    w.run(2);
    let kill = w.kill("web", TerminationSource::Drain, None);
    assert_eq!(w.observed.killed, [kill]);
    w.run(60);
    assert!(w.runtime.containers.values().all(|c| !c.runs()));
    assert_eq!(w.status("web").reason.as_deref(), Some("Drained"));
    w.release(TerminationSource::Drain);
    w.run(5);
    assert!(w.runs("web/one") && w.runs("web/two"));
    w.assert_well();
}

#[test]
fn w23_a_drained_pod_whose_file_goes_is_forgotten() {
    let mut w = running("web");
    w.kill("web", TerminationSource::Drain, None);
    w.run(5);
    w.remove("web");
    w.run(5);
    assert!(w.engine.pods().is_empty() && w.disk.records.is_empty());
    w.assert_clean();
}

#[test]
fn a4_the_record_of_a_waiting_pod_has_the_time_of_its_first_appearance() {
    let mut w = node();
    w.life("web/main", &[Life::deaf(), Life::FOREVER]);
    w.file("web", ONE);
    w.run(2);
    w.file("web", TWO);
    w.run(1);
    let waiting = w.disk.records.values().filter(|r| r.contains("\"waiting\":true")).count();
    assert_eq!((waiting, w.disk.records.len()), (1, 2));
    let first_seen = w.wall_now();
    w.restart_engine();
    w.run(2);
    assert!(w.runs("web/main") && !w.runs("web/one"), "it waits still");
    w.run(40);
    assert!(w.runs("web/one") && w.runs("web/two"));
    let start = w.status("web").start_time.map_or(0, |t| t.0.as_second());
    assert_eq!(start, first_seen.0 / 1_000_000_000 - 1);
    assert!(w.disk.records.values().all(|r| !r.contains("waiting")));
    w.assert_well();
}

#[test]
fn w8_a_running_pod_keeps_its_name_even_if_its_record_marks_it_as_waiting() {
    let mut w = node();
    w.life("web/main", &[Life::deaf()]);
    w.file("web", ONE);
    w.run(2);
    w.file("web", TWO);
    w.run(1);
    w.kill_engine();
    // The running pod has an old record, and the clock was set back between the two records.
    for record in w.disk.records.values_mut() {
        if record.contains("waiting") {
            *record = record.replace("\"startTime\":1", "\"startTime\":");
        } else {
            *record = record.replacen('{', "{\"waiting\":true,", 1);
        }
    }
    w.start();
    w.run(5);
    assert!(w.runs("web/main") && w.times("RunSandbox", 0).len() == 1, "{:?}", w.observed.calls);
    w.run(40);
    assert!(w.runs("web/one") && w.runs("web/two"));
    w.assert_well();
}
