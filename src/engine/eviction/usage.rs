//! The usage of pods: from the runtime's statistics, from a measurement of their directories, and from their cgroups.

use crate::api::facts::{DiskUse, PodDiskFact, UsageFact};
use crate::api::names::{ContainerId, Uid};
use crate::api::ordered::CollectOrdered;
use serde::Serialize;
use std::collections::BTreeMap;

/// The usage of all pods. An unknown value counts as 0.
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

/// The parts of a pod's disk usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disks {
    /// Everything that the pod writes.
    All,
    /// What is on the node's file system if the images have one of their own: the logs and the emptyDirs.
    Node,
    /// What is on the file system of the images: the writable layers of the containers.
    Images,
}

impl Amounts {
    fn without_disk(self) -> Amounts {
        Amounts { memory: self.memory, ..Amounts::default() }
    }

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
        self.containers = facts.into_iter().map(|f| (f.id.clone(), amounts(&f))).collect_map();
    }

    pub fn take_disks(&mut self, facts: Vec<PodDiskFact>) {
        self.disks = facts.into_iter().map(|f| (f.uid.clone(), f)).collect_map();
    }

    pub fn take_processes(&mut self, counts: Vec<(Uid, u64)>) {
        self.processes = counts.into_iter().collect_map();
    }

    /// Returns the number of processes and threads of the pod.
    pub fn processes_of(&self, uid: &Uid) -> u64 {
        self.processes.get(uid).copied().unwrap_or_default()
    }

    /// Returns true if the directories of the pod were measured.
    pub fn knows_disk_of(&self, uid: &Uid) -> bool {
        self.disks.contains_key(uid)
    }

    /// Returns the usage of a container, with its writable layer and its log.
    pub fn of_container(&self, uid: &Uid, name: &str, id: &ContainerId, disks: Disks) -> Amounts {
        let mut amounts = self.layer(id, disks);
        let logs = self.disks.get(uid).filter(|_| disks != Disks::Images).and_then(|disk| disk.logs.get(name));
        amounts.add_disk(logs.copied().unwrap_or_default());
        amounts
    }

    fn layer(&self, id: &ContainerId, disks: Disks) -> Amounts {
        let amounts = self.containers.get(id).copied().unwrap_or_default();
        if disks == Disks::Node { amounts.without_disk() } else { amounts }
    }

    /// Returns the usage of the pod: the containers, their logs, and the emptyDirs on disk.
    pub fn of_pod(&self, uid: &Uid, containers: &[(String, ContainerId)], disks: Disks) -> Amounts {
        let mut sum = Amounts::default();
        for (_, id) in containers {
            sum.add(self.layer(id, disks));
        }
        if let Some(disk) = self.disks.get(uid).filter(|_| disks != Disks::Images) {
            disk.logs.values().chain(disk.volumes.values()).for_each(|part| sum.add_disk(*part));
        }
        sum
    }

    pub fn of_volume(&self, uid: &Uid, volume: &str) -> Option<DiskUse> {
        self.disks.get(uid)?.volumes.get(volume).copied()
    }
}
