//! Reads the resource usage of a pod's cgroup. It includes the sandbox, and the CPU time of containers that have ended,
//! because a sum over the running containers would drop when one of them ends. Reads up to three files for a pod and
//! never blocks.

use super::hierarchies::Cgroups;
use crate::api::cgroups::CLASSES;
use crate::api::names::Uid;
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CgroupUsage {
    /// CPU time since the cgroup was created, in nanoseconds.
    pub cpu_nanos: Option<u64>,
    /// All memory, including the page cache.
    pub memory_bytes: Option<u64>,
    /// The memory without inactive file pages, which the kernel can reclaim at any time.
    pub working_set_bytes: Option<u64>,
}

impl Cgroups {
    /// Returns the usage of a pod's cgroup; None if pods have no cgroups of their own, or this pod has none.
    pub fn usage_of(&self, uid: &Uid) -> Option<CgroupUsage> {
        if !self.names.per_qos {
            return None;
        }
        let cpu = self.pod_directory("cpuacct", uid).or_else(|| self.pod_directory("cpu", uid));
        let memory = self.pod_directory("memory", uid);
        if cpu.is_none() && memory.is_none() {
            return None;
        }
        let (memory_bytes, working_set_bytes) = memory.map_or((None, None), |directory| memory_of(&directory));
        Some(CgroupUsage { cpu_nanos: cpu.and_then(|directory| cpu_of(&directory)), memory_bytes, working_set_bytes })
    }

    /// Returns the directory of a pod, if it exists, in the hierarchy with this controller.
    fn pod_directory(&self, controller: &str, uid: &Uid) -> Option<PathBuf> {
        let hierarchy = self.hierarchies.iter().find(|h| h.controllers.iter().any(|name| name == controller))?;
        let directories = CLASSES.into_iter().filter_map(|qos| hierarchy.directory(&self.names.pod(qos, uid)));
        directories.into_iter().find(|directory| directory.is_dir())
    }
}

/// Returns the CPU time in nanoseconds. v1 reports nanoseconds, v2 microseconds.
fn cpu_of(directory: &Path) -> Option<u64> {
    number(&directory.join("cpuacct.usage"))
        .or_else(|| Some(entry(&directory.join("cpu.stat"), "usage_usec")?.saturating_mul(1000)))
}

fn memory_of(directory: &Path) -> (Option<u64>, Option<u64>) {
    let stat = directory.join("memory.stat");
    let (used, inactive) = match number(&directory.join("memory.current")) {
        Some(used) => (Some(used), entry(&stat, "inactive_file")),
        None => (number(&directory.join("memory.usage_in_bytes")), entry(&stat, "total_inactive_file")),
    };
    (used, used.zip(inactive).map(|(used, inactive)| used.saturating_sub(inactive)))
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Returns the value of the line `NAME VALUE` in a file.
fn entry(path: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::Hierarchy;
    use super::*;
    use crate::api::cgroups::{CgroupDriver, CgroupNames};

    fn cgroups(mounts: &[(&Path, &str, bool)]) -> Cgroups {
        let hierarchy = |(mount, controllers, unified): &(&Path, &str, bool)| Hierarchy {
            mount_point: mount.display().to_string(),
            root: "/".into(),
            unified: *unified,
            controllers: controllers.split(',').map(str::to_owned).collect(),
        };
        let names = CgroupNames { root: "/".into(), driver: CgroupDriver::Cgroupfs, per_qos: true };
        Cgroups { hierarchies: mounts.iter().map(hierarchy).collect(), names }
    }

    fn write(mount: &Path, files: &[(&str, &str)]) {
        let pod = mount.join("kubepods/burstable/podu1");
        fs::create_dir_all(&pod).unwrap();
        for (name, text) in files {
            fs::write(pod.join(name), text).unwrap();
        }
    }

    const EXPECTED: CgroupUsage =
        CgroupUsage { cpu_nanos: Some(5000), memory_bytes: Some(900), working_set_bytes: Some(600) };

    #[test]
    fn both_versions_of_cgroups_are_read() {
        let dir = tempfile::tempdir().unwrap();
        write(
            dir.path(),
            &[
                ("cpu.stat", "nr_periods 0\nusage_usec 5\nuser_usec 4\n"),
                ("memory.current", "900\n"),
                ("memory.stat", "anon 1\ninactive_file 300\n"),
            ],
        );
        let v2 = cgroups(&[(dir.path(), "cpu,memory", true)]);
        assert_eq!(v2.usage_of(&Uid::from("u1")), Some(EXPECTED));
        assert_eq!(v2.usage_of(&Uid::from("u2")), None);

        let (cpu, memory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        write(cpu.path(), &[("cpuacct.usage", "5000\n"), ("cpu.stat", "nr_periods 0\n")]);
        let stat = "inactive_file 7\ntotal_inactive_file 300\n";
        write(memory.path(), &[("memory.usage_in_bytes", "900\n"), ("memory.stat", stat)]);
        let v1 = cgroups(&[(cpu.path(), "cpu,cpuacct", false), (memory.path(), "memory", false)]);
        assert_eq!(v1.usage_of(&Uid::from("u1")), Some(EXPECTED));
    }

    #[test]
    fn a_value_that_cannot_be_read_is_unknown() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &[("cpu.stat", "usage_usec x\n"), ("memory.current", "900\n")]);
        let usage = cgroups(&[(dir.path(), "cpu,memory", true)]).usage_of(&Uid::from("u1"));
        assert_eq!(usage, Some(CgroupUsage { memory_bytes: Some(900), ..CgroupUsage::default() }));
    }
}
