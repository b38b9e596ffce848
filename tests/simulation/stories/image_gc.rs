//! The garbage collection of images (I1 to I4).

use super::foreign_objects::foreign;
use crate::runtime::Life;
use crate::story::*;
use crate::world::{Fault, World, config};
use std::time::Duration;
use wherry::api::control::{ImageState, ImageView};
use wherry::engine::control::{Reply, Request};
use wherry::engine::effect::Measure;
use wherry::engine::event::Event;
use wherry::engine::image_gc_policy::ImageGcPolicy;

const USES_OTHER: &str = "containers: [{name: main, image: 'other:1', imagePullPolicy: IfNotPresent}]";

/// A run each minute.
fn policy() -> ImageGcPolicy {
    ImageGcPolicy { min_age: Duration::from_secs(30), period: Duration::from_secs(60), ..ImageGcPolicy::default() }
}

/// A node with these images besides that of the pods, 100 bytes each, and a file system of 1000 bytes. `other`: the bytes of
/// other files.
fn node_with_images(images: &[&str], other: u64, policy: ImageGcPolicy) -> World {
    let mut config = config();
    config.image_gc = policy;
    let mut w = node_with(config);
    w.runtime.store.other = other;
    for image in images {
        w.runtime.images.insert((*image).into());
        w.runtime.store.sizes.insert((*image).into(), 100);
    }
    w
}

impl World {
    fn removals(&self) -> Vec<String> {
        let calls = self.observed.calls.iter().filter_map(|(_, text)| text.strip_prefix("RemoveImage sha256:"));
        calls.map(str::to_owned).collect()
    }

    fn images(&mut self) -> Vec<ImageView> {
        let id = self.ask(Request::Images);
        self.run(1);
        match self.answer(id) {
            Some(Ok(Reply::Images(images))) => images.images.clone(),
            other => panic!("{other:?}\n{}", self.trace()),
        }
    }
}

#[test]
fn i2_above_the_high_threshold_images_are_removed_down_to_the_low_one() {
    // Used: 10 + 3 * 100 + 540 = 850 of 1000; 50 are to be freed.
    let mut w = node_with_images(&["a:1", "b:1", "c:1"], 540, policy());
    w.run(70);
    assert_eq!(w.removals(), ["a:1"], "{}", w.trace());
    assert_eq!(w.observed.measures.iter().filter(|m| **m == Measure::ImageCollected { reason: "space" }).count(), 1);
    w.run(200);
    assert_eq!(w.removals(), ["a:1"], "the usage is below the high threshold");
    assert_eq!(w.notices("ImageGCFailed"), [""; 0]);
}

#[test]
fn i2_below_the_high_threshold_a_run_only_measures() {
    let mut w = node_with_images(&["a:1", "b:1", "c:1"], 520, policy());
    w.run(70);
    assert_eq!(w.times("ListImages", 0).len(), 1, "the first list shows which images are old");
    w.run(300);
    assert_eq!(w.times("ListImages", 0).len(), 1);
    assert_eq!(w.times("ImageFs", 0).len(), 6);
    assert_eq!(w.removals(), [""; 0]);
}

#[test]
fn i3_the_least_recently_used_image_is_removed_first() {
    let mut w = node_with_images(&["a:1", "b:1", "other:1"], 0, policy());
    w.file("web", USES_OTHER);
    w.run(65);
    w.remove("web");
    w.run(60);
    w.file("web", &USES_OTHER.replace("other:1", "a:1"));
    w.run(60);
    w.remove("web");
    w.run(30);
    w.runtime.store.other = 600;
    w.runtime.images.remove(IMAGE);
    w.runtime.store.sizes.insert("b:1".into(), 20);
    w.runtime.store.sizes.insert("other:1".into(), 10);
    w.runtime.store.other = 720;
    w.run(60);
    assert_eq!(w.removals(), ["b:1", "other:1", "a:1"], "{}", w.trace());
}

