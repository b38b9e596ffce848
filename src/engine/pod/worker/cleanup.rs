//! What is left of a pod: dead containers beyond those kept for their logs while it lives, and everything once it is over
//! and nobody desires it any more (W23, W26). Also the termination messages, read while their files are there.
//!
//! Removals are changing operations like others: one at a time, when there is nothing else to do.

use super::stops::retry_after;
use super::{ActiveOp, BackgroundOp, Record, State, Terminating, Worker};
use crate::api::facts::{ContainerFact, ContainerState};
use crate::api::names::{ContainerId, SandboxId};
use crate::api::time::Wall;
use crate::engine::context::Context;
use crate::engine::effect::{CgroupCall, FilesCall, RecordChange, RuntimeCall, Severity};
use crate::engine::op::{Code, OpError};
use crate::engine::pleg::cache::Entry;
use crate::engine::pod::{plan, record};
use std::time::Duration;

/// So long what a call for a sandbox did that was given up may turn up. A runtime goes on with the step that it is in, and
/// then takes back all that it made, but not the pod's cgroup, which its OCI runtime made. (Two seconds were seen on a busy
/// machine.)
pub const LATE: Duration = Duration::from_secs(30);

/// So long after a container's end its log may still be written. (It is a moment; a busy machine's is longer.)
const LOG_SETTLES: Duration = Duration::from_millis(200);

impl Worker {
    /// W26: in the background, never in anybody's way.
    pub(super) fn clear_away(&mut self, entry: &Entry, ctx: &mut Context<'_>) {
        let container = plan::superfluous(entry.facts());
        let sandbox = plan::superfluous_sandbox(entry.facts());
        if container.is_none() && sandbox.is_none() || self.cleaning_waits(ctx) {
            return;
        }
        match (container, sandbox) {
            (Some(c), _) => self.remove_container(c, ctx),
            (None, Some(id)) => self.remove_sandbox(id, ctx),
            (None, None) => {}
        }
    }

    /// The last removal failed a short while ago.
    fn cleaning_waits(&mut self, ctx: &Context<'_>) -> bool {
        let at = self.retry_at.filter(|at| *at > ctx.now.boot);
        if let Some(at) = at {
            self.wake_at(at);
        }
        at.is_some()
    }

    fn remove_sandbox(&mut self, id: SandboxId, ctx: &mut Context<'_>) {
        let op = ctx.runtime(&self.uid, RuntimeCall::RemoveSandbox { id: id.clone() });
        self.op = Some((op, ActiveOp::RemoveSandbox { id }));
    }

    pub(super) fn remove_container(&mut self, c: &ContainerFact, ctx: &mut Context<'_>) {
        // One that never ran shares its log's path with its successor.
        let ended = c.state == ContainerState::Exited && !c.log_path.is_empty();
        let log_path = ended.then(|| c.log_path.clone());
        let op = ctx.runtime(&self.uid, RuntimeCall::RemoveContainer { id: c.id.clone() });
        self.op = Some((op, ActiveOp::RemoveContainer { id: c.id.clone(), log_path }));
    }

    /// `ended`: what went, or should have gone, with it. (A connection that is gone is told of already.)
    pub(super) fn removal_failed(
        &mut self,
        what: &str,
        ended: impl Iterator<Item = ContainerId>,
        e: &OpError,
        ctx: &mut Context<'_>,
    ) {
        if !matches!(e, OpError::NotSent(_)) {
            let message = format!("{what} could not be removed: {e}");
            ctx.tell(self.pod.as_ref(), None, (Severity::Warning, "FailedCleanup"), message);
        }
        // A start that was given up because wherry was killed may leave a task (and `runc init` in it) that containerd
        // shows as exited and removes by no call of the CRI.
        if matches!(e, OpError::Answered { code: Code::FailedPrecondition, .. }) {
            for id in ended {
                let op = ctx.runtime(&self.uid, RuntimeCall::DeleteTask { id });
                self.background.insert(op, BackgroundOp::Other);
            }
        }
        self.cleanup_failed(ctx);
    }

    pub(super) fn cleanup_failed(&mut self, ctx: &mut Context<'_>) {
        self.retry_at = Some(ctx.now.boot + retry_after(self.retries, ctx));
        self.retries = self.retries.saturating_add(1);
    }

