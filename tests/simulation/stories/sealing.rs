//! C15: Secrets and tokens on the disk are sealed.

use crate::stories::cluster::cluster;
use crate::story::node_with;
use crate::world::api_server::PODS;
use crate::world::{S, World};
use serde_json::json;
use wherry::api::sealing::{KeyState, Policy};
use wherry::engine::cluster::sealing_settings::SealingSettings;

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
/// With a Secret, an optional one and a token. It does not pull its image again.
const SPEC: &str = "containers: [{name: main, image: 'busybox:1.35', \
                    envFrom: [{secretRef: {name: keys}}, {secretRef: {name: more, optional: true}}], \
                    volumeMounts: [{name: t, mountPath: /t}]}], \
                    volumes: [{name: t, projected: {sources: [{serviceAccountToken: {path: token, expirationSeconds: 3607}}]}}]";
const OPTIONAL: &str =
    "containers: [{name: main, image: 'busybox:1.35', envFrom: [{secretRef: {name: more, optional: true}}]}]";

fn settings(policy: Policy, key: Option<u32>) -> SealingSettings {
    SealingSettings { policy, key: if key.is_some() { KeyState::Usable } else { KeyState::Missing } }
}

/// A node with this setting and key, and the Secrets `keys` and `more`.
fn member(policy: Policy, key: Option<u32>) -> World {
    let mut config = cluster();
    config.cluster.as_mut().unwrap().sealing = settings(policy, key);
    let mut w = node_with(config);
    w.disk.key = key;
    for (name, value) in [("keys", "MQ=="), ("more", "Mg==")] {
        set_secret(&mut w, name, value);
    }
    w.run(5);
    w
}

fn set_secret(w: &mut World, name: &str, value: &str) {
    let metadata = json!({ "name": name, "namespace": "default" });
    let data = json!({ name.to_uppercase(): value });
    w.api_set(SECRETS, json!({ "kind": "Secret", "apiVersion": "v1", "metadata": metadata, "data": data }));
}

fn running(policy: Policy, key: Option<u32>) -> World {
    let mut w = member(policy, key);
    w.api_pod("web", "uid-1", SPEC);
    w.run(5);
    assert!(w.runs("web/main"), "{}", w.trace());
    w
}

/// Wherry starts with another setting or key.
fn restart(w: &mut World, policy: Policy, key: Option<u32>) {
    w.kill_engine();
    w.config.cluster.as_mut().unwrap().sealing = settings(policy, key);
    w.disk.key = key;
    w.start();
    w.run(5);
}

/// The records of Secrets and tokens: the plain ones and the sealed ones.
fn forms(w: &World) -> (usize, usize) {
    let secrets = w.disk.records.keys().filter(|key| key.starts_with("objects/secret.") || key.starts_with("tokens/"));
    let (sealed, plain): (Vec<_>, Vec<_>) = secrets.partition(|key| w.disk.sealed.contains_key(*key));
    (plain.len(), sealed.len())
}

fn variable(w: &World, name: &str) -> Option<String> {
    let id = w.running("web/main");
    w.runtime.containers[&id].env.get(name).cloned()
}

#[test]
fn c15_only_secrets_and_tokens_are_sealed_and_a_pod_has_them_offline() {
    let mut w = running(Policy::Auto, Some(1));
    assert_eq!((forms(&w), w.disk.sealed.len()), ((0, 3), 3), "{:?}", w.disk.sealed);
    w.api_away(true);
    w.reboot(S);
    w.run(60);
    assert!(w.runs("web/main"), "{}", w.trace());
    assert_eq!((variable(&w, "KEYS"), variable(&w, "MORE")), (Some("1".into()), Some("2".into())));
    assert_eq!(w.notices("FailedUnseal"), [""; 0]);
    w.api_away(false);
    w.api_delete_pod("web", 1);
    w.run(30);
    assert_eq!((forms(&w), w.disk.sealed.len()), ((0, 0), 0));
    w.assert_clean();
}

#[test]
fn c15_records_change_their_form_at_the_start_also_if_it_is_killed() {
    // The number of effects until the kill.
    for kill in [0, 1, 2, 3, 4, 6, 9] {
        let mut w = running(Policy::Auto, None);
        assert_eq!(forms(&w), (3, 0));
        w.api_away(true);
        for (policy, expected) in [(Policy::Auto, (0, 3)), (Policy::Never, (3, 0)), (Policy::Required, (0, 3))] {
            w.kill_after(kill, S);
            restart(&mut w, policy, Some(1));
            w.run(30);
            assert_eq!(forms(&w), expected, "{policy:?} {kill}: {}", w.trace());
            w.exit_of("web/main", 1);
            w.run(30);
            assert!(w.runs("web/main") && variable(&w, "KEYS") == Some("1".into()), "{}", w.trace());
        }
        w.api_away(false);
        w.run(10);
        w.assert_well();
    }
}

#[test]
fn c15_without_the_key_running_pods_stay_and_a_container_waits_for_the_server() {
    let mut w = running(Policy::Auto, Some(1));
    let before = w.running("web/main");
    w.api_away(true);
    restart(&mut w, Policy::Auto, None);
    w.run(60);
    assert_eq!(w.running("web/main"), before, "{}", w.trace());
    let [warning] = &w.notices("FailedUnseal")[..] else { panic!("{}", w.trace()) };
    assert!(warning.starts_with("3 records") && warning.contains("LoadCredentialEncrypted=wherry.key"), "{warning}");
    assert!(w.engine.sealing_problem().is_some_and(|problem| problem == *warning));
    // The optional Secret may exist.
    w.exit_of("web/main", 1);
    w.run(60);
    assert!(!w.runs("web/main"), "{}", w.trace());
    assert!(w.notices("FailedMount").iter().any(|message| message.contains("is sealed")), "{}", w.trace());
    assert_eq!(forms(&w), (0, 3), "nothing is lost, and nothing is plain");
    // The key is back.
    restart(&mut w, Policy::Auto, Some(1));
    w.run(60);
    assert!(w.runs("web/main") && variable(&w, "MORE") == Some("2".into()), "{}", w.trace());
    assert_eq!((forms(&w), w.engine.sealing_problem()), ((0, 3), None));
}

