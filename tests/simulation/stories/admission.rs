//! Admission (A): rejections, pods that wait for others to end, the order after a restart, and preemption.

use crate::runtime::Life;
use crate::stories::shutdown::with_shutdown;
use crate::story::{ONE, node, node_with};
use crate::world::{Fault, MS, World, config};
use std::time::Duration;
use wherry::api::node_facts::NodeFacts;
use wherry::api::resources::{CPU, MEMORY, PODS, Resources};
use wherry::engine::config::EngineConfig;
use wherry::engine::control::{Request, RequestError};
use wherry::engine::effect::Measure;
use wherry::engine::event::Event;
use wherry::engine::node::{Due, Part};
use wherry::engine::pod::kill::TerminationSource;

/// A node with 1000 milli-CPU for pods.
pub fn small() -> World {
    node_with(of(1000, 110))
}

fn of(cpu: u64, pods: u64) -> EngineConfig {
    let allocatable = Resources::from([(CPU, cpu), (MEMORY, 1 << 30), (PODS, pods)]);
    EngineConfig { node: NodeFacts { name: "lab".into(), allocatable, ..NodeFacts::default() }, ..config() }
}

/// The spec of a pod with one container that requests `milli` milli-CPU. The variable makes another amount another version of
/// the pod, which is no resize.
pub fn cpu_requests(milli: u64) -> String {
    format!(
        "containers: [{{name: main, image: 'busybox:1.35', env: [{{name: CPU, value: '{milli}'}}], \
         resources: {{requests: {{cpu: {milli}m}}}}}}]"
    )
}

pub fn critical(milli: u64) -> String {
    format!("priority: 2000000000, {}", cpu_requests(milli))
}

impl World {
    fn allow(&mut self, cpu: u64, pods: u64) {
        self.config.node = of(cpu, pods).node;
        self.step(Event::Configure(Box::new(self.config.clone())));
    }

    /// Sets the CPU that the next start of the engine finds.
    fn allow_later(&mut self, cpu: u64) {
        self.config.node = of(cpu, 110).node;
    }

    fn reboot_with(&mut self, cpu: u64) {
        self.allow_later(cpu);
        self.reboot(0);
    }

    fn phase(&self, name: &str) -> String {
        self.status(name).phase.unwrap_or_default()
    }

    pub fn reason(&self, name: &str) -> String {
        self.status(name).reason.unwrap_or_default()
    }

    fn counted(&self, what: impl Fn(&Measure) -> bool) -> usize {
        self.observed.measures.iter().filter(|m| what(m)).count()
    }

    fn preempted(&self) -> usize {
        self.counted(|m| matches!(m, Measure::Preempted { signal } if **signal == *CPU))
    }
}

#[test]
fn a3_a_pod_that_does_not_fit_is_rejected_with_all_reasons_also_after_a_restart() {
    let mut w = small();
    w.allow(1000, 1);
    w.file("a", &cpu_requests(600));
    w.run(2);
    w.file("b", &cpu_requests(500));
    w.run(2);
    let shown = w.status("b");
    assert_eq!((w.phase("b").as_str(), w.reason("b").as_str()), ("Failed", "OutOfpods"));
    let cpu = "Node didn't have enough resource: cpu, requested: 500, used: 600, capacity: 1000";
    assert_eq!(
        shown.message.as_deref(),
        Some(format!("Node didn't have enough resource: pods, requested: 1, used: 1, capacity: 1; {cpu}").as_str())
    );
    assert_eq!(w.counted(|m| matches!(m, Measure::AdmissionRejected { reason } if reason.as_str() == "OutOfpods")), 1);
    assert_eq!(w.notices("OutOfpods").len(), 1);

    // There is room now, but a rejection holds until a retry. A restart is not a retry.
    w.remove("a");
    w.run(40);
    w.restart_engine();
    w.run(5);
    assert_eq!(w.status("b"), shown);
    assert!(w.times("RunSandbox", 0).len() == 1, "{:?}", w.take_calls());
    assert_eq!(w.counted(|m| matches!(m, Measure::AdmissionRejected { .. })), 1);

    let uid = w.files["/m/b.yaml"].uid.clone();
    w.retry(uid);
    w.run(2);
    assert!(w.runs("b/main"));
    w.restart_engine();
    w.run(2);
    assert_eq!(w.phase("b"), "Running", "the rejection is forgotten");
    w.remove("b");
    w.run(40);
    w.assert_clean();
}

