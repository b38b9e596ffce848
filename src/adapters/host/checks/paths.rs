//! Checks directories: whether they exist or can be created, whether this process can write to them and other users
//! cannot, and whether there is free space. The checks write nothing: access(2) detects a read-only file system,
//! statvfs(2) a full one. A path can be on a file system that hangs, so each check runs on its own thread, and a
//! timeout is a finding, too.

use super::roots::Roots;
use super::{fstab, storage};
use crate::api::finding::Finding;
use crate::foreign::{self, NoAnswer};
use rustix::fs::{Access, StatVfs, StatVfsMountFlags, access, statvfs};
use std::collections::BTreeSet;
use std::fs::Metadata;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A file system with less free space, in bytes, is considered full. A record needs a few KiB, and so does its
/// directory.
const NO_ROOM: u64 = 1 << 20;
/// The defaults of a kubelet's evictionHard for the file system of its root directory, in percent.
const LITTLE_ROOM: u64 = 10;
const FEW_INODES: u64 = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Written, and needs free space: records, volumes, logs.
    Keep,
    /// Written rarely, a few bytes: sockets, a drop-in.
    Write,
    /// Only read: manifests.
    Read,
}

/// One directory of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfiguredDirectory {
    /// The name of the finding.
    pub check: &'static str,
    pub path: PathBuf,
    /// The configuration field or the flag that sets the path.
    pub field: &'static str,
    pub purpose: Purpose,
}

/// Checks all directories. Waits at most `patience` for each.
pub(super) fn inspect(roots: &Roots, directories: &[ConfiguredDirectory], patience: Duration) -> Vec<Finding> {
    let ask = |directory: &ConfiguredDirectory| {
        let (directory, roots) = (directory.clone(), roots.clone());
        foreign::start(move || (one(&directory), lost(&roots, &directory), disk(&directory)))
    };
    let asked: Vec<_> = directories.iter().map(|directory| (directory, ask(directory))).collect();
    let mut found = Vec::new();
    let mut disks = Vec::new();
    let mut devices = BTreeSet::new();
    for (directory, asked) in asked {
        match asked.answer(patience) {
            Ok((finding, lost, disk)) => {
                found.push(finding);
                found.extend(lost);
                // Each file system has one finding.
                disks.extend(disk.filter(|(device, _)| devices.insert(*device)).map(|(_, finding)| finding));
            }
            Err(why) => found.push(hangs(directory.check, &directory.path, directory.field, &why)),
        }
    }
    found.extend(disks);
    found
}

/// Returns the finding for a path that does not respond.
pub fn hangs(check: &'static str, path: &Path, field: &str, why: &NoAnswer) -> Finding {
    let shown = path.display();
    let remedy = format!(
        "find the mount (findmnt -T {shown}) and repair it (for a network file system, check its server), or change \
         {field}"
    );
    Finding::error(check, format!("{shown}: {why}"), remedy)
}

/// Returns a finding if a reboot loses Wherry's own records, or their file system is not mounted. (Logs in memory are
/// a way to spare a flash card.)
fn lost(roots: &Roots, directory: &ConfiguredDirectory) -> Option<Finding> {
    let ConfiguredDirectory { check, path, field, .. } = directory;
    if *check != "state" {
        return None;
    }
    fstab::inspect(roots, path).or_else(|| storage::inspect(roots, path, nearest(path), field))
}

/// Returns the device of a directory's file system, and the finding for its free space; None if the directory needs no
/// free space.
fn disk(directory: &ConfiguredDirectory) -> Option<(u64, Finding)> {
    let there = nearest(&directory.path);
    let device = std::fs::metadata(there).ok().filter(|_| directory.purpose == Purpose::Keep)?.dev();
    Some((device, room(there, statvfs(there).map_err(|e| e.to_string()))))
}

/// Returns why the file system of this directory accepts no data; None if it does, or if it cannot be examined. The
/// cause may be temporary.
pub fn is_stuck(directory: &Path) -> Option<&'static str> {
    let room = statvfs(nearest(directory)).ok()?;
    if room.f_flag.contains(StatVfsMountFlags::RDONLY) {
        return Some("its file system is read-only");
    }
    let no_inodes = room.f_files > 0 && room.f_favail == 0;
    (no_inodes || available(&room) < NO_ROOM).then_some("its file system is full")
}

/// Returns the path, or its nearest existing ancestor.
fn nearest(path: &Path) -> &Path {
    path.ancestors().find(|p| p.symlink_metadata().is_ok()).unwrap_or(Path::new("/"))
}

