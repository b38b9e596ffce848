//! The decisions of passes over a few pods on a node with four CPUs.

use super::machine::NodeAdmission;
use super::pass::{Decision, Input};
use super::predicates::tests::pod;
use crate::api::names::{FullName, Uid};
use crate::api::node_facts::NodeFacts;
use crate::api::resources::{CPU, PODS, Resources};
use crate::api::time::{Boot, Now};
use crate::engine::desired::names::Names;
use crate::engine::devices::Devices;
use crate::engine::effect::{CgroupCall, Effect};
use crate::engine::eviction::levels::Pressure;
use crate::engine::op::OpError;
use crate::engine::outbox::Outbox;
use crate::engine::pleg::cache::{Cache, Entry};
use crate::engine::pod::worker::Worker;
use serde_json::json;
use std::collections::BTreeMap;
use std::rc::Rc;

const S: u64 = 1_000_000_000;
const CRITICAL: &str = "system-node-critical";

#[derive(Default)]
struct Node {
    admission: NodeAdmission,
    workers: BTreeMap<Uid, Box<Worker>>,
    names: Names,
    cache: Cache,
    outbox: Outbox,
}

impl Node {
    /// Adds a waiting pod that requests this number of CPUs.
    fn add(&mut self, uid: &str, cpus: u32, class: Option<&str>) -> &mut Worker {
        let mut pod = pod(json!({
            "priorityClassName": class,
            "containers": [{ "name": "c", "resources": { "requests": { "cpu": cpus } } }]
        }));
        pod.uid = uid.into();
        pod.name = FullName::new("default", uid);
        let mut worker = Worker::new(Rc::new(pod), Now::default().wall, Now::default());
        worker.admission.place = self.admission.place_of(&worker, &self.names, &self.workers);
        self.names.add(worker.name.clone(), worker.uid.clone());
        self.cache.insert(worker.uid.clone(), Entry::empty(0));
        self.admission.room_changed();
        self.workers.entry(uid.into()).or_insert(Box::new(worker))
    }

    fn add_admitted(&mut self, uid: &str, cpus: u32) {
        let worker = self.add(uid, cpus, None);
        worker.begin();
        worker.admit();
    }

    fn step(&mut self, shutting_down: bool) -> Option<Vec<Decision>> {
        let allocatable = Resources::from([(CPU, 4000), (PODS, 3)]);
        let facts = NodeFacts { name: "lab".into(), allocatable, ..NodeFacts::default() };
        let input = Input {
            now: Boot(100 * S),
            node: &facts,
            workers: &self.workers,
            names: &self.names,
            cache: &self.cache,
            pressure: &Pressure::default(),
            devices: &Devices::default(),
            cordoned: false,
            configured: &facts.allocatable,
        };
        self.admission.step(input, shutting_down, &mut self.outbox)
    }

    /// Returns the decisions in short form.
    fn decisions(&mut self) -> Vec<String> {
        let decisions = self.step(false).unwrap_or_default().into_iter();
        let short = decisions.map(|decision| match decision {
            Decision::Admit(uid) => format!("admit {uid}"),
            Decision::Wait(uid, _) => format!("wait {uid}"),
            Decision::Hold(uid) => format!("hold {uid}"),
            Decision::Reject(uid, cause) => format!("reject {uid} {}", cause.reason),
            Decision::Preempt(uids, signal) => format!("preempt {uids:?} {signal}"),
            Decision::Restart(uid) => format!("restart {uid}"),
            Decision::Resize(uid) => format!("resize {uid}"),
            Decision::PostponeResize(uid, _) => format!("postpone {uid}"),
        });
        short.collect()
    }
}

#[test]
fn a1_pods_are_evaluated_in_the_order_of_their_arrival() {
    let mut node = Node::default();
    node.add("b", 3, None);
    node.add("a", 3, None);
    node.add("c", 1, None);
    assert_eq!(node.decisions(), ["admit b", "reject a OutOfcpu", "admit c"]);
}

#[test]
fn a1_a_pod_that_started_in_a_previous_run_comes_first() {
    let mut node = Node::default();
    node.add("new", 3, None);
    node.add("old", 3, None).begin();
    assert_eq!(node.decisions(), ["reject new OutOfcpu"], "room is reserved until the old pod needs a sandbox");
    node.cache.insert("old".into(), Entry::default());
    assert_eq!(node.decisions(), ["wait new"], "its status is unknown");
}

#[test]
fn a6_a_pass_ends_at_the_first_preemption() {
    let mut node = Node::default();
    node.add_admitted("low", 4);
    node.add("critical", 1, Some(CRITICAL));
    node.add("other", 1, None);
    assert_eq!(node.decisions(), ["preempt [low] cpu"]);
}

#[test]
fn a6_a_pod_admitted_in_the_same_pass_is_preempted_without_an_admission() {
    let mut node = Node::default();
    node.add("low", 4, None);
    node.add("critical", 1, Some(CRITICAL));
    assert_eq!(node.decisions(), ["preempt [low] cpu"]);
}

#[test]
fn there_is_no_pass_while_no_pod_requests_room_and_nothing_changes() {
    let mut node = Node::default();
    node.add_admitted("a", 1);
    assert_eq!(node.step(false), Some(Vec::new()));
    assert_eq!(node.step(false), None);
    node.admission.room_changed();
    assert_eq!(node.step(true), None, "S4: none during a shutdown");
}

#[test]
fn a2_only_pods_beyond_max_pods_are_rejected_before_the_first_list() {
    let mut node = Node::default();
    for uid in ["a", "b", "c"] {
        node.add(uid, 2, None);
    }
    node.add("d", 0, None);
    let facts = NodeFacts {
        allocatable: Resources::from([(CPU, 4000), (PODS, 2)]),
        name: "lab".into(),
        ..NodeFacts::default()
    };
    let input = Input {
        now: Boot(0),
        node: &facts,
        workers: &node.workers,
        names: &node.names,
        cache: &node.cache,
        pressure: &Pressure::default(),
        devices: &Devices::default(),
        cordoned: false,
        configured: &facts.allocatable,
    };
    let decisions = node.admission.reject_before_first_list(input, false);
    let uids = decisions.iter().map(|d| if let Decision::Reject(uid, _) = d { uid.as_str() } else { "" });
    assert_eq!(uids.collect::<Vec<_>>(), ["c", "d"]);
    assert_eq!(node.admission.reject_before_first_list(input, false), [], "nothing has changed");
}

#[test]
fn the_cpu_weight_is_set_after_a_change_and_again_after_a_failure() {
    let mut node = Node::default();
    let update = |node: &mut Node| {
        node.admission.cpu_weight.update(&node.workers, &mut node.outbox);
        let effects = node.outbox.take();
        effects.into_iter().find_map(|effect| match effect {
            Effect::Cgroup { call: CgroupCall::SetCpuWeight { burstable }, .. } => Some(burstable),
            _ => None,
        })
    };
    assert_eq!([update(&mut node), update(&mut node)], [Some(0), None]);
    node.add_admitted("a", 2);
    node.add("waiting", 1, None);
    assert_eq!([update(&mut node), update(&mut node)], [Some(2000), None]);
    node.admission.cpu_weight.answered(Err(OpError::Refused("no cgroup".into())), &mut node.outbox);
    assert_eq!(update(&mut node), Some(2000));
}
