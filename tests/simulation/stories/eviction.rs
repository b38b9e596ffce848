//! Node-pressure eviction (E1 to E7).

use crate::runtime::Life;
use crate::story::*;
use crate::world::host::{CAPACITY, MEMORY_LIMIT};
use crate::world::{Fault, World, config};
use std::time::Duration;
use wherry::api::eviction::{EvictionPolicy, Limit, Signal, Threshold, ThresholdKind};
use wherry::engine::config::EngineConfig;
use wherry::engine::effect::Measure;
use wherry::engine::event::Event;

fn seconds(s: u64) -> Duration {
    Duration::from_secs(s)
}

fn threshold(signal: Signal, kind: ThresholdKind) -> Threshold {
    Threshold { signal, kind, limit: Limit::Amount(MEMORY_LIMIT), reclaim: None }
}

fn policy(thresholds: &[Threshold]) -> EvictionPolicy {
    EvictionPolicy { thresholds: thresholds.to_vec(), transition: seconds(30), ..EvictionPolicy::default() }
}

fn hard(signal: Signal) -> EvictionPolicy {
    policy(&[threshold(signal, ThresholdKind::Hard)])
}

/// A node on which 100 of 1000 units must stay free. Without reports of the kernel it is measured every 10 s.
fn node_with_limit(mut policy: EvictionPolicy) -> World {
    if policy.thresholds.iter().all(|t| t.signal != Signal::MemoryAvailable) {
        let limit = Limit::Amount(1);
        policy.thresholds.push(Threshold { limit, ..threshold(Signal::MemoryAvailable, ThresholdKind::Hard) });
    }
    node_with_reports(policy, false)
}

fn node_with_reports(policy: EvictionPolicy, reports: bool) -> World {
    node_on_disks(policy, reports, false)
}

fn node_on_disks(policy: EvictionPolicy, reports: bool, one_disk: bool) -> World {
    let mut w = World::new(EngineConfig { eviction: policy, ..config() });
    w.history = Some(Vec::new());
    w.host.reports = reports;
    w.host.one_disk = one_disk;
    w.runtime.images.insert(IMAGE.into());
    w.start();
    w.run(1);
    w.observed.calls.clear();
    w
}

fn requesting(memory: &str, more: &str) -> String {
    format!("{more}containers: [{{name: main, image: '{IMAGE}', resources: {{requests: {{memory: '{memory}'}}}}}}]")
}

impl World {
    fn uses(&mut self, pod: &str, memory: u64) {
        self.host.memory_of.insert(format!("{pod}/main"), memory);
    }

    fn evicted(&self) -> Vec<&'static str> {
        let signal = |m: &Measure| if let Measure::Evicted { signal } = m { Some(*signal) } else { None };
        self.observed.measures.iter().filter_map(signal).collect()
    }

    fn is_evicted(&self, pod: &str) -> bool {
        self.status(pod).reason.as_deref() == Some("Evicted")
    }
}

#[test]
fn e4_the_pod_that_uses_the_most_above_its_request_is_evicted_first() {
    let mut w = node_with_limit(hard(Signal::MemoryAvailable));
    for (name, spec, used) in
        [("within", requesting("400", ""), 300), ("above", requesting("100", ""), 250), ("plain", ONE.to_owned(), 120)]
    {
        w.file(name, &spec);
        w.uses(name, used);
    }
    w.run(12);
    assert_eq!(w.evicted(), [""; 0], "{} are available", w.memory_available());
    w.host.memory = 300;
    w.run(12);
    // The available memory was 30; 250 of the first victim are enough.
    assert_eq!(w.evicted(), ["memory.available"]);
    assert!(w.is_evicted("above") && w.runs("within/main") && w.runs("plain/main"));
    let status = w.status("above");
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    let message = "The node was low on resource: memory. Threshold quantity: 100, available: 30. \
                   Container main was using 250, request is 100, has larger consumption of memory. ";
    assert_eq!(status.message.as_deref(), Some(message));
    assert_eq!(w.condition("above", "DisruptionTarget").1, "TerminationByKubelet");
    assert_eq!(w.notices("EvictionThresholdMet"), ["Attempting to reclaim memory"]);
    assert_eq!(w.notices("NodeHasInsufficientMemory"), ["Node status is now: NodeHasInsufficientMemory"]);
    assert_eq!(w.notices("Evicted"), [message]);
}

