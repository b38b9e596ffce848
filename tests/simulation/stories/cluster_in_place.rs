//! Pods of the API server whose objects change while they run (C2).

use super::cluster::member;
use crate::runtime::Life;
use crate::story::{IMAGE, INIT, NEVER, ON_FAILURE, ONE, SIDECAR, TWO};
use crate::world::api_server::PODS;
use crate::world::{Fault, World};
use serde_json::{Value, json};
use std::time::Duration;

const OTHER: &str = "busybox:1.36";

/// A pod that runs, and another image that exists.
fn with(spec: &str) -> World {
    let mut w = member();
    w.runtime.images.insert(OTHER.into());
    w.api_pod("web", "uid-1", spec);
    w.run(5);
    w.take_calls();
    w
}

fn cpu(amount: &str, more: &str) -> String {
    format!("containers: [{{name: main, image: '{IMAGE}', resources: {{requests: {{cpu: {amount}}}}}}}]{more}")
}

impl World {
    fn edit(&mut self, change: impl FnOnce(&mut Value)) {
        let mut pod = self.api.pod("web").cloned().expect("a pod");
        let generation = pod["metadata"]["generation"].as_i64().unwrap_or(1) + 1;
        pod["metadata"]["generation"] = json!(generation);
        change(&mut pod["spec"]);
        self.api_set(PODS, pod);
    }

    fn set_image(&mut self, index: usize, image: &str) {
        self.edit(|spec| spec["containers"][index]["image"] = json!(image));
    }

    fn set_cpu(&mut self, amount: &str) {
        self.edit(|spec| spec["containers"][0]["resources"]["requests"]["cpu"] = json!(amount));
    }

    fn api_status(&self) -> &Value {
        self.api.pod("web").map_or(&Value::Null, |pod| &pod["status"])
    }

    /// The generations of the object and of the spec that the node has taken.
    fn generations(&self) -> (i64, i64) {
        let of = |value: &Value| value.as_i64().unwrap_or_default();
        let pod = self.api.pod("web").expect("a pod");
        (of(&pod["metadata"]["generation"]), of(&pod["status"]["observedGeneration"]))
    }

    /// The reason of the condition at the server; None: it does not exist.
    fn api_condition(&self, kind: &str) -> Option<String> {
        let all = self.api_status()["conditions"].as_array()?;
        let found = all.iter().find(|c| c["type"] == kind)?;
        Some(found["reason"].as_str().unwrap_or_default().to_owned())
    }

    fn image_of(&self, of: &str) -> String {
        let id = self.running(of);
        self.runtime.containers.get(&id).map(|c| c.image.clone()).unwrap_or_default()
    }

    /// The container runs with the other image after this number of restarts.
    fn assert_other(&self, name: &str, restarts: i32) {
        let of = format!("web/{name}");
        assert_eq!(self.image_of(&of), format!("sha256:{OTHER}"), "{}", self.trace());
        assert_eq!(self.container_status("web", name).restart_count, restarts, "{}", self.trace());
        self.assert_well();
    }
}

#[test]
fn c2_a_new_image_restarts_only_its_container_and_at_once() {
    let mut w = with(TWO);
    let (two, sandbox) = (w.running("web/two"), w.sandbox("web"));
    // The next restart would wait.
    w.exit_of("web/one", 1);
    w.run(3);
    w.take_calls();
    w.set_image(0, OTHER);
    w.run(2);
    w.assert_other("one", 2);
    assert_eq!((w.running("web/two"), w.sandbox("web")), (two, sandbox));
    assert!(w.notices("Killing").contains(&"Container one definition changed, will be restarted".to_owned()));
    assert_eq!(w.generations(), (2, 2));
    // The back-off begins again from its first level.
    w.exit_of("web/one", 1);
    w.run(1);
    w.assert_other("one", 3);
    w.run(600);
    w.assert_other("one", 3);
}

