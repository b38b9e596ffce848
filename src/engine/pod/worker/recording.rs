//! Writes a pod's record (W25). The worker's state machines request it (`pod_record`).

use super::Worker;
use super::ops::BackgroundOp;
use crate::api::time::Now;
use crate::engine::context::Context;
use crate::engine::effect::RecordChange;
use crate::engine::pod::record::{self, Record, Snapshot, WriteTime};
use std::time::Duration;

impl Worker {
    /// Writes the record if a write is requested. All requests of a step need only one write.
    pub fn write_record(&mut self, ctx: &mut Context<'_>) {
        if !self.record.take_request() {
            return;
        }
        let Some(pod) = self.pod.clone() else { return };
        let Now { boot, wall } = ctx.now;
        let (state, demand, grace) = (&self.state, &self.demand, pod.grace_period());
        self.record.write_began(demand.replaced);
        let snapshot = Snapshot {
            written: Some(WriteTime { boot_id: ctx.config.fixed.boot_id.clone(), boot, wall }),
            active: self.deadline.map_or(Duration::ZERO, |d| d.active(boot)),
            rejected: self.admission.recorded_rejection(self.pod.as_ref()).cloned(),
            again: self.demand.replaced,
            waits_for: self.demand.waits_for.clone(),
            termination: self.ending.open_termination(state, demand, grace, ctx.now),
            resizing: self.in_place.resize.outdated().cloned(),
        };
        if let Some(deadline) = &mut self.deadline {
            deadline.record_began(boot);
        }
        let terminal = self.ending.end.is_terminal().then(|| self.shown.status.clone());
        let value = record::write(&Record { pod, terminal, history: self.history.clone(), snapshot });
        let op = ctx.record(&self.uid, RecordChange::Put { key: record::key(&self.uid), value });
        self.ops.start_background(op, BackgroundOp::Record);
    }
}
