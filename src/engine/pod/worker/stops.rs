//! Rounds of stops. Each running container is stopped once per round. A status read after the last answer shows which
//! ones still run, and these are stopped again after a back-off (W2). A shorter grace period sends a second stop next to
//! the one in flight (W4).
//!
//! Before its stop, a container's preStop hook runs, and a sidecar waits for its turn. Both count against the grace period
//! and are cut at its end.

use super::{BackgroundOp, State, Worker};
use crate::api::facts::ContainerFact;
use crate::api::names::ContainerId;
use crate::api::pod::{LONGEST_GRACE, is_sidecar};
use crate::api::time::Boot;
use crate::engine::context::Context;
use crate::engine::effect::{Effect, RuntimeCall, Severity};
use crate::engine::op::OpId;
use crate::engine::pleg::cache::Entry;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// W4: the minimum timeout of StopContainer.
const SHORTEST_STOP: Duration = Duration::from_secs(2);
const LONGEST_RETRY: Duration = Duration::from_secs(10);

/// The reason for which the stop of a container waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Wait {
    /// The start of its preStop hook is being recorded; the wait ends at this time at the latest.
    Record(Boot),
    Hook(OpId),
    /// W11: containers that it serves still run. Its own hook, if any, has ended.
    Order,
}

#[derive(Debug, Default, Serialize)]
pub struct Stops {
    /// Containers stopped in this round, and the deadline given for each.
    asked: BTreeMap<ContainerId, Boot>,
    waits: BTreeMap<ContainerId, Wait>,
    /// Rounds after which something still ran.
    rounds: u32,
    retry_at: Option<Boot>,
}

impl Stops {
    pub fn wait(&self, id: &ContainerId) -> Option<Wait> {
        self.waits.get(id).copied()
    }

    pub fn set_wait(&mut self, id: &ContainerId, wait: Wait) {
        self.waits.insert(id.clone(), wait);
    }
}

/// 0.5, 1, 2 ... 10 s, plus jitter.
pub(super) fn retry_after(tries: u32, ctx: &mut Context<'_>) -> Duration {
    let d = Duration::from_millis(500).saturating_mul(1 << tries.min(5)).min(LONGEST_RETRY);
    ctx.rng.jitter(d)
}

impl Worker {
    pub(super) fn stopping(&self) -> bool {
        self.background.values().any(|b| matches!(b, BackgroundOp::Stop { .. }))
    }

    /// Nothing runs that should be stopped: resets the rounds and cancels hooks in flight.
    pub(super) fn stops_are_over(&mut self, ctx: &mut Context<'_>) {
        let stops = std::mem::take(&mut self.stops);
        for wait in stops.waits.into_values() {
            self.give_up_hook(wait, ctx);
        }
    }

    fn give_up_hook(&self, wait: Wait, ctx: &mut Context<'_>) {
        if let Wait::Hook(op) = wait
            && self.background.contains_key(&op)
        {
            ctx.out.push(Effect::Cancel { op });
        }
    }

