//! `activeDeadlineSeconds` (W1): how long the pod has been active, across restarts of Wherry and boots of the node.
//!
//! The time counts on the boot clock. The record contains the active time so far and the time of the write. The wall clock
//! plays no part: on a node whose clock has no battery it starts in 1970 and jumps by decades when it is synchronized. So a pod
//! never ends too early. Time that was not measured does not count: the time while the node was off and, after a power failure,
//! the time since the last write of the record.

use super::{Record, Worker};
use crate::api::time::Boot;
use crate::engine::context::Context;
use std::time::Duration;

/// The record is written again after a tenth of the deadline, but not more often than this, to spare flash memory.
const LEAST_KEPT: Duration = Duration::from_secs(60);

/// The period at which the record of a pod with this deadline is written.
pub(super) fn kept_every(deadline: Duration) -> Duration {
    (deadline / 10).max(LEAST_KEPT)
}

impl Worker {
    /// The part of the deadline that has passed; zero for a pod without one.
    pub(super) fn active_time(&self, now: Boot) -> Duration {
        let whole = self.pod.as_ref().and_then(|p| p.active_deadline());
        let left = self.deadline.map(|at| at.since(now));
        whole.zip(left).map_or(Duration::ZERO, |(whole, left)| whole.saturating_sub(left))
    }

    /// Sets the deadline of a pod that has been active for `passed`.
    pub(super) fn was_active(&mut self, passed: Duration, now: Boot) {
        if let Some(whole) = self.pod.as_ref().and_then(|p| p.active_deadline()) {
            self.deadline = Some(now + whole.saturating_sub(passed));
            self.active_due = Some(now + kept_every(whole));
        }
    }

    /// Writes the active time into the record when that is due.
    pub(super) fn keep_active_time(&mut self, ctx: &mut Context<'_>) {
        let Some(at) = self.active_due else { return };
        if matches!(self.record, Record::None | Record::Writing) {
            return;
        }
        if at > ctx.now.boot {
            return self.wake_at(at);
        }
        let (termination, terminal) = self.end_so_far(ctx);
        self.put_record(termination, terminal, ctx);
    }
}
