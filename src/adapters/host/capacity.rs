//! The capacity of the machine (A2): cpus, memory, disk and huge pages, from /proc, /sys and the root directory's file
//! system.

use crate::adapters::host::machine;
use crate::api::node_facts::MachineFacts;
use crate::api::ordered::OrderSlice;
use std::fs;
use std::path::Path;

const ONLINE: &str = "/sys/devices/system/cpu/online";
const HUGE_PAGES: &str = "/sys/kernel/mm/hugepages";
const APPARMOR: &str = "/sys/module/apparmor/parameters/enabled";
/// The amount of memory, in bytes, that is assumed if the real amount cannot be determined. It is typical of a small
/// machine.
const UNKNOWN_MEMORY: u64 = 1 << 30;

/// Reads the current capacity. The storage size is the size of the file system that contains `root` (or its nearest
/// existing parent). The call blocks if that file system hangs, so it is called only at the start and on a reload. A
/// value that cannot be read is logged and replaced with a default.
pub fn read(root: &Path) -> MachineFacts {
    let cpus = fs::read_to_string(ONLINE)
        .map_err(|e| format!("read {ONLINE}: {e}"))
        .and_then(|list| cpus(&list).ok_or_else(|| format!("parse {ONLINE}: {:?} is not a list of cpus", list.trim())));
    let known = |what: &str, found: Result<u64, String>, instead: u64| {
        found.unwrap_or_else(|e| {
            log::warn!("cannot determine the capacity; using the default resource={what} taken={instead} error={e:?}");
            instead
        })
    };
    let usable = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    MachineFacts {
        cpus: known("cpu", cpus, usable),
        memory: known("memory", machine::memory_capacity(), UNKNOWN_MEMORY),
        storage: known("ephemeral-storage", storage(root), 0),
        huge_pages: huge_pages(Path::new(HUGE_PAGES)),
        architecture: std::env::consts::ARCH.to_owned(),
        apparmor: fs::read_to_string(APPARMOR).is_ok_and(|text| text.trim() == "Y"),
    }
}

/// Counts the cpus in a list such as `0-3,7`.
fn cpus(list: &str) -> Option<u64> {
    let mut count = 0u64;
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        count = count.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    Some(count)
}

/// Returns the size in bytes of the file system of `root` or of its nearest existing parent.
fn storage(root: &Path) -> Result<u64, String> {
    let there = root.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    let sizes = rustix::fs::statvfs(there).map_err(|e| format!("statfs {}: {e}", there.display()))?;
    Ok(sizes.f_blocks.saturating_mul(sizes.f_frsize))
}

/// Returns pairs of page size in bytes and number of pages, ascending by size.
fn huge_pages(directory: &Path) -> Vec<(u64, u64)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut all: Vec<(u64, u64)> = entries
        .filter_map(|entry| {
            let size = machine::huge_page_size(entry.file_name().to_str()?)?;
            let count = fs::read_to_string(entry.path().join("nr_hugepages")).ok()?;
            Some((size, count.trim().parse().ok()?))
        })
        .collect();
    all.order();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a2_online_cpus_are_counted() {
        for (list, count) in [("0-3\n", 4), ("0", 1), ("0-1,4,8-15\n", 11)] {
            assert_eq!(cpus(list), Some(count), "{list}");
        }
        for list in ["", "x", "3-1", "0-", "0-18446744073709551615,1"] {
            assert_eq!(cpus(list), None, "{list}");
        }
    }

    #[test]
    fn a2_huge_pages_are_read_by_size() {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [("hugepages-1048576kB", "2\n"), ("hugepages-2048kB", "512\n"), ("hugepages-64kB", "junk")]
        {
            fs::create_dir(dir.path().join(name)).unwrap();
            fs::write(dir.path().join(name).join("nr_hugepages"), text).unwrap();
        }
        assert_eq!(huge_pages(dir.path()), [(2 << 20, 512), (1 << 30, 2)]);
        assert_eq!(huge_pages(&dir.path().join("none")), []);
    }

    #[test]
    fn a2_this_machine_has_a_nonzero_capacity_of_each_resource() {
        let found = read(Path::new("/nowhere/at/all"));
        assert!(found.cpus > 0 && found.memory > 0 && found.storage > 0, "{found:?}");
        assert_eq!(found.storage, storage(Path::new("/")).unwrap(), "of the nearest existing parent");
    }
}
