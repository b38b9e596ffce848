//! Cordons of the node and evictions through the API, over restarts, kills and reboots (A10, A11).

use super::admission::{cpu_requests, small};
use crate::runtime::Life;
use crate::story::{NEVER, ONE, TWO, node};
use crate::world::{S, World};
use std::time::Duration;
use wherry::api::names::Uid;
use wherry::engine::control::{Reply, Request, RequestError, RequestId};
use wherry::engine::pod::kill::TerminationSource;
use wherry::engine::pod::placement::Placement;

impl World {
    pub fn cordon(&mut self, on: bool) {
        let id = self.ask(Request::Cordon { on });
        self.run(1);
        assert_eq!(self.answer(id), Some(&Ok(Reply::Cordoned { on })), "{}", self.trace());
    }

    fn evict(&mut self, name: &str) -> RequestId {
        let uid = Uid::from(self.shown_uid(name).as_str());
        self.ask(Request::Evict { uid, grace: None })
    }

    fn placement(&self, name: &str) -> Placement {
        let view = self.engine.pods().into_iter().find(|v| &*v.pod.name.name == name);
        view.map(|v| v.placement).unwrap_or_default()
    }
}

const EVICTED: Placement = Placement::Successor { drained: false };

fn running(name: &str) -> World {
    let mut w = node();
    w.file(name, ONE);
    w.run(2);
    assert!(w.runs(&format!("{name}/main")));
    w
}

/// The pod waits for `uncordon`, and nothing of it runs.
fn assert_held(w: &World, name: &str, placement: Placement) {
    assert_eq!((w.placement(name), w.runs(&format!("{name}/main"))), (placement, false), "{}", w.trace());
    w.assert_well();
}

#[test]
fn a10_a_new_pod_waits_for_uncordon_over_restarts_and_reboots() {
    let mut w = running("old");
    w.cordon(true);
    assert_eq!(w.notices("NodeNotSchedulable").len(), 1);
    w.file("new", ONE);
    w.run(30);
    assert_held(&w, "new", Placement::Unscheduled);
    assert_eq!(w.status("new").reason.as_deref(), Some("Unschedulable"));
    assert!(w.status("new").message.unwrap().contains("uncordon"));
    for reboot in [false, true] {
        match reboot {
            false => w.restart_engine(),
            true => w.reboot(S),
        }
        w.run(60);
        assert!(w.engine.is_cordoned() && w.runs("old/main"), "{}", w.trace());
        assert_held(&w, "new", Placement::Unscheduled);
    }
    w.cordon(false);
    w.run(5);
    assert!(w.runs("new/main") && w.runs("old/main"));
    assert_eq!(w.notices("NodeSchedulable").len(), 1);
    // From now on a cordon does not affect it.
    w.cordon(true);
    w.reboot(S);
    w.run(60);
    assert!(w.runs("new/main") && w.runs("old/main"), "{}", w.trace());
    w.assert_well();
}

#[test]
fn a10_containers_of_a_cordoned_node_restart_by_policy() {
    let mut w = running("web");
    w.cordon(true);
    w.exit_of("web/main", 1);
    w.run(5);
    assert!(w.runs("web/main"));
    w.restart_engine();
    w.run(2);
    w.exit_of("web/main", 1);
    w.run(30);
    assert!(w.runs("web/main"), "{}", w.trace());
    w.assert_well();
}

#[test]
fn a10_a_new_version_takes_the_place_of_a_running_pod() {
    for (uid, restart) in [("", false), ("", true), ("fixed", false)] {
        let mut w = node();
        w.life("web/main", &[Life::deaf()]);
        w.file_with_uid("web", uid, ONE);
        w.run(2);
        w.cordon(true);
        w.file_with_uid("web", uid, TWO);
        w.run(1);
        if restart {
            w.restart_engine();
        }
        w.run(60);
        assert!(w.runs("web/one") && w.runs("web/two"), "{}", w.trace());
        w.assert_well();
    }
}

#[test]
fn a10_a_pod_that_a_shutdown_stopped_runs_again_on_a_cordoned_node() {
    // No kill may make it a new pod.
    for effects in 1..30 {
        let mut w = running("web");
        w.cordon(true);
        w.kill("web", TerminationSource::Shutdown, Some(2));
        w.run(5);
        w.restart_engine();
        w.release(TerminationSource::Shutdown);
        w.kill_after(effects, S);
        w.run(60);
        assert!(w.runs("web/main"), "killed after {effects} effects: {}", w.trace());
        w.assert_well();
    }
}

