//! The validity of certificates, and the clock on which it depends.

use jiff::{SignedDuration, Timestamp};
use rcgen::CertificateParams;
use std::time::Duration;

/// 2026-01-01T00:00:00Z: the year of this code. An earlier time is wrong. A machine without a real-time clock starts in
/// 1970, or at the time of its last shutdown.
const EARLIEST: i64 = 1_767_225_600;
/// 9000-01-01T00:00:00Z. A later time is wrong too, and ten more years would exceed the four digits of a certificate's
/// year.
const LATEST: i64 = 221_845_392_000;
/// A certificate is valid from this long before its issue, because the clocks of clients differ.
const SKEW: SignedDuration = SignedDuration::from_mins(5);

const DAY: Duration = Duration::from_secs(24 * 3600);
/// The lifetime of the CA.
pub(super) const CA: Duration = DAY.saturating_mul(3653);
/// The lifetime of a serving certificate.
pub(super) const SERVER: Duration = DAY.saturating_mul(365);

/// The first and the last second of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Validity {
    pub from: Timestamp,
    pub to: Timestamp,
}

impl Validity {
    /// Returns a validity from some minutes before `now` to `lifetime` after it, in whole seconds.
    pub(super) fn starting(now: Timestamp, lifetime: Duration) -> Validity {
        // `check_clock` has limited `now`. No lifetime exceeds that of the CA.
        let second = |t: Timestamp| Timestamp::from_second(t.as_second()).unwrap_or(t);
        let to = now.checked_add(lifetime).unwrap_or(Timestamp::MAX);
        Validity { from: second(now.checked_sub(SKEW).unwrap_or(now)), to: second(to) }
    }

    /// Returns the part of the validity that lies within `outer`.
    pub(super) fn within(self, outer: Validity) -> Validity {
        Validity { from: self.from.max(outer.from), to: self.to.min(outer.to) }
    }

    pub(super) fn set(self, params: &mut CertificateParams) {
        let epoch = rcgen::date_time_ymd(1970, 1, 1);
        // `Timestamp::MAX` is in the year 9999, the last year that the library supports.
        let since = |t: Timestamp| Duration::from_secs(u64::try_from(t.as_second()).unwrap_or(0));
        params.not_before = epoch + since(self.from);
        params.not_after = epoch + since(self.to);
    }
}

/// Refuses a clock that is obviously wrong, because a certificate would start or end at a wrong time.
pub(super) fn check_clock(now: Timestamp) -> Result<(), String> {
    if (EARLIEST..LATEST).contains(&now.as_second()) {
        return Ok(());
    }
    Err(wrong_clock(now, "this program is newer than that time, or the time is far in the future"))
}

/// Returns the error for a clock that cannot be right.
pub(super) fn wrong_clock(now: Timestamp, why: &str) -> String {
    format!(
        "the clock of this machine is wrong: it shows {now:.0}, but {why}; set the clock (date, hwclock) and \
         synchronise it (systemd-timesyncd, chrony), then try again"
    )
}
