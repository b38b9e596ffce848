//! C14: an API server whose cache is behind shows the past.

use crate::stories::cluster::{member, running};
use crate::story::ONE;
use crate::world::World;
use serde_json::json;

const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";

fn settings(value: &str) -> serde_json::Value {
    let metadata = json!({ "name": "settings", "namespace": "default" });
    json!({ "kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata, "data": { "a": value } })
}

fn starts(w: &World) -> usize {
    w.observed.calls.iter().filter(|(_, call)| call.starts_with("StartContainer")).count()
}

/// The server is one with an old cache, which shows `web` as it was before `change`, at a start of Wherry.
fn time_travel(change: impl FnOnce(&mut World)) -> World {
    let mut w = running("web");
    w.api_lags();
    w.run(5);
    change(&mut w);
    w
}

#[test]
fn c14_a_pod_that_was_removed_does_not_run_again_because_of_an_old_list() {
    for force in [false, true] {
        let mut w = running("web");
        // The deletion is seen, and then another server of the cluster answers.
        let past = w.api.pod("web").cloned().unwrap();
        match force {
            true => w.api_remove("/api/v1/namespaces/default/pods", "web"),
            false => w.api_delete_pod("web", 1),
        }
        w.run(20);
        assert!(w.api.pod("web").is_none() && !w.runs("web/main"), "{}", w.trace());
        w.api_lags_with(past);
        let before = starts(&w);
        w.restart_engine();
        w.run(120);
        assert_eq!(starts(&w), before, "{force}: {}", w.trace());
        // The server is current again.
        w.api_catches_up();
        w.api_pod("next", "uid-2", ONE);
        w.run(40);
        assert!(w.runs("next/main"), "{}", w.trace());
    }
}

#[test]
fn c14_a_deletion_is_not_forgotten_because_of_an_old_list() {
    let mut w = running("web");
    let past = w.api.pod("web").cloned().unwrap();
    w.life("web/main", &[crate::runtime::Life::deaf()]);
    w.exit_of("web/main", 1);
    w.run(5);
    w.api_delete_pod("web", 30);
    w.run(2);
    w.api_lags_with(past);
    let before = starts(&w);
    w.restart_engine();
    w.run(60);
    assert_eq!((starts(&w), w.runs("web/main")), (before, false), "{}", w.trace());
    w.api_catches_up();
    w.run(20);
    assert!(w.api.pod("web").is_none(), "{}", w.trace());
    w.assert_clean();
}

#[test]
fn c14_a_pod_that_an_old_list_lacks_runs_on() {
    let mut w = running("web");
    let first = w.running("web/main");
    w.api_lags_without("web");
    w.restart_engine();
    w.run(60);
    assert_eq!(w.running("web/main"), first, "{}", w.trace());
    w.api_catches_up();
    w.run(20);
    assert_eq!(w.running("web/main"), first, "{}", w.trace());
}

#[test]
fn c14_a_newer_configmap_is_not_replaced_by_an_older_one() {
    let mut w = member();
    w.api_set(CONFIGMAPS, settings("old"));
    w.api_pod("web", "uid-1", &format!("{ONE}, volumes: [{{name: v, configMap: {{name: settings}}}}]"));
    w.run(5);
    let past = w.api.object(CONFIGMAPS, "settings").cloned().unwrap();
    w.api_set(CONFIGMAPS, settings("new"));
    w.run(5);
    let record = |w: &World| w.disk.records["objects/configmap.default.settings"].clone();
    assert!(record(&w).contains("new"), "{}", record(&w));
    w.api_lags_with(past);
    w.restart_engine();
    w.run(60);
    assert!(record(&w).contains("new"), "{}", record(&w));
    w.api_catches_up();
    w.api_set(CONFIGMAPS, settings("newest"));
    w.run(40);
    assert!(record(&w).contains("newest"), "{}", record(&w));
}

#[test]
fn c14_labels_of_the_node_are_not_replaced_by_older_ones() {
    let mut w = running("web");
    w.api_lags();
    let mut node = w.api.node().cloned().unwrap();
    node["metadata"]["labels"] = json!({ "zone": "north" });
    w.api_set("/api/v1/nodes", node);
    w.run(2);
    w.restart_engine();
    w.run(20);
    let labels = w.disk.records.get("cluster/node").cloned().unwrap_or_default();
    assert!(labels.contains("north"), "{labels}: {}", w.trace());
}

#[test]
fn c14_a_server_that_never_has_the_version_is_read_in_the_end() {
    // The cluster was restored from a backup.
    let mut w = running("web");
    w.api_delete_pod("web", 1);
    w.run(20);
    w.kill_engine();
    w.api.restore_from_backup();
    w.start();
    w.run(5);
    w.api_pod("next", "uid-2", ONE);
    w.run(60);
    assert!(w.runs("next/main"), "{}", w.trace());
}

#[test]
fn c14_a_server_that_lags_shows_nothing_twice() {
    let mut w = time_travel(|w| w.api_pod("next", "uid-2", ONE));
    w.run(30);
    assert!(!w.runs("next/main"));
    w.api_catches_up();
    w.run(5);
    assert!(w.runs("next/main") && w.runs("web/main"), "{}", w.trace());
}
