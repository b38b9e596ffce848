//! Checks whether a directory's content survives a reboot. A machine with a read-only root often has an overlay in
//! memory above it, so that everything can be written and nothing is kept.

use super::roots::Roots;
use crate::api::finding::Finding;
use std::fs;
use std::path::{Path, PathBuf};

/// Types of file systems that are in memory.
const IN_MEMORY: [&str; 2] = ["tmpfs", "ramfs"];

/// A line of mountinfo.
struct MountLine<'a> {
    point: PathBuf,
    kind: &'a str,
    /// The options of the file system, separated by commas.
    options: &'a str,
}

/// Returns a finding if the directory is lost at a reboot. `there` is the directory or its nearest existing ancestor.
pub(super) fn inspect(roots: &Roots, directory: &Path, there: &Path, field: &str) -> Option<Finding> {
    let table = fs::read_to_string(roots.proc.join("self/mountinfo")).ok()?;
    let mount = mount_of(&table, &fs::canonicalize(there).ok()?)?;
    let what = if IN_MEMORY.contains(&mount.kind) {
        format!("is in memory ({})", mount.kind)
    } else {
        let upper = mount.options.split(',').find_map(|option| option.strip_prefix("upperdir="))?;
        let below = mount_of(&table, &PathBuf::from(unescaped(upper)))?;
        if mount.kind != "overlay" || !IN_MEMORY.contains(&below.kind) {
            return None;
        }
        format!("is on an overlay that is in memory ({upper} on {})", below.kind)
    };
    let shown = directory.display();
    Some(Finding::warning(
        "storage",
        format!("{shown} {what}: a reboot or a power cut loses wherry's records, its CA and the pods' volumes"),
        format!("mount a file system of a disk at {shown}, or change {field} to a directory on one"),
    ))
}

/// Returns the mount that contains a path without links. Of two mounts at the same point, the later one covers the
/// other.
fn mount_of<'a>(table: &'a str, path: &Path) -> Option<MountLine<'a>> {
    table
        .lines()
        .filter_map(mount_line)
        .filter(|mount| path.starts_with(&mount.point))
        .max_by_key(|mount| mount.point.components().count())
}

/// Parses a line such as `36 35 98:0 /root /point rw,noatime master:1 - ext4 /dev/sda1 rw,errors=continue`.
fn mount_line(line: &str) -> Option<MountLine<'_>> {
    let (of_mount, of_file_system) = line.split_once(" - ")?;
    let point = PathBuf::from(unescaped(of_mount.split(' ').nth(4)?));
    let mut columns = of_file_system.split(' ');
    let kind = columns.next()?;
    Some(MountLine { point, kind, options: columns.nth(1).unwrap_or_default() })
}

/// Replaces the escapes of spaces and tabs. (The others are rare in paths of the system.)
fn unescaped(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t")
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

    #[test]
    fn the_deepest_and_then_the_latest_mount_contains_a_path() {
        let table = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n\
                     2 1 8:2 / /var\\040x rw - ext4 /dev/sda2 rw\n\
                     3 1 0:3 / /var\\040x rw - tmpfs tmpfs rw\n";
        let kind = |path: &str| mount_of(table, Path::new(path)).unwrap().kind;
        assert_eq!((kind("/var x/lib"), kind("/var"), kind("/")), ("tmpfs", "ext4", "ext4"));
    }
}
