//! The in-place resize of a running pod (R): the new resources that wait for room, and the containers that still have
//! the old ones.
//!
//! The pod's cgroup gets the larger of the old and the new limits first, then one container after another is updated
//! or restarted, and then the cgroup gets the new limits. Each step can be repeated, so it does no harm if Wherry is
//! killed in between.

use super::ops::{ActiveOp, Operations};
use super::pod_record::PodRecord;
use super::restart::Restart;
use super::retry::Retry;
use super::stops::{PlannedStop, Stops};
use super::timer::Timer;
use crate::api::facts::{ContainerFact, ContainerState};
use crate::api::k8s;
use crate::api::names::ContainerId;
use crate::api::ordered::CollectOrdered;
use crate::api::pod::Pod;
use crate::api::reason::Reason;
use crate::api::resize::{self, How};
use crate::engine::admission::pod_requests::PodRequests;
use crate::engine::context::Context;
use crate::engine::effect::{CgroupCall, RuntimeCall};
use crate::engine::event::Answer;
use crate::engine::op::OpError;
use crate::engine::pleg::cache::Entry;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::rc::Rc;

/// The types of the pod's conditions.
const PENDING: &str = "PodResizePending";
const IN_PROGRESS: &str = "PodResizeInProgress";

#[derive(Debug, Default, Serialize)]
pub struct Resize {
    pub(super) wanted: Option<Wanted>,
    pub(super) applying: Option<Applying>,
}

/// The manifest has new resources, which the pod does not have yet.
#[derive(Debug, Serialize)]
pub struct Wanted {
    pub pod: Rc<Pod>,
    pub requests: Rc<PodRequests>,
    pub verdict: Verdict,
}

/// The node's decision about new resources. The string is the message of the condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Verdict {
    Open,
    /// R2: they do not fit now.
    Deferred(String),
    /// R2: they never fit.
    Infeasible(String),
}

/// The containers that still have the resources from before a resize. The record of the pod contains them.
pub type Outdated = BTreeMap<ContainerId, Before>;

/// A container with the resources from before a resize.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Before {
    pub name: String,
    pub how: How,
    pub resources: k8s::ResourceRequirements,
}

/// The pod's spec has new resources, which are being applied to its cgroups.
#[derive(Debug, Serialize)]
pub(super) struct Applying {
    pub(super) outdated: Outdated,
    cgroup: Cgroup,
    /// The last error.
    error: Option<String>,
    retry: Retry,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum Cgroup {
    NotRaised,
    /// It has the larger of the old and the new limits.
    Raised,
}

impl Applying {
    pub(super) fn new(outdated: Outdated) -> Applying {
        Applying { outdated, cgroup: Cgroup::NotRaised, error: None, retry: Retry::default() }
    }

