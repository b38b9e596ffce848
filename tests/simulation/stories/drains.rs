//! W27: `wherry drain` and `wherry undrain` for pods in every state, over kills of Wherry and reboots.

use super::admission::{cpu_requests, critical, small};
use crate::runtime::Life;
use crate::story::{NEVER, ONE, TWO, node};
use crate::world::{S, World};
use std::time::Duration;
use wherry::api::resources::CPU;
use wherry::engine::pod::kill::TerminationSource;

const AWAY: u64 = S / 10;

fn running(name: &str) -> World {
    let mut w = node();
    w.file(name, ONE);
    w.run(2);
    assert!(w.runs(&format!("{name}/main")));
    w
}

/// Asserts that the pod is down and that its status shows it.
fn assert_down(w: &World, name: &str) {
    let status = w.status(name);
    let shown = (status.phase.as_deref(), status.reason.as_deref());
    assert_eq!(shown, (Some("Failed"), Some("Drained")), "{}", w.trace());
    let alive = w.runtime.containers.values().filter(|c| &*c.pod_name.name == name && c.runs()).count();
    assert_eq!(alive, 0, "{}", w.trace());
    w.assert_well();
}

/// Whether a record says that its pod waits for `undrain`.
fn recorded(w: &World) -> bool {
    w.disk.records.values().any(|r| r.contains("\"waitsFor\":[\"drain\"]"))
}

fn undrained(w: &mut World, container: &str) {
    w.release(TerminationSource::Drain);
    w.run(10);
    assert!(w.runs(container), "{}", w.trace());
    w.assert_well();
}

#[test]
fn w27_a_drain_that_was_recorded_outlives_a_kill_of_wherry_at_every_instant() {
    let (mut kept, mut lost) = (0, 0);
    for effects in 0..60 {
        let mut w = node();
        w.life("web/main", &[Life::deaf(), Life::FOREVER]);
        w.file("web", ONE);
        w.run(2);
        w.kill_after(effects, AWAY);
        w.kill("web", TerminationSource::Drain, Some(5));
        w.run(2);
        match recorded(&w) {
            true => kept += 1,
            false => {
                lost += 1;
                // The client got no answer and sends the request again.
                assert_ne!(w.status("web").reason.as_deref(), Some("Drained"), "{}", w.trace());
                w.kill("web", TerminationSource::Drain, Some(5));
            }
        }
        w.run(30);
        assert_down(&w, "web");
        // It also holds after a restart in a quiet state.
        w.restart_engine();
        w.run(90);
        assert_down(&w, "web");
        assert_eq!(w.times("StartContainer", 0).len(), 1, "after {effects} effects");
        undrained(&mut w, "web/main");
    }
    assert!(kept > 10 && lost > 0, "{kept} were kept, {lost} lost: the kills come at the wrong time");
}

#[test]
fn w27_a_drained_pod_stays_down_over_reboots() {
    // A reboot during the termination, and one after it.
    for seconds in [1, 20] {
        let mut w = node();
        w.life("web/main", &[Life::deaf(), Life::FOREVER]);
        w.file("web", ONE);
        w.run(2);
        w.kill("web", TerminationSource::Drain, Some(10));
        w.run(seconds);
        for _ in 0..2 {
            w.reboot(S);
            w.run(60);
            assert_down(&w, "web");
        }
        undrained(&mut w, "web/main");
    }
}

#[test]
fn w27_a_shutdown_of_the_node_does_not_bring_a_drained_pod_back() {
    let mut w = node();
    w.life("web/main", &[Life::deaf(), Life::FOREVER]);
    w.file("web", ONE);
    w.run(2);
    w.kill("web", TerminationSource::Drain, Some(20));
    w.run(1);
    w.kill("web", TerminationSource::Shutdown, Some(5));
    w.run(10);
    w.release(TerminationSource::Shutdown);
    w.run(30);
    w.reboot(S);
    w.run(60);
    assert!(!w.runs("web/main"), "{}", w.trace());
    undrained(&mut w, "web/main");
}

