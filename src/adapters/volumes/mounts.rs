//! Mounts a volume's own file system, and unmounts everything below a directory of a pod.
//!
//! A container with Bidirectional mount propagation can place any mount in a volume. Each mount is made private before
//! it is removed, so that removing a mount below it does not propagate to the location that it was copied from. No
//! symbolic link that a container can create is followed.

use super::beneath;
use super::error::{Cause, SystemCallFailure};
use crate::adapters::mount_table::unescaped;
use crate::adapters::pod_files::mount_id;
use crate::api::ordered::OrderSlice;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::ffi::CString;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use std::ffi::{OsStr, OsString};
use std::io::Read as _;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The mount table of this thread's mount namespace.
const TABLE: &str = "/proc/thread-self/mountinfo";
/// The maximum size of the mount table, in bytes.
const MOST: u64 = 64 << 20;
/// Maximum number of rounds in one removal. Each round reads the mount table and removes one layer of mounts that cover
/// each other.
const MAX_ROUNDS: usize = 100;

/// A file system that is mounted for a single volume.
pub(super) enum FileSystem {
    /// The size is in bytes; None for the kernel's default.
    Tmpfs {
        size: Option<u64>,
    },
    Hugetlbfs {
        page_size: u64,
        size: Option<u64>,
    },
}

impl FileSystem {
    fn name(&self) -> &'static str {
        match self {
            FileSystem::Tmpfs { .. } => "tmpfs",
            FileSystem::Hugetlbfs { .. } => "hugetlbfs",
        }
    }

    /// Returns the type of the file system as statfs(2) reports it.
    fn magic(&self) -> u64 {
        match self {
            FileSystem::Tmpfs { .. } => 0x0102_1994,
            FileSystem::Hugetlbfs { .. } => 0x9584_58f6,
        }
    }

    /// Returns the mount options to try, the preferred ones first.
    fn options(&self) -> Vec<String> {
        let limit = |size: &Option<u64>| size.map(|bytes| format!("size={bytes}"));
        match self {
            FileSystem::Tmpfs { size } => {
                let size = limit(size);
                // Linux before 6.3 rejects noswap.
                let with = ["noswap".to_owned()].into_iter().chain(size.clone()).collect::<Vec<_>>().join(",");
                vec![with, size.unwrap_or_default()]
            }
            FileSystem::Hugetlbfs { page_size, size } => {
                vec![[format!("pagesize={page_size}")].into_iter().chain(limit(size)).collect::<Vec<_>>().join(",")]
            }
        }
    }
}

/// Reports whether the directory is a mount point with this file system.
///
/// # Errors
/// Another file system is mounted there, or the directory does not exist.
pub(super) fn is_mounted(directory: &str, fs: &FileSystem) -> Result<bool, Cause> {
    let fd = open_path(directory)?;
    if !is_mount_point(&fd, directory)? {
        return Ok(false);
    }
    let found = rustix::fs::fstatfs(&fd).map_err(SystemCallFailure::of("examine", directory))?.f_type;
    // The width and the sign of the field depend on the architecture.
    #[allow(clippy::cast_sign_loss, clippy::unnecessary_cast)]
    let found = found as u64 & 0xffff_ffff;
    if found == fs.magic() { Ok(true) } else { Err(Cause::Taken(directory.to_owned())) }
}

/// Mounts the file system on the directory, unless it is already mounted there.
pub(super) fn mount(directory: &str, fs: &FileSystem) -> Result<(), Cause> {
    if is_mounted(directory, fs)? {
        return Ok(());
    }
    let mut result = Ok(());
    for options in fs.options() {
        let options = CString::new(options).unwrap_or_default();
        result = rustix::mount::mount(fs.name(), directory, fs.name(), MountFlags::empty(), Some(options.as_c_str()));
        if result != Err(Errno::INVAL) {
            break;
        }
    }
    Ok(result.map_err(SystemCallFailure::of("mount a file system on", directory))?)
}

/// Reports whether `path`, open as `fd`, is the root of a mount.
pub(super) fn is_mount_point(fd: &OwnedFd, path: &str) -> Result<bool, SystemCallFailure> {
    let parent = path.rsplit_once('/').map_or(".", |(parent, _)| if parent.is_empty() { "/" } else { parent });
    let parent = open_path(parent)?;
    let id = |fd: &OwnedFd| mount_id(fd).map_err(SystemCallFailure::of("examine the mount of", path));
    Ok(id(fd)? != id(&parent)?)
}

/// Opens a path with O_PATH: does not follow a link at its end, and does not access the file itself.
pub(super) fn open_path(path: &str) -> Result<OwnedFd, SystemCallFailure> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map_err(SystemCallFailure::of("open", path))
}

/// Returns a path of an open file, for system calls that need a path.
pub(super) fn path_of(fd: &impl AsRawFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// Which mounts to remove, relative to a directory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Where {
    Below,
    AtAndBelow,
}

