//! Removal of leftovers: dead containers beyond those kept for their logs, and everything of a pod that has ended and
//! is not desired (W23, W26).
//!
//! Removals are changing operations like others: one at a time, and only when there is nothing else to do.

use super::ops::{ActiveOp, BackgroundOp};
use super::retry::Retry;
use super::sandbox::LATE;
use super::sharing::Sharing;
use super::state::{CgroupRemoval, Directory, Forgotten};
use super::{End, State, Terminating, Worker};
use crate::api::facts::{ContainerFact, ContainerState};
use crate::api::names::{ContainerId, SandboxId};
use crate::api::reason::Reason;
use crate::api::time::Boot;
use crate::engine::context::Context;
use crate::engine::effect::{CgroupCall, FilesCall, RecordChange, RuntimeCall};
use crate::engine::event::Answer;
use crate::engine::op::{Code, OpError};
use crate::engine::pleg::cache::Entry;
use crate::engine::pod::kill::TerminationSource;
use crate::engine::pod::{plan, record};
use serde::Serialize;
use std::time::Duration;

/// Maximum number of retries to remove a record.
const RECORD_TRIES: u32 = 3;

/// The removals of what is left of the pod.
#[derive(Debug, Default, Serialize)]
pub struct Removals {
    /// The retry of a failed removal of containers, sandboxes, directories or the record.
    pub retry: Retry,
    pub sharing: Sharing,
}

impl Worker {
    /// Dead containers and logs are no longer needed (W24, W26, E3).
    fn content_should_be_removed(&self, ctx: &Context<'_>) -> bool {
        let evicted = self
            .demand
            .waits_for
            .iter()
            .copied()
            .chain(self.ending.cause.as_ref().and_then(|c| c.by))
            .any(TerminationSource::evicts);
        let unwanted = evicted || !self.demand.desired;
        match self.state {
            State::Waiting | State::Sync(_) => false,
            State::Terminating(_) => evicted,
            State::Terminated(_) | State::Finished(_) | State::Forgotten(_) => unwanted || ctx.short_of_disk,
        }
    }

    /// W26: removes superfluous containers and sandboxes in the background.
    pub(super) fn clear_away(&mut self, entry: &Entry, ctx: &mut Context<'_>) {
        let container = plan::superfluous(entry.facts(), if ctx.short_of_disk { 1 } else { 2 });
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
        let at = self.removals.retry.waits_until(ctx.now.boot);
        if let Some(at) = at {
            self.timer.wake_at(at);
        }
        at.is_some()
    }

    fn remove_sandbox(&mut self, id: SandboxId, ctx: &mut Context<'_>) {
        let op = ctx.runtime(&self.uid, RuntimeCall::RemoveSandbox { id: id.clone() });
        self.ops.start(op, ActiveOp::RemoveSandbox { id });
    }

