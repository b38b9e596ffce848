use super::*;
use crate::api::kube::strategic;

const UID: &str = "450ff913-c90e-4319-85e2-250652e43c46";

fn status(value: Value) -> PodStatus {
    serde_json::from_value(value).unwrap()
}

fn condition(kind: &str, is_true: bool, at: &str, why: Value) -> Value {
    let mut condition = json!({
        "type": kind, "status": if is_true { "True" } else { "False" }, "lastProbeTime": null, "lastTransitionTime": at,
    });
    for field in ["reason", "message"] {
        if !why[field].is_null() {
            condition[field] = why[field].clone();
        }
    }
    condition
}

/// The status that a scheduler leaves.
fn scheduled() -> Value {
    json!({
        "phase": "Pending",
        "conditions": [condition("PodScheduled", true, "2026-11-22T07:43:26Z", json!({}))],
        "qosClass": "BestEffort",
    })
}

fn container(state: Value, ready: bool) -> Value {
    json!({
        "image": "localhost/trap:1", "imageID": "", "lastState": {}, "name": "main", "ready": ready, "restartCount": 0,
        "started": ready, "state": state,
        "volumeMounts": [{ "mountPath": "/v", "name": "v", "readOnly": true, "recursiveReadOnly": "Disabled" }],
    })
}

fn pending() -> Value {
    let unready = json!({ "reason": "ContainersNotReady", "message": "containers with unready status: [main]" });
    let at = "2026-11-22T07:43:26Z";
    json!({
        "phase": "Pending",
        "conditions": [
            condition("PodReadyToStartContainers", false, at, json!({})),
            condition("Initialized", true, at, json!({})),
            condition("Ready", false, at, unready.clone()),
            condition("ContainersReady", false, at, unready),
            condition("PodScheduled", true, "2026-11-22T07:43:29Z", json!({})),
        ],
        "containerStatuses": [container(json!({ "waiting": { "reason": "ContainerCreating" } }), false)],
        "hostIP": "10.77.0.1",
        "hostIPs": [{ "ip": "10.77.0.1" }],
        "startTime": at,
        "qosClass": "BestEffort",
    })
}

fn running() -> Value {
    let at = "2026-11-22T07:43:27Z";
    let mut running = pending();
    running["phase"] = "Running".into();
    for (i, kind) in [(0, "PodReadyToStartContainers"), (2, "Ready"), (3, "ContainersReady")] {
        running["conditions"][i] = condition(kind, true, at, json!({}));
    }
    running["containerStatuses"] = json!([container(json!({ "running": { "startedAt": at } }), true)]);
    running["podIP"] = "10.88.0.9".into();
    running["podIPs"] = json!([{ "ip": "10.88.0.9" }]);
    running
}

fn completed() -> Value {
    let at = "2026-11-22T07:43:31Z";
    let mut completed = running();
    completed["phase"] = "Succeeded".into();
    completed["conditions"][1] = condition("Initialized", true, at, json!({ "reason": "PodCompleted" }));
    for (i, kind) in [(2, "Ready"), (3, "ContainersReady")] {
        completed["conditions"][i] = condition(kind, false, at, json!({ "reason": "PodCompleted" }));
    }
    let end = json!({ "exitCode": 0, "finishedAt": at, "startedAt": at, "reason": "Completed" });
    completed["containerStatuses"] = json!([container(json!({ "terminated": end }), false)]);
    completed
}

fn patch(reported: &Reported, server: &Value, ours: &Value) -> Option<Value> {
    let patch =
        reported.patch(&UID.into(), Some(&status(server.clone())), &status(ours.clone()), &FinalEnds::default())?;
    Some(serde_json::from_str(&patch.body).unwrap())
}

/// Returns the server's status after the patch.
fn applied(server: &Value, patch: &Value) -> Value {
    let pod = json!({ "metadata": {}, "status": server });
    strategic::merge(pod, patch.clone()).unwrap()["status"].clone()
}