#[test]
fn a10_a_pod_that_waits_takes_no_room() {
    let mut w = small();
    w.file("old", &cpu_requests(600));
    w.run(2);
    w.cordon(true);
    w.file("new", &cpu_requests(400));
    w.file("big", &cpu_requests(400));
    w.run(5);
    assert_held(&w, "new", Placement::Unscheduled);
    assert_held(&w, "big", Placement::Unscheduled);
    w.cordon(false);
    w.run(5);
    // It was not rejected before it had a chance to start.
    assert!(w.runs("new/main") != w.runs("big/main"), "{}", w.trace());
}

#[test]
fn a10_a_cordon_that_cannot_be_recorded_changes_nothing() {
    let mut w = node();
    w.disk_full(5 * S);
    let id = w.ask(Request::Cordon { on: true });
    w.run(1);
    assert!(matches!(w.answer(id), Some(Err(RequestError::NotCordoned { .. }))));
    assert!(!w.engine.is_cordoned() && w.notices("NodeNotSchedulable").is_empty());
    w.run(10);
    w.cordon(true);
    w.cordon(true);
    assert_eq!(w.notices("NodeNotSchedulable").len(), 1);
}

#[test]
fn a10_an_answer_is_true_after_a_kill_at_every_instant() {
    let (mut kept, mut lost) = (0, 0);
    for effects in 0..12 {
        let mut w = running("web");
        w.kill_after(effects, S / 10);
        let id = w.ask(Request::Cordon { on: true });
        w.run(1);
        let answered = w.answer(id).is_some();
        w.restart_engine();
        w.run(5);
        assert!(!answered || w.engine.is_cordoned(), "{}", w.trace());
        if w.engine.is_cordoned() { kept += 1 } else { lost += 1 }
    }
    assert!(kept > 0 && lost > 0, "{kept} were kept, {lost} lost");
}

#[test]
fn a11_an_evicted_pod_waits_for_uncordon_over_restarts_and_reboots() {
    let mut w = node();
    w.life("web/main", &[Life::deaf(), Life::FOREVER]);
    w.file("web", ONE);
    w.run(2);
    w.cordon(true);
    let uid = w.shown_uid("web");
    let id = w.evict("web");
    w.run_ms(100);
    assert_eq!(w.answer(id).map(Result::is_ok), Some(true), "the answer does not wait for the end");
    assert_eq!((w.placement("web"), w.runs("web/main")), (Placement::Bound, true));
    let view = w.engine.pod(&Uid::from(uid.as_str())).unwrap();
    assert!(view.deletion.is_some(), "it is shown as terminating");
    // W4: the rest of the grace period.
    w.restart_engine();
    w.run(40);
    assert_held(&w, "web", EVICTED);
    assert_eq!(w.status("web").reason.as_deref(), Some("Evicted"));
    assert_eq!(w.condition("web", "DisruptionTarget").1, "EvictionByEvictionAPI");
    for reboot in [false, true] {
        match reboot {
            false => w.restart_engine(),
            true => w.reboot(S),
        }
        w.run(60);
        assert_held(&w, "web", EVICTED);
    }
    w.cordon(false);
    w.run(5);
    assert!(w.runs("web/main"), "{}", w.trace());
    assert_eq!((w.placement("web"), w.shown_uid("web")), (Placement::Bound, uid));
    w.assert_well();
}

#[test]
fn a11_without_a_cordon_an_evicted_pod_starts_again_at_once() {
    let mut w = running("web");
    let before = w.running("web/main");
    w.evict("web");
    w.run(5);
    assert!(w.runs("web/main") && w.running("web/main") != before, "{}", w.trace());
    // Also if Wherry is killed before it starts.
    for effects in 0..40 {
        let mut w = running("web");
        w.kill_after(effects, S / 10);
        let id = w.evict("web");
        w.run(60);
        assert!(w.runs("web/main"), "{effects}: {}", w.trace());
        let ended = w.times("StartContainer", 0).len() == 2;
        assert!(ended || w.answer(id).is_none(), "{effects}: an eviction with an answer is lost\n{}", w.trace());
        w.assert_well();
    }
}