#[test]
fn c15_an_optional_secret_that_cannot_be_opened_may_exist() {
    let mut w = member(Policy::Auto, Some(1));
    w.api_pod("web", "uid-1", OPTIONAL);
    w.run(5);
    assert_eq!(variable(&w, "MORE"), Some("2".into()));
    w.api_away(true);
    restart(&mut w, Policy::Auto, None);
    w.exit_of("web/main", 1);
    w.run(60);
    assert!(!w.runs("web/main"), "{}", w.trace());
    let (reason, message) = w.waiting("web", "main");
    assert!(reason == "CreateContainerConfigError" && message.contains("is sealed"), "{reason} {message}");
    // The server has removed it meanwhile: then it is known not to exist.
    w.api_remove(SECRETS, "more");
    w.api_away(false);
    w.run(60);
    assert!(w.runs("web/main") && variable(&w, "MORE").is_none(), "{}", w.trace());
    assert_eq!(forms(&w), (0, 0), "its record is gone");
}

#[test]
fn c15_without_the_key_the_server_is_enough_and_no_plain_text_is_written() {
    let mut w = running(Policy::Auto, Some(1));
    restart(&mut w, Policy::Auto, None);
    w.exit_of("web/main", 1);
    w.run(30);
    assert!(w.runs("web/main") && variable(&w, "KEYS") == Some("1".into()), "{}", w.trace());
    set_secret(&mut w, "keys", "Mw==");
    w.run(5);
    w.exit_of("web/main", 1);
    w.run(60);
    assert_eq!((variable(&w, "KEYS"), forms(&w)), (Some("3".into()), (0, 3)), "{}", w.trace());
    // The next start with the key has the new value.
    restart(&mut w, Policy::Auto, Some(1));
    w.api_away(true);
    restart(&mut w, Policy::Auto, Some(1));
    w.exit_of("web/main", 1);
    w.run(60);
    assert_eq!((variable(&w, "KEYS"), forms(&w)), (Some("3".into()), (0, 3)), "{}", w.trace());
}

#[test]
fn c15_required_without_a_key_writes_nothing_and_pods_run_while_the_server_answers() {
    let mut w = running(Policy::Required, None);
    assert_eq!(forms(&w), (0, 0));
    let [warning] = &w.notices("FailedSeal")[..] else { panic!("{}", w.trace()) };
    assert!(warning.contains("sealSecrets is Required"), "{warning}");
    let pod = w.engine.pods().into_iter().next().unwrap().pod.clone();
    let expectation = serde_json::to_value(w.engine.expectation(&pod).unwrap()).unwrap();
    assert_eq!(expectation["reboot"]["waits"].as_array().map(Vec::len), Some(3), "{expectation}");
    w.api_away(true);
    w.reboot(S);
    w.run(60);
    assert!(!w.runs("web/main"), "{}", w.trace());
    w.api_away(false);
    w.run(30);
    assert!(w.runs("web/main"), "{}", w.trace());
}

#[test]
fn c15_with_another_key_the_answers_of_the_server_replace_the_records() {
    let mut w = running(Policy::Auto, Some(1));
    w.api_away(true);
    restart(&mut w, Policy::Auto, Some(2));
    w.run(30);
    let [warning] = &w.notices("FailedUnseal")[..] else { panic!("{}", w.trace()) };
    assert!(warning.contains("a key other than"), "{warning}");
    assert!(w.disk.sealed.values().all(|key| *key == 1) && forms(&w) == (0, 3));
    w.api_away(false);
    w.run(30);
    assert!(w.disk.sealed.values().all(|key| *key == 2) && forms(&w) == (0, 3), "{:?}", w.disk.sealed);
    assert!(w.runs("web/main"));
}

#[test]
fn c15_records_that_cannot_be_opened_disappear_with_their_pod_and_with_the_membership() {
    let mut w = running(Policy::Auto, Some(1));
    restart(&mut w, Policy::Auto, None);
    w.api_delete_pod("web", 1);
    w.run(30);
    assert_eq!(forms(&w), (0, 0), "{:?}", w.disk.records.keys());
    let mut w = running(Policy::Auto, Some(1));
    w.kill_engine();
    w.disk.key = None;
    w.config.cluster = None;
    w.start();
    w.run(60);
    assert_eq!(forms(&w), (0, 0), "{:?}", w.disk.records.keys());
}

#[test]
fn c15_the_dump_has_no_value() {
    let mut w = running(Policy::Auto, Some(1));
    restart(&mut w, Policy::Auto, None);
    let dump = serde_json::to_string(&w.engine).unwrap();
    assert!(dump.contains("objects/secret.default.keys") && !dump.contains("MQ=="), "{dump}");
}

#[test]
fn c15_records_that_cannot_be_opened_go_with_their_pod() {
    let mut w = running(Policy::Auto, Some(1));
    w.api_away(true);
    restart(&mut w, Policy::Auto, None);
    w.run(10);
    assert_eq!(forms(&w), (0, 3));
    w.api_remove(PODS, "web");
    w.api_away(false);
    w.run(60);
    assert_eq!((forms(&w), w.runs("web/main")), ((0, 0), false), "{}", w.trace());
    w.assert_clean();
}