#[test]
fn the_first_patch_is_that_of_a_kubelet() {
    let sent = patch(&Reported::default(), &scheduled(), &pending()).unwrap();
    assert_eq!(sent["metadata"], json!({ "uid": UID }));
    let status = &sent["status"];
    let kinds: Vec<&str> =
        status["conditions"].as_array().unwrap().iter().map(|c| c["type"].as_str().unwrap()).collect();
    // The scheduler's condition has an earlier time, which stays.
    assert_eq!(kinds, ["ContainersReady", "Initialized", "PodReadyToStartContainers", "Ready"]);
    let fields: Vec<&String> = status.as_object().unwrap().keys().collect();
    assert_eq!(fields, ["conditions", "containerStatuses", "hostIP", "hostIPs", "startTime"]);
    assert_eq!(status["hostIPs"], json!([{ "ip": "10.77.0.1" }]));
    assert_eq!(status["containerStatuses"], pending()["containerStatuses"]);
}

#[test]
fn each_patch_makes_the_servers_status_ours() {
    let (mut server, mut reported) = (scheduled(), Reported::default());
    for (i, ours) in [pending(), running(), completed()].into_iter().enumerate() {
        let made = reported
            .patch(&UID.into(), Some(&status(server.clone())), &status(ours.clone()), &FinalEnds::default())
            .unwrap();
        server = applied(&server, &serde_json::from_str(&made.body).unwrap());
        reported.acknowledge(&made, &status(server.clone()), &i.to_string());
        assert_eq!(patch(&reported, &server, &ours), None);
        assert!(reported.altered.is_empty());
    }
    let phase = |value: &Value| value["phase"].clone();
    assert_eq!((phase(&server), &server["podIP"]), (phase(&completed()), &"10.88.0.9".into()));
    let sent = patch(&Reported::default(), &pending(), &running()).unwrap();
    // As recorded from a kubelet: the fields that a condition no longer has are null, and unchanged fields are not
    // repeated.
    let ready = &sent["status"]["conditions"][2];
    let expected = json!({
        "type": "Ready", "status": "True", "lastTransitionTime": "2026-11-22T07:43:27Z", "message": null,
            "reason": null,
    });
    assert_eq!(ready, &expected);
    assert_eq!(sent["status"].get("startTime"), None);
}

#[test]
fn what_belongs_to_others_stays() {
    let mut server = running();
    server["conditions"].as_array_mut().unwrap().push(condition(
        "example.com/gate",
        true,
        "2026-11-22T07:43:26Z",
        json!({}),
    ));
    server["nominatedNodeName"] = "n2".into();
    server["resourceClaimStatuses"] = json!([{ "name": "c" }]);
    server["qosClass"] = "Burstable".into();
    assert_eq!(patch(&Reported::default(), &server, &running()), None);
    let after = applied(&server, &patch(&Reported::default(), &server, &completed()).unwrap());
    assert_eq!((&after["nominatedNodeName"], &after["conditions"][5]), (&"n2".into(), &server["conditions"][5]));
}

#[test]
fn a_status_that_another_changed_is_corrected() {
    let mut server = running();
    // The node controller, after a time without heartbeats.
    server["conditions"][2] = condition("Ready", false, "2026-11-22T08:00:00Z", json!({ "reason": "NodeNotReady" }));
    let sent = patch(&Reported::default(), &server, &running()).unwrap();
    let conditions = sent["status"]["conditions"].as_array().unwrap();
    assert_eq!((conditions.len(), sent["status"].as_object().unwrap().len()), (1, 1));
    assert_eq!((&conditions[0]["type"], &conditions[0]["reason"]), (&"Ready".into(), &Value::Null));
}

