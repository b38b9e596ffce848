//! Opens paths below a directory that a container may change at the same time, and never leaves the directory.
//!
//! openat2(2) with RESOLVE_BENEATH resolves an existing path in one call. `walk` does the same in steps: it opens each
//! part relative to the directory before it, never lets the kernel follow a symbolic link, and resolves links itself,
//! with a stack of the open directories for `..`. It also creates missing directories, and it works where openat2 is
//! not available (Linux before 5.6, or a seccomp filter).

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// The maximum number of links in one path, as in the kernel.
const MAX_LINKS: usize = 40;
/// The maximum number of directories that `walk` holds open.
const MAX_DEPTH: usize = 128;
/// Maximum number of openat2 calls while a directory on the path is being moved.
const MAX_RETRIES: usize = 16;

const O_PATH: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Opens `path` below `root` with O_PATH. Follows links that stay below `root`. Missing parts are created as
/// directories with the permission bits `mode`, regardless of the umask.
///
/// # Errors
/// `XDEV` if the path leaves `root`, for example through an absolute link; otherwise the errors of openat(2) and
/// mkdirat(2).
pub(super) fn open(root: BorrowedFd<'_>, path: &[u8], mode: Mode) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    for _ in 0..MAX_RETRIES {
        match rustix::fs::openat2(root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve) {
            Err(Errno::AGAIN) => {}
            Err(Errno::NOENT | Errno::NOSYS | Errno::PERM) => break,
            other => return other,
        }
    }
    walk(root, path, mode)
}

/// Does the same as `open`, step by step.
pub(super) fn walk(root: BorrowedFd<'_>, path: &[u8], mode: Mode) -> Result<OwnedFd, Errno> {
    let mut links = 0;
    let mut open: Vec<OwnedFd> = Vec::new();
    // The remaining parts, in reverse order.
    let mut parts: Vec<Vec<u8>> = reversed(path);
    while let Some(part) = parts.pop() {
        if part == b".." {
            open.pop().ok_or(Errno::XDEV)?;
            continue;
        }
        if open.len() >= MAX_DEPTH {
            return Err(Errno::NAMETOOLONG);
        }
        let here = open.last().map_or(root, |fd| fd.as_fd());
        let fd = enter(here, OsStr::from_bytes(&part), mode)?;
        if FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode) != FileType::Symlink {
            open.push(fd);
            continue;
        }
        links += 1;
        let target = rustix::fs::readlinkat(&fd, "", Vec::new())?;
        match target.as_bytes() {
            _ if links > MAX_LINKS => return Err(Errno::LOOP),
            // Refuse an absolute link, because it has another target in the container than on the host.
            [b'/', ..] => return Err(Errno::XDEV),
            target => parts.extend(reversed(target)),
        }
    }
    match open.pop() {
        Some(fd) => Ok(fd),
        None => rustix::fs::openat(root, ".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()),
    }
}

fn reversed(path: &[u8]) -> Vec<Vec<u8>> {
    let parts = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".");
    parts.rev().map(<[u8]>::to_vec).collect()
}

fn enter(here: BorrowedFd<'_>, name: &OsStr, mode: Mode) -> Result<OwnedFd, Errno> {
    match rustix::fs::openat(here, name, O_PATH, Mode::empty()) {
        Err(Errno::NOENT) => {}
        other => return other,
    }
    match rustix::fs::mkdirat(here, name, Mode::from_raw_mode(0o700)) {
        Ok(()) => {}
        // Another process has created the directory in the meantime.
        Err(Errno::EXIST) => return rustix::fs::openat(here, name, O_PATH, Mode::empty()),
        Err(e) => return Err(e),
    }
    let fd = rustix::fs::openat(here, name, O_PATH | OFlags::DIRECTORY, Mode::empty())?;
    // fchmod(2) rejects O_PATH descriptors. The path of the descriptor in /proc leads to the same directory, even if
    // it was moved.
    rustix::fs::chmod(format!("/proc/self/fd/{}", fd.as_raw_fd()), mode)?;
    Ok(fd)
}

/// Opens the directory `path` below `root`; no part of the path may be a link. An empty path is `root` itself. Mount
/// points are crossed.
///
/// # Errors
/// `LOOP` or `NOTDIR` if a part is a link or a file; `XDEV` if a part is `..`; otherwise the errors of openat(2).
pub(super) fn open_plain(root: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = O_PATH | OFlags::DIRECTORY;
    let mut here = rustix::fs::openat(root, ".", flags, Mode::empty())?;
    for part in path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
        if part == b".." {
            return Err(Errno::XDEV);
        }
        here = rustix::fs::openat(&here, OsStr::from_bytes(part), flags, Mode::empty())?;
    }
    Ok(here)
}

/// Returns the identity of an open file, which is equal for two descriptors of the same file.
pub(super) fn identity(fd: &OwnedFd) -> Result<(u64, u64), Errno> {
    let stat = rustix::fs::fstat(fd)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// Changes the group of an open file, which may be a symbolic link.
pub(super) fn change_group(fd: &OwnedFd, gid: u32) -> Result<(), Errno> {
    rustix::fs::chownat(fd, "", None, Some(rustix::fs::Gid::from_raw(gid)), AtFlags::EMPTY_PATH)
}

#[cfg(test)]
#[path = "tests/beneath.rs"]
mod tests;
