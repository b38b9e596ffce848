//! Schedules the bookmarks of watches. A bookmark is an event that has only the current version. From this version, a
//! client can continue a watch that has seen no change for a long time.

use crate::api::time::Boot;
use std::time::Duration;

/// As in an API server.
pub const PERIOD: Duration = Duration::from_secs(60);

/// The time of the next bookmark of a watch. All watches get their bookmarks at the same time, so one turn of the
/// loop per period serves them all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bookmarks {
    next: Boot,
}

impl Bookmarks {
    /// Schedules the bookmarks of a watch that begins now. The first one is due after half a period to one and a half
    /// periods.
    pub fn new(now: Boot) -> Bookmarks {
        Bookmarks { next: after(now + PERIOD / 2) }
    }

    pub fn next(self) -> Boot {
        self.next
    }

    /// Reports whether a bookmark is due. Returns true only once for each due time.
    pub fn take_due(&mut self, now: Boot) -> bool {
        let is_due = self.next <= now;
        if is_due {
            // After a suspend, the missed bookmarks are skipped.
            self.next = after(now);
        }
        is_due
    }
}

/// Returns the first time after `at` that is a multiple of the period.
fn after(at: Boot) -> Boot {
    let period = PERIOD.as_nanos() as u64;
    Boot((at.0 / period + 1).saturating_mul(period))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(s: u64) -> Boot {
        Boot(s * 1_000_000_000)
    }

    #[test]
    fn all_watches_get_one_bookmark_in_each_period_at_the_same_time() {
        for (begin, first) in [(0, 60), (29, 60), (30, 120), (59, 120), (60, 120), (89, 120), (90, 180)] {
            let mut bookmarks = Bookmarks::new(seconds(begin));
            assert_eq!(bookmarks.next(), seconds(first), "{begin}");
            assert!(!bookmarks.take_due(seconds(first - 1)));
            assert!(bookmarks.take_due(seconds(first)) && !bookmarks.take_due(seconds(first)));
            assert_eq!(bookmarks.next(), seconds(first + 60));
        }
        let mut bookmarks = Bookmarks::new(seconds(0));
        assert!(bookmarks.take_due(seconds(100_000)) && !bookmarks.take_due(seconds(100_000)));
        assert_eq!(bookmarks.next(), seconds(100_020));
    }
}