#[test]
fn w27_a_new_version_of_a_drained_pod_is_held_back_too() {
    for (uid, restart) in [("", false), ("", true), ("fixed", false), ("fixed", true)] {
        let mut w = node();
        w.life("web/main", &[Life::deaf()]);
        w.file_with_uid("web", uid, ONE);
        w.run(2);
        w.kill("web", TerminationSource::Drain, Some(10));
        w.run(1);
        // One edit during the termination, and one after it.
        w.file_with_uid("web", uid, TWO);
        w.run(30);
        if restart {
            w.restart_engine();
            w.run(30);
        }
        assert_down(&w, "web");
        w.file_with_uid("web", uid, NEVER);
        w.run(30);
        if restart {
            w.restart_engine();
            w.run(60);
        }
        assert_down(&w, "web");
        assert_eq!(w.times("StartContainer", 0).len(), 1);
        assert_eq!(w.disk.records.len(), 1, "the records of older versions are removed");
        undrained(&mut w, "web/main");
        w.remove("web");
        w.run(40);
        w.assert_clean();
    }
}

/// W8: an edited pod continues to run while no record can be written, and the new version waits for its name.
#[test]
fn w27_the_successor_that_waits_for_an_edited_pod_is_held_back_with_it() {
    for uid in ["", "fixed"] {
        let mut w = node();
        w.file_with_uid("web", uid, ONE);
        w.starts_within(3, "web");
        let old = w.files["/m/web.yaml"].uid.clone();
        w.disk.full = true;
        w.file_with_uid("web", uid, TWO);
        w.run(2);
        assert!(w.runs("web/main"));
        w.kill_uid(old, TerminationSource::Drain, None);
        w.run(30);
        assert!(!w.runs("web/main") && !w.runs("web/one"), "uid {uid:?}");
        w.disk.full = false;
        w.run(130);
        assert!(!w.runs("web/one"), "uid {uid:?}");
        assert_down(&w, "web");
        undrained(&mut w, "web/one");
        w.assert_well();
    }
}

#[test]
fn w27_a_new_version_that_appears_during_downtime_is_never_started() {
    for effects in 0..30 {
        let mut w = running("web");
        w.kill("web", TerminationSource::Drain, None);
        w.run(5);
        w.kill_engine();
        w.file("web", TWO);
        w.kill_after(effects, AWAY);
        w.start();
        w.run(60);
        assert_down(&w, "web");
        assert_eq!(w.times("StartContainer", 0).len(), 1, "after {effects} effects");
        undrained(&mut w, "web/one");
    }
}

#[test]
fn w27_a_removed_and_restored_manifest_ends_the_drain_only_with_the_pod() {
    let mut w = node();
    w.life("web/main", &[Life::deaf(), Life::FOREVER]);
    w.file("web", ONE);
    w.run(2);
    w.kill("web", TerminationSource::Drain, Some(10));
    w.run(1);
    // An editor that replaces a file removes it for a moment.
    w.remove("web");
    w.run(1);
    w.file("web", ONE);
    w.run(60);
    assert_down(&w, "web");
    // When the pod is removed completely, its drain is forgotten.
    w.remove("web");
    w.run(10);
    w.assert_clean();
    w.file("web", ONE);
    w.run(5);
    assert!(w.runs("web/main"));
    w.assert_well();
}

#[test]
fn w27_a_drain_an_undrain_and_a_drain_in_one_end_leave_it_drained() {
    let mut w = node();
    w.life("web/main", &[Life::deaf(), Life::FOREVER]);
    w.file("web", ONE);
    w.run(2);
    w.kill("web", TerminationSource::Drain, Some(10));
    w.run(1);
    w.release(TerminationSource::Drain);
    w.run(1);
    w.kill("web", TerminationSource::Drain, Some(10));
    w.run(1);
    w.restart_engine();
    w.run(60);
    assert!(!w.runs("web/main"), "{}", w.trace());
    assert_eq!(w.times("StartContainer", 0).len(), 1);
    // The same after the pod is down and about to start again.
    w.runtime_down();
    w.release(TerminationSource::Drain);
    w.run(1);
    w.kill("web", TerminationSource::Drain, None);
    w.runtime_up();
    w.run(30);
    assert!(!w.runs("web/main"), "{}", w.trace());
    w.restart_engine();
    w.run(30);
    assert!(!w.runs("web/main"), "{}", w.trace());
    undrained(&mut w, "web/main");
}

#[test]
fn w27_a_preempted_pod_that_is_drained_does_not_come_back_when_there_is_room() {
    let mut w = small();
    w.file("web", &cpu_requests(600));
    w.run(2);
    w.file("vip", &critical(600));
    w.run(5);
    assert_eq!(w.status("web").reason.as_deref(), Some("Preempting"));
    let kill = w.kill("web", TerminationSource::Drain, None);
    assert_eq!(w.observed.killed, [kill], "nothing of it runs");
    w.run(1);
    w.restart_engine();
    w.run(1);
    w.remove("vip");
    w.run(90);
    assert!(!w.runs("web/main"), "{}", w.trace());
    assert_eq!(w.status("web").reason.as_deref(), Some("Preempting"), "W5: none applies once Terminated");
    undrained(&mut w, "web/main");
}

