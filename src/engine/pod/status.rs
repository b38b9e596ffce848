//! The PodStatus that people see, from the spec, what was observed and what the worker says of it: phase, conditions,
//! container states, in the kubelet's words.

use crate::api::facts::{ContainerFact, ContainerState, PodFacts};
use crate::api::names::ContainerId;
use crate::api::pod::{Pod, RestartPolicy};
use crate::api::time::Wall;
use crate::engine::pod::plan;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::collections::BTreeMap;

/// Why the pod was, or is being, stopped: shown once the pod has a terminal phase, and before with its phase so far (W3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    pub reason: String,
    pub message: String,
}

/// What the worker knows beyond spec and facts.
pub struct View<'a> {
    pub pod: &'a Pod,
    pub facts: &'a PodFacts,
    /// P4: addresses that outlive the sandbox.
    pub ips: &'a [String],
    pub start_time: Wall,
    pub qos_class: &'static str,
    /// Waiting reason and message of a container that is not running and will be tried again.
    pub waiting: &'a dyn Fn(&str) -> Option<(String, String)>,
    /// Termination messages by container.
    pub messages: &'a BTreeMap<ContainerId, String>,
    /// The pod was killed for this.
    pub cause: Option<&'a Cause>,
    /// No container runs, none is coming: a terminal phase may be shown (W3).
    pub over: bool,
    /// The runtime's name, for container ids (`containerd://...`).
    pub runtime: &'a str,
    pub previous: &'a core::PodStatus,
    pub now: Wall,
}

/// A status for a pod that waits for its predecessor (W8): Pending and nothing more.
pub fn waiting() -> core::PodStatus {
    core::PodStatus { phase: Some("Pending".into()), ..Default::default() }
}

pub fn of(view: &View<'_>) -> core::PodStatus {
    let mut containers: Vec<core::ContainerStatus> = view.pod.containers().iter().map(|c| container(view, c)).collect();
    let phase = phase(view, &containers);
    let conditions = conditions(view, phase, &containers);
    containers.sort_by(|a, b| a.name.cmp(&b.name));
    let ips = if view.pod.host_network() { &[] } else { view.ips };
    core::PodStatus {
        phase: Some(phase.into()),
        reason: view.cause.map(|c| c.reason.clone()).filter(|r| !r.is_empty()),
        message: view.cause.map(|c| c.message.clone()).filter(|m| !m.is_empty()),
        conditions: Some(conditions),
        pod_ip: ips.first().cloned(),
        pod_ips: (!ips.is_empty()).then(|| ips.iter().map(|ip| core::PodIP { ip: ip.clone() }).collect()),
        start_time: view.start_time.timestamp().map(Time),
        container_statuses: Some(containers),
        qos_class: Some(view.qos_class.into()),
        ..Default::default()
    }
}

fn time(at: Wall) -> Option<Time> {
    Some(Time(at.timestamp().unwrap_or(jiff::Timestamp::UNIX_EPOCH)))
}

fn terminated(view: &View<'_>, c: &ContainerFact) -> core::ContainerState {
    // The termination message stands behind the runtime's own.
    let said = view.messages.get(&c.id).map(String::as_str).unwrap_or_default();
    let message = match (c.message.is_empty(), said.is_empty()) {
        (_, true) => c.message.clone(),
        (true, false) => said.to_string(),
        (false, false) => format!("{}: {said}", c.message),
    };
    core::ContainerState {
        terminated: Some(core::ContainerStateTerminated {
            container_id: Some(id(view, c)),
            exit_code: c.exit_code,
            reason: Some(c.reason.clone()).filter(|r| !r.is_empty()),
            message: Some(message).filter(|m| !m.is_empty()),
            started_at: time(c.started_at),
            finished_at: time(c.finished_at),
            signal: None,
        }),
        ..Default::default()
    }
}

fn id(view: &View<'_>, c: &ContainerFact) -> String {
    format!("{}://{}", view.runtime, c.id)
}

fn waiting_state((reason, message): (String, String)) -> core::ContainerState {
    let message = Some(message).filter(|m| !m.is_empty());
    core::ContainerState {
        waiting: Some(core::ContainerStateWaiting { reason: Some(reason), message }),
        ..Default::default()
    }
}

