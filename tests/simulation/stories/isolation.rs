//! Isolation: pods whose calls hang delay no other pod, and the number of parallel calls to the runtime is limited.

use crate::story::*;
use crate::world::{Fault, World};

/// Adds the pods `slow0`, `slow1` ... whose calls of this kind hang.
fn slow_pods(w: &mut World, pods: usize, call: &str) {
    let mut files = w.files.clone();
    for i in 0..pods {
        let name = format!("slow{i}");
        w.hang(&format!("{call} {name}"));
        let path = format!("/m/{name}.yaml");
        files.insert(path.clone(), pod(&path, &name, "", ONE));
    }
    w.set_files(files);
}

fn room_for(pods: u64) -> World {
    let mut config = crate::world::config();
    config.node.allocatable.set("pods", pods);
    node_with(config)
}

#[test]
fn w9_a_restart_does_not_wait_for_sandboxes_that_hang() {
    let mut w = node();
    w.file("web", ONE);
    w.starts_within(3, "web");
    slow_pods(&mut w, 4, "RunSandbox");
    w.run(2);
    assert_eq!(w.times("RunSandbox slow", 0).len(), 4);
    // The next list shows its end.
    assert!(w.restarts_within(3, "web/main") < 1500);
    w.exit_of("web/main", 1);
    // W10: the second restart waits 10 s and no longer.
    let ms = w.until("the second restart", 20, |w| w.container_status("web", "main").restart_count == 2);
    assert!((10_000..11_500).contains(&ms), "{ms}");
}

#[test]
fn w9_a_new_pod_starts_within_seconds_though_others_hang() {
    for call in ["RunSandbox", "CreateContainer", "StartContainer"] {
        let mut w = node();
        slow_pods(&mut w, 4, call);
        w.run(1);
        w.file("web", ONE);
        let ms = w.starts_within(6, "web");
        assert!(ms > 1000, "{call}: the limit holds for the first seconds, {ms}");
        w.file("other", ONE);
        assert!(w.starts_within(2, "other") < 1000, "{call}: the slots are free again");
    }
}

#[test]
fn w9_a_pod_that_hung_before_takes_less_of_the_others_time() {
    // Each pod has hung once and is being retried (after the deadline of 240 s and the 10 to 15 s of W9).
    for at in [270, 276, 282, 288] {
        let mut w = node();
        slow_pods(&mut w, 40, "RunSandbox");
        w.run(at);
        assert!(w.times("RunSandbox slow", 0).len() > 50);
        w.file("web", ONE);
        w.starts_within(2, "web");
    }
}

#[test]
fn w9_the_calls_of_a_runtime_that_never_answers_are_bounded() {
    let mut w = room_for(300);
    slow_pods(&mut w, 200, "RunSandbox");
    let begin = w.clock.now;
    w.run(239);
    assert_eq!(w.times("RunSandbox", begin).len(), 4 * 16, "before the first deadline");
    // A kill needs no slot, and releases the pod's slot at once.
    let files =
        w.files.iter().filter(|(path, _)| !path.contains("slow")).map(|(k, v)| (k.clone(), v.clone())).collect();
    w.set_files(files);
    w.run(3);
    w.file("web", ONE);
    w.starts_within(1, "web");
}

#[test]
fn w9_start_slots_are_first_come_first_served() {
    let mut config = crate::world::config();
    config.parallel_sandboxes = 1;
    config.parallel_containers = 1;
    let mut w = node_with(config);
    let names: Vec<String> = [5, 2, 8, 1, 9, 0, 7, 3, 6, 4].iter().map(|n| format!("p{n}")).collect();
    for name in &names {
        w.file(name, ONE);
        w.run_ms(5);
    }
    w.run(10);
    for call in ["RunSandbox", "CreateContainer", "StartContainer"] {
        let said = w.observed.calls.iter().map(|(_, text)| text.as_str()).filter(|text| text.starts_with(call));
        let order: Vec<String> = said.filter_map(|t| t.split([' ', '/', '#']).nth(1).map(str::to_owned)).collect();
        assert_eq!(order, names, "{call}");
    }
    assert_eq!(w.runtime.containers.values().filter(|c| c.runs()).count(), 10);
}

#[test]
fn w9_pulls_are_first_come_first_served_and_a_hung_one_releases_its_slot() {
    let mut w = node();
    w.hang("PullImage hung:1");
    w.file("a", "containers: [{name: main, image: 'hung:1'}]");
    w.run(1);
    let begin = w.clock.now;
    for name in ["d", "c", "b"] {
        w.file(name, &format!("containers: [{{name: main, image: '{name}:1'}}]"));
        w.run_ms(50);
    }
    w.run(290);
    assert_eq!(w.times("PullImage", begin).len(), 0, "one at a time");
    for name in ["d", "c", "b"] {
        w.starts_within(20, name);
    }
    let pulls: Vec<String> =
        w.observed.calls.iter().map(|(_, t)| t.clone()).filter(|t| t.starts_with("PullImage")).collect();
    assert_eq!(pulls, ["PullImage hung:1", "PullImage d:1", "PullImage c:1", "PullImage b:1"]);
}

#[test]
fn p3_a_status_read_that_hangs_delays_no_other_pod() {
    let mut config = crate::world::config();
    config.parallel_reads = 2;
    let mut w = node_with(config);
    for name in ["a", "b", "web"] {
        w.file(name, ONE);
        w.starts_within(3, name);
    }
    for name in ["a", "b"] {
        let uid = w.engine.pods().iter().find(|v| &*v.pod.name.name == name).unwrap().pod.uid.clone();
        w.hang(&format!("ReadPod {uid}"));
        w.exit_of(&format!("{name}/main"), 1);
    }
    w.run(2);
    w.restarts_within(6, "web/main");
    w.file("new", ONE);
    w.starts_within(6, "new");
    let reads = w.observed.reads;
    w.run(60);
    assert!(w.observed.reads - reads < 20, "{} reads in a minute", w.observed.reads - reads);
}

#[test]
fn p3_a_failed_read_releases_its_slot_immediately() {
    let mut config = crate::world::config();
    config.parallel_reads = 1;
    let mut w = node_with(config);
    for i in 0..5 {
        w.file(&format!("p{i}"), ONE);
        w.starts_within(3, &format!("p{i}"));
    }
    for i in 0..5 {
        w.fault("ReadPod", Fault::Error("busy".into()));
        w.exit_of(&format!("p{i}/main"), 1);
    }
    let ms = w.until("all run again", 10, |w| w.runtime.containers.values().filter(|c| c.runs()).count() == 5);
    assert!(ms < 3000, "{ms}");
}

#[test]
fn limits_can_be_changed_while_pods_wait() {
    let mut w = room_for(100);
    slow_pods(&mut w, 40, "RunSandbox");
    w.run(1);
    assert_eq!(w.times("RunSandbox", 0).len(), 4);
    w.config.parallel_sandboxes = 30;
    w.step(wherry::engine::event::Event::Configure(Box::new(w.config.clone())));
    w.run(1);
    assert_eq!(w.times("RunSandbox", 0).len(), 30);
}
