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
    /// Returns the time between two renewals of the lease, before jitter of up to 4 % is added: a quarter of the
    /// lease's duration, as in a kubelet, or half of it. The control plane (before 1.32) considers a node unreachable
    /// after 40 s.
    pub fn lease_period(self) -> Duration {
        Duration::from_secs(match self {
            Traffic::Ordinary => 10,
            Traffic::Metered => 20,
        })
    }

    /// Returns the time after which an unchanged status is sent again (`nodeStatusReportFrequency`). The lease, not
    /// the status, shows that the node is alive.
    pub fn heartbeat(self) -> Duration {
        Duration::from_secs(match self {
            Traffic::Ordinary => 300,
            Traffic::Metered => 3600,
        })
    }

    /// Returns the seconds after which a watch ends and is restarted. Watches of a single object last longer, because
    /// a node has many of them.
    pub fn watch(self, one_object: bool) -> Range<u64> {
        match (self, one_object) {
            (Traffic::Ordinary, false) => 300..600,
            (Traffic::Ordinary, true) => 1800..3600,
            (Traffic::Metered, _) => 3600..7200,
        }
    }

    /// Reports whether a watch asks for bookmarks, which arrive every minute and allow the next watch to continue.
    /// For a single object, reading it again after an hour is cheaper than its bookmarks.
    pub fn has_bookmarks(self, one_object: bool) -> bool {
        self == Traffic::Ordinary || !one_object
    }

    /// Reports whether the lease keeps its managed fields, the list of the fields that the node has set. Each
    /// response contains them.
    pub fn has_managed_fields(self) -> bool {
        self == Traffic::Ordinary
    }
}
