//! Computes the PodStatus from the spec, the observed state and the worker's state: phase, conditions and container
//! states, with the kubelet's reasons and messages.

mod ephemeral;

use crate::api::facts::{ContainerFact, ContainerState, ContainerUser, PodFacts};
use crate::api::k8s::{self, Time};
use crate::api::names::ContainerId;
use crate::api::ordered::OrderSlice;
use crate::api::pod::{Pod, is_sidecar};
use crate::api::reason::Reason;
use crate::api::runtime_features::StopSignals;
use crate::api::time::Wall;
use crate::engine::pod::kill::Cause;
use crate::engine::pod::plan::observed;
use crate::engine::pod::worker::earlier::{Earlier, last_end, lost};
use crate::engine::pod::worker::resize::Resize;
use crate::engine::pod::worker::restarting::Restarting;
use std::collections::{BTreeMap, BTreeSet};

/// What a status says of the runtime.
pub struct StatusRuntime<'a> {
    /// For container ids (`containerd://...`).
    pub name: &'a str,
    pub stop_signals: StopSignals,
    /// The runtime can make a mount and all mounts below it read-only.
    pub recursive_read_only: bool,
}

/// The input of a status: spec, observed state and the worker's state.
pub struct View<'a> {
    pub pod: &'a Pod,
    pub facts: &'a PodFacts,
    /// P4: addresses that outlive the sandbox.
    pub ips: &'a [String],
    pub start_time: Wall,
    pub qos_class: &'static str,
    /// Waiting reason and message of a running container that is not shown as running yet because of its postStart
    /// hook.
    pub starting: &'a dyn Fn(&ContainerId) -> Option<(Reason, String)>,
    /// Whether a running container has started and is ready according to its probes.
    pub started: &'a dyn Fn(&k8s::Container, &ContainerFact) -> bool,
    pub ready: &'a dyn Fn(&k8s::Container, &ContainerFact) -> bool,
    /// Waiting reason and message of a container that is not running and will be retried.
    pub waiting: &'a dyn Fn(&str) -> Option<(Reason, String)>,
    /// Termination messages by container.
    pub messages: &'a BTreeMap<ContainerId, String>,
    /// Why the pod was killed.
    pub cause: Option<&'a Cause>,
    /// Why nothing of the pod can be started: reason and message.
    pub waits: Option<(Reason, String)>,
    /// W29: the ephemeral containers that were started.
    pub begun_ephemeral: &'a BTreeSet<String>,
    /// W10: containers that were stopped to start again.
    pub restarting: &'a Restarting,
    /// C5: the containers before a shutdown.
    pub earlier: &'a Earlier,
    /// The in-place resize of the pod.
    pub resize: &'a Resize,
    /// No container runs or can still start, so the status may show a terminal phase (W3).
    pub over: bool,
    pub runtime: StatusRuntime<'a>,
    pub previous: &'a k8s::PodStatus,
    pub now: Wall,
}

/// The status of a pod that waits for its predecessor (W8).
pub fn waiting() -> k8s::PodStatus {
    k8s::PodStatus { phase: Some("Pending".into()), ..Default::default() }
}

/// The status of a pod that fits once others are gone (A4).
pub fn waits_for_room(why: &str) -> k8s::PodStatus {
    k8s::PodStatus { reason: Some(Reason::WaitingForRoom.to_string()), message: Some(why.into()), ..waiting() }
}

/// The status of a pod that does not start because the node is cordoned (A10).
pub fn waits_for_uncordon() -> k8s::PodStatus {
    let message = "the node is cordoned; `wherry uncordon` or `kubectl uncordon` lets the pod start";
    k8s::PodStatus { reason: Some(Reason::Unschedulable.to_string()), message: Some(message.into()), ..waiting() }
}

/// The status of a rejected pod (A3).
pub fn rejected(why: &Cause) -> k8s::PodStatus {
    k8s::PodStatus {
        phase: Some("Failed".into()),
        reason: Some(why.reason.to_string()),
        message: Some(why.message.clone()),
        ..Default::default()
    }
}

