//! Values of the cgroups of processes, on cgroup v1 and v2.

use std::fs;
use std::path::Path;

/// Returns the content of a file in the cgroup of a process. `v1` and `v2` are the names of the file on cgroup v1 and
/// v2.
pub fn value_of_process(pid: u32, controller: &str, v1: &str, v2: &str) -> String {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("cgroup");
    let find = |wanted: &str| {
        groups.lines().find_map(|l| {
            let mut parts = l.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?);
            controllers.split(',').any(|c| c == wanted).then(|| path.trim_start_matches('/').to_string())
        })
    };
    let root = Path::new("/sys/fs/cgroup");
    let file = match find(controller) {
        Some(path) => root.join(controller).join(path).join(v1),
        None => root.join(find("").expect("a cgroup")).join(v2),
    };
    fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display())).trim().to_string()
}

/// Returns the memory limit of a process in bytes.
pub fn memory_limit(pid: u32) -> String {
    value_of_process(pid, "memory", "memory.limit_in_bytes", "memory.max")
}

/// Returns the cpu time of a process in microseconds per 100 ms.
pub fn cpu_quota(pid: u32) -> String {
    let text = value_of_process(pid, "cpu", "cpu.cfs_quota_us", "cpu.max");
    text.trim_end_matches(" 100000").to_string()
}