#[test]
fn c2_a_new_image_restarts_a_container_whatever_the_restart_policy_is() {
    for (spec, code) in [(NEVER, 0), (NEVER, 3), (ON_FAILURE, 0)] {
        let mut w = member();
        w.runtime.images.insert(OTHER.into());
        let life = Life { on_term: Some((Duration::from_millis(500), code)), ..Life::FOREVER };
        w.life("web/main", &[life]);
        w.api_pod("web", "uid-1", spec);
        w.run(5);
        w.set_image(0, OTHER);
        w.until("the new image", 5, |w| w.image_of("web/main") == format!("sha256:{OTHER}"));
        w.run(2);
        w.assert_other("main", 1);
        assert_eq!(w.api_status()["phase"], "Running");
        // From now on the policy counts.
        w.exit_of("web/main", 0);
        w.run(3);
        assert_eq!(w.api_status()["phase"], "Succeeded", "{}", w.trace());
        w.assert_well();
    }
}

#[test]
fn c2_a_container_is_replaced_although_wherry_was_killed_after_its_stop() {
    let mut w = with(NEVER);
    w.life("web/main", &[Life::FOREVER]);
    w.fault("StopContainer", Fault::Lost);
    w.set_image(0, OTHER);
    w.until("the stop", 5, |w| !w.runs("web/main"));
    w.kill_engine();
    w.api_away(true);
    w.start();
    w.run(5);
    w.assert_other("main", 1);
    w.api_away(false);
    w.run(5);
    assert_eq!(w.api_status()["phase"], "Running", "{}", w.trace());
    assert_eq!(w.generations(), (2, 2));
    w.assert_well();
}

#[test]
fn c2_the_record_has_the_new_image_before_the_container_stops() {
    let mut w = with(ONE);
    w.set_image(0, OTHER);
    w.until("the stop", 5, |w| w.observed.calls.iter().any(|(_, call)| call.starts_with("StopContainer")));
    let record = &w.disk.records["pods/uid-1"];
    assert!(record.contains(OTHER) && record.contains("\"restarting\":{\""), "{record}");
}

#[test]
fn c2_a_wrong_image_is_corrected_at_once() {
    for wrong in ["missing:1", "UPPER:1"] {
        let mut w = member();
        w.runtime.images.insert(OTHER.into());
        w.runtime.unknown_images.insert("missing:1".into());
        w.api_pod("web", "uid-1", &ONE.replace(IMAGE, wrong));
        w.run(40);
        let (reason, _) = w.waiting("web", "main");
        assert!(["ImagePullBackOff", "InvalidImageName"].contains(&reason.as_str()), "{reason}");
        w.set_image(0, OTHER);
        w.run(1);
        w.assert_other("main", 0);
        // A container that runs waits for a wrong image, too.
        w.set_image(0, wrong);
        w.run(10);
        assert!(!w.runs("web/main"));
        assert_eq!(w.api_status()["phase"], "Running", "{}", w.trace());
        w.set_image(0, OTHER);
        w.run(1);
        w.assert_other("main", 1);
    }
}

#[test]
fn c2_a_crashing_container_gets_its_new_image_at_once() {
    let mut w = member();
    w.runtime.images.insert(OTHER.into());
    w.life("web/main", &[Life::exits(1, Duration::from_millis(100))]);
    w.api_pod("web", "uid-1", ONE);
    w.run(80);
    assert_eq!(w.waiting("web", "main").0, "CrashLoopBackOff");
    w.life("web/main", &[Life::FOREVER]);
    w.set_image(0, OTHER);
    w.run(1);
    assert!(w.image_of("web/main").ends_with(OTHER), "{}", w.trace());
    w.assert_well();
}

#[test]
fn c2_a_pull_of_the_old_image_is_given_up() {
    let mut w = member();
    w.runtime.images.insert(OTHER.into());
    w.hang("PullImage");
    w.api_pod("web", "uid-1", &ONE.replace(IMAGE, "huge:1"));
    w.run(60);
    w.set_image(0, OTHER);
    w.run(2);
    w.assert_other("main", 0);
}

#[test]
fn c2_an_image_that_changes_while_the_container_is_created_counts() {
    for fault in [Fault::Stale(Duration::from_secs(3)), Fault::Slow(Duration::from_secs(3)), Fault::Lost] {
        let mut w = member();
        w.runtime.images.insert(OTHER.into());
        w.fault("CreateContainer", fault);
        w.api_pod("web", "uid-1", NEVER);
        w.until("the call", 5, |w| w.observed.calls.iter().any(|(_, call)| call.starts_with("CreateContainer")));
        w.set_image(0, OTHER);
        w.run(40);
        assert!(w.image_of("web/main").ends_with(OTHER), "{}", w.trace());
        // The container with the old image did not run.
        assert_eq!(w.times("StartContainer", 0).len(), 1, "{}", w.trace());
        w.assert_well();
    }
}

