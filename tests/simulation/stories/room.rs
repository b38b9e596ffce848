//! Preemption counts every pod that takes room (A6, A7), including pods that wait or are in back-off. Each of them can
//! be a victim and returns by A9. Also the order in which victims return.

use crate::runtime::Life;
use crate::stories::admission::{cpu_requests, critical, small};
use crate::stories::shutdown::with_shutdown;
use crate::story::{node_with, pod};
use crate::world::{Fault, World};
use std::time::Duration;
use wherry::engine::config::EngineConfig;
use wherry::engine::effect::Measure;

impl World {
    fn was_preempted(&self, name: &str) -> bool {
        !self.runs(&format!("{name}/main")) && self.waits_to_start_anew(name)
    }

    /// A9: whether the pod waits for room to start again.
    fn waits_to_start_anew(&self, name: &str) -> bool {
        let uid = self.files[&format!("/m/{name}.yaml")].uid.clone();
        let worker_status = self.engine.worker_status(&uid, self.time().boot);
        worker_status.is_some_and(|i| i.waits_for.iter().any(|what| what.starts_with("room, to start again")))
    }

    fn rejections(&self) -> usize {
        self.observed.measures.iter().filter(|m| matches!(m, Measure::AdmissionRejected { .. })).count()
    }

    /// `vip` runs, `low` is preempted and returns once `vip` is gone, also over a restart of Wherry in between.
    fn vip_runs_and_low_comes_back(&mut self) {
        self.run(10);
        assert!(self.runs("vip/main"), "{}", self.trace());
        assert!(self.was_preempted("low"), "{}", self.trace());
        assert_eq!(self.rejections(), 0, "{}", self.trace());
        self.restart_engine();
        self.run(40);
        assert!(self.runs("vip/main") && self.was_preempted("low"), "{}", self.trace());
        self.remove("vip");
        self.run(60);
        assert!(self.runs("low/main"), "{}", self.trace());
        assert_eq!(self.rejections(), 0, "{}", self.trace());
        self.assert_well();
    }
}

fn of_priority(priority: i32, milli: u64) -> String {
    format!("priority: {priority}, {}", cpu_requests(milli))
}

#[test]
fn a6_a_pod_admitted_in_the_same_pass_before_the_first_list_is_preempted() {
    let mut w = small();
    w.kill_engine();
    w.connection.up = false;
    w.start();
    w.file("low", &cpu_requests(600));
    w.file("vip", &critical(600));
    w.run(1);
    w.runtime_up();
    w.vip_runs_and_low_comes_back();
    assert!(w.times("RunSandbox vip", 0).len() == 1);
}

#[test]
fn a6_a_pod_readmitted_after_a_cancelled_shutdown_is_preempted() {
    let node = small().config.node.clone();
    let mut w = node_with(EngineConfig { node, ..with_shutdown() });
    w.power_off();
    w.run(1);
    w.file("low", &cpu_requests(600));
    w.run(1);
    w.file("vip", &critical(600));
    w.run(1);
    w.call_off();
    w.observed.measures.clear();
    w.vip_runs_and_low_comes_back();
}

#[test]
fn a6_the_waiting_successor_of_an_edited_pod_is_preempted() {
    // In one change, or while the old version ends: the new version takes the old one's place, before the critical pod.
    for apart in [false, true] {
        let mut w = small();
        w.life("low/main", &[Life { on_term: Some((Duration::from_secs(4), 0)), ..Life::FOREVER }, Life::FOREVER]);
        w.file("low", &cpu_requests(300));
        w.run(2);
        let mut files = w.files.clone();
        for (name, spec) in [("low", cpu_requests(600)), ("vip", critical(600))] {
            let path = format!("/m/{name}.yaml");
            files.insert(path.clone(), crate::story::pod(&path, name, "", &spec));
            if apart {
                w.set_files(files.clone());
                w.run(1);
            }
        }
        w.set_files(files);
        w.vip_runs_and_low_comes_back();
    }
}