#[test]
fn a3_a_rejected_pod_preempts_no_pod_and_takes_no_resources() {
    let mut w = small();
    w.file("a", &cpu_requests(2000));
    w.run(1);
    assert_eq!(w.reason("a"), "OutOfcpu");
    w.file("b", &cpu_requests(1000));
    w.run(2);
    assert!(w.runs("b/main"), "a rejected pod takes no room (A1)");
    // The edited pod is a new pod.
    w.file("a", &cpu_requests(0));
    w.run(2);
    assert!(w.runs("a/main"));
    // A retry without room changes nothing but the count.
    w.file("c", &cpu_requests(1));
    w.run(1);
    let uid = w.files["/m/c.yaml"].uid.clone();
    w.retry(uid);
    w.run(1);
    assert_eq!(w.reason("c"), "OutOfcpu");
    w.set_files(Default::default());
    w.run(40);
    w.assert_clean();
}

#[test]
fn a4_a_big_pod_is_edited_on_a_full_node() {
    let mut w = small();
    w.life("big/main", &[Life::deaf(), Life::FOREVER]);
    w.file("big", &cpu_requests(900));
    w.run(2);
    let began = w.clock.now;
    w.file("big", &cpu_requests(950));
    w.run(5);
    // The new version waits for its name (W8). Its room is that of its predecessor and 50 more.
    w.file("small", &cpu_requests(50));
    w.file("medium", &cpu_requests(100));
    w.run(2);
    assert!(w.runs("small/main"), "50 of 1000 are free");
    assert_eq!((w.phase("medium").as_str(), w.reason("medium").as_str()), ("Failed", "OutOfcpu"));
    w.run(40);
    assert!(w.runs("big/main"));
    assert_eq!(w.times("RunSandbox big", began).len(), 1);
    assert_eq!(w.counted(|m| matches!(m, Measure::AdmissionRejected { .. })), 1, "only the medium one");
    w.assert_well();
}

#[test]
fn a4_a_pod_that_fits_after_other_pods_end_waits_and_names_them() {
    let mut w = small();
    w.life("old/main", &[Life::deaf()]);
    w.file("old", &cpu_requests(700));
    w.file("stays", &cpu_requests(100));
    w.run(2);
    w.remove("old");
    w.run(1);
    w.file("new", &cpu_requests(800));
    w.file("later", &cpu_requests(150));
    w.run(2);
    assert_eq!((w.phase("new").as_str(), w.reason("new").as_str()), ("Pending", "WaitingForRoom"));
    let message = w.status("new").message.unwrap_or_default();
    assert_eq!(
        message,
        "waiting for default/old to end: Node didn't have enough resource: cpu, requested: 800, used: 800, capacity: 1000"
    );
    // First come, first served: the waiting pod already has its room.
    assert_eq!(w.reason("later"), "OutOfcpu");
    // The same holds after a restart.
    w.restart_engine();
    w.run(2);
    assert_eq!(w.reason("new"), "WaitingForRoom");
    let stopped = w.until("the old one ends", 40, |w| !w.runs("old/main"));
    assert!(stopped > 20_000, "{stopped}");
    w.run(1);
    assert!(w.runs("new/main"));
    assert_eq!(w.reason("new"), "");
    w.assert_well();
}

