//! The directories of claims: `<directory of the class>/<namespace>/<name>`. Users of the machine cannot enter them,
//! because the directory of the namespace belongs to root and has mode 0700; containers get them mounted.
//!
//! No part below the directory of the class may be a link, so that a claim is never somewhere else.

use super::beneath;
use super::empty_dir::MODE;
use super::error::{Cause, SystemCallFailure};
use super::ownership::{self, GroupAccess};
use super::paths::{PodPaths, make, one_part};
use crate::adapters::pod_files::remove_tree;
use crate::api::claim::{ClaimPlace, MadeDirectory};
use crate::api::volume::Volume;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// The mode of the directories above those of claims.
const PRIVATE: u32 = 0o700;
/// The kubelet's name of the plugin for directories.
const PLUGIN: &str = "kubernetes.io~local-volume";

/// Creates the directory of a claim, unless it exists. Its entry is on disk afterwards.
///
/// # Errors
/// The directory of the class does not exist, a part of the path is not a directory, or a system call fails.
pub fn make_claim(place: &ClaimPlace, create_base: bool) -> Result<MadeDirectory, String> {
    let text = |cause: &Cause| cause.to_string();
    let ClaimPlace { base, namespace, name } = place;
    let (namespace, name) = (one_part(namespace).map_err(|e| text(&e))?, one_part(name).map_err(|e| text(&e))?);
    if create_base {
        make(base, PRIVATE).map_err(|e| e.to_string())?;
    }
    let in_namespace = format!("{base}/{namespace}");
    let path = format!("{in_namespace}/{name}");
    let above = open_base(base)?;
    make(&in_namespace, PRIVATE).map_err(|e| e.to_string())?;
    let is_new = make(&path, MODE).map_err(|e| e.to_string())?;
    let made = beneath::open_plain(above.as_fd(), format!("{namespace}/{name}").as_bytes());
    let made = made.map_err(|e| SystemCallFailure::of("open", &path)(e).to_string())?;
    for directory in [&in_namespace, base] {
        synced(directory).map_err(|e| SystemCallFailure::of("write to disk", directory)(e).to_string())?;
    }
    Ok(match is_new {
        true => MadeDirectory::New,
        false if is_empty(&made).map_err(|e| SystemCallFailure::of("read", &path)(e).to_string())? => {
            MadeDirectory::Empty
        }
        false => MadeDirectory::Filled,
    })
}

/// Removes the directory of a claim with everything in it. Follows no link. Succeeds if it does not exist.
///
/// # Errors
/// The directory of the class does not exist, a part of the path is a link, something is mounted below it, or a file
/// cannot be removed.
pub fn remove_claim(place: &ClaimPlace) -> Result<(), String> {
    let ClaimPlace { base, namespace, name } = place;
    let name = one_part(name).map_err(|e| e.to_string())?;
    let above = open_base(base)?;
    let in_namespace = format!("{base}/{namespace}");
    match beneath::open_plain(above.as_fd(), one_part(namespace).map_err(|e| e.to_string())?.as_bytes()) {
        Ok(_) => {}
        Err(Errno::NOENT) => return Ok(()),
        Err(e) => return Err(SystemCallFailure::of("open", &in_namespace)(e).to_string()),
    }
    remove_tree(&in_namespace, name)?;
    // The last claim of a namespace takes its directory with it.
    match rustix::fs::rmdir(&in_namespace) {
        Ok(()) | Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOENT) => Ok(()),
        Err(e) => Err(SystemCallFailure::of("remove", &in_namespace)(e).to_string()),
    }
}

/// Prepares the directory of a claim for a pod: it must exist, and gets the pod's group. A missing directory is not
/// created again: its file system may not be mounted, and an application that finds no files starts with empty ones.
pub(super) fn set_up(paths: &PodPaths, path: &str, volume: &Volume) -> Result<(), Cause> {
    let found = std::fs::symlink_metadata(path);
    if !found.is_ok_and(|found| found.is_dir()) {
        return Err(Cause::NoClaimDirectory(path.to_owned()));
    }
    // As in a kubelet, a pod that only reads does not change the owners.
    let Some(group) = volume.fs_group.filter(|_| !volume.is_read_only()) else { return Ok(()) };
    let marker = paths.marker(PLUGIN, &volume.name);
    let file = format!("{marker}/ready");
    if std::path::Path::new(&file).exists() {
        return Ok(());
    }
    ownership::give_all(path, group, GroupAccess::Write)?;
    paths.create(&marker, 0o750)?;
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(&file, flags, Mode::from_raw_mode(0o640)).map_err(SystemCallFailure::of("create file", &file))?;
    Ok(())
}

fn open_base(base: &str) -> Result<OwnedFd, String> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(base, flags, Mode::empty()).map_err(|errno| {
        let why = SystemCallFailure::of("open the directory of the storage class,", base)(errno);
        match errno {
            Errno::NOENT => format!("{why}; create it, or mount its file system"),
            _ => why.to_string(),
        }
    })
}

fn synced(directory: &str) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::fsync(rustix::fs::open(directory, flags, Mode::empty())?)
}

fn is_empty(directory: &OwnedFd) -> Result<bool, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let readable = rustix::fs::openat(directory, ".", flags, Mode::empty())?;
    for entry in rustix::fs::Dir::new(readable)? {
        let entry = entry?;
        // A file system of its own has this directory from the start.
        if ![c".", c"..", c"lost+found"].contains(&entry.file_name()) {
            return Ok(false);
        }
    }
    Ok(true)
}