pub fn of(view: &View<'_>) -> k8s::PodStatus {
    let of = |list: &[k8s::Container], main| list.iter().map(|c| container(view, c, main)).collect();
    let init: Vec<k8s::ContainerStatus> = of(view.pod.init_containers(), false);
    let mut containers: Vec<k8s::ContainerStatus> = of(view.pod.containers(), true);
    let phase = phase(view, &init, &containers);
    let conditions = conditions(view, phase, &init, &containers);
    containers.order_by(|a, b| a.name.cmp(&b.name));
    let ips = if view.pod.host_network() { &[] } else { view.ips };
    let waits = view.waits.as_ref().map(|(reason, message)| (reason, message));
    let why = view.cause.map(|c| (&c.reason, &c.message)).or(waits);
    let (reason, message) = why.map_or_else(Default::default, |(r, m)| (r.to_string(), m.clone()));
    k8s::PodStatus {
        phase: Some(phase.into()),
        reason: Some(reason).filter(|r| !r.is_empty()),
        message: Some(message).filter(|m| !m.is_empty()),
        conditions: Some(conditions),
        pod_ip: ips.first().cloned(),
        pod_ips: (!ips.is_empty()).then(|| ips.iter().map(|ip| k8s::PodIP { ip: ip.clone() }).collect()),
        start_time: view.start_time.timestamp().map(Time),
        init_container_statuses: (!init.is_empty()).then_some(init),
        container_statuses: Some(containers),
        ephemeral_container_statuses: ephemeral::statuses(view),
        qos_class: Some(view.qos_class.into()),
        ..Default::default()
    }
}

fn time(at: Wall) -> Option<Time> {
    Some(Time(at.timestamp().unwrap_or(jiff::Timestamp::UNIX_EPOCH)))
}

fn terminated(view: &View<'_>, c: &ContainerFact) -> k8s::ContainerState {
    // The termination message follows the runtime's own message.
    let text = view.messages.get(&c.id).map(String::as_str).unwrap_or_default();
    let message = match (c.message.is_empty(), text.is_empty()) {
        (_, true) => c.message.clone(),
        (true, false) => text.to_string(),
        (false, false) => format!("{}: {text}", c.message),
    };
    k8s::ContainerState {
        terminated: Some(Box::new(k8s::ContainerStateTerminated {
            container_id: Some(id(view, c)),
            exit_code: c.exit_code,
            reason: Some(c.reason.clone()).filter(|r| !r.is_empty()),
            message: Some(message).filter(|m| !m.is_empty()),
            started_at: time(c.started_at),
            finished_at: time(c.finished_at),
            signal: None,
        })),
        ..Default::default()
    }
}

fn id(view: &View<'_>, c: &ContainerFact) -> String {
    format!("{}://{}", view.runtime.name, c.id)
}

fn waiting_state((reason, message): (Reason, String)) -> k8s::ContainerState {
    let message = Some(message).filter(|m| !m.is_empty());
    k8s::ContainerState {
        waiting: Some(Box::new(k8s::ContainerStateWaiting { reason: Some(reason.to_string()), message })),
        ..Default::default()
    }
}

/// The waiting reason of a container before its first start.
pub fn waiting_at_first(pod: &Pod) -> Reason {
    if pod.init_containers().is_empty() { Reason::ContainerCreating } else { Reason::PodInitializing }
}

/// As in a kubelet, a read-only mount shows if it is recursively read-only.
fn volume_mounts(spec: &k8s::Container, possible: bool) -> Option<Vec<k8s::VolumeMountStatus>> {
    let one = |mount: &k8s::VolumeMount| {
        let read_only = mount.read_only == Some(true);
        let recursive = possible && matches!(mount.recursive_read_only.as_deref(), Some("Enabled" | "IfPossible"));
        k8s::VolumeMountStatus {
            mount_path: mount.mount_path.clone(),
            name: mount.name.clone(),
            read_only: read_only.then_some(true),
            recursive_read_only: read_only.then(|| if recursive { "Enabled" } else { "Disabled" }.to_owned()),
        }
    };
    let mounts = spec.volume_mounts.as_ref().filter(|mounts| !mounts.is_empty())?;
    Some(mounts.iter().map(one).collect())
}