#[test]
fn w27_a_pod_that_waits_for_its_name_or_for_room_or_was_rejected_can_be_drained() {
    for restart in [false, true] {
        let mut w = small();
        w.life("web/main", &[Life::deaf()]);
        w.file("web", &cpu_requests(600));
        w.run(2);
        // The edited pod waits for its name, another pod waits for the same room, and a third one never fits.
        w.file("web", &cpu_requests(500));
        w.file("later", &cpu_requests(900));
        w.file("huge", &cpu_requests(2000));
        w.run(2);
        assert_eq!(w.status("huge").reason.as_deref(), Some("OutOfcpu"));
        for name in ["web", "later", "huge"] {
            let kill = w.kill(name, TerminationSource::Drain, None);
            w.run_ms(300);
            assert_eq!(w.observed.killed.last(), Some(&kill), "{name}");
        }
        if restart {
            w.restart_engine();
        }
        w.run(60);
        for name in ["web", "later", "huge"] {
            assert_down(&w, name);
        }
        assert_eq!(w.times("StartContainer", 0).len(), 1, "only the first version started");
        w.release(TerminationSource::Drain);
        w.run(10);
        // Each pod is admitted again.
        assert!(w.runs("web/main") != w.runs("later/main"), "{}", w.trace());
        assert_eq!(w.status("huge").reason.as_deref(), Some("OutOfcpu"));
        w.assert_well();
    }
}

#[test]
fn w27_a_drained_pod_holds_no_room_and_requests_it_again_after() {
    let mut w = small();
    w.file("web", &cpu_requests(600));
    w.run(2);
    w.kill("web", TerminationSource::Drain, None);
    w.run(5);
    assert_eq!(w.engine.node().1.get(CPU), 0);
    w.file("other", &cpu_requests(600));
    w.run(5);
    assert!(w.runs("other/main"));
    w.release(TerminationSource::Drain);
    w.run(10);
    assert_eq!(w.status("web").reason.as_deref(), Some("OutOfcpu"));
    w.assert_well();
}

#[test]
fn w27_a_drain_does_not_change_a_completed_pod() {
    let mut w = node();
    w.life("job/main", &[Life::exits(0, Duration::from_secs(1))]);
    w.file("job", NEVER);
    w.run(5);
    w.kill("job", TerminationSource::Drain, None);
    w.run(5);
    assert_eq!(w.status("job").phase.as_deref(), Some("Succeeded"));
    assert_eq!(w.engine.summary(w.time().boot).drained, 0);
    // So the drain does not hold back its next version.
    w.file("job", TWO);
    w.run(5);
    assert!(w.runs("job/one"));
    w.assert_well();
}

#[test]
fn w27_a_drain_that_could_not_be_recorded_is_recorded_when_the_disk_is_well() {
    let mut w = running("web");
    w.disk_full(30 * S);
    w.kill("web", TerminationSource::Drain, None);
    w.run(10);
    assert!(!recorded(&w));
    assert!(!w.notices("FailedRecord").is_empty());
    w.run(150);
    assert!(recorded(&w), "{:?}", w.disk.records);
    w.restart_engine();
    w.run(60);
    assert_down(&w, "web");
}

#[test]
fn w27_a_drain_and_its_end_are_reported() {
    let mut w = running("web");
    w.kill("web", TerminationSource::Drain, None);
    w.run(5);
    let uid = w.files["/m/web.yaml"].uid.clone();
    let worker_status = w.engine.worker_status(&uid, w.time().boot).unwrap();
    assert!(
        worker_status.drained && worker_status.waits_for == ["`wherry undrain`, to start again"],
        "{worker_status:?}"
    );
    assert_eq!(w.engine.summary(w.time().boot).drained, 1);
    w.release(TerminationSource::Drain);
    w.run(5);
    assert_eq!(w.notices("Drained"), ["Pod was drained from the node."]);
    assert_eq!(w.notices("Undrained"), ["Pod may run on the node again."]);
    assert_eq!(w.engine.summary(w.time().boot).drained, 0);
}
