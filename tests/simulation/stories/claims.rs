//! Claims: a directory with the first pod, kept for the next claim of the name or removed, across kills and errors.

use crate::story::*;
use crate::world::{S, World};
use serde_json::Value;
use wherry::api::claim::ClaimKey;
use wherry::api::names::FullName;
use wherry::engine::claims::shown;
use wherry::engine::control::{Reply, Request};
use wherry::engine::event::Event;

/// A pod with the claim `data`.
const USER: &str = "volumes: [{name: v, persistentVolumeClaim: {claimName: data}}], \
                    containers: [{name: main, image: 'busybox:1.35', volumeMounts: [{name: v, mountPath: /v}]}]";
const KEPT: &str = "/var/lib/wherry/claims/default/data";
const SCRATCH: &str = "/data/scratch/default/data";

fn key(name: &str) -> ClaimKey {
    ClaimKey(FullName::new("default", name))
}

/// The claim as the API shows it; null: there is none.
fn claim(w: &World) -> Value {
    let shown = |entry| shown::claim(&key("data"), entry, &w.config.storage_classes);
    w.engine.claims().get(&key("data")).and_then(shown).unwrap_or_default()
}

/// The phases of the claim and of its volume.
fn phases(w: &World) -> (String, String) {
    let claim = claim(w);
    let terminates = claim.pointer("/metadata/deletionTimestamp").is_some();
    let entry = w.engine.claims().get(&key("data"));
    let volume = entry.and_then(|entry| shown::volume(&key("data"), entry, "lab")).unwrap_or_default();
    let text = |object: &Value| object["status"]["phase"].as_str().unwrap_or("-").to_owned();
    (if terminates { "Terminating".to_owned() } else { text(&claim) }, text(&volume))
}

fn assert_phases(w: &World, of_claim: &str, of_volume: &str) {
    assert_eq!(phases(w), (of_claim.to_owned(), of_volume.to_owned()));
}

fn records(w: &World) -> usize {
    w.disk.records.keys().filter(|key| key.starts_with("persistentvolumes/")).count()
}

#[test]
fn y22_a_claim_gets_its_directory_with_its_first_pod_and_keeps_it_for_the_next_claim() {
    let mut w = node();
    w.define_claim("data", "");
    w.run(3);
    assert_phases(&w, "Pending", "-");
    assert_eq!((w.notices("WaitForFirstConsumer").len(), w.files_of_claim(KEPT)), (1, None));
    w.file("web", USER);
    w.run(3);
    assert_eq!(w.shown("web"), "Running main#0:running");
    assert_phases(&w, "Bound", "Bound");
    let shown = claim(&w);
    assert_eq!(
        (&shown["spec"]["storageClassName"], &shown["status"]["capacity"]["storage"]),
        (&"local".into(), &"1Gi".into())
    );
    assert_eq!((w.files_of_claim(KEPT), records(&w)), (Some(vec!["web"]), 1));
    w.remove("web");
    w.remove_claim("data");
    w.run(60);
    assert_phases(&w, "-", "Released");
    w.restart_engine();
    w.run(3);
    assert_phases(&w, "-", "Released");
    w.define_claim("data", "");
    w.file("next", USER);
    w.run(3);
    assert_phases(&w, "Bound", "Bound");
    assert_eq!(w.files_of_claim(KEPT), Some(vec!["next", "web"]), "the files of the earlier claim");
    w.assert_well();
}

#[test]
fn y22_a_pod_waits_for_its_claim_and_starts_as_soon_as_it_is_there() {
    let mut w = node();
    w.file("web", USER);
    w.run(5);
    assert_eq!(w.shown("web"), "Pending main#0:waiting ContainerCreating");
    let why = "MountVolume.SetUp failed for volume \"v\" : persistentvolumeclaim \"data\" not found";
    assert_eq!(w.notices("FailedMount")[0], why);
    w.define_claim("data", "");
    w.run(3);
    assert_eq!(w.shown("web"), "Running main#0:running", "not only after the delay of an error");
    w.assert_well();
}

#[test]
fn y22_a_claim_with_an_unknown_class_waits_until_the_configuration_has_it() {
    let mut w = node();
    w.define_claim("data", ", storageClassName: fast");
    w.file("web", USER);
    w.run(5);
    assert_phases(&w, "Pending", "-");
    let why = "storageclass.storage.k8s.io \"fast\" not found; add it to storageClasses in the configuration, which has: \
               local, scratch";
    assert_eq!(w.notices("ProvisioningFailed"), [why]);
    assert!(w.notices("FailedMount")[0].ends_with(&format!("persistentvolumeclaim \"data\" is not bound: {why}")));
    let mut config = w.config.clone();
    config.storage_classes[1].name = "fast".to_owned();
    w.config = config.clone();
    w.step(Event::Configure(Box::new(config)));
    w.run(3);
    assert_eq!(w.shown("web"), "Running main#0:running");
    assert_eq!(w.files_of_claim(SCRATCH), Some(vec!["web"]));
    w.assert_well();
}

