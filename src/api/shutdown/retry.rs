//! S7: when to try again what the bus or logind did not give. Pure arithmetic.

use std::time::Duration;

/// Each second ...
const SOON: Duration = Duration::from_secs(1);
/// ... for a minute, ...
const SOON_FOR: Duration = Duration::from_secs(60);
/// ... then more rarely.
const LATER: Duration = Duration::from_secs(30);

/// The time until the next attempt, of what has failed for so long.
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
