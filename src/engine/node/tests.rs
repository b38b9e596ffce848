//! Tests of the engine's views: the dump, the summary, and the worker status of one pod.

use super::*;
use crate::api::document;
use crate::api::document::context::Context;
use crate::api::facts::{ContainerFact, ContainerState, Listed, ListedContainer, ListedSandbox, PodFacts, SandboxFact};
use crate::api::manifest_report::{FileReport, ManifestReport};
use crate::api::names::FullName;
use crate::api::pod::Pod;
use crate::api::shutdown::Groups;
use crate::api::time::{Boot, Wall};
use crate::engine::config::FixedConfig;
use crate::engine::effect::RuntimeCall;
use crate::engine::event::LogindEvent;
use serde_json::Value;
use std::rc::Rc;
use std::time::Duration;

/// The names of the tests' manifest files, without the extension.
const NAMES: [&str; 6] = ["a", "b", "big", "new", "old", "web"];

/// A manifest with one pod, and the pod.
#[derive(Clone)]
struct Manifest {
    text: String,
    pod: Rc<Pod>,
}

impl std::ops::Deref for Manifest {
    type Target = Rc<Pod>;

    fn deref(&self) -> &Rc<Pod> {
        &self.pod
    }
}

fn pod(name: &str, secret: &str) -> Manifest {
    read(name, &format!("env: [{{name: A, value: {secret}}}]"))
}

/// Returns a pod that requests this number of cpus; the node has four.
fn requesting(name: &str, cpus: u32) -> Manifest {
    read(name, &format!("resources: {{requests: {{cpu: {cpus}}}}}"))
}

fn read(name: &str, more: &str) -> Manifest {
    let text = format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{containers: [{{name: m, image: i:1, \
         {more}}}]}}}}"
    );
    let context = Context::new("lab", "2027-01-15T08:00:00Z");
    let pod = Rc::new(document::read(text.as_bytes(), &format!("/m/{name}.yaml"), context).0.remove(0));
    Manifest { text, pod }
}

fn at(seconds: u64) -> Now {
    let passed = Duration::from_secs(seconds);
    Now { boot: Boot(500_000_000) + passed, wall: Wall(1_800_000_000_000_000_000) + passed }
}

fn op_of(effects: &[Effect], wanted: impl Fn(&RuntimeCall) -> bool) -> crate::engine::op::OpId {
    let op = effects.iter().find_map(|e| match e {
        Effect::Runtime { op, call, .. } if wanted(call) => Some(*op),
        _ => None,
    });
    op.unwrap_or_else(|| panic!("{effects:?}"))
}

fn listed(uid: &str, name: &str) -> Listed {
    let (id, uid, name) = (format!("s-{uid}"), Uid::from(uid), FullName::new("default", name));
    let (owner, created_at) = (Some("me".to_string()), Wall(1));
    let container = ListedContainer {
        id: "c1".into(),
        sandbox: id.as_str().into(),
        uid: uid.clone(),
        pod_name: name.clone(),
        name: "m".into(),
        attempt: 0,
        state: ContainerState::Running,
        owner: owner.clone(),
        grace_seconds: None,
        created_at,
    };
    let sandbox = ListedSandbox {
        user_namespace: None,
        id: id.into(),
        uid,
        name,
        attempt: 0,
        ready: true,
        owner,
        grace_seconds: Some(7),
        created_at,
    };
    Listed { sandboxes: vec![sandbox], containers: vec![container] }
}

/// Returns the configuration of a node named `lab`, with four cpus and graceful shutdown.
fn config() -> EngineConfig {
    let shutdown = Groups::from_total(Duration::from_secs(30), Duration::from_secs(10));
    let fixed = FixedConfig { owner: "me".into(), manifests: "/m".into(), ..FixedConfig::default() };
    let mut config = EngineConfig { fixed, shutdown, ..EngineConfig::default() };
    config.node.name = "lab".into();
    config
}

/// Returns the event for a directory that contains exactly these files.
fn objects(manifests: Vec<Manifest>) -> Event {
    let report = |name: &str| {
        let file = format!("{name}.yaml");
        match manifests.iter().find(|manifest| &*manifest.name.name == name) {
            Some(manifest) => FileReport::of_text(&file, &format!("/m/{file}"), &manifest.text),
            None => FileReport::removed(&file),
        }
    };
    Event::Manifests(ManifestReport { files: NAMES.map(report).into(), ..ManifestReport::default() })
}

