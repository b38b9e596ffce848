//! Facts about the machine, determined as in a kubelet.

use crate::api::ordered::OrderSlice;
use crate::foreign::{self, Links};
use std::fs;
use std::path::Path;

/// The maximum size of a resolv.conf in bytes.
const MAX_RESOLV_CONF: u64 = 64 << 10;

/// Returns the machine's memory in bytes.
///
/// # Errors
/// /proc/meminfo cannot be read or has no valid line MemTotal.
pub fn memory_capacity() -> Result<u64, String> {
    meminfo("MemTotal:")
}

/// Returns the machine's swap in bytes.
///
/// # Errors
/// /proc/meminfo cannot be read or has no valid line SwapTotal.
pub fn swap_capacity() -> Result<u64, String> {
    meminfo("SwapTotal:")
}

fn meminfo(name: &str) -> Result<u64, String> {
    let path = "/proc/meminfo";
    let text = fs::read_to_string(path).map_err(|e| format!("read {path}: {e}"))?;
    meminfo_bytes(&text, name).ok_or_else(|| format!("parse {path}: no line {}", name.trim_end_matches(':')))
}

/// Returns the value of a line of /proc/meminfo, in bytes.
pub(super) fn meminfo_bytes(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|l| l.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Returns the kernel's limit for the number of processes and threads.
pub fn most_processes() -> Option<u64> {
    let read = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    ["/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"].into_iter().filter_map(read).min()
}

/// Returns the kernel's id of this boot; empty if it cannot be read.
pub fn boot_id() -> String {
    let path = "/proc/sys/kernel/random/boot_id";
    let read = fs::read_to_string(path).map_err(|e| {
        log::warn!("failed to read the boot id; continuing without it path={path} error={:?}", e.to_string())
    });
    read.unwrap_or_default().trim().to_owned()
}

/// Returns the huge page sizes of the kernel in bytes, ascending; empty if the kernel has no huge pages.
pub fn huge_page_sizes() -> Vec<u64> {
    let names = fs::read_dir("/sys/kernel/mm/hugepages").into_iter().flatten().flatten();
    let mut sizes: Vec<u64> = names.filter_map(|e| huge_page_size(e.file_name().to_str()?)).collect();
    sizes.order();
    sizes
}

/// Returns the directories with the throttling counters of each processor, in order. The counters reveal what other
/// programs on the machine do.
pub fn throttle_paths() -> Vec<String> {
    throttle_paths_in(Path::new("/sys/devices/system/cpu"))
}

fn throttle_paths_in(directory: &Path) -> Vec<String> {
    let names = fs::read_dir(directory).into_iter().flatten().flatten();
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.strip_prefix("cpu")?.parse::<u32>().ok();
    let mut numbers: Vec<u32> = names.filter_map(number).collect();
    numbers.order();
    let paths = numbers.into_iter().map(|n| directory.join(format!("cpu{n}/thermal_throttle")));
    paths.filter(|path| path.exists()).map(|path| path.to_string_lossy().into_owned()).collect()
}

/// Reports whether SELinux is on, even if it is permissive.
pub fn has_selinux() -> bool {
    Path::new("/sys/fs/selinux/enforce").exists()
}

/// Returns the page size in bytes from a directory name such as `hugepages-2048kB`.
pub(super) fn huge_page_size(name: &str) -> Option<u64> {
    name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Reads a resolv.conf.
///
/// # Errors
/// The file cannot be read, is too large or is not UTF-8.
pub fn resolv_conf(path: &Path) -> Result<String, String> {
    let failed = |why: String| format!("read {}: {why}", path.display());
    let bytes = foreign::read(path, Links::Follow, MAX_RESOLV_CONF).map_err(|e| failed(e.to_string()))?;
    String::from_utf8(bytes).map_err(|_| failed("it is not UTF-8".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_processor_with_counts_of_throttling_has_a_path() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["cpu10/thermal_throttle", "cpu2/thermal_throttle", "cpu3/cache", "cpufreq/thermal_throttle"] {
            fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        let path = |n: u32| format!("{}/cpu{n}/thermal_throttle", dir.path().display());
        assert_eq!(throttle_paths_in(dir.path()), [path(2), path(10)]);
        assert_eq!(throttle_paths_in(&dir.path().join("none")), [""; 0]);
    }

    #[test]
    fn facts_are_read_in_bytes() {
        assert_eq!(meminfo_bytes("MemTotal:       24563948 kB\nMemFree: 1 kB\n", "MemTotal:"), Some(24_563_948 * 1024));
        assert_eq!(meminfo_bytes("nothing", "MemTotal:"), None);
        assert_eq!(huge_page_size("hugepages-1048576kB"), Some(1 << 30));
        assert!(memory_capacity().unwrap() > 0 && most_processes().unwrap() > 100);
        assert!(huge_page_sizes().is_sorted());
    }
}
