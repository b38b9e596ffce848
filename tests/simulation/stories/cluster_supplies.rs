//! C4: what a pod of the API server needs from it: tokens, services, RuntimeClasses.

use crate::runtime::Life;
use crate::stories::cluster::member;
use crate::story::ONE;
use crate::world::{S, World};
use serde_json::{Value, json};
use std::time::Duration;

const TOKEN: &str = "containers: [{name: main, image: 'busybox:1.35', volumeMounts: [{name: t, mountPath: /t}]}], \
                     volumes: [{name: t, projected: {sources: [{serviceAccountToken: {path: token, expirationSeconds: 3607}}]}}]";

/// The token in the volume of the pod.
fn token(w: &World) -> String {
    let files = w.volumes.files.get(&"uid-1".into()).cloned().unwrap_or_default();
    files.iter().find_map(|file| file.strip_prefix("t/token 644 ")).unwrap_or_default().to_owned()
}

/// A pod with a token runs.
fn with_token() -> World {
    let mut w = member();
    w.api_pod("web", "uid-1", TOKEN);
    w.run(5);
    assert!(w.runs("web/main"), "{}", w.trace());
    assert_eq!((token(&w).as_str(), w.api.issued), ("token-1", 1));
    w
}

fn warnings(w: &World) -> Vec<String> {
    let all = w.observed.notices.iter().map(|(_, notice)| format!("{} {}", notice.reason, notice.message));
    all.filter(|text| text.contains("token")).collect()
}

fn service(name: &str, address: &str) -> Value {
    json!({ "metadata": { "name": name, "namespace": "default" },
        "spec": { "clusterIP": address, "ports": [{ "port": 80, "protocol": "TCP" }] } })
}

/// A variable of the container.
fn variable(w: &World, name: &str) -> Option<String> {
    let id = w.running("web/main");
    w.runtime.containers[&id].env.get(name).cloned()
}

#[test]
fn c4_a_token_is_in_the_volume_and_is_replaced_in_time() {
    let mut w = with_token();
    let record = w.disk.records.iter().find(|(key, _)| key.starts_with("tokens/uid-1.")).map(|(_, text)| text.clone());
    assert!(record.is_some_and(|text| text.contains("token-1")), "the token is on the disk");
    w.run(2690);
    assert_eq!(w.api.issued, 1, "75 % of 3607 s are 2705 s, and 80 % are 2885 s");
    w.run(210);
    assert_eq!((token(&w).as_str(), w.api.issued), ("token-2", 2), "{}", w.trace());
    assert_eq!(w.api.count("POST /api/v1/namespaces/default/serviceaccounts/default/token"), 2);
    w.api_delete_pod("web", 1);
    w.run(20);
    assert!(!w.disk.records.keys().any(|key| key.starts_with("tokens/")), "{:?}", w.disk.records.keys());
    w.assert_clean();
}

#[test]
fn c4_a_pod_that_has_ended_keeps_no_watch_no_copy_and_no_token() {
    let mut w = member();
    let watches = w.api.watches();
    let data = json!({ "metadata": { "name": "settings", "namespace": "default" }, "data": { "A": "1" } });
    w.api_set("/api/v1/namespaces/default/configmaps", data);
    let with_settings = TOKEN.replace("volumes: [", "volumes: [{name: s, configMap: {name: settings}}, ");
    w.life("web/main", &[Life::exits(0, Duration::from_secs(20))]);
    w.api_pod("web", "uid-1", &format!("{with_settings}, restartPolicy: Never"));
    w.run(5);
    assert!(w.runs("web/main") && w.api.watches() > watches, "{}", w.trace());
    let expectation = |w: &World| w.engine.pod(&"uid-1".into()).and_then(|view| w.engine.expectation(view.pod));
    assert!(expectation(&w).is_some());
    let kept = |w: &World| w.disk.records.keys().any(|key| key.starts_with("tokens/") || key.starts_with("objects/"));
    assert!(kept(&w));
    w.run(30);
    assert_eq!(w.api.pod("web").map(|pod| pod["status"]["phase"].clone()), Some(json!("Succeeded")));
    assert_eq!((w.api.watches(), kept(&w)), (watches, false), "{}", w.trace());
    assert_eq!(expectation(&w), None, "it waits for nothing that it does not keep");
    w.run(2 * 3600);
    assert_eq!(w.api.issued, 1, "its token is not replaced");
    assert!(w.notices("FailedMount").is_empty(), "{:?}", w.notices("FailedMount"));
}

