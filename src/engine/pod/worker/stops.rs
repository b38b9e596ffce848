//! Rounds of stops. Each running container is stopped once per round. A status read after the last answer shows which
//! ones still run, and these are stopped again after a back-off (W2). A shorter grace period causes a second stop
//! call in addition to the one in flight (W4).
//!
//! Before a container is stopped, its preStop hook runs, and a sidecar waits for its turn. Both take place within the
//! grace period, and end with it.

use super::ops::{BackgroundOp, Operations};
use super::restart::Restart;
use super::retry::Retry;
use super::state::State;
use crate::api::facts::ContainerFact;
use crate::api::names::{ContainerId, Uid};
use crate::api::pod::{LONGEST_GRACE, Pod, is_sidecar};
use crate::api::reason::Reason;
use crate::api::time::Boot;
use crate::engine::context::Context;
use crate::engine::effect::{Effect, RuntimeCall};
use crate::engine::event::Answer;
use crate::engine::op::{OpError, OpId};
use crate::engine::pleg::cache::Entry;
use serde::Serialize;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// W4: the minimum timeout of StopContainer.
const SHORTEST_STOP: Duration = Duration::from_secs(2);

/// The reason why the stop of a container has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Wait {
    /// The start of its preStop hook is being recorded. The wait ends by this time.
    Record(Boot),
    Hook(OpId),
    /// W11: the container is a sidecar, and containers that it serves still run. Its own hook, if any, has ended.
    Order,
}

/// A running container that the worker stops in order to restart it.
#[derive(Debug, Serialize)]
pub struct PlannedStop {
    /// The message of its Killing event.
    pub message: String,
    /// The end of the container's grace period.
    pub grace_deadline: Boot,
    /// Why the container starts again whatever its exit code is. None: the restart policy decides.
    pub then: Option<Restart>,
}

/// The stops of a pod's containers.
#[derive(Debug, Default, Serialize)]
pub struct Stops {
    pub(super) round: Round,
    /// Running containers that the worker stops in order to restart them.
    pub(super) planned: BTreeMap<ContainerId, PlannedStop>,
}

#[derive(Debug, Default, Serialize)]
pub(super) struct Round {
    /// Containers stopped in this round, and the deadline given for each.
    pub(super) called: BTreeMap<ContainerId, Boot>,
    waits: BTreeMap<ContainerId, Wait>,
    /// The delay before the next round, if something still runs after a round.
    pub(super) retry: Retry,
}

impl Stops {
    pub fn wait(&self, id: &ContainerId) -> Option<Wait> {
        self.round.waits.get(id).copied()
    }

    pub fn set_wait(&mut self, id: &ContainerId, wait: Wait) {
        self.round.waits.insert(id.clone(), wait);
    }

    /// Plans to stop the container in order to restart it. A new reason replaces the previous one.
    pub fn plan_stop(&mut self, id: ContainerId, planned: PlannedStop) {
        self.planned.insert(id, planned);
    }

    pub fn has_planned_stop(&self, id: &ContainerId) -> bool {
        self.planned.contains_key(id)
    }

    /// Returns the containers that start again whatever their exit code is.
    pub fn restarts(&self) -> impl Iterator<Item = (&ContainerId, Restart)> {
        self.planned.iter().filter_map(|(id, planned)| Some((id, planned.then?)))
    }

    /// Resets the rounds and cancels the hooks in flight, because nothing runs that should be stopped.
    pub fn are_over(&mut self, ops: &Operations, ctx: &mut Context<'_>) {
        let round = std::mem::take(&mut self.round);
        for wait in round.waits.into_values() {
            give_up_hook(wait, ops, ctx);
        }
    }

    pub(super) fn report(&self, pod: Option<&Rc<Pod>>, state: &State, c: &ContainerFact, ctx: &mut Context<'_>) {
        if self.round.retry.failures() > 0 || self.wait(&c.id).is_some() {
            return;
        }
        let message = match self.planned.get(&c.id) {
            Some(planned) if state.is_sync() => planned.message.clone(),
            _ => format!("Stopping container {}", c.name),
        };
        ctx.emit_normal(pod, Some(&c.name), Reason::Killing, message);
    }

    pub(super) fn stop(
        &mut self,
        uid: &Uid,
        id: &ContainerId,
        grace_deadline: Boot,
        ops: &mut Operations,
        ctx: &mut Context<'_>,
    ) {
        self.round.called.insert(id.clone(), grace_deadline);
        self.round.waits.remove(id);
        // CRI timeouts are whole seconds, so the rest of the grace period is rounded.
        let left = grace_deadline.since(ctx.now.boot) + Duration::from_millis(500);
        let grace = Duration::from_secs(left.as_secs()).clamp(SHORTEST_STOP, LONGEST_GRACE);
        let op = ctx.runtime(uid, RuntimeCall::StopContainer { id: id.clone(), grace });
        ops.start_background(op, BackgroundOp::Stop { id: id.clone() });
    }
}

/// Handles the answer to a stop call. Only the next status read shows whether the container has stopped (W2).
pub fn answered(
    id: &ContainerId,
    result: Result<Answer, OpError>,
    pod: Option<&Rc<Pod>>,
    entry: &mut Entry,
    ctx: &mut Context<'_>,
) {
    if let Err(e) = &result
        && !e.is_not_found()
    {
        let message = format!("error killing pod: failed to stop container {id}: {e}");
        ctx.emit_warning(pod, None, Reason::FailedKillPod, message);
    }
    entry.changed_somehow(ctx.generation);
}

pub(super) fn give_up_hook(wait: Wait, ops: &Operations, ctx: &mut Context<'_>) {
    if let Wait::Hook(op) = wait
        && ops.is_in_background(op)
    {
        ctx.outbox.push(Effect::Cancel { op });
    }
}

/// W11: returns true if the container may be stopped now. A sidecar waits until a status that is no older than the
/// last call shows that none of the containers that it serves runs.
pub(super) fn turn_has_come(
    pod: Option<&Rc<Pod>>,
    c: &ContainerFact,
    running: &[ContainerId],
    ops: &Operations,
    entry: &Entry,
) -> bool {
    let Some(pod) = pod else { return true };
    let sidecar = |name: &str| pod.init_containers().iter().position(|s| s.name == name && is_sidecar(s));
    let Some(own) = sidecar(&c.name) else { return true };
    let others = entry.facts().containers.iter().filter(|o| running.contains(&o.id) && o.id != c.id);
    // As in a kubelet, a sidecar does not wait for ephemeral containers.
    let others = others.filter(|o| pod.ephemeral(&o.name).is_none());
    let mut before = others.filter(|o| sidecar(&o.name).is_none_or(|other| other > own));
    before.next().is_none() && !ops.is_active() && entry.usable()
}
