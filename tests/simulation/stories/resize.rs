//! The in-place resize of running pods (R).

use crate::runtime::Life;
use crate::story::*;
use crate::world::{Fault, World};
use std::time::Duration;
use wherry::api::names::Uid;
use wherry::engine::event::Event;
use wherry::engine::pod::kill::{Kill, KillId, TerminationSource};

/// A pod with these resources of its containers; `more` follows the resources.
fn with(resources: &[&str], more: &str) -> String {
    let one = |(i, r): (usize, &&str)| format!("{{name: c{i}, image: 'busybox:1.35', resources: {r}{more}}}");
    format!("containers: [{}]", resources.iter().enumerate().map(one).collect::<Vec<_>>().join(", "))
}

fn cpu(milli: u32) -> String {
    with(&[&format!("{{requests: {{cpu: {milli}m}}}}")], "")
}

/// The amounts of the container in the runtime: requests, limits.
fn amounts(w: &World, of: &str) -> String {
    let id = w.running(of);
    let resources = w.runtime.containers.get(&id).and_then(|c| c.resources.clone()).unwrap_or_default();
    shown(&resources)
}

fn shown(resources: &wherry_engine::api::k8s::ResourceRequirements) -> String {
    let list = |l: &Option<std::collections::BTreeMap<String, wherry_engine::api::k8s::Quantity>>| {
        let all = l.iter().flatten().map(|(name, q)| format!("{name}={}", q.0));
        all.collect::<Vec<_>>().join(",")
    };
    format!("{}/{}", list(&resources.requests), list(&resources.limits))
}

fn changing(w: &mut World) -> Vec<String> {
    let reads = ["Status", "List", "ReadPod", "Usage", "ImageFs"];
    w.take_calls().into_iter().filter(|call| !reads.iter().any(|read| call.starts_with(read))).collect()
}

/// The node has this many millicores for pods.
fn node_of(milli: u64) -> World {
    let mut config = crate::world::config();
    config.node.allocatable.set("cpu", milli);
    node_with(config)
}

fn running(spec: &str) -> World {
    let mut w = node();
    w.file("web", spec);
    w.run(5);
    assert_eq!(w.status("web").phase.as_deref(), Some("Running"));
    w.take_calls();
    w
}

#[test]
fn r1_a_change_of_cpu_and_memory_keeps_the_pod_and_its_containers() {
    let limited = |cpu: &str, memory: &str| {
        format!("{{requests: {{cpu: 100m, memory: 10Mi}}, limits: {{cpu: {cpu}, memory: {memory}}}}}")
    };
    let mut w = running(&with(&[&limited("200m", "20Mi"), &limited("200m", "20Mi")], ""));
    let (uid, ids) = (w.shown_uid("web"), [w.running("web/c0"), w.running("web/c1")]);
    w.file("web", &with(&[&limited("300m", "30Mi"), &limited("200m", "20Mi")], ""));
    w.run(5);
    assert_eq!(changing(&mut w), ["UpdateContainer web/c0#0"]);
    assert_eq!((w.shown_uid("web"), [w.running("web/c0"), w.running("web/c1")]), (uid, ids));
    assert_eq!(amounts(&w, "web/c0"), "cpu=100m,memory=10Mi/cpu=300m,memory=30Mi");
    let status = w.container_status("web", "c0");
    assert_eq!(shown(&status.resources.unwrap()), "cpu=100m,memory=10Mi/cpu=300m,memory=30Mi");
    assert_eq!(w.condition("web", "PodResizeInProgress").0, "");
    assert_eq!(w.notices("ResizeStarted").len(), 1);
    assert_eq!(w.notices("ResizeCompleted").len(), 1);
}

#[test]
fn r3_the_cgroup_of_the_pod_is_never_smaller_than_its_containers() {
    let mut w = running(&cpu(100));
    for (milli, order) in
        [(400, ["cgroup 400m", "container", "cgroup 400m"]), (50, ["cgroup 400m", "container", "cgroup 50m"])]
    {
        w.observed.resizes.clear();
        w.file("web", &cpu(milli));
        w.run(5);
        assert_eq!(w.observed.resizes, order, "to {milli}m");
    }
}

#[test]
fn r1_any_other_change_replaces_the_pod() {
    let mut w = running(&cpu(100));
    let uid = w.shown_uid("web");
    w.file("web", &cpu(200).replace("busybox:1.35", "busybox:1.36"));
    w.runtime.images.insert("busybox:1.36".into());
    w.run(10);
    assert_ne!(w.shown_uid("web"), uid);
    assert!(w.runs("web/c0"));
}

