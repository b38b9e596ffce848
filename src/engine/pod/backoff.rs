//! W10: the delay before a container restarts after its end, and before a failed image pull is retried.
//!
//! The level of a container is the number of consecutive restarts before it. It is stored in the container's
//! annotations, so it survives a restart of Wherry. It does not survive a reboot, which ends healthy containers too.

use crate::api::duration;
use crate::api::facts::ContainerFact;
use crate::engine::config::RestartBackoff;
use std::time::Duration;

const FIRST: Duration = Duration::from_secs(10);
const PULL_MAX: Duration = Duration::from_secs(300);
/// After a run of this length the back-off starts again from the first level.
const RESET_AFTER: Duration = Duration::from_secs(600);

/// Returns the delay between the end of `dead` and the next start, and the level of the new container.
pub fn after(dead: &ContainerFact, limits: RestartBackoff) -> (Duration, u32) {
    // As in a kubelet, whose back-offs are in memory: several power cuts in a short time delay no pod.
    if dead.boot.zip(limits.boot).is_some_and(|(its, this)| its != this) {
        return (Duration::ZERO, 1);
    }
    // A container that never started has no start time, so its run counts as zero.
    let ran = if dead.started_at.0 == 0 { Duration::ZERO } else { dead.finished_at.since(dead.started_at) };
    let level = if ran >= RESET_AFTER { 0 } else { dead.backoff_level };
    (delay(level, FIRST, limits.max), level.saturating_add(1))
}

/// Returns the delay before the next pull after `failures` consecutive failures (1 or more).
pub fn pull(failures: u32) -> Duration {
    delay(failures, FIRST, PULL_MAX)
}

/// Returns zero at level 0, `first` at level 1, and twice the previous delay at each further level. `max` limits
/// every delay, including the first.
fn delay(level: u32, first: Duration, max: Duration) -> Duration {
    match level.checked_sub(1) {
        None => Duration::ZERO,
        Some(n) => first.saturating_mul(1u32.checked_shl(n.min(16)).unwrap_or(u32::MAX)).min(max),
    }
}

/// Formats a duration like Go, as in a kubelet's messages: `10s`, `1m20s`, `5m0s`.
pub fn in_words(d: Duration) -> String {
    let s = d.as_secs();
    match (s / 3600, s % 3600 / 60, s % 60) {
        (0, 0, s) => format!("{s}s"),
        (0, m, s) => format!("{m}m{s}s"),
        (h, m, s) => format!("{h}h{m}m{s}s"),
    }
}

/// Formats a duration like Go, cut to milliseconds: `350ms`, `1.2s`, `1m2.05s`.
pub fn in_milliseconds(d: Duration) -> String {
    duration::format(Duration::from_millis(u64::try_from(d.as_millis()).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_pull_is_cut_to_milliseconds() {
        let words = [350_999, 1_200_000, 62_050_001, 0].map(|us| in_milliseconds(Duration::from_micros(us)));
        assert_eq!(words, ["350ms", "1.2s", "1m2.05s", "0s"]);
    }

    #[test]
    fn w10_restarts_wait_0_10_20_40_up_to_the_maximum() {
        let max = Duration::from_secs(300);
        let waits: Vec<u64> = (0..8).map(|l| delay(l, FIRST, max).as_secs()).collect();
        assert_eq!(waits, [0, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(delay(u32::MAX, FIRST, max), max);
    }

    #[test]
    fn w10_a_lower_maximum_lowers_the_first_step_too() {
        assert_eq!(delay(1, FIRST, Duration::from_secs(3)), Duration::from_secs(3));
    }

    #[test]
    fn durations_are_written_as_go_does() {
        let words: Vec<String> = [10, 80, 300, 3661].into_iter().map(|s| in_words(Duration::from_secs(s))).collect();
        assert_eq!(words, ["10s", "1m20s", "5m0s", "1h1m1s"]);
    }
}
