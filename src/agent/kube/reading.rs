//! The resource usage of the node, its pods and containers at one point in time, for the metrics and the summary of a
//! kubelet. The values of containers come from the runtime, the others from the engine's state, /proc and the
//! cgroups.

use crate::agent::content::View;
use crate::api::control::{ContainerUsage, PodUsage, Usage};
use crate::api::facts::{ContainerFact, FileSystemFact};
use crate::api::names::Uid;
use crate::api::time::Wall;
use std::fs;

/// The usage at one point in time. Values that are not known are None.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// The time of the reading.
    pub at: Wall,
    pub node: NodeReading,
    /// The pods with a running container.
    pub pods: Vec<PodReading>,
}

#[derive(Debug, Default)]
pub(super) struct NodeReading {
    pub name: String,
    /// The time at which the machine booted.
    pub boot: Wall,
    /// The number of CPUs.
    pub cores: u64,
    /// The CPU time of all CPUs since the machine booted, in nanoseconds.
    pub cpu_nanos: Option<u64>,
    pub memory: Option<Memory>,
    /// The time of the measurement, the node's file system and the file system of the images.
    pub file_systems: Option<(Wall, Option<FileSystemFact>, Option<FileSystemFact>)>,
    /// The maximum number and the current number of processes and threads.
    pub processes: Option<(u64, u64)>,
}

/// The machine's memory in bytes, from /proc/meminfo.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Memory {
    pub total: u64,
    pub available: u64,
    /// The total memory without the free memory.
    pub used: u64,
    /// Anonymous memory.
    pub rss: u64,
    pub swap_total: u64,
    pub swap_used: u64,
}

impl Memory {
    pub fn working_set(self) -> u64 {
        self.total.saturating_sub(self.available)
    }
}

#[derive(Debug, Default)]
pub(super) struct PodReading {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub started: Wall,
    /// The values of the pod's cgroup or, if they are not known, the sum over its containers.
    pub cpu_nanos: Option<u64>,
    pub memory_bytes: Option<u64>,
    pub working_set_bytes: Option<u64>,
    pub swap_bytes: Option<u64>,
    pub containers: Vec<ContainerReading>,
}

#[derive(Debug, Default)]
pub(super) struct ContainerReading {
    pub usage: ContainerUsage,
    pub image: String,
    /// The path of the container's cgroup.
    pub cgroup: String,
    pub started: Wall,
}

impl Reading {
    pub fn new(view: &View<'_>, usage: &Usage) -> Reading {
        Reading {
            at: view.now.wall,
            node: NodeReading::new(view),
            pods: usage.pods.iter().map(|pod| PodReading::new(view, pod)).collect(),
        }
    }
}

impl NodeReading {
    fn new(view: &View<'_>) -> NodeReading {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let at = |boot| {
            let age = view.now.boot.since(boot).as_nanos();
            Wall(view.now.wall.0.saturating_sub(i64::try_from(age).unwrap_or(i64::MAX)))
        };
        let pids = crate::adapters::host::levels::read(true).ok().map(|fact| fact.pids);
        NodeReading {
            name: view.config.node_name.clone(),
            boot: Wall(boot_time(&stat).unwrap_or(0).saturating_mul(1_000_000_000)),
            cores: view.engine.node().0.capacity.get(crate::api::resources::CPU) / 1000,
            cpu_nanos: super::metrics::machine_cpu(&stat),
            memory: fs::read_to_string("/proc/meminfo").ok().and_then(|text| memory(&text)),
            file_systems: view.engine.levels().map(|(time, levels)| (at(time), levels.nodefs, levels.imagefs)),
            processes: pids.map(|pids| (pids.capacity, pids.capacity.saturating_sub(pids.available))),
        }
    }
}

impl PodReading {
    fn new(view: &View<'_>, pod: &PodUsage) -> PodReading {
        let uid = Uid::from(pod.uid.as_str());
        let shown = view.engine.pod(&uid);
        let facts = view.engine.containers(&uid);
        let container = |usage: &ContainerUsage| {
            let fact: Option<&ContainerFact> = facts.iter().find(|c| c.id.as_str() == usage.id);
            ContainerReading {
                usage: usage.clone(),
                image: fact.map(|c| c.image.clone()).unwrap_or_default(),
                cgroup: shown.as_ref().map(|p| view.container_cgroup(p.pod, &usage.id)).unwrap_or_default(),
                started: fact.map(|c| c.started_at).unwrap_or_default(),
            }
        };
        let started = shown.as_ref().and_then(|p| p.status.start_time.as_ref()).map(|t| t.0.as_nanosecond());
        let sum =
            |of: fn(&ContainerUsage) -> Option<u64>| pod.containers.iter().filter_map(of).reduce(u64::saturating_add);
        let cgroup = view.pod_cgroup(&uid).unwrap_or_default();
        PodReading {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            started: Wall(started.and_then(|at| i64::try_from(at).ok()).unwrap_or(0)),
            cpu_nanos: cgroup.cpu_nanos.or_else(|| sum(|c| c.cpu_nanos)),
            memory_bytes: cgroup.memory_bytes.or_else(|| sum(|c| c.memory_usage_bytes)),
            working_set_bytes: cgroup.working_set_bytes.or_else(|| sum(|c| c.memory_bytes)),
            swap_bytes: sum(|c| c.swap_bytes),
            containers: pod.containers.iter().map(container).collect(),
        }
    }
}

