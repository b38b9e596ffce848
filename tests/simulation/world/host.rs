//! The memory, the process ids and the disk of the machine, and what each container uses (E1 to E7).

use super::{Item, MS, World};
use std::collections::BTreeMap;
use wherry::api::eviction::{Level, Signal};
use wherry::api::facts::{DiskUse, FileSystemFact, MachineFact, MeasuredPod, PodDiskFact};
use wherry::api::names::Uid;
use wherry::api::pod::Pod;
use wherry::api::priority::{self, CRITICAL};
use wherry::engine::event::{Answer, Event};
use wherry::engine::op::{OpError, OpId};

/// The path of the node's file system.
pub const ROOT: &str = "/var/lib/wherry";
/// The size of the memory and of the node's file system.
pub const CAPACITY: u64 = 1000;
/// The amount of memory that must stay available, if there is a threshold.
pub const MEMORY_LIMIT: u64 = 100;

pub struct Host {
    /// The memory that other programs use.
    pub memory: u64,
    /// The process ids that are free.
    pub pids_free: u64,
    /// The bytes of other files on the node's file system.
    pub files: u64,
    /// The images are on the node's file system.
    pub one_disk: bool,
    /// The memory and the bytes in emptyDirs of a running container, by `pod/container`.
    pub memory_of: BTreeMap<String, u64>,
    pub disk_of: BTreeMap<String, u64>,
    /// The bytes in the writable layer of a running container, by `pod/container`.
    pub layer_of: BTreeMap<String, u64>,
    /// The processes of a running container, by `pod/container`. Others have one.
    pub processes_of: BTreeMap<String, u64>,
    /// The kernel can report a lack of memory.
    pub reports: bool,
    pub watched: bool,
    /// The number of measurements.
    pub measured: u64,
    /// The available memory that the last measurement showed.
    pub shown: u64,
    /// When the addresses of the machine were read. (They are those of `World::config`, as at a start.)
    pub address_reads: Vec<u64>,
    /// The addresses of a machine that is not a member of a cluster.
    pub addresses_alone: Vec<String>,
    /// How often the node's server was told to issue its certificate for other addresses.
    pub addresses_used: usize,
}

impl Default for Host {
    fn default() -> Host {
        Host {
            memory: 0,
            pids_free: CAPACITY,
            files: 0,
            one_disk: false,
            memory_of: BTreeMap::new(),
            disk_of: BTreeMap::new(),
            layer_of: BTreeMap::new(),
            processes_of: BTreeMap::new(),
            reports: true,
            watched: false,
            measured: 0,
            shown: CAPACITY,
            address_reads: Vec::new(),
            addresses_alone: vec!["192.0.2.2".to_owned()],
            addresses_used: 0,
        }
    }
}

fn of(uses: &BTreeMap<String, u64>, name: &str) -> u64 {
    uses.get(name).copied().unwrap_or(0)
}

impl World {
    fn running_containers(&self) -> Vec<String> {
        let running = self.runtime.containers.values().filter(|c| c.runs());
        running.map(|c| format!("{}/{}", c.pod_name.name, c.name)).collect()
    }

    pub fn memory_available(&self) -> u64 {
        let used: u64 = self.running_containers().iter().map(|name| of(&self.host.memory_of, name)).sum();
        CAPACITY.saturating_sub(self.host.memory + used)
    }

    /// The files in an emptyDir stay until the volumes of the pod are removed.
    fn node_file_system(&self) -> FileSystemFact {
        let files = self.host.disk_of.iter().filter(|(name, _)| {
            let pod = name.split('/').next().unwrap_or_default();
            let of_pod = |uid: &Uid| self.engine.pod(uid).is_some_and(|view| &*view.pod.name.name == pod);
            self.volumes.mounted.iter().any(of_pod)
        });
        let used: u64 = self.host.files + files.map(|(_, bytes)| *bytes).sum::<u64>();
        let available = CAPACITY.saturating_sub(used);
        FileSystemFact { capacity: CAPACITY, available, inodes: CAPACITY, inodes_free: CAPACITY / 2, id: 1 }
    }

    pub(super) fn measure_machine(&mut self, op: OpId) {
        self.begin(op);
        self.host.measured += 1;
        let level = |available| Level { capacity: CAPACITY, available };
        self.host.shown = self.memory_available();
        let fact = MachineFact { memory: level(self.host.shown), pids: level(self.host.pids_free) };
        self.answer_measure(op, Ok(Answer::Machine(fact)));
    }