#[test]
fn y22_a_claim_in_use_stays_until_its_last_pod_is_gone() {
    let mut w = node();
    w.define_claim("data", ", storageClassName: scratch");
    w.file("web", USER);
    w.run(3);
    w.remove_claim("data");
    w.run(30);
    assert_phases(&w, "Terminating", "Bound");
    w.exit_of("web/main", 1);
    w.run(15);
    assert_eq!(w.shown("web"), "Running main#1:running", "a container can start again");
    w.restart_engine();
    w.run(15);
    assert_phases(&w, "Terminating", "Bound");
    w.remove("web");
    w.run(60);
    assert_phases(&w, "-", "-");
    assert_eq!((w.files_of_claim(SCRATCH), records(&w), w.engine.claims().iter().count()), (None, 0, 0));
    w.assert_well();
}

#[test]
fn y22_a_claim_that_is_defined_again_before_its_pods_are_gone_goes_on() {
    let mut w = node();
    w.define_claim("data", ", storageClassName: scratch");
    w.file("web", USER);
    w.run(3);
    w.remove_claim("data");
    w.run(3);
    assert_phases(&w, "Terminating", "Bound");
    w.define_claim("data", ", storageClassName: scratch");
    w.run(3);
    assert_phases(&w, "Bound", "Bound");
    w.remove("web");
    w.run(60);
    assert_eq!(w.files_of_claim(SCRATCH), Some(vec!["web"]));
    w.assert_well();
}

#[test]
fn y22_a_directory_that_existed_before_is_used_but_never_removed() {
    let mut w = node();
    w.foreign_directory(SCRATCH);
    w.define_claim("data", ", storageClassName: scratch");
    w.file("web", USER);
    w.run(3);
    assert_eq!(w.notices("ProvisioningSucceeded"), [format!("{SCRATCH} exists already, and is used as it is")]);
    w.remove("web");
    w.remove_claim("data");
    w.run(60);
    assert_phases(&w, "-", "Released");
    assert_eq!(w.notices("VolumeFailedDelete").len(), 1);
    let id = w.ask(Request::RemoveVolume { of: key("data") });
    w.run(3);
    assert!(w.answer(id).is_some_and(|answer| answer.as_ref().is_err_and(|e| e.status() == 409)));
    assert_eq!(w.files_of_claim(SCRATCH), Some(vec!["(foreign)", "web"]));
    w.assert_well();
}

#[test]
fn y22_a_kill_at_any_moment_of_the_creation_leaves_a_directory_that_wherry_may_remove() {
    // The record is slow, so each kill comes before the record of the new directory is on disk.
    for ms in [0, 1, 2, 5, 20, 200, 1500, 5500] {
        let mut w = node();
        w.disk.delay = 6 * S;
        // The pod waits for its claim, so its own record is there already.
        w.file("web", USER);
        w.run(20);
        w.define_claim("data", ", storageClassName: scratch");
        w.until("the directory exists", 60, |w| w.files_of_claim(SCRATCH).is_some());
        w.run_ms(ms);
        w.restart_engine();
        w.disk.delay = 0;
        w.run(20);
        assert_eq!(w.shown("web"), "Running main#0:running", "killed after {ms} ms");
        w.disk.delay = S;
        w.remove_claim("data");
        w.remove("web");
        w.until("the claim is gone", 60, |w| claim(w).is_null());
        w.run_ms(ms);
        w.restart_engine();
        w.disk.delay = 0;
        w.run(60);
        assert_eq!((w.files_of_claim(SCRATCH), records(&w)), (None, 0), "killed after {ms} ms");
        w.assert_well();
    }
}

