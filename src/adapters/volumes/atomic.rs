//! Replaces all files of a volume atomically, as Kubernetes documents for ConfigMaps and Secrets:
//!
//! ```text
//! key -> ..data/key                               what containers read
//! ..data -> ..2026_11_23_06_22_15.123456789       replaced by a rename: the change
//! ..2026_11_23_06_22_15.123456789/key             the files of one version
//! ```
//!
//! A reader that resolves `..data` once sees either all old files or all new ones. If Wherry is killed at any step,
//! the next write removes what was left behind.
//!
//! A sub-path is a mount of a file from one version. The kernel cannot mount a removed file again, so the runtime could
//! not start the container. A version therefore stays as long as such a mount exists. The first write after the unmount
//! removes the version.

use super::beneath;
use super::error::{Cause, SystemCallFailure};
use super::mounts;
use super::ownership::{self, GroupAccess};
use crate::adapters::pod_files::remove_tree;
use crate::api::ordered::{CollectOrdered, OrderSlice};
use crate::api::volume::VolumeFile;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;

const DATA: &str = "..data";
const NEW_DATA: &str = "..data_tmp";
/// The mode of a version's directories.
const DIRECTORY: u32 = 0o755;
/// Maximum directory depth of the files in one version.
const MAX_DEPTH: usize = 64;
/// The longest path and the longest name in a path, in bytes.
const MAX_PATH: usize = 4096;
const MAX_NAME: usize = 255;

/// The files by path. Of several files with the same path, the last one wins.
type WantedFiles<'f> = BTreeMap<String, &'f VolumeFile>;

/// Makes the volume contain exactly `files`. Returns whether anything changed. Files with equal content are not
/// written again.
///
/// # Errors
/// A path is not valid, or a file cannot be written: the volume keeps its old files. Or the new files are in place,
/// but a link cannot be written or an old version cannot be removed.
pub(super) fn write(directory: &str, files: &[VolumeFile], gid: Option<u32>) -> Result<bool, Cause> {
    let wanted = wanted(files)?;
    let failed = SystemCallFailure::of("write files to", directory);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let volume = Volume {
        path: directory,
        fd: rustix::fs::open(directory, flags, Mode::empty()).map_err(SystemCallFailure::of("open", directory))?,
        gid,
    };
    let old = volume.version();
    let is_same = match &old {
        Some((_, fd)) => volume.is_same(fd, &wanted).unwrap_or(false),
        None => false,
    };
    let version = match old {
        Some((name, _)) if is_same => name,
        _ => {
            let name = volume.new_version().map_err(&failed)?;
            let switched = volume.fill(&name, &wanted).and_then(|()| volume.switch_to(&name));
            if let Err(errno) = switched {
                let _ = remove_tree(directory, &name);
                return Err(failed(errno).into());
            }
            name
        }
    };
    volume.tidy(&version, &wanted)?;
    Ok(!is_same)
}

/// Checks the paths, and removes empty parts and `.` from them, as a kubelet does.
fn wanted(files: &[VolumeFile]) -> Result<WantedFiles<'_>, Cause> {
    let mut wanted = WantedFiles::new();
    for file in files {
        let parts: Vec<&str> = file.path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
        let path = parts.join("/");
        let fine = !path.is_empty()
            && !path.starts_with("..")
            && !file.path.starts_with('/')
            && !path.contains('\0')
            && path.len() <= MAX_PATH
            && parts.len() <= MAX_DEPTH
            && parts.iter().all(|part| *part != ".." && part.len() <= MAX_NAME);
        if !fine {
            return Err(Cause::FilePath(file.path.clone()));
        }
        wanted.insert(path, file);
    }
    for path in wanted.keys() {
        let above = path.match_indices('/').map(|(at, _)| &path[..at]);
        if let Some(file) = above.into_iter().find(|above| wanted.contains_key(*above)) {
            return Err(Cause::Collision { file: file.to_owned(), below: path.clone() });
        }
    }
    Ok(wanted)
}

struct Volume<'v> {
    path: &'v str,
    fd: OwnedFd,
    gid: Option<u32>,
}