    /// Finished: kept for its status and logs while desired (W23), else taken away to the last file.
    pub(super) fn step_finished(&mut self, entry: &mut Entry, ctx: &mut Context<'_>) {
        // W23: something turned up running: it is stopped as an orphan's.
        if entry.usable() && entry.running().next().is_some() {
            self.state = State::Terminating(Terminating::new(ctx.now.boot, Duration::from_secs(1)));
            self.terminal_recorded = false;
            return;
        }
        let content_goes = self.content_should_be_removed();
        if self.stays() && !self.stop_late_sandbox(entry, ctx) {
            self.try_cgroup_again(entry, ctx);
        }
        if self.stays() && !(content_goes && self.terminal_recorded) {
            return;
        }
        if !ctx.up || self.op.is_some() || !entry.usable() || self.cleaning_waits(ctx) {
            return;
        }
        let facts = entry.facts();
        // Of one that stays the logs go with the containers; of the others everything goes with the sandbox.
        // The log directory that others use too stays, and so the logs go with their containers (W21).
        // The oldest first: should wherry be killed in between, restart counts do not go back (W25).
        let alone = self.stays() || entry.strangers().share_the_uid() || facts.sandboxes.is_empty();
        let container = facts.containers.last().filter(|_| alone);
        if let Some(c) = container {
            return self.remove_container(&c.clone(), ctx);
        }
        if let Some(s) = facts.sandboxes.last() {
            return self.remove_sandbox(s.id.clone(), ctx);
        }
        if !self.background.is_empty() || self.stays() {
            return;
        }
        if !self.files_removed {
            if !self.knows_strangers(entry, ctx) {
                return;
            }
            if entry.strangers().share_the_uid() {
                // What is named after the UID stays until it is nobody's.
                self.keeps_directory = Some(ctx.now.boot + LATE);
                self.files_removed = true;
                return self.step_finished(entry, ctx);
            }
            let (namespace, name) = (self.name.namespace.clone(), self.name.name.clone());
            // As a kubelet: a runtime that was killed in the middle of a stop may lose a process.
            let kill = !self.only_files;
            self.keeps_directory = self.late.filter(|until| *until > ctx.now.boot);
            let keep_directory = self.keeps_directory.is_some();
            let call = FilesCall::RemovePod { uid: self.uid.clone(), namespace, name, kill, keep_directory };
            let op = ctx.files(&self.uid, call);
            self.background.insert(op, BackgroundOp::RemovePodFiles);
        } else if self.record != Record::None {
            self.record = Record::None;
            let op = ctx.record(&self.uid, RecordChange::Delete { key: record::key(&self.uid) });
            self.background.insert(op, BackgroundOp::RecordRemoved);
        } else {
            self.state = State::Forgotten;
        }
    }

    /// W23: a call that was given up may make a sandbox yet, and that holds an address. Or one could not be stopped before (W2).
    /// True while there is one.
    fn stop_late_sandbox(&mut self, entry: &Entry, ctx: &mut Context<'_>) -> bool {
        let Some(sandbox) = entry.facts().sandboxes.iter().find(|s| s.ready) else { return false };
        // It brought the pod's cgroup.
        self.cgroup_again = Some(ctx.now.boot);
        if ctx.up && self.op.is_none() && entry.usable() {
            match self.sandbox_hold.filter(|until| *until > ctx.now.boot) {
                Some(until) => self.wake_at(until),
                None => self.stop_sandbox(sandbox.id.clone(), ctx),
            }
        }
        true
    }

    /// A pod that is over and stays has no cgroup either.
    fn try_cgroup_again(&mut self, entry: &mut Entry, ctx: &mut Context<'_>) {
        let Some(at) = self.cgroup_again else { return };
        if at > ctx.now.boot {
            return self.wake_at(at);
        }
        if !self.knows_strangers(entry, ctx) {
            return;
        }
        self.cgroup_again = None;
        if entry.strangers().share_the_uid() {
            return;
        }
        // What the runtime has lost is killed, as by a kubelet.
        let op = ctx.cgroup(&self.uid, CgroupCall::Remove { uid: self.uid.clone(), kill: true });
        self.background.insert(op, BackgroundOp::RemoveCgroup);
    }