#[test]
fn a4_a_waiting_pod_that_is_no_longer_desired_leaves_its_place() {
    let mut w = small();
    w.life("old/main", &[Life::deaf()]);
    w.file("old", &cpu_requests(1000));
    w.run(2);
    w.remove("old");
    w.file("first", &cpu_requests(600));
    w.run(1);
    w.file("second", &cpu_requests(400));
    w.run(1);
    w.remove("first");
    w.run(1);
    w.file("third", &cpu_requests(600));
    w.run(1);
    assert_eq!(w.reason("third"), "WaitingForRoom");
    w.run(40);
    assert!(w.runs("second/main") && w.runs("third/main"));
    w.assert_well();
}

#[test]
fn a4_after_a_restart_running_pods_are_admitted_before_new_ones() {
    let mut w = small();
    w.file("z", &cpu_requests(600));
    w.run(2);
    w.kill_engine();
    w.file("a", &critical(0).replace("2000000000", "1000"));
    w.file("b", &cpu_requests(600));
    w.start();
    w.run(3);
    assert!(w.runs("z/main") && w.runs("a/main"));
    assert_eq!(w.reason("b"), "OutOfcpu");
    assert_eq!(w.times("StopContainer", 0).len(), 0);
    w.assert_well();
}

/// `first` runs, and `b` does not fit next to it.
fn b_rejected() -> World {
    let mut w = small();
    for name in ["first", "b"] {
        w.file(name, &cpu_requests(600));
        w.run(2);
    }
    assert_eq!(w.reason("b"), "OutOfcpu");
    w
}

/// The record still contains the rejection, but the first list shows that the pod runs.
#[test]
fn a3_a_rejected_pod_that_was_tried_again_runs_on_over_a_restart_though_its_record_could_not_be_written() {
    let mut w = b_rejected();
    w.remove("first");
    w.run(40);
    w.disk.full = true;
    let uid = w.files["/m/b.yaml"].uid.clone();
    w.retry(uid);
    w.run(5);
    let before = w.running("b/main");
    w.kill_engine();
    w.start();
    w.run(5);
    assert_eq!(w.running("b/main"), before);
    assert_eq!(w.phase("b"), "Running");
    // From then on its record no longer contains the rejection.
    w.disk.full = false;
    w.run(130);
    assert!(!w.disk.records.values().any(|r| r.contains("OutOfcpu")), "{:?}", w.disk.records);
    w.assert_well();
}

/// The pod waits for the requester of the kill, also over a restart. After that it is a pod like any other.
#[test]
fn a3_a_rejected_pod_that_was_killed_since_is_not_tried_again_by_a_retry() {
    for restart in [false, true] {
        let mut w = b_rejected();
        w.has_pressure();
        w.kill("b", TerminationSource::Eviction, None);
        w.remove("first");
        let uid = w.files["/m/b.yaml"].uid.clone();
        let retry = w.ask(Request::Retry { uid });
        assert!(matches!(w.answer(retry), Some(Err(RequestError::NotRejected { .. }))), "{}", w.trace());
        if restart {
            w.kill_engine();
            w.start();
        }
        w.run(40);
        assert_eq!((w.phase("b").as_str(), w.reason("b").as_str()), ("Failed", "Evicted"));
        w.has_no_pressure();
        w.starts_within(13, "b");
        let before = w.running("b/main");
        w.file("other", &cpu_requests(100));
        w.run(10);
        assert_eq!(w.running("b/main"), before);
        w.assert_well();
    }
}

#[test]
fn a4_after_a_reboot_pods_are_admitted_in_the_order_in_which_they_were_seen() {
    let mut w = small();
    for name in ["c", "a", "b"] {
        w.file(name, &cpu_requests(300));
        w.run(2);
    }
    // After a reboot the machine has less CPU.
    w.reboot_with(700);
    w.run(20);
    assert!(w.runs("c/main") && w.runs("a/main"));
    assert_eq!((w.phase("b").as_str(), w.reason("b").as_str()), ("Failed", "OutOfcpu"));
    // After another reboot it has all its CPU again. The rejection stays.
    w.reboot_with(1000);
    w.run(20);
    assert!(w.runs("c/main") && w.runs("a/main"));
    assert_eq!(w.reason("b"), "OutOfcpu");
    let uid = w.files["/m/b.yaml"].uid.clone();
    w.retry(uid);
    w.run(5);
    assert!(w.runs("b/main"));
    w.assert_well();
}

