//! Carries out the worker's rounds of stops (`stops`).

use super::Worker;
use super::connections;
use super::stops::{Wait, give_up_hook, turn_has_come};
use crate::api::facts::ContainerFact;
use crate::api::names::ContainerId;
use crate::api::time::Boot;
use crate::engine::context::Context;
use crate::engine::pleg::cache::Entry;

impl Worker {
    /// Stops the containers in `running` by `grace_deadline`. It is called repeatedly until they have stopped. If
    /// `turns` is true, the sidecars stop after all other containers, in reverse order.
    pub(super) fn stop_all(
        &mut self,
        running: &[ContainerId],
        grace_deadline: Boot,
        turns: bool,
        entry: &Entry,
        ctx: &mut Context<'_>,
    ) {
        let stopping = self.ops.is_stopping();
        // W4: when the grace period ends, hooks are cancelled and sidecars no longer wait for their turn, whatever
        // else is in flight.
        if grace_deadline <= ctx.now.boot {
            for id in running {
                if let Some(wait @ Wait::Hook(_)) = self.stops.wait(id) {
                    self.stops.set_wait(id, Wait::Order);
                    give_up_hook(wait, &self.ops, ctx);
                }
            }
        }
        // A status read after the last answer shows that some of the stopped containers still run.
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

    /// Returns true while the preStop hook runs, while services still lead to the pod, or while it is not yet the
    /// container's turn.
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
            || connections::delay_stops(&mut self.state, &self.shown.status, &mut self.timer, ctx)
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
