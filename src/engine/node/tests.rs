//! What the node shows of itself: the dump, and the word on one pod.

use super::*;
use crate::api::document;
use crate::api::facts::{ContainerFact, ContainerState, Listed, ListedContainer, ListedSandbox, PodFacts, SandboxFact};
use crate::api::time::{Boot, Wall};
use serde_json::Value;

fn pod(name: &str, secret: &str) -> Rc<Pod> {
    let text = format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{containers: [{{name: m, image: i:1, \
         env: [{{name: A, value: {secret}}}]}}]}}}}"
    );
    let context = document::Context { node_name: "lab", unsafe_sysctls: &[], seen: "2027-01-15T08:00:00Z" };
    Rc::new(document::read(text.as_bytes(), &format!("/m/{name}.yaml"), context).0.remove(0))
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
    let sandbox =
        ListedSandbox { id: id.into(), uid, name, attempt: 0, ready: true, owner, grace_seconds: Some(7), created_at };
    Listed { sandboxes: vec![sandbox], containers: vec![container] }
}

/// A node on which the runtime is there at 5 s, and a list came at 6 s that shows what is given.
fn node(desired: Vec<Rc<Pod>>, shown: Listed) -> (Engine, Vec<Effect>) {
    let mut engine = Engine::new(EngineConfig { owner: "me".into(), ..EngineConfig::default() });
    engine.step(Event::Desired(desired), at(5));
    let mut effects = engine.step(Event::RuntimeUp, at(5));
    let list = op_of(&effects, |call| matches!(call, RuntimeCall::List));
    effects.extend(engine.step(Event::Done { op: list, result: Ok(Answer::Listed(shown)) }, at(6)));
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
    assert_eq!(dump["runtime"]["up"], true);
    let workers = dump["workers"].as_object().unwrap();
    assert_eq!(workers.len(), 3);
    let a = &workers[pods[0].uid.as_str()];
    assert_eq!((&a["name"], &a["pod"]["source"]["path"]), (&Value::from("default/a"), &Value::from("/m/a.yaml")));
    assert_eq!(a["state"], "Sync");
    assert_eq!(workers["orphan"]["state"]["Terminating"]["cut"], 13.5);
    assert_eq!(dump["names"]["default/b"][0], pods[1].uid.as_str());
    // What the runtime shows is being read.
    let owners = dump["ops"]["owners"].as_object().unwrap();
    assert!(owners.values().any(|o| o["Read"] == "orphan"), "{owners:?}");
    assert!(dump["cache"]["orphan"]["reading"].is_array());
    assert!(!dump.to_string().contains("s3cret"));
}

#[test]
fn a_pod_says_what_holds_it_up() {
    let old = pod("web", "one");
    let (mut engine, effects) = node(vec![old.clone()], listed(old.uid.as_str(), "web"));
    let inside = engine.inside(&old.uid, at(6).boot).unwrap();
    assert_eq!(inside.state, "Sync");
    let waits = ["its record to be durable", "starts: the container runtime has not answered yet"];
    assert_eq!(inside.waits_for, waits);

    // It runs, and its manifest is edited: one ends, one waits.
    let read = op_of(&effects, |call| matches!(call, RuntimeCall::ReadPod { .. }));
    let (id, created_at) = ("s-1".into(), Wall(1));
    let sandbox = SandboxFact { id, attempt: 0, ready: true, created_at, ips: Vec::new(), owner: None, pid: None };
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
        backoff_level: 0,
        grace_seconds: None,
        termination_file: None,
        fallback_to_logs: false,
        log_path: String::new(),
        owner: None,
        pre_stop: None,
        pid: None,
    };
    let facts = PodFacts { sandboxes: vec![sandbox], containers: vec![container] };
    engine.step(Event::Done { op: read, result: Ok(Answer::Pod(facts)) }, at(7));
    let new = pod("web", "two");
    engine.step(Event::Desired(vec![new.clone()]), at(8));
    let ends = engine.inside(&old.uid, at(18).boot).unwrap();
    assert_eq!((ends.state, ends.grace_left_seconds), ("Terminating", Some(20)));
    assert_eq!(ends.doing.as_deref(), Some("stopping containers"));
    let waits = engine.inside(&new.uid, at(18).boot).unwrap();
    assert_eq!(waits.state, "Waiting");
    assert_eq!(waits.waits_for, [format!("the pod {} of the same name, which has not finished yet", old.uid)]);
    assert_eq!(engine.inside(&Uid::from("nobody"), at(18).boot), None);
}
