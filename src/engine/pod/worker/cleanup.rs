//! Removal of leftovers: dead containers beyond those kept for their logs, and everything of a pod that has ended and
//! is not desired (W23, W26).
//!
//! A removal changes the runtime like other operations: the worker starts one at a time, and only when it has nothing
//! else to do.

use super::Worker;
use super::demand::Demand;
use super::ending::End;
use super::ops::BackgroundOp;
use super::sandbox::LATE;
use super::state::State;
use super::state::Terminating;
use super::state::{CgroupRemoval, Directory, Forgotten};
use crate::api::names::ContainerId;
use crate::engine::context::Context;
use crate::engine::effect::FilesCall;
use crate::engine::event::Answer;
use crate::engine::op::OpError;
use crate::engine::pleg::cache::Entry;
use crate::engine::pod::kill::Cause;
use crate::engine::pod::kill::TerminationSource;
use crate::engine::pod::plan;
use std::time::Duration;

/// Returns true if the pod's dead containers and logs are no longer needed (W24, W26, E3).
fn content_should_be_removed(state: &State, demand: &Demand, cause: Option<&Cause>, ctx: &Context<'_>) -> bool {
    let evicted = demand.waits_for.iter().copied().chain(cause.and_then(|c| c.by)).any(TerminationSource::evicts);
    let unwanted = evicted || !demand.desired;
    match state {
        State::Waiting | State::Sync(_) => false,
        State::Terminating(_) => evicted,
        State::Terminated(_) | State::Finished(_) | State::Forgotten(_) => unwanted || ctx.short_of_disk,
    }
}

impl Worker {
    /// W26: removes superfluous containers and sandboxes in the background.
    pub(super) fn clear_away(&mut self, entry: &Entry, ctx: &mut Context<'_>) {
        let container = plan::superfluous(entry.facts(), if ctx.short_of_disk { 1 } else { 2 });
        let sandbox = plan::superfluous_sandbox(entry.facts());
        if container.is_none() && sandbox.is_none() || self.removals.wait(&mut self.timer, ctx.now.boot) {
            return;
        }
        match (container, sandbox) {
            (Some(c), _) => self.ops.remove_container(&self.uid, c, ctx),
            (None, Some(id)) => self.ops.remove_sandbox(&self.uid, id, ctx),
            (None, None) => {}
        }
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
            Err(e) => {
                self.removals.failed(&format!("container {id}"), &e, self.pod.as_ref(), ctx);
                if e.is_failed_precondition() {
                    self.ops.delete_tasks(&self.uid, [id].into_iter(), ctx);
                }
            }
        }
    }

    /// Steps a finished pod. It is kept for its status and logs while it is desired (W23); otherwise everything of it
    /// is removed.
    pub(super) fn step_finished(&mut self, entry: &mut Entry, ctx: &mut Context<'_>) {
        // W23: a container was found running. Stop it as in an orphan.
        if entry.usable() && entry.running().next().is_some() {
            self.state = State::Terminating(Terminating::new(ctx.now.boot, Duration::from_secs(1)));
            if self.ending.end.is_terminal() {
                self.ending.end = End::Terminal { recorded: false };
            }
            return;
        }
        let content_goes = content_should_be_removed(&self.state, &self.demand, self.ending.cause.as_ref(), ctx)
            && self.ending.end == End::Terminal { recorded: true };
        if self.demand.stays() && !self.stop_late_sandbox(entry, ctx) {
            self.try_cgroup_again(entry, ctx);
        }
        if self.demand.stays() && !content_goes {
            return;
        }
        if !ctx.up || self.ops.is_active() || !entry.usable() || self.removals.wait(&mut self.timer, ctx.now.boot) {
            return;
        }
        let facts = entry.facts();
        // If the pod stays, each container is removed together with its logs. Otherwise the removal of the sandbox
        // removes all containers. If another owner shares the log directory, the directory stays, and each log is
        // removed with its container (W21). Remove the oldest first, so that restart counts do not decrease if Wherry
        // is killed in between (W25).
        let alone = self.demand.stays() || entry.foreign().share_the_uid() || facts.sandboxes.is_empty();
        let container = facts.containers.last().filter(|_| alone);
        if let Some(c) = container {
            return self.ops.remove_container(&self.uid, &c.clone(), ctx);
        }
        if let Some(s) = facts.sandboxes.last() {
            return self.ops.remove_sandbox(&self.uid, s.id.clone(), ctx);
        }
        if self.ops.background_is_empty() && !self.demand.stays() {
            self.remove_the_rest(entry, ctx);
        }
    }

    /// Removes the pod's directories, and then its record unless the pod starts again. The runtime has nothing of the
    /// pod any more.
    fn remove_the_rest(&mut self, entry: &mut Entry, ctx: &mut Context<'_>) {
        let State::Finished(finished) = &self.state else { return };
        let (directory, only_files) = (finished.directory, finished.only_files);
        if directory == Directory::Present {
            if !self.removals.sharing.knows_foreign_objects(entry, ctx) {
                return;
            }
            if !entry.foreign().share_the_uid() {
                // Kill remaining processes, as a kubelet does: a runtime that was killed during a stop may lose track
                // of a process.
                let (kill, marker) = (!only_files, self.sandbox.late(ctx.now.boot));
                return self.ops.remove_files(&self.uid, &self.name, kill, marker, ctx);
            }
            // Files named after the UID stay while another owner uses the UID.
            self.state.set_directory(Directory::KeptAsMarker { until: ctx.now.boot + LATE });
            return self.remove_the_rest(entry, ctx);
        }
        // The successor takes over the record. If Wherry is killed while the API server is unavailable, the server's
        // pod can be restored only from the record (W25). For every pod, the record also notes that a cordon does not
        // hold it back (A10).
        let is_inherited = self.demand.next().is_some();
        if is_inherited || !self.record.exists() {
            self.state = State::Forgotten(Forgotten { directory });
            return;
        }
        self.record.removed();
        self.ops.remove_record(&self.uid, BackgroundOp::RecordRemoved, ctx);
    }

    /// W23: stops a ready sandbox of a finished pod, because it holds an IP address. A cancelled call created it
    /// late, or it could not be stopped before (W2). Returns true while there is such a sandbox.
    fn stop_late_sandbox(&mut self, entry: &Entry, ctx: &mut Context<'_>) -> bool {
        let Some(sandbox) = entry.facts().sandboxes.iter().find(|s| s.ready) else { return false };
        // The runtime created the pod's cgroup together with the sandbox, so the cgroup is removed again.
        self.state.set_cgroup(CgroupRemoval::Again { at: ctx.now.boot, retry: self.state.cgroup().retry() });
        if ctx.up && !self.ops.is_active() && entry.usable() {
            match self.sandbox.hold(ctx.now.boot) {
                Some(until) => self.timer.wake_at(until),
                None => self.ops.stop_sandbox(&self.uid, sandbox.id.clone(), ctx),
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
        if !self.removals.sharing.knows_foreign_objects(entry, ctx) {
            return;
        }
        self.state.set_cgroup(CgroupRemoval::Tried { retry });
        // Like a kubelet, kill processes that the runtime lost track of.
        self.ops.remove_cgroup(&self.uid, true, entry, ctx);
    }

    /// Drops the notes about containers and sandboxes that no longer exist.
    pub(super) fn forget_gone(&mut self, entry: &Entry) {
        let facts = entry.facts();
        self.containers.forget_gone(&facts.containers, entry.known());
        if entry.known() {
            self.history.forget_gone(&facts.containers);
        }
        self.sandbox.forget_gone(facts, entry.known());
    }
}
