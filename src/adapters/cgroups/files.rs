//! Converts limits to values for the files of a cgroup (v1 and v2), and writes them. Error messages include the remedy
//! if one is known.

use crate::api::limits::{Limits, page_size_name, weight};
use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Write};
use std::path::Path;

/// The controllers whose limits Wherry sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Controller {
    Cpu,
    Memory,
    Pids,
    HugePages,
}

pub(super) const CONTROLLERS: [Controller; 4] =
    [Controller::Cpu, Controller::Memory, Controller::Pids, Controller::HugePages];

impl Controller {
    /// Returns the kernel's name of the controller.
    pub(super) fn name(self) -> &'static str {
        match self {
            Controller::Cpu => "cpu",
            Controller::Memory => "memory",
            Controller::Pids => "pids",
            Controller::HugePages => "hugetlb",
        }
    }

    /// Returns how to enable the controller on a kernel that lacks it.
    pub(super) fn remedy(self) -> &'static str {
        match self {
            // The memory controller is off by default on a Raspberry Pi, for example.
            Controller::Memory => "add cgroup_enable=memory to the kernel's command line and reboot",
            Controller::Cpu => "the kernel needs CONFIG_FAIR_GROUP_SCHED and CONFIG_CFS_BANDWIDTH",
            Controller::Pids => "the kernel needs CONFIG_CGROUP_PIDS",
            Controller::HugePages => "the kernel needs CONFIG_CGROUP_HUGETLB",
        }
    }
}

/// A value for a file of a cgroup.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Value {
    pub(super) file: String,
    pub(super) text: String,
    /// Whether the spec requests this limit, so that a missing file is an error.
    pub(super) needed: bool,
}

/// Returns the values for the files of a controller. In a new cgroup (`new`), an absent limit needs no value.
pub(super) fn values(controller: Controller, limits: &Limits, unified: bool, new: bool) -> Vec<Value> {
    let mut all = Vec::new();
    let mut add = |file: &str, text: String, needed: bool| all.push(Value { file: file.to_owned(), text, needed });
    let number_or = |number: Option<u64>, none: &str| number.map_or_else(|| none.to_owned(), |n| n.to_string());
    match (controller, unified) {
        (Controller::Cpu, false) => {
            if let Some(shares) = limits.cpu_shares {
                add("cpu.shares", shares.to_string(), false);
            }
            if let Some(cpu) = limits.cpu {
                // A new cgroup already has the kernel's default period.
                if !new || cpu.period != KERNELS_PERIOD {
                    add("cpu.cfs_period_us", cpu.period.to_string(), true);
                }
                add("cpu.cfs_quota_us", cpu.quota.to_string(), true);
            } else if !new {
                add("cpu.cfs_quota_us", "-1".to_owned(), false);
            }
        }
        (Controller::Cpu, true) => {
            if let Some(shares) = limits.cpu_shares {
                add("cpu.weight", weight(shares).to_string(), false);
            }
            if let Some(cpu) = limits.cpu {
                add("cpu.max", format!("{} {}", cpu.quota, cpu.period), true);
            } else if !new {
                add("cpu.max", "max".to_owned(), false);
            }
        }
        (Controller::Memory, _) if limits.memory.is_some() || !new => {
            let (file, none) = if unified { ("memory.max", "max") } else { ("memory.limit_in_bytes", "-1") };
            add(file, number_or(limits.memory, none), limits.memory.is_some());
        }
        (Controller::Pids, _) if limits.pids.is_some() || !new => {
            add("pids.max", number_or(limits.pids, "max"), false);
        }
        (Controller::Memory | Controller::Pids, _) => {}
        (Controller::HugePages, _) => {
            let file = if unified { "max" } else { "limit_in_bytes" };
            for (&size, limit) in &limits.huge_pages {
                add(&format!("hugetlb.{}.{file}", page_size_name(size)), limit.to_string(), false);
            }
        }
    }
    all
}

/// The quota period of a new cgroup in microseconds.
const KERNELS_PERIOD: u64 = 100_000;

/// Writes a value. A missing file is an error only if the value is needed.
///
/// # Errors
/// The message contains the value, the file and the kernel's error.
pub(super) fn write(directory: &Path, value: &Value) -> Result<(), String> {
    let path = directory.join(&value.file);
    match put(&path, &value.text) {
        Err(e) if e.kind() == ErrorKind::NotFound && !value.needed => Ok(()),
        Err(e) if e.kind() == ErrorKind::NotFound => Err(format!(
            "cannot write {} to {}: the kernel has no such file, so this limit cannot be enforced",
            value.text,
            path.display()
        )),
        other => other.map_err(|e| format!("write {} to {}: {}", value.text, path.display(), with_remedy(&e))),
    }
}