/// Returns a node whose runtime connects at 5 s, and whose relist at 6 s has the given result.
fn node(desired: Vec<Manifest>, shown: Listed) -> (Engine, Vec<Effect>) {
    let mut engine = Engine::new(config());
    let mut effects = engine.step(objects(desired), at(5));
    effects.extend(engine.step(Event::RuntimeUp, at(5)));
    let list = op_of(&effects, |call| matches!(call, RuntimeCall::List));
    effects.extend(engine.step(Event::Done { op: list, result: Ok(Answer::Listed(shown)) }, at(6)));
    let removal =
        effects.iter().find_map(|e| if let Effect::RemoveEmptyNetworks { op, .. } = e { Some(*op) } else { None });
    if let Some(op) = removal {
        effects.extend(engine.step(Event::Done { op, result: Ok(Answer::Ok) }, at(6)));
    }
    (engine, effects)
}

#[test]
fn the_dump_has_everything_and_no_secret() {
    let pods = vec![pod("a", "s3cret"), pod("b", "s3cret")];
    let (engine, _) = node(pods.clone(), listed("orphan", "x"));
    let dump = engine.dump();
    assert_eq!(dump["now"]["boot"], 6.5);
    assert_eq!(dump["now"]["wall"], "2027-01-15T08:00:06Z");
    assert_eq!(dump["config"]["owner"], "me");
    assert_eq!(dump["runtime"]["connection"]["Up"]["answered"], false);
    let workers = dump["workers"].as_object().unwrap();
    assert_eq!(workers.len(), 3);
    let a = &workers[pods[0].uid.as_str()];
    assert_eq!((&a["name"], &a["pod"]["source"]["path"]), (&Value::from("default/a"), &Value::from("/m/a.yaml")));
    assert!(a["state"]["Sync"].is_object(), "{a}");
    assert_eq!(workers["orphan"]["state"]["Terminating"]["grace_deadline"], 13.5);
    assert_eq!(dump["desired"]["names"]["default/b"][0], pods[1].uid.as_str());
    // The orphan's status is being read.
    let owners = dump["ops"]["owners"].as_object().unwrap();
    assert!(owners.values().any(|o| o["Read"] == "orphan"), "{owners:?}");
    assert!(dump["pleg"]["cache"]["orphan"]["reading"].is_array());
    assert!(!dump.to_string().contains("s3cret"));
}

/// Returns the facts of a pod with the running container `m`.
fn running() -> PodFacts {
    let (id, created_at) = ("s-1".into(), Wall(1));
    let owner = Some("me".to_string());
    let sandbox = SandboxFact {
        user_namespace: None,
        id,
        attempt: 0,
        ready: true,
        created_at,
        ips: Vec::new(),
        host_network: false,
        owner: owner.clone(),
        pid: None,
    };
    let container = ContainerFact {
        id: "c1".into(),
        sandbox: "s-1".into(),
        name: "m".into(),
        attempt: 0,
        state: ContainerState::Running,
        created_at,
        started_at: Wall(1),
        finished_at: Wall(0),
        exit_code: 0,
        reason: String::new(),
        message: String::new(),
        image: "i:1".into(),
        image_ref: "sha256:1".into(),
        spec_hash: None,
        backoff_level: 0,
        boot: None,
        grace_seconds: None,
        termination_file: None,
        fallback_to_logs: false,
        log_path: String::new(),
        owner,
        pre_stop: None,
        stop_signal: None,
        user: None,
        pid: None,
    };
    PodFacts { sandboxes: vec![sandbox], containers: vec![container] }
}

