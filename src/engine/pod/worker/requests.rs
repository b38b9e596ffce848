//! Operations that a worker begins in several of its states.

use super::ops::{ActiveOp, BackgroundOp, Operations};
use crate::api::facts::{ContainerFact, ContainerState};
use crate::api::names::{ContainerId, FullName, SandboxId, Uid};
use crate::api::time::Boot;
use crate::engine::context::Context;
use crate::engine::effect::{CgroupCall, Effect, FilesCall, RecordChange, RuntimeCall};
use crate::engine::pleg::cache::Entry;
use crate::engine::pod::record;

impl Operations {
    pub fn start_container(&mut self, uid: &Uid, index: usize, id: ContainerId, ctx: &mut Context<'_>) {
        let op = ctx.runtime(uid, RuntimeCall::StartContainer { id: id.clone() });
        self.start(op, ActiveOp::Start { index, id });
    }

    pub fn stop_sandbox(&mut self, uid: &Uid, id: SandboxId, ctx: &mut Context<'_>) {
        let op = ctx.runtime(uid, RuntimeCall::StopSandbox { id: id.clone() });
        self.start(op, ActiveOp::StopSandbox { id });
    }

    pub fn remove_sandbox(&mut self, uid: &Uid, id: SandboxId, ctx: &mut Context<'_>) {
        let op = ctx.runtime(uid, RuntimeCall::RemoveSandbox { id: id.clone() });
        self.start(op, ActiveOp::RemoveSandbox { id });
    }

    pub fn remove_container(&mut self, uid: &Uid, c: &ContainerFact, ctx: &mut Context<'_>) {
        // A container that never ran shares its log path with its successor, so its log stays.
        let ended = c.state == ContainerState::Exited && !c.log_path.is_empty();
        let log_path = ended.then(|| c.log_path.clone());
        let op = ctx.runtime(uid, RuntimeCall::RemoveContainer { id: c.id.clone() });
        self.start(op, ActiveOp::RemoveContainer { id: c.id.clone(), log_path });
    }

    /// Deletes the tasks of containers that have ended. If Wherry is killed during a start, a task (with `runc init`
    /// in it) may remain. containerd shows it as exited, and no CRI call removes it.
    pub fn delete_tasks(&mut self, uid: &Uid, ended: impl Iterator<Item = ContainerId>, ctx: &mut Context<'_>) {
        for id in ended {
            let op = ctx.runtime(uid, RuntimeCall::DeleteTask { id });
            self.start_background(op, BackgroundOp::Other);
        }
    }

    /// Removes the pod's cgroup, unless another owner uses the UID. `kill` first kills the processes in it.
    pub fn remove_cgroup(&mut self, uid: &Uid, kill: bool, entry: &Entry, ctx: &mut Context<'_>) {
        if !entry.foreign().share_the_uid() {
            let op = ctx.cgroup(uid, CgroupCall::Remove { uid: uid.clone(), kill });
            self.start_background(op, BackgroundOp::RemoveCgroup);
        }
    }

    /// Removes the pod's directories. `kill` first kills the remaining processes of the pod. `marker` is the time
    /// until which the empty directory stays (W26).
    pub fn remove_files(
        &mut self,
        uid: &Uid,
        name: &FullName,
        kill: bool,
        marker: Option<Boot>,
        ctx: &mut Context<'_>,
    ) {
        let (namespace, name, keep_directory) = (name.namespace.clone(), name.name.clone(), marker.is_some());
        let op = ctx.files(uid, FilesCall::RemovePod { uid: uid.clone(), namespace, name, kill, keep_directory });
        self.start_background(op, BackgroundOp::RemovePodFiles { marker });
    }

    /// Removes the pod's record. `background` decides what follows the removal.
    pub fn remove_record(&mut self, uid: &Uid, background: BackgroundOp, ctx: &mut Context<'_>) {
        let op = ctx.record(uid, RecordChange::Delete { key: record::key(uid) });
        self.start_background(op, background);
    }

    /// W2: cancels the operation in flight if it must not delay a termination, for example a pull, a create or a
    /// start. A status read determines its outcome.
    pub fn cancel_for_kill(&mut self, ctx: &mut Context<'_>) {
        if let Some(op) = self.cancelled_by_kill() {
            ctx.outbox.push(Effect::Cancel { op });
        }
    }
}
