//! S7: the retry schedule for the bus and logind. Pure arithmetic.

use std::time::Duration;

/// The retry period in the first minute.
const SOON: Duration = Duration::from_secs(1);
/// The time for which `SOON` applies.
const SOON_FOR: Duration = Duration::from_secs(60);
/// The retry period after that.
const LATER: Duration = Duration::from_secs(30);

/// Returns the time until the next attempt, after attempts have failed for `failing_for`.
pub fn wait(failing_for: Duration) -> Duration {
    if failing_for < SOON_FOR { SOON } else { LATER }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s7_a_second_for_a_minute_then_30_s() {
        for (failing_for, seconds) in [(0, 1), (59_999, 1), (60_000, 30), (86_400_000, 30)] {
            assert_eq!(wait(Duration::from_millis(failing_for)), Duration::from_secs(seconds), "{failing_for} ms");
        }
    }
}