#[test]
fn y22_a_failed_creation_and_a_failed_removal_are_repeated() {
    let mut w = node();
    w.volumes.claim_error = Some("read-only file system".into());
    w.define_claim("data", ", storageClassName: scratch");
    w.file("web", USER);
    w.run(65);
    assert_phases(&w, "Pending", "Pending");
    assert_eq!(w.notices("ProvisioningFailed").len(), 3);
    assert_eq!(w.notices("ProvisioningFailed")[0], format!("failed to create {SCRATCH}: read-only file system"));
    w.volumes.claim_error = None;
    w.run(31);
    assert_eq!(w.shown("web"), "Running main#0:running");
    w.volumes.claim_error = Some("read-only file system".into());
    w.remove("web");
    w.remove_claim("data");
    w.run(60);
    assert_phases(&w, "-", "Failed");
    w.define_claim("data", "");
    w.file("next", USER);
    w.run(5);
    assert_phases(&w, "Pending", "Failed");
    let why = "the directory of an earlier claim of this name is being removed";
    assert!(w.notices("FailedMount").last().is_some_and(|last| last.ends_with(why)));
    w.volumes.claim_error = None;
    w.run(45);
    assert_eq!((w.shown("next"), w.files_of_claim(SCRATCH)), ("Running main#0:running".to_owned(), None));
    assert_eq!(w.files_of_claim(KEPT), Some(vec!["next"]));
    w.assert_well();
}

#[test]
fn y22_a_user_removes_a_directory_that_is_kept() {
    let mut w = node();
    w.define_claim("data", "");
    w.file("web", USER);
    w.run(3);
    let in_use = w.ask(Request::RemoveVolume { of: key("data") });
    let unknown = w.ask(Request::RemoveVolume { of: key("other") });
    w.run(3);
    let status = |w: &World, id| w.answer(id).and_then(|answer| answer.as_ref().err().map(|e| e.status()));
    assert_eq!((status(&w, in_use), status(&w, unknown)), (Some(409), Some(404)));
    w.remove("web");
    w.remove_claim("data");
    w.run(60);
    let id = w.ask(Request::RemoveVolume { of: key("data") });
    w.run(3);
    assert!(matches!(w.answer(id), Some(Ok(Reply::Shortened))));
    assert_eq!((w.files_of_claim(KEPT), records(&w)), (None, 0));
    w.assert_well();
}

#[test]
fn y22_an_immutable_field_stays_and_the_size_can_grow() {
    let mut w = node();
    w.define_claim("data", "");
    w.file("web", USER);
    w.run(3);
    w.define_claim("data", ", storageClassName: scratch");
    w.run(3);
    let problems: Vec<String> =
        w.engine.manifest_problems().flat_map(|p| &p.problems).map(ToString::to_string).collect();
    assert!(problems[0].contains("spec: Forbidden: spec is immutable after creation except resources.requests"));
    w.restart_engine();
    w.run(3);
    assert_phases(&w, "Bound", "Bound");
    w.define_claim_as("data", "accessModes: [ReadWriteOnce], resources: {requests: {storage: 2Gi}}");
    w.run(3);
    assert_eq!(claim(&w)["status"]["capacity"]["storage"], "2Gi");
    w.assert_well();
}

#[test]
fn y22_only_one_pod_at_a_time_uses_a_claim_for_one_pod() {
    let mut w = node();
    w.define_claim_as("data", "accessModes: [ReadWriteOncePod], resources: {requests: {storage: 1Gi}}");
    w.file("web", USER);
    w.run(3);
    w.file("also", USER);
    w.run(5);
    assert_eq!(w.shown("also"), "Pending main#0:waiting ContainerCreating");
    let why = "persistentvolumeclaim \"data\" is in use by pod default/web: its access mode is ReadWriteOncePod";
    assert!(w.notices("FailedMount")[0].ends_with(why));
    w.restart_engine();
    w.run(20);
    assert_eq!(w.shown("also"), "Pending main#0:waiting ContainerCreating");
    w.exit_of("web/main", 1);
    w.run(20);
    assert_eq!(w.shown("web"), "Running main#1:running");
    w.remove("web");
    w.run(45);
    assert_eq!(w.shown("also"), "Running main#0:running");
    w.assert_well();
}

#[test]
fn y22_two_pods_that_appear_together_do_not_share_a_claim_for_one_pod() {
    let mut w = node();
    w.define_claim_as("data", "accessModes: [ReadWriteOncePod], resources: {requests: {storage: 1Gi}}");
    w.file("web", USER);
    w.run(3);
    w.remove("web");
    w.run(45);
    let two = ["first", "second"].map(|name| pod(&format!("/m/{name}.yaml"), name, "", USER));
    w.set_files(two.map(|pod| (pod.source.path.clone(), pod)).into());
    w.run(5);
    let running = ["first", "second"].map(|name| w.shown(name) == "Running main#0:running");
    assert_eq!(running.iter().filter(|runs| **runs).count(), 1, "{running:?}");
    assert_eq!(w.notices("FailedMount").len(), 1);
    w.assert_well();
}

