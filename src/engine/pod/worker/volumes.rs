//! A pod's volumes: all mounted before its sandbox and its first container, and taken away before its cgroup (W2).
//!
//! Whether they are there is not known to a new wherry: it asks for them once more before it starts something.

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
    /// The pod's directory is of an earlier life: whatever its spec says now, volumes may be in it.
    found: bool,
    tries: u32,
    /// The last call failed: not again before.
    hold: Option<Boot>,
}

impl Worker {
    /// The pod's directory was there when wherry started.
    pub fn has_directory(&mut self) {
        self.volumes.found = true;
    }

    /// It began in an earlier life, whatever its record says.
    pub fn had_directory(&self) -> bool {
        self.volumes.found
    }

    /// Something of the pod may be started as far as its volumes go.
    pub(super) fn volumes_may_be_mounted(&mut self, ctx: &Context<'_>) -> bool {
        if !self.extras.volumes || self.volumes.mounted {
            return true;
        }
        match self.volumes.hold.filter(|at| *at > ctx.now.boot) {
            Some(at) => {
                self.wake_at(at);
                false
            }
            // What is mounted is found again by the pod's record.
            None => self.record != Record::Writing,
        }
    }

    /// True if they are there; else they are asked for.
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

    /// True once nothing is mounted any more. (Of what has no spec nobody knows whether it has volumes.)
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
