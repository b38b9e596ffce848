//! The duration metrics of a worker (M): the time until its first sync, the time of each piece of work, and how long a
//! new status waited for publication.
//!
//! In a kubelet, one piece of work is one procedure call. Here it lasts from the request until none of the resulting
//! operations is in flight or waits for a slot.

use super::ops::{ActiveOp, Operations};
use super::pod_record::PodRecord;
use super::state::State;
use crate::api::names::Uid;
use crate::api::pod::Pod;
use crate::api::reason::Reason;
use crate::api::time::Boot;
use crate::engine::context::Context;
use crate::engine::effect::Measure;
use serde::Serialize;
use std::time::Duration;

#[derive(Debug, Serialize)]
pub struct Measured {
    /// The time when the worker was created.
    made: Boot,
    /// True once the first sync was measured.
    begun: bool,
    /// True once the first start of all containers was measured, or if it happened in a previous run.
    started: bool,
    /// The work in progress, with the kubelet's name for it, and the time of the request.
    work: Option<(&'static str, Boot)>,
    /// The time at which a new status began to wait for publication.
    status_since: Option<Boot>,
}

impl Measured {
    pub fn new(made: Boot) -> Measured {
        Measured { made, begun: false, started: false, work: None, status_since: None }
    }

    /// Starts to measure the kill of a pod whose worker was created to terminate it.
    pub fn kill_began(&mut self) {
        self.work = Some(("kill", self.made));
    }

    /// Notes that the pod started in a previous run, so that its start is not measured.
    pub fn started_before(&mut self) {
        self.started = true;
    }

    /// Starts to measure a piece of work; the previous one ends.
    pub fn begin_work(&mut self, operation: &'static str, ctx: &mut Context<'_>) {
        self.end_work(ctx);
        self.work = Some((operation, ctx.now.boot));
    }

    pub fn end_work(&mut self, ctx: &mut Context<'_>) {
        if let Some((operation, began)) = self.work.take() {
            ctx.outbox.measure(Measure::PodWorkerDuration { operation, duration: ctx.now.boot.since(began) });
        }
    }

    /// Measures the first sync of the worker, which counts as the operation `create`. Its time starts with the
    /// creation of the worker.
    pub fn first_sync(&mut self, pod: &Pod, ctx: &mut Context<'_>) {
        if !std::mem::replace(&mut self.begun, true) {
            ctx.outbox.measure(Measure::PodWorkerStartDuration(ctx.now.boot.since(self.made)));
            ctx.outbox.measure(Measure::ContainersPerPod(pod.containers().len()));
            self.work = Some(("create", self.made));
        }
    }

    /// Measures the start of the pod once all its containers run.
    pub fn all_run(&mut self, ctx: &mut Context<'_>) {
        if !std::mem::replace(&mut self.started, true) {
            ctx.outbox.measure(Measure::PodStartDuration(ctx.now.boot.since(self.made)));
        }
    }

    /// Starts or ends the measured work after a step of a sync. A step that waits for an operation in flight skips
    /// this call.
    pub fn sync(&mut self, uid: &Uid, state: &State, ops: &Operations, record: &PodRecord, ctx: &mut Context<'_>) {
        let doing = ops.active().is_some_and(ActiveOp::is_sync_work);
        let busy = doing || ops.is_stopping() || ctx.slots.waits(uid);
        // A sync waits for the write of the record before it creates a container. The write alone is not a sync.
        let queued = matches!(state, State::Sync(sync) if sync.starting.pull().is_some());
        let waits = queued || record.is_writing();
        match (state, self.work) {
            (State::Sync(_), None) if busy => self.begin_work("sync", ctx),
            (State::Sync(_), Some(_)) if busy || waits => {}
            // The kill of the pod is measured until its end.
            (_, Some(("kill", _))) => {}
            _ => self.end_work(ctx),
        }
    }

    /// Notes that a new status has to wait before it can be published.
    pub fn status_waits(&mut self, ctx: &Context<'_>) {
        self.status_since.get_or_insert(ctx.now.boot);
    }

    /// Returns how long the status that is being published has waited.
    pub fn status_waited(&mut self, ctx: &Context<'_>) -> Duration {
        self.status_since.take().map_or(Duration::ZERO, |at| ctx.now.boot.since(at))
    }
}

/// Returns the type of the container for the metrics. As in a kubelet, sidecars count as init containers.
pub(super) fn container_type(pod: &Pod, index: usize) -> &'static str {
    match index {
        _ if pod.is_init(index) => "init_container",
        _ if index >= pod.first_ephemeral() => "ephemeral_container",
        _ => "container",
    }
}

/// Counts a failed start of a container. `code` is its waiting reason.
pub(super) fn measure_start_error(pod: &Pod, index: usize, code: Reason, ctx: &mut Context<'_>) {
    ctx.outbox.measure(Measure::StartedContainerError { container_type: container_type(pod, index), code });
}
