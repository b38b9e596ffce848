//! C2, C5: the end of a pod at the API server is reported, and is final.

use crate::runtime::Life;
use crate::stories::cluster::{cluster, member};
use crate::stories::shutdown::with_shutdown;
use crate::story::{NEVER, ONE, node_with};
use crate::world::api_server::PODS;
use crate::world::{S, World};
use serde_json::json;
use std::time::Duration;
use wherry::engine::config::EngineConfig;
use wherry::engine::control::{Request, RequestError};
use wherry::engine::pod::kill::TerminationSource;

/// A registered node with a graceful shutdown.
pub fn with_graceful_shutdown() -> World {
    let mut w = node_with(EngineConfig { cluster: cluster().cluster, ..with_shutdown() });
    w.run(5);
    assert!(w.api.node().is_some(), "{}", w.trace());
    w
}

impl World {
    fn phase_at_server(&self, name: &str) -> &str {
        self.api.pod(name).and_then(|pod| pod["status"]["phase"].as_str()).unwrap_or_default()
    }
}

#[test]
fn c2_a_container_that_cannot_start_takes_no_restart_back() {
    let mut w = member();
    w.life("web/main", &[Life::exits(1, Duration::from_secs(5)), Life::cannot_start()]);
    w.api_pod("web", "uid-1", ONE);
    let restarts = |w: &World| {
        let pod = w.api.pod("web").cloned().expect("a pod");
        pod["status"]["containerStatuses"][0]["restartCount"].clone()
    };
    w.until("the second start is reported", 20, |w| restarts(w) == 1);
    w.run(5);
    assert_eq!(restarts(&w), 1, "{}", w.trace());
    w.restart_engine();
    w.run(5);
    assert_eq!(restarts(&w), 1, "{}", w.trace());
}

#[test]
fn c2_an_end_that_a_killed_run_did_not_report_is_reported() {
    let mut w = member();
    w.life("job/main", &[Life::exits(0, Duration::from_secs(10))]);
    w.api_pod("job", "uid-1", NEVER);
    w.run(5);
    w.api_away(true);
    w.run(60);
    w.kill_engine();
    w.api_away(false);
    w.start();
    w.run(10);
    assert_eq!(w.phase_at_server("job"), "Succeeded", "{}", w.trace());
    w.assert_well();
}

#[test]
fn c2_a_pod_that_has_ended_at_the_server_does_not_run_again() {
    let mut w = member();
    w.api_pod("web", "uid-1", ONE);
    w.run(5);
    let record = w.disk.records["pods/uid-1"].clone();
    w.kill_uid("uid-1".into(), TerminationSource::Eviction, Some(1));
    w.run(10);
    assert_eq!((w.phase_at_server("web"), w.runs("web/main")), ("Failed", false), "{}", w.trace());
    // A power failure loses the record of the end. The server may answer before the manifests are read.
    for late in [0, S] {
        w.kill_engine();
        w.disk.records.insert("pods/uid-1".into(), record.clone());
        w.manifests_take(late);
        w.start();
        w.run(60);
        assert!(!w.runs("web/main"), "{}", w.trace());
    }
    w.manifests_take(0);
    w.restart_engine();
    w.run(60);
    assert_eq!((w.phase_at_server("web"), w.runs("web/main")), ("Failed", false), "{}", w.trace());
    assert_eq!(w.api.pod("web").unwrap()["status"]["reason"], "Evicted");
    w.api_delete_pod("web", 1);
    w.run(5);
    assert!(w.api.pod("web").is_none(), "{}", w.trace());
}