#[test]
fn a4_running_pods_continue_after_the_node_shrinks() {
    let mut w = small();
    w.file("a", &cpu_requests(900));
    w.run(2);
    w.allow(500, 110);
    w.run(5);
    w.restart_engine();
    w.run(5);
    // Its sandbox dies, but the pod keeps its room.
    let sandbox = w.sandbox("a");
    w.kill_sandbox(&sandbox);
    w.run(20);
    assert!(w.runs("a/main"));
    w.assert_well();
}

#[test]
fn a7_pods_that_arrive_together_are_admitted_by_priority() {
    let mut w = small();
    let mut files = w.files.clone();
    for (name, spec) in [("a", cpu_requests(600)), ("b", critical(600))] {
        let path = format!("/m/{name}.yaml");
        files.insert(path.clone(), crate::story::pod(&path, name, "", &spec));
    }
    w.set_files(files);
    w.run(5);
    assert!(w.runs("b/main"));
    assert_eq!(w.reason("a"), "OutOfcpu");
    assert_eq!(w.preempted(), 0);
}

#[test]
fn a8_a_critical_pod_starts_when_its_victims_have_stopped() {
    let mut w = small();
    w.life("v1/main", &[Life { on_term: Some((Duration::from_secs(3), 0)), ..Life::FOREVER }, Life::FOREVER]);
    w.life("v2/main", &[Life { on_term: Some((Duration::from_secs(7), 0)), ..Life::FOREVER }, Life::FOREVER]);
    w.file("v1", &cpu_requests(300));
    w.file("v2", &cpu_requests(400));
    w.file("v3", &cpu_requests(300));
    w.run(2);
    let began = w.clock.now;
    w.observed.calls.clear();
    w.file("vip", &critical(600));
    w.run(1);
    // The nearest first (A7): the pod with 400, then of the two with 300 the one with the smaller UID. Both are killed
    // at once.
    let killed: Vec<&str> = ["v1", "v2", "v3"].into_iter().filter(|v| w.reason(v) == "Preempting").collect();
    assert_eq!(killed.len(), 2, "{killed:?}");
    assert!(killed.contains(&"v2"));
    assert_eq!(w.times("StopContainer", began).len(), 2);
    assert_eq!((w.phase("vip").as_str(), w.reason("vip").as_str()), ("Pending", "WaitingForRoom"));
    // The room is reserved.
    w.file("thief", &cpu_requests(300));
    w.run(1);
    assert_eq!(w.reason("thief"), "OutOfcpu");
    let preempted = w.status("v2");
    assert_eq!(preempted.phase.as_deref(), Some("Running"), "W3: its phase so far");
    w.until("the critical pod runs", 20, |w| w.runs("vip/main"));
    let started = w.times("RunSandbox vip", began);
    assert_eq!(started.len(), 1);
    assert!((7000..8000).contains(&started[0]), "{started:?}");
    w.run(2);
    let status = w.status("v2");
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    assert_eq!(status.message.as_deref(), Some("Preempted in order to admit critical pod"));
    let (is, why, _) = w.condition("v2", "DisruptionTarget");
    assert_eq!((is.as_str(), why.as_str()), ("True", "TerminationByKubelet"));
    assert_eq!(w.preempted(), 2);
    assert_eq!(w.notices("Preempting").len(), 2);
    w.assert_well();
}

