//! The operations in flight, and who owns each of them.

use crate::api::claim::ClaimKey;
use crate::api::names::Uid;
use crate::api::workload::key::WorkloadKey;
use crate::engine::op::OpId;
use serde::Serialize;
use std::collections::BTreeMap;

/// The owner of an operation, which receives its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Owner {
    Relist,
    RuntimeStatus,
    Cgroups,
    EmptyNetworks,
    CgroupSweep,
    Logind,
    LockStore,
    ShutdownRecord,
    /// The record of the cordon.
    Cordon,
    /// The record of the files that define the objects in force.
    InForce,
    /// The records of manifests.
    ManifestRecords,
    /// The record of a workload.
    Workload(WorkloadKey),
    /// The deletion of the record of a workload that is gone.
    RemovedWorkload(WorkloadKey),
    /// The removal of the manifest of a workload.
    ManifestRemoval(WorkloadKey),
    /// The time zone of a CronJob. `name`: None for that of the machine.
    TimeZone {
        of: WorkloadKey,
        name: Option<String>,
    },
    /// The record of a claim's directory.
    ClaimRecord(ClaimKey),
    /// The creation or the removal of a claim's directory.
    ClaimDirectory(ClaimKey),
    /// The record of the addresses of services.
    ServiceRecord,
    /// The rules of services in the kernel.
    ServiceTable,
    /// The names of services in the hosts file of this pod.
    HostsFile(Uid),
    /// A user's command in a container.
    Exec,
    /// A request for the URL of a stream.
    Stream,
    /// A read of the resource usage.
    Usage,
    /// Image garbage collection.
    Images,
    /// The record of image use.
    ImageRecord,
    /// Node-pressure eviction.
    Eviction,
    /// Container log rotation.
    Logs,
    /// A user's list of images.
    ImageList,
    /// The API server of the cluster, and the records of its objects.
    Cluster,
    /// The files of the node's certificates.
    Certificate,
    Worker(Uid),
    /// A status read of this pod.
    Read(Uid),
}

/// The operations in flight. An answer to a forgotten operation is dropped.
#[derive(Debug, Default, Serialize)]
pub struct Ops {
    last: u64,
    owners: BTreeMap<OpId, Owner>,
}

impl Ops {
    pub fn begin(&mut self, owner: Owner) -> OpId {
        self.last += 1;
        self.owners.insert(OpId(self.last), owner);
        OpId(self.last)
    }

    pub fn end(&mut self, op: OpId) -> Option<Owner> {
        self.owners.remove(&op)
    }
}
