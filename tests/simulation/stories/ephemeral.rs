//! Ephemeral containers that users add to running pods (W29).

use crate::control::{ENVIRONMENT, debugger};
use crate::runtime::{GivenUp, Life};
use crate::story::*;
use crate::world::{Fault, S, World};
use serde_json::{Value, json};
use std::time::Duration;
use wherry::api::ephemeral_request::RequestedContainers;
use wherry::api::names::Uid;
use wherry::engine::control::ephemeral::Origin;
use wherry::engine::control::{EphemeralRequest, Reply, Request, RequestId};

fn running(spec: &str) -> World {
    let mut w = node();
    w.file("web", spec);
    w.run(5);
    assert!(w.runs("web/main"), "{}", w.trace());
    w.take_calls();
    w
}

impl World {
    fn debug(&mut self, name: &str, target: &str) -> RequestId {
        let uid = Uid::from(self.shown_uid("web"));
        self.ask(Request::Ephemeral(debugger(uid, name, target)))
    }

    /// The request is granted, and the container runs.
    fn debugged(&mut self, name: &str) {
        let id = self.debug(name, "");
        self.run(3);
        self.assert_well();
        assert!(matches!(self.answer(id), Some(Ok(Reply::Ephemeral(_)))), "{:?}", self.answer(id));
        assert!(self.runs(&format!("web/{name}")), "{}", self.trace());
    }

    fn names(&self, id: RequestId) -> Vec<String> {
        match self.answer(id) {
            Some(Ok(Reply::Ephemeral(names))) => names.clone(),
            other => panic!("{other:?}\n{}", self.trace()),
        }
    }

    /// The status and the text of a refusal.
    fn refusal(&self, id: RequestId) -> (u16, String) {
        match self.answer(id) {
            Some(Err(e)) => (e.status(), e.to_string()),
            other => panic!("{other:?}\n{}", self.trace()),
        }
    }

    fn end_of(&self, name: &str) -> Option<i32> {
        self.container_status("web", name).state?.terminated.map(|t| t.exit_code)
    }

    fn creations(&self, name: &str) -> usize {
        self.times(&format!("CreateContainer web/{name}"), 0).len()
    }
}

#[test]
fn w29_a_container_is_added_to_the_running_pod_and_the_answer_is_durable() {
    let mut w = running(ONE);
    let (uid, main) = (w.shown_uid("web"), w.running("web/main"));
    let id = w.debug("d", "");
    assert_eq!(w.answer(id), None, "the record is being written");
    assert!(!w.observed.calls.iter().any(|(_, call)| call.starts_with("CreateContainer")));
    w.run(3);
    assert_eq!(w.names(id), ["d"]);
    assert!(w.disk.records[&format!("pods/{uid}")].contains("\"ephemeralContainers\":[{"));
    assert!(w.runs("web/d"));
    assert_eq!((w.shown_uid("web"), w.running("web/main")), (uid, main));
    let status = w.container_status("web", "d");
    assert!(status.state.unwrap().running.is_some());
    assert_eq!((status.ready, status.started, status.restart_count, status.resources), (false, None, 0, None));
    let notices: Vec<String> = ["Created", "Started"].iter().flat_map(|reason| w.notices(reason)).collect();
    assert!(notices.contains(&"Created container: d".into()) && notices.contains(&"Started container d".into()));
    // The same request again changes nothing.
    let again = w.debug("d", "");
    assert_eq!(w.names(again), ["d"]);
    w.disk.delay = 3 * S;
    let second = w.debug("e", "");
    w.run(2);
    assert_eq!((w.answer(second), w.creations("e")), (None, 0), "the disk is slow");
    w.run(5);
    assert_eq!(w.names(second), ["d", "e"]);
    assert!(w.runs("web/d") && w.runs("web/e"));
    assert!(!w.engine.dump().to_string().contains(ENVIRONMENT), "the environment is not in the dump");
    w.assert_well();
}

