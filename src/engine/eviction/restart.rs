//! E5: when an evicted pod starts again.

use crate::api::time::Wall;
use crate::engine::pod::record::Evicted;
use std::time::Duration;

/// The delay after the first eviction. It doubles with each further eviction, as for a container that crashes.
const FIRST: Duration = Duration::from_secs(10);
const MAX: Duration = Duration::from_secs(300);
/// A pod that was not evicted for this time starts from the first delay again.
const RESET: Duration = Duration::from_secs(1200);

/// Returns the record of an eviction that happens now.
pub fn evicted(before: Option<&Evicted>, now: Wall) -> Evicted {
    let again = before.filter(|before| now.since(before.at) < RESET);
    Evicted { at: now, times: again.map_or(1, |before| before.times.saturating_add(1)) }
}

/// Corrects the time of an eviction that is in the future because the clock was set back. The delay then counts from
/// now, so the pod never waits until the clock shows the old time again.
pub fn clock_was_set(of: &mut Evicted, now: Wall) {
    of.at = of.at.min(now);
}

/// Returns how long the pod still has to wait.
pub fn left(of: &Evicted, now: Wall) -> Duration {
    let doublings = of.times.saturating_sub(1).min(16);
    let delay = FIRST.saturating_mul(1 << doublings).min(MAX);
    delay.saturating_sub(now.since(of.at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Wall {
        Wall(seconds * 1_000_000_000)
    }

    #[test]
    fn e5_the_delay_doubles_with_each_eviction_up_to_five_minutes() {
        let mut last = evicted(None, at(0));
        let mut delays = Vec::new();
        for _ in 0..8 {
            delays.push(left(&last, last.at).as_secs());
            last = evicted(Some(&last), last.at);
        }
        assert_eq!(delays, [10, 20, 40, 80, 160, 300, 300, 300]);
        assert_eq!(evicted(Some(&last), at(1200)).times, 1);
        let first = evicted(None, at(100));
        assert_eq!([100, 105, 110, 500].map(|s| left(&first, at(s)).as_secs()), [10, 5, 0, 0]);
    }

    #[test]
    fn e5_after_the_clock_was_set_back_the_delay_counts_from_then() {
        let mut first = evicted(None, at(100_000));
        clock_was_set(&mut first, at(50));
        assert_eq!([50, 55, 60].map(|s| left(&first, at(s)).as_secs()), [10, 5, 0]);
        clock_was_set(&mut first, at(70));
        assert_eq!((first.at, first.times), (at(50), 1));
    }
}