fn one(directory: &ConfiguredDirectory) -> Finding {
    let ConfiguredDirectory { check, path, field, purpose } = directory;
    let shown = path.display();
    let there = match std::fs::metadata(path) {
        Ok(meta) if meta.is_dir() => Some(meta),
        Ok(_) => {
            return Finding::error(
                check,
                format!("{shown} is not a directory"),
                format!("remove it, or change {field}"),
            );
        }
        Err(_) if path.symlink_metadata().is_ok() => {
            let message = format!("{shown} is a dangling symbolic link");
            return Finding::error(check, message, format!("correct the link, or change {field}"));
        }
        Err(_) => None,
    };
    if *purpose == Purpose::Read {
        return read(directory, there.as_ref());
    }
    let nearest = nearest(path);
    if let Err(e) = access(nearest, Access::WRITE_OK | Access::EXEC_OK) {
        let what = if there.is_some() { "cannot be written" } else { "does not exist and cannot be created" };
        let at = if there.is_some() { String::new() } else { format!("{}: ", nearest.display()) };
        let remedy = match e {
            rustix::io::Errno::ROFS => format!(
                "mount -o remount,rw the file system of {}, mount a writable one at {shown}, or change {field}",
                nearest.display()
            ),
            _ => format!("allow this user to write {}, or change {field}", nearest.display()),
        };
        return Finding::error(check, format!("{shown} {what}: {at}{e}"), remedy);
    }
    match there {
        Some(meta) => open_to_all(directory, &meta).unwrap_or_else(|| Finding::ok(check, format!("{shown}"))),
        None => Finding::ok(check, format!("{shown} does not exist yet; wherry creates it when it starts")),
    }
}

fn read(directory: &ConfiguredDirectory, there: Option<&Metadata>) -> Finding {
    let ConfiguredDirectory { check, path, field, .. } = directory;
    let shown = path.display();
    let Some(meta) = there else {
        let message = format!("{shown} does not exist: no manifests are read until it does");
        return Finding::warning(check, message, format!("mkdir -p {shown}, or change {field}"));
    };
    if let Err(e) = access(path, Access::READ_OK | Access::EXEC_OK) {
        return Finding::error(check, format!("{shown} cannot be read: {e}"), format!("chmod it, or change {field}"));
    }
    open_to_all(directory, meta).unwrap_or_else(|| Finding::ok(check, format!("{shown}")))
}

/// Returns a finding if every user can write to the directory, because manifests and records there can run any program
/// as root.
fn open_to_all(directory: &ConfiguredDirectory, meta: &Metadata) -> Option<Finding> {
    let mode = meta.permissions().mode() & 0o7777;
    let shown = directory.path.display();
    (mode & 0o002 != 0 && directory.purpose != Purpose::Write).then(|| {
        let message = format!("every user can write to {shown} (mode {mode:o}) and so run any program as root");
        Finding::warning(directory.check, message, format!("chmod o-w {shown}"))
    })
}

fn available(room: &StatVfs) -> u64 {
    room.f_bavail.saturating_mul(room.f_frsize)
}