#[test]
fn c2_the_remains_of_a_pod_that_has_ended_at_the_server_are_stopped() {
    let mut w = member();
    w.life("web/main", &[Life { on_term: Some((Duration::from_secs(5), 0)), ..Life::FOREVER }]);
    w.api_pod("web", "uid-1", ONE);
    w.run(5);
    let mut pod = w.api.pod("web").unwrap().clone();
    w.kill_engine();
    // The disk has lost the record, and a controller has given the pod up.
    w.disk.records.clear();
    pod["status"]["phase"] = "Failed".into();
    w.api_set(PODS, pod);
    w.start();
    w.run(2);
    // While the remains are being stopped, another pod comes.
    w.api_pod("other", "uid-2", ONE);
    w.run(60);
    assert_eq!((w.phase_at_server("web"), w.runs("web/main")), ("Failed", false), "{}", w.trace());
    let shown: Vec<String> = w.engine.pods().iter().map(|view| view.pod.uid.to_string()).collect();
    assert_eq!(shown, ["uid-2"], "{}", w.trace());
    w.assert_well();
}

#[test]
fn c2_a_pod_that_waits_for_its_predecessor_does_not_fail_at_a_restart_without_the_server() {
    let mut w = member();
    w.life("web/main", &[Life::deaf(), Life::FOREVER]);
    w.api_pod("web", "uid-1", ONE);
    w.run(5);
    w.api_remove(PODS, "web");
    w.api_pod("web", "uid-2", ONE);
    w.run(2);
    assert!(w.disk.records.contains_key("pods/uid-1") && w.disk.records.contains_key("pods/uid-2"), "{}", w.trace());
    w.api_away(true);
    w.restart_engine();
    w.run(10);
    w.api_away(false);
    w.run(90);
    assert!(w.runs("web/main") && w.phase_at_server("web") == "Running", "{}", w.trace());
    w.assert_well();
}

#[test]
fn c5_a_pod_that_a_shutdown_rejects_has_failed_for_good() {
    let mut w = with_graceful_shutdown();
    w.power_off();
    w.run(1);
    w.api_pod("late", "uid-1", ONE);
    w.run(1);
    assert_eq!(w.phase_at_server("late"), "Failed", "{}", w.trace());
    w.call_off();
    w.run(30);
    assert!(!w.runs("late/main"), "its controller has created another one: {}", w.trace());
    w.restart_engine();
    w.run(30);
    assert!(!w.runs("late/main"), "{}", w.trace());
}

#[test]
fn c5_a_pod_that_runs_again_after_a_shutdown_never_ends_at_the_server() {
    let mut w = with_graceful_shutdown();
    w.life("web/main", &[Life { on_term: Some((Duration::from_secs(2), 0)), ..Life::FOREVER }]);
    w.api_pod("web", "uid-1", ONE);
    w.run(5);
    w.power_off();
    w.run(1);
    // The pod is still ending when the shutdown is cancelled.
    w.call_off();
    for _ in 0..30 {
        w.run(1);
        assert!(!["Failed", "Succeeded"].contains(&w.phase_at_server("web")), "{}", w.trace());
    }
    assert!(w.runs("web/main") && w.phase_at_server("web") == "Running", "{}", w.trace());
}

#[test]
fn c5_a_pod_runs_after_a_shutdown_without_the_server_although_the_start_is_killed() {
    for effects in 0..60 {
        let mut w = with_graceful_shutdown();
        w.api_pod("web", "uid-1", ONE);
        w.run(5);
        w.power_off();
        w.run(2);
        w.api_away(true);
        w.reboot(0);
        w.kill_after(effects, 0);
        w.run(60);
        assert!(w.runs("web/main"), "{effects}: {}", w.trace());
    }
}