#[test]
fn a_field_that_an_old_server_drops_is_sent_once() {
    let old = |mut value: Value| {
        value.as_object_mut().unwrap().remove("hostIPs");
        value["containerStatuses"][0].as_object_mut().unwrap().remove("volumeMounts");
        value
    };
    let (server, mut reported) = (old(running()), Reported::default());
    let made =
        reported.patch(&UID.into(), Some(&status(server.clone())), &status(running()), &FinalEnds::default()).unwrap();
    reported.acknowledge(&made, &status(server.clone()), "7");
    assert_eq!(patch(&reported, &server, &running()), None);
    // A change of either side is a reason to send it again.
    let mut ours = running();
    ours["containerStatuses"][0]["restartCount"] = 1.into();
    let sent = patch(&reported, &server, &ours).unwrap();
    assert_eq!(sent["status"].as_object().unwrap().len(), 1);
    let mut changed = server.clone();
    changed["containerStatuses"] = json!([]);
    assert!(patch(&reported, &changed, &running()).unwrap()["status"]["containerStatuses"].is_array());
}

#[test]
fn a_change_of_another_during_a_patch_is_not_taken_for_a_refusal() {
    let (mut ours, mut reported) = (running(), Reported::default());
    ours["containerStatuses"][0]["restartCount"] = 1.into();
    let made =
        reported.patch(&UID.into(), Some(&status(running())), &status(ours.clone()), &FinalEnds::default()).unwrap();
    let mut stored = ours.clone();
    stored["conditions"][2] = condition("Ready", false, "2026-11-22T08:00:00Z", json!({}));
    reported.acknowledge(&made, &status(stored.clone()), "9");
    let sent = patch(&reported, &stored, &ours).unwrap();
    assert_eq!(sent["status"]["conditions"][0]["type"], "Ready");
    assert!(!reported.is_current("8") && reported.is_current("9") && reported.is_current("10"));
    assert!(reported.is_current("x") && Reported::default().is_current("1"));
}

#[test]
fn a_terminal_phase_stays() {
    let mut failed = completed();
    failed["phase"] = "Failed".into();
    failed["reason"] = "Evicted".into();
    assert_eq!(patch(&Reported::default(), &failed, &running()), None);
    let mut ours = completed();
    ours["containerStatuses"][0]["restartCount"] = 3.into();
    let sent = patch(&Reported::default(), &failed, &ours).unwrap();
    let fields: Vec<&String> = sent["status"].as_object().unwrap().keys().collect();
    assert_eq!(fields, ["containerStatuses"]);
}

#[test]
fn addresses_are_replaced_and_removed() {
    let mut ours = running();
    ours["podIP"] = "10.88.0.10".into();
    ours["podIPs"] = json!([{ "ip": "10.88.0.10" }]);
    let sent = patch(&Reported::default(), &running(), &ours).unwrap();
    assert_eq!(sent["status"]["podIPs"], json!([{ "$patch": "replace" }, { "ip": "10.88.0.10" }]));
    assert_eq!(applied(&running(), &sent)["podIPs"], ours["podIPs"]);
    ours.as_object_mut().unwrap().remove("podIP");
    ours.as_object_mut().unwrap().remove("podIPs");
    ours.as_object_mut().unwrap().remove("hostIP");
    let sent = patch(&Reported::default(), &running(), &ours).unwrap();
    assert_eq!(sent["status"], json!({ "podIP": null, "podIPs": null }));
}

#[test]
fn a_disruption_shows_with_the_terminal_phase_unless_another_set_it() {
    let disruption =
        |reason: &str| condition("DisruptionTarget", true, "2026-11-22T07:43:31Z", json!({ "reason": reason }));
    let with = |mut status: Value, reason: &str| {
        status["conditions"].as_array_mut().unwrap().push(disruption(reason));
        status
    };
    let none = Reported::default();
    assert_eq!(patch(&none, &running(), &with(running(), "TerminationByKubelet")), None);
    let last = with(completed(), "TerminationByKubelet");
    let sent = patch(&none, &running(), &last).unwrap();
    assert!(sent["status"]["conditions"].as_array().unwrap().iter().any(|c| c["type"] == "DisruptionTarget"));
    assert_eq!(patch(&none, &with(completed(), "EvictionByEvictionAPI"), &last), None);
}

