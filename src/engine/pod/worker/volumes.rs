//! A pod's volumes: all are mounted before its sandbox and its first container, and removed before its cgroup (W2).
//! Volumes with a token that is still to be issued are mounted after the sandbox (C4).
//!
//! After a restart Wherry does not know whether they are mounted. It requests them again before it starts something.

use super::Worker;
use super::ops::{ActiveOp, BackgroundOp};
use super::retry::Retry;
use crate::api::environment::{ClusterValues, Facts};
use crate::api::pod::Pod;
use crate::api::reason::Reason;
use crate::api::service_token;
use crate::api::time::Boot;
use crate::api::volume::Volume;
use crate::api::volume_contents;
use crate::engine::context::Context;
use crate::engine::effect::VolumesCall;
use crate::engine::op::OpError;
use crate::engine::pod::plan::Next;
use serde::Serialize;
use std::collections::BTreeSet;
use std::rc::Rc;

#[derive(Debug, Default, Serialize)]
pub struct Volumes {
    /// The pod's directory is from a previous run. It may contain volumes, whatever the spec contains now.
    found: bool,
    mounts: Mounts,
    update: Update,
    /// Why volumes keep the files of an object that does not exist any more; reported once.
    unresolved: BTreeSet<String>,
}

/// Whether the files of mounted volumes are those of their objects (D6).
#[derive(Debug, Default, Serialize)]
enum Update {
    #[default]
    NotNeeded,
    Due,
    /// The last update failed.
    RetryAt(Boot),
}

impl Volumes {
    /// A ConfigMap or a Secret has changed. Volumes that wait for it are mounted now.
    pub fn outdated(&mut self) {
        self.update = Update::Due;
        if let Mounts::Unknown { retry_at } = &mut self.mounts {
            *retry_at = None;
        }
    }
}

#[derive(Debug, Serialize)]
enum Mounts {
    /// Not mounted, or mounted in a previous run. `retry_at`: the last attempt to mount them failed.
    Unknown {
        retry_at: Option<Boot>,
    },
    Mounted,
    /// The last attempt to unmount them failed.
    NotUnmounted(Retry),
    Unmounted,
}

impl Default for Mounts {
    fn default() -> Mounts {
        Mounts::Unknown { retry_at: None }
    }
}

/// The volumes with their contents, and why others have none.
fn resolved(pod: &Pod, ctx: &Context<'_>) -> (Vec<Volume>, BTreeSet<String>) {
    let allocatable = &ctx.config.node.allocatable;
    let facts = Facts { pod, ips: &[], host_ips: &[], allocatable, objects: ctx.data, cluster: ctx.cluster };
    let (mut volumes, mut unresolved) = (Vec::new(), BTreeSet::new());
    for one in volume_contents::resolve(facts) {
        match one {
            Ok(volume) => volumes.push(volume),
            Err(why) => drop(unresolved.insert(why.to_string())),
        }
    }
    (volumes, unresolved)
}

impl Worker {
    /// The pod's directory existed when Wherry started.
    pub fn has_directory(&mut self) {
        self.volumes.found = true;
    }

    /// The pod started in a previous run, even if its record denies it.
    pub fn had_directory(&self) -> bool {
        self.volumes.found
    }

    fn needs_no_mount(&self) -> bool {
        !self.extras.volumes || matches!(self.volumes.mounts, Mounts::Mounted)
    }

    /// The volumes permit to start something of the pod, or to mount them now.
    pub(super) fn volumes_may_be_mounted(&mut self, ctx: &Context<'_>) -> bool {
        if self.needs_no_mount() {
            return true;
        }
        match self.volumes.mounts {
            Mounts::Unknown { retry_at: Some(at) } if at > ctx.now.boot => {
                self.timer.wake_at(at);
                false
            }
            // The pod's record must exist first, so that a later run finds the mounts.
            _ => !self.record.is_writing(),
        }
    }