#[test]
fn a4_a_new_pod_waits_for_one_that_shows_its_end_and_whose_worker_has_to_read_it_again() {
    let mut w = small();
    w.life("old/main", &[Life { ends: Some((Duration::from_secs(2), 0)), ..Life::FOREVER }]);
    w.file("old", &format!("restartPolicy: Never, {}", cpu_requests(600)));
    w.run(1);
    let uid = w.engine.pods()[0].pod.uid.clone();
    // An event during the read that shows the end asks for another one, which is slow.
    w.fault(&format!("ReadPod {uid}"), Fault::Slow(Duration::from_millis(200)));
    w.fault(&format!("ReadPod {uid}"), Fault::Slow(Duration::from_secs(5)));
    w.until("it has ended", 5, |w| !w.runs("old/main"));
    w.step(World::unknown_event(Some(uid.clone())));
    w.run_ms(100);
    w.step(World::unknown_event(Some(uid)));
    w.until("it shows its end", 2, |w| w.status("old").phase.as_deref() == Some("Succeeded"));
    w.file("new", &cpu_requests(600));
    w.run_ms(100);
    assert_eq!((w.rejections(), w.status("new").reason.as_deref()), (0, Some("WaitingForRoom")), "{}", w.trace());
    w.run(10);
    assert!(w.runs("new/main"), "{}", w.trace());
}

#[test]
fn a6_after_a_reboot_a_pod_that_started_earlier_is_preempted() {
    let mut w = small();
    w.file("low", &cpu_requests(600));
    w.run(2);
    w.kill_engine();
    w.file("vip", &critical(600));
    w.reboot(0);
    w.vip_runs_and_low_comes_back();
}

#[test]
fn a6_a_pod_in_back_off_that_requests_no_room_yet_is_preempted() {
    let mut w = small();
    let crash = Life { ends: Some((Duration::from_millis(100), 1)), ..Life::FOREVER };
    w.life("low/main", &[crash, crash, crash, crash, crash, Life::FOREVER]);
    w.file("low", &cpu_requests(600));
    w.run(30);
    // Its sandbox is dead, and its back-off continues.
    let sandbox = w.sandbox("low");
    w.kill_sandbox(&sandbox);
    w.kill_engine();
    w.start();
    w.run(1);
    assert!(!w.runs("low/main"), "{}", w.trace());
    w.file("vip", &critical(600));
    w.run(1);
    assert!(w.runs("vip/main"), "{}", w.trace());
    w.vip_runs_and_low_comes_back();
}

#[test]
fn a6_an_edited_pod_with_a_fixed_uid_is_preempted_before_it_restarts() {
    let mut w = small();
    w.life("low/main", &[Life { on_term: Some((Duration::from_secs(4), 0)), ..Life::FOREVER }, Life::FOREVER]);
    w.file_with_uid("low", "fixed", &cpu_requests(300));
    w.run(2);
    w.file_with_uid("low", "fixed", &cpu_requests(600));
    w.run(1);
    w.file("vip", &critical(600));
    w.run(1);
    // Wherry remembers the victim over a restart.
    w.restart_engine();
    w.vip_runs_and_low_comes_back();
}

#[test]
fn a6_an_edited_pod_whose_leftovers_are_being_removed_is_preempted() {
    let mut w = small();
    w.file_with_uid("low", "fixed", &cpu_requests(300));
    w.run(2);
    w.fault("RemoveSandbox", Fault::Error("busy".into()));
    w.file_with_uid("low", "fixed", &cpu_requests(600));
    w.until("it has ended", 10, |w| !w.runs("low/main") && !w.times("RemoveSandbox", 0).is_empty());
    w.file("vip", &critical(600));
    w.run_ms(500);
    assert!(w.runs("vip/main"), "the removal delays no other pod: {}", w.trace());
    w.vip_runs_and_low_comes_back();
}