#[test]
fn a_finished_resize_is_removed() {
    let mut server = running();
    let pending = condition("PodResizePending", true, "2026-11-22T07:43:31Z", json!({ "reason": "Deferred" }));
    server["conditions"].as_array_mut().unwrap().push(pending);
    let sent = patch(&Reported::default(), &server, &running()).unwrap();
    assert_eq!(sent["status"]["conditions"], json!([{ "type": "PodResizePending", "$patch": "delete" }]));
    assert_eq!(applied(&server, &sent)["conditions"], running()["conditions"]);
}

#[test]
fn an_end_that_the_server_keeps_stays_until_the_container_has_ended_again() {
    let ends = |spec: &str| FinalEnds::of(&serde_json::from_str(spec).unwrap());
    let ended = |code: i32| {
        let mut server = running();
        server["containerStatuses"][0]["state"] = json!({ "terminated": { "exitCode": code } });
        server
    };
    let sent = |spec: &str, code: i32, ours: &Value| {
        let (server, ours) = (status(ended(code)), status(ours.clone()));
        let patch = Reported::default().patch(&UID.into(), Some(&server), &ours, &ends(spec))?;
        serde_json::from_str::<Value>(&patch.body).unwrap()["status"].get("containerStatuses").cloned()
    };
    let own = |policy: &str| {
        format!(r#"{{"restartPolicy": "Never", "initContainers": [{{"name": "main", "restartPolicy": "{policy}"}}]}}"#)
    };
    for (spec, code, is_final) in [
        (r#"{"restartPolicy": "Never"}"#, 1, true),
        (r#"{"restartPolicy": "OnFailure"}"#, 0, true),
        (r#"{"restartPolicy": "OnFailure"}"#, 1, false),
        (r#"{"restartPolicy": "Always"}"#, 0, false),
        ("{}", 0, false),
        (&own("Always"), 0, false),
        (&own("Unheard"), 0, true),
    ] {
        assert_eq!(sent(spec, code, &running()).is_none(), is_final, "{spec} {code}");
        // Another termination is accepted.
        let again = sent(spec, code, &ended(7)).unwrap();
        assert_eq!(again[0]["state"]["terminated"]["exitCode"], 7, "{spec}");
    }
}

#[test]
fn termination_messages_share_the_limit() {
    let long = json!({ "terminated": { "exitCode": 1, "message": "\u{e4}".repeat(10_000) } });
    let mut ours = running();
    let mut one = container(long.clone(), false);
    one["lastState"] = long;
    ours["containerStatuses"] = json!([one, one, one]);
    let sent = patch(&Reported::default(), &running(), &ours).unwrap();
    for field in ["state", "lastState"] {
        let message = &sent["status"]["containerStatuses"][2][field]["terminated"]["message"];
        assert_eq!(message.as_str().unwrap().len(), 4096, "{field}");
    }
}

#[test]
fn a_node_adds_its_addresses_and_the_generation() {
    let mut ours = status(
        json!({ "phase": "Running", "conditions": [condition("Ready", true, "2026-11-22T07:43:31Z", json!({}))] }),
    );
    complete(&mut ours, &["10.77.0.1".into(), "fd00::1".into()], true, Some(3), None);
    let value = serde_json::to_value(&ours).unwrap();
    assert_eq!((&value["podIP"], &value["podIPs"][1]["ip"]), (&"10.77.0.1".into(), &"fd00::1".into()));
    assert_eq!((&value["observedGeneration"], &value["conditions"][0]["observedGeneration"]), (&3.into(), &3.into()));
    complete(&mut ours, &[], false, Some(0), None);
    assert_eq!((ours.observed_generation, ours.host_ip), (None, None));
    // An empty status has nothing to report.
    assert!(Reported::default().patch(&UID.into(), None, &PodStatus::default(), &FinalEnds::default()).is_none());
}