#[test]
fn r1_a_change_of_the_class_replaces_the_pod() {
    let mut w = running(&with(&["{requests: {cpu: 100m, memory: 1Mi}, limits: {memory: 2Mi}}"], ""));
    let uid = w.shown_uid("web");
    w.file("web", &with(&["{limits: {cpu: 100m, memory: 2Mi}}"], ""));
    w.run(10);
    assert_ne!(w.shown_uid("web"), uid);
    assert_eq!(w.status("web").qos_class.as_deref(), Some("Guaranteed"));
}

#[test]
fn r1_a_resized_pod_that_is_edited_is_replaced() {
    let mut w = running(&cpu(100));
    let uid = w.shown_uid("web");
    w.file("web", &cpu(200));
    w.run(5);
    assert_eq!(w.shown_uid("web"), uid);
    w.file("web", &format!("hostNetwork: true, {}", cpu(200)));
    w.run(10);
    assert_ne!(w.shown_uid("web"), uid);
    w.file("web", &cpu(100));
    w.run(10);
    assert_eq!(w.shown_uid("web"), uid, "the UID of the first version");
}

#[test]
fn r1_a_finished_pod_that_was_resized_does_not_run_again() {
    let mut w = node();
    let never = |milli| format!("restartPolicy: Never, {}", cpu(milli));
    w.life("web/c0", &[Life::exits(0, Duration::from_secs(20))]);
    w.file("web", &never(100));
    w.run(5);
    w.file("web", &never(200));
    w.run(30);
    assert_eq!(w.shown("web"), "Succeeded c0#0:terminated Completed 0");
    let uid = w.shown_uid("web");
    w.file("other", ONE);
    w.run(5);
    w.kill_engine();
    w.start();
    w.run(5);
    assert_eq!((w.shown("web"), w.shown_uid("web")), ("Succeeded c0#0:terminated Completed 0".into(), uid));
}

#[test]
fn r3_a_policy_restarts_the_container_once() {
    let policy = ", resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}]";
    let of = |milli: u32| with(&[&format!("{{requests: {{cpu: {milli}m}}}}")], policy);
    let mut w = running(&of(100));
    let uid = w.shown_uid("web");
    w.file("web", &of(200));
    w.run(30);
    let calls = changing(&mut w);
    assert_eq!(calls.iter().filter(|c| c.starts_with("StopContainer")).count(), 1, "{calls:?}");
    assert_eq!((w.shown("web"), w.shown_uid("web")), ("Running c0#1:running".into(), uid));
    assert_eq!(amounts(&w, "web/c0"), "cpu=200m/");
    assert_eq!(w.notices("Killing"), ["Container c0 resize requires restart"]);
    assert_eq!(w.condition("web", "PodResizeInProgress").0, "");
}

#[test]
fn r2_a_resize_without_room_waits_until_another_pod_ends() {
    let mut w = node_of(500);
    w.file("web", &cpu(200));
    w.file("other", &cpu(200).replace("web", "other"));
    w.run(5);
    w.file("web", &cpu(400));
    w.run(5);
    let (status, reason, message) = w.condition("web", "PodResizePending");
    assert_eq!((&*status, &*reason), ("True", "Deferred"));
    assert_eq!(message, "Node didn't have enough resource: cpu, requested: 400, used: 200, capacity: 500");
    assert_eq!(amounts(&w, "web/c0"), "cpu=200m/");
    assert!(w.runs("other/c0"), "a resize preempts no pod");
    w.remove("other");
    w.run(10);
    assert_eq!(w.condition("web", "PodResizePending").0, "");
    assert_eq!(amounts(&w, "web/c0"), "cpu=400m/");
    assert_eq!(w.notices("ResizeDeferred").len(), 1);
}

#[test]
fn r2_a_resize_that_never_fits_is_infeasible_and_can_be_taken_back() {
    let mut w = node_of(500);
    w.file("web", &cpu(200));
    w.run(5);
    w.file("web", &cpu(600));
    w.run(5);
    let (_, reason, message) = w.condition("web", "PodResizePending");
    assert_eq!(reason, "Infeasible");
    assert_eq!(message, "Node didn't have enough capacity: cpu, requested: 600, capacity: 500");
    assert_eq!(w.notices("ResizeInfeasible").len(), 1);
    w.file("web", &cpu(200));
    w.run(5);
    assert_eq!(w.condition("web", "PodResizePending").0, "");
    assert_eq!(w.notices("ResizeStarted").len(), 0);
}