#[test]
fn a9_a_victim_whose_record_is_being_removed_is_recorded_again() {
    let mut w = small();
    w.file_with_uid("low", "fixed", &cpu_requests(300));
    w.run(2);
    w.remove("low");
    w.until("its record is being removed", 10, |w| w.trace().contains("< delete pods/fixed"));
    assert!(w.disk.records.contains_key("pods/fixed"));
    w.file_with_uid("low", "fixed", &cpu_requests(600));
    w.file("vip", &critical(600));
    w.vip_runs_and_low_comes_back();
}

#[test]
fn a6_a_critical_pod_that_cannot_be_admitted_preempts_no_pod_in_the_same_pass() {
    for (spec, reason) in [
        (format!("nodeName: other, {}", critical(600)), "NodeName"),
        (critical(1600), "OutOfcpu"),
        (format!("preemptionPolicy: Never, {}", critical(600)), "OutOfcpu"),
    ] {
        let mut w = small();
        w.kill_engine();
        w.connection.up = false;
        w.start();
        w.file("low", &cpu_requests(600));
        w.file("vip", &spec);
        w.run(1);
        w.runtime_up();
        w.run(5);
        assert!(w.runs("low/main"), "{reason}: {}", w.trace());
        assert_eq!(w.status("vip").reason.as_deref(), Some(reason), "{}", w.trace());
        assert_eq!(w.times("StopContainer", 0).len(), 0, "{}", w.trace());
    }
}

#[test]
fn a9_a_small_victim_does_not_take_the_resources_of_a_larger_one_with_higher_priority() {
    let mut w = small();
    w.file("big", &of_priority(10, 700));
    w.file("tiny", &of_priority(1, 300));
    w.run(2);
    // Both are preempted, the big one 20 s later.
    w.file("first", &critical(300));
    w.run(20);
    w.file("second", &critical(700));
    w.run(5);
    assert!(w.was_preempted("big") && w.was_preempted("tiny"), "{}", w.trace());
    // From here on all the room is free. The 30 s of the small one end first: it fits next to the big one and returns.
    let mut edited = w.files.clone();
    edited.remove("/m/first.yaml");
    edited.insert("/m/second.yaml".into(), crate::story::pod("/m/second.yaml", "second", "", &critical(200)));
    w.set_files(edited);
    let began = w.clock.now;
    w.run(10);
    // The critical pod takes 200 and the big one 700. The rest is too little.
    assert!(!w.runs("tiny/main"), "{}", w.trace());
    w.run(40);
    assert!(w.runs("big/main") && !w.runs("tiny/main"), "{}", w.trace());
    assert_eq!(w.times("RunSandbox tiny", began).len(), 0, "{}", w.trace());
    w.remove("second");
    w.run(60);
    assert!(w.runs("big/main") && w.runs("tiny/main"), "{}", w.trace());
    w.assert_well();
}

#[test]
fn a9_resources_about_to_be_freed_are_reserved_for_the_victim_with_higher_priority() {
    let mut w = small();
    w.life("slow/main", &[Life { on_term: Some((Duration::from_secs(20), 0)), ..Life::FOREVER }]);
    w.file("big", &of_priority(10, 600));
    w.file("tiny", &of_priority(1, 300));
    w.run(2);
    w.file("slow", &critical(500));
    w.file("quick", &critical(500));
    w.run(60);
    assert!(w.was_preempted("big") && w.was_preempted("tiny"), "{}", w.trace());
    // The last critical pod leaves 850: 350 are free at once, the others after 20 s.
    let began = w.clock.now;
    let mut files = w.files.clone();
    files.remove("/m/slow.yaml");
    files.remove("/m/quick.yaml");
    files.insert("/m/x.yaml".into(), crate::story::pod("/m/x.yaml", "x", "", &critical(150)));
    w.set_files(files);
    w.run(10);
    assert!(w.runs("x/main") && w.runs("slow/main") && !w.runs("tiny/main"), "{}", w.trace());
    w.run(40);
    assert!(w.runs("big/main") && !w.runs("tiny/main"), "{}", w.trace());
    assert_eq!(w.times("RunSandbox tiny", began).len(), 0, "{}", w.trace());
    w.assert_well();
}