/// Converts nanoseconds to seconds.
pub(super) fn seconds(nanos: Option<u64>) -> Option<f64> {
    nanos.map(|nanos| nanos as f64 / 1e9)
}

pub(super) fn bytes(bytes: Option<u64>) -> Option<f64> {
    bytes.map(|bytes| bytes as f64)
}

/// Returns a time that the runtime reports, or None if it is not known (0 or less).
pub(super) fn time(nanos: i64) -> Option<i64> {
    Some(nanos).filter(|nanos| *nanos > 0)
}

/// Returns the boot time in seconds since the Unix epoch.
fn boot_time(stat: &str) -> Option<i64> {
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

fn memory(meminfo: &str) -> Option<Memory> {
    let bytes = |name: &str| -> Option<u64> {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
    };
    let total = bytes("MemTotal")?;
    let swap_total = bytes("SwapTotal").unwrap_or(0);
    Some(Memory {
        total,
        available: bytes("MemAvailable")?,
        used: total.saturating_sub(bytes("MemFree")?),
        rss: bytes("AnonPages").unwrap_or(0),
        swap_total,
        swap_used: swap_total.saturating_sub(bytes("SwapFree").unwrap_or(swap_total)),
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    /// Returns the usage of a node with one pod that has one container.
    pub fn example() -> Reading {
        let file_system = |id| FileSystemFact { capacity: 1000, available: 400, inodes: 50, inodes_free: 20, id };
        let usage = ContainerUsage {
            name: "main".into(),
            id: "c1".into(),
            restarts: 2,
            cpu_at: 1_700_000_100 * SECOND,
            cpu_nanos: Some(2_500_000_000),
            cpu_nano_cores: Some(7),
            memory_at: 1_700_000_101 * SECOND,
            memory_bytes: Some(4096),
            memory_available_bytes: Some(60_000),
            memory_usage_bytes: Some(8192),
            memory_rss_bytes: Some(2048),
            page_faults: Some(11),
            major_page_faults: Some(3),
            swap_bytes: Some(512),
            disk_bytes: Some(100),
            disk_inodes: Some(5),
        };
        let container = ContainerReading {
            usage,
            image: "docker.io/library/web:1".into(),
            cgroup: "/kubepods/podu1/c1".into(),
            started: Wall(1_700_000_000 * SECOND + SECOND / 2),
        };
        let pod = PodReading {
            namespace: "shop".into(),
            name: "web".into(),
            uid: "u1".into(),
            started: Wall(1_699_999_999 * SECOND),
            cpu_nanos: Some(3_500_000_000),
            memory_bytes: Some(9000),
            working_set_bytes: Some(5000),
            swap_bytes: Some(512),
            containers: vec![container],
        };
        let memory = Memory {
            total: 1_000_000,
            available: 400_000,
            used: 800_000,
            rss: 300_000,
            swap_total: 3000,
            swap_used: 1000,
        };
        let node = NodeReading {
            name: "pier-7".into(),
            boot: Wall(1_690_000_000 * SECOND),
            cores: 4,
            cpu_nanos: Some(90_000_000_000),
            memory: Some(memory),
            file_systems: Some((Wall(1_700_000_090 * SECOND), Some(file_system(1)), Some(file_system(2)))),
            processes: Some((32_768, 321)),
        };
        Reading { at: Wall(1_700_000_102 * SECOND), node, pods: vec![pod] }
    }

    #[test]
    fn the_memory_and_the_start_of_the_machine_are_read_from_proc() {
        let text = "MemTotal:  100 kB\nMemFree:  20 kB\nMemAvailable:  60 kB\nAnonPages:  7 kB\nSwapTotal: 9 kB\n\
                    SwapFree: 4 kB\n";
        let expected =
            Memory { total: 102_400, available: 61_440, used: 81_920, rss: 7168, swap_total: 9216, swap_used: 5120 };
        assert_eq!(memory(text), Some(expected));
        assert_eq!(expected.working_set(), 40_960);
        assert_eq!(memory("MemTotal: 100 kB\n"), None);
        assert_eq!(boot_time("cpu 1 2 3\nbtime 1700000000\n"), Some(1_700_000_000));
        assert_eq!(boot_time("btime x\n"), None);
        let own = memory(&fs::read_to_string("/proc/meminfo").unwrap()).unwrap();
        assert!(own.working_set() > 0 && own.working_set() < own.total, "{own:?}");
    }
}
