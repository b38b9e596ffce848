//! Sandboxes and containers of the runtime model, the behaviour of processes, and the facts that the runtime reports.

use super::Runtime;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use wherry::api::facts::{
    ContainerFact, ContainerState, Listed, ListedContainer, ListedSandbox, PodFacts, SandboxFact,
};
use wherry::api::hash;
use wherry::api::names::{ContainerId, FullName, SandboxId, Uid};
use wherry::api::pod::Pod;
use wherry::api::stop_signal;
use wherry::api::time::Wall;
use wherry::api::user_namespace::IdRange;
use wherry::engine::effect::CreateContainer;
use wherry_engine::api::k8s::ResourceRequirements;

/// The output of a container may reach its log this much later.
const LOG_LAG: Duration = Duration::from_millis(150);

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

/// Equal for versions of a pod that differ only in what a running pod can change: resources and ephemeral containers, and at a pod of
/// the API server also images, the deadline and the tolerations. This model of R1 and C2 does not use the engine's code.
pub fn version_of(pod: &Pod) -> String {
    let mut spec = serde_json::json!(pod.spec());
    let of_api = pod.is_from_api_server();
    if let Some(spec) = spec.as_object_mut() {
        spec.remove("ephemeralContainers");
        if of_api {
            spec.remove("activeDeadlineSeconds");
            spec.remove("tolerations");
        }
    }
    for list in ["containers", "initContainers"] {
        for container in spec[list].as_array_mut().into_iter().flatten() {
            if of_api {
                container["image"].take();
            }
            if list == "containers" || container["restartPolicy"] == "Always" {
                for (kind, resource) in
                    [("requests", "cpu"), ("requests", "memory"), ("limits", "cpu"), ("limits", "memory")]
                {
                    if let Some(amounts) = container["resources"][kind].as_object_mut() {
                        amounts.remove(resource);
                    }
                }
            }
        }
    }
    wherry::api::uid::digest(&spec)
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
    /// The version of the pod for which it was created (`version_of`).
    pub version: String,
    pub user_namespace: Option<IdRange>,
    pub pid: u32,
    /// Its network result is an empty file.
    pub empty_network: bool,
    pub host_network: bool,
    /// The runtime does not report its address any more.
    pub forgotten_address: bool,
}

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
    pub boot: Option<u32>,
    pub grace_seconds: Option<u64>,
    /// The hook in JSON.
    pub pre_stop: Option<String>,
    pub stop_signal: Option<&'static str>,
    /// The pod for which it was created.
    pub pod: Rc<Pod>,
    /// Those with which it was created or to which it was resized.
    pub resources: Option<ResourceRequirements>,
    /// The devices that a plugin gave to it.
    pub devices: Option<String>,
    pub env: BTreeMap<String, String>,
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
    pub fn log_path(&self) -> String {
        format!("/logs/{}/{}/{}.log", self.uid, self.name, self.attempt)
    }

    /// The image in the spec for which it was created.
    pub fn spec_image(&self) -> &str {
        self.pod.container(&self.name).and_then(|spec| spec.image.as_deref()).unwrap_or_default()
    }

    pub fn runs(&self) -> bool {
        self.state == ContainerState::Running
    }

    /// The container runs or may run.
    pub fn may_run(&self) -> bool {
        matches!(self.state, ContainerState::Running | ContainerState::Unknown)
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

impl Runtime {
    pub(super) fn list(&self) -> Listed {
        let sandboxes = self.sandboxes.values().map(|s| ListedSandbox {
            id: SandboxId::from(s.id.as_str()),
            uid: s.uid.clone(),
            name: s.name.clone(),
            attempt: s.attempt,
            ready: s.ready,
            owner: s.owner.clone(),
            grace_seconds: s.grace_seconds,
            user_namespace: s.user_namespace,
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

    pub(super) fn read(&self, uid: &Uid) -> PodFacts {
        let mut sandboxes: Vec<SandboxFact> =
            self.sandboxes.values().filter(|s| s.uid == *uid).map(sandbox_fact).collect();
        let mut containers: Vec<ContainerFact> =
            self.containers.values().filter(|c| c.uid == *uid).map(|c| container_fact(c, true)).collect();
        sandboxes.sort_by_key(|s| std::cmp::Reverse(s.created_at));
        containers.sort_by_key(|c| std::cmp::Reverse(c.created_at));
        PodFacts { sandboxes, containers }
    }
}

pub(super) fn pre_stop_of(call: &CreateContainer) -> Option<String> {
    let handler = call.pod.container(&call.container)?.lifecycle.as_ref()?.pre_stop.as_ref()?;
    serde_json::to_string(handler).ok()
}

pub(super) fn stop_signal_of(call: &CreateContainer) -> Option<&'static str> {
    let lifecycle = call.pod.container(&call.container)?.lifecycle.as_ref()?;
    stop_signal::name(stop_signal::number(lifecycle.stop_signal.as_deref()?)?)
}

/// The container's process has ended.
pub fn end(c: &mut Container, code: i32, now: Wall) {
    c.state = ContainerState::Exited;
    c.exit_code = code;
    c.reason = if code == 0 { "Completed".into() } else { "Error".into() };
    c.finished_at = now;
}

pub(super) fn sandbox_fact(s: &Sandbox) -> SandboxFact {
    let has_ip = s.ready && !s.host_network && !s.forgotten_address && !s.ip.is_empty();
    SandboxFact {
        id: SandboxId::from(s.id.as_str()),
        attempt: s.attempt,
        ready: s.ready,
        created_at: s.created_at,
        ips: if has_ip { vec![s.ip.clone()] } else { Vec::new() },
        host_network: s.host_network,
        owner: s.owner.clone(),
        user_namespace: s.user_namespace,
        pid: s.ready.then_some(s.pid),
    }
}

/// The status call of a single container does not report its sandbox.
pub fn container_fact(c: &Container, with_sandbox: bool) -> ContainerFact {
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
        spec_hash: Some(hash::container(&c.name, c.spec_image())),
        backoff_level: c.backoff_level,
        boot: c.boot,
        grace_seconds: c.grace_seconds,
        pre_stop: c.pre_stop.clone(),
        stop_signal: c.stop_signal,
        user: None,
        termination_file: Some(format!("/pods/{}/{}", c.uid, c.id)),
        fallback_to_logs: c.falls_back_to_log(),
        log_path: c.log_path(),
        owner: c.owner.clone(),
        pid: c.runs().then_some(c.pid),
    }
}