#[test]
fn a9_a_victim_that_cannot_fit_delays_no_other_victim() {
    let mut w = small();
    w.file("big", &of_priority(10, 700));
    w.file("tiny", &of_priority(1, 300));
    w.run(2);
    w.file("vip", &critical(1000));
    w.run(5);
    assert!(w.was_preempted("big") && w.was_preempted("tiny"), "{}", w.trace());
    w.file("vip", &critical(400));
    w.run(60);
    // Next to the critical pod there is no room for the big one, whichever other pods end.
    assert!(w.runs("vip/main") && w.runs("tiny/main") && w.was_preempted("big"), "{}", w.trace());
    w.remove("vip");
    w.run(60);
    assert!(w.runs("big/main") && w.runs("tiny/main"), "{}", w.trace());
    w.assert_well();
}

#[test]
fn a4_a_status_read_that_hangs_after_a_reboot_delays_no_other_pod() {
    let mut w = small();
    w.file("old", &cpu_requests(300));
    w.run(2);
    w.kill_engine();
    w.file("new", &cpu_requests(300));
    w.file("wide", &cpu_requests(600));
    let old = w.files["/m/old.yaml"].uid.clone();
    w.fault(&format!("ReadPod {old}"), Fault::Slow(Duration::from_secs(100)));
    let began = w.clock.now;
    w.reboot(0);
    w.run(5);
    assert!(w.runs("new/main"), "{}", w.trace());
    // It is unknown whether the old pod takes its room: a pod that needs this room waits and is not rejected.
    assert_eq!(w.status("wide").reason.as_deref(), Some("WaitingForRoom"), "{}", w.trace());
    let message = w.status("wide").message.unwrap_or_default();
    assert!(message.starts_with("waiting for the status of default/old"), "{message}");
    w.run(200);
    assert!(w.runs("old/main") && w.runs("new/main"), "{}", w.trace());
    assert_eq!(w.status("wide").reason.as_deref(), Some("OutOfcpu"), "{}", w.trace());
    assert!(w.times("RunSandbox new", began)[0] < 5000);
    w.assert_well();
}

#[test]
fn a6_a_critical_pod_does_not_wait_for_a_status_that_cannot_be_read_if_others_can_go() {
    let mut w = small();
    w.file("old", &cpu_requests(300));
    w.file("low", &cpu_requests(300));
    w.run(2);
    w.kill_engine();
    w.file("vip", &critical(600));
    let old = w.files["/m/old.yaml"].uid.clone();
    for _ in 0..20 {
        w.fault(&format!("ReadPod {old}"), Fault::Error("not now".into()));
    }
    w.reboot(0);
    w.run(10);
    assert!(w.runs("vip/main"), "{}", w.trace());
    assert!(w.was_preempted("low") && !w.was_preempted("old"), "{}", w.trace());
    w.run(60);
    assert!(w.runs("vip/main") && w.runs("old/main"), "{}", w.trace());
    w.assert_well();
}

/// A node for `pods` pods whose runtime is away.
fn without_a_runtime(pods: u64) -> World {
    let mut w = small();
    w.config.node.allocatable.set("pods", pods);
    w.kill_engine();
    w.connection.up = false;
    w.start();
    w
}

