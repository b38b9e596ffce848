//! `fsGroup`: gives a volume's files to a group, with the permissions that a kubelet adds.

use super::beneath::change_group;
use super::error::SystemCallFailure;
use super::mounts::path_of;
use crate::adapters::pod_files::mount_id;
use crate::api::volume::FsGroup;
use rustix::fd::OwnedFd;
use rustix::fs::{Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

/// Maximum depth of a volume. Each level needs two open descriptors.
const MAX_DEPTH: usize = 256;
const SET_GROUP_ID: u32 = 0o2000;

/// The access that the group gets.
#[derive(Clone, Copy)]
pub(super) enum GroupAccess {
    Read,
    Write,
}

/// Returns the mode of a directory that belongs to the group. New files in the directory belong to the group too.
pub(super) fn directory_mode(mode: u32, access: GroupAccess) -> u32 {
    file_mode(mode, access) | 0o110 | SET_GROUP_ID
}

/// Returns the mode of a file that belongs to the group.
pub(super) fn file_mode(mode: u32, access: GroupAccess) -> u32 {
    mode | match access {
        GroupAccess::Read => 0o440,
        GroupAccess::Write => 0o660,
    }
}

/// Gives a directory and everything in it to the group. Containers may change it at the same time, so no link is
/// followed.
pub(super) fn give_all(path: &str, group: FsGroup, access: GroupAccess) -> Result<(), SystemCallFailure> {
    let root = super::mounts::open_path(path)?;
    let wrong = SystemCallFailure::of("change the group of", path);
    let stat = rustix::fs::fstat(&root).map_err(&wrong)?;
    let demanded = directory_mode(0, access);
    if group.only_on_root_mismatch && stat.st_gid == group.gid && stat.st_mode & demanded == demanded {
        return Ok(());
    }
    below(&root, group.gid, access, MAX_DEPTH).map_err(&wrong)?;
    // Change the root last, so that an interrupted change is repeated even with OnRootMismatch.
    give(&root, group.gid, access).map_err(&wrong)?;
    Ok(())
}

/// Gives one open file or directory to the group. Returns its type.
pub(super) fn give(fd: &OwnedFd, gid: u32, access: GroupAccess) -> Result<FileType, Errno> {
    let stat = rustix::fs::fstat(fd)?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    if stat.st_gid != gid {
        change_group(fd, gid)?;
    }
    let mode = match kind {
        FileType::Symlink => return Ok(kind),
        FileType::Directory => directory_mode(stat.st_mode & 0o7777, access),
        _ => file_mode(stat.st_mode & 0o7777, access),
    };
    if mode != stat.st_mode & 0o7777 || stat.st_gid != gid {
        rustix::fs::chmod(path_of(fd), Mode::from_raw_mode(mode))?;
    }
    Ok(kind)
}

fn below(directory: &OwnedFd, gid: u32, access: GroupAccess, depth: usize) -> Result<(), Errno> {
    let depth = depth.checked_sub(1).ok_or(Errno::NAMETOOLONG)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let readable = rustix::fs::openat(directory, ".", flags, Mode::empty())?;
    let mount = mount_id(directory)?;
    for entry in Dir::new(readable)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let fd =
            match rustix::fs::openat(directory, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
            {
                // The file was removed in the meantime.
                Err(Errno::NOENT) => continue,
                other => other?,
            };
        // The files on another mount do not belong to this volume.
        if mount_id(&fd)? != mount {
            continue;
        }
        if give(&fd, gid, access)? == FileType::Directory {
            below(&fd, gid, access, depth)?;
        }
    }
    Ok(())
}