fn container(view: &View<'_>, spec: &k8s::Container, main: bool) -> k8s::ContainerStatus {
    let mut status = k8s::ContainerStatus {
        name: spec.name.clone(),
        image: spec.image.clone().unwrap_or_default(),
        last_state: Some(k8s::ContainerState::default()),
        started: Some(false),
        volume_mounts: volume_mounts(spec, view.runtime.recursive_read_only),
        allocated_resources: spec.resources.as_ref().and_then(|r| r.requests.clone()),
        resources: spec.resources.as_deref().cloned().filter(|r| *r != k8s::ResourceRequirements::default()),
        ..Default::default()
    };
    let Some(newest) = observed::newest(view.facts, &spec.name) else {
        // W10: a container that was never attempted is waiting, also after the end of the pod. One that
        // ran and is gone has ended.
        status.restart_count = i32::try_from(view.earlier.restarts(&spec.name)).unwrap_or(i32::MAX);
        match end_before(view.previous, &spec.name).or_else(|| view.earlier.end(&spec.name)) {
            Some(end) if view.over => status.state = Some(end),
            end => {
                status.state = Some(waiting_state(creating(view, spec)));
                status.last_state = Some(end.unwrap_or_default());
            }
        }
        return status;
    };
    status.restart_count = i32::try_from(newest.attempt).unwrap_or(i32::MAX);
    if let Some(before) = view.resize.before(&newest.id) {
        status.resources = Some(before.clone());
    }
    let starting = if newest.state == ContainerState::Running { (view.starting)(&newest.id) } else { None };
    status.container_id = starting.is_none().then(|| id(view, newest));
    status.image = newest.image.clone();
    status.image_id = newest.image_ref.clone();
    status.user = newest.user.as_deref().map(user);
    status.stop_signal = view.runtime.stop_signals.of_container(spec, newest.stop_signal).map(str::to_owned);
    let before = view
        .facts
        .containers
        .iter()
        .filter(|c| c.name == newest.name && c.id != newest.id && c.state == ContainerState::Exited)
        .max_by_key(|c| (c.attempt, c.created_at));
    let earlier = || view.earlier.end(&spec.name).filter(|_| newest.attempt == view.earlier.first_free(&spec.name));
    let last = before.map(|c| terminated(view, c)).or_else(earlier);
    match starting {
        Some(why) => {
            status.state = Some(waiting_state(why));
            status.last_state = Some(last.unwrap_or_default());
        }
        None => set_state(&mut status, view, spec, newest, last, main),
    }
    status
}

/// Why the container waits before its first instance runs.
fn creating(view: &View<'_>, spec: &k8s::Container) -> (Reason, String) {
    (view.waiting)(&spec.name).unwrap_or_else(|| (waiting_at_first(view.pod), String::new()))
}

/// The state of the newest instance, and that of the last one that has ended. `last`: an instance before the newest.
fn set_state(
    status: &mut k8s::ContainerStatus,
    view: &View<'_>,
    spec: &k8s::Container,
    newest: &ContainerFact,
    last: Option<k8s::ContainerState>,
    main: bool,
) {
    match newest.state {
        ContainerState::Running => {
            status.state = Some(k8s::ContainerState {
                running: Some(Box::new(k8s::ContainerStateRunning { started_at: time(newest.started_at) })),
                ..Default::default()
            });
            let started = (view.started)(spec, newest);
            status.started = Some(started);
            // A completed init container is ready.
            status.ready = (main || is_sidecar(spec)) && started && (view.ready)(spec, newest);
            status.last_state = Some(last.unwrap_or_default());
        }
        ContainerState::Exited => {
            // An API server refuses that a container runs again after its end was reported, if the policy does not
            // restart it.
            let restarting = view.restarting.contains(&newest.id);
            let waiting = || (view.waiting)(&spec.name).or_else(|| restarting.then(|| creating(view, spec)));
            let waits = (!view.over).then(waiting).flatten();
            match waits {
                Some(why) => {
                    status.state = Some(waiting_state(why));
                    status.last_state = Some(terminated(view, newest));
                }
                None => {
                    status.state = Some(terminated(view, newest));
                    status.last_state = Some(last.unwrap_or_default());
                    status.ready = !main && !is_sidecar(spec) && newest.exit_code == 0;
                }
            }
        }
        // Do not show it as waiting: the pod would seem to be pending again.
        ContainerState::Unknown if newest.started_at.0 > 0 => {
            status.state = Some(lost());
            status.last_state = Some(last.unwrap_or_default());
        }
        ContainerState::Created | ContainerState::Unknown => {
            status.state = Some(waiting_state(creating(view, spec)));
            status.last_state = Some(last.unwrap_or_default());
        }
    }
}

