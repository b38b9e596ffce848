//! Checks the type of a hostPath, in the same order as a kubelet.

use super::error::{Cause, SystemCallFailure};
use super::paths::make;
use crate::api::volume::HostPathType;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

/// Checks the path, and creates it if the type demands that. Blocks if the file system hangs.
pub(super) fn check(path: &str, demanded: HostPathType) -> Result<(), Cause> {
    if demanded == HostPathType::Unset {
        return Ok(());
    }
    let found = match rustix::fs::stat(path) {
        Ok(stat) => Some(FileType::from_raw_mode(stat.st_mode)),
        Err(Errno::NOENT | Errno::NOTDIR) => None,
        Err(errno) => return Err(SystemCallFailure::of("examine", path)(errno).into()),
    };
    let fits = match (demanded, found) {
        (HostPathType::DirectoryOrCreate, None) => return make_directory(path),
        (HostPathType::FileOrCreate, None) => return make_file(path),
        (HostPathType::Directory | HostPathType::DirectoryOrCreate, found) => found == Some(FileType::Directory),
        (HostPathType::File | HostPathType::FileOrCreate, found) => found == Some(FileType::RegularFile),
        (HostPathType::Socket, found) => found == Some(FileType::Socket),
        (HostPathType::CharDevice, found) => found == Some(FileType::CharacterDevice),
        (HostPathType::BlockDevice, found) => found == Some(FileType::BlockDevice),
        (HostPathType::Unset, _) => true,
    };
    if fits { Ok(()) } else { Err(Cause::HostPathType { path: path.to_owned(), demanded }) }
}

/// Creates a directory and its missing parents with mode 0755, regardless of the umask.
fn make_directory(path: &str) -> Result<(), Cause> {
    match (make(path, 0o755), path.rsplit_once('/')) {
        (Err(SystemCallFailure { errno: Errno::NOENT, .. }), Some((parent, _))) if !parent.is_empty() => {
            make_directory(parent)?;
            make(path, 0o755)?;
        }
        (made, _) => {
            made?;
        }
    }
    Ok(())
}

/// Creates a file with mode 0644, regardless of the umask, but not its missing parents.
fn make_file(path: &str) -> Result<(), Cause> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o644);
    match rustix::fs::open(path, flags, mode) {
        Ok(file) => Ok(rustix::fs::fchmod(file, mode).map_err(SystemCallFailure::of("set the mode of", path))?),
        // Another process has created the file in the meantime.
        Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(SystemCallFailure::of("create file", path)(errno).into()),
    }
}
