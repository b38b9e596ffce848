//! Sandboxes that die (W13).

use crate::runtime::Life;
use crate::story::*;
use crate::world::{Fault, World};
use wherry::api::user_namespace::IdRange;

fn up(spec: &str) -> World {
    let mut w = node();
    w.life("web/main", &[Life::FOREVER]);
    w.file("web", spec);
    w.run(15);
    w.take_calls();
    w
}

fn kill_sandbox(w: &mut World) {
    let id = w.sandbox("web");
    w.kill_sandbox(&id);
}

#[test]
fn w13_the_surviving_containers_of_a_dead_sandbox_are_killed_before_its_replacement() {
    let mut w = up(ONE);
    kill_sandbox(&mut w);
    w.run(3);
    let said = w.take_calls();
    assert_eq!(
        said[..5],
        [
            "StopContainer web/main#0 30000ms",
            "StopSandbox web#0",
            "RunSandbox web#1",
            "CreateContainer web/main#1",
            "StartContainer web/main#1",
        ]
    );
    assert_eq!(w.shown("web"), "Running main#1:running");
    assert_eq!(w.notices("SandboxChanged"), ["Pod sandbox changed, it will be killed and re-created."]);
    let status = w.status("web");
    assert_eq!(status.pod_ip.as_deref(), Some(w.runtime.sandboxes[&w.sandbox("web")].ip.as_str()));
}

#[test]
fn w13_a_sandbox_with_the_network_of_an_earlier_version_is_replaced() {
    let mut w = node();
    w.file_with_uid("web", "own-uid", &format!("hostNetwork: true, {ONE}"));
    w.run(5);
    let old = w.sandbox("web");
    w.kill_engine();
    w.disk.records.remove("pods/own-uid");
    w.file_with_uid("web", "own-uid", ONE);
    w.start();
    w.run(10);
    assert!(w.runs("web/main"));
    assert_ne!(w.sandbox("web"), old);
    assert!(!w.runtime.sandboxes.get(&old).is_some_and(|s| s.ready));
    w.assert_well();
}

#[test]
fn w8_what_runs_under_the_former_name_of_a_pod_ends_before_another_pod_takes_that_name() {
    let mut w = node();
    w.file_with_uid("web", "own-uid", ONE);
    w.run(5);
    let old = w.sandbox("web");
    w.kill_engine();
    // The pod was renamed under its UID, its name is another pod's, and its record is lost.
    w.disk.records.remove("pods/own-uid");
    w.file("web", ONE);
    w.file_with_uid("renamed", "own-uid", ONE);
    w.start();
    w.run(10);
    assert!(w.runs("web/main") && w.runs("renamed/main"));
    assert!(!w.runtime.sandboxes.get(&old).is_some_and(|s| s.ready));
    assert_eq!(w.notices("OrphanedPod").len(), 1);
    w.assert_well();
}

#[test]
fn w13_never_kills_the_rest_and_ends() {
    let mut w = up(NEVER);
    kill_sandbox(&mut w);
    w.run(3);
    assert_eq!(w.shown("web"), "Failed main#0:terminated Error 143");
    assert!(!w.take_calls().iter().any(|s| s.starts_with("RunSandbox")));
    w.assert_well();
}

#[test]
fn w13_under_on_failure_a_succeeded_container_does_not_run_again() {
    let mut w = node();
    w.life("web/one", &[Life::exits(0, std::time::Duration::from_secs(1))]);
    w.file("web", &format!("restartPolicy: OnFailure, {TWO}"));
    w.run(15);
    kill_sandbox(&mut w);
    w.run(3);
    assert_eq!(w.shown("web"), "Running one#0:terminated Completed 0 two#1:running");
}

#[test]
fn w13_a_sandbox_that_dies_again_and_again_makes_no_storm() {
    let mut w = up(ONE);
    let begin = w.clock.now;
    for _ in 0..1200 {
        w.run_ms(100);
        let id = w.sandbox("web");
        w.kill_sandbox(&id);
    }
    let runs = w.times("RunSandbox", begin).len();
    assert!((8..=13).contains(&runs), "{runs} in 120 s");
    w.run(20);
    assert!(w.runs("web/main"));
    assert!(w.runtime.sandboxes.len() <= 2, "old sandboxes go");
}

#[test]
fn w13_a_dead_sandbox_that_cannot_be_stopped_is_tried_again() {
    let mut w = up(ONE);
    for _ in 0..3 {
        w.fault("StopSandbox", Fault::Error("cni is gone".into()));
    }
    let begin = w.clock.now;
    kill_sandbox(&mut w);
    w.run(60);
    let tries = w.times("StopSandbox", begin);
    assert_eq!(tries.len(), 4, "{tries:?}");
    assert!(w.runs("web/main"));
}

#[test]
fn p4_the_address_survives_the_sandbox() {
    let mut w = node();
    w.life("job/main", &[Life::exits(0, std::time::Duration::from_secs(2))]);
    w.file("job", NEVER);
    w.run(2);
    let ip = w.status("job").pod_ip;
    assert!(ip.is_some());
    w.run(3);
    assert_eq!(w.status("job").phase.as_deref(), Some("Succeeded"));
    assert_eq!(w.status("job").pod_ip, ip);
}