#[test]
fn a9_a_victim_restarts_when_it_fits_and_not_within_30_s() {
    let mut w = small();
    w.file("v1", &cpu_requests(500));
    w.run(1);
    w.file("v2", &cpu_requests(500));
    w.run(2);
    w.file("vip", &critical(1000));
    w.run(5);
    assert!(w.runs("vip/main") && !w.runs("v1/main") && !w.runs("v2/main"));
    w.run(100);
    w.restart_engine();
    w.run(20);
    assert_eq!(w.reason("v1"), "Preempting", "over a restart too");
    assert!(!w.runs("v1/main"));
    // There is room for half of them: the older pod returns.
    w.file("vip", &critical(500));
    w.run(5);
    assert!(w.runs("vip/main") && w.runs("v1/main") && !w.runs("v2/main"));
    w.remove("vip");
    w.run(5);
    assert!(w.runs("v2/main"));
    assert_eq!(w.reason("v2"), "");

    // The room is free immediately, but the victim returns 30 s after the kill.
    let again = w.clock.now;
    w.file("vip", &critical(600));
    w.run(3);
    w.remove("vip");
    w.run(20);
    assert!(!w.runs("v1/main") && !w.runs("v2/main"));
    w.run(30);
    assert!(w.runs("v1/main") && w.runs("v2/main"));
    for name in ["v1", "v2"] {
        let at = w.times(&format!("RunSandbox {name}"), again);
        assert!(at.len() == 1 && at[0] >= 30_000, "{name}: {at:?}");
    }
    w.assert_well();
}

#[test]
fn a4_a_running_pod_without_a_record_takes_resources_while_it_waits_for_its_name() {
    let mut w = small();
    w.file("web", &cpu_requests(600));
    w.run(2);
    let before = w.disk.records.clone();
    w.file("web", &cpu_requests(500));
    w.run(2);
    assert!(w.runs("web/main"));
    // The old record is in force, for example because the disk was full meanwhile.
    w.disk.records = before;
    w.kill_engine();
    w.start();
    w.file("other", &cpu_requests(600));
    w.run(5);
    assert_eq!(w.reason("other"), "OutOfcpu", "{}", w.trace());
    assert!(w.runs("web/main") && !w.runs("other/main"));
    w.assert_well();
}

#[test]
fn w2_a_pod_without_a_record_that_is_rejected_leaves_no_volume() {
    let mut w = small();
    w.fault("RunSandbox", Fault::Error("busy".into()));
    w.file("web", &format!("volumes: [{{name: v, emptyDir: {{}}}}], {}", cpu_requests(600)));
    w.run(2);
    assert_eq!(w.volumes.mounted.len(), 1);
    // The record is missing, for example because it could not be written.
    w.disk.records.clear();
    w.allow_later(500);
    w.kill_engine();
    w.start();
    w.run(2);
    assert_eq!(w.reason("web"), "OutOfcpu", "{}", w.trace());
    w.remove("web");
    w.run(60);
    w.assert_clean();
}

#[test]
fn a9_another_pod_that_takes_a_victims_uid_is_none() {
    let mut w = small();
    w.life("v/main", &[Life::FOREVER]);
    w.file_with_uid("v", "fixed", &cpu_requests(600));
    w.run(2);
    w.file("vip", &critical(600));
    w.run(5);
    assert_eq!(w.reason("v"), "Preempting");
    // The old pod has not been cleaned up yet.
    w.remove("v");
    w.file_with_uid("heir", "fixed", &cpu_requests(500));
    w.run(2);
    assert_eq!(w.reason("heir"), "OutOfcpu", "{}", w.trace());
    w.remove("heir");
    w.file_with_uid("heir", "fixed", &cpu_requests(400));
    w.run(2);
    assert!(w.runs("heir/main"), "{}", w.trace());
    w.assert_well();
}

#[test]
fn a8_no_other_pod_is_preempted_once_the_critical_pod_is_no_longer_desired() {
    let mut w = small();
    w.life("v1/main", &[Life::deaf(), Life::FOREVER]);
    w.file("v1", &cpu_requests(600));
    w.file("v2", &cpu_requests(400));
    w.run(2);
    w.file("vip", &critical(600));
    w.run(3);
    w.remove("vip");
    w.run(60);
    assert!(w.runs("v1/main") && w.runs("v2/main"), "{}", w.trace());
    assert_eq!(w.preempted(), 1);
    assert_eq!(w.times("RunSandbox vip", 0).len(), 0);
    w.assert_well();
}

