//! Sync: compares the pod with its plan and carries out the next step, until the pod is killed or ends by itself (W1,
//! W9 to W13). `starts` carries out the steps that start something.

use super::Worker;
use super::ending::End;
use super::hooks::give_up_post_start;
use super::restarting::after_failure;
use super::state::State;
use super::state::Terminating;
use super::stops::PlannedStop;
use crate::api::pod::Pod;
use crate::api::reason::Reason;
use crate::api::time::Boot;
use crate::engine::context::Context;
use crate::engine::pleg::cache::Entry;
use crate::engine::pod::kill::Cause;
use crate::engine::pod::plan;
use crate::engine::pod::plan::input::PlanInput;
use crate::engine::pod::plan::next_step::Next;
use std::rc::Rc;
use std::time::Duration;

/// Healthy pods wake up together, at multiples of this, or of half of `syncFrequency` if that is less.
const GRID: Duration = Duration::from_secs(30);

impl Worker {
    pub(super) fn step_sync(&mut self, entry: &mut Entry, ctx: &mut Context<'_>) {
        self.take_images(ctx);
        let Some(pod) = self.pod.clone() else { return };
        if let Some(active) = self.deadline {
            let deadline = active.at();
            if deadline <= ctx.now.boot {
                let message = "Pod was active on the node longer than the specified deadline";
                ctx.emit_normal(Some(&pod), None, Reason::DeadlineExceeded, message.into());
                let cause = Cause { reason: Reason::DeadlineExceeded, message: message.into(), by: None };
                self.kill(pod.grace_period(), Some(cause), entry, ctx);
                return;
            }
            self.timer.wake_at(deadline);
            active.keep_active_time(&mut self.record, &mut self.timer, ctx.now.boot);
        }
        // P5: never act on a status that is older than the worker's own last change.
        if !entry.usable() {
            return;
        }
        self.measured.first_sync(&pod, ctx);
        give_up_post_start(&mut self.ops, entry, ctx);
        self.sandbox.replace_foreign(&pod, entry.facts());
        if self.containers.note_running(&pod, &self.stops, entry) {
            self.measured.all_run(ctx);
        }
        self.history.note_ephemeral(&pod, entry.facts(), &mut self.record);
        self.history.restarting.replace_old_images(&pod, &mut self.stops, &mut self.record, entry, ctx.now.boot);
        // A pod that already runs takes up room, so it counts as admitted.
        if entry.facts().sandboxes.iter().any(|s| s.ready) || entry.running().next().is_some() {
            self.admit();
        }
        self.containers.hold_the_ended(&pod, &self.history.restarting, entry, ctx);
        let runs = entry.running().next().is_some();
        self.volumes.update(&pod, runs, &self.record, &mut self.ops, &mut self.timer, ctx);
        self.in_place.resize.forget_ended(&entry.facts().containers);
        if self.record.is_durable() {
            self.in_place.resize.continue_with(&pod, &mut self.ops, &mut self.stops, &mut self.timer, entry, ctx);
        }
        self.history.restarting.continue_stops(&pod, &mut self.stops, entry, ctx.now.boot);
        // A planned stop does not wait for a long pull or hook of another container.
        let busy = self.ops.active().is_some_and(|active| !active.lets_others_stop());
        let stopping = !busy && ctx.up && self.carry_out_planned_stops(entry, ctx);
        if self.ops.is_active() || self.ops.is_stopping() {
            return;
        }
        if ctx.up && !stopping {
            self.advance(&pod, entry, ctx);
        }
        self.measured.sync(&self.uid, &self.state, &self.ops, &self.record, ctx);
        if self.state.is_sync() {
            self.schedule(ctx);
        }
    }

    fn plan(&self, pod: &Pod, entry: &Entry, now: Boot) -> Next {
        plan::next(&PlanInput {
            pod,
            facts: entry.facts(),
            first_attempt: self.sandbox.first_attempt,
            foreign: entry.foreign(),
            first_free: &|name| self.containers.failures.first_free(name).max(self.history.earlier.first_free(name)),
            held: &|name| self.containers.backoffs.holds(name, now),
            stopped: &|id| self.sandbox.is_stopped(id),
            in_doubt: entry.in_doubt(now),
            started: &|c| pod.container(&c.name).is_none_or(|spec| self.containers.probes.started(spec, &c.id)),
            begun_ephemeral: &self.history.begun_ephemeral,
            restarting: &self.history.restarting,
        })
    }

    /// Starts the next changing operation, if any.
    fn advance(&mut self, pod: &Rc<Pod>, entry: &mut Entry, ctx: &mut Context<'_>) {
        let now = ctx.now.boot;
        let next = self.plan(pod, entry, now);
        // Preparations are valid only for the step that follows them.
        self.state.keep_preparations_for(&next);
        match next {
            Next::Ended => {
                self.ending.end = End::Ended;
                self.end_resize();
                self.state = State::Terminating(Terminating::new(now, pod.grace_period()));
                return;
            }
            Next::Nothing => {}
            Next::StopContainers(ids) => {
                self.sandbox.report_dead(pod, entry.facts(), ctx);
                for c in entry.running().filter(|c| ids.contains(&c.id)) {
                    if !self.stops.has_planned_stop(&c.id) {
                        let message = format!("Stopping container {}", c.name);
                        let then = after_failure(pod, &c.name);
                        let grace_deadline = now + pod.grace_period();
                        self.stops.plan_stop(c.id.clone(), PlannedStop { message, grace_deadline, then });
                    }
                }
                self.carry_out_planned_stops(entry, ctx);
                return;
            }
            Next::StopSandbox(id) => {
                self.sandbox.report_dead(pod, entry.facts(), ctx);
                // A sandbox call failed recently, or the last sandbox is too young to be replaced.
                if self.sandbox.hold(now).is_none() {
                    self.ops.stop_sandbox(&self.uid, id, ctx);
                }
            }
            Next::RunSandbox { .. } | Next::Create { .. } | Next::Start { .. } => self.start(pod, next, entry, ctx),
        }
        self.stops.are_over(&self.ops, ctx);
        // A pod that queues for a slot must take it as soon as it is free, or the pod loses its place in the queue.
        // So start no removal now.
        if !self.ops.is_active() && !ctx.slots.waits(&self.uid) {
            self.clear_away(entry, ctx);
        }
    }

    /// Schedules the next sync: at the end of the next back-off, otherwise together with the other healthy pods (W9).
    fn schedule(&mut self, ctx: &mut Context<'_>) {
        let now = ctx.now.boot;
        for at in [self.containers.backoffs.next(now), self.sandbox.hold(now)].into_iter().flatten() {
            self.timer.wake_at(at);
        }
        if !self.ops.is_active() {
            // W9: at most 50 % later than `syncFrequency`.
            let step = GRID.min(ctx.config.sync_frequency / 2);
            let latest = now + ctx.config.sync_frequency + step;
            let grid = step.as_nanos().max(1) as u64;
            self.timer.wake_at(Boot(latest.0 / grid * grid));
        }
    }
}
