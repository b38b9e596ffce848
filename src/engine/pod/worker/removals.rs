//! The removals of what is left of a pod, and their retries (W23, W26).

use super::pod_record::PodRecord;
use super::retry::Retry;
use super::sandbox::Sandbox;
use super::sharing::Sharing;
use super::state::{CgroupRemoval, Directory, State};
use super::timer::Timer;
use crate::api::pod::Pod;
use crate::api::reason::Reason;
use crate::api::time::Boot;
use crate::engine::context::Context;
use crate::engine::op::OpError;
use serde::Serialize;
use std::rc::Rc;

/// The maximum number of retries after a failure to remove a record.
const RECORD_TRIES: u32 = 3;

/// The removals of what is left of the pod.
#[derive(Debug, Default, Serialize)]
pub struct Removals {
    /// The retry after containers, sandboxes, directories or the record could not be removed.
    pub retry: Retry,
    pub sharing: Sharing,
}

impl Removals {
    /// Returns true if the last removal failed recently, and sets the timer for the next attempt.
    pub fn wait(&self, timer: &mut Timer, now: Boot) -> bool {
        let at = self.retry.waits_until(now);
        if let Some(at) = at {
            timer.wake_at(at);
        }
        at.is_some()
    }

    /// Reports a failed removal and schedules a retry. A lost connection is reported elsewhere.
    pub fn failed(&mut self, what: &str, e: &OpError, pod: Option<&Rc<Pod>>, ctx: &mut Context<'_>) {
        if !matches!(e, OpError::NotSent(_)) {
            let message = format!("failed to remove {what}: {e}");
            ctx.emit_warning(pod, None, Reason::FailedCleanup, message);
        }
        self.retry.failed(ctx);
    }

    /// Handles the end of removing the pod's directories. `marker` is the time until which the empty directory stays
    /// (W26).
    pub fn files_removed(
        &mut self,
        marker: Option<Boot>,
        result: Result<(), OpError>,
        pod: Option<&Rc<Pod>>,
        state: &mut State,
        ctx: &mut Context<'_>,
    ) {
        match result {
            Ok(()) => {
                state.set_directory(marker.map_or(Directory::Removed, |until| Directory::KeptAsMarker { until }));
            }
            Err(e) => {
                let message = format!("failed to remove the pod's directories: {}", e.message());
                ctx.emit_warning(pod, None, Reason::FailedCleanup, message);
                self.retry.failed(ctx);
            }
        }
    }

    /// Handles the end of removing the record, and retries a failed removal. A record that remains belongs to a pod
    /// of which nothing else exists; the next start of Wherry removes it.
    pub fn record_removed(
        &mut self,
        result: Result<(), OpError>,
        state: &mut State,
        record: &mut PodRecord,
        ctx: &mut Context<'_>,
    ) {
        if let (Err(_), State::Finished(finished)) = (result, state)
            && finished.record_failures < RECORD_TRIES
        {
            finished.record_failures += 1;
            record.not_removed();
            self.retry.failed(ctx);
        }
    }
}

impl State {
    pub(super) fn cgroup_removed(
        &mut self,
        result: Result<(), OpError>,
        sandbox: &Sandbox,
        pod: Option<&Rc<Pod>>,
        ctx: &mut Context<'_>,
    ) {
        let mut retry = self.cgroup().retry();
        let removal = match result {
            Ok(()) => match sandbox.late(ctx.now.boot) {
                Some(at) => CgroupRemoval::Again { at, retry },
                None => CgroupRemoval::Tried { retry },
            },
            Err(e) => {
                if self.is_finished() {
                    let message = format!("failed to remove the pod's cgroup: {}", e.message());
                    ctx.emit_warning(pod, None, Reason::FailedCleanup, message);
                }
                retry.failed(ctx);
                CgroupRemoval::Again { at: retry.waits_until(ctx.now.boot).unwrap_or(ctx.now.boot), retry }
            }
        };
        self.set_cgroup(removal);
    }
}