#[test]
fn w29_it_never_starts_again() {
    let mut w = running(ONE);
    w.debugged("d");
    w.exit_of("web/d", 3);
    w.run(400);
    assert_eq!((w.end_of("d"), w.creations("d")), (Some(3), 1));
    assert_eq!(w.container_status("web", "main").restart_count, 0);
    // A running one is killed with its sandbox.
    w.debugged("e");
    let sandbox = w.sandbox("web");
    w.kill_sandbox(&sandbox);
    w.run(60);
    assert!(w.runs("web/main") && w.sandbox("web") != sandbox, "{}", w.trace());
    assert!(!w.runs("web/d") && !w.runs("web/e") && w.creations("e") == 1, "{}", w.trace());
    w.restart_engine();
    w.run(60);
    w.reboot(2 * S);
    w.run(60);
    assert!(w.runs("web/main"));
    assert_eq!((w.creations("d"), w.creations("e")), (1, 1), "{}", w.trace());
    w.assert_well();
}

#[test]
fn w29_it_does_not_start_again_when_its_dead_container_is_gone() {
    let mut w = running(ONE);
    w.debugged("d");
    let id = w.running("web/d");
    w.exit_of("web/d", 0);
    w.run(5);
    w.checks.tampered = true;
    w.runtime.forget(&id);
    w.run(5);
    assert_eq!(w.end_of("d"), Some(0), "the last known end");
    w.restart_engine();
    w.run(60);
    assert_eq!((w.creations("d"), w.end_of("d")), (1, Some(137)), "{}", w.trace());
    assert!(w.runs("web/main"));
}

#[test]
fn w29_a_kill_of_wherry_after_the_answer_loses_nothing() {
    let mut w = running(ONE);
    w.hang("ImageStatus");
    let id = w.debug("d", "");
    w.until("the answer", 5, |w| w.answer(id).is_some());
    assert_eq!(w.creations("d"), 0);
    w.faults.hangs.clear();
    w.restart_engine();
    w.run(10);
    assert!(w.runs("web/d") && w.creations("d") == 1, "{}", w.trace());
    w.restart_engine();
    w.run(10);
    assert!(w.runs("web/d") && w.creations("d") == 1);
    assert!(w.container_status("web", "d").state.unwrap().running.is_some());
    // A container that was created and not started starts.
    w.hang("StartContainer web/e");
    w.debug("e", "");
    w.until("the start of e", 5, |w| !w.times("StartContainer web/e", 0).is_empty());
    w.faults.hangs.clear();
    w.restart_engine();
    w.run(60);
    assert_eq!(w.creations("e"), 1);
    w.assert_well();
}

#[test]
fn w29_a_start_cancelled_by_a_kill_of_wherry_is_not_the_start() {
    for how in [GivenUp::InTheShim, GivenUp::BeforeTheShim] {
        let mut w = running(ONE);
        w.hang("StartContainer web/d");
        w.debug("d", "");
        w.until("the start", 5, |w| !w.times("StartContainer web/d", 0).is_empty());
        w.faults.hangs.clear();
        let uid = Uid::from(w.shown_uid("web"));
        w.kill_engine();
        let now = w.wall_now();
        let id = w.runtime.of(&uid).find(|c| c.name == "d").expect("d was created").id.clone();
        w.runtime.give_up_start(id.as_str(), how, now);
        w.start();
        w.run(5);
        assert!(w.runs("web/d") && w.creations("d") == 2, "{}", w.trace());
        w.exit_of("web/d", 0);
        w.run(60);
        assert_eq!((w.end_of("d"), w.creations("d")), (Some(0), 2), "it ran once");
        w.assert_well();
    }
}

#[test]
fn w29_it_starts_while_init_containers_run() {
    let mut w = node();
    w.life("web/i1", &[Life::FOREVER]);
    w.life("web/i2", &[Life::FOREVER]);
    w.file("web", INIT);
    w.run(5);
    assert!(w.runs("web/i1"));
    w.debugged("d");
    assert!(w.runs("web/i1") && !w.runs("web/main"));
    w.exit_of("web/i1", 0);
    w.run(5);
    w.exit_of("web/i2", 0);
    w.run(5);
    assert!(w.runs("web/main") && w.runs("web/d"));
    assert_eq!(w.condition("web", "Ready").0, "True");
    w.assert_well();
}

