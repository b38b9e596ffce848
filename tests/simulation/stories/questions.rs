//! W24: the table, row by row.

use crate::runtime::Life;
use crate::story::{NEVER, ONE, TWO, node};
use crate::world::{Fault, World, config};
use std::time::Duration;
use wherry::api::names::Uid;
use wherry::engine::event::Event;
use wherry::engine::pod::kill::TerminationSource;

/// The answers in the order of the table: y or n.
fn answers(w: &World, uid: &Uid) -> String {
    let e = &w.engine;
    [
        e.could_have_running_containers(uid),
        e.is_known_terminated(uid),
        e.should_be_finished(uid),
        e.termination_was_requested(uid),
        e.containers_should_be_terminating(uid),
        e.runtime_parts_should_be_removed(uid),
        e.content_should_be_removed(uid),
    ]
    .map(|yes| if yes { 'y' } else { 'n' })
    .iter()
    .collect()
}

fn uid_of(w: &World, name: &str) -> Uid {
    w.files[&format!("/m/{name}.yaml")].uid.clone()
}

#[test]
fn w24_of_a_pod_that_no_worker_knows_the_cautious_answer_before_the_manifests_were_read() {
    let mut w = World::new(config());
    let uid = Uid::from("nobody");
    assert_eq!(answers(&w, &uid), "ynnnnnn");
    w.step(Event::Records(Vec::new()));
    w.step(Event::RuntimeUp);
    w.run(2);
    assert_eq!(answers(&w, &uid), "ynnnnnn");
    w.read_manifests();
    assert_eq!(answers(&w, &uid), "nnynyyy");
}

#[test]
fn w24_a_pods_answers_through_its_life() {
    let mut w = node();
    w.life("web/main", &[Life::deaf()]);
    w.file("web", ONE);
    let old = uid_of(&w, "web");
    assert_eq!(answers(&w, &old), "ynnnnnn", "Sync, from the first instant");
    w.run(2);
    assert_eq!(answers(&w, &old), "ynnnnnn");
    w.file("web", TWO);
    let new = uid_of(&w, "web");
    assert_eq!(answers(&w, &new), "ynnnnnn", "waiting");
    w.run_ms(5);
    assert_eq!(answers(&w, &old), "ynnyynn", "Terminating, once its record was written");
    // The next version starts as soon as the old one is finished.
    w.until("the old one is over", 40, |w| w.engine.is_known_terminated(&old) || w.engine.pod(&old).is_none());
    assert!(answers(&w, &old).starts_with("ny"), "{}", answers(&w, &old));
    w.run(5);
    assert_eq!(answers(&w, &old), "nnynyyy", "forgotten");
}

#[test]
fn w24_containers_are_terminating_only_once_no_start_is_in_flight() {
    let mut w = node();
    w.faults.late_cancellation = true;
    w.fault("CreateContainer", Fault::Slow(Duration::from_secs(3)));
    w.file("web", ONE);
    let uid = uid_of(&w, "web");
    w.until("the container is being created", 5, |w| w.times("CreateContainer", 0).len() == 1);
    w.kill("web", TerminationSource::Drain, None);
    assert_eq!(answers(&w, &uid), "ynnynnn", "the create is not answered yet");
    w.run_ms(10);
    assert_eq!(&answers(&w, &uid)[3..5], "yy");
}

#[test]
fn w24_a_completed_pod_is_finished_and_keeps_its_content_an_evicted_one_does_not() {
    let mut w = node();
    w.life("job/main", &[Life::exits(0, Duration::from_secs(1))]);
    w.file("job", NEVER);
    w.run(5);
    assert_eq!(answers(&w, &uid_of(&w, "job")), "nyyyyyn");
    w.file("web", ONE);
    w.run(2);
    w.life("web/main", &[Life::deaf()]);
    w.kill("web", TerminationSource::Eviction, None);
    assert_eq!(answers(&w, &uid_of(&w, "web")), "ynnyyny", "Terminating, evicted");
    w.run(40);
    assert_eq!(answers(&w, &uid_of(&w, "web")), "nyyyyyy");
}

#[test]
fn w24_an_orphan_is_asked_about_like_any_other() {
    let mut w = node();
    w.life("web/main", &[Life::deaf()]);
    w.file("web", "terminationGracePeriodSeconds: 9, containers: [{name: main, image: 'busybox:1.35'}]");
    w.run(2);
    let uid = uid_of(&w, "web");
    w.kill_engine();
    w.disk.records.clear();
    w.files.clear();
    w.start();
    w.run(2);
    assert_eq!(answers(&w, &uid), "ynnyynn");
    w.run(15);
    assert_eq!(answers(&w, &uid), "nnynyyy");
}
