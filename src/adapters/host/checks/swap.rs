//! Checks where the kernel swaps to: into memory itself, or onto a flash card, which wears out.

use super::roots::{Roots, text};
use crate::adapters::mount_table::{Table, shown};
use crate::api::finding::Finding;
use std::fmt;
use std::fs;
use std::path::Path;

/// A partition or a file to which the kernel swaps.
struct SwapArea {
    path: String,
    kib: u64,
    place: Place,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// zram: compressed pages in memory.
    Memory,
    /// An SD card or eMMC.
    Card,
    Elsewhere,
}

impl fmt::Display for SwapArea {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match self.place {
            Place::Memory => " in compressed memory",
            Place::Card => " on a flash card",
            Place::Elsewhere => "",
        };
        write!(f, "{} ({} MiB{place})", self.path, self.kib >> 10)
    }
}

/// `for_pods`: whether pods share the swap (`swapBehavior: LimitedSwap`).
pub(super) fn inspect(roots: &Roots, for_pods: bool) -> Finding {
    let table = text(&roots.proc.join("swaps")).unwrap_or_default();
    let areas: Vec<SwapArea> = table.lines().skip(1).filter_map(|line| swap_area(roots, line)).collect();
    let is_in = |place| areas.iter().any(|area| area.place == place);
    let listed = areas.iter().map(SwapArea::to_string).collect::<Vec<_>>().join(", ");
    if areas.is_empty() {
        Finding::ok("swap", "none")
    } else if is_in(Place::Card) {
        Finding::warning(
            "swap",
            format!("{listed}: swapping wears out the card"),
            "swap to compressed memory instead (Debian: apt install zram-tools), and remove the swap on the card \
             (swapoff, /etc/fstab, dphys-swapfile)",
        )
    } else if for_pods && is_in(Place::Memory) {
        Finding::warning(
            "swap",
            format!("{listed}: with LimitedSwap, pods share it as if it were more memory than there is"),
            "set memorySwap.swapBehavior: NoSwap in the configuration, or swap to a disk",
        )
    } else {
        Finding::ok("swap", listed)
    }
}

/// Parses a line such as `/dev/zram0 partition 524284 0 100`; the third column is the size in KiB.
fn swap_area(roots: &Roots, line: &str) -> Option<SwapArea> {
    let mut columns = line.split_whitespace();
    let path = shown(columns.next()?.as_bytes());
    let kib = columns.nth(1)?.parse().ok()?;
    let place = place(roots, Path::new(&path));
    Some(SwapArea { path, kib, place })
}

/// Finds the device of a swap area in the kernel's tables, because a look at a file can hang.
fn place(roots: &Roots, path: &Path) -> Place {
    if path.starts_with("/dev") {
        return of_device(path);
    }
    let table = Table::read(&roots.proc.join("self/mountinfo"));
    let details = table.of(path).and_then(|mount| table.details(&mount));
    let device = details.and_then(|found| fs::canonicalize(roots.sys.join("dev/block").join(found.device)).ok());
    device.map_or(Place::Elsewhere, |device| of_device(&device))
}

/// Recognises a device by its name in /dev or /sys.
fn of_device(path: &Path) -> Place {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if name.starts_with("zram") {
        Place::Memory
    } else if name.starts_with("mmcblk") {
        Place::Card
    } else {
        Place::Elsewhere
    }
}

#[cfg(test)]
mod tests {
    use super::super::roots::fake;
    use super::*;
    use crate::api::finding::Level;

    const HEADER: &str = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n";

    fn found(areas: &str, for_pods: bool) -> Finding {
        let (_dir, roots) = fake(&[("proc/swaps", &format!("{HEADER}{areas}"))]);
        inspect(&roots, for_pods)
    }

    #[test]
    fn no_swap_a_disk_and_compressed_memory_are_fine() {
        assert_eq!(found("", true), Finding::ok("swap", "none"));
        let (_dir, no_swap_in_kernel) = fake(&[]);
        assert_eq!(inspect(&no_swap_in_kernel, true), Finding::ok("swap", "none"));
        let disk = "/dev/sda2                               partition\t1048572\t\t0\t\t-2\n";
        assert_eq!(found(disk, true), Finding::ok("swap", "/dev/sda2 (1023 MiB)"));
        let zram = "/dev/zram0                              partition\t524284\t\t0\t\t100\n";
        assert_eq!(found(zram, false), Finding::ok("swap", "/dev/zram0 (511 MiB in compressed memory)"));
        let shared = found(zram, true);
        assert!(shared.level == Level::Warning && shared.remedy.unwrap().contains("NoSwap"), "{}", shared.message);
    }

    #[test]
    fn swap_on_a_card_is_reported_for_a_partition_and_for_a_file() {
        let partition = found("/dev/mmcblk0p3 partition\t1048572\t\t0\t\t-2\n", false);
        assert_eq!(partition.level, Level::Warning);
        assert_eq!(partition.message, "/dev/mmcblk0p3 (1023 MiB on a flash card): swapping wears out the card");
        let mountinfo = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 179:2 / /data rw - ext4 /dev/root rw\n";
        let area = "/data/swap\\040file file\t102396\t\t0\t\t-2\n";
        let swaps = format!("{HEADER}{area}");
        let (_dir, roots) = fake(&[
            ("proc/swaps", &swaps),
            ("proc/self/mountinfo", mountinfo),
            ("sys/devices/mmcblk0/mmcblk0p2/partition", "2"),
            ("sys/dev/block/8:1/dev", "8:1"),
        ]);
        assert_eq!(inspect(&roots, false), Finding::ok("swap", "/data/swap file (99 MiB)"));
        let target = roots.sys.join("devices/mmcblk0/mmcblk0p2");
        std::os::unix::fs::symlink(target, roots.sys.join("dev/block/179:2")).unwrap();
        assert_eq!(inspect(&roots, false).level, Level::Warning);
        fs::write(roots.proc.join("swaps"), swaps.replace("/data", "/srv")).unwrap();
        assert_eq!(inspect(&roots, false).level, Level::Ok);
    }
}
