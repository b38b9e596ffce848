//! W24: the state of a worker through the life of its pod, and the answers that follow from it.

use crate::runtime::Life;
use crate::story::{NEVER, ONE, TWO, node};
use crate::world::World;
use std::time::Duration;
use wherry::api::names::Uid;
use wherry::engine::pod::kill::TerminationSource;

fn uid_of(w: &World, name: &str) -> Uid {
    w.files[&format!("/m/{name}.yaml")].uid.clone()
}

/// The worker's state; empty without a worker.
fn state(w: &World, uid: &Uid) -> &'static str {
    let now = w.time().boot;
    w.engine.worker_status(uid, now).map_or("", |status| status.state)
}

#[test]
fn w24_a_pod_is_finished_after_its_end_and_not_before() {
    let mut w = node();
    w.life("web/main", &[Life::deaf()]);
    w.file("web", ONE);
    let old = uid_of(&w, "web");
    assert_eq!(state(&w, &old), "Sync", "from the first instant");
    w.run(2);
    w.file("web", TWO);
    let new = uid_of(&w, "web");
    assert_eq!((state(&w, &old), state(&w, &new)), ("Sync", "Waiting"), "the old pod's record is not written yet");
    w.run_ms(5);
    assert_eq!((state(&w, &old), w.engine.is_finished(&old)), ("Terminating", false));
    // The next version starts as soon as the old one is finished.
    w.until("the new one begins", 40, |w| state(w, &new) == "Sync");
    assert!(w.engine.is_finished(&old) || state(&w, &old).is_empty());
    w.run(5);
    assert_eq!((state(&w, &old), w.engine.is_finished(&old)), ("", false), "forgotten");
}

#[test]
fn w24_a_completed_pod_keeps_its_content_and_an_evicted_one_does_not() {
    let mut w = node();
    w.life("job/main", &[Life::exits(0, Duration::from_secs(1))]);
    w.file("job", NEVER);
    w.file("web", ONE);
    w.run(5);
    w.life("web/main", &[Life::deaf()]);
    w.has_pressure();
    w.kill("web", TerminationSource::Eviction, None);
    assert_eq!(state(&w, &uid_of(&w, "web")), "Terminating");
    w.run(40);
    let containers = |w: &World, name: &str| w.engine.containers(&uid_of(w, name)).len();
    assert_eq!((state(&w, &uid_of(&w, "job")), containers(&w, "job")), ("Finished", 1));
    assert_eq!((state(&w, &uid_of(&w, "web")), containers(&w, "web")), ("Finished", 0));
}
