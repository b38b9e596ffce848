//! Checks where the kernel swaps to: into memory itself, or onto a flash card, which wears out.

use super::roots::{Roots, text};
use crate::api::finding::Finding;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A line of /proc/swaps.
struct SwapArea {
    path: PathBuf,
    kib: u64,
}

/// `for_pods`: whether pods share the swap (`swapBehavior: LimitedSwap`).
pub(super) fn inspect(roots: &Roots, for_pods: bool) -> Finding {
    let table = text(&roots.proc.join("swaps")).unwrap_or_default();
    let areas: Vec<SwapArea> = table.lines().skip(1).filter_map(swap_area).collect();
    if areas.is_empty() {
        return Finding::ok("swap", "none");
    }
    let shown: Vec<String> = areas.iter().map(|area| shown(roots, area)).collect();
    let shown = shown.join(", ");
    if areas.iter().any(|area| is_on_card(roots, &area.path)) {
        return Finding::warning(
            "swap",
            format!("{shown}: swapping wears out the card"),
            "swap to compressed memory instead (Debian: apt install zram-tools), and remove the swap on the card \
             (swapoff, /etc/fstab, dphys-swapfile)",
        );
    }
    if for_pods && areas.iter().any(|area| is_in_memory(&area.path)) {
        return Finding::warning(
            "swap",
            format!("{shown}: with LimitedSwap, pods share it as if it were more memory than there is"),
            "set memorySwap.swapBehavior: NoSwap in the configuration, or swap to a disk",
        );
    }
    Finding::ok("swap", shown)
}

/// Parses a line such as `/dev/zram0 partition 524284 0 100`; the third column is the size in KiB.
fn swap_area(line: &str) -> Option<SwapArea> {
    let mut columns = line.split_whitespace();
    let path = PathBuf::from(columns.next()?.replace("\\040", " "));
    Some(SwapArea { path, kib: columns.nth(1)?.parse().ok()? })
}

fn shown(roots: &Roots, area: &SwapArea) -> String {
    let place = if is_in_memory(&area.path) {
        " in compressed memory"
    } else if is_on_card(roots, &area.path) {
        " on a flash card"
    } else {
        ""
    };
    format!("{} ({} MiB{place})", area.path.display(), area.kib >> 10)
}

fn is_in_memory(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("zram"))
}

/// Reports whether a swap area is on an SD card or eMMC: a partition of one, or a file on its file system.
fn is_on_card(roots: &Roots, path: &Path) -> bool {
    let is_card = |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("mmcblk"));
    if path.starts_with("/dev") {
        return is_card(path);
    }
    let Ok(device) = fs::metadata(path).map(|file| file.dev()) else { return false };
    let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    fs::canonicalize(roots.sys.join("dev/block").join(number)).is_ok_and(|device| is_card(&device))
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
        let (dir, roots) = fake(&[("swap file", ""), ("sys/devices/mmcblk0/mmcblk0p2/partition", "2")]);
        let file = dir.path().join("swap file");
        let device = fs::metadata(&file).unwrap().dev();
        let link = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
        fs::create_dir_all(roots.sys.join("dev/block")).unwrap();
        let line = format!("{} file\t102396\t\t0\t\t-2\n", file.display().to_string().replace(' ', "\\040"));
        fs::create_dir_all(&roots.proc).unwrap();
        fs::write(roots.proc.join("swaps"), format!("{HEADER}{line}")).unwrap();
        assert_eq!(inspect(&roots, false).level, Level::Ok);
        let target = roots.sys.join("devices/mmcblk0/mmcblk0p2");
        std::os::unix::fs::symlink(target, roots.sys.join("dev/block").join(link)).unwrap();
        assert_eq!(inspect(&roots, false).level, Level::Warning);
    }
}