#[test]
fn a11_an_eviction_and_a_drain_do_not_end_each_other() {
    let mut w = running("web");
    w.file("other", ONE);
    w.run(2);
    w.cordon(true);
    w.evict("web");
    w.kill("other", TerminationSource::Drain, None);
    w.run(5);
    assert_held(&w, "other", Placement::Successor { drained: true });
    // undrain does not undo a cordon, and the pod is new to the cordoned node.
    let uids = vec![Uid::from(w.shown_uid("other").as_str()), Uid::from(w.shown_uid("web").as_str())];
    w.ask(Request::Undrain { uids });
    w.run(5);
    assert_held(&w, "other", EVICTED);
    w.restart_engine();
    w.run(5);
    assert_held(&w, "other", EVICTED);
    assert_held(&w, "web", EVICTED);
    w.kill("web", TerminationSource::Drain, None);
    w.cordon(false);
    w.run(5);
    assert!(w.runs("other/main"), "{}", w.trace());
    assert_held(&w, "web", Placement::Successor { drained: true });
    w.release(TerminationSource::Drain);
    w.run(5);
    assert!(w.runs("web/main"), "{}", w.trace());
    w.assert_well();
}

#[test]
fn a11_a_new_version_of_an_evicted_pod_waits_too() {
    for (uid, early) in [("", true), ("", false), ("fixed", true), ("fixed", false)] {
        let mut w = node();
        w.life("web/main", &[Life::deaf(), Life::FOREVER]);
        w.file_with_uid("web", uid, ONE);
        w.run(2);
        w.cordon(true);
        // The edit comes first, and the new version waits for the name.
        if early {
            w.file_with_uid("web", uid, NEVER);
            w.run(1);
        }
        let running = w.runtime.ours().next().unwrap().uid.clone();
        w.ask(Request::Evict { uid: running, grace: None });
        w.run(1);
        if !early {
            w.file_with_uid("web", uid, NEVER);
        }
        w.run(60);
        assert!(!w.runs("web/main"), "{uid} {early} {}", w.trace());
        w.restart_engine();
        w.run(60);
        assert!(!w.runs("web/main"), "{uid} {early} {}", w.trace());
        w.cordon(false);
        w.run(5);
        assert!(w.runs("web/main"), "{uid} {early} {}", w.trace());
        w.assert_well();
    }
}

/// W8: the edited pod has no successor under its own UID, so the eviction must not hold back the new version.
#[test]
fn a11_an_edited_pod_that_is_evicted_is_replaced_by_its_new_version() {
    for (uid, disk_is_full) in [("", false), ("fixed", false), ("", true), ("fixed", true)] {
        let mut w = node();
        w.life("web/main", &[Life::deaf(), Life::FOREVER]);
        w.file_with_uid("web", uid, ONE);
        w.starts_within(3, "web");
        let old = w.files["/m/web.yaml"].uid.clone();
        w.disk.full = disk_is_full;
        w.file_with_uid("web", uid, TWO);
        // In the same step, or while no record can be written.
        w.run(if disk_is_full { 2 } else { 0 });
        w.ask(Request::Evict { uid: old, grace: Some(Duration::from_secs(2)) });
        w.run(30);
        w.disk.full = false;
        w.run(130);
        assert!(w.runs("web/one") && !w.runs("web/main"), "{uid} {disk_is_full} {}", w.trace());
        assert_eq!(w.times("StartContainer", 0).len(), 3, "the old version starts again: {uid} {}", w.trace());
        w.assert_well();
    }
}

#[test]
fn a11_a_pod_that_has_completed_does_not_run_again() {
    let mut w = node();
    w.life("job/main", &[Life::exits(0, Duration::from_secs(1))]);
    w.file("job", NEVER);
    w.run(5);
    assert_eq!(w.status("job").phase.as_deref(), Some("Succeeded"));
    w.cordon(true);
    assert_eq!(w.placement("job"), Placement::Gone);
    let id = w.evict("job");
    w.run(5);
    assert!(w.answer(id).is_some_and(Result::is_ok));
    w.cordon(false);
    w.run(30);
    assert_eq!((w.status("job").phase.as_deref(), w.placement("job")), (Some("Succeeded"), Placement::Bound));
    assert_eq!(w.times("StartContainer", 0).len(), 1);
    w.assert_well();
}

#[test]
fn a11_an_eviction_of_no_pod_is_refused() {
    let mut w = running("web");
    let uid = Uid::from("nobody");
    let id = w.ask(Request::Evict { uid: uid.clone(), grace: None });
    assert_eq!(w.answer(id), Some(&Err(RequestError::UnknownPod(uid))));
    let uid = Uid::from(w.shown_uid("web").as_str());
    let id = w.ask(Request::Evict { uid, grace: Some(Duration::MAX) });
    assert_eq!(w.answer(id), Some(&Err(RequestError::GraceTooLong)));
    w.run(5);
    assert_eq!(w.times("StopContainer", 0).len(), 0);
}