#[test]
fn a2_pods_beyond_max_pods_are_rejected_before_the_runtime_answers() {
    let mut w = without_a_runtime(2);
    for name in ["a", "b", "c", "d"] {
        w.file(name, &cpu_requests(400));
    }
    w.file("e", &critical(900));
    w.run(1);
    for (name, reason) in [("a", None), ("b", None), ("c", Some("OutOfpods")), ("d", Some("OutOfpods")), ("e", None)] {
        assert_eq!(w.status(name).reason.as_deref(), reason, "{name}: {}", w.trace());
    }
    assert_eq!(w.rejections(), 2);
    w.runtime_up();
    w.run(5);
    // The first list decides which pods are preempted.
    assert!(w.runs("e/main") && w.was_preempted("a") && w.was_preempted("b"), "{}", w.trace());
    w.restart_engine();
    w.run(5);
    assert_eq!((w.status("c").reason.as_deref(), w.rejections()), (Some("OutOfpods"), 2));
    w.assert_well();
}

#[test]
fn a2_no_pod_is_rejected_before_the_first_list() {
    // A pod that started and may have ended since, and a pod whose record is lost.
    for record_is_lost in [false, true] {
        let mut w = small();
        w.file("web", &cpu_requests(100));
        w.run(2);
        let key = format!("pods/{}", w.files["/m/web.yaml"].uid);
        if record_is_lost {
            assert!(w.disk.records.remove(&key).is_some());
        }
        w.config.node.allocatable.set("pods", 1);
        w.kill_engine();
        w.runtime_down();
        w.file("a", &cpu_requests(100));
        w.start();
        w.run(5);
        assert_eq!(w.status("a").phase.as_deref(), Some("Pending"), "{}", w.trace());
        assert_eq!(w.rejections(), 0, "{}", w.trace());
        w.runtime_up();
        w.run(5);
        assert!(w.runs("web/main"), "{}", w.trace());
        assert_eq!((w.status("a").reason.as_deref(), w.rejections()), (Some("OutOfpods"), 1), "{}", w.trace());
        assert_eq!(w.times("StopContainer", 0).len(), 0, "{}", w.trace());
        w.assert_well();
    }
}

#[test]
fn a6_a_successor_whose_predecessor_still_runs_preempts_no_pod() {
    let mut w = small();
    w.file("low", &cpu_requests(600));
    w.file("vip", &critical(300));
    w.run(5);
    w.disk.full = true;
    w.file("vip", &critical(600));
    w.run(60);
    assert!(w.runs("low/main") && w.runs("vip/main"), "{}", w.trace());
    assert_eq!(w.rejections(), 0, "{}", w.trace());
    w.disk.full = false;
    w.until("low gives way", 130, |w| w.was_preempted("low"));
    w.run(10);
    assert!(w.runs("vip/main"), "{}", w.trace());
    assert_eq!(w.rejections(), 0, "{}", w.trace());
    w.assert_well();
}

#[test]
fn a6_a_pod_that_will_be_rejected_at_its_restart_takes_no_resources_from_a_critical_pod() {
    for edited in [critical(5000), format!("nodeName: other, {}", critical(900))] {
        let mut w = small();
        w.file("tiny", &cpu_requests(50));
        w.file_with_uid("odd", "fixed", &critical(300));
        w.run(5);
        let mut files = w.files.clone();
        files.insert("/m/odd.yaml".into(), pod("/m/odd.yaml", "odd", "fixed", &edited));
        files.insert("/m/vip.yaml".into(), pod("/m/vip.yaml", "vip", "", &critical(300)));
        w.set_files(files);
        w.run(60);
        assert!(w.runs("vip/main"), "{}", w.trace());
        assert_eq!(w.rejections(), 1, "{}", w.trace());
    }
}

#[test]
fn a6_a_critical_pod_does_not_wait_for_a_status_read_that_hangs_if_others_can_go() {
    let mut w = small();
    w.file("old", &cpu_requests(300));
    w.file("low", &cpu_requests(300));
    w.run(2);
    w.kill_engine();
    w.file("vip", &critical(600));
    let old = w.files["/m/old.yaml"].uid.clone();
    w.hang(&format!("ReadPod {old}"));
    w.reboot(0);
    w.run(40);
    assert!(w.runs("vip/main"), "{}", w.trace());
    assert!(w.was_preempted("low") && !w.was_preempted("old"), "{}", w.trace());
}