#[test]
fn w29_it_affects_neither_readiness_nor_the_end_of_the_pod() {
    let mut w = running(NEVER);
    w.debugged("d");
    w.exit_of("web/d", 1);
    w.run(3);
    assert_eq!((w.status("web").phase.as_deref(), w.condition("web", "Ready").0.as_str()), (Some("Running"), "True"));
    w.life("web/e", &[Life::deaf()]);
    w.debugged("e");
    w.exit_of("web/main", 0);
    w.run(5);
    // W3: the pod does not show its end while something of it runs.
    assert!(w.runs("web/e") && w.status("web").phase.as_deref() == Some("Running"), "{}", w.trace());
    w.run(40);
    assert!(!w.runs("web/e"));
    assert_eq!(w.status("web").phase.as_deref(), Some("Succeeded"));
    assert_eq!(w.end_of("e"), Some(137));
    w.assert_well();
}

#[test]
fn w29_it_runs_in_the_process_namespace_of_its_target_and_waits_for_it() {
    let mut w = node();
    w.life("web/main", &[Life::exits(1, Duration::from_secs(20)), Life::FOREVER]);
    w.file("web", ONE);
    w.run(5);
    let id = w.debug("d", "main");
    w.run(3);
    assert_eq!(w.names(id), ["d"]);
    assert!(w.take_calls().contains(&"CreateContainer web/d#0 for web/main#0".to_owned()), "{}", w.trace());

    w.run(15);
    w.exit_of("web/main", 1);
    w.run_ms(500);
    assert!(!w.runs("web/main"));
    w.debug("e", "main");
    w.run(3);
    let why = "unable to find target container main: it is not running";
    assert_eq!(w.waiting("web", "e"), ("CreateContainerConfigError".into(), why.into()), "{}", w.trace());
    w.until("main runs again", 60, |w| w.runs("web/main"));
    w.run(3);
    assert!(w.runs("web/e"), "{}", w.trace());
    assert!(w.take_calls().contains(&"CreateContainer web/e#0 for web/main#2".to_owned()), "{}", w.trace());
}

#[test]
fn w29_a_missing_image_has_the_usual_back_off() {
    let mut w = running(ONE);
    w.runtime.unknown_images.insert("docker.io/library/nowhere:1".into());
    w.runtime.unknown_images.insert("nowhere:1".into());
    let uid = Uid::from(w.shown_uid("web"));
    let container = json!({ "name": "d", "image": "nowhere:1" });
    w.ask(Request::Ephemeral(EphemeralRequest {
        uid,
        origin: Origin::Api,
        wanted: RequestedContainers::More(vec![container]),
        dry_run: false,
    }));
    w.run(1);
    assert_eq!(w.waiting("web", "d").0, "ErrImagePull", "{}", w.trace());
    w.run(3);
    assert_eq!(w.waiting("web", "d").0, "ImagePullBackOff");
    // It delays no other container.
    w.exit_of("web/main", 1);
    w.run(2);
    assert!(w.runs("web/main"), "{}", w.trace());
    w.runtime.unknown_images.clear();
    w.run(60);
    assert!(w.runs("web/d"), "{}", w.trace());
    w.assert_well();
}

#[test]
fn w29_a_failed_start_counts_as_the_start() {
    let mut w = running(ONE);
    w.life("web/d", &[Life::cannot_start()]);
    w.debug("d", "");
    w.run(120);
    assert_eq!((w.creations("d"), w.end_of("d").is_some()), (1, true), "{}", w.trace());
    // A failed creation does not.
    w.fault("CreateContainer web/e", Fault::Error("no".into()));
    w.debug("e", "");
    w.run(2);
    assert_eq!(w.waiting("web", "e").0, "CreateContainerError");
    w.run(30);
    assert!(w.runs("web/e") && w.creations("e") == 2);
    w.assert_well();
}

