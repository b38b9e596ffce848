//! The limits of requests. The texts of errors name them.

use std::time::Duration;

/// The longest grace period that a client may request (W27): a week.
pub const LONGEST_GRACE: Duration = Duration::from_secs(7 * 24 * 3600);
/// Maximum number of commands at one time: each may need up to 16 MiB of memory for its output for a moment.
pub const MAX_EXECS: usize = 8;
/// Maximum time limit of a command: a day.
pub const LONGEST_EXEC: Duration = Duration::from_secs(24 * 3600);
/// Maximum number of calls in flight. The runtime answers them at once, so more of them mean that it hangs.
pub const MAX_STREAM_CALLS: usize = 32;
/// Timeout of the call that requests the URL of a stream. The runtime only creates a token for the URL.
pub const STREAM_TIMEOUT: Duration = Duration::from_secs(20);