    pub(super) fn measure_file_system(&mut self, op: OpId, path: &str) {
        self.note(|| format!("  < {op} MeasureFileSystem {path}"));
        self.begin(op);
        let images = FileSystemFact { id: 1 + u64::from(!self.host.one_disk), ..self.runtime.file_system() };
        let fact = if path == ROOT || self.host.one_disk { self.node_file_system() } else { images };
        let result = match self.goes_wrong("no answer of the helper of", "MeasureFileSystem", 20) {
            true => Err(OpError::Unknown("the helper did not answer".into())),
            false => Ok(Answer::FileSystem(fact)),
        };
        self.answer_measure(op, result);
    }

    pub(super) fn measure_pods(&mut self, op: OpId, pods: &[MeasuredPod]) {
        let names: Vec<String> = pods.iter().map(|pod| pod.name.to_string()).collect();
        self.note(|| format!("  < {op} MeasurePods {names:?}"));
        self.begin(op);
        let fact = |pod: &MeasuredPod| {
            let prefix = format!("{}/", pod.name.name);
            let files = self.host.disk_of.iter().filter(|(name, _)| name.starts_with(&prefix));
            let bytes = files.map(|(_, bytes)| *bytes).sum();
            let volumes = pod.volumes.first().map(|name| (name.clone(), DiskUse { bytes, inodes: 1 }));
            PodDiskFact { uid: pod.uid.clone(), volumes: volumes.into_iter().collect(), logs: BTreeMap::new() }
        };
        let facts = pods.iter().map(fact).collect();
        let result = match self.goes_wrong("no answer of the helper of", "MeasurePods", 20) {
            true => Err(OpError::Unknown("the helper did not answer".into())),
            false => Ok(Answer::PodDisks(facts)),
        };
        self.answer_measure(op, result);
    }

    pub(super) fn count_processes(&mut self, op: OpId, pods: &[Uid]) {
        self.note(|| format!("  < {op} CountProcesses {pods:?}"));
        self.begin(op);
        let count = |uid: &Uid| {
            let running = self.runtime.containers.values().filter(|c| c.runs() && c.uid == *uid);
            let of = |name: String| self.host.processes_of.get(&name).copied().unwrap_or(1);
            let sum = running.map(|c| of(format!("{}/{}", c.pod_name.name, c.name))).sum();
            (uid.clone(), sum)
        };
        let counts = pods.iter().map(count).collect();
        self.answer_measure(op, Ok(Answer::Processes(counts)));
    }

    fn answer_measure(&mut self, op: OpId, result: Result<Answer, OpError>) {
        self.at(MS, Item::Answer { key: (self.process.life, op), result });
    }

    /// E4: only while the memory that was measured last is below the limit, and never a critical pod.
    pub(super) fn check_eviction(&mut self, pod: &Pod, message: &str) {
        let for_memory = message.starts_with("The node was low on resource: memory.");
        let of_memory = self.config.eviction.thresholds.iter().filter(|t| t.signal == Signal::MemoryAvailable);
        let limit = of_memory.map(|t| t.limit.of(CAPACITY) + t.reclaim.map_or(0, |more| more.of(CAPACITY))).max();
        let shown = self.host.shown;
        if for_memory && limit.is_none_or(|limit| shown >= limit) {
            self.checks.fail("E4: evictions need pressure", format!("{} is evicted with {shown} available", pod.uid));
        }
        if for_memory && priority::of(pod.spec()) >= CRITICAL {
            self.checks.fail("E4: a critical pod stays", format!("{} is evicted", pod.uid));
        }
    }

    /// The machine of a member of a cluster has these addresses from now on.
    pub fn has_addresses(&mut self, addresses: &[&str]) {
        if let Some(cluster) = &mut self.config.cluster {
            cluster.addresses = addresses.iter().map(|address| (*address).to_owned()).collect();
        }
    }

    pub(super) fn read_addresses(&mut self) {
        let of_member = self.config.cluster.as_ref().map(|cluster| cluster.addresses.clone());
        let found = of_member.unwrap_or_else(|| self.host.addresses_alone.clone());
        self.note(|| format!("  < ReadAddresses {found:?}"));
        self.host.address_reads.push(self.clock.now);
        self.event_in(MS / 10, Event::Addresses(found));
    }

    pub(super) fn watch_memory(&mut self, wanted: bool) {
        self.host.watched = wanted && self.host.reports;
        if wanted {
            let works = self.host.reports;
            self.event_in(MS / 10, Event::MemoryWatched { works });
        }
    }
}