#[test]
fn a8_wherry_is_killed_while_victims_end() {
    let mut w = small();
    w.life("v1/main", &[Life::deaf(), Life::FOREVER]);
    w.file("v1", &cpu_requests(600));
    w.file("v2", &cpu_requests(400));
    w.run(2);
    let began = w.clock.now;
    w.file("vip", &critical(600));
    w.run(5);
    w.restart_engine();
    w.run(3);
    assert_eq!(w.reason("vip"), "WaitingForRoom");
    w.run(40);
    assert!(w.runs("vip/main") && w.runs("v2/main") && !w.runs("v1/main"));
    assert_eq!(w.reason("v1"), "Preempting");
    let at = w.times("RunSandbox vip", began);
    assert!(at.len() == 1 && at[0] >= 30_000, "{at:?}");
    w.assert_well();
}

#[test]
fn a8_wherry_keeps_stopping_a_victim_until_it_exits() {
    let mut w = small();
    w.file("v1", &cpu_requests(600));
    w.run(2);
    for _ in 0..4 {
        w.fault("StopContainer v1/main#0", Fault::Error("not now".into()));
    }
    let began = w.clock.now;
    w.file("vip", &critical(600));
    w.run(2);
    assert!(!w.runs("vip/main") && w.runs("v1/main"), "{}", w.trace());
    w.run(120);
    assert!(w.runs("vip/main") && !w.runs("v1/main"));
    assert!(w.times("StopContainer v1", began).len() >= 5);
    w.assert_well();
}

#[test]
fn a6_with_any_other_reason_there_is_no_preemption() {
    let mut w = small();
    w.file("v1", &cpu_requests(600));
    w.run(2);
    w.file("vip", &format!("nodeName: other, {}", critical(600)));
    w.run(5);
    assert_eq!((w.phase("vip").as_str(), w.reason("vip").as_str()), ("Failed", "NodeName"));
    assert!(w.runs("v1/main"));
    // Nor if all candidates together would not free enough.
    w.file("vast", &critical(1600));
    w.run(5);
    assert_eq!(w.reason("vast"), "OutOfcpu");
    // Nor for a pod whose class never preempts.
    w.file("meek", &format!("preemptionPolicy: Never, {}", critical(600)));
    w.run(5);
    assert_eq!(w.reason("meek"), "OutOfcpu");
    assert!(w.runs("v1/main"));
    assert_eq!(w.times("StopContainer", 0).len(), 0);
}

#[test]
fn a6_the_higher_priority_is_admitted_first_and_equal_pods_are_not_preempted() {
    let mut w = small();
    let of = |priority: i32, milli| format!("priority: {priority}, {}", cpu_requests(milli));
    w.file("low", &of(1, 500));
    w.file("high", &of(5, 500));
    w.run(2);
    w.file("same", &of(1, 500));
    w.run(2);
    assert_eq!(w.reason("same"), "OutOfcpu");
    w.file("middle", &of(3, 500));
    w.run(5);
    assert!(w.runs("middle/main") && w.runs("high/main"));
    assert_eq!(w.reason("low"), "Preempting");
    // A preempted pod does not preempt others in turn.
    w.run(100);
    assert!(w.runs("middle/main") && !w.runs("low/main"));
    assert_eq!(w.preempted(), 1);
}