/// Unmounts everything at or below a directory, the deepest mount first. Succeeds if the directory does not exist. No
/// container may be able to change the directory's own path.
///
/// # Errors
/// A mount is in use. The other mounts are removed nevertheless.
pub(super) fn unmount(directory: &str, place: Where) -> Result<(), SystemCallFailure> {
    let wrong = |doing| {
        move |e: std::io::Error| SystemCallFailure::of(doing, directory)(Errno::from_io_error(&e).unwrap_or(Errno::IO))
    };
    let (Some(above), Some(name)) = (Path::new(directory).parent(), Path::new(directory).file_name()) else {
        return Err(SystemCallFailure::of("unmount below", directory)(Errno::INVAL));
    };
    // Resolve symbolic links, because the paths in the mount table contain none.
    let above = match above.canonicalize() {
        Ok(above) => above,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(wrong("find")(e)),
    };
    let top = above.join(name);
    for _ in 0..MAX_ROUNDS {
        let points = points(&top, place).map_err(wrong("read the mounts below"))?;
        if points.is_empty() {
            return Ok(());
        }
        // A descriptor of a directory on a mount is closed before that mount is unmounted.
        let root = open_path(&above.to_string_lossy())?;
        for point in &points {
            // A mount that another one covers cannot be reached in this round.
            let _ = make_private(root.as_fd(), point.strip_prefix(&above).unwrap_or(point));
        }
        let mut removed = 0;
        let mut failed = None;
        for point in &points {
            match unmount_one(root.as_fd(), point.strip_prefix(&above).unwrap_or(point)) {
                Ok(()) => removed += 1,
                Err(errno) => {
                    failed.get_or_insert(SystemCallFailure::of("unmount", &point.to_string_lossy())(errno));
                }
            }
        }
        if let Some(failure) = failed.filter(|_| removed == 0) {
            return Err(failure);
        }
    }
    Err(SystemCallFailure::of("unmount everything below", directory)(Errno::BUSY))
}

/// Returns the paths in a column of the mount table.
fn table(column: usize) -> std::io::Result<Vec<PathBuf>> {
    let mut text = Vec::new();
    std::fs::File::open(TABLE)?.take(MOST).read_to_end(&mut text)?;
    let field = |line: &[u8]| {
        line.split(|byte| *byte == b' ')
            .nth(column)
            .map(|field| PathBuf::from(OsString::from_vec(unescaped(field).into_owned())))
    };
    Ok(text.split(|byte| *byte == b'\n').filter_map(field).collect())
}

/// Returns the path of each mount's root within its file system.
pub(super) fn sources() -> std::io::Result<Vec<PathBuf>> {
    table(3)
}

/// Returns the mount points at or below a directory, the deepest ones first, without duplicates.
fn points(top: &Path, place: Where) -> std::io::Result<Vec<PathBuf>> {
    let mut points: Vec<PathBuf> = table(4)?
        .into_iter()
        .filter(|point| point.starts_with(top) && (place == Where::AtAndBelow || point != top))
        .collect();
    points.order();
    points.dedup();
    points.order_by_key(|point| std::cmp::Reverse(point.components().count()));
    Ok(points)
}

/// Opens the directory that contains the last part of a relative path. Returns it and that part.
fn parent<'p>(root: BorrowedFd<'_>, path: &'p Path) -> Result<(OwnedFd, &'p OsStr), Errno> {
    let name = path.file_name().ok_or(Errno::INVAL)?;
    let above = path.parent().unwrap_or(Path::new(""));
    Ok((beneath::open_plain(root, above.as_os_str().as_bytes())?, name))
}

fn make_private(root: BorrowedFd<'_>, path: &Path) -> Result<(), Errno> {
    let (above, name) = parent(root, path)?;
    let fd = rustix::fs::openat(&above, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    rustix::mount::mount_change(path_of(&fd), MountPropagationFlags::PRIVATE)
}

fn unmount_one(root: BorrowedFd<'_>, path: &Path) -> Result<(), Errno> {
    let (above, name) = parent(root, path)?;
    let point = PathBuf::from(path_of(&above)).join(name);
    // The unmount is not lazy, because a lazy one hides a mount that is still in use.
    rustix::mount::unmount(point, UnmountFlags::NOFOLLOW)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tmpfs_is_without_swap_where_the_kernel_has_the_option() {
        assert_eq!(FileSystem::Tmpfs { size: Some(8192) }.options(), ["noswap,size=8192", "size=8192"]);
        assert_eq!(FileSystem::Tmpfs { size: None }.options(), ["noswap", ""]);
        let huge = FileSystem::Hugetlbfs { page_size: 2 << 20, size: Some(4 << 20) };
        assert_eq!(huge.options(), ["pagesize=2097152,size=4194304"]);
    }
}
