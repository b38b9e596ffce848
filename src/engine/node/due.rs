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
    /// The end of a shutdown group's period, or of the whole shutdown.
    Shutdown,
    /// A9: the time from which a preempted pod may start again.
    Admission,
    /// The next attempt to call logind.
    Logind,
    /// The removal of the directory or the cgroup of a removed pod (W26).
    Leftovers,
    /// The next image garbage collection.
    Images,
    /// The next measurement of the node.
    Eviction,
    /// The next check of a container's log.
    Logs,
    /// The time at which a hanging call loses its slot to the next pod.
    Slots,
    /// The next request to the API server.
    Cluster,
    /// The next attempt to write the records of manifests.
    Manifests,
    /// The next step of a workload.
    Workloads,
    /// The next attempt to create or remove the directory of a claim.
    Claims,
    /// The next call about the rules, the record or the names of services.
    Services,
}

impl Part {
    /// All parts, in the order in which they are handled if several are due.
    pub const ALL: [Part; 15] = [
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
        Part::Workloads,
        Part::Claims,
        Part::Services,
    ];
}

/// Something that has a deadline.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Due {
    Part(Part),
    /// The pod's worker.
    Pod(Uid),
    /// P8: the repetition of the pod's status read.
    Reread(Uid),
}

/// The form in which `wherry debug dump` shows it.
impl fmt::Display for Due {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Due::Part(part) => write!(f, "{part:?}"),
            Due::Pod(uid) => write!(f, "Pod({uid})"),
            Due::Reread(uid) => write!(f, "Reread({uid})"),
        }
    }
}
