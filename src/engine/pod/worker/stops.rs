//! Rounds of stops. Each running container is stopped once per round. A status read after the last answer shows which
//! ones still run, and these are stopped again after a back-off (W2). A shorter grace period sends a second stop next
//! to the one in flight (W4).
//!
//! Before its stop, a container's preStop hook runs, and a sidecar waits for its turn. Both count against the grace
//! period and are cut at its end.

use super::ops::{BackgroundOp, Operations};
use super::restarting::Restart;
use super::retry::Retry;
use super::{State, Worker};
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

/// The reason for which the stop of a container waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Wait {
    /// The start of its preStop hook is being recorded. The wait ends by this time.
    Record(Boot),
    Hook(OpId),
    /// W11: containers that it serves still run. Its own hook, if any, has ended.
    Order,
}

/// A running container that the worker stops to restart it.
#[derive(Debug, Serialize)]
pub struct PlannedStop {
    /// The message of its Killing event.
    pub message: String,
    /// The end of the container's grace period.
    pub grace_deadline: Boot,
    /// The container starts again whatever its exit code is. None: the restart policy decides.
    pub then: Option<Restart>,
}

/// The stops of a pod's containers.
#[derive(Debug, Default, Serialize)]
pub struct Stops {
    round: Round,
    /// Running containers that the worker stops to restart them.
    planned: BTreeMap<ContainerId, PlannedStop>,
}

#[derive(Debug, Default, Serialize)]
struct Round {
    /// Containers stopped in this round, and the deadline given for each.
    called: BTreeMap<ContainerId, Boot>,
    waits: BTreeMap<ContainerId, Wait>,
    /// The delay after rounds after which something still ran.
    retry: Retry,
}

impl Stops {
    pub fn wait(&self, id: &ContainerId) -> Option<Wait> {
        self.round.waits.get(id).copied()
    }

    pub fn set_wait(&mut self, id: &ContainerId, wait: Wait) {
        self.round.waits.insert(id.clone(), wait);
    }

    /// The container is stopped to restart it. A new reason replaces the previous one.
    pub fn plan_stop(&mut self, id: ContainerId, planned: PlannedStop) {
        self.planned.insert(id, planned);
    }

    pub fn has_planned_stop(&self, id: &ContainerId) -> bool {
        self.planned.contains_key(id)
    }

    /// The containers that start again whatever their exit code is.
    pub fn restarts(&self) -> impl Iterator<Item = (&ContainerId, Restart)> {
        self.planned.iter().filter_map(|(id, planned)| Some((id, planned.then?)))
    }

    /// Nothing runs that should be stopped: resets the rounds and cancels hooks in flight.
    pub fn are_over(&mut self, ops: &Operations, ctx: &mut Context<'_>) {
        let round = std::mem::take(&mut self.round);
        for wait in round.waits.into_values() {
            give_up_hook(wait, ops, ctx);
        }
    }

    fn report(&self, pod: Option<&Rc<Pod>>, state: &State, c: &ContainerFact, ctx: &mut Context<'_>) {
        if self.round.retry.failures() > 0 || self.wait(&c.id).is_some() {
            return;
        }
        let message = match self.planned.get(&c.id) {
            Some(planned) if state.is_sync() => planned.message.clone(),
            _ => format!("Stopping container {}", c.name),
        };
        ctx.emit_normal(pod, Some(&c.name), Reason::Killing, message);
    }

    fn stop(&mut self, uid: &Uid, id: &ContainerId, grace_deadline: Boot, ops: &mut Operations, ctx: &mut Context<'_>) {
        self.round.called.insert(id.clone(), grace_deadline);
        self.round.waits.remove(id);
        // CRI timeouts are whole seconds.
        let left = grace_deadline.since(ctx.now.boot) + Duration::from_millis(500);
        let grace = Duration::from_secs(left.as_secs()).clamp(SHORTEST_STOP, LONGEST_GRACE);
        let op = ctx.runtime(uid, RuntimeCall::StopContainer { id: id.clone(), grace });
        ops.start_background(op, BackgroundOp::Stop { id: id.clone() });
    }
}

