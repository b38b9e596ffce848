//! The engine on a node without faults. The simulation's model of a runtime answers every effect at once, and the cost of each
//! step is measured. The cost of a real node's adapters is not included.

use crate::runtime::{Life, Outcome, Runtime, end};
use allocation_counter::measure;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::{Duration, Instant};
use wherry::api::document::context::Context;
use wherry::api::document::read;
use wherry::api::manifest_report::{FileReport, ManifestReport};
use wherry::api::mount::Mount;
use wherry::api::names::Uid;
use wherry::api::node_facts::NodeFacts;
use wherry::api::pod::Pod;
use wherry::api::resources::{CPU, MEMORY, PODS, Resources};
use wherry::api::time::{Boot, Now, Wall};
use wherry::engine::config::{EngineConfig, FixedConfig};
use wherry::engine::effect::{CgroupCall, Effect, FilesCall, RuntimeCall};
use wherry::engine::event::{Answer, Event, Kind, PlegEvent, Prepared};
use wherry::engine::node::{Due, Engine, Part};

const S: u64 = 1_000_000_000;

/// The cost of some steps.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    pub steps: u64,
    pub time: Duration,
    pub allocations: u64,
    /// Bytes allocated, including those freed again.
    pub bytes: u64,
}

pub struct Node {
    pub engine: Engine,
    pub runtime: Runtime,
    pub spent: Spent,
    now: u64,
    events: VecDeque<Event>,
    watched: BTreeMap<String, Uid>,
}

/// The manifest directory.
pub const DIRECTORY: &str = "/etc/wherry/manifests";

/// A manifest with one pod.
pub struct Manifest {
    pub name: String,
    pub text: String,
}

impl Manifest {
    pub fn report(&self) -> FileReport {
        let file = format!("{}.yaml", self.name);
        FileReport::of_text(&file, &format!("{DIRECTORY}/{file}"), &self.text)
    }

    /// The pod that a node reads from it.
    pub fn pod(&self) -> Rc<Pod> {
        let context = Context::new("node", "2027-01-15T08:00:00Z");
        let (mut pods, problems) = read(self.text.as_bytes(), &format!("{DIRECTORY}/{}.yaml", self.name), context);
        assert!(problems.is_empty(), "{problems:?}");
        Rc::new(pods.remove(0))
    }
}

/// A typical manifest with this number of containers.
pub fn manifest(name: &str, containers: usize, more: &str) -> Manifest {
    let containers: Vec<String> = (0..containers)
        .map(|i| {
            let resources = "{requests: {cpu: 10m, memory: 16Mi}, limits: {memory: 32Mi}}";
            format!(
                "{{name: c{i}, image: 'registry.k8s.io/app:1.2', command: [/app, serve], resources: {resources}, \
                 env: [{{name: A, value: '1'}}, {{name: B, value: two}}], ports: [{{containerPort: 8080}}]}}"
            )
        })
        .collect();
    let text = format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, labels: {{app: {name}}}}}, \
         spec: {{{more}containers: [{}]}}}}",
        containers.join(", ")
    );
    Manifest { name: name.to_owned(), text }
}

impl Node {
    /// A node that is up and has no pods.
    pub fn new() -> Node {
        let allocatable = Resources::from([(PODS, 10_000), (CPU, 10_000_000), (MEMORY, 1 << 50)]);
        let node = NodeFacts { name: "node".into(), allocatable, ..NodeFacts::default() };
        let config = EngineConfig {
            fixed: FixedConfig {
                owner: "root-1".into(),
                manifests: DIRECTORY.into(),
                seed: 7,
                ..FixedConfig::default()
            },
            node,
            ..EngineConfig::default()
        };
        let mut runtime = Runtime::new(&config.fixed.owner);
        runtime.images.insert("registry.k8s.io/app:1.2".into());
        runtime.id_length = 63;
        let mut node = Node {
            engine: Engine::new(config),
            runtime,
            spent: Spent::default(),
            now: 1000 * S,
            events: VecDeque::new(),
            watched: BTreeMap::new(),
        };
        node.events.extend([Event::Records(Vec::new()), Event::Manifests(ManifestReport::default()), Event::RuntimeUp]);
        node.settle();
        node.relist();
        node
    }

    /// A node on which this number of pods runs and the engine is idle.
    pub fn with_pods(pods: usize, containers: usize) -> Node {
        let mut node = Node::new();
        node.report((0..pods).map(|i| manifest(&format!("pod-{i:05}"), containers, "").report()).collect());
        node.wait(90);
        node.relist();
        let running = node.runtime.containers.values().filter(|c| c.runs()).count();
        assert_eq!(running, pods * containers, "containers that run");
        node.spent = Spent::default();
        node
    }

    pub fn write(&mut self, manifest: &Manifest) {
        self.report(vec![manifest.report()]);
    }

    pub fn remove(&mut self, manifest: &Manifest) {
        self.report(vec![FileReport::removed(&format!("{}.yaml", manifest.name))]);
    }

    /// The directory has changed.
    fn report(&mut self, files: Vec<FileReport>) {
        self.events.push_back(Event::Manifests(ManifestReport { files, ..ManifestReport::default() }));
        self.settle();
    }

