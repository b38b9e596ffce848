//! Credentials for image registries (W12).

use crate::story::*;
use crate::world::{Fault, World, docker_config, user};
use wherry::api::credential_provider::CacheKey;
use wherry::engine::event::Event;
use wherry::engine::pod::worker::WorkerStatus;

const IMAGE: &str = "r.io/app:1";

/// A pod with these pull secrets.
fn spec(secrets: &[&str]) -> String {
    let names: Vec<String> = secrets.iter().map(|name| format!("{{name: {name}}}")).collect();
    format!("imagePullSecrets: [{}], containers: [{{name: main, image: '{IMAGE}'}}]", names.join(", "))
}

fn pull_secret(w: &mut World, name: &str, users: &[(&str, &str)]) {
    w.define_secret(name, ".dockerconfigjson", &docker_config(users));
}

/// A node whose registry lets only `good` pull the image.
fn private() -> World {
    let mut w = node();
    w.private_image(IMAGE, &["good"]);
    w
}

/// The users of the pulls so far.
fn users(w: &World) -> Vec<String> {
    let pulls = w.observed.calls.iter().filter_map(|(_, text)| text.strip_prefix("PullImage "));
    pulls.map(|text| text.strip_prefix(&format!("{IMAGE} as ")).unwrap_or("anonymous").to_owned()).collect()
}

fn worker_status(w: &World, name: &str) -> WorkerStatus {
    let view = w.engine.pods().into_iter().find(|view| &*view.pod.name.name == name).expect("the pod");
    w.engine.worker_status(&view.pod.uid, w.time().boot).expect("its worker")
}

#[test]
fn w12_a_pull_uses_the_credentials_of_the_pods_secret() {
    let mut w = private();
    pull_secret(&mut w, "regcred", &[("s.io", "other"), ("r.io", "good")]);
    w.file("web", &spec(&["regcred"]));
    w.run(3);
    assert!(w.runs("web/main"));
    assert_eq!(users(&w), ["good"]);
    assert!(w.notices("FailedToRetrieveImagePullSecret").is_empty());
    assert!(!w.trace().contains("password"), "{}", w.trace());
    w.assert_well();
}

#[test]
fn w12_a_missing_secret_is_an_event_and_its_appearance_retries_the_pull_at_once() {
    let mut w = private();
    w.file("web", &spec(&["regcred", "", "second"]));
    w.run(3);
    let message = "Unable to retrieve some image pull secrets (regcred, second); attempting to pull the image may not \
                   succeed.";
    assert_eq!(w.notices("FailedToRetrieveImagePullSecret"), [message]);
    assert_eq!((users(&w), w.waiting("web", "main").0), (vec!["anonymous".to_owned()], "ImagePullBackOff".to_owned()));
    pull_secret(&mut w, "unrelated", &[("r.io", "good")]);
    w.run(1);
    assert_eq!(users(&w).len(), 1, "a Secret that the pod does not name");
    pull_secret(&mut w, "regcred", &[("r.io", "good")]);
    w.run(2);
    assert!(w.runs("web/main"));
    assert_eq!(users(&w), ["anonymous", "good"]);
    w.assert_well();
}

#[test]
fn w12_a_corrected_secret_ends_the_back_off_and_a_wrong_one_continues_it() {
    let mut w = private();
    pull_secret(&mut w, "regcred", &[("r.io", "wrong")]);
    w.file("web", &spec(&["regcred"]));
    w.run(40);
    let (reason, message) = w.waiting("web", "main");
    let error = "failed to pull r.io/app:1: 401 Unauthorized for wrong";
    assert_eq!(reason, "ImagePullBackOff");
    assert_eq!(message, format!("Back-off pulling image \"{IMAGE}\": ErrImagePull: {error}"));
    assert_eq!(users(&w), ["wrong"; 3]);
    pull_secret(&mut w, "regcred", &[("r.io", "bad")]);
    w.run(2);
    assert_eq!(users(&w).len(), 4);
    let pull = worker_status(&w, "web").pull_back_off.first().cloned();
    assert_eq!(pull.map(|p| p.failures), Some(4), "the level stays");
    pull_secret(&mut w, "regcred", &[("r.io", "good")]);
    w.run(2);
    assert!(w.runs("web/main"));
    w.assert_well();
}

#[test]
fn w12_credentials_are_tried_in_order_until_one_succeeds() {
    let mut w = private();
    pull_secret(&mut w, "one", &[("r.io", "a"), ("r.io/app", "b")]);
    pull_secret(&mut w, "two", &[("*.io", "c")]);
    w.registry.node = Some(user("node"));
    w.add_provider("cloud", "good", CacheKey::Image, 0);
    w.file("web", &spec(&["one", "two"]));
    w.run(5);
    assert!(w.runs("web/main"));
    assert_eq!(users(&w), ["b", "a", "c", "node", "good"]);
    assert_eq!(w.notices("Pulling").len(), 1);
    assert!(w.notices("Failed").is_empty(), "only the failure of all is one");
    w.assert_well();
}

#[test]
fn w12_if_all_credentials_fail_the_status_shows_all_errors_once() {
    let mut w = private();
    pull_secret(&mut w, "one", &[("r.io", "a"), ("r.io/app", "b")]);
    w.file("web", &spec(&["one"]));
    w.until("it failed", 5, |w| w.waiting("web", "main").0 == "ErrImagePull");
    let error = |user| format!("failed to pull r.io/app:1: 401 Unauthorized for {user}");
    assert_eq!(w.waiting("web", "main").1, format!("[{}, {}]", error("b"), error("a")));
    assert_eq!(w.notices("Failed").len(), 3);
    w.run(30);
    assert_eq!(users(&w), ["b", "a", "b", "a"], "one back-off for both");
    w.assert_well();
}

