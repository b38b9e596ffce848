//! Writes files below a directory, and nowhere else.
//!
//! Each component of a path is opened relative to its parent and without following symbolic links. Therefore neither
//! `..` nor a link leads outside, whether the link existed before or comes from the same archive.

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, fchmod, fstat, linkat, mkdirat, openat, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// The permission bits that are kept. setuid and setgid are dropped, because the copies belong to another user.
const KEPT: u32 = 0o777;

/// The root of the copy.
pub struct Tree {
    parent: OwnedFd,
    /// The file or directory in `parent` that the copy creates.
    name: OsString,
    /// Whether the user gave this name, so that it may be a link or a device such as /dev/stdout.
    named: bool,
    /// Whether the file or directory already existed. An existing directory keeps its permissions.
    existed: bool,
}

impl Tree {
    /// Opens `target`, the path on the command line. If it is a directory, the copy is created in it under `name`.
    /// Without a name, the content of the copy goes into the directory itself.
    ///
    /// # Errors
    /// The directory in which the copy is created (the target or its parent) cannot be opened.
    pub fn open(target: &Path, name: Option<&str>) -> io::Result<Tree> {
        let directory = |path: &Path| openat(CWD, path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        if let (true, Some(name)) = (target.is_dir(), name) {
            return Ok(Tree { parent: directory(target)?, name: name.into(), named: false, existed: false });
        }
        let Some(name) = target.file_name() else {
            return Ok(Tree { parent: directory(target)?, name: ".".into(), named: true, existed: true });
        };
        let parent = target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Ok(Tree { parent: directory(parent)?, name: name.to_owned(), named: true, existed: target.exists() })
    }

    /// Opens the directory at `path`, and creates its missing components.
    ///
    /// # Errors
    /// A component is not a directory.
    pub fn directory(&self, path: &[&OsStr]) -> io::Result<OwnedFd> {
        let mut directory = open_directory(&self.parent, &self.name, self.named)?;
        for part in path {
            directory = open_directory(&directory, part, false)?;
        }
        Ok(directory)
    }

    /// Creates a directory. Its owner has all permissions until `set_mode`.
    ///
    /// # Errors
    /// See `directory`.
    pub fn create_directory(&self, path: &[&OsStr], mode: u32) -> io::Result<()> {
        let directory = self.directory(path)?;
        if path.is_empty() && self.existed {
            return Ok(());
        }
        Ok(fchmod(directory, Mode::from_raw_mode((mode & KEPT) | 0o700))?)
    }

    /// Sets the permissions of a directory.
    ///
    /// # Errors
    /// See `directory`.
    pub fn set_mode(&self, path: &[&OsStr], mode: u32) -> io::Result<()> {
        let directory = self.directory(path)?;
        if path.is_empty() && self.existed {
            return Ok(());
        }
        Ok(fchmod(directory, Mode::from_raw_mode(mode & KEPT))?)
    }

    /// Opens a new or empty file. Only its owner can read it until `finish_file`.
    ///
    /// # Errors
    /// Something other than a file exists under this name.
    pub fn create_file(&self, path: &[&OsStr]) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o600);
        let Some((name, directory)) = path.split_last() else {
            if self.named {
                return Ok(openat(&self.parent, &self.name, flags, mode)?.into());
            }
            return create(self.parent.as_fd(), &self.name, flags, mode);
        };
        create(self.directory(directory)?.as_fd(), name, flags, mode)
    }

    /// Sets the permissions of a file after its content is complete.
    ///
    /// # Errors
    /// The file system does not support it.
    pub fn finish_file(&self, file: &File, mode: u32) -> io::Result<()> {
        // A device that the user named keeps its own permissions.
        if is_regular(fstat(file)?.st_mode) {
            fchmod(file, Mode::from_raw_mode(mode & KEPT))?;
        }
        Ok(())
    }

    /// Creates a symbolic link. Replaces an existing file. The caller has checked where the link leads.
    ///
    /// # Errors
    /// A directory with this name exists.
    pub fn create_symlink(&self, path: &[&OsStr], to: &OsStr) -> io::Result<()> {
        let Some((name, directory)) = path.split_last() else { return Err(Errno::INVAL.into()) };
        let directory = self.directory(directory)?;
        remove(&directory, name)?;
        Ok(symlinkat(to, directory, *name)?)
    }

    /// Creates a hard link to a file in the tree.
    ///
    /// # Errors
    /// `from` is not a regular file. A relative symbolic link is refused because it could lead out of the tree when it
    /// is hard-linked into another directory.
    pub fn create_hard_link(&self, path: &[&OsStr], from: &[&OsStr]) -> io::Result<()> {
        let (Some((name, directory)), Some((old, old_directory))) = (path.split_last(), from.split_last()) else {
            return Err(Errno::INVAL.into());
        };
        if path == from {
            return Ok(());
        }
        let (directory, old_directory) = (self.directory(directory)?, self.directory(old_directory)?);
        if !is_regular(statat(&old_directory, *old, AtFlags::SYMLINK_NOFOLLOW)?.st_mode) {
            return Err(io::Error::other("it is a link to something that is not part of this copy"));
        }
        remove(&directory, name)?;
        Ok(linkat(&old_directory, *old, &directory, *name, AtFlags::empty())?)
    }
}

fn is_regular(mode: u32) -> bool {
    FileType::from_raw_mode(mode) == FileType::RegularFile
}

fn create(directory: impl AsFd, name: &OsStr, flags: OFlags, mode: Mode) -> io::Result<File> {
    // Without NONBLOCK, opening a pipe would wait for a reader.
    let file = openat(directory, name, flags | OFlags::NOFOLLOW | OFlags::NONBLOCK, mode)?;
    if is_regular(fstat(&file)?.st_mode) {
        Ok(file.into())
    } else {
        Err(io::Error::other("it exists and is not a regular file"))
    }
}

fn remove(directory: &OwnedFd, name: &OsStr) -> io::Result<()> {
    match unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

fn open_directory(parent: &OwnedFd, name: &OsStr, follow: bool) -> io::Result<OwnedFd> {
    let mut flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    flags.set(OFlags::NOFOLLOW, !follow);
    match openat(parent, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => {
            match mkdirat(parent, name, Mode::from_raw_mode(0o777)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(e) => return Err(e.into()),
            }
            Ok(openat(parent, name, flags, Mode::empty())?)
        }
        other => Ok(other?),
    }
}