#[test]
fn e4_a_pod_of_a_lower_priority_is_evicted_before_one_that_uses_more() {
    let mut w = node_with_limit(hard(Signal::MemoryAvailable));
    w.file("low", &format!("priority: 1, {ONE}"));
    w.file("high", &format!("priority: 2, {ONE}"));
    w.uses("low", 200);
    w.uses("high", 600);
    w.run(2);
    w.host.memory = 150;
    w.run(20);
    assert!(w.is_evicted("low") && w.runs("high/main"));
    assert_eq!(w.evicted().len(), 1);
}

#[test]
fn e4_one_pod_after_another_is_evicted_and_each_has_ended_before_the_next() {
    let mut w = node_with_limit(hard(Signal::MemoryAvailable));
    for name in ["a", "b", "c"] {
        w.file(name, ONE);
        w.uses(name, 50);
        w.life(&format!("{name}/main"), &[Life::deaf()]);
    }
    w.run(2);
    w.host.memory = 930;
    let mut most = 0;
    for _ in 0..400 {
        w.run_ms(100);
        let ending = ["a", "b", "c"].iter().filter(|name| w.is_evicted(name) && w.runs(&format!("{name}/main")));
        most = most.max(ending.count());
        if w.evicted().len() == 3 {
            break;
        }
    }
    assert_eq!((w.evicted().len(), most <= 1), (3, true), "{most} at a time");
}

#[test]
fn e4_a_critical_pod_is_never_evicted() {
    let mut w = node_with_limit(hard(Signal::MemoryAvailable));
    w.file("critical", &format!("priorityClassName: system-node-critical, {ONE}"));
    w.uses("critical", 500);
    w.run(2);
    w.host.memory = 450;
    w.run(120);
    assert!(w.runs("critical/main"));
    assert_eq!(w.evicted(), [""; 0]);
    assert_eq!(w.notices("EvictionThresholdMet").len(), 1, "reported once, while it lasts");
}

#[test]
fn e2_a_soft_threshold_has_to_be_met_for_its_grace_period() {
    let soft = threshold(Signal::MemoryAvailable, ThresholdKind::Soft(seconds(40)));
    let mut w = node_with_limit(EvictionPolicy { max_grace: seconds(7), ..policy(&[soft]) });
    w.file("web", &format!("terminationGracePeriodSeconds: 20, {ONE}"));
    w.uses("web", 500);
    w.run(12);
    for _ in 0..3 {
        w.host.memory = 450;
        w.run(25);
        w.host.memory = 0;
        w.run(12);
    }
    assert_eq!(w.evicted(), [""; 0], "never for 40 s");
    w.host.memory = 450;
    w.observed.calls.clear();
    w.run(60);
    assert_eq!(w.evicted(), ["memory.available"]);
    assert!(w.take_calls().contains(&"StopContainer web/main#0 7000ms".to_owned()), "the smaller grace period");
}

#[test]
fn e2_a_dip_shorter_than_the_grace_period_evicts_no_pod_although_the_reclaim_is_missing() {
    let reclaim = Some(Limit::Amount(300));
    let soft = Threshold { reclaim, ..threshold(Signal::MemoryAvailable, ThresholdKind::Soft(seconds(40))) };
    let mut w = node_with_limit(policy(&[soft]));
    w.file("web", ONE);
    w.uses("web", 500);
    w.run(12);
    w.host.memory = 450;
    w.until("the threshold is met", 15, |w| w.notices("NodeHasInsufficientMemory").len() == 1);
    // 200 are available: more than the threshold, and less than the threshold and the reclaim.
    w.host.memory = 300;
    w.run(120);
    assert_eq!(w.evicted(), [""; 0]);
    assert_eq!(w.notices("NodeHasSufficientMemory").len(), 1);
    // Once pods are evicted, the reclaim has to be there.
    w.file("other", ONE);
    w.uses("other", 120);
    w.host.memory = 330;
    w.until("a pod is evicted", 70, |w| !w.evicted().is_empty());
    assert!(w.is_evicted("web") && w.runs("other/main"));
    w.host.memory = 700;
    w.until("180 are not enough", 30, |w| w.evicted().len() == 2);
}

