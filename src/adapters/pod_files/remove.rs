//! Removes a directory tree that a container may have manipulated.
//!
//! Every step is relative to an open directory and follows no symlink, so a directory that is replaced with a link in
//! the meantime does no harm. A mount point in the tree is not entered (openat2 with RESOLVE_NO_XDEV; on a kernel
//! without it, a comparison of the mounts) and is an error, because the mounted file system is not Wherry's. Each
//! level needs two open descriptors. Directories below a maximum depth are first moved up, so that a tree of any depth
//! needs few descriptors.

use super::error::{Result, failed};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::ffi::{CStr, CString};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// The maximum number of levels that are open at the same time.
const MAX_DEPTH: usize = 32;
/// How often a non-empty directory is read again although nothing has been removed or moved since.
const MAX_STALLS: usize = 3;
/// The number of names to try for a directory that is moved up.
const MAX_NAMES: usize = 16;

struct OpenDirectory {
    dir: Dir,
    fd: OwnedFd,
    name: CString,
    /// `Tree::done` when this directory was last read to its end, and the number of reads since then without progress.
    done_before: u64,
    stalls: usize,
}

/// Removes `parent/name` and everything below it. The path may also name a file or a link. Succeeds if it does not
/// exist.
///
/// # Errors
/// An entry cannot be removed, or is a mount point. The error names the path.
pub fn remove_tree(parent: &str, name: &str) -> Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let top = match rustix::fs::open(parent, flags, Mode::empty()) {
        Ok(fd) => fd,
        Err(Errno::NOENT) => return Ok(()),
        Err(e) => return Err(failed("open", parent, e)),
    };
    let mut tree = Tree { top, parent, levels: Vec::new(), moved: 0, done: 0 };
    let name = CString::new(name).map_err(|_| format!("failed to remove {parent}/{name:?}: not a file name"))?;
    match tree.enter(name.clone()) {
        Ok(()) => tree.run(),
        Err(Errno::NOENT) => Ok(()),
        Err(Errno::NOTDIR | Errno::LOOP) => tree.unlink(&name),
        Err(e) => Err(tree.failed(&name, e)),
    }
}

/// Removes everything below a directory, whose own path no container may be able to change. Does nothing if the path
/// does not exist, or if the path names a file or a link.
///
/// # Errors
/// The first error; the other entries are removed nevertheless.
pub fn remove_below(directory: &str) -> Result<()> {
    let Ok(true) = std::fs::symlink_metadata(directory).map(|m| m.is_dir()) else { return Ok(()) };
    let entries = std::fs::read_dir(directory).map_err(|e| format!("failed to read {directory}: {e}"))?;
    let mut result = Ok(());
    for entry in entries.flatten() {
        let name = entry.file_name();
        result = result.and(match name.to_str() {
            Some(name) => remove_tree(directory, name),
            // Only root can create such an entry, so it is left for the user to remove.
            None => Err(format!("failed to remove {directory}/{name:?}: the name is not UTF-8; remove it by hand")),
        });
    }
    result
}

struct Tree<'a> {
    top: OwnedFd,
    parent: &'a str,
    levels: Vec<OpenDirectory>,
    /// The number of names used so far for directories that were moved up.
    moved: u64,
    /// The number of entries removed or moved so far.
    done: u64,
}

