//! Terminating: stops every container and then the sandbox, with retries, until a status read that began after the last
//! call shows nothing running (W2, W4). Terminated: removes the volumes, then the cgroup.

use super::stops::retry_after;
use super::{ActiveOp, BackgroundOp, State, Terminating, Worker};
use crate::api::names::{ContainerId, SandboxId};
use crate::api::time::Boot;
use crate::engine::context::Context;
use crate::engine::effect::{CgroupCall, Measure, RuntimeCall};
use crate::engine::pleg::cache::Entry;
use std::time::Duration;

/// W4: the minimum grace period.
const SHORTEST_GRACE: Duration = Duration::from_secs(1);
/// W2: after this number of failed attempts a sandbox no longer delays the termination.
const SANDBOX_TRIES: u32 = 5;

impl Terminating {
    pub(super) fn new(began: Boot, grace: Duration) -> Terminating {
        Terminating {
            began,
            grace_deadline: began + grace.max(SHORTEST_GRACE),
            sandbox_tries: 0,
            sandbox_retry_at: None,
            all_stopped: false,
        }
    }

    pub(super) fn shrink(&mut self, grace: Duration) {
        self.grace_deadline = self.grace_deadline.min(self.began + grace.max(SHORTEST_GRACE));
    }
}

impl Worker {
    pub(super) fn step_terminating(&mut self, entry: &mut Entry, ctx: &mut Context<'_>) {
        let State::Terminating(t) = &self.state else { return };
        let (grace_deadline, tries, retry_at) = (t.grace_deadline, t.sandbox_tries, t.sandbox_retry_at);
        self.look_since = None;
        // The node steps every worker when the connection is back.
        if !entry.known() || !ctx.up {
            return;
        }
        // Stops wait neither for a cancelled call nor for a status read in flight.
        let running: Vec<ContainerId> = entry.running().map(|c| c.id.clone()).collect();
        if !running.is_empty() {
            self.ended = false;
            self.terminal = false;
            self.all_stopped(false);
            return self.stop_all(&running, grace_deadline, true, entry, ctx);
        }
        if self.op.is_some() || self.stopping() || !entry.usable() {
            return;
        }
        self.stops_are_over(ctx);
        // A lost call may still take effect until its sandbox is stopped.
        self.all_stopped(!entry.in_doubt(ctx.now.boot));
        if ctx.hurried && self.is_quiet() {
            return;
        }
        let mut sandboxes = entry.facts().sandboxes.iter();
        // If the pod ended in a previous run, its dead sandboxes were stopped then.
        let sandbox = sandboxes.find(|s| s.ready || !self.terminal && !self.stopped.contains(&s.id));
        if let Some(sandbox) = sandbox
            && tries < SANDBOX_TRIES
        {
            if let Some(at) = retry_at.filter(|at| *at > ctx.now.boot) {
                return self.wake_at(at);
            }
            return self.stop_sandbox(sandbox.id.clone(), ctx);
        }
        self.state = State::Terminated;
        self.begin_work("terminated", ctx);
    }

    fn all_stopped(&mut self, all_stopped: bool) {
        if let State::Terminating(t) = &mut self.state {
            t.all_stopped = all_stopped;
        }
    }

    /// No container runs or can still start; the sandbox may still exist.
    pub fn is_quiet(&self) -> bool {
        self.is_over() || matches!(&self.state, State::Terminating(t) if t.all_stopped)
    }

    /// The pod is terminating, and no call that may still start something is in flight.
    pub fn is_only_stopping(&self) -> bool {
        matches!(self.state, State::Terminating(_)) && self.op.is_none()
    }

    pub(super) fn stop_sandbox(&mut self, id: SandboxId, ctx: &mut Context<'_>) {
        let op = ctx.runtime(&self.uid, RuntimeCall::StopSandbox { id: id.clone() });
        self.op = Some((op, ActiveOp::StopSandbox { id }));
    }

    /// Schedules a retry after a sandbox could not be stopped.
    pub(super) fn sandbox_stop_failed(&mut self, ctx: &mut Context<'_>) {
        if let State::Terminating(t) = &mut self.state {
            t.sandbox_retry_at = Some(ctx.now.boot + retry_after(t.sandbox_tries, ctx));
            t.sandbox_tries += 1;
        }
    }

    pub(super) fn step_terminated(&mut self, entry: &mut Entry, ctx: &mut Context<'_>) {
        // W2 defines this order.
        if !self.unmount_volumes(ctx) {
            return;
        }
        if !self.cgroup_tried {
            // W21: the cgroup is named after the UID, and systemd kills everything in a slice that it stops.
            if !self.knows_strangers(entry, ctx) {
                return;
            }
            self.cgroup_tried = true;
            if let Some(pod) = self.pod.clone().filter(|_| self.extras.probes) {
                ctx.measure(Measure::NoMoreProbes { pod });
            }
            if !entry.strangers().share_the_uid() {
                let op = ctx.cgroup(&self.uid, CgroupCall::Remove { uid: self.uid.clone(), kill: false });
                self.background.insert(op, BackgroundOp::RemoveCgroup);
            }
        }
        if !self.background.values().any(|b| matches!(b, BackgroundOp::RemoveCgroup)) {
            self.state = State::Finished;
            self.end_work(ctx);
        }
    }
}