#[test]
fn e4_process_ids_are_counted_by_pod_and_the_priority_comes_first() {
    let mut w = node_with_limit(hard(Signal::PidAvailable));
    for (name, priority, processes) in [("few", 0, 0), ("many", 0, 400), ("more-important", 10, 500)] {
        w.file(name, &format!("priority: {priority}, {ONE}"));
        w.host.processes_of.insert(format!("{name}/main"), processes);
    }
    w.run(5);
    w.host.pids_free = 10;
    w.until("a pod is evicted", 30, |w| !w.evicted().is_empty());
    assert!(w.is_evicted("many") && !w.is_evicted("few") && !w.is_evicted("more-important"));
    let message = w.status("many").message.unwrap_or_default();
    assert!(message.starts_with("The node was low on resource: pids. Threshold quantity: "), "{message}");
    assert!(!message.contains("Container"), "process ids are not requested: {message}");
    w.until("another pod is evicted", 60, |w| w.evicted().len() == 2);
    assert!(w.is_evicted("few"));
}

#[test]
fn e2_a_condition_stays_for_the_transition_period() {
    let mut w = node_with_limit(hard(Signal::PidAvailable));
    w.host.pids_free = 10;
    w.run(12);
    assert_eq!(w.notices("NodeHasInsufficientPID").len(), 1);
    w.host.pids_free = CAPACITY;
    w.run(25);
    assert_eq!(w.notices("NodeHasSufficientPID").len(), 0);
    w.run(20);
    assert_eq!(w.notices("NodeHasSufficientPID").len(), 1);
}

#[test]
fn e2_a_threshold_is_met_until_the_minimum_reclaim_is_available() {
    let reclaim = Some(Limit::Amount(200));
    let more = Threshold { reclaim, ..threshold(Signal::MemoryAvailable, ThresholdKind::Hard) };
    let mut w = node_with_limit(policy(&[more]));
    for name in ["a", "b", "c"] {
        w.file(name, ONE);
        w.uses(name, 120);
    }
    w.run(2);
    w.host.memory = 600;
    w.run(40);
    // Available are 40, then 160, then 280, then 400.
    w.assert_well();
    assert_eq!(w.evicted().len(), 3);
    assert_eq!(w.notices("EvictionThresholdMet").len(), 1);
}

#[test]
fn e5_an_evicted_pod_starts_again_after_the_pressure_and_later_each_time() {
    let mut w = node_with_limit(hard(Signal::MemoryAvailable));
    w.file("web", ONE);
    w.uses("web", 500);
    w.run(2);
    let mut waited = Vec::new();
    for _ in 0..4 {
        w.host.memory = 450;
        w.until("it is evicted", 30, |w| w.is_evicted("web") && !w.runs("web/main"));
        w.host.memory = 0;
        let ms = w.until("it runs again", 400, |w| w.runs("web/main"));
        waited.push(ms / 1000);
        w.run(2);
    }
    // The condition lasts for 30 s; the delay is 10, 20, 40, 80 s.
    let bounds = [(28, 55), (28, 55), (38, 65), (78, 105)];
    for (waited, (least, most)) in waited.iter().zip(bounds) {
        assert!((least..most).contains(waited), "{waited} s");
    }
}

#[test]
fn e5_an_evicted_pod_waits_across_a_kill_of_wherry() {
    let mut w = node_with_limit(hard(Signal::MemoryAvailable));
    w.file("web", ONE);
    w.uses("web", 500);
    w.run(2);
    w.host.memory = 450;
    w.until("it is evicted", 30, |w| w.is_evicted("web"));
    w.run(1);
    w.host.memory = 950;
    w.kill_engine();
    w.start();
    w.run(60);
    assert!(w.is_evicted("web") && !w.runs("web/main"));
    w.host.memory = 0;
    w.until("it runs again", 90, |w| w.runs("web/main"));
}

#[test]
fn e5_evicted_pods_start_one_after_another_the_highest_priority_first() {
    let mut w = node_with_limit(hard(Signal::MemoryAvailable));
    for (name, priority) in [("a", 1), ("b", 3), ("c", 2)] {
        w.file(name, &format!("priority: {priority}, {ONE}"));
        w.uses(name, 100);
    }
    w.run(2);
    w.host.memory = 950;
    w.until("all are evicted", 60, |w| w.evicted().len() == 3);
    w.run(2);
    w.host.memory = 700;
    w.observed.calls.clear();
    w.run(150);
    // The third does not fit and would be evicted at once, with the lowest priority.
    let starts: Vec<String> = w.take_calls().into_iter().filter(|c| c.starts_with("StartContainer")).collect();
    assert_eq!(starts[..2], ["StartContainer b/main#0", "StartContainer c/main#0"]);
}