#[test]
fn c2_a_container_that_has_ended_is_not_restarted_by_a_new_image() {
    let mut w = member();
    w.runtime.images.insert(OTHER.into());
    w.life("web/one", &[Life::exits(0, Duration::from_secs(1))]);
    w.api_pod("web", "uid-1", &format!("restartPolicy: Never, {TWO}"));
    w.run(5);
    let two = w.running("web/two");
    w.set_image(0, OTHER);
    w.run(20);
    assert_eq!(w.shown("web"), "Running one#0:terminated Completed 0 two#0:running", "{}", w.trace());
    assert_eq!((w.running("web/two"), w.generations()), (two, (2, 2)));
    w.assert_well();
}

#[test]
fn c2_a_sidecar_gets_its_new_image_and_an_init_container_only_before_it_ran() {
    let mut w = member();
    w.runtime.images.insert(OTHER.into());
    w.life("web/i2", &[Life::exits(0, Duration::from_secs(60))]);
    w.api_pod("web", "uid-1", SIDECAR);
    w.run(5);
    let running = w.running("web/i2");
    w.edit(|spec| {
        spec["initContainers"][0]["image"] = json!(OTHER);
        spec["initContainers"][1]["image"] = json!(OTHER);
    });
    w.run(5);
    w.assert_other("side", 1);
    assert_eq!(w.running("web/i2"), running);
    w.run(120);
    assert!(w.runs("web/main"), "{}", w.trace());
    w.assert_well();
    // The second init container has not run yet.
    let mut w = member();
    w.runtime.images.insert(OTHER.into());
    for name in ["web/i1", "web/i2"] {
        w.life(name, &[Life::exits(0, Duration::from_secs(20))]);
    }
    w.api_pod("web", "uid-1", INIT);
    w.run(5);
    w.edit(|spec| spec["initContainers"][1]["image"] = json!(OTHER));
    w.run(30);
    w.assert_other("i2", 0);
}

#[test]
fn c2_changes_from_an_absence_of_the_server_count_when_it_is_back() {
    let mut w = with(TWO);
    let two = w.running("web/two");
    w.api_away(true);
    w.run(30);
    w.set_image(0, OTHER);
    w.run(60);
    assert!(w.image_of("web/one").ends_with(IMAGE));
    w.api_away(false);
    w.run(10);
    w.assert_other("one", 1);
    assert_eq!((w.running("web/two"), w.generations()), (two, (2, 2)));
    // The same without Wherry.
    w.kill_engine();
    w.set_image(0, IMAGE);
    w.start();
    w.run(10);
    assert!(w.image_of("web/one").ends_with(IMAGE), "{}", w.trace());
    w.assert_well();
}

#[test]
fn c2_an_image_that_changes_back_before_the_stop_restarts_nothing() {
    let mut w = with(NEVER);
    let main = w.running("web/main");
    w.set_image(0, OTHER);
    w.set_image(0, IMAGE);
    w.run(5);
    assert_eq!((w.running("web/main"), w.generations()), (main, (3, 3)), "{}", w.trace());
    w.exit_of("web/main", 0);
    w.run(3);
    assert_eq!(w.api_status()["phase"], "Succeeded", "{}", w.trace());
    w.assert_well();
}

#[test]
fn c2_a_container_with_a_pre_stop_hook_is_replaced_within_its_grace_period() {
    let hook = "lifecycle: {preStop: {exec: {command: [x]}}}";
    let mut w =
        with(&format!("terminationGracePeriodSeconds: 7, containers: [{{name: main, image: '{IMAGE}', {hook}}}]"));
    w.life("web/main", &[Life::deaf()]);
    w.exit_of("web/main", 1);
    w.run(3);
    w.set_image(0, OTHER);
    w.run(20);
    w.assert_other("main", 2);
}

