//! The status of a container, and the input of a pod's statuses.

use crate::api::facts::{ContainerFact, ContainerState, ContainerUser, PodFacts};
use crate::api::k8s::{self, Time};
use crate::api::names::ContainerId;
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

/// The properties of the runtime that a status shows.
pub struct StatusRuntime<'a> {
    /// The prefix of container IDs (`containerd://...`).
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
    /// The waiting reason and message of a running container that is not shown as running yet because of its
    /// postStart hook.
    pub starting: &'a dyn Fn(&ContainerId) -> Option<(Reason, String)>,
    /// Whether a running container has started, and (`ready`) whether it is ready, according to its probes.
    pub started: &'a dyn Fn(&k8s::Container, &ContainerFact) -> bool,
    pub ready: &'a dyn Fn(&k8s::Container, &ContainerFact) -> bool,
    /// The waiting reason and message of a container that is not running and will be retried.
    pub waiting: &'a dyn Fn(&str) -> Option<(Reason, String)>,
    /// The termination messages by container ID.
    pub messages: &'a BTreeMap<ContainerId, String>,
    /// Why the pod was killed.
    pub cause: Option<&'a Cause>,
    /// Why nothing of the pod can be started: reason and message.
    pub waits: Option<(Reason, String)>,
    /// W29: the ephemeral containers that were started.
    pub begun_ephemeral: &'a BTreeSet<String>,
    /// W10: containers that were stopped for a restart.
    pub restarting: &'a Restarting,
    /// C5: the containers that ran before a shutdown.
    pub earlier: &'a Earlier,
    /// The in-place resize of the pod.
    pub resize: &'a Resize,
    /// No container runs or can still start, so the status may show a terminal phase (W3).
    pub over: bool,
    pub runtime: StatusRuntime<'a>,
    pub previous: &'a k8s::PodStatus,
    pub now: Wall,
}

pub(super) fn time(at: Wall) -> Option<Time> {
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

/// Returns the waiting reason of a container before its first start.
pub fn waiting_at_first(pod: &Pod) -> Reason {
    if pod.init_containers().is_empty() { Reason::ContainerCreating } else { Reason::PodInitializing }
}

/// Returns the statuses of the volume mounts. As in a kubelet, a read-only mount shows whether it is recursively
/// read-only. `possible` says whether the runtime supports that.
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

pub(super) fn container(view: &View<'_>, spec: &k8s::Container, main: bool) -> k8s::ContainerStatus {
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
        // W10: a container that was never created is shown as waiting, even after the pod has ended. A container that
        // ran and was removed is shown as terminated.
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

/// Returns the reason why the container waits before its first instance runs.
fn creating(view: &View<'_>, spec: &k8s::Container) -> (Reason, String) {
    (view.waiting)(&spec.name).unwrap_or_else(|| (waiting_at_first(view.pod), String::new()))
}

/// Sets the state of the newest instance, and the last state. `last` is the end of an instance before the newest.
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
            // Once a container is reported as terminated, an API server rejects a status in which it runs again, if
            // the restart policy does not restart it.
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

/// Returns the end of a container that the previous status shows and that is gone from the runtime; None if the
/// container never ran.
fn end_before(previous: &k8s::PodStatus, name: &str) -> Option<k8s::ContainerState> {
    let all = [&previous.init_container_statuses, &previous.container_statuses, &previous.ephemeral_container_statuses];
    last_end(all.into_iter().flatten().flatten().find(|c| c.name == name)?)
}