#[test]
fn e6_under_memory_pressure_only_pods_with_requests_start() {
    let mut w = node_with_limit(hard(Signal::MemoryAvailable));
    w.file("system", &format!("priorityClassName: system-node-critical, {ONE}"));
    w.run(2);
    w.host.memory = 950;
    w.run(12);
    w.file("best-effort", ONE);
    w.file("requests", &requesting("1", ""));
    w.file("critical", &format!("priorityClassName: system-node-critical, {ONE}"));
    let toleration = "{key: node.kubernetes.io/memory-pressure, operator: Exists, effect: NoSchedule}";
    w.file("tolerates", &format!("tolerations: [{toleration}], {ONE}"));
    w.run_ms(1500);
    assert!(w.runs("requests/main") && w.runs("critical/main") && w.runs("tolerates/main"));
    assert!(!w.runs("best-effort/main"));
    assert_eq!(w.status("best-effort").message.as_deref(), Some("waiting for the end of the node's MemoryPressure"));
    w.host.memory = 0;
    w.until("the pressure is over", 60, |w| w.runs("best-effort/main"));
}

#[test]
fn e6_under_disk_pressure_only_critical_pods_start() {
    let mut w = node_with_limit(hard(Signal::NodefsAvailable));
    w.host.files = 950;
    w.run(12);
    w.file("web", &requesting("1", ""));
    w.file("critical", &format!("priorityClassName: system-node-critical, {ONE}"));
    w.run_ms(1500);
    assert!(w.runs("critical/main") && !w.runs("web/main"));
    w.host.files = 0;
    w.until("the pressure is over", 60, |w| w.runs("web/main"));
}

#[test]
fn e3_unused_images_are_removed_before_a_pod_is_evicted() {
    let mut w = node_with_limit(hard(Signal::ImagefsAvailable));
    w.runtime.images.insert("old:1".into());
    w.runtime.store.sizes.insert("old:1".into(), 100);
    w.file("web", ONE);
    w.run(150);
    w.runtime.store.other = 850;
    w.run(15);
    assert_eq!(w.take_calls().iter().filter(|c| c.starts_with("RemoveImage")).count(), 1);
    assert_eq!((w.evicted(), w.runs("web/main")), (vec![], true), "the removal made enough room");
    w.runtime.store.other = 950;
    w.run(15);
    assert_eq!(w.evicted(), ["imagefs.available"]);
}

#[test]
fn e3_dead_containers_are_removed_at_disk_pressure() {
    let mut w = node_with_limit(hard(Signal::ImagefsAvailable));
    w.runtime.images.insert("old:1".into());
    w.runtime.store.sizes.insert("old:1".into(), 100);
    w.life("web/main", &[Life::exits(1, seconds(1)), Life::exits(1, seconds(1)), Life::FOREVER]);
    w.life("job/main", &[Life::exits(0, seconds(1))]);
    w.file("web", ONE);
    w.file("job", NEVER);
    w.run(150);
    let of = |w: &World, pod: &str| w.runtime.containers.values().filter(|c| &*c.pod_name.name == pod).count();
    assert_eq!((of(&w, "web"), of(&w, "job")), (2, 1));
    w.runtime.store.other = 850;
    w.run(25);
    assert_eq!((of(&w, "web"), of(&w, "job")), (1, 0), "{}", w.trace());
    assert_eq!(w.evicted(), [""; 0]);
    assert_eq!(w.shown("job"), "Succeeded main#0:terminated Completed 0");
}

#[test]
fn e3_images_on_another_file_system_stay() {
    for one_disk in [false, true] {
        let mut w = node_with_limit(policy(&[
            threshold(Signal::NodefsAvailable, ThresholdKind::Hard),
            threshold(Signal::ImagefsInodesFree, ThresholdKind::Hard),
        ]));
        w.host.one_disk = one_disk;
        w.runtime.images.insert("old:1".into());
        w.run(150);
        w.host.files = 950;
        w.run(15);
        let removed = w.take_calls().iter().any(|c| c.starts_with("RemoveImage"));
        assert_eq!(removed, one_disk);
    }
}

