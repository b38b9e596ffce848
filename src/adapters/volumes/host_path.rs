//! The checks of a hostPath's type, in the order of a kubelet.

use super::error::{Cause, Failure};
use crate::api::volume::HostPathType;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::os::unix::fs::DirBuilderExt;

/// Checks the path, and creates it if the type says so. Can hang on a file system that hangs.
pub(super) fn check(path: &str, demanded: HostPathType) -> Result<(), Cause> {
    if demanded == HostPathType::Unset {
        return Ok(());
    }
    let found = match rustix::fs::stat(path) {
        Ok(stat) => Some(FileType::from_raw_mode(stat.st_mode)),
        Err(Errno::NOENT | Errno::NOTDIR) => None,
        Err(errno) => return Err(Failure::of("examine", path)(errno).into()),
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

/// With its missing parents, mode 0755.
fn make_directory(path: &str) -> Result<(), Cause> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o755).create(path);
    Ok(made.map_err(|e| Failure::of("create directory", path)(Errno::from_io_error(&e).unwrap_or(Errno::IO)))?)
}

/// Without missing parents, mode 0644.
fn make_file(path: &str) -> Result<(), Cause> {
    let flags = OFlags::CREATE | OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::from_raw_mode(0o644)).map_err(Failure::of("create file", path))?;
    Ok(())
}