#[test]
fn a8_preemption_and_shutdown() {
    let mut w = node_with(EngineConfig { node: of(1000, 110).node, ..with_shutdown() });
    w.life("v1/main", &[Life::deaf(), Life::FOREVER]);
    w.file("v1", &cpu_requests(600));
    w.run(2);
    w.file("vip", &critical(600));
    w.run(1);
    assert_eq!(w.reason("v1"), "Preempting");
    w.power_off();
    w.run(2);
    // The victim shows the shutdown, its last kill (W5). Nothing starts.
    w.file("late", &critical(100));
    w.run(100);
    assert_eq!(w.reason("late"), "NodeShutdown");
    assert_eq!(w.times("RunSandbox vip", 0).len() + w.times("RunSandbox late", 0).len(), 0);
    w.call_off();
    w.run(60);
    assert!(w.runs("vip/main") && w.runs("late/main"));
    assert!(!w.runs("v1/main"), "it was preempted before, and there is no room");
    w.remove("vip");
    w.run(60);
    assert!(w.runs("v1/main"));
    w.assert_well();
}

#[test]
fn a1_the_cpu_weight_of_the_burstable_class_is_the_sum_of_its_requests() {
    let mut w = node();
    assert_eq!(w.cgroups.burstable_weight, Some(0));
    w.file("a", &cpu_requests(300));
    w.file("b", &cpu_requests(200));
    w.file("c", ONE);
    w.run(2);
    assert_eq!(w.cgroups.burstable_weight, Some(500));
    w.remove("a");
    w.run(40);
    assert_eq!(w.cgroups.burstable_weight, Some(200));
    let (node, requested) = w.engine.node();
    assert_eq!((node.allocatable.get(PODS), requested.get(PODS), requested.get(CPU)), (110, 2, 200));
}

#[test]
fn a9_a_victim_killed_by_another_source_also_waits_for_that_source() {
    let mut w = small();
    w.life("v1/main", &[Life::deaf(), Life::FOREVER]);
    w.file("v1", &cpu_requests(600));
    w.run(2);
    w.file("vip", &critical(600));
    w.run(2);
    w.kill("v1", TerminationSource::Drain, None);
    w.run(40);
    w.remove("vip");
    w.run(60);
    assert!(!w.runs("v1/main"), "it is drained");
    w.release(TerminationSource::Drain);
    w.run(60);
    assert!(w.runs("v1/main"));
}

#[test]
fn a9_a_restart_of_wherry_does_not_shorten_the_wait_of_a_victim() {
    let mut w = small();
    w.file("v1", &cpu_requests(600));
    w.run(2);
    let began = w.clock.now;
    w.file("vip", &critical(600));
    w.run(3);
    assert!(w.runs("vip/main"));
    w.remove("vip");
    w.run(2);
    w.restart_engine();
    w.run(20);
    assert!(!w.runs("v1/main"));
    w.run(20);
    assert!(w.runs("v1/main"));
    let at = w.times("RunSandbox v1", began);
    assert!(at.len() == 1 && at[0] >= 30_000, "{at:?}");
    w.assert_well();
}

#[test]
fn a9_a_victim_may_start_again_in_a_step_with_another_cause() {
    let mut w = small();
    w.file("v1", &cpu_requests(600));
    w.run(2);
    w.file("vip", &critical(600));
    w.run(3);
    w.remove("vip");
    w.run(5);
    assert!(!w.runs("v1/main"));
    let of_admission = |(due, at)| (due == Due::Part(Part::Admission)).then_some(at);
    let at = w.deadlines().into_iter().find_map(of_admission).expect("the victim waits");
    w.run_ms((at - w.clock.now) / MS - 1);
    w.clock.now = at;
    w.step_early(&Due::Part(Part::Logs));
    w.run(5);
    assert!(w.runs("v1/main"));
    w.assert_well();
}

#[test]
fn a8_a_victim_that_stops_after_a_restart_is_counted() {
    let mut w = small();
    w.life("v1/main", &[Life::deaf()]);
    w.file("v1", &cpu_requests(600));
    w.run(2);
    w.file("vip", &critical(600));
    w.run(5);
    w.restart_engine();
    w.run(5);
    assert_eq!(w.preempted(), 0);
    w.run(40);
    assert!(w.runs("vip/main"));
    assert_eq!(w.preempted(), 1);
    // Nor does a restart preempt any more pods.
    w.restart_engine();
    w.run(20);
    assert_eq!(w.preempted(), 1);
    w.assert_well();
}
