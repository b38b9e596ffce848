//! The time limits of the connections.

use std::time::Duration;

/// Time limits. The default values are for a node of a cluster.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Maximum time to open a TCP connection to one address.
    pub connect: Duration,
    /// Maximum time from the open TCP connection to the server's SETTINGS.
    pub greeting: Duration,
    /// A PING is sent if nothing has arrived for this time while a call with a deadline is in flight.
    pub silence: Duration,
    /// Maximum time to the reply to a PING. Without a reply, the connection is closed.
    pub pong: Duration,
}

impl Default for Times {
    /// Returns limits that are short enough for a node's lease of 40 s. Go's HTTP/2 client detects a dead connection
    /// only after 45 s, when the lease has expired (kubernetes#121793).
    fn default() -> Times {
        Times {
            connect: Duration::from_secs(4),
            greeting: Duration::from_secs(10),
            silence: Duration::from_secs(10),
            pong: Duration::from_secs(5),
        }
    }
}