#[test]
fn y22_directories_are_removed_one_after_the_other() {
    let mut w = node();
    for name in ["data", "more"] {
        w.define_claim(name, ", storageClassName: scratch");
        w.file(name, &USER.replace("claimName: data", &format!("claimName: {name}")));
    }
    w.run(5);
    assert!(w.files_of_claim(SCRATCH).is_some() && w.files_of_claim("/data/scratch/default/more").is_some());
    for name in ["data", "more"] {
        w.remove(name);
    }
    w.run(45);
    w.volumes.claim_error = Some("input/output error".into());
    for name in ["data", "more"] {
        w.remove_claim(name);
    }
    w.run_ms(1500);
    let failed = w.notices("VolumeFailedDelete").len();
    assert_eq!((failed, w.volumes.most_claim_calls), (2, 1));
    // The next removal takes long. The other one waits for it without a step.
    w.volumes.claim_error = None;
    w.volumes.claim_delay = 20 * S;
    w.run(35);
    let steps = w.observed.steps;
    w.run(10);
    assert!(w.observed.steps - steps < 60, "{} steps in 10 s", w.observed.steps - steps);
    w.run(60);
    assert_eq!((records(&w), w.volumes.most_claim_calls), (0, 1));
    w.assert_well();
}

#[test]
fn y22_an_ephemeral_volume_ends_with_its_pod() {
    let of = |image: &str| {
        format!(
            "volumes: [{{name: v, ephemeral: {{volumeClaimTemplate: {{spec: {{accessModes: [ReadWriteOnce], \
             resources: {{requests: {{storage: 1Gi}}}}}}}}}}}}], \
             containers: [{{name: main, image: '{image}', volumeMounts: [{{name: v, mountPath: /v}}]}}]"
        )
    };
    let path = "/var/lib/wherry/claims/default/web-v";
    let mut w = node();
    w.file("web", &of(IMAGE));
    w.run(3);
    assert_eq!((w.shown("web"), w.files_of_claim(path)), ("Running main#0:running".to_owned(), Some(vec!["web"])));
    w.restart_engine();
    w.run(5);
    w.exit_of("web/main", 1);
    w.run(15);
    assert_eq!(w.shown("web"), "Running main#1:running");
    w.file("web", &of("other:1"));
    w.run(60);
    assert_eq!(w.shown("web"), "Running main#0:running");
    let removed = format!("RemoveClaim {path}");
    assert_eq!(w.take_calls().iter().filter(|call| **call == removed).count(), 1, "a new pod has new files");
    w.remove("web");
    w.run(60);
    assert_eq!((w.files_of_claim(path), records(&w), w.engine.claims().iter().count()), (None, 0, 0));
    w.assert_well();
}

#[test]
fn y22_a_record_that_cannot_be_written_delays_the_pod_and_nothing_else() {
    let mut w = node();
    w.define_claim("data", "");
    w.run(2);
    w.disk_fails(20 * S);
    w.file("web", USER);
    w.run(15);
    assert_eq!((w.files_of_claim(KEPT), w.shown("web")), (None, "Pending main#0:waiting ContainerCreating".to_owned()));
    w.run(60);
    assert_eq!(w.shown("web"), "Running main#0:running");
    w.assert_well();
}

const TEMPLATES: &str = "serviceName: db, volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], \
                         resources: {requests: {storage: 1Gi}}}}]";
const MOUNTS: &str = "containers: [{name: main, image: 'busybox:1.35', volumeMounts: [{name: data, mountPath: /v}]}]";

/// The claims of the StatefulSet `db`, with their phases.
fn of_db(w: &World) -> Vec<String> {
    let phase = |key: &ClaimKey, claim: Value| {
        let ends = claim.pointer("/metadata/deletionTimestamp").is_some();
        format!(
            "{} {}",
            key.0.name,
            if ends { "Terminating" } else { claim["status"]["phase"].as_str().unwrap_or("-") }
        )
    };
    let all = w.engine.claims().iter();
    all.filter_map(|(key, entry)| Some(phase(key, shown::claim(key, entry, &w.config.storage_classes)?))).collect()
}