#[test]
fn w29_it_belongs_to_the_instance_of_the_pod() {
    let mut w = running(ONE);
    w.debugged("d");
    let uid = w.shown_uid("web");
    // R5: a version with other labels is the same instance.
    w.document("/m/web.yaml", pod("/m/web.yaml", "web, labels: {a: b}", "", ONE));
    w.run(5);
    assert_eq!(w.shown_uid("web"), uid, "{}", w.trace());
    assert!(w.runs("web/d"));
    assert!(!w.container_status("web", "d").name.is_empty());
    // W6: a pod that starts again is another instance.
    w.ask(Request::Drain { uids: vec![Uid::from(uid.as_str())], grace: None, ignores_budgets: false });
    w.run(60);
    assert!(!w.runs("web/main") && !w.runs("web/d"), "{}", w.trace());
    w.ask(Request::Undrain { uids: vec![Uid::from(uid.as_str())] });
    w.run(10);
    assert!(w.runs("web/main") && !w.runs("web/d"), "{}", w.trace());
    assert!(w.status("web").ephemeral_container_statuses.is_none());
    w.debugged("d");
    w.remove("web");
    w.run(60);
    w.assert_clean();
}

#[test]
fn w29_a_sidecar_does_not_wait_for_it() {
    let mut w = node();
    w.life("web/d", &[Life::deaf()]);
    w.life("web/i2", &[Life::exits(0, Duration::from_secs(1))]);
    w.file("web", SIDECAR);
    w.run(10);
    assert!(w.runs("web/main") && w.runs("web/side"));
    w.debugged("d");
    w.remove("web");
    w.run(3);
    assert!(!w.runs("web/side") && w.runs("web/d"), "{}", w.trace());
    w.run(60);
    w.assert_clean();
}

#[test]
fn w29_requests_that_cannot_be_granted_are_refused() {
    let mut w = node();
    w.life("web/main", &[Life::deaf()]);
    w.file("web", ONE);
    w.run(5);
    let uid = Uid::from(w.shown_uid("web"));
    let ask = |w: &mut World, uid: &Uid, containers: Vec<Value>, dry_run: bool| {
        w.ask(Request::Ephemeral(EphemeralRequest {
            uid: uid.clone(),
            origin: Origin::Api,
            wanted: RequestedContainers::More(containers),
            dry_run,
        }))
    };
    let good = json!({ "name": "d", "image": "busybox:1.35" });
    let id = ask(&mut w, &Uid::from("nobody"), vec![good.clone()], false);
    assert_eq!(w.refusal(id).0, 404);
    let id = ask(&mut w, &uid, vec![json!({ "name": "main", "image": "b" })], false);
    let text = "the ephemeral container of pod default/web is invalid: spec.ephemeralContainers[0].name: Duplicate value: \"main\"";
    assert_eq!(w.refusal(id), (422, text.into()));
    let id = ask(&mut w, &uid, vec![good.clone()], true);
    assert_eq!(w.names(id), ["d"]);
    w.run(5);
    assert_eq!(w.creations("d"), 0, "a dry run");
    // A pod that ends, and one that waits.
    w.remove("web");
    w.run_ms(100);
    let id = ask(&mut w, &uid, vec![good.clone()], false);
    assert_eq!(w.refusal(id), (409, "pod default/web has not started or is ending: it is Running".into()));
    w.run(60);

    w.has_no_room();
    w.file("web", &ONE.replace("'busybox:1.35'", "'busybox:1.35', resources: {requests: {cpu: 1}}"));
    w.run(3);
    let id = w.debug("d", "");
    assert_eq!(w.refusal(id).0, 409, "{}", w.trace());
}