#[test]
fn e4_the_pod_with_the_most_files_is_evicted_at_disk_pressure() {
    let mut w = node_with_limit(hard(Signal::NodefsAvailable));
    let spec = format!("{ONE}, volumes: [{{name: data, emptyDir: {{}}}}]");
    for (name, bytes) in [("small", 100), ("large", 500)] {
        w.file(name, &spec);
        w.host.disk_of.insert(format!("{name}/main"), bytes);
    }
    w.run(2);
    w.host.files = 350;
    w.run(75);
    assert!(w.is_evicted("large") && w.runs("small/main"), "{}", w.trace());
    let message = w.status("large").message.unwrap_or_default();
    assert!(
        message.starts_with("The node was low on resource: ephemeral-storage. Threshold quantity: 100, "),
        "{message}"
    );
}

#[test]
fn e4_of_two_file_systems_only_the_use_of_the_one_that_is_short_counts() {
    let first = |signal: Signal, one_disk: bool| {
        let mut w = node_on_disks(hard(signal), false, one_disk);
        let volumes = "volumes: [{name: data, emptyDir: {}}]";
        for (name, layer, volume) in [("layer", 600, 10), ("volume", 10, 200)] {
            w.file(name, &format!("{ONE}, {volumes}"));
            w.host.layer_of.insert(format!("{name}/main"), layer);
            w.host.disk_of.insert(format!("{name}/main"), volume);
        }
        w.run(5);
        w.host.files = 750;
        w.runtime.store.other = w.runtime.store.capacity - 50;
        w.until("a pod is evicted", 140, |w| !w.evicted().is_empty());
        w.evicted().iter().for_each(|of| assert_eq!(*of, signal.name()));
        ["layer", "volume"].into_iter().find(|name| w.is_evicted(name))
    };
    assert_eq!(first(Signal::NodefsAvailable, false), Some("volume"));
    assert_eq!(first(Signal::ImagefsAvailable, false), Some("layer"));
    assert_eq!(first(Signal::NodefsAvailable, true), Some("layer"));
    assert_eq!(first(Signal::ImagefsAvailable, true), Some("layer"));
}

#[test]
fn e7_the_limit_of_a_container_covers_its_layer_only_on_the_nodes_file_system() {
    for one_disk in [true, false] {
        let mut config = config();
        config.node.allocatable.set("ephemeral-storage", 2000);
        let mut w = node_with(config);
        w.host.one_disk = one_disk;
        let limited = |name: &str, n: u32| {
            format!("{{name: {name}, image: '{IMAGE}', resources: {{limits: {{ephemeral-storage: '{n}'}}}}}}")
        };
        w.file("web", &format!("containers: [{}, {}]", limited("main", 100), limited("other", 1000)));
        w.host.layer_of.insert("web/main".into(), 150);
        w.run(130);
        let message = "Container main exceeded its local ephemeral storage limit \"100\". ";
        let expected: &[&str] = if one_disk { &[message] } else { &[] };
        assert_eq!(w.notices("Evicted"), expected);
    }
}

#[test]
fn e7_the_limit_of_a_pod_counts_its_init_containers_as_a_request_does() {
    let mut config = config();
    config.node.allocatable.set("ephemeral-storage", 2000);
    let mut w = node_with(config);
    let limited = |name: &str, n: u32| {
        format!("{{name: {name}, image: '{IMAGE}', resources: {{limits: {{ephemeral-storage: '{n}'}}}}}}")
    };
    let volumes = "volumes: [{name: data, emptyDir: {}}]";
    w.life("web/init", &[Life::exits(0, seconds(1))]);
    w.file(
        "web",
        &format!("initContainers: [{}], containers: [{}], {volumes}", limited("init", 1000), limited("main", 100)),
    );
    w.host.disk_of.insert("web/main".into(), 1000);
    w.run(130);
    assert_eq!(w.evicted(), [""; 0], "the init container may have written them");
    w.host.disk_of.insert("web/main".into(), 1050);
    w.run(70);
    assert_eq!(
        w.notices("Evicted"),
        ["Pod ephemeral local storage usage exceeds the total limit of containers 1000. "]
    );
}

#[test]
fn e7_a_pod_that_exceeds_the_limit_of_an_empty_dir_is_evicted() {
    let mut w = node();
    let spec = format!("{ONE}, volumes: [{{name: data, emptyDir: {{sizeLimit: '100'}}}}]");
    w.file("web", &spec);
    w.host.disk_of.insert("web/main".into(), 90);
    w.run(130);
    assert_eq!(w.evicted(), [""; 0]);
    w.host.disk_of.insert("web/main".into(), 101);
    w.run(70);
    assert_eq!(w.evicted(), ["ephemeralpodfs.limit"]);
    let message = "Usage of EmptyDir volume \"data\" exceeds the limit \"100\". ";
    assert_eq!(w.notices("Evicted"), [message]);
    assert!(w.notices("NodeHasDiskPressure").is_empty());
    w.host.disk_of.clear();
    w.until("it starts again", 30, |w| w.runs("web/main"));
}

