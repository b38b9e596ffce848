//! When to try to connect to the bus again (S7): every second for a minute, then every 30 s. After a change of the
//! socket's directory a few attempts follow quickly, because a socket exists for a moment before the bus listens on it.
//! Every other connection uses `net::backoff`; S7 prescribes this schedule for the bus alone.
//! This module does no I/O.

use crate::api::shutdown::retry;
use crate::api::time::Boot;
use std::time::Duration;

const QUICK: Duration = Duration::from_millis(50);
const QUICK_TRIES: u32 = 4;

#[derive(Debug, Default)]
pub(super) struct Retry {
    since: Option<Boot>,
    quick: u32,
}

impl Retry {
    /// Restarts the schedule, because a working connection was lost or the directory of the socket has changed.
    pub(super) fn restart(&mut self, now: Boot) {
        self.since = Some(now);
        self.quick = QUICK_TRIES;
    }

    /// Returns when the next attempt is due after a failed one.
    pub(super) fn next(&mut self, now: Boot) -> Boot {
        let since = *self.since.get_or_insert(now);
        if self.quick > 0 {
            self.quick -= 1;
            now + QUICK
        } else {
            now + retry::wait(now.since(since))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(retry: &mut Retry, now: &mut Boot, count: usize) -> Vec<u128> {
        let wait = |_| {
            let next = retry.next(*now);
            let wait = next.since(*now).as_millis();
            *now = next;
            wait
        };
        (0..count).map(wait).collect()
    }

    #[test]
    fn s7_each_second_for_a_minute_then_each_30_s() {
        let mut retry = Retry::default();
        let mut now = Boot(5_000_000_000);
        assert_eq!(waits(&mut retry, &mut now, 60), [1000; 60]);
        assert_eq!(waits(&mut retry, &mut now, 5), [30_000; 5]);
        retry.restart(now);
        assert_eq!(waits(&mut retry, &mut now, 6), [50, 50, 50, 50, 1000, 1000]);
        now = now + Duration::from_secs(60);
        assert_eq!(waits(&mut retry, &mut now, 1), [30_000]);
    }
}
