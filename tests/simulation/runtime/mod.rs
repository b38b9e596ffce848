//! A model of a CRI runtime: sandboxes, containers and images, with the behaviour of containerd or of CRI-O (`personality`). A call
//! takes effect at one instant. The world (`world`) decides when that is and whether the answer arrives.

mod images;
mod objects;
mod personality;
mod twins;

pub use images::ImageStore;
pub use objects::{Container, Life, Sandbox, container_fact, end, version_of};
use objects::{pre_stop_of, sandbox_fact, stop_signal_of};
pub use personality::Personality;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use wherry::api::facts::{ContainerState, ImageFact, RuntimeFact};
use wherry::api::mount::MountSource;
use wherry::api::names::{ContainerId, Uid};
use wherry::api::pod::Pod;
use wherry::api::runtime_features::{CdiDevices, HandlerFeatures, ImageVolumes, RuntimeFeatures};
use wherry::api::time::Wall;
use wherry::api::user_namespace::IdRange;
use wherry::engine::effect::{CreateContainer, RuntimeCall};
use wherry::engine::event::Answer;
use wherry::engine::op::{Code, OpError};

/// The stage of a start in containerd when it is cancelled.
#[derive(Clone, Copy, Debug)]
pub enum GivenUp {
    /// The shim has been called, so the task may exist.
    InTheShim,
    /// The shim was being started.
    BeforeTheShim,
}

/// The effect of a call, in addition to its answer.
pub enum Outcome {
    Answer(Result<Answer, OpError>),
    /// The container was started, and its `Life` begins.
    Started(String, Answer),
    /// The answer comes when the container has ended: SIGTERM now, SIGKILL after this time.
    Stopping(String, Duration),
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
    /// Images that only these users may pull.
    pub private_images: BTreeMap<String, BTreeSet<String>>,
    pub store: ImageStore,
    /// Images that no registry has.
    pub unknown_images: BTreeSet<String>,
    /// The user of every image: (uid, name).
    pub image_user: (Option<i64>, String),
    pub owner: String,
    pub personality: Personality,
    pub network_ready: bool,
    pub ready: bool,
    pub features: RuntimeFeatures,
    /// The runtime supports stop signals and reports them.
    pub stop_signals: bool,
    last_id: u32,
    /// The next sandbox gets no address.
    pub no_address: bool,
    /// The minimum number of digits of an id; real ids are long.
    pub id_length: usize,
    /// Containers that succeeded and were removed: (sandbox, container name).
    succeeded: BTreeSet<(String, String)>,
    /// Containers that a list shows as unknown, whatever their status call returns.
    pub listed_unknown: BTreeSet<String>,
    /// Errors of the engine: pods with the ids of another one.
    pub shared_user_namespaces: Vec<String>,
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

impl Runtime {
    pub fn new(owner: &str) -> Runtime {
        Runtime {
            owner: owner.into(),
            network_ready: true,
            ready: true,
            image_user: (Some(0), String::new()),
            features: RuntimeFeatures {
                image_volumes: ImageVolumes::WithSubPaths,
                cdi_devices: CdiDevices::Supported,
                handlers: [(String::new(), HandlerFeatures { user_namespaces: true, ..Default::default() })].into(),
                ..RuntimeFeatures::default()
            },
            ..Runtime::default()
        }
    }

    /// From now on this is that runtime.
    pub fn becomes(&mut self, personality: Personality) {
        self.personality = personality;
        self.features.stop_signals = personality.stop_signals();
    }

    /// The runtime started again, and does not know the address of this sandbox any more.
    pub fn forget_address(&mut self, sandbox: &str) {
        if let Some(s) = self.sandboxes.get_mut(sandbox) {
            s.forgotten_address = true;
        }
    }

    fn id(&mut self, kind: &str) -> String {
        self.last_id += 1;
        format!("{kind}{:01$}", self.last_id, self.id_length)
    }

