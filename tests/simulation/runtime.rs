//! A model of a CRI runtime: sandboxes, containers and images, with containerd's behaviour. A call takes effect at one instant.
//! The world (`world`) decides when that is and whether the answer arrives.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use wherry::api::facts::{
    ContainerFact, ContainerState, ImageFact, Listed, ListedContainer, ListedSandbox, PodFacts, RuntimeFact,
    SandboxFact,
};
use wherry::api::names::{ContainerId, FullName, SandboxId, Uid};
use wherry::api::pod::Pod;
use wherry::api::time::Wall;
use wherry::engine::effect::{CreateContainer, RuntimeCall};
use wherry::engine::event::Answer;
use wherry::engine::op::{Code, OpError};

/// The behaviour of a container's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// The process ends by itself after this time with this exit code; None: it never does.
    pub ends: Option<(Duration, i32)>,
    /// The process ends this long after SIGTERM with this code; None: it ignores SIGTERM.
    pub on_term: Option<(Duration, i32)>,
    /// StartContainer fails and leaves the container Exited with code 128.
    pub cannot_start: bool,
}

impl Life {
    pub const FOREVER: Life = Life { ends: None, on_term: Some((Duration::from_millis(20), 143)), cannot_start: false };

    pub fn exits(code: i32, after: Duration) -> Life {
        Life { ends: Some((after, code)), ..Life::FOREVER }
    }

    pub fn deaf() -> Life {
        Life { on_term: None, ..Life::FOREVER }
    }

    pub fn cannot_start() -> Life {
        Life { cannot_start: true, ..Life::FOREVER }
    }
}

#[derive(Clone, Debug)]
pub struct Sandbox {
    pub id: String,
    pub uid: Uid,
    pub name: FullName,
    pub attempt: u32,
    pub ready: bool,
    pub created_at: Wall,
    pub ip: String,
    pub owner: Option<String>,
    pub grace_seconds: Option<u64>,
    /// The digest of the pod for which it was created.
    pub digest: String,
    pub pid: u32,
}

const LOG_LAG: Duration = Duration::from_millis(150);

#[derive(Clone, Debug)]
pub struct Container {
    pub id: String,
    pub sandbox: String,
    pub uid: Uid,
    pub pod_name: FullName,
    pub name: String,
    pub attempt: u32,
    pub state: ContainerState,
    pub created_at: Wall,
    pub started_at: Wall,
    pub finished_at: Wall,
    pub exit_code: i32,
    pub reason: String,
    pub message: String,
    pub image: String,
    pub backoff_level: u32,
    pub grace_seconds: Option<u64>,
    /// The hook in JSON.
    pub pre_stop: Option<String>,
    /// The pod for which it was created.
    pub pod: Rc<Pod>,
    pub owner: Option<String>,
    pub life: Life,
    pub pid: u32,
    /// The process has ended, but the runtime does not show it yet.
    pub dead: bool,
    /// SIGTERM was sent to the process.
    pub terminating: bool,
    /// A cancelled start left a task, which no CRI call can remove.
    pub stuck: bool,
    /// The process cannot be killed for now. `pending_end` is its exit code if it was ended meanwhile.
    pub held: bool,
    pub pending_end: Option<i32>,
    /// The container runs, and the runtime does not know its state.
    pub unknown: bool,
}

impl Container {
    pub fn runs(&self) -> bool {
        self.state == ContainerState::Running
    }

    /// The state that the runtime shows.
    pub fn shown_state(&self) -> ContainerState {
        if self.unknown && self.runs() { ContainerState::Unknown } else { self.state }
    }

    fn falls_back_to_log(&self) -> bool {
        let spec = self.pod.all_containers().find(|c| c.name == self.name);
        spec.and_then(|c| c.termination_message_policy.as_deref()) == Some("FallbackToLogsOnError")
    }

    /// The last output is not in the log yet, although the runtime already shows the end.
    pub fn log_lags(&self, now: Wall) -> bool {
        self.falls_back_to_log() && self.exit_code != 0 && now.since(self.finished_at) < LOG_LAG
    }
}

