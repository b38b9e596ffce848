//! Images: pull policies, pulls and their back-off.

use crate::story::*;
use crate::world::Fault;

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