#[test]
fn i1_an_image_that_is_used_or_named_stays() {
    let mut w = node_with_images(&["a:1", "done:1", "other:1", "pinned:1", "pause:3", "foreign:1"], 900, policy());
    let (_, theirs) = foreign(&mut w, "their", "uid-x", 0, Some("root-2"));
    w.runtime.containers.get_mut(&theirs).unwrap().image = "sha256:foreign:1".into();
    w.runtime.store.pinned.insert("pinned:1".into());
    w.runtime.store.sandbox_image = Some("pause:3".into());
    // The container has ended and is kept.
    w.life("done/main", &[Life::exits(0, Duration::from_millis(10))]);
    w.file("done", "restartPolicy: Never, containers: [{name: main, image: 'done:1'}]");
    // The pod waits for another image.
    w.runtime.unknown_images.insert("missing:1".into());
    w.file("web", "containers: [{name: one, image: 'missing:1'}, {name: two, image: 'other:1'}]");
    w.file(
        "init",
        "initContainers: [{name: i, image: 'missing:1'}], containers: [{name: main, image: 'busybox:1.35'}]",
    );
    w.run(200);
    assert_eq!(w.removals(), ["a:1"], "{}", w.trace());
    let images = w.images();
    let of = |name: &str| images.iter().find(|i| i.id == format!("sha256:{name}")).unwrap();
    assert_eq!(of("foreign:1").state, ImageState::InUse);
    assert_eq!((of("done:1").state, &of("done:1").pods), (ImageState::InUse, &vec!["default/done".to_owned()]));
    assert_eq!((of(IMAGE).state, &of(IMAGE).pods), (ImageState::Named, &vec!["default/init".to_owned()]));
    assert_eq!((of("pinned:1").state, of("pause:3").state), (ImageState::Pinned, ImageState::Sandboxes));
    assert!(!w.notices("FreeDiskSpaceFailed").is_empty());
}

#[test]
fn i1_a_manifest_that_arrives_during_the_removals_keeps_its_image() {
    let mut w = node_with_images(&["a:1", "other:1"], 900, policy());
    w.fault("RemoveImage sha256:a:1", Fault::Slow(Duration::from_secs(3)));
    w.until("the first removal", 70, |w| w.times("RemoveImage", 0).len() == 1);
    w.file("web", &USES_OTHER.replace("IfNotPresent", "Never"));
    w.run(10);
    assert!(w.runs("web/main"));
    assert!(!w.removals().contains(&"other:1".to_owned()), "{}", w.trace());
}

#[test]
fn i3_an_image_younger_than_the_minimum_age_stays() {
    let policy = ImageGcPolicy { min_age: Duration::from_secs(100), ..policy() };
    let mut w = node_with_images(&["a:1"], 500, policy);
    w.run(65);
    w.runtime.images.insert("new:1".into());
    w.runtime.store.other = 900;
    w.run(60);
    let state =
        |w: &mut World, name: &str| w.images().into_iter().find(|i| i.id == format!("sha256:{name}")).map(|i| i.state);
    assert_eq!(state(&mut w, "new:1"), Some(ImageState::TooYoung));
    assert!(w.removals().contains(&"a:1".to_owned()), "it is as old as the run");
    w.run(60);
    assert_eq!(state(&mut w, "new:1"), Some(ImageState::TooYoung));
    w.run(60);
    assert_eq!(state(&mut w, "new:1"), None, "{}", w.trace());
}

#[test]
fn i4_an_image_that_was_unused_for_the_maximum_age_is_removed() {
    let policy = ImageGcPolicy { high_percent: 100, max_age: Some(Duration::from_secs(200)), ..policy() };
    let mut w = node_with_images(&["a:1", "other:1"], 0, policy);
    w.file("web", USES_OTHER);
    w.run(190);
    assert_eq!(w.removals(), [""; 0]);
    w.run(120);
    assert_eq!(w.removals(), ["a:1", IMAGE], "{}", w.trace());
    assert_eq!(w.times("ImageFs", 0).len(), 0, "the high threshold is off");
    w.remove("web");
    w.run(180);
    assert_eq!(w.removals().len(), 2);
    w.run(120);
    assert_eq!(w.removals(), ["a:1", IMAGE, "other:1"]);
    assert_eq!(w.observed.measures.iter().filter(|m| **m == Measure::ImageCollected { reason: "age" }).count(), 3);
}

#[test]
fn i4_the_time_without_a_use_counts_across_restarts() {
    let policy = ImageGcPolicy { high_percent: 100, max_age: Some(Duration::from_secs(200)), ..policy() };
    let mut w = node_with_images(&["a:1", "other:1"], 0, policy);
    w.file("web", USES_OTHER);
    w.run(150);
    // Between the last write of the record and the kill, half a minute is lost.
    w.kill_engine();
    w.start();
    w.run(50);
    assert_eq!(w.removals(), [""; 0]);
    w.remove("web");
    w.run(80);
    assert_eq!(w.removals(), ["a:1", IMAGE], "{}", w.trace());
    w.run(100);
    assert_eq!(w.removals().len(), 2, "the use of the other image is known");
    w.run(100);
    assert_eq!(w.removals(), ["a:1", IMAGE, "other:1"], "{}", w.trace());

    // Without a maximum age there is no record.
    assert!(w.disk.records.contains_key("images/unused"));
    w.config.image_gc.max_age = None;
    w.step(Event::Configure(Box::new(w.config.clone())));
    w.run(1);
    assert!(!w.disk.records.contains_key("images/unused"));
}

