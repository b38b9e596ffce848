//! `activeDeadlineSeconds` (W1): how long the pod has been active, across restarts of Wherry and boots of the node.
//!
//! The active time is measured on the boot clock. The record contains the active time so far and the time of the
//! write. The wall clock plays no part: on a node whose clock has no battery it starts in 1970 and jumps by decades
//! when it is synchronized. Therefore a pod never ends too early. Time that was not measured does not count: the time
//! while the node was off and, after a power failure, the time since the last write of the record.

use super::pod_record::PodRecord;
use super::timer::Timer;
use crate::api::pod::Pod;
use crate::api::time::Boot;
use serde::Serialize;
use std::time::Duration;

/// The record is written again after a tenth of the deadline, but not more often than this, to spare flash memory.
const LEAST_KEPT: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, Serialize)]
pub struct ActiveDeadline {
    whole: Duration,
    at: Boot,
    /// When the record is next due to be written with the active time.
    record_due: Option<Boot>,
}

impl ActiveDeadline {
    /// Returns the deadline of a pod that starts now.
    pub fn new(whole: Duration, now: Boot) -> ActiveDeadline {
        ActiveDeadline { whole, at: now + whole, record_due: None }
    }

    /// Returns the deadline of a pod that has been active for `passed`, according to its record.
    pub fn after(whole: Duration, passed: Duration, now: Boot) -> ActiveDeadline {
        let mut deadline = ActiveDeadline { whole, at: now + whole.saturating_sub(passed), record_due: None };
        deadline.record_began(now);
        deadline
    }

    /// Returns the deadline of a running pod whose deadline changes. If the pod had a deadline before, its active
    /// time continues. Otherwise the active time was not measured, and starts now.
    pub fn changed(before: Option<ActiveDeadline>, pod: &Pod, now: Boot) -> Option<ActiveDeadline> {
        pod.active_deadline().map(|whole| match before {
            Some(before) => ActiveDeadline::after(whole, before.active(now), now),
            None => ActiveDeadline::new(whole, now),
        })
    }

    pub fn at(&self) -> Boot {
        self.at
    }

    /// Returns the active time so far.
    pub fn active(&self, now: Boot) -> Duration {
        self.whole.saturating_sub(self.at.since(now))
    }

    /// Notes that a write of the record with the active time has begun.
    pub fn record_began(&mut self, now: Boot) {
        self.record_due = Some(now + (self.whole / 10).max(LEAST_KEPT));
    }

    /// Writes the active time into the record when that is due.
    pub fn keep_active_time(&self, record: &mut PodRecord, timer: &mut Timer, now: Boot) {
        let Some(at) = self.record_due else { return };
        if !record.exists() || record.is_writing() {
            return;
        }
        if at > now {
            return timer.wake_at(at);
        }
        record.update();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w1_the_active_time_continues_after_a_restart_of_wherry() {
        let hour = Duration::from_secs(3600);
        let before = ActiveDeadline::new(hour, Boot(0));
        let passed = before.active(Boot(0) + hour / 4);
        assert_eq!(passed, hour / 4);
        let after = ActiveDeadline::after(hour, passed, Boot(0) + hour);
        assert_eq!(after.at(), Boot(0) + hour + hour * 3 / 4);
        assert_eq!(after.record_due, Some(Boot(0) + hour + hour / 10));
        assert_eq!(ActiveDeadline::after(hour, 2 * hour, Boot(5)).at(), Boot(5));
    }

    #[test]
    fn the_record_of_a_short_deadline_is_written_once_a_minute() {
        let mut deadline = ActiveDeadline::new(Duration::from_secs(30), Boot(0));
        assert_eq!(deadline.record_due, None);
        deadline.record_began(Boot(0));
        assert_eq!(deadline.record_due, Some(Boot(0) + Duration::from_secs(60)));
    }
}