/// D6: each volume of a pod is updated by itself.
#[test]
fn c4_a_token_is_replaced_although_another_volume_has_lost_its_object() {
    const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
    let mut w = member();
    w.api_set(CONFIG_MAPS, json!({ "metadata": { "name": "settings", "namespace": "default" }, "data": { "A": "1" } }));
    w.api_pod("web", "uid-1", &TOKEN.replace("volumes: [", "volumes: [{name: s, configMap: {name: settings}}, "));
    w.run(5);
    assert!(w.runs("web/main"), "{}", w.trace());
    w.api_remove(CONFIG_MAPS, "settings");
    w.run(2900);
    assert_eq!((token(&w).as_str(), w.api.issued), ("token-2", 2), "{}", w.trace());
    let files = w.volumes.files.get(&"uid-1".into()).cloned().unwrap_or_default();
    assert!(files.contains(&"s/A 644 1".to_owned()), "{files:?}");
    let why =
        "MountVolume.SetUp failed for volume \"s\" : configmap \"settings\" not found; the volume keeps its files";
    assert_eq!(w.notices("FailedMount"), [why]);
}

#[test]
fn c4_a_token_that_the_server_accepts_for_a_year_is_replaced_in_time_too() {
    let mut w = member();
    w.api.extends_tokens = true;
    w.api_pod("web", "uid-1", TOKEN);
    w.run(2690);
    assert_eq!(w.api.issued, 1, "{}", w.trace());
    w.run(210);
    assert_eq!(w.api.issued, 2, "{}", w.trace());
}

#[test]
fn c4_a_restart_of_wherry_requests_no_token() {
    let mut w = with_token();
    for _ in 0..3 {
        w.run(60);
        w.restart_engine();
    }
    w.run(60);
    assert_eq!((w.api.issued, token(&w).as_str()), (1, "token-1"));
    // The age counts across restarts.
    w.run(2750);
    assert_eq!(w.api.issued, 2);
}

#[test]
fn c4_without_the_server_a_pod_keeps_its_token_also_after_its_end() {
    let mut w = with_token();
    w.api_away(true);
    w.run(7200);
    let warned = warnings(&w);
    assert!(warned.len() == 1 && warned[0].starts_with("TokenExpired"), "{warned:?}");
    w.reboot(S);
    w.run(60);
    assert!(w.runs("web/main"), "{}", w.trace());
    assert_eq!(token(&w), "token-1");
    w.api_away(false);
    w.run(5);
    assert_eq!(token(&w), "token-2", "{}", w.trace());
}

#[test]
fn c4_a_pod_waits_silently_until_the_server_issues_its_token() {
    let mut w = member();
    w.api.unrelated = 2;
    w.api_pod("web", "uid-1", TOKEN);
    w.run(10);
    assert!(w.runs("web/main") && warnings(&w).is_empty(), "{}", w.trace());
}

/// A pod was bound 2 s ago, and the server has not issued its token yet.
fn without_token() -> World {
    let mut w = member();
    w.api.token_latency = 3 * S;
    w.api_pod("web", "uid-1", TOKEN);
    w.run(2);
    w
}

#[test]
fn c4_the_sandbox_does_not_wait_for_the_token_and_the_container_does() {
    let mut w = without_token();
    let calls = w.take_calls();
    let of = |text: &str| calls.iter().filter(|call| call.starts_with(text)).count();
    assert_eq!((of("RunSandbox"), of("CreateContainer")), (1, 0), "{calls:?}");
    let warned = warnings(&w);
    assert!(warned.len() == 1 && warned[0].starts_with("FailedMount"), "{warned:?}");
    w.run(2);
    assert!(w.runs("web/main"), "{}", w.trace());
    assert_eq!(token(&w), "token-1");
    assert_eq!(w.take_calls().iter().filter(|call| call.starts_with("RunSandbox")).count(), 0);
    w.api_delete_pod("web", 1);
    w.run(20);
    w.assert_clean();
}