    fn step_succeeded(&mut self) {
        self.error = None;
        self.retry.succeeded();
    }
}

/// The condition of a resize: its type, reason and message.
pub type Condition = (&'static str, Option<Reason>, Option<String>);

impl Resize {
    /// Returns the resize that a previous run did not complete, if any.
    pub fn resumed(outdated: Option<Outdated>) -> Resize {
        Resize { wanted: None, applying: outdated.map(Applying::new) }
    }

    /// Returns the outdated containers for the record; None if no resize is in progress.
    pub fn outdated(&self) -> Option<&Outdated> {
        self.applying.as_ref().map(|applying| &applying.outdated)
    }

    /// Returns the resources that this container has, if they differ from the spec.
    pub fn before(&self, id: &ContainerId) -> Option<&k8s::ResourceRequirements> {
        self.outdated()?.get(id).map(|before| &before.resources)
    }

    /// Returns the conditions, as in Kubernetes 1.33. A condition exists only while it is true.
    pub fn conditions(&self) -> impl Iterator<Item = Condition> {
        let pending = self.wanted.as_ref().and_then(|wanted| match &wanted.verdict {
            Verdict::Open => None,
            Verdict::Deferred(why) => Some((PENDING, Some(Reason::Deferred), Some(why.clone()))),
            Verdict::Infeasible(why) => Some((PENDING, Some(Reason::Infeasible), Some(why.clone()))),
        });
        let in_progress = self.applying.as_ref().map(|applying| match &applying.error {
            None => (IN_PROGRESS, None, None),
            Some(error) => (IN_PROGRESS, Some(Reason::Error), Some(error.clone())),
        });
        pending.into_iter().chain(in_progress)
    }
}

impl Resize {
    /// Handles the end of a step of the resize in progress.
    pub fn step_done(
        &mut self,
        active: ActiveOp,
        result: Result<Answer, OpError>,
        pod: &Rc<Pod>,
        ops: &mut Operations,
        entry: &mut Entry,
        ctx: &mut Context<'_>,
    ) {
        match active {
            ActiveOp::RaiseCgroup => self.cgroup_raised(result.map(drop), pod, ctx),
            ActiveOp::MeasureMemory { id, limit } => self.memory_measured(id, limit, result, pod, ops, ctx),
            ActiveOp::UpdateContainer { id } => self.container_updated(&id, result.map(drop), pod, entry, ctx),
            _ => {}
        }
    }

    /// R2: postpones a resize whose new resources do not fit, and reports the reason.
    pub fn postpone(&mut self, pod: Option<&Rc<Pod>>, verdict: Verdict, ctx: &mut Context<'_>) {
        let Some(wanted) = &mut self.wanted else { return };
        match &verdict {
            Verdict::Deferred(why) => {
                ctx.emit_warning(pod, None, Reason::ResizeDeferred, format!("Pod resize Deferred: {why}"));
            }
            Verdict::Infeasible(why) => {
                ctx.emit_warning(pod, None, Reason::ResizeInfeasible, format!("Pod resize Infeasible: {why}"));
            }
            Verdict::Open => {}
        }
        wanted.verdict = verdict;
    }

    /// Drops the containers that have ended.
    pub fn forget_ended(&mut self, containers: &[ContainerFact]) {
        if let Some(applying) = &mut self.applying {
            applying.outdated.retain(|id, _| containers.iter().any(|c| c.id == *id && may_run(c)));
        }
    }

    /// R3: requests the next step of a resize in progress. The record already contains the resize.
    pub fn continue_with(
        &mut self,
        pod: &Rc<Pod>,
        ops: &mut Operations,
        stops: &mut Stops,
        timer: &mut Timer,
        entry: &Entry,
        ctx: &mut Context<'_>,
    ) {
        let Some(applying) = &mut self.applying else { return };
        if !ctx.up || ops.is_active() {
            return;
        }
        if let Some(at) = applying.retry.waits_until(ctx.now.boot) {
            return timer.wake_at(at);
        }
        if applying.cgroup == Cgroup::NotRaised {
            let before =
                applying.outdated.values().map(|before| (before.name.as_str(), &before.resources)).collect_map();
            let raised = Rc::new(resize::raised(pod, &before));
            let op = ctx.cgroup(&pod.uid, CgroupCall::Make { pod: raised });
            return ops.start(op, ActiveOp::RaiseCgroup);
        }
        if applying.outdated.is_empty() {
            let op = ctx.cgroup(&pod.uid, CgroupCall::Make { pod: pod.clone() });
            return ops.start(op, ActiveOp::SettleCgroup);
        }
        let running = applying.outdated.iter().filter(|(id, _)| entry.running().any(|c| c.id == **id));
        let mut update = None;
        for (id, before) in running {
            match before.how {
                How::Restart if !stops.has_planned_stop(id) => {
                    let message = format!("Container {} resize requires restart", before.name);
                    let grace_deadline = ctx.now.boot + pod.grace_period();
                    let then = Some(Restart::Resize);
                    stops.plan_stop(id.clone(), PlannedStop { message, grace_deadline, then });
                }
                How::Restart => {}
                How::Update => update = update.or(Some((id.clone(), before.clone()))),
            }
        }
        if let Some((id, before)) = update {
            update_container(pod, id, &before, ops, ctx);
        }
    }

    fn cgroup_raised(&mut self, result: Result<(), OpError>, pod: &Rc<Pod>, ctx: &mut Context<'_>) {
        match result {
            Ok(()) => {
                if let Some(applying) = &mut self.applying {
                    applying.cgroup = Cgroup::Raised;
                    applying.step_succeeded();
                }
            }
            Err(e) => self.failed(e.message().to_owned(), pod, ctx),
        }
    }

    fn memory_measured(
        &mut self,
        id: ContainerId,
        limit: u64,
        result: Result<Answer, OpError>,
        pod: &Rc<Pod>,
        ops: &mut Operations,
        ctx: &mut Context<'_>,
    ) {
        let used = match result {
            Ok(Answer::Usage(usage)) => usage.iter().find(|u| u.id == id).and_then(|u| u.memory_bytes),
            Ok(_) => None,
            Err(e) => return self.failed(e.message().to_owned(), pod, ctx),
        };
        let name = self.outdated().and_then(|all| all.get(&id)).map(|before| before.name.clone());
        let Some(name) = name else { return };
        match used {
            Some(used) if used >= limit => {
                let message = format!(
                    "attempting to set the memory limit of container {name} ({limit} bytes) below its current usage \
                     ({used} bytes)"
                );
                self.failed(message, pod, ctx);
            }
            _ => set_resources(pod, id, &name, ops, ctx),
        }
    }

    fn container_updated(
        &mut self,
        id: &ContainerId,
        result: Result<(), OpError>,
        pod: &Rc<Pod>,
        entry: &mut Entry,
        ctx: &mut Context<'_>,
    ) {
        match result {
            Ok(()) => {
                if let Some(applying) = &mut self.applying {
                    applying.outdated.remove(id);
                    applying.step_succeeded();
                }
            }
            Err(e) => {
                entry.changed_somehow(ctx.generation);
                self.failed(e.message().to_owned(), pod, ctx);
            }
        }
    }

    /// Handles the last step: the resize is over once the pod's cgroup has the new limits.
    pub fn settled(
        &mut self,
        result: Result<(), OpError>,
        pod: &Rc<Pod>,
        record: &mut PodRecord,
        ctx: &mut Context<'_>,
    ) {
        match result {
            Ok(()) => {
                self.applying = None;
                let message = "Pod resize completed".to_owned();
                ctx.emit_normal(Some(pod), None, Reason::ResizeCompleted, message);
                record.rewrite();
            }
            Err(e) => self.failed(e.message().to_owned(), pod, ctx),
        }
    }

    /// R4: reports a failed step, which is retried after a delay.
    fn failed(&mut self, message: String, pod: &Rc<Pod>, ctx: &mut Context<'_>) {
        let Some(applying) = &mut self.applying else { return };
        applying.retry.failed(ctx);
        if applying.error.as_ref() != Some(&message) {
            ctx.emit_warning(Some(pod), None, Reason::ResizeError, format!("Pod resize error: {message}"));
            applying.error = Some(message);
        }
    }
}

/// Starts the update of a container. As in a kubelet, a memory limit below the current use is not set, because the
/// kernel could kill the container. So the use is measured first if the limit decreases.
fn update_container(pod: &Rc<Pod>, id: ContainerId, before: &Before, ops: &mut Operations, ctx: &mut Context<'_>) {
    let Some(spec) = pod.container(&before.name) else { return };
    match resize::lower_memory_limit(&before.resources, spec) {
        Some(limit) => {
            let op = ctx.runtime(&pod.uid, RuntimeCall::Usage);
            ops.start(op, ActiveOp::MeasureMemory { id, limit });
        }
        None => set_resources(pod, id, &before.name, ops, ctx),
    }
}

fn set_resources(pod: &Rc<Pod>, id: ContainerId, container: &str, ops: &mut Operations, ctx: &mut Context<'_>) {
    let call = RuntimeCall::UpdateContainer { pod: pod.clone(), container: container.into(), id: id.clone() };
    let op = ctx.runtime(&pod.uid, call);
    ops.start(op, ActiveOp::UpdateContainer { id });
}

/// Returns true if the container has its cgroup, or gets it when it starts.
pub(super) fn may_run(c: &ContainerFact) -> bool {
    matches!(c.state, ContainerState::Running | ContainerState::Created | ContainerState::Unknown)
}
