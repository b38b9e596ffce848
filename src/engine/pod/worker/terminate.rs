//! Terminating: stops every container and then the sandbox, with retries, until a status read that began after the last
//! call shows nothing running (W2, W4). Terminated: removes the volumes, then the cgroup.

use super::Worker;
use super::ending::End;
use super::retry::Retry;
use super::state::State;
use super::state::{CgroupRemoval, Finished, Terminated};
use crate::api::names::ContainerId;
use crate::engine::context::Context;
use crate::engine::effect::Measure;
use crate::engine::pleg::cache::Entry;

/// W2: after this number of failed attempts a sandbox no longer delays the termination.
const SANDBOX_TRIES: u32 = 5;

impl Worker {
    pub(super) fn step_terminating(&mut self, entry: &mut Entry, ctx: &mut Context<'_>) {
        let State::Terminating(t) = &self.state else { return };
        let (grace_deadline, sandbox_stops) = (t.grace_deadline, t.sandbox);
        self.removals.sharing.forget_reads();
        // Without a connection nothing can be stopped. When the connection is back, the node steps every worker.
        if !entry.known() || !ctx.up {
            return;
        }
        // Stops wait neither for a cancelled call nor for a status read in flight.
        let running: Vec<ContainerId> = entry.running().map(|c| c.id.clone()).collect();
        if !running.is_empty() {
            self.ending.end = End::Open;
            self.state.set_all_stopped(false);
            return self.stop_all(&running, grace_deadline, true, entry, ctx);
        }
        if self.ops.is_active() || self.ops.is_stopping() || !entry.usable() {
            return;
        }
        self.stops.are_over(&self.ops, ctx);
        // A lost call may still take effect until its sandbox is stopped.
        self.state.set_all_stopped(!entry.in_doubt(ctx.now.boot));
        if ctx.hurried && self.state.is_quiet() {
            return;
        }
        let mut sandboxes = entry.facts().sandboxes.iter();
        // If the pod ended in a previous run, its dead sandboxes were stopped then.
        let sandbox = sandboxes.find(|s| s.ready || !self.ending.end.is_terminal() && !self.sandbox.is_stopped(&s.id));
        if let Some(sandbox) = sandbox
            && sandbox_stops.failures() < SANDBOX_TRIES
        {
            if let Some(at) = sandbox_stops.waits_until(ctx.now.boot) {
                return self.timer.wake_at(at);
            }
            return self.ops.stop_sandbox(&self.uid, sandbox.id.clone(), ctx);
        }
        self.state = State::Terminated(Terminated::default());
        self.measured.begin_work("terminated", ctx);
    }

    pub(super) fn step_terminated(&mut self, entry: &mut Entry, ctx: &mut Context<'_>) {
        // W2 defines the order: volumes first, then the cgroup.
        if !self.volumes.unmount(&self.uid, self.pod.as_ref(), &mut self.ops, &mut self.timer, ctx) {
            return;
        }
        if let State::Terminated(Terminated { cgroup: CgroupRemoval::NotTried, .. }) = self.state {
            // W21: the cgroup is named after the UID, and systemd kills everything in a slice that it stops.
            if !self.removals.sharing.knows_foreign_objects(entry, ctx) {
                return;
            }
            if let Some(pod) = self.pod.clone().filter(|pod| crate::engine::probe::any(pod)) {
                ctx.outbox.measure(Measure::NoMoreProbes { pod });
            }
            self.state.set_cgroup(CgroupRemoval::Tried { retry: Retry::default() });
            self.ops.remove_cgroup(&self.uid, false, entry, ctx);
        }
        // A finished pod that is not desired is no longer shown, so the ends of its containers are published before
        // that.
        let is_never_shown = self.status_stays(entry, false);
        if let State::Terminated(terminated) = &mut self.state
            && (terminated.shown || is_never_shown)
            && !self.ops.is_removing_cgroup()
        {
            self.state = State::Finished(Finished::after(std::mem::take(terminated)));
            self.measured.end_work(ctx);
        }
    }
}
