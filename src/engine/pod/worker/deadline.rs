//! `activeDeadlineSeconds` (W1): how long the pod has been active, over restarts of wherry and boots of the node.
//!
//! The time counts on the boot clock, and the record holds how much of it has passed, as of when. The wall clock has no say: a
//! node without a battery for its clock starts in 1970, and is half a century older once its time is synchronised. So the pod
//! ends when it has been active for so long, and never sooner. What nobody measured does not count: the time for which the
//! node was off, and after a power cut what passed since the record was last written.

use super::{Record, Worker};
use crate::api::time::Boot;
use crate::engine::context::Context;
use std::time::Duration;

/// The record is written again after a tenth of the deadline, and not sooner than this: flash memory wears out.
const LEAST_KEPT: Duration = Duration::from_secs(60);

/// How often the record of a pod with this deadline is written.
pub(super) fn kept_every(deadline: Duration) -> Duration {
    (deadline / 10).max(LEAST_KEPT)
}

impl Worker {
    /// How much of its deadline has passed; nothing of a pod that has none.
    pub(super) fn active_time(&self, now: Boot) -> Duration {
        let whole = self.pod.as_ref().and_then(|p| p.active_deadline());
        let left = self.deadline.map(|at| at.since(now));
        whole.zip(left).map_or(Duration::ZERO, |(whole, left)| whole.saturating_sub(left))
    }

    /// Its deadline, where so much of it has passed.
    pub(super) fn was_active(&mut self, passed: Duration, now: Boot) {
        if let Some(whole) = self.pod.as_ref().and_then(|p| p.active_deadline()) {
            self.deadline = Some(now + whole.saturating_sub(passed));
            self.active_due = Some(now + kept_every(whole));
        }
    }

    /// Writes the time into the record when that is due.
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
