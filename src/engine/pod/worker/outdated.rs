//! W8: the manifest changed. The old version runs until its record can be written.

use serde::Serialize;
use std::time::Duration;

/// The delay before a failed write is retried.
pub const RETRY: Duration = Duration::from_secs(60);

#[derive(Debug, Default, Serialize)]
pub struct Outdated {
    /// The number of consecutive failures to write the record.
    failures: u32,
}

impl Outdated {
    /// Counts one more failure. Returns the delay after it, which grows with each failure.
    pub(super) fn next_delay(&mut self) -> Duration {
        let delay = OUTDATED_RETRY.saturating_mul(1 << self.failures.min(4)).min(RETRY);
        self.failures = self.failures.saturating_add(1);
        delay
    }
}

/// The delay before a failed write of an outdated pod's record is retried. It doubles with each failure.
const OUTDATED_RETRY: Duration = Duration::from_secs(5);
