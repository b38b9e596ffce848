//! Volumes: set up before the pod's first container, removed before its cgroup (W2).

use crate::story::*;
use crate::world::handlers::Answers;
use crate::world::{Fault, S, World};
use std::time::Duration;
use wherry::api::reason::Reason;

const WITH: &str = "volumes: [{name: v, emptyDir: {}}], containers: [{name: main, image: 'busybox:1.35'}]";

fn order(w: &mut World) -> Vec<String> {
    let mut said = w.take_calls();
    said.retain(|s| !s.contains("Create") && !s.starts_with("Remove"));
    said
}

#[test]
fn w2_volumes_are_mounted_before_the_sandbox_and_removed_before_the_cgroup() {
    let mut w = node();
    w.file("web", WITH);
    w.run(3);
    assert_eq!(order(&mut w), ["Mount web", "RunSandbox web#0", "StartContainer web/main#0"]);
    w.exit_of("web/main", 1);
    w.run(3);
    assert_eq!(order(&mut w), ["StartContainer web/main#1"], "once is enough");
    w.remove("web");
    w.run(5);
    assert_eq!(order(&mut w), ["StopContainer web/main#1 30000ms", "StopSandbox web#0", "Unmount"]);
    assert!(w.volumes.mounted.is_empty());
    w.assert_clean();
}

#[test]
fn w9_a_failed_mount_is_retried_and_no_sandbox_is_created_meanwhile() {
    let mut w = node();
    w.volumes.mount_error = Some("MountVolume.SetUp failed for volume \"v\" : no such device".into());
    w.file("web", WITH);
    let begin = w.clock.now;
    w.run(40);
    assert_eq!(order(&mut w), Vec::<String>::new());
    assert_eq!(w.shown("web"), "Pending main#0:waiting ContainerCreating");
    let reported: Vec<u64> = w
        .observed
        .notices
        .iter()
        .filter(|(_, n)| n.reason == Reason::FailedMount)
        .map(|(t, _)| (t - begin) / S)
        .collect();
    assert!((3..=4).contains(&reported.len()), "{reported:?}");
    assert!(reported.windows(2).all(|p| (9..=16).contains(&(p[1] - p[0]))), "{reported:?}");
    assert_eq!(w.notices("FailedMount")[0], "MountVolume.SetUp failed for volume \"v\" : no such device");
    w.volumes.mount_error = None;
    w.run(17);
    assert_eq!(w.shown("web"), "Running main#0:running");
}

#[test]
fn w9_a_failed_mount_in_a_container_is_reported_and_retried_with_a_delay() {
    let mut w = node();
    w.volumes.container_error = Some("the subPath \"a\" does not exist".into());
    let mount = "volumeMounts: [{name: v, mountPath: /v, subPath: a}]";
    let container = |name: &str, more: &str| format!("{{name: {name}, image: 'busybox:1.35'{more}}}");
    let containers = [container("main", &format!(", {mount}")), container("other", "")].join(", ");
    w.file("web", &format!("volumes: [{{name: v, emptyDir: {{}}}}], containers: [{containers}]"));
    w.run(40);
    let why = ("CreateContainerConfigError".to_owned(), "the subPath \"a\" does not exist".to_owned());
    assert_eq!((w.waiting("web", "main"), w.runs("web/other")), (why, true));
    let failed = w.notices("Failed");
    assert!((3..=4).contains(&failed.len()), "{failed:?}");
    assert_eq!(failed[0], "Error: the subPath \"a\" does not exist");
    w.volumes.container_error = None;
    w.run(17);
    assert_eq!(w.shown("web"), "Running main#0:running other#0:running");
    w.assert_well();
}

#[test]
fn w25_a_restarted_wherry_mounts_the_volumes_again_before_a_start() {
    let mut w = node();
    w.file("web", WITH);
    w.run(3);
    w.restart_engine();
    w.run(100);
    order(&mut w);
    w.exit_of("web/main", 1);
    w.run(3);
    assert_eq!(order(&mut w), ["Mount web", "StartContainer web/main#1"]);
}

#[test]
fn w2_volumes_that_cannot_be_unmounted_hold_up_the_end_until_they_can() {
    let mut w = node();
    w.file("web", WITH);
    w.run(3);
    w.volumes.unmount_error = Some("device is busy".into());
    w.remove("web");
    w.run(60);
    assert_eq!(w.volumes.mounted.len(), 1);
    assert_eq!(w.disk.records.len(), 1, "the record contains the pending removal");
    let reported = w.notices("FailedUnMount").len();
    assert!((7..=12).contains(&reported), "{reported}");
    w.restart_engine();
    w.run(20);
    w.volumes.unmount_error = None;
    w.run(20);
    assert!(w.volumes.mounted.is_empty());
    w.assert_clean();
}

#[test]
fn w21_an_orphans_volumes_are_unmounted() {
    let mut w = node();
    w.file("web", WITH);
    w.run(3);
    w.disk.records.clear();
    w.files.clear();
    w.restart_engine();
    w.run(10);
    assert!(w.volumes.mounted.is_empty());
    w.assert_clean();
}

#[test]
fn w2_a_kill_during_a_slow_start_leaves_no_volume() {
    let mut w = node();
    w.fault("RunSandbox", Fault::Slow(Duration::from_secs(3)));
    w.handlers.answers("web/main/PreStop", &[Answers::Never]);
    w.file("web", WITH);
    w.run(1);
    w.remove("web");
    w.run(10);
    assert!(w.volumes.mounted.is_empty());
    w.run(30);
    w.assert_clean();
}