#[test]
fn r2_room_that_one_resize_takes_is_not_given_twice() {
    let mut w = node_of(500);
    w.file("a", &cpu(100));
    w.file("b", &cpu(100));
    w.run(5);
    let mut files = w.files.clone();
    for name in ["a", "b"] {
        let path = format!("/m/{name}.yaml");
        files.insert(path.clone(), pod(&path, name, "", &cpu(300)));
    }
    w.set_files(files);
    w.run(5);
    let deferred = ["a", "b"].map(|name| w.condition(name, "PodResizePending").1);
    assert_eq!(deferred, ["", "Deferred"]);
}

#[test]
fn r3_a_kill_between_two_containers_loses_nothing() {
    let of = |milli: u32| format!("{{requests: {{cpu: {milli}m}}}}");
    for after in 1..40 {
        let mut w = running(&with(&[&of(100), &of(100)], ""));
        let (uid, ids) = (w.shown_uid("web"), [w.running("web/c0"), w.running("web/c1")]);
        w.file("web", &with(&[&of(200), &of(200)], ""));
        w.run_ms(after);
        w.kill_engine();
        w.start();
        w.run(20);
        assert_eq!(["web/c0", "web/c1"].map(|of| amounts(&w, of)), ["cpu=200m/", "cpu=200m/"], "after {after} ms");
        assert_eq!((w.shown_uid("web"), [w.running("web/c0"), w.running("web/c1")]), (uid, ids), "after {after} ms");
        assert_eq!(w.condition("web", "PodResizeInProgress").0, "", "after {after} ms");
    }
}

#[test]
fn r4_an_error_of_the_runtime_is_shown_and_retried() {
    let mut w = running(&cpu(100));
    w.fault("UpdateContainer", Fault::Error("cgroup is busy".into()));
    w.file("web", &cpu(200));
    w.run_ms(300);
    let (_, reason, message) = w.condition("web", "PodResizeInProgress");
    assert_eq!((&*reason, &*message), ("Error", "cgroup is busy"));
    assert_eq!(shown(&w.container_status("web", "c0").resources.unwrap()), "cpu=100m/");
    w.run(5);
    assert_eq!(amounts(&w, "web/c0"), "cpu=200m/");
    assert_eq!(w.condition("web", "PodResizeInProgress").0, "");
    assert_eq!(w.notices("ResizeError").len(), 1);
}

#[test]
fn r4_a_memory_limit_below_the_use_is_not_set() {
    let of = |memory: &str| with(&[&format!("{{requests: {{memory: 1Mi}}, limits: {{memory: {memory}}}}}")], "");
    let mut w = running(&of("64Mi"));
    w.host.memory_of.insert("web/c0".into(), 40 << 20);
    w.file("web", &of("32Mi"));
    w.run(5);
    let (_, reason, message) = w.condition("web", "PodResizeInProgress");
    assert_eq!(reason, "Error");
    let wanted =
        "attempting to set the memory limit of container c0 (33554432 bytes) below its current usage (41943040 bytes)";
    assert_eq!(message, wanted);
    assert_eq!(amounts(&w, "web/c0"), "memory=1Mi/memory=64Mi");
    w.host.memory_of.insert("web/c0".into(), 10 << 20);
    w.run(30);
    assert_eq!(amounts(&w, "web/c0"), "memory=1Mi/memory=32Mi");
}

#[test]
fn r3_a_container_that_starts_during_a_resize_gets_the_new_resources() {
    let of = |milli: u32| format!("initContainers: [{{name: i, image: 'busybox:1.35'}}], {}", cpu(milli));
    let mut w = node();
    w.life("web/i", &[Life::exits(0, Duration::from_secs(10))]);
    w.file("web", &of(100));
    w.run(5);
    w.file("web", &of(200));
    w.run(20);
    assert_eq!(amounts(&w, "web/c0"), "cpu=200m/");
    assert_eq!(w.container_status("web", "i").restart_count, 0);
}

#[test]
fn r3_a_container_whose_creation_is_in_flight_is_resized_too() {
    for after in 0..200 {
        let mut w = node();
        w.fault("CreateContainer", Fault::Slow(Duration::from_millis(100)));
        w.file("web", &cpu(100));
        w.run_ms(after);
        w.file("web", &cpu(200));
        w.run(20);
        assert_eq!(amounts(&w, "web/c0"), "cpu=200m/", "after {after} ms");
    }
}

#[test]
fn r1_a_sidecar_is_resized_and_an_init_container_is_not() {
    let of = |side: u32, init: u32| {
        let one = |name: &str, milli: u32, policy: &str| {
            format!("{{name: {name}, image: 'busybox:1.35', resources: {{requests: {{cpu: {milli}m}}}}{policy}}}")
        };
        let (side, init) = (one("side", side, ", restartPolicy: Always"), one("i", init, ""));
        format!("initContainers: [{side}, {init}], {ONE}")
    };
    let mut w = node();
    w.life("web/i", &[Life::exits(0, Duration::from_secs(1))]);
    w.file("web", &of(100, 100));
    w.run(10);
    let uid = w.shown_uid("web");
    w.file("web", &of(200, 100));
    w.run(5);
    assert_eq!((w.shown_uid("web"), amounts(&w, "web/side")), (uid.clone(), "cpu=200m/".into()));
    w.file("web", &of(200, 200));
    w.run(10);
    assert_ne!(w.shown_uid("web"), uid);
}

