//! The parts of the node that have a deadline.

use crate::api::names::Uid;
use std::fmt;

/// A part of the node that has one deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The next relist.
    Relist,
    /// The next status call to the runtime.
    RuntimeStatus,
    /// The period of a group, or of the whole shutdown, is over.
    Shutdown,
    /// A9: a victim of preemption may start again.
    Admission,
    /// Call logind again.
    Logind,
    /// The directory or the cgroup of a removed pod is due for removal (W26).
    Leftovers,
    /// The next garbage collection of images.
    Images,
    /// The next measurement of the node.
    Eviction,
    /// The next check of a container's log.
    Logs,
    /// A hanging call gives its slot to the next pod.
    Slots,
    /// The next request to the API server.
    Cluster,
    /// Write the records of manifests again.
    Manifests,
}

impl Part {
    /// All parts, in the order in which they are handled if several are due.
    pub const ALL: [Part; 12] = [
        Part::Relist,
        Part::RuntimeStatus,
        Part::Shutdown,
        Part::Admission,
        Part::Logind,
        Part::Leftovers,
        Part::Images,
        Part::Eviction,
        Part::Logs,
        Part::Slots,
        Part::Cluster,
        Part::Manifests,
    ];
}

/// What has a deadline.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Due {
    Part(Part),
    /// The pod's worker.
    Pod(Uid),
    /// P8: repeat the status read of the pod.
    Reread(Uid),
}

/// As `wherry debug dump` shows it.
impl fmt::Display for Due {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Due::Part(part) => write!(f, "{part:?}"),
            Due::Pod(uid) => write!(f, "Pod({uid})"),
            Due::Reread(uid) => write!(f, "Reread({uid})"),
        }
    }
}
