//! The time limits of the connections.

use std::time::Duration;

/// Time limits. The default values are for a node of a cluster.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Maximum time to open a TCP connection to one address.
    pub connect: Duration,
    /// Maximum time from there to the server's SETTINGS.
    pub greeting: Duration,
    /// A PING is sent if nothing has arrived for this time while a call with a deadline is in flight.
    pub silence: Duration,
    /// Maximum time to the answer of a PING. Without one, the connection is given up.
    pub pong: Duration,
}

impl Default for Times {
    /// Go's HTTP/2 client detects a dead connection only after 45 s (kubernetes#121793), when a node's lease of 40 s
    /// has ended.
    fn default() -> Times {
        Times {
            connect: Duration::from_secs(4),
            greeting: Duration::from_secs(10),
            silence: Duration::from_secs(10),
            pong: Duration::from_secs(5),
        }
    }
}
