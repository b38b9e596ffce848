//! How the process stops after SIGTERM or SIGINT. Pods keep running (S10).

use crate::api::time::Boot;
use std::time::Duration;

/// Maximum time until the last records are written. It is shorter than `TimeoutStopSec`, after which systemd kills
/// the service.
const LONGEST: Duration = Duration::from_secs(5);

pub(super) enum Course {
    Runs,
    /// The last records are being written.
    Stops {
        until: Boot,
    },
}

impl Course {
    /// Handles a signal that requests the end of the process. Returns true for the first signal. A second signal ends
    /// the process at once.
    pub(super) fn stop(&mut self, now: Boot) -> bool {
        let is_first = matches!(self, Course::Runs);
        *self = Course::Stops { until: if is_first { now + LONGEST } else { now } };
        is_first
    }

    pub(super) fn stops_at(&self) -> Option<Boot> {
        match self {
            Course::Runs => None,
            Course::Stops { until } => Some(*until),
        }
    }

    /// Reports whether the process can exit. `writes_records` tells whether some records are not durable yet,
    /// `reports_written` whether the last attempt to write the reports has ended.
    pub(super) fn has_stopped(&self, writes_records: bool, reports_written: bool, now: Boot) -> bool {
        let Course::Stops { until } = *self else { return false };
        if writes_records && until <= now {
            log::warn!("stopping before the last records are written");
        }
        !writes_records && reports_written || until <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_waits_for_its_last_records_and_reports_up_to_five_seconds() {
        let mut course = Course::Runs;
        assert!(!course.has_stopped(false, true, Boot(0)) && course.stops_at().is_none());
        assert!(course.stop(Boot(0)));
        let late = Boot(0) + LONGEST;
        assert_eq!(course.stops_at(), Some(late));
        assert!(!course.has_stopped(true, true, Boot(1)) && !course.has_stopped(false, false, Boot(1)));
        assert!(course.has_stopped(false, true, Boot(1)) && course.has_stopped(true, false, late));
        assert!(!course.stop(Boot(2)), "the second signal");
        assert!(course.has_stopped(true, false, Boot(2)));
    }
}