    pub(super) fn cgroup_removed(&mut self, result: Result<(), OpError>, ctx: &mut Context<'_>) {
        self.cgroup_again = match result {
            Ok(()) => self.late.filter(|until| *until > ctx.now.boot),
            Err(e) => {
                if self.is_finished() {
                    let message = format!("the pod's cgroup could not be removed: {}", e.message());
                    ctx.tell(self.pod.as_ref(), None, (Severity::Warning, "FailedCleanup"), message);
                }
                self.cgroup_tries = self.cgroup_tries.saturating_add(1);
                Some(ctx.now.boot + retry_after(self.cgroup_tries, ctx))
            }
        };
    }

    pub(super) fn files_not_removed(&mut self, why: &str, ctx: &mut Context<'_>) {
        let message = format!("the pod's directories could not be removed: {why}");
        ctx.tell(self.pod.as_ref(), None, (Severity::Warning, "FailedCleanup"), message);
        self.cleanup_failed(ctx);
    }

    /// W7: what ended stays ended, whatever becomes of its dead containers.
    pub(super) fn record_terminal(&mut self, ctx: &mut Context<'_>) {
        let stays = self.is_finished() && self.stays();
        let settled = self.background.is_empty() && self.op.is_none() && self.over_shown;
        if self.terminal_recorded || !stays || !settled {
            return;
        }
        self.terminal_recorded = true;
        self.terminal = true;
        if self.record == Record::None {
            return;
        }
        let status = self.status.clone();
        self.put_record(None, Some(status), ctx);
    }

    /// What is noted of containers and sandboxes goes with them.
    pub(super) fn forget_what_is_gone(&mut self, entry: &Entry) {
        let facts = entry.facts();
        self.messages.retain(|id, _| facts.containers.iter().any(|c| c.id == *id));
        self.start_errors.retain(|id, _| facts.containers.iter().any(|c| c.id == *id));
        if entry.known() {
            self.pre_stopped.retain(|id| facts.containers.iter().any(|c| c.id == *id));
            self.started_here.retain(|id| facts.containers.iter().any(|c| c.id == *id));
        }
        // The first sandbox there can be is ready: no other call for one was made.
        if entry.known() && plan::ready_sandbox(facts).is_some_and(|s| s.attempt == 0) {
            self.late = None;
        }
        self.stopped.retain(|id| facts.sandboxes.iter().any(|s| s.id == *id));
        self.lost_sandbox = self.lost_sandbox.filter(|lost| facts.sandboxes.iter().all(|s| s.attempt < *lost));
    }

    /// The termination messages of containers that ended, once each.
    pub(super) fn read_messages(&mut self, entry: &Entry, ctx: &mut Context<'_>) {
        if self.pod.is_none() || self.terminal {
            return;
        }
        for c in entry.facts().containers.iter().filter(|c| c.state == ContainerState::Exited) {
            if self.messages.contains_key(&c.id) {
                continue;
            }
            if let Some(left) = log_settles(c, ctx.now.wall) {
                self.wake_at(ctx.now.boot + left);
                continue;
            }
            self.messages.insert(c.id.clone(), String::new());
            let call = FilesCall::ReadTermination {
                id: c.id.clone(),
                termination_file: c.termination_file.clone(),
                log_path: c.log_path.clone(),
                fallback_to_logs: c.fallback_to_logs,
                exit_code: c.exit_code,
            };
            let op = ctx.files(&self.uid, call);
            self.background.insert(op, BackgroundOp::Message { id: c.id.clone() });
        }
    }
}

/// How long the last lines of a container may still be on their way to its log, if they are wanted for its message: a
/// runtime shows the end (containerd 1.6 to 1.7) when it has handed them to the one who writes them.
fn log_settles(c: &ContainerFact, now: Wall) -> Option<Duration> {
    let wanted = c.fallback_to_logs && c.exit_code != 0;
    // (An end in the future: the clock was set back, and nobody knows how long it was ago.)
    let left = LOG_SETTLES.checked_sub(now.since(c.finished_at)).filter(|left| !left.is_zero());
    left.filter(|_| wanted && c.finished_at <= now)
}