    /// Stops the containers in `running` by `grace_deadline`. It is called repeatedly until they have stopped. With `turns`,
    /// the sidecars stop after all others, in reverse order.
    pub(super) fn stop_all(
        &mut self,
        running: &[ContainerId],
        grace_deadline: Boot,
        turns: bool,
        entry: &Entry,
        ctx: &mut Context<'_>,
    ) {
        let stopping = self.stopping();
        // W4: the end of the grace period cuts hooks and turns, whatever else is in flight.
        if grace_deadline <= ctx.now.boot {
            for id in running {
                if let Some(wait @ Wait::Hook(_)) = self.stops.wait(id) {
                    self.stops.set_wait(id, Wait::Order);
                    self.give_up_hook(wait, ctx);
                }
            }
        }
        // A status read after the last answer shows that they still run.
        if !stopping && entry.usable() && running.iter().any(|id| self.stops.asked.contains_key(id)) {
            self.stops.asked.clear();
            self.stops.retry_at = Some(ctx.now.boot + retry_after(self.stops.rounds, ctx));
            self.stops.rounds = self.stops.rounds.saturating_add(1);
        }
        if let Some(at) = self.stops.retry_at.filter(|at| *at > ctx.now.boot) {
            if running.iter().any(|id| matches!(self.stops.wait(id), Some(Wait::Hook(_)))) {
                self.wake_at(grace_deadline);
            }
            return self.wake_at(at);
        }
        for id in running {
            let in_flight = self.background.values().any(|b| matches!(b, BackgroundOp::Stop { id: i } if i == id));
            match self.stops.asked.get(id) {
                Some(by) if *by <= grace_deadline || !in_flight => {}
                Some(_) => self.stop_container(id, grace_deadline, ctx),
                None => {
                    let c = entry.facts().containers.iter().find(|c| c.id == *id);
                    if let Some(c) = c {
                        self.tell_of_stop(c, ctx);
                    }
                    if grace_deadline <= ctx.now.boot
                        || !c.is_some_and(|c| self.waits(c, running, grace_deadline, turns, entry, ctx))
                    {
                        self.stop_container(id, grace_deadline, ctx);
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
        let waits = self.pre_stop(c, grace_deadline, entry, ctx) || turns && !self.turn_has_come(c, running, entry);
        if waits {
            self.wake_at(grace_deadline);
            if self.stops.wait(&c.id).is_none_or(|w| matches!(w, Wait::Hook(op) if !self.background.contains_key(&op)))
            {
                self.stops.set_wait(&c.id, Wait::Order);
            }
        }
        waits
    }

    /// W11: a sidecar is stopped when a status no older than the last call shows none of the containers that it serves.
    fn turn_has_come(&self, c: &ContainerFact, running: &[ContainerId], entry: &Entry) -> bool {
        let Some(pod) = self.pod.as_ref().filter(|_| self.extras.sidecars) else { return true };
        let sidecar = |name: &str| pod.init_containers().iter().position(|s| s.name == name && is_sidecar(s));
        let Some(own) = sidecar(&c.name) else { return true };
        let others = entry.facts().containers.iter().filter(|o| running.contains(&o.id) && o.id != c.id);
        let mut before = others.filter(|o| sidecar(&o.name).is_none_or(|other| other > own));
        before.next().is_none() && self.op.is_none() && entry.usable()
    }

    fn tell_of_stop(&mut self, c: &ContainerFact, ctx: &mut Context<'_>) {
        if self.stops.rounds > 0 || self.stops.waits.contains_key(&c.id) {
            return;
        }
        let message = match self.doomed.get(&c.id) {
            Some(doomed) if matches!(self.state, State::Sync) => doomed.message.clone(),
            _ => format!("Stopping container {}", c.name),
        };
        ctx.tell(self.pod.as_ref(), Some(&c.name), (Severity::Normal, "Killing"), message);
    }

    /// Stops the doomed containers, each with its own deadline. Returns true while one of them runs.
    pub(super) fn stop_doomed(&mut self, entry: &Entry, ctx: &mut Context<'_>) -> bool {
        let facts = entry.facts();
        self.doomed.retain(|id, _| entry.running().any(|c| c.id == *id));
        for c in facts.containers.iter() {
            if let Some(grace_deadline) = self.doomed.get(&c.id).map(|d| d.grace_deadline) {
                self.stop_all(std::slice::from_ref(&c.id), grace_deadline, false, entry, ctx);
            }
        }
        !self.doomed.is_empty()
    }

    fn stop_container(&mut self, id: &ContainerId, grace_deadline: Boot, ctx: &mut Context<'_>) {
        self.stops.asked.insert(id.clone(), grace_deadline);
        self.stops.waits.remove(id);
        // CRI timeouts are whole seconds.
        let left = grace_deadline.since(ctx.now.boot) + Duration::from_millis(500);
        let grace = Duration::from_secs(left.as_secs()).clamp(SHORTEST_STOP, LONGEST_GRACE);
        let op = ctx.runtime(&self.uid, RuntimeCall::StopContainer { id: id.clone(), grace });
        self.background.insert(op, BackgroundOp::Stop { id: id.clone() });
    }
}