#[test]
fn p4_a_new_sandbox_without_an_address_does_not_show_that_of_the_dead_one() {
    let mut w = up(ONE);
    let old = w.status("web").pod_ip;
    assert!(old.is_some());
    // The answer is lost, so that only the status read contains the address.
    w.fault("RunSandbox web#1", Fault::Lost);
    kill_sandbox(&mut w);
    w.until("the old sandbox is dead", 3, |w| w.condition("web", "PodReadyToStartContainers").0 == "False");
    assert_eq!(w.status("web").pod_ip, old, "an address outlives its sandbox");
    w.until("a new sandbox is ready", 20, |w| !w.sandbox("web").is_empty());
    let id = w.sandbox("web");
    w.runtime.sandboxes.get_mut(&id).unwrap().ip.clear();
    w.run(15);
    assert!(w.runs("web/main"));
    let status = w.status("web");
    assert_eq!((status.pod_ip, status.pod_ips), (None, None));
}

#[test]
fn a_pod_whose_sandbox_can_never_be_made_costs_little_and_can_be_removed() {
    let mut w = node();
    for _ in 0..1000 {
        w.fault("RunSandbox", Fault::Error("no such runtime handler".into()));
    }
    let begin = w.clock.now;
    w.file("web", ONE);
    w.run(600);
    let tries = w.times("RunSandbox", begin).len();
    assert!((40..=61).contains(&tries), "{tries}");
    assert_eq!(w.shown("web"), "Pending main#0:waiting ContainerCreating");
    w.remove("web");
    w.run(2);
    w.assert_clean();
}

#[test]
fn w13_a_pod_that_never_restarts_gets_no_second_sandbox_once_a_container_existed() {
    let mut w = node();
    w.runtime.unknown_images = ["other:1".to_string()].into();
    w.file(
        "web",
        &format!("restartPolicy: Never, {TWO}").replace("two, image: 'busybox:1.35'", "two, image: 'other:1'"),
    );
    w.run(5);
    assert!(w.runs("web/one") && !w.runs("web/two"));
    w.take_calls();
    let sandbox = w.sandbox("web");
    w.kill_sandbox(&sandbox);
    w.runtime.unknown_images.clear();
    w.run(120);
    assert_eq!(w.take_calls().iter().filter(|s| s.starts_with("RunSandbox")).count(), 0);
    assert!(w.shown("web").starts_with("Failed"), "{}", w.shown("web"));
}

const OWN_USERS: &str =
    "hostUsers: false, terminationGracePeriodSeconds: 1, containers: [{name: main, image: 'busybox:1.35'}]";

/// The range of ids of each ready sandbox, by pod.
fn ranges(w: &World) -> Vec<(String, Option<IdRange>)> {
    let ready = w.runtime.sandboxes.values().filter(|s| s.ready);
    let mut ranges: Vec<_> = ready.map(|s| (s.name.name.to_string(), s.user_namespace)).collect();
    ranges.sort();
    ranges
}

#[test]
fn w28_each_pod_without_host_users_has_ids_of_its_own_also_after_a_restart() {
    let mut w = node();
    w.file("a", OWN_USERS);
    w.file("plain", ONE);
    w.run(3);
    let before = ranges(&w);
    assert!(matches!(before[..], [(_, Some(_)), (_, None)]), "{before:?}");
    // Another pod prefers the range of `a`, which only the list shows after a restart.
    w.restart_engine();
    for s in w.runtime.sandboxes.values_mut().filter(|s| s.user_namespace.is_some()) {
        s.user_namespace = Some(IdRange::preferred(&"uid-b".into()));
    }
    w.run(3);
    w.file_with_uid("b", "uid-b", OWN_USERS);
    w.run(5);
    let now = ranges(&w);
    assert!(w.runs("b/main") && now[0].1 != now[1].1, "{now:?}");
    // A container that starts again is in the namespace of its sandbox.
    w.exit_of("a/main", 1);
    w.run(5);
    assert!(w.runs("a/main"), "{}", w.trace());
    w.assert_well();
}

#[test]
fn w28_a_new_sandbox_of_a_pod_has_the_same_ids() {
    let mut w = node();
    w.file("a", OWN_USERS);
    w.run(3);
    let before = ranges(&w);
    let id = w.sandbox("a");
    w.kill_sandbox(&id);
    w.run(30);
    assert_ne!(w.sandbox("a"), id);
    assert_eq!((ranges(&w), w.runs("a/main")), (before, true), "{}", w.trace());
}

#[test]
fn w28_a_pod_without_host_users_waits_for_a_runtime_with_user_namespaces() {
    let mut w = node();
    w.runtime.features.handlers.clear();
    w.runtime_down();
    w.runtime_up();
    w.file("a", OWN_USERS);
    w.run(30);
    let notices = w.notices("FailedCreatePodSandBox");
    assert!(notices[0].contains("hostUsers=false is not supported in this node"), "{notices:?}");
    assert_eq!(ranges(&w), []);
}

#[test]
fn w28_the_ids_of_a_removed_pod_are_free_again() {
    let mut w = node();
    let preferred = IdRange::preferred(&"uid-a".into());
    let uids = (0..).map(|n| format!("uid-{n}"));
    let same = uids.into_iter().find(|uid| IdRange::preferred(&uid.as_str().into()) == preferred).unwrap_or_default();
    w.file_with_uid("a", "uid-a", OWN_USERS);
    w.run(5);
    w.remove("a");
    w.run(60);
    w.file_with_uid("b", &same, OWN_USERS);
    w.run(5);
    assert_eq!(ranges(&w), [("b".to_owned(), Some(preferred))]);
}
