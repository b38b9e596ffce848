//! Computes the PodStatus from the spec, the observed state and the worker's state: phase, conditions and container
//! states, with the kubelet's reasons and messages.

mod container;
mod ephemeral;

use crate::api::facts::{ContainerFact, ContainerState};
use crate::api::k8s::{self, Time};
use crate::api::ordered::OrderSlice;
use crate::api::pod::is_sidecar;
use crate::api::reason::Reason;
use crate::engine::pod::kill::Cause;
use crate::engine::pod::plan::observed;
use container::container;
pub use container::{StatusRuntime, View, waiting_at_first};

/// Returns the status of a pod that waits for its predecessor (W8).
pub fn waiting() -> k8s::PodStatus {
    k8s::PodStatus { phase: Some("Pending".into()), ..Default::default() }
}

/// Returns the status of a pod that will fit once other pods are gone (A4).
pub fn waits_for_room(why: &str) -> k8s::PodStatus {
    k8s::PodStatus { reason: Some(Reason::WaitingForRoom.to_string()), message: Some(why.into()), ..waiting() }
}

/// Returns the status of a pod that does not start because the node is cordoned (A10).
pub fn waits_for_uncordon() -> k8s::PodStatus {
    let message = "the node is cordoned; `wherry uncordon` or `kubectl uncordon` lets the pod start";
    k8s::PodStatus { reason: Some(Reason::Unschedulable.to_string()), message: Some(message.into()), ..waiting() }
}

/// Returns the status of a rejected pod (A3).
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

fn is_running(status: &k8s::ContainerStatus) -> bool {
    status.state.as_ref().is_some_and(|s| s.running.is_some())
}

/// Returns true if a main container runs or ran, so the pod was initialized, whatever its sidecars do now.
fn main_began(containers: &[k8s::ContainerStatus]) -> bool {
    let ran = |s: &k8s::ContainerState| s.running.is_some() || s.terminated.is_some();
    containers.iter().any(|c| c.state.as_ref().is_some_and(ran))
}

/// Returns true if an init container has not ended yet, or a sidecar has not started.
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

/// Returns the phase by the kubelet's rules. A terminal phase requires that no container runs or will start (W3).
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
            // The container was stopped for a restart: its work is not done, even if the pod ends before the restart.
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
    // A killed pod keeps its last phase until it has ended.
    let ended_by_itself = waiting + running + restarts == 0 && !sidecar_runs && view.cause.is_none();
    // W3 also covers a container that the spec does not name, for example one of an older version of the pod after a
    // restart of Wherry.
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