#[test]
fn c5_restart_counts_ends_and_the_start_time_continue_after_a_shutdown() {
    let of = |w: &World| {
        let status = &w.api.pod("web").expect("the pod")["status"];
        let container = &status["containerStatuses"][0];
        let ended = container["lastState"]["terminated"].is_object();
        let start = w.engine.pods()[0].status.start_time.clone();
        (container["restartCount"].as_u64(), ended, start, status["phase"].clone())
    };
    for kill_at in (0..60).map(Some).chain([None]) {
        let mut w = with_graceful_shutdown();
        w.life("web/main", &[Life::exits(1, Duration::from_secs(3)), Life::FOREVER]);
        w.api_pod("web", "uid-1", ONE);
        w.run(60);
        let first = of(&w);
        assert_eq!((first.0, first.1), (Some(1), true), "{}", w.trace());
        for boot in 1..3 {
            w.power_off();
            w.run(5);
            w.api_away(true);
            w.reboot(0);
            if let Some(effects) = kill_at {
                w.kill_after(effects, 0);
            }
            w.run(60);
            w.api_away(false);
            w.run(30);
            let expected = (Some(1 + boot), true, first.2.clone(), first.3.clone());
            assert_eq!(of(&w), expected, "{kill_at:?}: {}", w.trace());
        }
        w.assert_well();
    }
}

/// The init container and the containers run again after a boot, although the server does not permit that of those that have ended.
#[test]
fn c5_an_end_that_the_server_keeps_does_not_hide_the_new_run_of_a_pod() {
    for policy in ["Never", "OnFailure"] {
        for graceful in [true, false].into_iter().filter(|graceful| *graceful || policy == "OnFailure") {
            let mut w = with_graceful_shutdown();
            w.life("job/init", &[Life::exits(0, Duration::from_secs(1))]);
            w.life("job/done", &[Life::exits(0, Duration::from_secs(1)), Life::FOREVER]);
            let of = |name: &str| format!("{{name: {name}, image: 'busybox:1.35'}}");
            let (init, done, main) = (of("init"), of("done"), of("main"));
            let spec = format!("restartPolicy: {policy}, initContainers: [{init}], containers: [{done}, {main}]");
            w.api_pod("job", "uid-1", &spec);
            w.run(10);
            assert!(w.runs("job/main") && !w.runs("job/done"), "{}", w.trace());
            w.api_away(true);
            if graceful {
                w.power_off();
                w.run(5);
            }
            w.reboot(0);
            w.run(60);
            w.api_away(false);
            // (The world checks each status that the server gets.)
            w.run(30);
            assert!(w.runs("job/main"), "{policy} {graceful}: {}", w.trace());
            let status = &w.api.pod("job").unwrap()["status"];
            let ended = |list: &str, at: usize| status[list][at]["state"]["terminated"].is_object();
            assert!(ended("initContainerStatuses", 0) && ended("containerStatuses", 0), "{status}");
            // What follows is reported nevertheless.
            let main = &status["containerStatuses"][1];
            assert!(main["state"]["running"].is_object() && main["restartCount"] == 1, "{status}");
            assert_eq!(w.notices("ApiServerError"), Vec::<String>::new());
            w.assert_well();
        }
    }
}

#[test]
fn c2_the_last_status_of_a_deleted_pod_stays_when_its_containers_are_gone() {
    let mut regressed = 0;
    for effects in 0..40 {
        let mut w = member();
        w.life("web/main", &[Life::exits(1, Duration::from_secs(3)), Life::FOREVER]);
        w.api_pod("web", "uid-1", ONE);
        w.run(60);
        assert!(w.runs("web/main"), "{}", w.trace());
        w.api_delete_pod("web", 1);
        w.kill_after(effects, 0);
        // (The world checks each status that the server gets.)
        w.run(30);
        regressed += usize::from(w.api.pod("web").is_some());
        w.assert_well();
        let last = w.api.removed("web").cloned().unwrap_or_default();
        let main = &last["status"]["containerStatuses"][0];
        assert!(main["state"]["terminated"].is_object() && main["restartCount"] == 1, "{effects}: {last:#}");
    }
    assert_eq!(regressed, 0);
}

#[test]
fn c5_a_rejected_pod_is_not_retried() {
    let mut w = member();
    w.api_pod("web", "uid-1", &format!("nodeSelector: {{pool: none}}, {ONE}"));
    w.run(3);
    assert_eq!(w.phase_at_server("web"), "Failed", "{}", w.trace());
    let id = w.ask(Request::Retry { uid: "uid-1".into() });
    assert!(matches!(w.answer(id), Some(Err(RequestError::RejectedForGood { .. }))), "{:?}", w.answer(id));
}