fn user(ids: &ContainerUser) -> k8s::ContainerUser {
    let ContainerUser { uid, gid, supplemental_groups } = ids.clone();
    let supplemental_groups = (!supplemental_groups.is_empty()).then_some(supplemental_groups);
    k8s::ContainerUser { linux: Some(k8s::LinuxContainerUser { gid, supplemental_groups, uid }) }
}

/// The end of a container that the previous status shows and that is gone from the runtime; None if the container never
/// ran.
fn end_before(previous: &k8s::PodStatus, name: &str) -> Option<k8s::ContainerState> {
    let all = [&previous.init_container_statuses, &previous.container_statuses, &previous.ephemeral_container_statuses];
    last_end(all.into_iter().flatten().flatten().find(|c| c.name == name)?)
}

fn is_running(status: &k8s::ContainerStatus) -> bool {
    status.state.as_ref().is_some_and(|s| s.running.is_some())
}

/// A main container runs or ran, so the pod was initialized, whatever its sidecars do now.
fn main_began(containers: &[k8s::ContainerStatus]) -> bool {
    let ran = |s: &k8s::ContainerState| s.running.is_some() || s.terminated.is_some();
    containers.iter().any(|c| c.state.as_ref().is_some_and(ran))
}

/// An init container has not ended yet, or a sidecar has not started.
fn init_is_pending(view: &View<'_>, init: &[k8s::ContainerStatus]) -> bool {
    view.pod.init_containers().iter().zip(init).any(|(spec, status)| {
        let ended = has_terminated(status.state.as_ref()).or(has_terminated(status.last_state.as_ref())).is_some();
        match is_sidecar(spec) {
            true if is_running(status) => status.started != Some(true),
            _ => !ended || is_running(status),
        }
    })
}

fn has_terminated(state: Option<&k8s::ContainerState>) -> Option<&k8s::ContainerStateTerminated> {
    state.and_then(|s| s.terminated.as_deref())
}

