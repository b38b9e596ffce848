//! The usage of pods: from the runtime's statistics, from a measurement of their directories, and from their cgroups.

use crate::api::facts::{DiskUse, PodDiskFact, UsageFact};
use crate::api::names::{ContainerId, Uid};
use serde::Serialize;
use std::collections::BTreeMap;

/// A value that is unknown counts as 0.
#[derive(Debug, Default, Serialize)]
pub struct Usage {
    containers: BTreeMap<ContainerId, Amounts>,
    disks: BTreeMap<Uid, PodDiskFact>,
    processes: BTreeMap<Uid, u64>,
}

/// Memory and disk in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Amounts {
    pub memory: u64,
    pub disk: u64,
    pub inodes: u64,
}

impl Amounts {
    fn add(&mut self, other: Amounts) {
        self.memory = self.memory.saturating_add(other.memory);
        self.disk = self.disk.saturating_add(other.disk);
        self.inodes = self.inodes.saturating_add(other.inodes);
    }

    fn add_disk(&mut self, disk: DiskUse) {
        self.add(Amounts { memory: 0, disk: disk.bytes, inodes: disk.inodes });
    }
}

impl Usage {
    pub fn take_containers(&mut self, facts: Vec<UsageFact>) {
        let amounts = |f: &UsageFact| Amounts {
            memory: f.memory_bytes.unwrap_or(0),
            disk: f.disk_bytes.unwrap_or(0),
            inodes: f.disk_inodes.unwrap_or(0),
        };
        self.containers = facts.into_iter().map(|f| (f.id.clone(), amounts(&f))).collect();
    }

    pub fn take_disks(&mut self, facts: Vec<PodDiskFact>) {
        self.disks = facts.into_iter().map(|f| (f.uid.clone(), f)).collect();
    }

    pub fn take_processes(&mut self, counts: Vec<(Uid, u64)>) {
        self.processes = counts.into_iter().collect();
    }

    /// The processes and threads of the pod.
    pub fn processes_of(&self, uid: &Uid) -> u64 {
        self.processes.get(uid).copied().unwrap_or_default()
    }

    /// The directories of the pod were measured.
    pub fn knows_disk_of(&self, uid: &Uid) -> bool {
        self.disks.contains_key(uid)
    }

    /// A container with its log.
    pub fn of_container(&self, uid: &Uid, name: &str, id: &ContainerId) -> Amounts {
        let mut amounts = self.containers.get(id).copied().unwrap_or_default();
        let logs = self.disks.get(uid).and_then(|disk| disk.logs.get(name));
        amounts.add_disk(logs.copied().unwrap_or_default());
        amounts
    }

    /// The containers, their logs, and the emptyDirs on disk.
    pub fn of_pod(&self, uid: &Uid, containers: &[(String, ContainerId)]) -> Amounts {
        let mut sum = Amounts::default();
        for id in containers.iter().filter_map(|(_, id)| self.containers.get(id)) {
            sum.add(*id);
        }
        if let Some(disk) = self.disks.get(uid) {
            disk.logs.values().chain(disk.volumes.values()).for_each(|part| sum.add_disk(*part));
        }
        sum
    }

    pub fn of_volume(&self, uid: &Uid, volume: &str) -> Option<DiskUse> {
        self.disks.get(uid)?.volumes.get(volume).copied()
    }
}
