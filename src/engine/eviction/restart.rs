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

/// Returns how long the pod still has to wait.
pub fn left(of: &Evicted, now: Wall) -> Duration {
    let doublings = of.times.saturating_sub(1).min(16);
    let delay = FIRST.saturating_mul(1 << doublings).min(MAX);
    // If the clock was set back, wait at most the whole delay from now.
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
        assert_eq!(left(&first, at(1)).as_secs(), 10, "the clock was set back");
    }
}