/// The phase by the kubelet's rules. A terminal phase requires that no container runs or will start (W3).
fn phase(view: &View<'_>, init: &[k8s::ContainerStatus], containers: &[k8s::ContainerStatus]) -> &'static str {
    let policy = view.pod.restart_policy();
    let initializing = !init.is_empty() && !main_began(containers) && init_is_pending(view, init);
    let sidecars = view.pod.init_containers().iter().zip(init).filter(|(spec, _)| is_sidecar(spec));
    let sidecar_runs = sidecars.clone().any(|(_, s)| is_running(s));
    let (mut running, mut stopped, mut succeeded, mut waiting, mut restarts) = (0, 0, 0, 0, 0);
    for c in containers {
        let state = c.state.as_ref();
        if is_running(c) {
            running += 1;
        } else if let Some(t) = has_terminated(state) {
            stopped += 1;
            let newest = observed::newest(view.facts, &c.name);
            // Stopped to start again: its work is not done, also if the pod ends before.
            let cut_short = newest.is_some_and(|c| view.restarting.contains(&c.id));
            succeeded += usize::from(t.exit_code == 0 && !cut_short);
            restarts += usize::from(cut_short || newest.is_some_and(|c| observed::restarts(policy, c)));
        } else if has_terminated(c.last_state.as_ref()).is_some() {
            stopped += 1;
            restarts += 1;
        } else {
            waiting += 1;
        }
    }
    // A killed pod shows its phase so far until it has ended.
    let ended_by_itself = waiting + running + restarts == 0 && !sidecar_runs && view.cause.is_none();
    // W3 also covers a container that the spec does not name, for example of an older version of the pod after a
    // restart.
    let runs = |c: &ContainerFact| matches!(c.state, ContainerState::Running | ContainerState::Unknown);
    if (view.over || ended_by_itself) && !view.facts.containers.iter().any(runs) {
        let all_succeeded = succeeded == containers.len();
        return if all_succeeded && view.cause.is_none() { "Succeeded" } else { "Failed" };
    }
    match () {
        () if initializing || waiting > 0 => "Pending",
        () if running > 0 || stopped > 0 => "Running",
        () => "Pending",
    }
}

fn condition(
    view: &View<'_>,
    kind: &str,
    ok: bool,
    reason: Option<Reason>,
    message: Option<String>,
) -> k8s::PodCondition {
    let status = if ok { "True" } else { "False" };
    let before = view.previous.conditions.iter().flatten().find(|c| c.type_ == kind && c.status == status);
    let since = before.and_then(|c| c.last_transition_time.clone()).or_else(|| view.now.timestamp().map(Time));
    k8s::PodCondition {
        type_: kind.into(),
        status: status.into(),
        reason: reason.map(|r| r.to_string()),
        message,
        last_transition_time: since,
        last_probe_time: None,
        observed_generation: None,
    }
}

fn conditions(
    view: &View<'_>,
    phase: &str,
    init: &[k8s::ContainerStatus],
    containers: &[k8s::ContainerStatus],
) -> Vec<k8s::PodCondition> {
    let sandbox = observed::ready_sandbox(view.facts);
    let network = sandbox.is_some() && (view.pod.host_network() || !view.ips.is_empty());
    let init = || view.pod.init_containers().iter().zip(init);
    let sidecars = init().filter(|(spec, _)| is_sidecar(spec)).map(|(_, status)| status);
    let unready: Vec<&str> = sidecars.chain(containers).filter(|c| !c.ready).map(|c| c.name.as_str()).collect();
    let (ok, reason, message) = match phase {
        "Succeeded" => (false, Some(Reason::PodCompleted), None),
        "Failed" => (false, Some(Reason::PodFailed), None),
        _ if unready.is_empty() => (true, None, None),
        _ => {
            let message = format!("containers with unready status: [{}]", unready.join(" "));
            (false, Some(Reason::ContainersNotReady), Some(message))
        }
    };
    let is_complete = |spec, status: &k8s::ContainerStatus| match is_sidecar(spec) {
        true => status.started == Some(true),
        false => status.ready,
    };
    let incomplete: Vec<&str> =
        init().filter(|(spec, status)| !is_complete(spec, status)).map(|(_, status)| status.name.as_str()).collect();
    let (initialized, init_reason, init_message) = match phase {
        "Succeeded" => (true, Some(Reason::PodCompleted), None),
        _ if incomplete.is_empty() || main_began(containers) => (true, None, None),
        _ => {
            let message = format!("containers with incomplete status: [{}]", incomplete.join(" "));
            (false, Some(Reason::ContainersNotInitialized), Some(message))
        }
    };
    let mut conditions = vec![
        condition(view, "PodReadyToStartContainers", network, None, None),
        condition(view, "Initialized", initialized, init_reason, init_message),
        condition(view, "Ready", ok, reason.clone(), message.clone()),
        condition(view, "ContainersReady", ok, reason, message),
        condition(view, "PodScheduled", true, None, None),
    ];
    let disruption = |cause: &Cause| Some((cause.by?.disruption()?, cause.message.clone()));
    if let Some((reason, message)) = view.cause.and_then(disruption) {
        conditions.push(condition(view, "DisruptionTarget", true, Some(reason), Some(message)));
    }
    for (kind, reason, message) in view.resize.conditions().filter(|_| !view.over) {
        conditions.push(condition(view, kind, true, reason, message));
    }
    conditions
}