impl Volume<'_> {
    /// Returns the current version, which is the target of `..data`; None if it does not exist or is damaged.
    fn version(&self) -> Option<(String, OwnedFd)> {
        let name = rustix::fs::readlinkat(&self.fd, DATA, Vec::new()).ok()?.into_string().ok()?;
        if !name.starts_with("..") || name.contains('/') || name == ".." {
            return None;
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.fd, &name, flags, Mode::empty()).ok()?;
        Some((name, fd))
    }

    fn is_same(&self, version: &OwnedFd, wanted: &WantedFiles<'_>) -> Result<bool, Errno> {
        let mut found = BTreeSet::new();
        list(version.as_fd(), "", MAX_DEPTH, &mut found)?;
        if !found.iter().eq(wanted.keys()) {
            return Ok(false);
        }
        for (path, file) in wanted {
            if !self.has(version, path, file)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn has(&self, version: &OwnedFd, path: &str, file: &VolumeFile) -> Result<bool, Errno> {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        let above = beneath::open_plain(version.as_fd(), above.as_bytes())?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(above, name, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&fd)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile
            || stat.st_mode & 0o7777 != self.file_mode(file)
            || self.gid.is_some_and(|gid| gid != stat.st_gid)
            || file.owner.is_some_and(|uid| uid != stat.st_uid)
            || usize::try_from(stat.st_size) != Ok(file.bytes.len())
        {
            return Ok(false);
        }
        let mut bytes = Vec::with_capacity(file.bytes.len() + 1);
        let read = File::from(fd).take(file.bytes.len() as u64 + 1).read_to_end(&mut bytes);
        read.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
        Ok(bytes == file.bytes)
    }

    fn file_mode(&self, file: &VolumeFile) -> u32 {
        if self.gid.is_some() { ownership::file_mode(file.mode, GroupAccess::Read) } else { file.mode }
    }

    fn directory_mode(&self) -> Mode {
        let mode = if self.gid.is_some() { ownership::directory_mode(DIRECTORY, GroupAccess::Read) } else { DIRECTORY };
        Mode::from_raw_mode(mode)
    }

    /// Creates the directory of a new version, named after the time in UTC.
    fn new_version(&self) -> Result<String, Errno> {
        loop {
            let name = jiff::Timestamp::now().strftime("..%Y_%m_%d_%H_%M_%S.%9f").to_string();
            match self.make_directory(self.fd.as_fd(), &name) {
                // Another version was created in the same nanosecond, or the clock was set back.
                Err(Errno::EXIST) => {}
                done => return done.map(|_| name),
            }
        }
    }

    fn make_directory(&self, above: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Errno> {
        rustix::fs::mkdirat(above, name, Mode::from_raw_mode(0o700))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(above, name, flags, Mode::empty())?;
        self.give(&fd)?;
        rustix::fs::fchmod(&fd, self.directory_mode())?;
        Ok(fd)
    }

    fn give(&self, fd: &OwnedFd) -> Result<(), Errno> {
        self.gid.map_or(Ok(()), |gid| beneath::change_group(fd, gid))
    }

    fn fill(&self, version: &str, wanted: &WantedFiles<'_>) -> Result<(), Errno> {
        let version = beneath::open_plain(self.fd.as_fd(), version.as_bytes())?;
        for (path, file) in wanted {
            let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
            let mut here = beneath::open_plain(version.as_fd(), b"")?;
            for part in above.split('/').filter(|part| !part.is_empty()) {
                here = match self.make_directory(here.as_fd(), part) {
                    Err(Errno::EXIST) => beneath::open_plain(here.as_fd(), part.as_bytes())?,
                    made => made?,
                };
            }
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let fd = rustix::fs::openat(&here, name, flags, Mode::from_raw_mode(0o600))?;
            self.give(&fd)?;
            if let Some(uid) = file.owner {
                rustix::fs::fchown(&fd, Some(rustix::fs::Uid::from_raw(uid)), None)?;
            }
            // Set the mode after the owner, because changing the owner can clear mode bits.
            rustix::fs::fchmod(&fd, Mode::from_raw_mode(self.file_mode(file)))?;
            File::from(fd).write_all(&file.bytes).map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
        }
        Ok(())
    }

    /// Makes this version the current one.
    fn switch_to(&self, version: &str) -> Result<(), Errno> {
        match rustix::fs::unlinkat(&self.fd, NEW_DATA, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(e) => return Err(e),
        }
        self.link(version, NEW_DATA)?;
        rustix::fs::renameat(&self.fd, NEW_DATA, &self.fd, DATA)
    }

    fn link(&self, target: &str, name: &str) -> Result<(), Errno> {
        rustix::fs::symlinkat(target, &self.fd, name)?;
        match self.gid {
            Some(gid) => {
                let group = Some(rustix::fs::Gid::from_raw(gid));
                rustix::fs::chownat(&self.fd, name, None, group, AtFlags::SYMLINK_NOFOLLOW)
            }
            None => Ok(()),
        }
    }

    /// Creates the missing links of the current version. Removes links to files that no longer exist, and all other
    /// versions that no mount uses.
    fn tidy(&self, version: &str, wanted: &WantedFiles<'_>) -> Result<(), Cause> {
        let failed = SystemCallFailure::of("write links to", self.path);
        let mut sub_paths = SubPaths::default();
        let mut missing: BTreeSet<&str> =
            wanted.keys().map(|path| path.split('/').next().unwrap_or(path)).collect_set();
        for name in names(self.fd.as_fd()).map_err(&failed)? {
            if name == DATA || name == version {
                continue;
            }
            if name.starts_with("..") {
                if sub_paths.show(&name).map_err(&failed)? {
                    continue;
                }
                remove_tree(self.path, &name).map_err(|_| Cause::Taken(format!("{}/{name}", self.path)))?;
                continue;
            }
            let target = rustix::fs::readlinkat(&self.fd, &name, Vec::new());
            let is_ours = target.is_ok_and(|to| to.to_bytes() == format!("{DATA}/{name}").as_bytes());
            let is_wanted = missing.contains(name.as_str());
            if is_ours && is_wanted {
                missing.remove(name.as_str());
            } else if is_ours {
                rustix::fs::unlinkat(&self.fd, &name, AtFlags::empty()).map_err(&failed)?;
            } else if is_wanted {
                // The mount of a sub-path whose file is missing leaves an empty directory here.
                let removed = rustix::fs::unlinkat(&self.fd, &name, AtFlags::REMOVEDIR);
                removed.map_err(|_| Cause::Taken(format!("{}/{name}", self.path)))?;
            }
        }
        for name in missing {
            self.link(&format!("{DATA}/{name}"), name).map_err(&failed)?;
        }
        Ok(())
    }
}

/// The sources of all mounts, read when they are first needed.
#[derive(Default)]
struct SubPaths(Option<Vec<PathBuf>>);

impl SubPaths {
    /// Reports whether a mount shows files of this version. The name of a version, a time in nanoseconds, is unique.
    fn show(&mut self, version: &str) -> Result<bool, Errno> {
        if version == NEW_DATA {
            return Ok(false);
        }
        let sources = match self.0.take() {
            Some(sources) => sources,
            None => mounts::sources().map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?,
        };
        let is_in = |source: &PathBuf| source.components().any(|part| part.as_os_str() == version);
        let shows = sources.iter().any(is_in);
        self.0 = Some(sources);
        Ok(shows)
    }
}

/// Returns the names in a directory, sorted, without `.` and `..`. Skips names that are not UTF-8, because Wherry
/// creates no such files.
fn names(directory: BorrowedFd<'_>) -> Result<Vec<String>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut names = Vec::new();
    for entry in Dir::new(rustix::fs::openat(directory, ".", flags, Mode::empty())?)? {
        let entry = entry?;
        if let Ok(name) = entry.file_name().to_str()
            && name != "."
            && name != ".."
        {
            names.push(name.to_owned());
        }
    }
    names.order();
    Ok(names)
}

/// Adds the paths of everything below a directory, except the directories themselves.
fn list(directory: BorrowedFd<'_>, prefix: &str, depth: usize, into: &mut BTreeSet<String>) -> Result<(), Errno> {
    let depth = depth.checked_sub(1).ok_or(Errno::NAMETOOLONG)?;
    for name in names(directory)? {
        let path = format!("{prefix}{name}");
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(directory, &name, flags, Mode::empty()) {
            Ok(fd) => list(fd.as_fd(), &format!("{path}/"), depth, into)?,
            Err(Errno::NOTDIR | Errno::LOOP) => {
                into.insert(path);
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "tests/atomic.rs"]
mod tests;
