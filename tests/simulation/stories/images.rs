//! Images: pull policies, pulls and their back-off.

use crate::story::*;
use crate::world::{Fault, World};
use wherry::api::runtime_features::ImageVolumes;

fn with_policy(policy: &str) -> String {
    format!("containers: [{{name: main, image: 'other:1', imagePullPolicy: {policy}}}]")
}

#[test]
fn if_not_present_pulls_a_missing_image_once() {
    let mut w = node();
    w.file("web", &with_policy("IfNotPresent"));
    w.run(3);
    assert!(w.runs("web/main"));
    assert_eq!(w.times("PullImage other:1", 0).len(), 1);
    assert_eq!(w.notices("Pulling"), ["Pulling image \"other:1\""]);
    let pulled = "Successfully pulled image \"other:1\" in 499ms (500ms including waiting). Image size: 4321000 bytes.";
    assert_eq!(w.notices("Pulled"), [pulled]);
    w.exit_of("web/main", 1);
    w.run(3);
    assert_eq!(w.times("PullImage", 0).len(), 1);
}

#[test]
fn always_pulls_at_each_start() {
    let mut w = node();
    w.file("web", &with_policy("Always"));
    w.run(3);
    w.exit_of("web/main", 1);
    w.run(3);
    assert_eq!(w.times("PullImage other:1", 0).len(), 2);
}

#[test]
fn never_with_a_missing_image_is_err_image_never_pull() {
    let mut w = node();
    w.file("web", &with_policy("Never"));
    w.run(3);
    let message = "Container image \"other:1\" is not present with pull policy of Never";
    assert_eq!(w.waiting("web", "main"), ("ErrImageNeverPull".into(), message.into()));
    assert_eq!(w.notices("ErrImageNeverPull"), [message]);
    assert_eq!(w.notices("Failed"), ["Error: ErrImageNeverPull"]);
    assert_eq!(w.status("web").phase.as_deref(), Some("Pending"));
    w.runtime.images.insert("other:1".into());
    w.run(16);
    assert!(w.runs("web/main"));
    assert_eq!(w.times("PullImage", 0).len(), 0);
}

#[test]
fn w10_pulls_back_off_from_their_first_failure() {
    let mut w = node();
    w.runtime.unknown_images.insert("other:1".into());
    w.file("web", &with_policy("IfNotPresent"));
    w.until("the first failure", 5, |w| w.waiting("web", "main").0 == "ErrImagePull");
    assert_eq!(w.waiting("web", "main").1, "failed to pull other:1: no such image");
    let since = w.times("PullImage", 0)[0];
    w.run(2);
    let (reason, message) = w.waiting("web", "main");
    assert_eq!(reason, "ImagePullBackOff");
    let error = "failed to pull other:1: no such image";
    assert_eq!(message, format!("Back-off pulling image \"other:1\": ErrImagePull: {error}"));
    w.run(180);
    let at: Vec<u64> = w.times("PullImage", 0).iter().map(|t| (t - since) / 1000).collect();
    assert_eq!(at, [0, 10, 31, 71, 152]);
    w.runtime.unknown_images.clear();
    w.run(160);
    assert!(w.runs("web/main"));
}

#[test]
fn an_invalid_image_name_is_reported_in_the_status() {
    let mut w = node();
    w.file("web", "containers: [{name: main, image: 'UPPER:1'}]");
    w.run(3);
    let (reason, message) = w.waiting("web", "main");
    assert_eq!(reason, "InvalidImageName");
    assert!(message.starts_with("Failed to apply default image tag \"UPPER:1\""), "{message}");
    assert_eq!(w.notices("Failed"), ["Error: InvalidImageName"]);
}

#[test]
fn a_failed_image_status_is_an_image_inspect_error() {
    let mut w = node();
    w.fault("ImageStatus", Fault::Error("disk on fire".into()));
    w.file("web", ONE);
    w.run(3);
    assert_eq!(w.waiting("web", "main"), ("ImageInspectError".into(), "disk on fire".into()));
    w.run(16);
    assert!(w.runs("web/main"));
}

#[test]
fn a_missing_image_of_one_container_does_not_hold_up_the_other() {
    let mut w = node();
    w.runtime.unknown_images.insert("other:1".into());
    w.file("web", "containers: [{name: one, image: 'other:1'}, {name: two, image: 'busybox:1.35'}]");
    w.run(5);
    assert_eq!(w.shown("web"), "Pending one#0:waiting ImagePullBackOff two#0:running");
}