/// The effect of a call, in addition to its answer.
pub enum Outcome {
    Answer(Result<Answer, OpError>),
    /// The container was started, and its `Life` begins.
    Started(String, Answer),
    /// The answer comes when the container has ended: SIGTERM now, SIGKILL after this time.
    Stopping(String, Duration),
}

/// The stage of a start in containerd when it is cancelled.
#[derive(Clone, Copy, Debug)]
pub enum GivenUp {
    /// The shim has been called, so the task may exist.
    InTheShim,
    /// The shim was being started.
    BeforeTheShim,
}

#[derive(Default)]
pub struct Runtime {
    pub sandboxes: BTreeMap<String, Sandbox>,
    pub containers: BTreeMap<String, Container>,
    /// The pods' cgroups, created with a sandbox and removed by others.
    pub cgroups: BTreeSet<Uid>,
    /// Sandbox names (pod and attempt) reserved by cancelled calls that have not completed.
    pub reserved: BTreeSet<(Uid, u32)>,
    pub images: BTreeSet<String>,
    /// Images that no registry has.
    pub unknown_images: BTreeSet<String>,
    /// The user of every image: (uid, name).
    pub image_user: (Option<i64>, String),
    pub owner: String,
    pub network_ready: bool,
    pub ready: bool,
    last_id: u32,
    /// The next sandbox gets no address.
    pub no_address: bool,
    /// The minimum number of digits of an id; real ids are long.
    pub id_length: usize,
    /// Containers that succeeded and were removed: (sandbox, container name).
    succeeded: BTreeSet<(String, String)>,
    /// Containers that a list shows as unknown, whatever their status call returns.
    pub listed_unknown: BTreeSet<String>,
    /// Errors of the engine: containers that were removed while they ran.
    pub removed_running: Vec<String>,
}

fn failed(message: impl Into<String>) -> Outcome {
    Outcome::Answer(Err(OpError::Answered { code: Code::Other(2), message: message.into() }))
}

fn not_found(what: &str) -> Outcome {
    let message = format!("{what}: not found");
    Outcome::Answer(Err(OpError::Answered { code: Code::NotFound, message }))
}

fn stuck(id: &str) -> Outcome {
    let message = format!("failed to delete containerd container {id}: cannot delete running task {id}");
    Outcome::Answer(Err(OpError::Answered { code: Code::FailedPrecondition, message }))
}

fn ok(answer: Answer) -> Outcome {
    Outcome::Answer(Ok(answer))
}

/// The name of another owner's pod with the UID of one of our pods.
const TWIN: &str = "twin";

impl Runtime {
    pub fn new(owner: &str) -> Runtime {
        Runtime {
            owner: owner.into(),
            network_ready: true,
            ready: true,
            image_user: (Some(0), String::new()),
            ..Runtime::default()
        }
    }

    fn id(&mut self, kind: &str) -> String {
        self.last_id += 1;
        format!("{kind}{:01$}", self.last_id, self.id_length)
    }