#[test]
fn a_pod_shows_its_waiting_reasons() {
    let old = pod("web", "one");
    let (mut engine, begun) = node(vec![old.clone()], listed(old.uid.as_str(), "web"));
    let worker_status = engine.worker_status(&old.uid, at(6).boot).unwrap();
    assert_eq!(worker_status.state, "Sync");
    assert_eq!(worker_status.waits_for, ["starts: the container runtime has not responded yet"]);

    // The pod runs, and its manifest is edited: the old pod terminates, and the new one waits.
    let read = op_of(&begun, |call| matches!(call, RuntimeCall::ReadPod { .. }));
    let adopted = engine.step(Event::Done { op: read, result: Ok(Answer::Pod(running())) }, at(7));
    let new = pod("web", "two");
    let effects = engine.step(objects(vec![new.clone()]), at(8));
    let runs_on = engine.worker_status(&old.uid, at(8).boot).unwrap();
    assert_eq!(runs_on.state, "Sync");
    assert!(runs_on.waits_for.iter().any(|w| w.starts_with("its record to be written; then the new version")));
    let mut written: Vec<Effect> = begun.into_iter().chain(adopted).chain(effects).collect();
    while let Some(effect) = written.pop() {
        if let Effect::Record { op, .. } = effect {
            written.extend(engine.step(Event::Done { op, result: Ok(Answer::Ok) }, at(8)));
        }
    }
    let ends = engine.worker_status(&old.uid, at(18).boot).unwrap();
    assert_eq!((ends.state, ends.grace_left_seconds), ("Terminating", Some(20)));
    assert_eq!(ends.doing.as_deref(), Some("stopping containers"));
    let waits = engine.worker_status(&new.uid, at(18).boot).unwrap();
    assert_eq!(waits.state, "Waiting");
    assert_eq!(waits.waits_for, [format!("the pod {} of the same name, which has not finished yet", old.uid)]);
    assert_eq!(engine.worker_status(&Uid::from("nobody"), at(18).boot), None);
}

#[test]
fn a1_a3_a4_rejected_and_waiting_pods_show_their_reason_and_are_counted() {
    let (old, big) = (requesting("old", 3), requesting("big", 5));
    let (mut engine, effects) = node(vec![old.clone(), big.clone()], listed(old.uid.as_str(), "old"));
    let read = op_of(&effects, |call| matches!(call, RuntimeCall::ReadPod { .. }));
    engine.step(Event::Done { op: read, result: Ok(Answer::Pod(running())) }, at(7));
    let s = engine.summary(at(7).boot);
    assert_eq!((s.desired, s.active, s.rejected, s.waiting_for_room), (2, 1, 1, 0));
    assert_eq!(s.working, BTreeMap::from([(("sync", "desired"), 1)]), "a kubelet has no worker for a rejected pod");
    assert_eq!(engine.pod(&big.uid).unwrap().status.reason.as_deref(), Some("OutOfcpu"));
    let worker_status = engine.worker_status(&big.uid, at(7).boot).unwrap();
    assert_eq!(worker_status.waits_for, ["a new version of its manifest, or `wherry retry`"]);

    // The old pod takes a while to terminate; the new one fits after that.
    let new = requesting("new", 2);
    engine.step(objects(vec![big.clone(), new.clone()]), at(8));
    let s = engine.summary(at(8).boot);
    assert_eq!((s.desired, s.active, s.rejected, s.waiting_for_room), (2, 2, 1, 1));
    assert_eq!(s.working, BTreeMap::from([(("sync", "desired"), 1), (("terminating", "orphan"), 1)]));
    let status = engine.pod(&new.uid).unwrap().status.clone();
    assert_eq!((status.phase.as_deref(), status.reason.as_deref()), (Some("Pending"), Some("WaitingForRoom")));
    let worker_status = engine.worker_status(&new.uid, at(8).boot).unwrap();
    assert_eq!(
        (worker_status.state, &*worker_status.waits_for),
        ("Waiting", &[format!("room: {}", status.message.unwrap())][..])
    );
    assert!(worker_status.waits_for[0].starts_with("room: waiting for default/old to end: "), "{worker_status:?}");
}

#[test]
fn a4_a_new_pod_waits_for_the_first_list() {
    let mut engine = Engine::new(config());
    let web = requesting("web", 1);
    engine.step(objects(vec![web.clone()]), at(5));
    assert_eq!(engine.worker_status(&web.uid, at(5).boot).unwrap().waits_for, ["the first relist"]);
}

#[test]
fn s4_a_pod_rejected_for_a_shutdown_waits_for_its_end() {
    let (mut engine, _) = node(Vec::new(), Listed::default());
    engine.step(Event::Logind(LogindEvent::Preparing(true)), at(7));
    let web = requesting("web", 1);
    engine.step(objects(vec![web.clone()]), at(8));
    assert_eq!(engine.pod(&web.uid).unwrap().status.reason.as_deref(), Some("NodeShutdown"));
    assert_eq!(engine.worker_status(&web.uid, at(8).boot).unwrap().waits_for, ["the end of the node's shutdown"]);
    assert_eq!(engine.summary(at(8).boot).rejected, 1);
}
