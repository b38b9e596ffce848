//! When a watch gets a bookmark: an event that has only the current version, so that a client whose watch has seen no
//! change for a long time can continue from there.

use crate::api::time::Boot;
use std::time::Duration;

/// As an API server.
pub const PERIOD: Duration = Duration::from_secs(60);

/// The time of the next bookmark of a watch. All watches have theirs at the same times, so that they need one turn of
/// the loop in each period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bookmarks {
    next: Boot,
}

impl Bookmarks {
    /// For a watch that begins now. Its first bookmark is due after half a period to one and a half.
    pub fn new(now: Boot) -> Bookmarks {
        Bookmarks { next: after(now + PERIOD / 2) }
    }

    pub fn next(self) -> Boot {
        self.next
    }

    /// Whether a bookmark is due. True once for each time.
    pub fn take_due(&mut self, now: Boot) -> bool {
        let is_due = self.next <= now;
        if is_due {
            // After a suspend, the periods that passed meanwhile get no bookmarks.
            self.next = after(now);
        }
        is_due
    }
}

/// The first common time after `at`.
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