/// The next status read shows whether the container has stopped (W2).
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

fn give_up_hook(wait: Wait, ops: &Operations, ctx: &mut Context<'_>) {
    if let Wait::Hook(op) = wait
        && ops.is_in_background(op)
    {
        ctx.outbox.push(Effect::Cancel { op });
    }
}

/// W11: a sidecar is stopped when a status no older than the last call shows none of the containers that it serves.
fn turn_has_come(
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

impl Worker {
    /// Stops the containers in `running` by `grace_deadline`. It is called repeatedly until they have stopped. With
    /// `turns`, the sidecars stop after all others, in reverse order.
    pub(super) fn stop_all(
        &mut self,
        running: &[ContainerId],
        grace_deadline: Boot,
        turns: bool,
        entry: &Entry,
        ctx: &mut Context<'_>,
    ) {
        let stopping = self.ops.is_stopping();
        // W4: the end of the grace period cuts hooks and turns, whatever else is in flight.
        if grace_deadline <= ctx.now.boot {
            for id in running {
                if let Some(wait @ Wait::Hook(_)) = self.stops.wait(id) {
                    self.stops.set_wait(id, Wait::Order);
                    give_up_hook(wait, &self.ops, ctx);
                }
            }
        }
        // A status read after the last answer shows that they still run.
        let round = &mut self.stops.round;
        if !stopping && entry.usable() && running.iter().any(|id| round.called.contains_key(id)) {
            round.called.clear();
            round.retry.failed(ctx);
        }
        if let Some(at) = self.stops.round.retry.waits_until(ctx.now.boot) {
            if running.iter().any(|id| matches!(self.stops.wait(id), Some(Wait::Hook(_)))) {
                self.timer.wake_at(grace_deadline);
            }
            return self.timer.wake_at(at);
        }
        for id in running {
            let in_flight = self.ops.is_stopping_container(id.as_str());
            match self.stops.round.called.get(id) {
                Some(by) if *by <= grace_deadline || !in_flight => {}
                Some(_) => self.stops.stop(&self.uid, id, grace_deadline, &mut self.ops, ctx),
                None => {
                    let c = entry.facts().containers.iter().find(|c| c.id == *id);
                    if let Some(c) = c {
                        self.stops.report(self.pod.as_ref(), &self.state, c, ctx);
                    }
                    if grace_deadline <= ctx.now.boot
                        || !c.is_some_and(|c| self.waits(c, running, grace_deadline, turns, entry, ctx))
                    {
                        self.stops.stop(&self.uid, id, grace_deadline, &mut self.ops, ctx);
                    }
                }
            }
        }
    }

    /// Returns true while the preStop hook runs or the container's turn has not come.
    fn waits(
        &mut self,
        c: &ContainerFact,
        running: &[ContainerId],
        grace_deadline: Boot,
        turns: bool,
        entry: &Entry,
        ctx: &mut Context<'_>,
    ) -> bool {
        let waits = self.pre_stop(c, grace_deadline, entry, ctx)
            || turns && !turn_has_come(self.pod.as_ref(), c, running, &self.ops, entry);
        if waits {
            self.timer.wake_at(grace_deadline);
            if self.stops.wait(&c.id).is_none_or(|w| matches!(w, Wait::Hook(op) if !self.ops.is_in_background(op))) {
                self.stops.set_wait(&c.id, Wait::Order);
            }
        }
        waits
    }

    /// Stops the containers with a planned stop, each with its own deadline. Returns true while one of them runs.
    pub(super) fn carry_out_planned_stops(&mut self, entry: &Entry, ctx: &mut Context<'_>) -> bool {
        let facts = entry.facts();
        self.stops.planned.retain(|id, _| entry.running().any(|c| c.id == *id));
        if !self.history.restarting.are_recorded(&self.stops, &mut self.record) {
            return true;
        }
        for c in facts.containers.iter() {
            if let Some(grace_deadline) = self.stops.planned.get(&c.id).map(|d| d.grace_deadline) {
                self.stop_all(std::slice::from_ref(&c.id), grace_deadline, false, entry, ctx);
            }
        }
        !self.stops.planned.is_empty()
    }
}