    pub fn call(&mut self, call: &RuntimeCall, now: Wall, life: impl FnOnce(&Container) -> Life) -> Outcome {
        match call {
            RuntimeCall::Status => ok(Answer::Runtime(RuntimeFact {
                name: "containerd".into(),
                version: "1.6.20".into(),
                runtime_not_ready: (!self.ready).then(|| "NotReady: starting".into()),
                network_not_ready: (!self.network_ready).then(|| "NetworkPluginNotReady: no cni".into()),
            })),
            RuntimeCall::List => ok(Answer::Listed(self.list())),
            RuntimeCall::ReadPod { uid } => ok(Answer::Pod(self.read(uid))),
            RuntimeCall::RunSandbox { pod, attempt } => self.run_sandbox(pod, *attempt, now),
            RuntimeCall::StopSandbox { id } => self.stop_sandbox(id.as_str(), now),
            RuntimeCall::RemoveSandbox { id } => self.remove_sandbox(id.as_str(), now),
            RuntimeCall::ImageStatus { image } => ok(Answer::Image(self.image(image))),
            RuntimeCall::PullImage { image, .. } => {
                if self.unknown_images.contains(image) {
                    return failed(format!("failed to pull {image}: no such image"));
                }
                self.images.insert(image.clone());
                ok(Answer::Image(self.image(image)))
            }
            RuntimeCall::CreateContainer(c) => self.create(c, now),
            RuntimeCall::StartContainer { id } => self.start(id.as_str(), now, life),
            RuntimeCall::StopContainer { id, grace } => match self.containers.get(id.as_str()) {
                None => not_found(id.as_str()),
                // Like containerd: a container in the state unknown is killed at once.
                Some(c) if c.unknown && c.runs() && !c.held => {
                    self.end_unknown(id.as_str(), now);
                    ok(Answer::Ok)
                }
                Some(c) if c.runs() => Outcome::Stopping(c.id.clone(), *grace),
                Some(_) => ok(Answer::Ok),
            },
            RuntimeCall::RemoveContainer { id } => {
                if self.containers.get(id.as_str()).is_some_and(Container::runs) {
                    self.removed_running.push(id.to_string());
                }
                if self.containers.get(id.as_str()).is_some_and(|c| c.stuck) {
                    return stuck(id.as_str());
                }
                self.forget(id.as_str());
                ok(Answer::Ok)
            }
            RuntimeCall::DeleteTask { id } => match self.containers.get_mut(id.as_str()) {
                Some(c) if c.stuck => {
                    c.stuck = false;
                    ok(Answer::Ok)
                }
                Some(c) if c.runs() => {
                    self.removed_running.push(id.to_string());
                    ok(Answer::Ok)
                }
                _ => not_found(id.as_str()),
            },
        }
    }

    pub fn forget(&mut self, id: &str) {
        if let Some(c) = self.containers.remove(id)
            && c.state == ContainerState::Exited
            && c.exit_code == 0
        {
            self.succeeded.insert((c.sandbox, c.name));
        }
    }

    /// A container of that name has succeeded in that sandbox.
    pub fn has_succeeded(&self, sandbox: &str, name: &str) -> bool {
        let of = |c: &Container| c.sandbox == sandbox && c.name == name;
        let mut all = self.containers.values().filter(|c| of(c));
        all.any(|c| c.state == ContainerState::Exited && c.exit_code == 0)
            || self.succeeded.contains(&(sandbox.to_string(), name.to_string()))
    }

    fn image(&self, image: &str) -> Option<ImageFact> {
        self.images.contains(image).then(|| ImageFact {
            id: format!("sha256:{image}"),
            uid: self.image_user.0,
            username: self.image_user.1.clone(),
        })
    }

    fn run_sandbox(&mut self, pod: &Rc<Pod>, attempt: u32, now: Wall) -> Outcome {
        let reserved = self.reserved.contains(&(pod.uid.clone(), attempt));
        let taken = |s: &Sandbox| (&s.uid, s.attempt, &s.name) == (&pod.uid, attempt, &pod.name);
        if reserved || self.sandboxes.values().any(taken) {
            return failed("failed to reserve sandbox name: it is reserved");
        }
        let id = self.id("s");
        let s = Sandbox {
            id: id.clone(),
            uid: pod.uid.clone(),
            name: pod.name.clone(),
            attempt,
            ready: true,
            created_at: now,
            ip: match std::mem::take(&mut self.no_address) {
                true => String::new(),
                false => format!("10.0.{}.{}", self.last_id / 250, self.last_id % 250),
            },
            owner: Some(self.owner.clone()),
            grace_seconds: Some(pod.grace_period().as_secs()),
            digest: pod.digest.clone(),
            pid: 500_000 + self.last_id,
        };
        let fact = sandbox_fact(&s, pod.host_network());
        self.cgroups.insert(pod.uid.clone());
        self.sandboxes.insert(id, s);
        ok(Answer::Sandbox(fact))
    }