    /// C4: the sandbox does not wait for a token that the API server has not issued yet. The volumes are mounted after
    /// it.
    pub(super) fn volumes_follow(&self, pod: &Pod, next: &Next, ctx: &Context<'_>) -> bool {
        let is_awaited = |values: ClusterValues<'_>| {
            let mut keys = service_token::of_pod(pod);
            keys.any(|key| values.tokens.awaits(&key))
        };
        matches!(next, Next::RunSandbox { .. })
            && matches!(self.volumes.mounts, Mounts::Unknown { .. })
            && ctx.cluster.is_some_and(is_awaited)
    }

    /// Returns true if the volumes are mounted; otherwise requests the mount.
    pub(super) fn mount_volumes(&mut self, pod: &Rc<Pod>, ctx: &mut Context<'_>) -> bool {
        if self.needs_no_mount() {
            return true;
        }
        // Two set-ups of a volume at the same time would remove each other's files.
        if !self.record.is_durable() || self.ops.is_updating_volumes() {
            return false;
        }
        let (volumes, unresolved) = resolved(pod, ctx);
        if let Some(why) = unresolved.into_iter().next() {
            self.mount_failed(why, ctx);
            return false;
        }
        self.volumes.update = Update::NotNeeded;
        self.volumes.unresolved.clear();
        let op = ctx.volumes(&self.uid, VolumesCall::Mount { uid: self.uid.clone(), volumes });
        self.ops.start(op, ActiveOp::MountVolumes);
        false
    }

    /// D6: brings the files of the volumes up to date while containers run. `runs`: a container of the pod runs, so its
    /// volumes are mounted, also by a previous run of Wherry.
    pub(super) fn update_volumes(&mut self, pod: &Rc<Pod>, runs: bool, ctx: &mut Context<'_>) {
        let mounted = matches!(self.volumes.mounts, Mounts::Mounted) || runs;
        match self.volumes.update {
            Update::NotNeeded => return,
            Update::RetryAt(at) if at > ctx.now.boot => return self.timer.wake_at(at),
            Update::Due | Update::RetryAt(_) => {}
        }
        // The end of the operation, or of the write of the record, causes a step.
        let busy = self.ops.is_updating_volumes() || self.ops.is_active();
        if !self.extras.volumes || !mounted || busy || !self.record.is_durable() {
            return;
        }
        self.volumes.update = Update::NotNeeded;
        // If an object was removed, its volume keeps its files, as in a kubelet. The others follow their objects.
        let (volumes, unresolved) = resolved(pod, ctx);
        for why in unresolved.difference(&self.volumes.unresolved) {
            ctx.emit_warning(Some(pod), None, Reason::FailedMount, format!("{why}; the volume keeps its files"));
        }
        self.volumes.unresolved = unresolved;
        if !volumes.is_empty() {
            let op = ctx.volumes(&self.uid, VolumesCall::Mount { uid: self.uid.clone(), volumes });
            self.ops.start_background(op, BackgroundOp::UpdateVolumes);
        }
    }

    pub(super) fn volumes_updated(&mut self, result: Result<(), OpError>, ctx: &mut Context<'_>) {
        match result {
            Ok(()) => self.volumes.mounts = Mounts::Mounted,
            Err(e) => {
                self.volumes.update = Update::RetryAt(ctx.now.boot + ctx.after_error());
                ctx.emit_warning(self.pod.as_ref(), None, Reason::FailedMount, e.message().to_string());
            }
        }
    }

    pub(super) fn volumes_mounted(&mut self, result: Result<(), OpError>, ctx: &mut Context<'_>) {
        match result {
            Ok(()) => self.volumes.mounts = Mounts::Mounted,
            Err(e) => self.mount_failed(e.message().to_string(), ctx),
        }
    }

    fn mount_failed(&mut self, why: String, ctx: &mut Context<'_>) {
        let retry_at = ctx.now.boot + ctx.after_error();
        self.volumes.mounts = Mounts::Unknown { retry_at: Some(retry_at) };
        self.timer.wake_at(retry_at);
        ctx.emit_warning(self.pod.as_ref(), None, Reason::FailedMount, why);
    }

    /// Returns true once nothing is mounted any more. An orphan has no spec, so it may have volumes.
    pub(super) fn unmount_volumes(&mut self, ctx: &mut Context<'_>) -> bool {
        if self.pod.is_some() && !self.extras.volumes && !self.volumes.found {
            return true;
        }
        match self.volumes.mounts {
            Mounts::Unmounted => return true,
            _ if self.ops.is_unmounting() || self.ops.is_updating_volumes() => return false,
            Mounts::NotUnmounted(retry) => {
                if let Some(at) = retry.waits_until(ctx.now.boot) {
                    self.timer.wake_at(at);
                    return false;
                }
            }
            Mounts::Unknown { .. } | Mounts::Mounted => {}
        }
        let op = ctx.volumes(&self.uid, VolumesCall::Unmount { uid: self.uid.clone() });
        self.ops.start_background(op, BackgroundOp::Unmount);
        false
    }

    pub(super) fn volumes_unmounted(&mut self, result: Result<(), OpError>, ctx: &mut Context<'_>) {
        match result {
            Ok(()) => self.volumes.mounts = Mounts::Unmounted,
            Err(e) => {
                let mut retry = match self.volumes.mounts {
                    Mounts::NotUnmounted(retry) => retry,
                    _ => Retry::default(),
                };
                retry.failed(ctx);
                self.volumes.mounts = Mounts::NotUnmounted(retry);
                let message = e.message().to_string();
                ctx.emit_warning(self.pod.as_ref(), None, Reason::FailedUnMount, message);
            }
        }
    }
}
