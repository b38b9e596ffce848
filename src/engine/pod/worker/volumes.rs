//! A pod's volumes: all are mounted before its sandbox and its first container, and removed before its cgroup (W2).
//! Volumes with a token that has not been issued yet are mounted after the sandbox (C4).
//!
//! After a restart Wherry does not know whether they are mounted, so it requests the mounts again before it starts
//! anything.

use super::ops::{ActiveOp, BackgroundOp, Operations};
use super::pod_record::PodRecord;
use super::retry::Retry;
use super::timer::Timer;
use crate::api::claim::ClaimKey;
use crate::api::environment::{ClusterValues, Facts};
use crate::api::names::Uid;
use crate::api::pod::Pod;
use crate::api::reason::Reason;
use crate::api::service_token;
use crate::api::time::Boot;
use crate::api::volume::Volume;
use crate::api::volume_contents;
use crate::engine::context::Context;
use crate::engine::effect::VolumesCall;
use crate::engine::op::OpError;
use crate::engine::pod::plan::next_step::Next;
use serde::Serialize;
use std::collections::BTreeSet;
use std::rc::Rc;

#[derive(Debug, Default, Serialize)]
pub struct Volumes {
    /// The pod's directory is from a previous run. It may contain volumes, whatever the spec contains now.
    found: bool,
    /// A mount was requested since the last unmount.
    requested: bool,
    mounts: Mounts,
    update: Update,
    /// The reasons why volumes keep the files of objects that no longer exist. Each is reported once.
    unresolved: BTreeSet<String>,
}

/// Whether the files of mounted volumes have to be updated from their objects (D6).
#[derive(Debug, Default, Serialize)]
enum Update {
    #[default]
    NotNeeded,
    Due,
    /// The last update failed.
    RetryAt(Boot),
}

/// Whether a pod has its volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumesHold {
    /// It has not mounted them yet.
    Waits,
    /// It has mounted them, or may have done so.
    Holds,
    /// It does not need them any more.
    Ended,
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

/// The volumes of a pod with their contents.
#[derive(Default)]
struct Resolved {
    volumes: Vec<Volume>,
    /// The reasons why other volumes have none.
    unresolved: BTreeSet<String>,
    /// The directory of a claim is being created.
    waits: bool,
}

fn resolved(pod: &Pod, ctx: &Context<'_>) -> Resolved {
    let allocatable = &ctx.config.node.allocatable;
    let facts = Facts {
        pod,
        ips: &[],
        host_ips: &[],
        allocatable,
        objects: ctx.objects.data,
        services: None,
        cluster: ctx.cluster,
    };
    let mut all = Resolved::default();
    let find = |pod: &Pod, key: &ClaimKey| ctx.objects.claims.find(pod, key);
    for one in volume_contents::resolve(facts, &find) {
        match one {
            Ok(volume) => all.volumes.push(volume),
            Err(why) if why.is_expected => all.waits = true,
            Err(why) => drop(all.unresolved.insert(why.to_string())),
        }
    }
    all
}

/// Returns true if the pod has volumes.
fn has_volumes(pod: Option<&Rc<Pod>>) -> bool {
    pod.is_some_and(|pod| pod.spec().volumes.as_ref().is_some_and(|volumes| !volumes.is_empty()))
}

impl Volumes {
    /// Notes that a ConfigMap, a Secret, a token or the pod's metadata has changed. Volumes that wait for it are
    /// mounted now.
    pub fn outdated(&mut self) {
        self.update = Update::Due;
        self.claims_changed();
    }

    /// Notes that a claim of the pod can be used now. Volumes that wait for it are mounted now.
    pub fn claims_changed(&mut self) {
        if let Mounts::Unknown { retry_at } = &mut self.mounts {
            *retry_at = None;
        }
    }

    /// Notes that the pod's directory existed when Wherry started.
    pub fn has_directory(&mut self) {
        self.found = true;
    }

    /// Returns true if the pod's directory existed when Wherry started: the pod started in a previous run, whatever
    /// its record says.
    pub fn had_directory(&self) -> bool {
        self.found
    }

    /// Returns whether the pod has its volumes.
    pub fn hold(&self) -> VolumesHold {
        match self.mounts {
            Mounts::Mounted | Mounts::NotUnmounted(_) => VolumesHold::Holds,
            Mounts::Unknown { .. } if self.found || self.requested => VolumesHold::Holds,
            Mounts::Unknown { .. } => VolumesHold::Waits,
            Mounts::Unmounted => VolumesHold::Ended,
        }
    }

    fn needs_no_mount(&self, pod: &Rc<Pod>) -> bool {
        !has_volumes(Some(pod)) || matches!(self.mounts, Mounts::Mounted)
    }

    /// Returns true if the volumes are mounted or not needed, or can be mounted now, so that something of the pod can
    /// start.
    pub fn may_be_mounted(&self, pod: &Rc<Pod>, record: &PodRecord, timer: &mut Timer, now: Boot) -> bool {
        if self.needs_no_mount(pod) {
            return true;
        }
        match self.mounts {
            Mounts::Unknown { retry_at: Some(at) } if at > now => {
                timer.wake_at(at);
                false
            }
            // The pod's record must exist first, so that a later run finds the mounts.
            _ => !record.is_writing(),
        }
    }