    fn stop_sandbox(&mut self, id: &str, now: Wall) -> Outcome {
        if !self.sandboxes.contains_key(id) {
            return not_found(id);
        }
        self.kill_all_of(id, now);
        if let Some(c) = self.containers.values().find(|c| c.sandbox == id && c.runs()) {
            return failed(format!("failed to stop container {}: context deadline exceeded", c.id));
        }
        if let Some(s) = self.sandboxes.get_mut(id) {
            s.ready = false;
        }
        ok(Answer::Ok)
    }

    fn remove_sandbox(&mut self, id: &str, now: Wall) -> Outcome {
        let running = self.containers.values().find(|c| c.sandbox == id && c.runs());
        if let Some(c) = running {
            self.removed_running.push(c.id.clone());
        }
        self.kill_all_of(id, now);
        if let Some(c) = self.containers.values().find(|c| c.sandbox == id && c.runs()) {
            return failed(format!("failed to stop container {}: context deadline exceeded", c.id));
        }
        if let Some(c) = self.containers.values().find(|c| c.sandbox == id && c.stuck) {
            return stuck(&c.id);
        }
        self.containers.retain(|_, c| c.sandbox != id);
        self.sandboxes.remove(id);
        ok(Answer::Ok)
    }

    fn kill_all_of(&mut self, sandbox: &str, now: Wall) {
        for c in self.containers.values_mut().filter(|c| c.sandbox == sandbox && c.runs()) {
            if c.held {
                c.pending_end.get_or_insert(137);
            } else {
                end(c, 137, now);
            }
        }
    }

    fn end_unknown(&mut self, id: &str, now: Wall) {
        if let Some(c) = self.containers.get_mut(id) {
            c.dead = true;
            end(c, 255, now);
            c.reason = "Unknown".into();
        }
    }

    fn create(&mut self, call: &CreateContainer, now: Wall) -> Outcome {
        let Some(s) = self.sandboxes.get(call.sandbox.as_str()) else { return not_found(call.sandbox.as_str()) };
        if !s.ready {
            return failed("sandbox is not ready");
        }
        let uid = &call.pod.uid;
        let taken = |c: &Container| {
            (&c.uid, &c.pod_name, &c.name, c.attempt) == (uid, &call.pod.name, &call.container, call.attempt)
        };
        if self.containers.values().any(taken) {
            return failed("failed to reserve container name: it is reserved");
        }
        let id = self.id("c");
        let pid = 1000 + self.last_id;
        let container = Container {
            id: id.clone(),
            sandbox: call.sandbox.to_string(),
            uid: uid.clone(),
            pod_name: call.pod.name.clone(),
            name: call.container.clone(),
            attempt: call.attempt,
            state: ContainerState::Created,
            created_at: now,
            started_at: Wall(0),
            finished_at: Wall(0),
            exit_code: 0,
            reason: String::new(),
            message: String::new(),
            image: call.image.id.clone(),
            backoff_level: call.backoff_level,
            grace_seconds: Some(call.pod.grace_period().as_secs()),
            pre_stop: pre_stop_of(call),
            pod: call.pod.clone(),
            owner: Some(self.owner.clone()),
            life: Life::FOREVER,
            pid,
            dead: false,
            terminating: false,
            stuck: false,
            held: false,
            pending_end: None,
            unknown: false,
        };
        self.containers.insert(id.clone(), container);
        ok(Answer::Created(ContainerId::from(id)))
    }

    fn start(&mut self, id: &str, now: Wall, life: impl FnOnce(&Container) -> Life) -> Outcome {
        let Some(c) = self.containers.get_mut(id) else { return not_found(id) };
        if c.state != ContainerState::Created {
            return failed(format!("container {id} is not in the state created"));
        }
        if !self.sandboxes.get(&c.sandbox).is_some_and(|s| s.ready) {
            return failed("sandbox container is not running");
        }
        c.life = life(c);
        if c.life.cannot_start {
            end(c, 128, now);
            c.reason = "StartError".into();
            c.message = "exec: no such file".into();
            return failed("exec: no such file");
        }
        c.state = ContainerState::Running;
        c.started_at = now;
        Outcome::Started(id.into(), Answer::Container(container_fact(c, false)))
    }