#[test]
fn c4_a_pod_whose_token_was_not_issued_before_a_reboot_starts_when_the_server_is_back() {
    let mut w = without_token();
    w.api_away(true);
    w.reboot(S);
    w.run(60);
    assert!(!w.runs("web/main"), "{}", w.trace());
    assert!(warnings(&w).iter().any(|text| text.starts_with("FailedMount")), "{:?}", warnings(&w));
    w.api_away(false);
    w.run(10);
    assert!(w.runs("web/main"), "{}", w.trace());
    assert!(token(&w).starts_with("token-"));
}

#[test]
fn c4_a_pod_whose_account_is_missing_says_so_and_starts_with_it() {
    let mut w = member();
    w.api.no_account = true;
    w.api_pod("web", "uid-1", TOKEN);
    w.run(10);
    let warned = warnings(&w);
    assert!(!w.runs("web/main") && warned[0].starts_with("FailedMount"), "{warned:?}");
    assert!(warned[0].contains("failed to fetch token: 404: NotFound"), "{warned:?}");
    w.api.no_account = false;
    w.run(60);
    assert!(w.runs("web/main"), "{}", w.trace());
}

#[test]
fn c4_the_services_are_in_the_environment() {
    let mut w = member();
    let services = "/api/v1/namespaces/default/services";
    w.api_set(services, service("kubernetes", "10.0.0.1"));
    w.api_set(services, service("db", "10.0.0.9"));
    w.api_set(services, service("headless", "None"));
    w.api_pod("web", "uid-1", ONE);
    w.run(5);
    assert_eq!(variable(&w, "KUBERNETES_SERVICE_HOST").as_deref(), Some("10.0.0.1"), "{}", w.trace());
    assert_eq!(variable(&w, "DB_PORT").as_deref(), Some("tcp://10.0.0.9:80"));
    assert_eq!(variable(&w, "HEADLESS_SERVICE_HOST"), None);
    // Also after a reboot without the server, and for a new container after a change.
    w.api_set(services, service("db", "10.0.0.10"));
    w.run(1);
    w.api_away(true);
    w.reboot(S);
    w.run(60);
    assert_eq!(variable(&w, "DB_SERVICE_HOST").as_deref(), Some("10.0.0.10"), "{}", w.trace());
    assert_eq!(variable(&w, "KUBERNETES_SERVICE_HOST").as_deref(), Some("10.0.0.1"));
}

#[test]
fn c4_a_pod_has_the_runtime_class_of_the_cluster() {
    let mut w = member();
    w.api_pod("web", "uid-1", &format!("{ONE}, runtimeClassName: plain"));
    w.run(5);
    assert!(!w.runs("web/main"));
    let class = json!({ "metadata": { "name": "plain" }, "handler": "" });
    w.api_set("/apis/node.k8s.io/v1/runtimeclasses", class);
    w.run(60);
    assert!(w.runs("web/main"), "{}", w.trace());
    w.api_away(true);
    w.reboot(S);
    w.run(60);
    assert!(w.runs("web/main"), "{}", w.trace());
    // Without a pod that names a class, there is no watch.
    w.api_away(false);
    w.api_delete_pod("web", 1);
    w.run(20);
    assert!(!w.disk.records.contains_key("lists/runtimeclasses"), "{:?}", w.disk.records.keys());
}

#[test]
fn c4_the_dump_shows_the_objects_and_the_tokens() {
    let mut w = with_token();
    let spec = "containers: [{name: main, image: 'busybox:1.35', envFrom: [{configMapRef: {name: settings, optional: true}}]}]";
    w.api_pod("db", "uid-2", spec);
    w.run(5);
    let dump = w.engine.dump();
    let text = dump.to_string();
    assert!(dump.is_object(), "{dump}");
    assert!(text.contains("ConfigMap default/settings") && text.contains("uid-1 3607 s"), "{text}");
    assert!(!text.contains("token-1"), "a token is secret");
}