    pub(super) fn remove_container(&mut self, c: &ContainerFact, ctx: &mut Context<'_>) {
        // A container that never ran shares its log path with its successor.
        let ended = c.state == ContainerState::Exited && !c.log_path.is_empty();
        let log_path = ended.then(|| c.log_path.clone());
        let op = ctx.runtime(&self.uid, RuntimeCall::RemoveContainer { id: c.id.clone() });
        self.ops.start(op, ActiveOp::RemoveContainer { id: c.id.clone(), log_path });
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
            ctx.emit_warning(self.pod.as_ref(), None, Reason::FailedCleanup, message);
        }
        // If Wherry is killed during a start, a task (with `runc init` in it) may remain. containerd shows it as
        // exited, and no CRI call removes it.
        if matches!(e, OpError::Answered { code: Code::FailedPrecondition, .. }) {
            for id in ended {
                let op = ctx.runtime(&self.uid, RuntimeCall::DeleteTask { id });
                self.ops.start_background(op, BackgroundOp::Other);
            }
        }
        self.removals.retry.failed(ctx);
    }

    pub(super) fn container_removed(
        &mut self,
        id: ContainerId,
        log_path: Option<String>,
        result: Result<Answer, OpError>,
        entry: &mut Entry,
        ctx: &mut Context<'_>,
    ) {
        match result {
            Ok(_) => {
                entry.forget_container(&id, ctx.generation);
                self.removals.retry.succeeded();
                if let Some(log_path) = log_path {
                    let op = ctx.files(&self.uid, FilesCall::RemoveContainerFiles { id, log_path });
                    self.ops.start_background(op, BackgroundOp::Other);
                }
            }
            Err(e) if e.is_not_found() => entry.forget_container(&id, ctx.generation),
            Err(e) => self.removal_failed(&format!("container {id}"), [id.clone()].into_iter(), &e, ctx),
        }
    }

    /// A finished pod is kept for its status and logs while it is desired (W23). Otherwise all of it is removed.
    pub(super) fn step_finished(&mut self, entry: &mut Entry, ctx: &mut Context<'_>) {
        // W23: a container turned up running. Stop it like an orphan.
        if entry.usable() && entry.running().next().is_some() {
            self.state = State::Terminating(Terminating::new(ctx.now.boot, Duration::from_secs(1)));
            if self.ending.end.is_terminal() {
                self.ending.end = End::Terminal { recorded: false };
            }
            return;
        }
        let content_goes = self.content_should_be_removed(ctx) && self.ending.end == End::Terminal { recorded: true };
        if self.demand.stays() && !self.stop_late_sandbox(entry, ctx) {
            self.try_cgroup_again(entry, ctx);
        }
        if self.demand.stays() && !content_goes {
            return;
        }
        if !ctx.up || self.ops.is_active() || !entry.usable() || self.cleaning_waits(ctx) {
            return;
        }
        let facts = entry.facts();
        // A pod that stays loses its logs with the containers. For other pods the sandbox's removal removes everything.
        // If another owner shares the log directory, the directory stays, and the logs go with their containers (W21).
        // Remove the oldest first, so that restart counts do not decrease if Wherry is killed in between (W25).
        let alone = self.demand.stays() || entry.strangers().share_the_uid() || facts.sandboxes.is_empty();
        let container = facts.containers.last().filter(|_| alone);
        if let Some(c) = container {
            return self.remove_container(&c.clone(), ctx);
        }
        if let Some(s) = facts.sandboxes.last() {
            return self.remove_sandbox(s.id.clone(), ctx);
        }
        if self.ops.background_is_empty() && !self.demand.stays() {
            self.remove_the_rest(entry, ctx);
        }
    }

    /// The runtime has nothing of the pod any more: removes its directories, then its record, unless the pod starts
    /// again.
    fn remove_the_rest(&mut self, entry: &mut Entry, ctx: &mut Context<'_>) {
        let State::Finished(finished) = &self.state else { return };
        let (directory, only_files) = (finished.directory, finished.only_files);
        if directory == Directory::Present {
            if !self.removals.sharing.knows_strangers(entry, ctx) {
                return;
            }
            if !entry.strangers().share_the_uid() {
                return self.remove_files(only_files, ctx);
            }
            // Files named after the UID stay while another owner uses the UID.
            self.state.set_directory(Directory::KeptAsMarker { until: ctx.now.boot + LATE });
            return self.remove_the_rest(entry, ctx);
        }
        // The successor inherits the record. Without the API server, only the record brings the pod back after a kill
        // (W25). The record of any pod says that a cordon does not hold it back (A10).
        let is_inherited = self.demand.next().is_some();
        if is_inherited || !self.record.exists() {
            self.state = State::Forgotten(Forgotten { directory });
            return;
        }
        self.record.removed();
        let op = ctx.record(&self.uid, RecordChange::Delete { key: record::key(&self.uid) });
        self.ops.start_background(op, BackgroundOp::RecordRemoved);
    }

    fn remove_files(&mut self, only_files: bool, ctx: &mut Context<'_>) {
        let (namespace, name) = (self.name.namespace.clone(), self.name.name.clone());
        // Kill like a kubelet: a runtime that was killed during a stop may lose track of a process.
        let kill = !only_files;
        let marker = self.sandbox.late(ctx.now.boot);
        let keep_directory = marker.is_some();
        let call = FilesCall::RemovePod { uid: self.uid.clone(), namespace, name, kill, keep_directory };
        let op = ctx.files(&self.uid, call);
        self.ops.start_background(op, BackgroundOp::RemovePodFiles { marker });
    }

    /// `marker`: until then the empty directory stays (W26).
    pub(super) fn files_removed(&mut self, marker: Option<Boot>, result: Result<(), OpError>, ctx: &mut Context<'_>) {
        match result {
            Ok(()) => {
                self.state.set_directory(marker.map_or(Directory::Removed, |until| Directory::KeptAsMarker { until }));
            }
            Err(e) => {
                let message = format!("failed to remove the pod's directories: {}", e.message());
                ctx.emit_warning(self.pod.as_ref(), None, Reason::FailedCleanup, message);
                self.removals.retry.failed(ctx);
            }
        }
    }

    /// A record that remains belongs to a pod of which nothing else exists. The next start removes it.
    pub(super) fn record_removed(&mut self, result: Result<(), OpError>, ctx: &mut Context<'_>) {
        if let (Err(_), State::Finished(finished)) = (result, &mut self.state)
            && finished.record_failures < RECORD_TRIES
        {
            finished.record_failures += 1;
            self.record.not_removed();
            self.removals.retry.failed(ctx);
        }
    }

    /// W23: stops a ready sandbox of a finished pod, because it holds an IP address. A cancelled call created it late,
    /// or it could not be stopped before (W2). Returns true while there is one.
    fn stop_late_sandbox(&mut self, entry: &Entry, ctx: &mut Context<'_>) -> bool {
        let Some(sandbox) = entry.facts().sandboxes.iter().find(|s| s.ready) else { return false };
        // The runtime created the pod's cgroup together with the sandbox.
        self.state.set_cgroup(CgroupRemoval::Again { at: ctx.now.boot, retry: self.state.cgroup().retry() });
        if ctx.up && !self.ops.is_active() && entry.usable() {
            match self.sandbox.hold(ctx.now.boot) {
                Some(until) => self.timer.wake_at(until),
                None => self.stop_sandbox(sandbox.id.clone(), ctx),
            }
        }
        true
    }

    /// Removes the cgroup of a finished pod that stays, if the first removal failed or the cgroup may have appeared
    /// late.
    fn try_cgroup_again(&mut self, entry: &mut Entry, ctx: &mut Context<'_>) {
        let CgroupRemoval::Again { at, retry } = self.state.cgroup() else { return };
        if at > ctx.now.boot {
            return self.timer.wake_at(at);
        }
        if !self.removals.sharing.knows_strangers(entry, ctx) {
            return;
        }
        self.state.set_cgroup(CgroupRemoval::Tried { retry });
        // Like a kubelet, kill processes that the runtime lost track of.
        self.remove_cgroup(true, entry, ctx);
    }

    /// Removes the pod's cgroup, unless another owner uses the UID. `kill`: first kills the processes in it.
    pub(super) fn remove_cgroup(&mut self, kill: bool, entry: &Entry, ctx: &mut Context<'_>) {
        if !entry.strangers().share_the_uid() {
            let op = ctx.cgroup(&self.uid, CgroupCall::Remove { uid: self.uid.clone(), kill });
            self.ops.start_background(op, BackgroundOp::RemoveCgroup);
        }
    }

    pub(super) fn cgroup_removed(&mut self, result: Result<(), OpError>, ctx: &mut Context<'_>) {
        let mut retry = self.state.cgroup().retry();
        let removal = match result {
            Ok(()) => match self.sandbox.late(ctx.now.boot) {
                Some(at) => CgroupRemoval::Again { at, retry },
                None => CgroupRemoval::Tried { retry },
            },
            Err(e) => {
                if self.state.is_finished() {
                    let message = format!("failed to remove the pod's cgroup: {}", e.message());
                    ctx.emit_warning(self.pod.as_ref(), None, Reason::FailedCleanup, message);
                }
                retry.failed(ctx);
                CgroupRemoval::Again { at: retry.waits_until(ctx.now.boot).unwrap_or(ctx.now.boot), retry }
            }
        };
        self.state.set_cgroup(removal);
    }

    /// W7: records the terminal status, so that the pod stays ended when its dead containers are removed.
    pub(super) fn record_terminal(&mut self, ctx: &mut Context<'_>) {
        let shown = matches!(&self.state, State::Finished(finished) if finished.shown);
        let settled = self.ops.background_is_empty() && !self.ops.is_active() && shown;
        if self.ending.end == (End::Terminal { recorded: true }) || !self.demand.stays() || !settled {
            return;
        }
        self.ending.end = End::Terminal { recorded: true };
        if !self.record.exists() {
            return;
        }
        self.put_record(ctx);
    }

    /// Drops the notes about containers and sandboxes that no longer exist.
    pub(super) fn forget_what_is_gone(&mut self, entry: &Entry) {
        let facts = entry.facts();
        self.containers.messages.forget_gone(&facts.containers);
        self.containers.backoffs.forget_gone(&facts.containers);
        if entry.known() {
            self.history.forget_gone(&facts.containers);
            self.containers.probes.forget_gone(&facts.containers);
        }
        self.sandbox.forget_gone(facts, entry.known());
    }
}