    /// A start that is cancelled halfway because the caller is gone. containerd shows the container as
    /// exited and may keep a task.
    pub fn give_up_start(&mut self, id: &str, how: GivenUp, now: Wall) {
        if let Some(c) = self.containers.get_mut(id).filter(|c| c.state == ContainerState::Created) {
            end(c, 128, now);
            c.reason = "StartError".into();
            (c.message, c.stuck) = match how {
                GivenUp::InTheShim => {
                    ("failed to create containerd task: failed to get task pid: context canceled: unknown".into(), true)
                }
                GivenUp::BeforeTheShim => {
                    let killed = "failed to start shim: start failed: : signal: killed: unknown";
                    (format!("failed to create containerd task: failed to create shim task: {killed}"), false)
                }
            };
        }
    }

    fn list(&self) -> Listed {
        let sandboxes = self.sandboxes.values().map(|s| ListedSandbox {
            id: SandboxId::from(s.id.as_str()),
            uid: s.uid.clone(),
            name: s.name.clone(),
            attempt: s.attempt,
            ready: s.ready,
            owner: s.owner.clone(),
            grace_seconds: s.grace_seconds,
            created_at: s.created_at,
        });
        let containers = self.containers.values().map(|c| ListedContainer {
            id: ContainerId::from(c.id.as_str()),
            sandbox: SandboxId::from(c.sandbox.as_str()),
            uid: c.uid.clone(),
            pod_name: c.pod_name.clone(),
            name: c.name.clone(),
            attempt: c.attempt,
            state: if self.listed_unknown.contains(&c.id) { ContainerState::Unknown } else { c.shown_state() },
            owner: c.owner.clone(),
            grace_seconds: c.grace_seconds,
            created_at: c.created_at,
        });
        Listed { sandboxes: sandboxes.collect(), containers: containers.collect() }
    }

    fn read(&self, uid: &Uid) -> PodFacts {
        let mut sandboxes: Vec<SandboxFact> =
            self.sandboxes.values().filter(|s| s.uid == *uid).map(|s| sandbox_fact(s, false)).collect();
        let mut containers: Vec<ContainerFact> =
            self.containers.values().filter(|c| c.uid == *uid).map(|c| container_fact(c, true)).collect();
        sandboxes.sort_by_key(|s| std::cmp::Reverse(s.created_at));
        containers.sort_by_key(|c| std::cmp::Reverse(c.created_at));
        PodFacts { sandboxes, containers }
    }

    /// The containers of our pod with this UID, without those of other owners.
    pub fn of(&self, uid: &Uid) -> impl Iterator<Item = &Container> {
        self.containers.values().filter(move |c| c.uid == *uid && c.owner.as_ref() == Some(&self.owner))
    }

    /// Adds another owner's pod with the UID of one of our pods and a different name, for example a kubelet's.
    pub fn add_twin(&mut self, pod: &Rc<Pod>, now: Wall) {
        const OTHER: &str = "root-2";
        let mut twin = (**pod).clone();
        twin.name.name = TWIN.into();
        let twin = Rc::new(twin);
        if self.sandboxes.values().any(|s| s.uid == twin.uid && s.name == twin.name) {
            return;
        }
        let Outcome::Answer(Ok(Answer::Sandbox(sandbox))) = self.run_sandbox(&twin, 0, now) else { return };
        if let Some(s) = self.sandboxes.get_mut(sandbox.id.as_str()) {
            s.owner = Some(OTHER.into());
        }
        let call = CreateContainer {
            container: twin.at(0).name.clone(),
            pod: twin,
            sandbox: sandbox.id,
            sandbox_attempt: 0,
            attempt: 0,
            backoff_level: 0,
            image: ImageFact { id: "sha256:other".into(), uid: None, username: String::new() },
            ips: Vec::new(),
            termination_file: String::new(),
        };
        let Outcome::Answer(Ok(Answer::Created(id))) = self.create(&call, now) else { return };
        if let Some(c) = self.containers.get_mut(id.as_str()) {
            c.owner = Some(OTHER.into());
        }
        let _ = self.start(id.as_str(), now, |_| Life::FOREVER);
    }