#[test]
fn w12_a_lost_runtime_is_no_reason_to_try_the_next_credential() {
    let mut w = private();
    pull_secret(&mut w, "one", &[("r.io", "good"), ("r.io/app", "b")]);
    w.fault("PullImage", Fault::Dropped);
    w.file("web", &spec(&["one"]));
    w.run(3);
    assert_eq!(users(&w), ["b"]);
    w.run(15);
    assert!(w.runs("web/main"));
    w.assert_well();
}

#[test]
fn w12_a_provider_is_asked_once_for_as_long_as_its_answer_counts() {
    let mut w = private();
    w.private_image("r.io/app:2", &["good"]);
    w.private_image("r.io/app:3", &["good"]);
    w.add_provider("cloud", "good", CacheKey::Registry, 60);
    w.file("web", &spec(&[]));
    w.run(1);
    w.file("other", "containers: [{name: main, image: 'r.io/app:2'}, {name: b, image: 'docker.io/library/x:1'}]");
    w.run(5);
    assert!(w.runs("web/main") && w.runs("other/main") && w.runs("other/b"));
    assert_eq!(w.registry.asked, ["cloud r.io/app"]);
    w.run(60);
    w.file("late", "containers: [{name: main, image: 'r.io/app:3'}]");
    w.run(5);
    assert!(w.runs("late/main"));
    assert_eq!(w.registry.asked.len(), 2);
    // Another configuration: old answers do not count.
    w.config.credential_providers[0].args.push("--other".into());
    w.step(Event::Configure(Box::new(w.config.clone())));
    w.private_image("r.io/app:4", &["good"]);
    w.file("last", "containers: [{name: main, image: 'r.io/app:4'}]");
    w.run(5);
    assert_eq!(w.registry.asked.len(), 3);
    w.assert_well();
}

#[test]
fn w12_a_provider_that_fails_or_hangs_leaves_the_other_credentials() {
    let mut w = private();
    w.add_provider("broken", "good", CacheKey::Image, 60);
    w.registry.provided.clear();
    w.add_provider("hung", "good", CacheKey::Image, 60);
    w.registry.hung.push("hung".into());
    w.registry.node = Some(user("good"));
    w.file("web", &spec(&[]));
    w.run(1);
    w.file("busy", "containers: [{name: main, image: 'other:1'}]");
    w.run(29);
    assert!(!w.runs("web/main") && w.runs("busy/main"), "other pulls do not wait");
    w.run(35);
    assert!(w.runs("web/main"));
    assert_eq!(w.registry.asked, ["broken r.io/app", "hung r.io/app"]);
    w.assert_well();
}

#[test]
fn w12_a_kill_during_the_collection_of_credentials_ends_the_pull() {
    let mut w = private();
    w.add_provider("hung", "good", CacheKey::Image, 60);
    w.registry.hung.push("hung".into());
    w.file("web", &spec(&[]));
    w.run(5);
    w.remove("web");
    w.run(5);
    assert!(users(&w).is_empty());
    w.run(70);
    assert!(users(&w).is_empty());
    w.assert_clean();
}

#[test]
fn w12_the_progress_of_a_pull_and_the_queue_are_shown() {
    let mut w = node();
    w.hang("PullImage");
    w.file("a", "containers: [{name: main, image: 'a:1'}]");
    w.run(1);
    for name in ["b", "c"] {
        w.file(name, &format!("containers: [{{name: main, image: '{name}:1'}}]"));
        w.run(1);
    }
    w.run(10);
    let pull = |name: &str| worker_status(&w, name).pull.expect("a pull");
    assert_eq!((pull("a").image.as_str(), pull("a").seconds, pull("a").ahead), ("a:1", 12, None));
    assert_eq!((pull("b").image.as_str(), pull("b").seconds, pull("b").ahead), ("b:1", 11, Some(0)));
    assert_eq!((pull("c").seconds, pull("c").ahead), (10, Some(1)));
}

#[test]
fn w12_the_reasons_of_a_runtime_for_a_failed_pull_are_shown() {
    for (error, reason, message) in [
        (
            "RegistryUnavailable",
            "RegistryUnavailable",
            "image pull failed for r.io/app:1 because the registry is unavailable",
        ),
        (
            "SignatureValidationFailed: no key",
            "SignatureValidationFailed",
            "image pull failed for r.io/app:1 because the signature validation failed: no key",
        ),
        ("429 Too Many Requests", "ErrImagePull", "429 Too Many Requests"),
    ] {
        let mut w = node();
        w.fault("PullImage", Fault::Error(error.into()));
        w.file("web", &spec(&[]));
        w.until("it failed", 5, |w| !w.notices("Failed").is_empty());
        w.run_ms(10);
        assert_eq!(w.waiting("web", "main"), (reason.to_owned(), message.to_owned()));
        assert_eq!(
            w.notices("Failed")[..2],
            [format!("Failed to pull image \"r.io/app:1\": {error}"), format!("Error: {reason}")]
        );
        w.run(2);
        let shown = format!("Back-off pulling image \"r.io/app:1\": {reason}: {message}");
        assert_eq!(w.waiting("web", "main"), ("ImagePullBackOff".to_owned(), shown));
        w.run(15);
        assert!(w.runs("web/main"));
        w.assert_well();
    }
}