#[test]
fn c3_the_answers_of_another_program_are_no_answers() {
    // They come for a patch, or for a deletion: an empty object, or a 404 without a Status.
    for pick in [1, 4] {
        let mut w = member();
        w.life("web/main", &[Life { on_term: Some((Duration::from_secs(4), 0)), ..Life::FOREVER }]);
        w.api_pod("web", "uid-1", ONE);
        w.run(3);
        let requests = w.api.requests.len();
        w.api_foreign_for(60 * S, pick);
        w.exit_of("web/main", 1);
        w.run(60);
        let requests = w.api.requests.len() - requests;
        assert!(requests < 200, "{requests} requests in a minute");
        w.run(60);
        let restarts = w.api.pod("web").unwrap()["status"]["containerStatuses"][0]["restartCount"].clone();
        assert_eq!(restarts, 1, "{pick}: {}", w.trace());
        w.api_delete_pod("web", 5);
        w.run(1);
        w.api_foreign_for(60 * S, pick);
        w.run(30);
        assert!(!w.runs("web/main") && w.api.pod("web").is_some(), "{}", w.trace());
        w.run(90);
        assert!(w.api.pod("web").is_none(), "{pick}: {}", w.trace());
    }
}

#[test]
fn c8_a_pod_of_a_manifest_that_runs_again_has_a_new_mirror() {
    let mut w = member();
    w.file("local", ONE);
    w.run(5);
    let uid = |w: &World| w.api.pod("local-lab").map(|mirror| mirror["metadata"]["uid"].clone());
    let first = uid(&w);
    let pod = w.shown_uid("local").as_str().into();
    w.kill_uid(pod, TerminationSource::Drain, Some(1));
    w.run(10);
    assert_eq!((w.phase_at_server("local-lab"), uid(&w)), ("Failed", first.clone()), "{}", w.trace());
    w.release(TerminationSource::Drain);
    w.run(20);
    assert!(w.runs("local/main") && uid(&w) != first, "{}", w.trace());
    assert_eq!(w.phase_at_server("local-lab"), "Running", "{}", w.trace());
    let second = uid(&w);
    w.restart_engine();
    w.run(20);
    assert_eq!(uid(&w), second);
}

#[test]
fn c2_a_drained_pod_of_the_server_does_not_start_again_for_its_new_labels() {
    for ms in 0..20 {
        let mut w = member();
        w.api_pod("web", "uid-1", ONE);
        w.run(5);
        w.kill_engine();
        let mut pod = w.api.pod("web").cloned().unwrap();
        pod["metadata"]["labels"] = json!({ "a": "x" });
        w.api_set(PODS, pod);
        // The pod's object comes before the worker exists.
        w.manifests_take(S);
        w.start();
        w.run_ms(1000 + ms);
        w.kill_uid("uid-1".into(), TerminationSource::Drain, Some(1));
        w.run(30);
        assert_eq!((w.phase_at_server("web"), w.runs("web/main")), ("Failed", false), "{ms}: {}", w.trace());
    }
}