    /// A relist (P1), as after its timer.
    pub fn relist(&mut self) {
        self.now += S;
        let now = self.time();
        self.step(|engine| engine.step_early(&Due::Part(Part::Relist), now));
        self.settle();
    }

    /// Ends a container that has not ended before, and its pidfd fires.
    pub fn end_one(&mut self) {
        let wall = self.time().wall;
        let mut running = self.runtime.containers.values_mut().filter(|c| c.runs() && c.attempt == 0);
        let running = running.next().expect("a container that runs");
        end(running, 1, wall);
        let id = running.id.clone();
        self.look_at_pidfds();
        assert!(self.events.iter().any(|e| matches!(e, Event::Ended { id: i, .. } if *i == id)), "{id} is watched");
        self.settle();
    }

    pub fn hint(&mut self) {
        let uid = self.runtime.containers.values().next().expect("a container").uid.clone();
        let event = PlegEvent { id: "?".into(), kind: Kind::ContainerDied };
        self.events.push_back(Event::RuntimeEvent { uid: Some(uid), event });
        self.settle();
    }

    /// Lets this number of seconds pass; deadlines are met.
    pub fn wait(&mut self, seconds: u64) {
        let end = self.now + seconds * S;
        while let Some(at) = self.engine.next_deadline().filter(|at| at.0 <= end) {
            self.now = self.now.max(at.0);
            self.events.push_back(Event::Due);
            self.settle();
        }
        self.now = end;
    }

    pub fn time(&self) -> Now {
        Now { boot: Boot(self.now), wall: Wall((1_800_000_000 * S + self.now) as i64) }
    }

    /// Answers everything at once until no more effects follow.
    fn settle(&mut self) {
        while let Some(event) = self.events.pop_front() {
            let now = self.time();
            self.step(|engine| engine.step(event, now));
        }
    }

    /// Measures a step and carries out its effects.
    fn step(&mut self, step: impl FnOnce(&mut Engine) -> Vec<Effect>) {
        let mut effects = Vec::new();
        let (engine, mut taken) = (&mut self.engine, Duration::ZERO);
        let allocated = measure(|| {
            let begun = Instant::now();
            effects = step(engine);
            taken = begun.elapsed();
        });
        self.spent.steps += 1;
        self.spent.time += taken;
        self.spent.allocations += allocated.count_total;
        self.spent.bytes += allocated.bytes_total;
        effects.into_iter().for_each(|effect| self.carry_out(effect));
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Runtime { op, call, .. } => {
                let ends = matches!(
                    call,
                    RuntimeCall::StopContainer { .. }
                        | RuntimeCall::StopSandbox { .. }
                        | RuntimeCall::RemoveSandbox { .. }
                );
                let result = self.call(&call);
                self.events.push_back(Event::Done { op, result });
                if ends {
                    self.look_at_pidfds();
                }
            }
            Effect::Files { op, call } => {
                let answer = match call {
                    FilesCall::PrepareContainer { pod, container, attempt, .. } => {
                        let host_path = format!("/var/lib/wherry/pods/{}/containers/{container}/{attempt}", pod.uid);
                        let mounts = vec![Mount::writable("/dev/termination-log", host_path)];
                        Answer::Prepared(Prepared { mounts, host_ips: Vec::new() })
                    }
                    FilesCall::ReadTermination { .. } => Answer::Message(String::new()),
                    _ => Answer::Ok,
                };
                self.events.push_back(Event::Done { op, result: Ok(answer) });
            }
            Effect::Cgroup { op, call } => {
                if let CgroupCall::Remove { uid, .. } = call {
                    self.runtime.cgroups.remove(&uid);
                }
                self.events.push_back(Event::Done { op, result: Ok(Answer::Ok) });
            }
            Effect::RemoveEmptyNetworks { op, .. } => self.events.push_back(Event::Done { op, result: Ok(Answer::Ok) }),
            Effect::Record { op, .. } | Effect::StoreManifests { op, .. } => {
                self.events.push_back(Event::Done { op, result: Ok(Answer::Ok) });
            }
            Effect::Watch { uid, id, .. } => {
                self.watched.insert(id.clone(), uid.clone());
                self.events.push_back(Event::Watched { uid, id, ok: true });
            }
            Effect::Unwatch { id } => drop(self.watched.remove(&id)),
            _ => {}
        }
    }

    fn call(&mut self, call: &RuntimeCall) -> Result<Answer, wherry::engine::op::OpError> {
        let wall = self.time().wall;
        match self.runtime.call(call, wall, |_| Life::FOREVER) {
            Outcome::Answer(result) => result,
            Outcome::Started(_, answer) => Ok(answer),
            Outcome::Stopping(id, _) => {
                if let Some(container) = self.runtime.containers.get_mut(&id) {
                    end(container, 143, wall);
                }
                Ok(Answer::Ok)
            }
        }
    }

    fn look_at_pidfds(&mut self) {
        let over: Vec<String> = self.watched.keys().filter(|id| !self.runtime.lives(id)).cloned().collect();
        for id in over {
            if let Some(uid) = self.watched.remove(&id) {
                self.events.push_back(Event::Ended { uid, id });
            }
        }
    }
}