#[test]
fn pulls_are_made_one_after_another_and_starts_do_not_wait_for_them() {
    let mut w = node();
    for i in 0..10 {
        w.file(&format!("p{i}"), &format!("containers: [{{name: main, image: 'big{i}:1'}}]"));
    }
    w.file("web", ONE);
    w.run(2);
    assert!(w.runs("web/main"));
    assert!(w.times("PullImage", 0).len() <= 4);
    w.run(10);
    assert_eq!(w.times("PullImage", 0).len(), 10);
    assert_eq!(w.runtime.containers.values().filter(|c| c.runs()).count(), 11);
}

/// Two containers that mount the same image.
const WITH_IMAGE_VOLUME: &str = "volumes: [{name: model, image: {reference: 'other:1'}}, {name: unused, image: {reference: 'gone:1'}}], \
     containers: [{name: main, image: 'busybox:1.35', volumeMounts: [{name: model, mountPath: /model}]}, \
     {name: second, image: 'busybox:1.35'}]";

#[test]
fn w9_the_image_of_a_volume_is_pulled_before_the_container_that_mounts_it() {
    let mut w = node();
    w.runtime.unknown_images.insert("other:1".into());
    w.file("web", WITH_IMAGE_VOLUME);
    w.until("the first failure", 5, |w| w.waiting("web", "main").0 == "ErrImagePull");
    assert_eq!(w.waiting("web", "main").1, "failed to pull other:1: no such image");
    w.run(3);
    assert_eq!(w.waiting("web", "main").0, "ImagePullBackOff");
    assert!(w.runs("web/second"), "a container without the volume starts");
    w.runtime.unknown_images.clear();
    w.run(20);
    assert!(w.runs("web/main"), "{}", w.trace());
    assert_eq!(w.times("PullImage other:1", 0).len(), 2);
    assert_eq!(w.times("PullImage gone:1", 0).len(), 0, "no container mounts it");
    // The next start finds the image, also after a restart of Wherry.
    w.restart_engine();
    w.run(2);
    w.exit_of("web/main", 1);
    w.run(20);
    assert!(w.runs("web/main"), "{}", w.trace());
    assert_eq!(w.times("PullImage", 0).len(), 2);
    w.assert_well();
}

#[test]
fn w9_the_pull_policy_of_an_image_volume_is_its_own() {
    let mut w = node();
    w.file("web", &WITH_IMAGE_VOLUME.replace("'other:1'", "'other:1', pullPolicy: Never"));
    w.run(3);
    let message = "Container image \"other:1\" is not present with pull policy of Never";
    assert_eq!(w.waiting("web", "main"), ("ErrImageNeverPull".into(), message.into()));
    w.runtime.images.insert("other:1".into());
    w.file("web", &WITH_IMAGE_VOLUME.replace("'other:1'", "'other:1', pullPolicy: Always"));
    w.run(40);
    assert!(w.runs("web/main"));
    assert_eq!(w.times("PullImage other:1", 0).len(), 1);
    w.file("web", &WITH_IMAGE_VOLUME.replace("other:1", "Other:1"));
    w.run(40);
    assert_eq!(w.waiting("web", "main").0, "InvalidImageName");
}

#[test]
fn w9_a_pod_with_an_image_volume_waits_for_a_runtime_that_has_them() {
    let mut w = node();
    let upgrade = |w: &mut World, has: ImageVolumes| {
        w.runtime.features.image_volumes = has;
        w.runtime_down();
        w.runtime_up();
        w.run(60);
    };
    upgrade(&mut w, ImageVolumes::None);
    w.file("web", WITH_IMAGE_VOLUME);
    w.file("part", &WITH_IMAGE_VOLUME.replace("mountPath: /model", "mountPath: /model, subPath: a"));
    w.run(30);
    assert_eq!(w.times("RunSandbox", 0).len(), 0);
    let notices = w.notices("FailedCreatePodSandBox");
    assert!(notices[0].contains("volume \"model\": image volumes are not supported in this node"), "{notices:?}");
    upgrade(&mut w, ImageVolumes::Whole);
    assert!(w.runs("web/main") && w.times("RunSandbox part", 0).is_empty(), "{}", w.trace());
    let notices = w.notices("FailedCreatePodSandBox");
    assert!(notices.iter().any(|text| text.contains("subPath of an image volume is not supported")), "{notices:?}");
    upgrade(&mut w, ImageVolumes::WithSubPaths);
    assert!(w.runs("part/main"), "{}", w.trace());
}
