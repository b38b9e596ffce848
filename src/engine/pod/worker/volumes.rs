//! A pod's volumes: all are mounted before its sandbox and its first container, and removed before its cgroup (W2).
//!
//! After a restart Wherry does not know whether they are mounted. It requests them again before it starts something.

use super::stops::retry_after;
use super::{ActiveOp, BackgroundOp, Record, Worker};
use crate::api::pod::Pod;
use crate::api::time::Boot;
use crate::engine::context::Context;
use crate::engine::effect::{Severity, VolumesCall};
use crate::engine::op::OpError;
use serde::Serialize;
use std::rc::Rc;

#[derive(Debug, Default, Serialize)]
pub struct Volumes {
    mounted: bool,
    unmounted: bool,
    /// The pod's directory is from a previous run. It may contain volumes, whatever the spec contains now.
    found: bool,
    tries: u32,
    /// No call before this time, because the last one failed.
    hold: Option<Boot>,
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

    /// The volumes permit to start something of the pod, or to mount them now.
    pub(super) fn volumes_may_be_mounted(&mut self, ctx: &Context<'_>) -> bool {
        if !self.extras.volumes || self.volumes.mounted {
            return true;
        }
        match self.volumes.hold.filter(|at| *at > ctx.now.boot) {
            Some(at) => {
                self.wake_at(at);
                false
            }
            // The pod's record must exist first, so that a later run finds the mounts.
            None => self.record != Record::Writing,
        }
    }

    /// Returns true if the volumes are mounted; otherwise requests the mount.
    pub(super) fn mount_volumes(&mut self, pod: &Rc<Pod>, ctx: &mut Context<'_>) -> bool {
        if !self.extras.volumes || self.volumes.mounted {
            return true;
        }
        if self.record == Record::Durable {
            let op = ctx.volumes(&self.uid, VolumesCall::Mount { pod: pod.clone() });
            self.op = Some((op, ActiveOp::MountVolumes));
        }
        false
    }

    pub(super) fn volumes_mounted(&mut self, result: Result<(), OpError>, ctx: &mut Context<'_>) {
        match result {
            Ok(()) => self.volumes.mounted = true,
            Err(e) => {
                self.volumes.hold = Some(ctx.now.boot + ctx.after_error());
                let message = e.message().to_string();
                ctx.tell(self.pod.as_ref(), None, (Severity::Warning, "FailedMount"), message);
            }
        }
    }

    /// Returns true once nothing is mounted any more. An orphan has no spec, so it may have volumes.
    pub(super) fn unmount_volumes(&mut self, ctx: &mut Context<'_>) -> bool {
        if self.volumes.unmounted || self.pod.is_some() && !self.extras.volumes && !self.volumes.found {
            return true;
        }
        if self.background.values().any(|b| matches!(b, BackgroundOp::Unmount)) {
            return false;
        }
        if let Some(at) = self.volumes.hold.filter(|at| self.volumes.tries > 0 && *at > ctx.now.boot) {
            self.wake_at(at);
            return false;
        }
        let op = ctx.volumes(&self.uid, VolumesCall::Unmount { uid: self.uid.clone() });
        self.background.insert(op, BackgroundOp::Unmount);
        false
    }

    pub(super) fn volumes_unmounted(&mut self, result: Result<(), OpError>, ctx: &mut Context<'_>) {
        match result {
            Ok(()) => self.volumes.unmounted = true,
            Err(e) => {
                self.volumes.hold = Some(ctx.now.boot + retry_after(self.volumes.tries, ctx));
                self.volumes.tries = self.volumes.tries.saturating_add(1);
                let message = e.message().to_string();
                ctx.tell(self.pod.as_ref(), None, (Severity::Warning, "FailedUnMount"), message);
            }
        }
    }
}