    /// The pods that `add_twin` created end, and their owner removes them.
    pub fn twins_end(&mut self) {
        let twins: BTreeMap<String, Uid> =
            self.sandboxes.values().filter(|s| &*s.name.name == TWIN).map(|s| (s.id.clone(), s.uid.clone())).collect();
        self.sandboxes.retain(|id, _| !twins.contains_key(id));
        self.containers.retain(|_, c| !twins.contains_key(&c.sandbox));
        // The model has one cgroup for both pods.
        for uid in twins.into_values() {
            let in_use =
                self.sandboxes.values().any(|s| s.uid == uid && s.ready) || self.of(&uid).any(|c| c.runs() || c.stuck);
            if !in_use {
                self.cgroups.remove(&uid);
            }
        }
    }

    /// The call would stop or remove an object of another owner.
    pub fn is_of_another(&self, call: &RuntimeCall) -> bool {
        let other = |owner: &Option<String>| owner.as_ref() != Some(&self.owner);
        match call {
            RuntimeCall::StopContainer { id, .. }
            | RuntimeCall::RemoveContainer { id }
            | RuntimeCall::StartContainer { id }
            | RuntimeCall::DeleteTask { id } => self.containers.get(id.as_str()).is_some_and(|c| other(&c.owner)),
            RuntimeCall::StopSandbox { id } | RuntimeCall::RemoveSandbox { id } => {
                self.sandboxes.get(id.as_str()).is_some_and(|s| other(&s.owner))
            }
            _ => false,
        }
    }

    /// Our sandboxes.
    pub fn ours(&self) -> impl Iterator<Item = &Sandbox> {
        self.sandboxes.values().filter(|s| s.owner.as_ref() == Some(&self.owner))
    }

    /// The init process of this container or sandbox is alive.
    pub fn lives(&self, id: &str) -> bool {
        self.containers.get(id).is_some_and(|c| c.runs() && !c.dead) || self.sandboxes.get(id).is_some_and(|s| s.ready)
    }
}

fn pre_stop_of(call: &CreateContainer) -> Option<String> {
    let handler = call.pod.container(&call.container)?.lifecycle.as_ref()?.pre_stop.as_ref()?;
    serde_json::to_string(handler).ok()
}

/// The container's process has ended.
pub fn end(c: &mut Container, code: i32, now: Wall) {
    c.state = ContainerState::Exited;
    c.exit_code = code;
    c.reason = if code == 0 { "Completed".into() } else { "Error".into() };
    c.finished_at = now;
}

fn sandbox_fact(s: &Sandbox, host_network: bool) -> SandboxFact {
    SandboxFact {
        id: SandboxId::from(s.id.as_str()),
        attempt: s.attempt,
        ready: s.ready,
        created_at: s.created_at,
        ips: if s.ready && !host_network && !s.ip.is_empty() { vec![s.ip.clone()] } else { Vec::new() },
        owner: s.owner.clone(),
        pid: s.ready.then_some(s.pid),
    }
}

/// The status call of a single container does not report its sandbox.
fn container_fact(c: &Container, with_sandbox: bool) -> ContainerFact {
    ContainerFact {
        id: ContainerId::from(c.id.as_str()),
        sandbox: SandboxId::from(if with_sandbox { c.sandbox.as_str() } else { "" }),
        name: c.name.clone(),
        attempt: c.attempt,
        state: c.shown_state(),
        created_at: c.created_at,
        started_at: c.started_at,
        finished_at: c.finished_at,
        exit_code: c.exit_code,
        reason: c.reason.clone(),
        message: c.message.clone(),
        image: c.image.clone(),
        image_ref: c.image.clone(),
        backoff_level: c.backoff_level,
        grace_seconds: c.grace_seconds,
        pre_stop: c.pre_stop.clone(),
        termination_file: Some(format!("/pods/{}/{}", c.uid, c.id)),
        fallback_to_logs: c.falls_back_to_log(),
        log_path: format!("/logs/{}/{}/{}.log", c.uid, c.name, c.attempt),
        owner: c.owner.clone(),
        pid: c.runs().then_some(c.pid),
    }
}
