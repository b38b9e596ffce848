//! Checks whether a directory's content survives a reboot. A machine with a read-only root often has an overlay in
//! memory above it, so that everything can be written and nothing is kept.

use super::roots::Roots;
use crate::adapters::mount_table::Table;
use crate::api::finding::Finding;
use std::fs;
use std::path::Path;

/// Types of file systems that are in memory.
const IN_MEMORY: [&str; 2] = ["tmpfs", "ramfs"];

/// Returns a finding if the directory is lost at a reboot. `there` is the directory or its nearest existing ancestor.
pub(super) fn inspect(roots: &Roots, directory: &Path, there: &Path, field: &str) -> Option<Finding> {
    let table = Table::read(&roots.proc.join("self/mountinfo"));
    let mount = table.of(&fs::canonicalize(there).ok()?)?;
    let what = if IN_MEMORY.contains(&mount.kind.as_str()) {
        format!("is in memory ({})", mount.kind)
    } else {
        let options = table.details(&mount).filter(|_| mount.kind == "overlay")?.options;
        let upper = options.split(',').find_map(|option| option.strip_prefix("upperdir="))?;
        let kind = table.of(Path::new(upper)).map(|below| below.kind).filter(|k| IN_MEMORY.contains(&k.as_str()))?;
        format!("is on an overlay that is in memory ({upper} on {kind})")
    };
    let shown = directory.display();
    Some(Finding::warning(
        "storage",
        format!("{shown} {what}: a reboot or a power cut loses wherry's records, its CA and the pods' volumes"),
        format!("mount a file system of a disk at {shown}, or change {field} to a directory on one"),
    ))
}

#[cfg(test)]
mod tests {
    use super::super::roots::fake;
    use super::*;
    use crate::api::finding::Level;

    /// The finding for a directory of which only `/` exists.
    fn found(mountinfo: &str, directory: &str) -> Option<Finding> {
        let (_dir, roots) = fake(&[("proc/self/mountinfo", mountinfo)]);
        inspect(&roots, Path::new(directory), Path::new("/"), "--root-dir")
    }

    #[test]
    fn a_disk_and_an_overlay_on_a_disk_are_kept() {
        let disk = "1 0 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n";
        assert_eq!(found(disk, "/var/lib/wherry"), None);
        let image = "1 0 0:9 / / rw - overlay overlay rw,lowerdir=/ro,upperdir=/data/up per,workdir=/data/w\n\
                     2 1 8:2 / /data rw - ext4 /dev/mmcblk0p3 rw\n";
        assert_eq!(found(image, "/var/lib/wherry"), None);
        assert_eq!(found("", "/var/lib/wherry"), None);
        assert_eq!(found("not a mount table\n1 2 3 - \n", "/var/lib/wherry"), None);
    }

    #[test]
    fn memory_and_an_overlay_in_memory_are_lost_at_a_reboot() {
        let tmpfs = found("1 0 0:30 / / rw - tmpfs tmpfs rw,size=10240k\n", "/var/lib/wherry").unwrap();
        assert_eq!(tmpfs.level, Level::Warning);
        assert!(tmpfs.message.starts_with("/var/lib/wherry is in memory (tmpfs): a reboot"), "{}", tmpfs.message);
        // As overlayroot mounts it.
        let overlay = "1 0 0:9 / / rw - overlay overlayroot rw,lowerdir=/ro,upperdir=/media/root-rw/overlay\n\
                       2 1 8:2 / /ro ro - ext4 /dev/mmcblk0p2 ro\n\
                       3 1 0:31 / /media/root-rw rw - tmpfs tmpfs-root rw\n";
        let found = found(overlay, "/var/lib/wherry").unwrap();
        assert!(found.message.contains("an overlay that is in memory (/media/root-rw/overlay on tmpfs)"), "{found:?}");
        assert!(found.remedy.unwrap().ends_with("change --root-dir to a directory on one"));
    }
}