    /// C4: returns true if the volumes are mounted after the sandbox is started: the sandbox does not wait for a
    /// token that the API server has not issued yet.
    pub fn follow(&self, pod: &Pod, next: &Next, ctx: &Context<'_>) -> bool {
        let is_awaited = |values: ClusterValues<'_>| {
            let mut keys = service_token::of_pod(pod);
            keys.any(|key| values.tokens.awaits(&key))
        };
        matches!(next, Next::RunSandbox { .. })
            && matches!(self.mounts, Mounts::Unknown { .. })
            && ctx.cluster.is_some_and(is_awaited)
    }

    /// Returns true if the volumes are mounted; otherwise requests the mount.
    pub fn mount(
        &mut self,
        pod: &Rc<Pod>,
        record: &PodRecord,
        ops: &mut Operations,
        timer: &mut Timer,
        ctx: &mut Context<'_>,
    ) -> bool {
        if self.needs_no_mount(pod) {
            return true;
        }
        // Two set-ups of a volume at the same time would remove each other's files.
        if !record.is_durable() || ops.is_updating_volumes() {
            return false;
        }
        let Resolved { volumes, unresolved, waits } = resolved(pod, ctx);
        if let Some(why) = unresolved.into_iter().next() {
            self.mount_failed(why, pod, timer, ctx);
            return false;
        }
        if waits {
            self.mount_later(timer, ctx);
            return false;
        }
        self.update = Update::NotNeeded;
        self.unresolved.clear();
        self.requested = true;
        let op = ctx.volumes(&pod.uid, VolumesCall::Mount { uid: pod.uid.clone(), volumes });
        ops.start(op, ActiveOp::MountVolumes);
        false
    }

    /// D6: brings the files of the volumes up to date while containers run. `runs` says that a container of the pod
    /// runs, so its volumes are mounted, perhaps by a previous run of Wherry.
    pub fn update(
        &mut self,
        pod: &Rc<Pod>,
        runs: bool,
        record: &PodRecord,
        ops: &mut Operations,
        timer: &mut Timer,
        ctx: &mut Context<'_>,
    ) {
        let mounted = matches!(self.mounts, Mounts::Mounted) || runs;
        match self.update {
            Update::NotNeeded => return,
            Update::RetryAt(at) if at > ctx.now.boot => return timer.wake_at(at),
            Update::Due | Update::RetryAt(_) => {}
        }
        // A step follows when the operation or the write of the record ends.
        let busy = ops.is_updating_volumes() || ops.is_active();
        if !has_volumes(Some(pod)) || !mounted || busy || !record.is_durable() {
            return;
        }
        self.update = Update::NotNeeded;
        // If an object was removed, its volume keeps its files, as in a kubelet. The other volumes follow their
        // objects.
        let Resolved { volumes, unresolved, .. } = resolved(pod, ctx);
        for why in unresolved.difference(&self.unresolved) {
            ctx.emit_warning(Some(pod), None, Reason::FailedMount, format!("{why}; the volume keeps its files"));
        }
        self.unresolved = unresolved;
        if !volumes.is_empty() {
            let op = ctx.volumes(&pod.uid, VolumesCall::Mount { uid: pod.uid.clone(), volumes });
            ops.start_background(op, BackgroundOp::UpdateVolumes);
        }
    }

    pub fn updated(&mut self, result: Result<(), OpError>, pod: Option<&Rc<Pod>>, ctx: &mut Context<'_>) {
        match result {
            Ok(()) => self.mounts = Mounts::Mounted,
            Err(e) => {
                self.update = Update::RetryAt(ctx.now.boot + ctx.after_error());
                ctx.emit_warning(pod, None, Reason::FailedMount, e.message().to_string());
            }
        }
    }

    pub fn mounted(&mut self, result: Result<(), OpError>, pod: &Rc<Pod>, timer: &mut Timer, ctx: &mut Context<'_>) {
        match result {
            Ok(()) => self.mounts = Mounts::Mounted,
            Err(e) => self.mount_failed(e.message().to_string(), pod, timer, ctx),
        }
    }

    fn mount_failed(&mut self, why: String, pod: &Rc<Pod>, timer: &mut Timer, ctx: &mut Context<'_>) {
        self.mount_later(timer, ctx);
        ctx.emit_warning(Some(pod), None, Reason::FailedMount, why);
    }

    fn mount_later(&mut self, timer: &mut Timer, ctx: &mut Context<'_>) {
        let retry_at = ctx.now.boot + ctx.after_error();
        self.mounts = Mounts::Unknown { retry_at: Some(retry_at) };
        timer.wake_at(retry_at);
    }

    /// Requests the unmount of the volumes. Returns true once nothing is mounted any more. An orphan has no spec, so
    /// it may have volumes.
    pub fn unmount(
        &mut self,
        uid: &Uid,
        pod: Option<&Rc<Pod>>,
        ops: &mut Operations,
        timer: &mut Timer,
        ctx: &mut Context<'_>,
    ) -> bool {
        if pod.is_some() && !has_volumes(pod) && !self.found {
            return true;
        }
        match self.mounts {
            Mounts::Unmounted => return true,
            _ if ops.is_unmounting() || ops.is_updating_volumes() => return false,
            Mounts::NotUnmounted(retry) => {
                if let Some(at) = retry.waits_until(ctx.now.boot) {
                    timer.wake_at(at);
                    return false;
                }
            }
            Mounts::Unknown { .. } | Mounts::Mounted => {}
        }
        let op = ctx.volumes(uid, VolumesCall::Unmount { uid: uid.clone() });
        ops.start_background(op, BackgroundOp::Unmount);
        false
    }

    pub fn unmounted(&mut self, result: Result<(), OpError>, pod: Option<&Rc<Pod>>, ctx: &mut Context<'_>) {
        match result {
            Ok(()) => (self.mounts, self.requested) = (Mounts::Unmounted, false),
            Err(e) => {
                let mut retry = match self.mounts {
                    Mounts::NotUnmounted(retry) => retry,
                    _ => Retry::default(),
                };
                retry.failed(ctx);
                self.mounts = Mounts::NotUnmounted(retry);
                let message = e.message().to_string();
                ctx.emit_warning(pod, None, Reason::FailedUnMount, message);
            }
        }
    }
}
