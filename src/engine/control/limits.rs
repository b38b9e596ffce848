//! The limits of requests. The texts of errors mention them.

use std::time::Duration;

/// The longest grace period that a client may request (W27): a week.
pub const LONGEST_GRACE: Duration = Duration::from_secs(7 * 24 * 3600);
/// The maximum number of commands that run at the same time: each may briefly need up to 16 MiB of memory for its
/// output.
pub const MAX_EXECS: usize = 8;
/// The maximum time limit of a command: a day.
pub const LONGEST_EXEC: Duration = Duration::from_secs(24 * 3600);
/// The maximum number of calls in flight that request the URL of a stream. The runtime answers such calls at once, so
/// more of them mean that it hangs.
pub const MAX_STREAM_CALLS: usize = 32;
/// The timeout of the call that requests the URL of a stream. The runtime only has to create a token for the URL, so
/// it normally responds at once.
pub const STREAM_TIMEOUT: Duration = Duration::from_secs(20);