#[test]
fn c2_a_pod_of_the_server_is_resized_in_place() {
    let mut w = with(&cpu("100m", ""));
    let main = w.running("web/main");
    w.set_cpu("200m");
    w.run(5);
    assert_eq!((w.running("web/main"), w.generations()), (main.clone(), (2, 2)), "{}", w.trace());
    let status = &w.api_status()["containerStatuses"][0];
    assert_eq!(status["allocatedResources"]["cpu"], "200m", "{status}");
    assert_eq!(w.notices("ResizeCompleted").len(), 1);
    assert_eq!(w.api_condition("PodResizeInProgress"), None);
    // With a new image in the same change, the container gets both.
    w.edit(|spec| {
        spec["containers"][0]["image"] = json!(OTHER);
        spec["containers"][0]["resources"]["requests"]["cpu"] = json!("300m");
    });
    w.run(10);
    w.assert_other("main", 1);
    let resources = w.container_status("web", "main").resources.unwrap();
    assert_eq!(resources.requests.unwrap()["cpu"].0, "300m");
    // A request cannot be removed: the old generation stays.
    w.edit(|spec| spec["containers"][0]["resources"] = json!({}));
    w.run(5);
    assert_eq!(w.generations(), (4, 3));
    w.assert_other("main", 1);
}

#[test]
fn c2_a_resize_that_does_not_fit_waits_and_can_be_dropped() {
    let mut w = with(&cpu("100m", ""));
    w.api_pod("other", "uid-2", &cpu("3", ""));
    w.run(5);
    w.set_cpu("2");
    w.run(5);
    assert_eq!(w.api_condition("PodResizePending").as_deref(), Some("Deferred"), "{}", w.trace());
    assert_eq!(w.generations(), (2, 2));
    // Other changes keep the decision.
    w.set_image(0, OTHER);
    w.run(5);
    w.assert_other("main", 1);
    assert_eq!(w.api_condition("PodResizePending").as_deref(), Some("Deferred"));
    assert_eq!(w.notices("ResizeDeferred").len(), 1);
    w.set_cpu("100m");
    w.run(5);
    assert_eq!(w.api_condition("PodResizePending"), None, "{}", w.trace());
    // It is decided again after a restart of Wherry, and when there is room.
    w.set_cpu("2");
    w.run(5);
    w.restart_engine();
    w.run(10);
    assert_eq!(w.api_condition("PodResizePending").as_deref(), Some("Deferred"), "{}", w.trace());
    w.api_delete_pod("other", 1);
    w.run(20);
    assert_eq!(w.api_condition("PodResizePending"), None, "{}", w.trace());
    assert_eq!(w.api_status()["containerStatuses"][0]["allocatedResources"]["cpu"], "2");
    assert!(w.image_of("web/main").ends_with(OTHER));
    w.assert_other("main", 1);
    // More than the node has.
    w.set_cpu("1000");
    w.run(5);
    assert_eq!(w.api_condition("PodResizePending").as_deref(), Some("Infeasible"), "{}", w.trace());
}

#[test]
fn c2_an_undecided_resize_does_not_start_a_job_again() {
    let mut w = with(&cpu("100m", ", restartPolicy: Never"));
    w.set_cpu("1000");
    w.run(3);
    w.exit_of("web/main", 0);
    w.run(30);
    assert_eq!(w.api_status()["phase"], "Succeeded", "{}", w.trace());
    assert!(!w.runs("web/main"));
    w.assert_well();
}

#[test]
fn c2_a_deadline_can_be_set_and_lowered_while_the_pod_runs() {
    let mut w = with(ONE);
    w.run(100);
    w.edit(|spec| spec["activeDeadlineSeconds"] = json!(600));
    w.run(300);
    assert_eq!(w.generations(), (2, 2));
    // The time so far counts, also after a restart of Wherry.
    w.edit(|spec| spec["activeDeadlineSeconds"] = json!(400));
    w.run(10);
    w.restart_engine();
    w.run(80);
    assert!(w.runs("web/main"), "{}", w.trace());
    w.run(60);
    let status = w.api_status();
    assert_eq!((&status["phase"], &status["reason"]), (&json!("Failed"), &json!("DeadlineExceeded")), "{}", w.trace());
    w.assert_well();
}

#[test]
fn c2_tolerations_are_taken() {
    let mut w = with(ONE);
    let main = w.running("web/main");
    w.edit(|spec| spec["tolerations"] = json!([{ "key": "a", "operator": "Exists" }]));
    w.run(5);
    assert_eq!((w.generations(), w.running("web/main")), ((2, 2), main));
    assert!(w.disk.records["pods/uid-1"].contains("\"tolerations\":[{"));
    w.assert_well();
}