#[test]
fn c5_a_drain_ends_a_pod_for_good_also_beside_a_shutdown() {
    for when in ["before", "during", "at its end", "after"] {
        let mut w = with_graceful_shutdown();
        w.life("web/main", &[Life { on_term: Some((Duration::from_secs(4), 0)), ..Life::FOREVER }]);
        w.api_pod("web", "uid-1", ONE);
        w.run(5);
        let drain = |w: &mut World, now: &str| {
            if now == when {
                w.kill_uid("uid-1".into(), TerminationSource::Drain, Some(10));
            }
        };
        drain(&mut w, "before");
        w.power_off();
        w.run(1);
        drain(&mut w, "during");
        if when == "at its end" {
            // It waits for the end of the shutdown.
            w.run(10);
            drain(&mut w, when);
        }
        w.call_off();
        w.run(1);
        // The pod still ends, to start again.
        drain(&mut w, "after");
        w.api_pod("other", "uid-2", ONE);
        w.run(60);
        assert_eq!((w.phase_at_server("web"), w.runs("web/main")), ("Failed", false), "{when}: {}", w.trace());
        w.restart_engine();
        w.run(30);
        assert_eq!((w.phase_at_server("web"), w.runs("web/main")), ("Failed", false), "{when}: {}", w.trace());
        w.assert_well();
    }
}

#[test]
fn c5_a_pod_that_runs_again_while_the_disk_is_full_has_not_ended_for_the_next_run() {
    let mut w = with_graceful_shutdown();
    w.api_pod("web", "uid-1", ONE);
    w.run(5);
    w.power_off();
    w.run(2);
    assert!(!w.runs("web/main"), "{}", w.trace());
    w.disk_full(30 * S);
    w.call_off();
    w.run(10);
    let second = w.running("web/main");
    w.api_away(true);
    w.restart_engine();
    w.run(60);
    assert_eq!(w.running("web/main"), second, "{}", w.trace());
    w.api_away(false);
    w.run(5);
    assert_eq!(
        (w.running("web/main").as_str(), w.phase_at_server("web")),
        (second.as_str(), "Running"),
        "{}",
        w.trace()
    );
}

#[test]
fn c2_a_pod_that_is_deleted_before_it_has_begun_has_failed() {
    let mut w = member();
    // Its services are not known, so it has no worker.
    w.api_refuses_for(3600 * S, 3);
    w.api_pod("job", "uid-1", NEVER);
    w.run(5);
    w.api_delete_pod("job", 30);
    w.api_refuses_for(0, 0);
    w.run(40);
    assert!(w.api.pod("job").is_none(), "{}", w.trace());
    let last = w.api.removed("job").expect("a pod that was removed");
    assert_eq!(last["status"]["phase"], "Failed", "{}", w.trace());
}

/// The condition Ready at the server: its status, and its last transition in seconds.
fn ready(w: &World) -> (String, i64) {
    let pod = w.api.pod("web").cloned().unwrap_or_default();
    let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let ready = conditions.iter().find(|c| c["type"] == "Ready").cloned().unwrap_or_default();
    let at: jiff::Timestamp = ready["lastTransitionTime"].as_str().unwrap_or_default().parse().expect("a time");
    (ready["status"].as_str().unwrap_or_default().to_owned(), at.as_second())
}

fn set_gate(w: &mut World, status: &str) {
    let mut pod = w.api.pod("web").cloned().expect("a pod");
    let conditions = pod["status"]["conditions"].as_array_mut().expect("conditions");
    conditions.retain(|c| c["type"] != "example.com/gate");
    conditions.push(json!({ "type": "example.com/gate", "status": status }));
    w.api_set(PODS, pod);
}

#[test]
fn c2_ready_changes_when_its_gates_do() {
    let mut w = member();
    w.api_pod("web", "uid-1", &format!("{ONE}, readinessGates: [{{conditionType: example.com/gate}}]"));
    w.run(60);
    assert_eq!(ready(&w).0, "False");
    for (status, at_least) in [("True", 60), ("False", 100), ("True", 200)] {
        w.run(at_least);
        let now = w.wall_now().0 / 1_000_000_000;
        set_gate(&mut w, status);
        w.run(5);
        let (shown, at) = ready(&w);
        assert!(shown == status && (now..now + 5).contains(&at), "{status}: {at} and {now}, {}", w.trace());
        // Neither time nor a restart changes it.
        w.run(30);
        w.restart_engine();
        w.run(30);
        assert_eq!(ready(&w), (shown, at), "{}", w.trace());
    }
}
