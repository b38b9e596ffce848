//! The traffic of an idle node with the API server: leases, status reports, watches.
//!
//! *(ours)* `meteredConnection` is for links that are billed by volume. With it, an idle node uses less than 6 MB
//! a day.

use serde::Serialize;
use std::ops::Range;
use std::time::Duration;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Traffic {
    /// The periods of a kubelet.
    #[default]
    Ordinary,
    Metered,
}

impl Traffic {
    /// Between two renewals of the lease, before the jitter of up to 4 %: a quarter of the lease's duration, as in a
    /// kubelet, or half of it. The control plane (before 1.32) sees a node as unreachable after 40 s.
    pub fn lease_period(self) -> Duration {
        Duration::from_secs(match self {
            Traffic::Ordinary => 10,
            Traffic::Metered => 20,
        })
    }

    /// `nodeStatusReportFrequency`: an unchanged status is sent again after this time. The lease is the sign of life,
    /// not the status.
    pub fn heartbeat(self) -> Duration {
        Duration::from_secs(match self {
            Traffic::Ordinary => 300,
            Traffic::Metered => 3600,
        })
    }

    /// The seconds after which a watch ends and is begun again. A node has many watches of one object.
    pub fn watch(self, one_object: bool) -> Range<u64> {
        match (self, one_object) {
            (Traffic::Ordinary, false) => 300..600,
            (Traffic::Ordinary, true) => 1800..3600,
            (Traffic::Metered, _) => 3600..7200,
        }
    }

    /// Whether the server sends a bookmark each minute, which makes the next watch possible. To read one object again
    /// after an hour is cheaper than its bookmarks.
    pub fn has_bookmarks(self, one_object: bool) -> bool {
        self == Traffic::Ordinary || !one_object
    }

    /// Whether the lease keeps its managed fields, the list of the fields that the node has set. Each answer contains
    /// them.
    pub fn has_managed_fields(self) -> bool {
        self == Traffic::Ordinary
    }
}
