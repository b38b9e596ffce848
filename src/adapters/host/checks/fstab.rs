//! Finds a file system that /etc/fstab lists for a directory and that is not mounted, for example because its device
//! appears late. Files that Wherry would write meanwhile would be hidden by it.

use super::roots::Roots;
use crate::adapters::mount_table::{Table, unescaped};
use crate::api::finding::Finding;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Returns the mount point of the file system that should contain this directory, if /etc/fstab lists it and it is not
/// mounted. Entries with `noauto` do not count.
pub fn missing_mount(directory: &Path) -> Option<PathBuf> {
    missing(&Roots::default(), directory)
}

fn missing(roots: &Roots, directory: &Path) -> Option<PathBuf> {
    let text = fs::read(roots.etc.join("fstab")).ok()?;
    let points = text.split(|byte| *byte == b'\n').filter_map(mount_point);
    let point = points.filter(|point| directory.starts_with(point)).max_by_key(|point| point.as_os_str().len())?;
    let table = Table::read(&roots.proc.join("self/mountinfo"));
    let mount = table.of(&fs::canonicalize(&point).unwrap_or_else(|_| point.clone()))?;
    // The table has the mount of the nearest directory above if there is none at the mount point.
    let is_mounted = fs::canonicalize(&point).is_ok_and(|real| mount.point == real.to_string_lossy());
    (!is_mounted).then_some(point)
}

/// Returns the mount point of a line (fstab(5)). None if nothing is mounted there at the boot.
fn mount_point(line: &[u8]) -> Option<PathBuf> {
    let mut fields = line.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
    let (source, point, kind) = (fields.next()?, fields.next()?, fields.next()?);
    let options = fields.next().unwrap_or_default();
    let is_manual = options.split(|byte| *byte == b',').any(|option| option == b"noauto");
    if source.starts_with(b"#") || kind == b"swap" || is_manual {
        return None;
    }
    let point = PathBuf::from(OsStr::from_bytes(&unescaped(point)));
    (point.is_absolute() && point != Path::new("/")).then_some(point)
}

/// Returns a finding if the file system of the directory is not mounted.
pub(super) fn inspect(roots: &Roots, directory: &Path) -> Option<Finding> {
    let point = missing(roots, directory)?;
    let point = point.display();
    Some(Finding::error(
        "storage",
        format!(
            "{}: /etc/fstab has a file system for {point} that is not mounted; wherry waits for it",
            directory.display()
        ),
        format!("mount it (mount {point}), or remove its line from /etc/fstab"),
    ))
}

#[cfg(test)]
mod tests {
    use super::super::roots::fake;
    use super::*;

    const ROOT: &str = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n";

    fn of(fstab: &str, mounts: &str, directory: &str) -> Option<PathBuf> {
        let (_dir, roots) = fake(&[("etc/fstab", fstab), ("proc/self/mountinfo", mounts)]);
        missing(&roots, Path::new(directory))
    }

    #[test]
    fn a_listed_file_system_that_is_not_mounted_is_found() {
        let directory = "/usr/lib/wherry";
        let fstab = "# <file system> <mount point> <type> <options>\n/dev/sda1 / ext4 errors=remount-ro 0 1\n\
                     LABEL=state /usr/lib ext4 defaults,nofail 0 2\n";
        assert_eq!(of(fstab, ROOT, directory), Some("/usr/lib".into()));
        let mounted = format!("{ROOT}2 1 8:2 / /usr/lib rw - ext4 /dev/sda2 rw\n");
        assert_eq!(of(fstab, &mounted, directory), None);
        assert_eq!(of(fstab, ROOT, "/usr/library"), None);
        assert_eq!(of("", ROOT, directory), None);
        assert_eq!(of(fstab, "", directory), None, "without a mount table nothing is known");
        let escaped = "/dev/sdb1 /no\\040such/dir ext4 defaults 0 2\n";
        assert_eq!(of(escaped, ROOT, "/no such/dir/wherry"), Some("/no such/dir".into()));
    }

    #[test]
    fn lines_that_mount_nothing_at_the_boot_do_not_count() {
        for line in [
            "#/dev/sda2 /usr/lib ext4 defaults 0 2",
            "# /dev/sda2 /usr/lib ext4 defaults",
            "/dev/sda2 /usr/lib ext4 defaults,noauto 0 2",
            "/dev/sda2 /usr/lib",
            "/dev/sda2 none swap sw 0 0",
            "/dev/sda2 usr/lib ext4 defaults",
            "",
        ] {
            assert_eq!(of(line, ROOT, "/usr/lib/wherry"), None, "{line}");
        }
    }

    #[test]
    fn the_finding_names_the_mount_point_and_the_remedy() {
        let (_dir, roots) = fake(&[("etc/fstab", "a /usr/lib ext4 nofail"), ("proc/self/mountinfo", ROOT)]);
        let found = inspect(&roots, Path::new("/usr/lib/wherry")).unwrap();
        assert!(found.message.contains("/etc/fstab has a file system for /usr/lib that is not mounted"), "{found:?}");
        assert!(found.remedy.unwrap().starts_with("mount it (mount /usr/lib)"));
    }
}