    pub fn call(&mut self, call: &RuntimeCall, now: Wall, life: impl FnOnce(&Container) -> Life) -> Outcome {
        match call {
            RuntimeCall::Status => ok(Answer::Runtime(RuntimeFact {
                name: self.personality.name().into(),
                version: self.personality.version().into(),
                runtime_not_ready: (!self.ready).then(|| "NotReady: starting".into()),
                network_not_ready: (!self.network_ready).then(|| "NetworkPluginNotReady: no cni".into()),
                features: self.features.clone(),
            })),
            RuntimeCall::List => ok(Answer::Listed(self.list())),
            RuntimeCall::ReadPod { uid } => ok(Answer::Pod(self.read(uid))),
            RuntimeCall::RunSandbox { pod, attempt, user_namespace, .. } => {
                self.run_sandbox(pod, *attempt, *user_namespace, now)
            }
            RuntimeCall::StopSandbox { id } => self.stop_sandbox(id.as_str(), now),
            RuntimeCall::RemoveSandbox { id } => self.remove_sandbox(id.as_str(), now),
            RuntimeCall::ImageStatus { image } => ok(Answer::Image(self.image(image))),
            RuntimeCall::PullImage { image, credential, .. } => {
                let user = credential.as_ref().map_or("anonymous", |c| &c.username);
                if self.private_images.get(image).is_some_and(|users| !users.contains(user)) {
                    return failed(format!("failed to pull {image}: 401 Unauthorized for {user}"));
                }
                if self.unknown_images.contains(image) {
                    return failed(format!("failed to pull {image}: no such image"));
                }
                self.images.insert(image.clone());
                ok(Answer::Image(self.image(image)))
            }
            RuntimeCall::CreateContainer(c) => self.create(c, now),
            RuntimeCall::StartContainer { id } => self.start(id.as_str(), now, life),
            RuntimeCall::StopContainer { id, grace } => match self.containers.get(id.as_str()) {
                None => self.personality.end_of_nothing(id.as_str()),
                Some(c) if c.unknown && c.runs() && !c.held && self.personality.kills_unknown_at_once() => {
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
            RuntimeCall::ListImages => ok(Answer::Images(self.list_images())),
            RuntimeCall::ImageFs => ok(Answer::ImageFs(self.store.file_systems())),
            RuntimeCall::RemoveImage { id } => self.remove_image(id),
            RuntimeCall::UpdateContainer { pod, container, id } => match self.containers.get_mut(id.as_str()) {
                Some(c) if matches!(c.state, ContainerState::Running | ContainerState::Created) => {
                    c.resources = pod.container(container).and_then(|spec| spec.resources.as_deref().cloned());
                    ok(Answer::Ok)
                }
                Some(_) => failed(format!("container {id} is not running")),
                None => not_found(id.as_str()),
            },
            // `control` answers the calls of users.
            RuntimeCall::Exec(_)
            | RuntimeCall::Stream(_)
            | RuntimeCall::Handler(_)
            | RuntimeCall::Usage
            | RuntimeCall::ReopenContainerLog { .. } => ok(Answer::Ok),
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
            size: 4_321_000,
        })
    }

    fn run_sandbox(&mut self, pod: &Rc<Pod>, attempt: u32, user_namespace: Option<IdRange>, now: Wall) -> Outcome {
        let reserved = self.reserved.contains(&(pod.uid.clone(), attempt));
        let taken = |s: &Sandbox| (&s.uid, s.attempt, &s.name) == (&pod.uid, attempt, &pod.name);
        if reserved || self.sandboxes.values().any(taken) {
            return self.personality.name_taken("sandbox", &format!("{}_{attempt}", pod.name));
        }
        let shared = |s: &Sandbox| s.uid != pod.uid && s.ready && s.user_namespace == user_namespace;
        if user_namespace.is_some() && self.sandboxes.values().any(shared) {
            self.shared_user_namespaces.push(pod.name.to_string());
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
            version: version_of(pod),
            user_namespace,
            pid: 500_000 + self.last_id,
            empty_network: false,
            host_network: pod.host_network(),
            forgotten_address: false,
        };
        let fact = sandbox_fact(&s);
        self.cgroups.insert(pod.uid.clone());
        self.sandboxes.insert(id, s);
        ok(Answer::Sandbox(fact))
    }

    fn stop_sandbox(&mut self, id: &str, now: Wall) -> Outcome {
        if !self.sandboxes.contains_key(id) {
            return self.personality.end_of_nothing(id);
        }
        self.kill_all_of(id, now);
        if let Some(c) = self.containers.values().find(|c| c.sandbox == id && c.runs()) {
            return failed(format!("failed to stop container {}: context deadline exceeded", c.id));
        }
        if let Some(s) = self.sandboxes.get_mut(id) {
            if s.empty_network {
                return failed(format!("failed to destroy network for sandbox {id}: unexpected end of JSON input"));
            }
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
        if self.sandboxes.get(id).is_some_and(|s| s.empty_network) {
            return failed(format!("failed to destroy network for sandbox {id}: unexpected end of JSON input"));
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
            return self.personality.sandbox_not_ready();
        }
        if s.user_namespace != call.user_namespace {
            return failed("user namespace config for sandbox is different from container");
        }
        let uid = &call.pod.uid;
        let taken = |c: &Container| {
            (&c.uid, &c.pod_name, &c.name, c.attempt) == (uid, &call.pod.name, &call.container, call.attempt)
        };
        if self.containers.values().any(taken) {
            return self.personality.name_taken("container", &format!("{}_{}", call.container, call.attempt));
        }
        let images = call.mounts.iter().filter_map(|mount| match &mount.source {
            MountSource::Image(image) => Some(&image.id),
            MountSource::Host(_) => None,
        });
        for image in images {
            if !self.images.iter().any(|name| format!("sha256:{name}") == *image) {
                return failed(format!("failed to mount image volume: image {image:?}: not found"));
            }
        }
        if let Some(target) = &call.target
            && !self.containers.get(target.as_str()).is_some_and(|c| c.runs() && c.sandbox == call.sandbox.as_str())
        {
            return failed(format!("invalid target container: {target} is not running"));
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
            boot: call.boot,
            grace_seconds: Some(call.pod.grace_period().as_secs()),
            pre_stop: pre_stop_of(call),
            stop_signal: stop_signal_of(call).filter(|_| self.stop_signals),
            pod: call.pod.clone(),
            devices: call.process.env.iter().find(|(name, _)| name == "DEVICES").map(|(_, ids)| ids.clone()),
            env: call.process.env.iter().cloned().collect(),
            resources: call.pod.container(&call.container).and_then(|spec| spec.resources.as_deref().cloned()),
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
            if self.personality.removes_what_cannot_start() {
                self.containers.remove(id);
            }
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

    /// The containers of our pod with this UID, without those of other owners.
    pub fn of(&self, uid: &Uid) -> impl Iterator<Item = &Container> {
        self.containers.values().filter(move |c| c.uid == *uid && c.owner.as_ref() == Some(&self.owner))
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