impl Tree<'_> {
    fn here(&self) -> rustix::fd::BorrowedFd<'_> {
        self.levels.last().map_or(self.top.as_fd(), |l| l.fd.as_fd())
    }

    fn failed(&self, name: &CStr, e: Errno) -> String {
        let mut path = self.parent.to_owned();
        for part in self.levels.iter().map(|l| l.name.as_c_str()).chain([name]) {
            path.push('/');
            path.push_str(&part.to_string_lossy());
        }
        match e {
            Errno::XDEV | Errno::BUSY => format!("failed to remove {path}: it is a mount point; unmount it first"),
            e => failed("remove", &path, e),
        }
    }

    /// Opens a subdirectory of the current directory and makes it the current one.
    fn enter(&mut self, name: CString) -> std::result::Result<(), Errno> {
        let fd = open_below(self.here(), &name)?;
        let dir = Dir::read_from(&fd)?;
        self.levels.push(OpenDirectory { dir, fd, name, done_before: self.done, stalls: 0 });
        Ok(())
    }

    fn unlink(&mut self, name: &CStr) -> Result<()> {
        self.done += 1;
        match rustix::fs::unlinkat(self.here(), name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(self.failed(name, e)),
        }
    }

    fn run(&mut self) -> Result<()> {
        while let Some(level) = self.levels.last_mut() {
            match level.dir.read() {
                Some(Ok(entry)) => {
                    let name = entry.file_name();
                    if name != c"." && name != c".." {
                        let name = name.to_owned();
                        self.remove_entry(name, entry.file_type())?;
                    }
                }
                Some(Err(e)) => {
                    let name = level.name.clone();
                    self.levels.pop();
                    return Err(self.failed(&name, e));
                }
                None => self.leave()?,
            }
        }
        Ok(())
    }

    fn remove_entry(&mut self, name: CString, kind: FileType) -> Result<()> {
        if !matches!(kind, FileType::Directory | FileType::Unknown) {
            return self.unlink(&name);
        }
        match rustix::fs::unlinkat(self.here(), &name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => {
                self.done += 1;
                return Ok(());
            }
            Err(Errno::NOTDIR) => return self.unlink(&name),
            Err(_) => {}
        }
        if self.levels.len() >= MAX_DEPTH && self.move_up(&name) {
            return Ok(());
        }
        match self.enter(name.clone()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(Errno::NOTDIR | Errno::LOOP) => self.unlink(&name),
            Err(e) => Err(self.failed(&name, e)),
        }
    }

    /// Moves a directory to the top of the tree, where it is removed later. Returns false if that is not possible.
    fn move_up(&mut self, name: &CStr) -> bool {
        for _ in 0..MAX_NAMES {
            self.moved += 1;
            let Some(root) = self.levels.first() else { return false };
            if rustix::fs::renameat(self.here(), name, &root.fd, format!(".deep-{}", self.moved)).is_ok() {
                self.done += 1;
                return true;
            }
        }
        false
    }

    /// Removes the current directory after it was read to its end, or reads it again if it is not empty.
    fn leave(&mut self) -> Result<()> {
        let Some(mut level) = self.levels.pop() else { return Ok(()) };
        match rustix::fs::unlinkat(self.here(), &level.name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => {
                self.done += 1;
                Ok(())
            }
            // A read may miss entries while others are removed, and deep directories are moved to the top.
            Err(Errno::NOTEMPTY | Errno::EXIST) if level.stalls < MAX_STALLS => {
                level.stalls = if level.done_before == self.done { level.stalls + 1 } else { 0 };
                level.done_before = self.done;
                level.dir.rewind();
                self.levels.push(level);
                Ok(())
            }
            Err(e) => Err(self.failed(&level.name, e)),
        }
    }
}

fn open_below(dir: impl AsFd, name: &CStr) -> std::result::Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
    match rustix::fs::openat2(&dir, name, flags, Mode::empty(), resolve) {
        // A kernel before 5.6, or a seccomp filter that does not know the system call.
        Err(Errno::NOSYS | Errno::PERM) => open_in_mount(dir, name, flags),
        other => other,
    }
}

/// Does the same as `open_below`, without openat2.
fn open_in_mount(dir: impl AsFd, name: &CStr, flags: OFlags) -> std::result::Result<OwnedFd, Errno> {
    let fd = rustix::fs::openat(&dir, name, flags, Mode::empty())?;
    if mount_id(&fd)? == mount_id(&dir)? { Ok(fd) } else { Err(Errno::XDEV) }
}

/// Returns the id of the mount that contains an open file. It differs for a bind mount of the same file system. Read
/// from /proc, because statx(2) provides it only since Linux 5.8.
///
/// # Errors
/// /proc cannot be read.
pub fn mount_id(fd: impl AsFd) -> std::result::Result<u64, Errno> {
    let path = format!("/proc/self/fdinfo/{}", fd.as_fd().as_raw_fd());
    let text = std::fs::read_to_string(path).map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
    let id = text.lines().find_map(|line| line.strip_prefix("mnt_id:"));
    id.and_then(|id| id.trim().parse().ok()).ok_or(Errno::IO)
}

/// Reports whether the path exists, even if it is a dangling link.
#[cfg(test)]
pub fn exists(path: &str) -> bool {
    rustix::fs::statat(rustix::fs::CWD, path, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};

    #[test]
    fn a_bind_mount_of_the_same_file_system_is_not_entered_without_openat2() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["plain", "mount", "source"] {
            std::fs::create_dir(at(name)).unwrap();
        }
        let (top, source, mount) = (dir.path().to_owned(), at("source"), at("mount"));
        // The mount is visible only to this thread, and ends with it.
        let tried = std::thread::spawn(move || {
            #[allow(deprecated)]
            rustix::thread::unshare(rustix::thread::UnshareFlags::NEWNS)?;
            mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
            mount_bind(source, mount)?;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let top = rustix::fs::open(top, flags, Mode::empty())?;
            let opened = |name: &CStr| open_in_mount(&top, name, flags).map(drop);
            Ok::<_, Errno>([opened(c"plain"), opened(c"mount"), opened(c"none")])
        });
        match tried.join().unwrap() {
            Ok(opened) => assert_eq!(opened, [Ok(()), Err(Errno::XDEV), Err(Errno::NOENT)]),
            Err(e) => eprintln!("skipped: a mount needs root: {e}"),
        }
    }
}