#[test]
fn y23_each_pod_of_a_stateful_set_has_claims_of_its_own_that_stay() {
    let mut w = node();
    w.define_stateful_set("db", &format!("replicas: 2, {TEMPLATES}"), MOUNTS);
    w.run(10);
    assert_eq!(of_db(&w), ["data-db-0 Bound", "data-db-1 Bound"]);
    let shown = shown::claim(&key("data-db-0"), w.engine.claims().get(&key("data-db-0")).unwrap(), &[]).unwrap();
    assert_eq!(shown["metadata"]["labels"]["app"], "db");
    w.define_stateful_set("db", &format!("replicas: 1, {TEMPLATES}"), MOUNTS);
    w.run(60);
    assert_eq!(of_db(&w), ["data-db-0 Bound", "data-db-1 Bound"]);
    w.restart_engine();
    w.run(10);
    w.define_stateful_set("db", &format!("replicas: 2, {TEMPLATES}"), &MOUNTS.replace("busybox:1.35", "other:1"));
    w.run(120);
    assert_eq!(w.files_of_claim("/var/lib/wherry/claims/default/data-db-1"), Some(vec!["db-1"]));
    assert_eq!(w.take_calls().iter().filter(|call| call.starts_with("RemoveClaim")).count(), 0);
    w.remove_stateful_set("db");
    w.run(60);
    w.restart_engine();
    w.run(10);
    assert_eq!(of_db(&w), ["data-db-0 Bound", "data-db-1 Bound"], "nobody has deleted them");
    let manifest = w.ask(Request::DeleteClaim { of: key("data") });
    let id = w.ask(Request::DeleteClaim { of: key("data-db-0") });
    w.restart_engine();
    w.run(10);
    assert!(w.answer(manifest).is_some_and(|answer| answer.as_ref().is_err_and(|e| e.status() == 404)));
    assert!(matches!(w.answer(id), None | Some(Ok(Reply::Shortened))));
    w.ask(Request::DeleteClaim { of: key("data-db-0") });
    w.run(10);
    assert_eq!((of_db(&w), records(&w)), (vec!["data-db-1 Bound".to_owned()], 2), "its directory is kept");
    w.assert_well();
}

#[test]
fn y23_the_policy_of_a_stateful_set_ends_its_claims() {
    let mut w = node();
    let spec = |replicas: u32, policy: &str| {
        format!("replicas: {replicas}, persistentVolumeClaimRetentionPolicy: {{{policy}}}, {TEMPLATES}")
            .replace("accessModes", "storageClassName: scratch, accessModes")
    };
    w.define_stateful_set("db", &spec(3, "whenScaled: Delete"), MOUNTS);
    w.run(15);
    assert_eq!(of_db(&w).len(), 3);
    w.define_stateful_set("db", &spec(2, "whenScaled: Delete"), MOUNTS);
    w.run(60);
    assert_eq!((of_db(&w).len(), records(&w)), (2, 2), "the directory is removed too");
    w.define_stateful_set("db", &spec(1, "whenDeleted: Delete"), MOUNTS);
    w.run(60);
    assert_eq!(of_db(&w).len(), 2, "a claim without a pod");
    w.restart_engine();
    w.run(5);
    w.remove_stateful_set("db");
    w.run(60);
    assert_eq!((of_db(&w).len(), records(&w)), (0, 0));
    w.assert_well();
}

#[test]
fn y23_a_deleted_claim_ends_with_its_pod_and_the_next_pod_gets_a_new_one() {
    let mut w = node();
    let scratch = TEMPLATES.replace("accessModes", "storageClassName: scratch, accessModes");
    w.define_stateful_set("db", &format!("replicas: 1, {scratch}"), MOUNTS);
    w.run(5);
    w.ask(Request::DeleteClaim { of: key("data-db-0") });
    w.run(10);
    assert_eq!(of_db(&w), ["data-db-0 Terminating"]);
    let uid = w.engine.pods()[0].pod.uid.clone();
    w.ask(Request::DeleteReplica { uid, grace: None });
    w.run(60);
    assert_eq!((w.shown("db-0").as_str(), of_db(&w)), ("Running main#0:running", vec!["data-db-0 Bound".to_owned()]));
    assert_eq!(w.take_calls().iter().filter(|call| call.starts_with("RemoveClaim")).count(), 1);
    w.assert_well();
}

#[test]
fn y22_a_new_pod_waits_while_a_claim_is_being_deleted_and_a_finished_pod_does_not_use_it() {
    let mut w = node();
    w.define_claim("data", ", storageClassName: scratch");
    w.file("web", &format!("restartPolicy: Never, {USER}"));
    w.run(3);
    w.remove_claim("data");
    w.run(3);
    w.file("also", USER);
    w.run(5);
    assert!(w.notices("FailedMount")[0].ends_with("persistentvolumeclaim \"data\" is being deleted"));
    assert_phases(&w, "Terminating", "Bound");
    w.exit_of("web/main", 0);
    w.run(30);
    assert_phases(&w, "-", "-");
    assert_eq!((w.files_of_claim(SCRATCH), w.engine.pods().len()), (None, 2));
    w.define_claim("data", "");
    w.run(5);
    assert_eq!(w.shown("also"), "Running main#0:running");
    w.assert_well();
}
