//! When to connect (or to listen) again: at once if the last connection lasted for a while, otherwise a delay after the
//! last attempt, doubled each time (50 ms to 1 s by default). A restarted peer is found quickly; a peer that stays away
//! costs one attempt a second. Pure.

use crate::api::time::Boot;
use std::time::Duration;

const FIRST: Duration = Duration::from_millis(50);
const MAX: Duration = Duration::from_secs(1);

/// A connection that lasted this long resets the back-off.
const HELD: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct Backoff {
    first: Duration,
    max: Duration,
    /// The start of the last attempt, and the number of consecutive attempts that failed or did not last.
    last: Option<Boot>,
    failures: u32,
}

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff::new(FIRST, MAX)
    }
}

impl Backoff {
    /// `first` is the first delay, `max` the longest.
    pub fn new(first: Duration, max: Duration) -> Backoff {
        Backoff { first, max, last: None, failures: 0 }
    }

    pub fn attempt(&mut self, now: Boot) {
        self.last = Some(now);
    }

    /// Returns when to try again after a failed attempt or a lost connection. The time may be in the past.
    pub fn next(&mut self, now: Boot) -> Boot {
        let Some(last) = self.last else { return now };
        if now.since(last) >= HELD {
            self.failures = 0;
            return now;
        }
        let wait = self.first.saturating_mul(1 << self.failures.min(10)).min(self.max);
        self.failures = self.failures.saturating_add(1);
        last + wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_double_the_wait_up_to_a_second_and_a_connection_that_held_starts_anew() {
        let mut backoff = Backoff::default();
        let mut now = Boot(1_000_000_000);
        assert_eq!(backoff.next(now), now);
        for ms in [50, 100, 200, 400, 800, 1000, 1000] {
            backoff.attempt(now);
            let next = backoff.next(now);
            assert_eq!(next.since(now), Duration::from_millis(ms));
            now = next;
        }
        backoff.attempt(now);
        now = now + Duration::from_secs(60);
        assert_eq!(backoff.next(now), now);
        backoff.attempt(now);
        assert_eq!(backoff.next(now).since(now), Duration::from_millis(50));
    }

    #[test]
    fn a_connection_that_is_lost_at_once_again_and_again_backs_off_too() {
        let mut backoff = Backoff::default();
        let mut now = Boot(1_000_000_000);
        let mut attempts = 0;
        let end = now + Duration::from_secs(60);
        while now < end {
            backoff.attempt(now);
            attempts += 1;
            // Up for 10 ms, then lost.
            now = backoff.next(now + Duration::from_millis(10)).max(now + Duration::from_millis(10));
        }
        assert!(attempts < 70, "{attempts}");
    }
}