#[test]
fn r3_a_pod_with_a_fixed_uid_is_resized() {
    let mut w = node();
    w.file_with_uid("web", "u1", &cpu(100));
    w.run(5);
    let id = w.running("web/c0");
    w.file_with_uid("web", "u1", &cpu(200));
    w.run(5);
    assert_eq!((w.running("web/c0"), amounts(&w, "web/c0")), (id, "cpu=200m/".into()));
}

#[test]
fn r2_the_weight_of_the_class_and_admission_count_the_new_amounts() {
    let mut w = node_of(500);
    w.file("web", &cpu(100));
    w.run(5);
    w.file("web", &cpu(400));
    w.run(5);
    w.file("other", &cpu(200));
    w.run(5);
    assert_eq!(w.status("other").reason.as_deref(), Some("OutOfcpu"));
}

#[test]
fn r1_a_pod_that_is_killed_before_the_decision_starts_again_with_the_new_resources() {
    let mut w = node_of(500);
    w.file("web", &cpu(200));
    w.file("other", &cpu(200));
    w.run(5);
    w.file("web", &cpu(400));
    w.run(2);
    assert_eq!(w.condition("web", "PodResizePending").1, "Deferred");
    let uid = Uid::from(w.shown_uid("web"));
    w.remove("other");
    let kill = Kill { by: TerminationSource::Drain, message: None, grace: None };
    w.step(Event::Kill { id: KillId::Event(1), uid, kill });
    w.run(10);
    assert!(!w.runs("web/c0"));
    w.release(TerminationSource::Drain);
    w.run(10);
    assert_eq!(amounts(&w, "web/c0"), "cpu=400m/");
}

#[test]
fn r2_only_amounts_that_grow_have_to_fit() {
    let mut w = node_of(500);
    w.file("web", &cpu(400));
    w.run(5);
    w.config.node.allocatable.set("cpu", 200);
    w.step(Event::Configure(Box::new(w.config.clone())));
    w.file("web", &cpu(300));
    w.run(5);
    assert_eq!(amounts(&w, "web/c0"), "cpu=300m/");
}

#[test]
fn r3_the_volumes_of_a_resized_pod_get_the_new_amounts() {
    let volume = "volumes: [{name: v, downwardAPI: {items: [{path: cpu, resourceFieldRef: \
                  {containerName: c0, resource: requests.cpu}}]}}]";
    let mut w = running(&format!("{volume}, {}", cpu(100)));
    w.file("web", &format!("{volume}, {}", cpu(200)));
    w.run(5);
    let mut calls = changing(&mut w);
    calls.sort();
    assert_eq!(calls, ["Mount web", "UpdateContainer web/c0#0"]);
}

#[test]
fn r5_a_change_of_labels_keeps_the_pod_also_after_a_restart() {
    let labelled = |labels: &str| pod("/m/web.yaml", &format!("web, labels: {{{labels}}}"), "", &cpu(100));
    let label = |w: &World| {
        let view = w.engine.pods().into_iter().next().expect("a pod");
        view.pod.object.metadata.labels.clone().and_then(|labels| labels.get("a").cloned())
    };
    let mut w = running(&cpu(100));
    let (uid, id) = (w.shown_uid("web"), w.running("web/c0"));
    for wanted in ["b", "c"] {
        w.document("/m/web.yaml", labelled(&format!("a: {wanted}")));
        w.run(5);
        assert_eq!(label(&w).as_deref(), Some(wanted));
    }
    w.kill_engine();
    w.start();
    w.run(5);
    assert_eq!((label(&w).as_deref(), w.shown_uid("web"), w.running("web/c0")), (Some("c"), uid.clone(), id.clone()));
    // The labels and the amounts together.
    let both = pod("/m/web.yaml", "web, labels: {a: d}", "", &cpu(200));
    w.document("/m/web.yaml", both);
    w.run(5);
    assert_eq!((label(&w).as_deref(), amounts(&w, "web/c0").as_str()), (Some("d"), "cpu=200m/"));
    assert_eq!((w.shown_uid("web"), w.running("web/c0")), (uid, id));
    assert_eq!(w.notices("ResizeStarted").len(), 1);
    w.remove("web");
    w.run(40);
    w.assert_clean();
}