#[test]
fn i4_a_damaged_record_is_reported_and_written_again() {
    let policy = ImageGcPolicy { high_percent: 100, max_age: Some(Duration::from_secs(200)), ..policy() };
    let mut w = node_with_images(&["a:1"], 0, policy);
    w.kill_engine();
    w.disk.records.insert("images/unused".into(), "{".into());
    w.start();
    w.run(100);
    assert_eq!(w.notices("BadRecord").len(), 1);
    assert!(w.disk.records["images/unused"].contains("sha256:a:1"));
}

#[test]
fn i2_a_failed_removal_is_repeated_in_the_next_run() {
    let mut w = node_with_images(&["a:1", "b:1"], 690, policy());
    for _ in 0..2 {
        w.fault("RemoveImage sha256:a:1", Fault::Error("busy".into()));
        w.fault("RemoveImage sha256:b:1", Fault::Error("busy".into()));
    }
    w.run(65);
    assert_eq!(w.removals().len(), 3, "each image is tried once in a run");
    assert_eq!(w.notices("ImageGCFailed"), [""; 0], "as in a kubelet, one failure is no event");
    w.run(60);
    assert_eq!(w.notices("ImageGCFailed").len(), 1, "{}", w.trace());
    assert!(w.notices("ImageGCFailed")[0].contains("with errors in image deletion: rpc error"));
    w.run(60);
    assert_eq!(w.notices("ImageGCFailed").len(), 1);
    assert!(!w.runtime.images.contains("a:1"));
}

#[test]
fn i2_without_a_capacity_nothing_is_removed() {
    let mut w = node_with_images(&["a:1"], 0, policy());
    w.runtime.store.capacity = 0;
    w.run(130);
    assert_eq!(w.notices("InvalidDiskCapacity").len(), 2);
    assert_eq!(w.notices("ImageGCFailed"), ["invalid capacity 0 on image filesystem"]);
    assert_eq!(w.removals(), [""; 0]);
}

#[test]
fn i2_a_lost_connection_ends_the_run_and_the_next_one_goes_on() {
    let mut w = node_with_images(&["a:1", "b:1"], 900, policy());
    w.hang("RemoveImage");
    w.until("a removal", 70, |w| w.times("RemoveImage", 0).len() == 1);
    w.runtime_down();
    w.run(5);
    w.faults.hangs.clear();
    w.runtime_up();
    w.run(70);
    assert!(!w.runtime.images.contains("a:1") && !w.runtime.images.contains("b:1"), "{}", w.trace());
}

#[test]
fn i2_a_killed_wherry_collects_again_later() {
    let mut w = node_with_images(&["a:1", "b:1"], 900, policy());
    w.hang("RemoveImage");
    w.until("a removal", 70, |w| w.times("RemoveImage", 0).len() == 1);
    w.faults.hangs.clear();
    w.kill_engine();
    w.start();
    w.run(70);
    assert!(!w.runtime.images.contains("a:1") && !w.runtime.images.contains("b:1"), "{}", w.trace());
}

#[test]
fn i2_a_threshold_of_100_turns_the_collection_off() {
    let mut w = node_with_images(&["a:1"], 900, ImageGcPolicy { high_percent: 100, ..policy() });
    w.run(200);
    assert_eq!(w.times("ImageFs", 0).len() + w.times("ListImages", 0).len(), 0);
    w.config.image_gc = policy();
    w.step(Event::Configure(Box::new(w.config.clone())));
    w.run(70);
    assert!(w.removals().contains(&"a:1".to_owned()), "{}", w.trace());
}

#[test]
fn images_that_cannot_be_listed_are_an_error_of_the_request() {
    let mut w = node_with_images(&[], 0, policy());
    w.fault("ListImages", Fault::Error("disk on fire".into()));
    let id = w.ask(Request::Images);
    w.run(1);
    let Some(Err(error)) = w.answer(id) else { panic!("{}", w.trace()) };
    assert_eq!(error.status(), 502);
    assert!(error.to_string().ends_with("disk on fire"), "{error}");
    w.hang("ListImages");
    let id = w.ask(Request::Images);
    w.client_gone(id);
    w.run(5);
    assert_eq!(w.operations_in_flight(), 0, "the call was cancelled");
}

#[test]
fn i1_the_image_of_a_volume_is_in_use_and_that_of_a_waiting_manifest_too() {
    let mut w = node_with_images(&["a:1", "b:1"], 740, policy());
    let spec = "volumes: [{name: m, image: {reference: 'a:1'}}], \
         containers: [{name: main, image: 'busybox:1.35', volumeMounts: [{name: m, mountPath: /m}]}]";
    w.file("web", spec);
    w.run(70);
    assert!(w.runs("web/main"));
    assert_eq!(w.removals(), ["b:1"], "{}", w.trace());
    w.run(200);
    assert_eq!(w.removals(), ["b:1"], "{}", w.trace());
}
