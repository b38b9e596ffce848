//! C8: the pods of manifests have mirrors at the API server.

use crate::runtime::Life;
use crate::stories::cluster::{cluster, member};
use crate::story::{ONE, node_with};
use crate::world::{S, World};
use serde_json::{Value, json};

/// The mirror of the pod `local`.
fn mirror(w: &World) -> Option<&Value> {
    w.api.pod("local-lab")
}

/// A node with a pod of a manifest, and its mirror.
fn mirrored() -> World {
    let mut w = member();
    w.file("local", ONE);
    w.run(5);
    assert!(w.runs("local/main") && mirror(&w).is_some(), "{}", w.trace());
    w
}

#[test]
fn c8_a_pod_of_a_manifest_has_a_mirror_with_its_status() {
    let mut w = mirrored();
    let object = mirror(&w).unwrap();
    assert_eq!(object["status"]["phase"], "Running", "{object:#}");
    assert_eq!(object["metadata"]["ownerReferences"][0]["kind"], "Node");
    assert!(w.api.events().contains(&"Started".to_owned()), "{:?}", w.api.events());
    // It is no pod of its own.
    assert_eq!(w.api.count("POST /api/v1/namespaces/default/pods"), 1);
    w.run(600);
    assert_eq!(w.api.count("POST /api/v1/namespaces/default/pods"), 1);
    w.exit_of("local/main", 1);
    w.run(30);
    assert_eq!(mirror(&w).unwrap()["status"]["containerStatuses"][0]["restartCount"], 1, "{}", w.trace());
    w.assert_well();
}

#[test]
fn c8_a_mirror_that_a_user_deletes_is_created_again_and_the_pod_runs_on() {
    let mut w = mirrored();
    let before = w.running("local/main");
    let mut object = mirror(&w).cloned().unwrap();
    let uid = object["metadata"]["uid"].clone();
    object["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:00Z");
    object["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    w.api_set("/api/v1/namespaces/default/pods", object);
    w.run(5);
    let object = mirror(&w).expect("a mirror");
    assert!(object["metadata"]["uid"] != uid && object["status"]["phase"] == "Running", "{}", w.trace());
    // Also after a removal by force.
    w.api_remove("/api/v1/namespaces/default/pods", "local-lab");
    w.run(5);
    assert!(mirror(&w).is_some(), "{}", w.trace());
    assert_eq!(w.running("local/main"), before);
}

#[test]
fn c8_a_mirror_ends_with_its_pod_and_follows_its_version() {
    let mut w = mirrored();
    let digest = |w: &World| mirror(w).map(|m| m["metadata"]["annotations"]["wherry.io/digest"].clone());
    let first = digest(&w);
    w.life("local/main", &[Life::deaf()]);
    w.file("local", &format!("{ONE}, terminationGracePeriodSeconds: 5"));
    w.run(20);
    assert!(w.runs("local/main") && digest(&w).is_some() && digest(&w) != first, "{}", w.trace());
    // A restart of Wherry changes nothing.
    let uid = mirror(&w).unwrap()["metadata"]["uid"].clone();
    w.restart_engine();
    w.run(20);
    assert_eq!(mirror(&w).expect("a mirror")["metadata"]["uid"], uid, "{}", w.trace());
    // The mirror stays until nothing of the pod runs.
    w.remove("local");
    w.run(3);
    assert!(mirror(&w).is_some());
    w.run(40);
    assert!(mirror(&w).is_none() && !w.runs("local/main"), "{}", w.trace());
}

#[test]
fn c8_pods_that_change_during_an_absence_are_mirrored_later() {
    let mut w = node_with(cluster());
    w.api_away(true);
    w.file("local", ONE);
    w.run(30);
    assert!(w.runs("local/main") && mirror(&w).is_none());
    w.api_away(false);
    w.run(5);
    assert_eq!(mirror(&w).expect("a mirror")["status"]["phase"], "Running", "{}", w.trace());
    w.api_away(true);
    w.remove("local");
    w.run(60);
    w.reboot(S);
    w.run(30);
    w.api_away(false);
    w.run(10);
    assert!(mirror(&w).is_none(), "{}", w.trace());
}

#[test]
fn c8_a_mirror_follows_the_version_of_a_pod_with_a_fixed_uid() {
    let mut w = member();
    let digest = |w: &World| mirror(w).map(|m| m["metadata"]["annotations"]["wherry.io/digest"].clone());
    w.file_with_uid("local", "fixed", ONE);
    w.run(5);
    let first = digest(&w).expect("a mirror");
    w.file_with_uid("local", "fixed", &format!("{ONE}, terminationGracePeriodSeconds: 5"));
    w.run(60);
    let second = digest(&w).expect("a mirror");
    assert!(second != first && mirror(&w).unwrap()["status"]["phase"] == "Running", "{}", w.trace());
}

#[test]
fn c8_a_mirror_follows_a_change_that_ends_nothing() {
    let mut w = member();
    let spec = |cpu: &str| {
        format!("containers: [{{name: main, image: 'busybox:1.35', resources: {{requests: {{cpu: {cpu}}}}}}}]")
    };
    let requested = |w: &World| mirror(w).map(|m| m["spec"]["containers"][0]["resources"]["requests"]["cpu"].clone());
    w.file_with_uid("local", "fixed", &spec("100m"));
    w.run(5);
    assert_eq!(requested(&w), Some("100m".into()), "{}", w.trace());
    w.file_with_uid("local", "fixed", &spec("200m"));
    w.run(60);
    assert_eq!((requested(&w), w.times("StartContainer", 0).len()), (Some("200m".into()), 1), "{}", w.trace());
}

#[test]
fn c8_the_status_reaches_the_mirror_with_the_new_name_although_the_old_one_is_still_there() {
    // The server gives the mirrors UIDs in both orders.
    for earlier in 0..10 {
        let mut w = member();
        for n in 0..earlier {
            w.api_set("/api/v1/namespaces/default/configmaps", json!({ "metadata": { "name": format!("c{n}") } }));
        }
        w.api_lags();
        w.file_with_uid("a", "fixed", ONE);
        w.run_ms(20);
        w.remove("a");
        w.file_with_uid("b", "fixed", ONE);
        w.run(1);
        w.api_catches_up();
        w.run(20);
        let status = &w.api.pod("b-lab").expect("the mirror")["status"];
        assert_eq!(status["phase"], "Running", "{}", w.trace());
        assert!(w.api.pod("a-lab").is_none(), "{}", w.trace());
        w.assert_well();
    }
}
