//! Removal of leftovers: dead containers beyond those kept for their logs, and everything of a pod that has ended and is not
//! desired (W23, W26). Also reads the termination messages while their files exist.
//!
//! Removals are changing operations like others: one at a time, and only when there is nothing else to do.

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

/// How long a cancelled sandbox call may still take effect. The runtime completes its current step and then removes everything
/// that it created, except the pod's cgroup, which its OCI runtime created. Delays of 2 s were observed on a busy machine.
pub const LATE: Duration = Duration::from_secs(30);

/// How long the log may still be written after a container's end; usually a moment, longer on a busy machine.
const LOG_SETTLES: Duration = Duration::from_millis(200);

impl Worker {
    /// W26: removes superfluous containers and sandboxes in the background.
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

    /// The last removal failed recently.
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
        // A container that never ran shares its log path with its successor.
        let ended = c.state == ContainerState::Exited && !c.log_path.is_empty();
        let log_path = ended.then(|| c.log_path.clone());
        let op = ctx.runtime(&self.uid, RuntimeCall::RemoveContainer { id: c.id.clone() });
        self.op = Some((op, ActiveOp::RemoveContainer { id: c.id.clone(), log_path }));
    }

    /// `ended`: the dead containers that the removal included. A lost connection is reported elsewhere.
    pub(super) fn removal_failed(
        &mut self,
        what: &str,
        ended: impl Iterator<Item = ContainerId>,
        e: &OpError,
        ctx: &mut Context<'_>,
    ) {
        if !matches!(e, OpError::NotSent(_)) {
            let message = format!("failed to remove {what}: {e}");
            ctx.tell(self.pod.as_ref(), None, (Severity::Warning, "FailedCleanup"), message);
        }
        // If Wherry is killed during a start, a task (with `runc init` in it) may remain. containerd shows it as exited, and
        // no CRI call removes it.
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

    /// A finished pod is kept for its status and logs while it is desired (W23). Otherwise all of it is removed.
    pub(super) fn step_finished(&mut self, entry: &mut Entry, ctx: &mut Context<'_>) {
        // W23: a container turned up running. Stop it like an orphan.
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
        // A pod that stays loses its logs with the containers. For other pods the sandbox's removal removes everything. If
        // another owner shares the log directory, the directory stays, and the logs go with their containers (W21). Remove the
        // oldest first, so that restart counts do not decrease if Wherry is killed in between (W25).
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
                // Files named after the UID stay while another owner uses the UID.
                self.keeps_directory = Some(ctx.now.boot + LATE);
                self.files_removed = true;
                return self.step_finished(entry, ctx);
            }
            let (namespace, name) = (self.name.namespace.clone(), self.name.name.clone());
            // Kill like a kubelet: a runtime that was killed during a stop may lose track of a process.
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

    /// W23: stops a ready sandbox of a finished pod, because it holds an IP address. A cancelled call created it late, or it
    /// could not be stopped before (W2). Returns true while there is one.
    fn stop_late_sandbox(&mut self, entry: &Entry, ctx: &mut Context<'_>) -> bool {
        let Some(sandbox) = entry.facts().sandboxes.iter().find(|s| s.ready) else { return false };
        // The runtime created the pod's cgroup together with the sandbox.
        self.cgroup_again = Some(ctx.now.boot);
        if ctx.up && self.op.is_none() && entry.usable() {
            match self.sandbox_hold.filter(|until| *until > ctx.now.boot) {
                Some(until) => self.wake_at(until),
                None => self.stop_sandbox(sandbox.id.clone(), ctx),
            }
        }
        true
    }

    /// Removes the cgroup of a finished pod that stays, if the first removal failed or the cgroup may have appeared late.
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
        // Like a kubelet, kill processes that the runtime lost track of.
        let op = ctx.cgroup(&self.uid, CgroupCall::Remove { uid: self.uid.clone(), kill: true });
        self.background.insert(op, BackgroundOp::RemoveCgroup);
    }

    pub(super) fn cgroup_removed(&mut self, result: Result<(), OpError>, ctx: &mut Context<'_>) {
        self.cgroup_again = match result {
            Ok(()) => self.late.filter(|until| *until > ctx.now.boot),
            Err(e) => {
                if self.is_finished() {
                    let message = format!("failed to remove the pod's cgroup: {}", e.message());
                    ctx.tell(self.pod.as_ref(), None, (Severity::Warning, "FailedCleanup"), message);
                }
                self.cgroup_tries = self.cgroup_tries.saturating_add(1);
                Some(ctx.now.boot + retry_after(self.cgroup_tries, ctx))
            }
        };
    }

    pub(super) fn files_not_removed(&mut self, why: &str, ctx: &mut Context<'_>) {
        let message = format!("failed to remove the pod's directories: {why}");
        ctx.tell(self.pod.as_ref(), None, (Severity::Warning, "FailedCleanup"), message);
        self.cleanup_failed(ctx);
    }

    /// W7: records the terminal status, so that the pod stays ended when its dead containers are removed.
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

    /// Drops the notes about containers and sandboxes that no longer exist.
    pub(super) fn forget_what_is_gone(&mut self, entry: &Entry) {
        let facts = entry.facts();
        self.messages.retain(|id, _| facts.containers.iter().any(|c| c.id == *id));
        self.start_errors.retain(|id, _| facts.containers.iter().any(|c| c.id == *id));
        if entry.known() {
            self.pre_stopped.retain(|id| facts.containers.iter().any(|c| c.id == *id));
            self.started_here.retain(|id| facts.containers.iter().any(|c| c.id == *id));
        }
        // The ready sandbox is the first attempt, so no other sandbox call was made.
        if entry.known() && plan::ready_sandbox(facts).is_some_and(|s| s.attempt == 0) {
            self.late = None;
        }
        self.stopped.retain(|id| facts.sandboxes.iter().any(|s| s.id == *id));
        self.lost_sandbox = self.lost_sandbox.filter(|lost| facts.sandboxes.iter().all(|s| s.attempt < *lost));
    }

    /// Reads the termination message of each ended container once.
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

/// How long to wait for the last log lines of a container, if its message comes from the log. containerd 1.6 to 1.7 reports the
/// end as soon as it has passed these lines to the log writer.
fn log_settles(c: &ContainerFact, now: Wall) -> Option<Duration> {
    let wanted = c.fallback_to_logs && c.exit_code != 0;
    // If the end is in the future, the clock was set back and the time since the end is unknown. Do not wait then.
    let left = LOG_SETTLES.checked_sub(now.since(c.finished_at)).filter(|left| !left.is_zero());
    left.filter(|_| wanted && c.finished_at <= now)
}