/// Writes the text to an existing file, in one write(2).
pub(super) fn put(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes())
}

/// Returns the text of the kernel's error, with the remedy if one is known.
pub(super) fn with_remedy(e: &io::Error) -> String {
    match e.kind() {
        ErrorKind::ReadOnlyFilesystem => format!(
            "{e}; wherry needs to write to cgroups: mount the cgroup file system read-write (in a container: run \
             it privileged)"
        ),
        ErrorKind::PermissionDenied => {
            format!("{e}; wherry needs to write to cgroups: run it as root, without a security profile that denies it")
        }
        ErrorKind::StorageFull => format!(
            "{e}; the limit on the number of cgroups is reached: see cgroup.max.descendants of the parent cgroups"
        ),
        _ => e.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::limits::CpuQuota;
    use std::fs;

    fn full() -> Limits {
        Limits {
            cpu_shares: Some(1024),
            cpu: Some(CpuQuota { quota: 25_000, period: 100_000 }),
            memory: Some(1 << 20),
            pids: Some(50),
            huge_pages: [(2 << 20, 4 << 20), (1 << 30, 0)].into(),
        }
    }

    fn texts(limits: &Limits, unified: bool, new: bool) -> Vec<String> {
        let all = CONTROLLERS.into_iter().flat_map(|c| values(c, limits, unified, new));
        all.map(|v| format!("{}={}{}", v.file, v.text, if v.needed { "!" } else { "" })).collect()
    }

    #[test]
    fn the_same_limits_are_written_to_v1_and_v2_files() {
        assert_eq!(
            texts(&full(), false, true),
            [
                "cpu.shares=1024",
                "cpu.cfs_quota_us=25000!",
                "memory.limit_in_bytes=1048576!",
                "pids.max=50",
                "hugetlb.2MB.limit_in_bytes=4194304",
                "hugetlb.1GB.limit_in_bytes=0",
            ]
        );
        assert_eq!(
            texts(&full(), true, true),
            [
                "cpu.weight=39",
                "cpu.max=25000 100000!",
                "memory.max=1048576!",
                "pids.max=50",
                "hugetlb.2MB.max=4194304",
                "hugetlb.1GB.max=0",
            ]
        );
        let other = Limits { cpu: Some(CpuQuota { quota: 5000, period: 10_000 }), ..Limits::default() };
        assert_eq!(texts(&other, false, true), ["cpu.cfs_period_us=10000!", "cpu.cfs_quota_us=5000!"]);
    }

    #[test]
    fn an_absent_limit_is_written_only_to_an_existing_cgroup() {
        assert!(texts(&Limits::default(), false, true).is_empty());
        assert!(texts(&Limits::default(), true, true).is_empty());
        assert_eq!(
            texts(&Limits::default(), false, false),
            ["cpu.cfs_quota_us=-1", "memory.limit_in_bytes=-1", "pids.max=max"]
        );
        assert_eq!(texts(&Limits::default(), true, false), ["cpu.max=max", "memory.max=max", "pids.max=max"]);
    }

    #[test]
    fn a_missing_kernel_file_is_an_error_only_if_a_limit_requires_it() {
        let dir = tempfile::tempdir().unwrap();
        let value = |needed| Value { file: "memory.max".into(), text: "7".into(), needed };
        assert_eq!(write(dir.path(), &value(false)), Ok(()));
        let error = write(dir.path(), &value(true)).unwrap_err();
        assert!(
            error.starts_with("cannot write 7 to ") && error.contains("memory.max: the kernel has no such file"),
            "{error}"
        );
        let path = dir.path().join("memory.max");
        fs::write(&path, "max").unwrap();
        assert_eq!(write(dir.path(), &value(true)), Ok(()));
        assert!(fs::read_to_string(path).unwrap().starts_with('7'));
        // A file that not even root can write.
        let forbidden = Value { file: "version".into(), text: "7".into(), needed: false };
        let error = write(Path::new("/proc"), &forbidden).unwrap_err();
        assert!(error.starts_with("write 7 to /proc/version: "), "{error}");
    }

    #[test]
    fn write_errors_include_a_remedy() {
        for (errno, wanted) in [
            (rustix::io::Errno::ROFS, "read-write"),
            (rustix::io::Errno::ACCESS, "as root"),
            (rustix::io::Errno::PERM, "as root"),
        ] {
            let text = with_remedy(&errno.into());
            assert!(text.contains(wanted), "{text}");
        }
        assert_eq!(with_remedy(&rustix::io::Errno::BUSY.into()), io::Error::from(rustix::io::Errno::BUSY).to_string());
    }
}
