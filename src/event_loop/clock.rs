//! The only code that reads the clocks. Both reads go through the vDSO, without a system call.

use crate::api::time::{Boot, Now, Wall};
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Returns the current time of both clocks.
pub fn now() -> Now {
    Now { boot: boot(), wall: Wall(nanoseconds(clock_gettime(ClockId::Realtime))) }
}

/// Returns the current time of CLOCK_BOOTTIME.
pub fn boot() -> Boot {
    Boot(u64::try_from(nanoseconds(clock_gettime(ClockId::Boottime))).unwrap_or(0))
}

/// Converts a time to nanoseconds. The result saturates in the year 2262.
fn nanoseconds(t: Timespec) -> i64 {
    t.tv_sec.saturating_mul(1_000_000_000).saturating_add(t.tv_nsec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clocks_advance_and_the_wall_clock_is_after_2020() {
        let a = now();
        let b = now();
        assert!(b.boot >= a.boot && a.boot > Boot(0));
        assert!(a.wall > Wall(1_577_836_800_000_000_000));
    }
}