fn room(path: &Path, room: Result<StatVfs, String>) -> Finding {
    let shown = path.display();
    let room = match room {
        Ok(room) => room,
        Err(e) => return Finding::warning("disk", format!("statfs {shown}: {e}"), "check this mount"),
    };
    let free = available(&room);
    let percent = |part: u64, of: u64| part.saturating_mul(100) / of.max(1);
    let share = percent(room.f_bavail, room.f_blocks);
    let mib = free >> 20;
    // Some file systems do not count inodes, for example btrfs.
    let inodes = (room.f_files > 0).then(|| percent(room.f_favail, room.f_files));
    let remedy = "free space there (journalctl --vacuum-size=100M, crictl rmi --prune), or use a larger disk";
    if room.f_flag.contains(StatVfsMountFlags::RDONLY) {
        let message = format!("{shown} is read-only: wherry cannot write records, and new pods cannot start");
        return Finding::error(
            "disk",
            message,
            "mount -o remount,rw it; dmesg shows whether the disk is broken; on a read-only root, mount a writable \
             file system at the directory that needs it",
        );
    }
    if free < NO_ROOM {
        return Finding::error(
            "disk",
            format!("{shown} is full: wherry cannot write records, and new pods cannot start"),
            remedy,
        );
    }
    match inodes {
        Some(0) if room.f_favail == 0 => {
            Finding::error("disk", format!("{shown} has no free inodes: new pods cannot start"), remedy)
        }
        Some(inodes) if inodes < FEW_INODES => {
            Finding::warning("disk", format!("{shown} has {inodes} % of its inodes left"), remedy)
        }
        _ if share < LITTLE_ROOM => Finding::warning("disk", format!("{shown} has {mib} MiB ({share} %) left"), remedy),
        Some(inodes) => {
            Finding::ok("disk", format!("{shown} has {mib} MiB ({share} %) and {inodes} % of its inodes left"))
        }
        None => Finding::ok("disk", format!("{shown} has {mib} MiB ({share} %) left")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::roots::fake;
    use super::*;
    use crate::api::finding::Level;
    use std::fs;

    fn directory(path: &Path, purpose: Purpose) -> ConfiguredDirectory {
        ConfiguredDirectory { check: "state", path: path.to_owned(), field: "--root-dir", purpose }
    }

    fn statvfs_of(free: u64, inodes: (u64, u64), flags: StatVfsMountFlags) -> StatVfs {
        StatVfs {
            f_frsize: 1 << 20,
            f_blocks: 1000,
            f_bavail: free,
            f_files: inodes.1,
            f_favail: inodes.0,
            f_flag: flags,
            ..statvfs("/").unwrap()
        }
    }

    #[test]
    fn a_directory_exists_or_can_be_created_or_the_reason_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let d = dir.path();
        fs::set_permissions(d, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(d.join("file"), "").unwrap();
        std::os::unix::fs::symlink(d.join("gone"), d.join("link")).unwrap();
        let level = |path: &str, purpose| one(&directory(&d.join(path), purpose));
        assert_eq!(level("", Purpose::Keep).level, Level::Ok);
        let made = level("a/b/c", Purpose::Keep);
        assert!(made.level == Level::Ok && made.message.ends_with("creates it when it starts"), "{made:?}");
        for (path, purpose, expected, part) in [
            ("file", Purpose::Keep, Level::Error, "is not a directory"),
            ("file/x", Purpose::Keep, Level::Error, "cannot be created"),
            ("link", Purpose::Write, Level::Error, "dangling"),
            ("none", Purpose::Read, Level::Warning, "no manifests are read"),
        ] {
            let finding = level(path, purpose);
            assert!(finding.level == expected && finding.message.contains(part), "{finding:?}");
            assert!(finding.remedy.is_some());
        }
        fs::set_permissions(d, fs::Permissions::from_mode(0o777)).unwrap();
        for purpose in [Purpose::Keep, Purpose::Read] {
            let finding = level("", purpose);
            assert!(finding.level == Level::Warning && finding.message.contains("mode 777"), "{finding:?}");
        }
        assert_eq!(level("", Purpose::Write).level, Level::Ok);
    }

    #[test]
    fn a_full_or_nearly_full_or_read_only_disk_is_reported() {
        let none = StatVfsMountFlags::empty();
        for (sizes, level, part) in [
            (statvfs_of(500, (50, 100), none), Level::Ok, "500 MiB (50 %) and 50 % of its inodes"),
            (statvfs_of(500, (0, 0), none), Level::Ok, "500 MiB (50 %) left"),
            (statvfs_of(99, (50, 100), none), Level::Warning, "99 MiB (9 %) left"),
            (statvfs_of(500, (4, 100), none), Level::Warning, "4 % of its inodes"),
            (statvfs_of(500, (0, 100), none), Level::Error, "no free inodes"),
            (statvfs_of(0, (50, 100), none), Level::Error, "is full"),
            (statvfs_of(500, (50, 100), StatVfsMountFlags::RDONLY), Level::Error, "is read-only"),
        ] {
            let finding = room(Path::new("/var/lib"), Ok(sizes));
            assert!(finding.level == level && finding.message.contains(part), "{finding:?}");
        }
        assert_eq!(room(Path::new("/"), Err("Input/output error".into())).level, Level::Warning);
    }

    #[test]
    fn each_file_system_is_reported_once_and_only_records_must_survive_a_reboot() {
        let dir = tempfile::tempdir().unwrap();
        let d = dir.path();
        fs::set_permissions(d, fs::Permissions::from_mode(0o700)).unwrap();
        let mut both = [directory(&d.join("a"), Purpose::Keep), directory(&d.join("b"), Purpose::Keep)];
        both[1].check = "logs";
        let (_proc, roots) = fake(&[("proc/self/mountinfo", "1 0 0:30 / / rw - tmpfs tmpfs rw\n")]);
        let found = inspect(&roots, &both, Duration::from_secs(60));
        assert_eq!(found.iter().map(|f| f.check).collect::<Vec<_>>(), ["state", "storage", "logs", "disk"]);
        assert_eq!(is_stuck(&d.join("a/b")), None);
    }
}