#[test]
fn w29_the_control_socket_permits_no_security_context() {
    let mut w = running(ONE);
    let uid = Uid::from(w.shown_uid("web"));
    let privileged = json!({ "name": "d", "image": "busybox:1.35", "securityContext": { "privileged": true } });
    let ask = |w: &mut World, origin, containers: Vec<Value>| {
        let wanted = RequestedContainers::More(containers);
        w.ask(Request::Ephemeral(EphemeralRequest { uid: uid.clone(), origin, wanted, dry_run: false }))
    };
    let id = ask(&mut w, Origin::ControlSocket, vec![privileged.clone()]);
    let (status, why) = w.refusal(id);
    assert!(status == 422 && why.contains("spec.ephemeralContainers[0].securityContext: Forbidden: "), "{why}");
    let id = ask(&mut w, Origin::Api, vec![privileged]);
    w.run(3);
    assert_eq!(w.names(id), ["d"]);
    // It does not affect later requests.
    let id = ask(&mut w, Origin::ControlSocket, vec![json!({ "name": "e", "image": "busybox:1.35" })]);
    w.run(3);
    assert_eq!(w.names(id), ["d", "e"]);
}

#[test]
fn w29_without_a_durable_record_the_answer_is_an_error() {
    let mut w = running(ONE);
    w.disk_full(20 * S);
    let id = w.debug("d", "");
    w.run(3);
    let (status, why) = w.refusal(id);
    assert!(status == 500 && why.starts_with("done, but a restart would undo it: "), "{why}");
    // The disk may be worn out. That must not keep the user from the pod.
    assert!(w.runs("web/d"));
    w.run(120);
    let id = w.debug("d", "");
    w.run(1);
    assert_eq!(w.names(id), ["d"]);
    w.assert_well();
}

#[test]
fn w29_an_added_container_stays_when_the_object_at_the_api_server_changes() {
    for ms in [0, 1, 2, 3, 5, 50] {
        let mut w = crate::stories::cluster::running("web");
        w.debug("d", "");
        w.run_ms(ms);
        let mut pod = w.api.pod("web").cloned().expect("a pod");
        pod["metadata"]["labels"] = json!({ "a": "x" });
        w.api_set("/api/v1/namespaces/default/pods", pod.clone());
        w.run(5);
        assert!(w.runs("web/d"), "{ms}: {}", w.trace());
        pod["spec"]["ephemeralContainers"] = json!([{ "name": "e", "image": "busybox:1.35" }]);
        w.api_set("/api/v1/namespaces/default/pods", pod);
        w.run(5);
        assert!(w.runs("web/d") && w.runs("web/e"), "{ms}: {}", w.trace());
        w.assert_well();
    }
}

#[test]
fn w29_it_does_not_start_again_with_a_pod_of_a_cluster_after_a_shutdown() {
    let mut w = crate::stories::cluster_ends::with_graceful_shutdown();
    w.api_pod("web", "uid-1", ONE);
    w.run(5);
    let mut pod = w.api.pod("web").cloned().expect("a pod");
    pod["spec"]["ephemeralContainers"] = json!([{ "name": "e", "image": "busybox:1.35" }]);
    w.api_set("/api/v1/namespaces/default/pods", pod);
    w.debugged("d");
    assert!(w.runs("web/e"), "{}", w.trace());
    w.power_off();
    w.run(20);
    w.reboot(0);
    w.run(60);
    // What is desired is compared again.
    w.file("other", ONE);
    let mut pod = w.api.pod("web").cloned().expect("a pod");
    pod["metadata"]["labels"] = json!({ "a": "x" });
    w.api_set("/api/v1/namespaces/default/pods", pod);
    w.run(60);
    assert!(w.runs("web/main") && w.runs("other/main"), "{}", w.trace());
    assert_eq!((w.creations("d"), w.creations("e")), (1, 1), "{}", w.trace());
    // The user needs it once more.
    w.debugged("d");
    assert_eq!(w.creations("d"), 2);
    assert!(!w.runs("web/e"), "{}", w.trace());
    w.assert_well();
}