/// How a container ends that was never seen when its pod was stopped.
fn never_seen() -> core::ContainerState {
    core::ContainerState {
        terminated: Some(core::ContainerStateTerminated {
            exit_code: 137,
            reason: Some("ContainerStatusUnknown".into()),
            message: Some("The container could not be located when the pod was terminated".into()),
            started_at: time(Wall(0)),
            finished_at: time(Wall(0)),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn container(view: &View<'_>, spec: &core::Container) -> core::ContainerStatus {
    let mut status = core::ContainerStatus {
        name: spec.name.clone(),
        image: spec.image.clone().unwrap_or_default(),
        last_state: Some(core::ContainerState::default()),
        started: Some(false),
        ..Default::default()
    };
    let Some(newest) = plan::newest(view.facts, &spec.name) else {
        let creating = || ("ContainerCreating".to_string(), String::new());
        let state = if view.over && view.cause.is_some() {
            never_seen()
        } else {
            waiting_state((view.waiting)(&spec.name).unwrap_or_else(creating))
        };
        status.state = Some(state);
        return status;
    };
    status.restart_count = i32::try_from(newest.attempt).unwrap_or(i32::MAX);
    status.container_id = Some(id(view, newest));
    status.image = newest.image.clone();
    status.image_id = newest.image_ref.clone();
    let before = view
        .facts
        .containers
        .iter()
        .filter(|c| c.name == newest.name && c.id != newest.id && c.state == ContainerState::Exited)
        .max_by_key(|c| (c.attempt, c.created_at));
    let last = before.map(|c| terminated(view, c));
    match newest.state {
        ContainerState::Running => {
            status.state = Some(core::ContainerState {
                running: Some(core::ContainerStateRunning { started_at: time(newest.started_at) }),
                ..Default::default()
            });
            status.ready = true;
            status.started = Some(true);
            status.last_state = Some(last.unwrap_or_default());
        }
        ContainerState::Exited => {
            let waits = (!view.over).then(|| (view.waiting)(&spec.name)).flatten();
            match waits {
                Some(why) => {
                    status.state = Some(waiting_state(why));
                    status.last_state = Some(terminated(view, newest));
                }
                None => {
                    status.state = Some(terminated(view, newest));
                    status.last_state = Some(last.unwrap_or_default());
                }
            }
        }
        ContainerState::Created | ContainerState::Unknown => {
            let why = (view.waiting)(&spec.name).unwrap_or_else(|| ("ContainerCreating".into(), String::new()));
            status.state = Some(waiting_state(why));
            status.last_state = Some(last.unwrap_or_default());
        }
    }
    status
}

fn has_terminated(state: Option<&core::ContainerState>) -> Option<&core::ContainerStateTerminated> {
    state.and_then(|s| s.terminated.as_ref())
}

/// The phase by the kubelet's rules; a terminal one only when no container runs and none will start (W3).
fn phase(view: &View<'_>, containers: &[core::ContainerStatus]) -> &'static str {
    let policy = view.pod.restart_policy();
    let (mut running, mut stopped, mut succeeded, mut waiting, mut restarts) = (0, 0, 0, 0, 0);
    for c in containers {
        let state = c.state.as_ref();
        if state.is_some_and(|s| s.running.is_some()) {
            running += 1;
        } else if let Some(t) = has_terminated(state) {
            stopped += 1;
            succeeded += usize::from(t.exit_code == 0);
            restarts += usize::from(plan::restarts(policy, t.exit_code));
        } else if has_terminated(c.last_state.as_ref()).is_some() {
            stopped += 1;
            restarts += 1;
        } else {
            waiting += 1;
        }
    }
    // A pod that was killed for a reason shows its phase so far until it is over.
    let ended_by_itself = waiting + running + restarts == 0 && view.cause.is_none();
    if view.over || ended_by_itself {
        let all_succeeded = succeeded == containers.len();
        return if all_succeeded && view.cause.is_none() { "Succeeded" } else { "Failed" };
    }
    match () {
        () if waiting > 0 => "Pending",
        () if running > 0 || stopped > 0 => "Running",
        () => "Pending",
    }
}

fn condition(
    view: &View<'_>,
    kind: &str,
    ok: bool,
    reason: Option<&str>,
    message: Option<String>,
) -> core::PodCondition {
    let status = if ok { "True" } else { "False" };
    let before = view.previous.conditions.iter().flatten().find(|c| c.type_ == kind && c.status == status);
    let since = before.and_then(|c| c.last_transition_time.clone()).or_else(|| view.now.timestamp().map(Time));
    core::PodCondition {
        type_: kind.into(),
        status: status.into(),
        reason: reason.map(str::to_string),
        message,
        last_transition_time: since,
        last_probe_time: None,
        observed_generation: None,
    }
}

fn conditions(view: &View<'_>, phase: &str, containers: &[core::ContainerStatus]) -> Vec<core::PodCondition> {
    let sandbox = plan::ready_sandbox(view.facts);
    let network = sandbox.is_some_and(|s| view.pod.host_network() || !s.ips.is_empty());
    let unready: Vec<&str> = containers.iter().filter(|c| !c.ready).map(|c| c.name.as_str()).collect();
    let (ok, reason, message) = match phase {
        "Succeeded" => (false, Some("PodCompleted"), None),
        "Failed" => (false, Some("PodFailed"), None),
        _ if unready.is_empty() => (true, None, None),
        _ => {
            let message = format!("containers with unready status: [{}]", unready.join(" "));
            (false, Some("ContainersNotReady"), Some(message))
        }
    };
    let initialized = (phase == "Succeeded").then_some("PodCompleted");
    vec![
        condition(view, "PodReadyToStartContainers", network, None, None),
        condition(view, "Initialized", true, initialized, None),
        condition(view, "Ready", ok, reason, message.clone()),
        condition(view, "ContainersReady", ok, reason, message),
        condition(view, "PodScheduled", true, None, None),
    ]
}

/// Would the pod have succeeded, were it over now?
pub fn succeeded(pod: &Pod, facts: &PodFacts) -> bool {
    let policy = pod.restart_policy();
    pod.containers().iter().all(|c| {
        plan::newest(facts, &c.name)
            .is_some_and(|f| f.state == ContainerState::Exited && f.exit_code == 0 && policy != RestartPolicy::Always)
    })
}
