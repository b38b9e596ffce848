//! What a worker tells of its own pace (M): how long it took until it began, how long each piece of its work took, and how
//! long a new status waited to be shown.
//!
//! A kubelet's worker is a procedure, and its work is one call of it. Here a piece of work lasts from its request until
//! nothing that came of it is in flight or waits for its turn.

use super::{ActiveOp, Record, State, Worker};
use crate::api::pod::Pod;
use crate::api::time::Boot;
use crate::engine::context::Context;
use crate::engine::effect::Measure;
use serde::Serialize;
use std::time::Duration;

#[derive(Debug, Default, Serialize)]
pub struct Measured {
    /// The first sync was counted.
    begun: bool,
    /// The work under way, by a kubelet's name of it, and when it was asked for.
    work: Option<(&'static str, Boot)>,
    /// Since when there is something new to show that cannot be shown yet.
    status_since: Option<Boot>,
}

impl Measured {
    /// Of a worker that was made for its pod's end.
    pub fn killed(at: Boot) -> Measured {
        Measured { work: Some(("kill", at)), ..Measured::default() }
    }
}

impl Worker {
    /// Work was asked for; what was under way ends with it.
    pub(super) fn begin_work(&mut self, operation: &'static str, ctx: &mut Context<'_>) {
        self.end_work(ctx);
        self.measured.work = Some((operation, ctx.now.boot));
    }

    pub(super) fn end_work(&mut self, ctx: &mut Context<'_>) {
        if let Some((operation, began)) = self.measured.work.take() {
            ctx.measure(Measure::PodWorkerDuration { operation, duration: ctx.now.boot.since(began) });
        }
    }

    /// A worker's first sync is the create, asked for when the pod was first seen.
    pub(super) fn measure_first_sync(&mut self, pod: &Pod, ctx: &mut Context<'_>) {
        if !std::mem::replace(&mut self.measured.begun, true) {
            ctx.measure(Measure::PodWorkerStartDuration(ctx.now.boot.since(self.made)));
            ctx.measure(Measure::ContainersPerPod(pod.containers().len()));
            self.measured.work = Some(("create", self.made));
        }
    }

    /// After each step of a sync that has no operation in flight, or did not before it: has something begun, or is all done?
    pub(super) fn measure_sync(&mut self, ctx: &mut Context<'_>) {
        // What is taken away in the background is no sync.
        let doing = match &self.op {
            None | Some((_, ActiveOp::RemoveContainer { .. } | ActiveOp::RemoveSandbox { .. })) => false,
            Some(_) => true,
        };
        let busy = doing || self.stopping() || ctx.slots.waits(&self.uid);
        // The pod's record is waited for before a container is made; writing it is no sync by itself.
        let waits = self.pull_wanted.is_some() || self.record == Record::Writing;
        match (&self.state, self.measured.work) {
            (State::Sync, None) if busy => self.begin_work("sync", ctx),
            (State::Sync, Some(_)) if busy || waits => {}
            // One that was killed has its own work already.
            (_, Some(("kill", _))) => {}
            _ => self.end_work(ctx),
        }
    }

    /// There is something new to show, and something to wait for.
    pub(super) fn status_waits(&mut self, ctx: &Context<'_>) {
        self.measured.status_since.get_or_insert(ctx.now.boot);
    }

    /// The status is made now: how long it waited.
    pub(super) fn status_waited(&mut self, ctx: &Context<'_>) -> Duration {
        self.measured.status_since.take().map_or(Duration::ZERO, |at| ctx.now.boot.since(at))
    }
}

/// Sidecars are init containers here, as in a kubelet.
pub(super) fn container_type(pod: &Pod, index: usize) -> &'static str {
    if pod.is_init(index) { "init_container" } else { "container" }
}

/// A container's start came to nothing. `code` is its waiting reason.
pub(super) fn measure_start_error(pod: &Pod, index: usize, code: &'static str, ctx: &mut Context<'_>) {
    ctx.measure(Measure::StartedContainerError { container_type: container_type(pod, index), code });
}