#[test]
fn e7_a_pod_that_exceeds_its_limit_of_ephemeral_storage_is_evicted() {
    let mut config = config();
    config.node.allocatable.set("ephemeral-storage", 1000);
    let mut w = node_with(config);
    let limits = "resources: {limits: {ephemeral-storage: '100'}}";
    let volumes = "volumes: [{name: data, emptyDir: {}}]";
    w.file("web", &format!("containers: [{{name: main, image: '{IMAGE}', {limits}}}], {volumes}"));
    w.host.disk_of.insert("web/main".into(), 101);
    w.run(70);
    assert_eq!(w.notices("Evicted"), ["Pod ephemeral local storage usage exceeds the total limit of containers 100. "]);
}

#[test]
fn e1_a_calm_node_is_measured_each_minute_and_the_kernel_reports_a_lack_of_memory() {
    let mut w = node_with_reports(hard(Signal::MemoryAvailable), true);
    w.file("web", ONE);
    w.uses("web", 500);
    w.run(15);
    let before = w.host.measured;
    w.run(300);
    assert_eq!(w.host.measured - before, 5);
    w.run(5);
    let before = w.host.measured;
    w.set_policy(w.config.eviction.clone());
    w.run(1);
    assert_eq!(w.host.measured - before, 1, "a reload measures at once");
    w.host.memory = 450;
    w.step(Event::MemoryIsShort);
    w.run(1);
    assert_eq!(w.evicted(), ["memory.available"]);
}

#[test]
fn e1_without_reports_of_the_kernel_the_memory_is_measured_every_ten_seconds() {
    let mut w = node_with_limit(hard(Signal::MemoryAvailable));
    w.run(15);
    let before = w.host.measured;
    w.run(100);
    assert_eq!(w.host.measured - before, 10);
}

#[test]
fn e1_reports_cause_at_most_one_measurement_a_second() {
    let mut w = node_with_reports(hard(Signal::MemoryAvailable), true);
    w.run(15);
    let before = w.host.measured;
    for _ in 0..50 {
        w.step(Event::MemoryIsShort);
        w.run_ms(100);
    }
    assert!((4..=6).contains(&(w.host.measured - before)), "{}", w.host.measured - before);
}

#[test]
fn e1_a_disk_that_cannot_be_measured_does_not_hide_a_lack_of_memory() {
    let signals = [Signal::MemoryAvailable, Signal::NodefsAvailable, Signal::ImagefsAvailable];
    let mut w = node_with_limit(policy(&signals.map(|signal| threshold(signal, ThresholdKind::Hard))));
    w.file("web", ONE);
    w.uses("web", 500);
    w.run(2);
    for _ in 0..20 {
        w.fault("ImageFs", Fault::Error("disk on fire".into()));
    }
    w.host.memory = 450;
    w.run(12);
    assert_eq!(w.evicted(), ["memory.available"]);
}

#[test]
fn e2_thresholds_that_a_reload_removes_end_the_pressure() {
    let mut w = node_with_limit(hard(Signal::MemoryAvailable));
    w.file("web", ONE);
    w.uses("web", 500);
    w.run(2);
    w.host.memory = 450;
    w.until("it is evicted", 30, |w| w.is_evicted("web"));
    w.run(2);
    w.set_policy(EvictionPolicy::default());
    w.until("it runs again", 60, |w| w.runs("web/main"));
}

#[test]
fn e4_a_pod_whose_room_is_taken_meanwhile_waits_for_room_after_the_pressure() {
    let mut w = node_with_limit(hard(Signal::MemoryAvailable));
    w.file("web", &requesting("5Gi", ""));
    w.uses("web", 6 << 30);
    w.run(2);
    w.host.memory = 950;
    w.until("it is evicted", 30, |w| w.is_evicted("web"));
    w.host.memory = 0;
    w.uses("web", 0);
    w.file("other", &requesting("5Gi", ""));
    w.run(2);
    assert!(w.runs("other/main"));
    w.run(90);
    assert!(!w.runs("web/main"));
}
