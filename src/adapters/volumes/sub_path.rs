//! Prepares a container's mounts. Each of them is a mount of a whole volume or of a sub-path in it.
//!
//! A container can replace any part of a sub-path with a link at any time, and the runtime would follow it. Therefore
//! the sub-path is opened below the volume (`beneath`), and the open file is bind-mounted in the pod's directory,
//! where containers cannot reach it. The runtime receives the path of that mount.

use super::beneath;
use super::error::{Cause, SystemCallFailure, VolumeError};
use super::mounts::{self, Where, is_mount_point, open_path, path_of};
use super::paths::{PodPaths, one_part};
use crate::api::expand;
use crate::api::k8s::{Container, VolumeMount};
use crate::api::layout::Layout;
use crate::api::mount::{Access, ImageSource, Mount, MountSource, Propagation};
use crate::api::volume::{Volume, VolumeKind};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::MountPropagationFlags;

/// Maximum length of a path in Linux, in bytes.
const MAX_PATH: usize = 4096;

/// What the mounts of a container need besides the volumes.
#[derive(Clone, Copy)]
pub struct ForContainer<'c> {
    pub container: &'c Container,
    /// The expanded environment of the container, for `subPathExpr`.
    pub env: &'c [(String, String)],
    /// Whether the runtime can make a mount and all mounts below it read-only.
    pub recursive_read_only: bool,
}

/// Returns the mounts of a container's `volumeMounts`, in their order, and mounts the sub-paths among them. The
/// volumes must be set up. Can be repeated; `tear_down_container` removes the sub-paths.
///
/// # Errors
/// The error of the first mount that cannot be prepared.
pub fn container_mounts(
    layout: &Layout,
    uid: &str,
    volumes: &[Volume],
    of: ForContainer<'_>,
) -> Result<Vec<Mount>, VolumeError> {
    let mounts = of.container.volume_mounts.iter().flatten().enumerate();
    let one = |(index, mount): (usize, &VolumeMount)| {
        let wrong =
            |cause| VolumeError::Mount { volume: mount.name.clone(), container: of.container.name.clone(), cause };
        let paths = PodPaths::new(layout, uid).map_err(wrong)?;
        let volume = volumes.iter().find(|volume| volume.name == mount.name).ok_or(Cause::NoVolume).map_err(wrong)?;
        container_mount(&paths, volume, mount, index, of).map_err(wrong)
    };
    mounts.map(one).collect()
}

fn container_mount(
    paths: &PodPaths,
    volume: &Volume,
    mount: &VolumeMount,
    index: usize,
    of: ForContainer<'_>,
) -> Result<Mount, Cause> {
    let propagation = match mount.mount_propagation.as_deref() {
        Some("HostToContainer") => Propagation::HostToContainer,
        Some("Bidirectional") => Propagation::Bidirectional,
        _ => Propagation::Private,
    };
    let access = access(volume, mount, of.recursive_read_only)?;
    let sub_path = sub_path(mount, of.env)?;
    let source = match (&volume.kind, sub_path) {
        (VolumeKind::Image { reference, id }, sub_path) => {
            let sub_path = sub_path.unwrap_or_default();
            MountSource::Image(ImageSource { reference: reference.clone(), id: id.clone(), sub_path })
        }
        (_, None) => MountSource::Host(paths.volume(volume)?),
        (_, Some(sub_path)) => {
            let directory = paths.volume(volume)?;
            let source = open_sub_path(&directory, &sub_path)?;
            let target = format!("{}/{index}", paths.container_sub_paths(&volume.name, one_part(&of.container.name)?)?);
            bind(paths, &source, &target, propagation)?;
            MountSource::Host(target)
        }
    };
    let container_path = match mount.mount_path.as_str() {
        path if path.starts_with('/') => path.to_owned(),
        // As in a kubelet, a relative path starts at the root of the container.
        path => format!("/{path}"),
    };
    let owned = !matches!(volume.kind, VolumeKind::HostPath { .. }) && matches!(source, MountSource::Host(_));
    Ok(Mount { container_path, source, access, propagation, owned })
}

fn access(volume: &Volume, mount: &VolumeMount, runtime_has_recursive: bool) -> Result<Access, Cause> {
    let read_only = mount.read_only == Some(true) || volume.is_read_only();
    match mount.recursive_read_only.as_deref() {
        Some("Enabled") if !runtime_has_recursive => Err(Cause::RecursiveReadOnly),
        Some("Enabled" | "IfPossible") if read_only && runtime_has_recursive => Ok(Access::RecursiveReadOnly),
        _ if read_only => Ok(Access::ReadOnly),
        _ => Ok(Access::ReadWrite),
    }
}

/// Returns the sub-path of a mount; None for the whole volume.
fn sub_path(mount: &VolumeMount, env: &[(String, String)]) -> Result<Option<String>, Cause> {
    let given = |path: &Option<String>| path.clone().filter(|path| !path.is_empty());
    let path = match (given(&mount.sub_path_expr), given(&mount.sub_path)) {
        (Some(input), _) => expand::path(&input, env, MAX_PATH).map_err(Cause::MissingVariable)?,
        (None, Some(path)) => path,
        (None, None) => return Ok(None),
    };
    let wrong = path.is_empty()
        || path.starts_with('/')
        || path.contains('\0')
        || path.len() > MAX_PATH
        || path.split('/').any(|part| part == "..");
    if wrong { Err(Cause::SubPath(path)) } else { Ok(Some(path)) }
}

/// Opens a sub-path of a volume. Missing directories are created with the mode of the volume's root, as in a kubelet.
fn open_sub_path(directory: &str, sub_path: &str) -> Result<OwnedFd, Cause> {
    // Follow links here: the path of a hostPath volume may be a link on the host.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(directory, flags, Mode::empty()).map_err(SystemCallFailure::of("open", directory))?;
    let stat = rustix::fs::fstat(&root).map_err(SystemCallFailure::of("examine", directory))?;
    match beneath::open(root.as_fd(), sub_path.as_bytes(), Mode::from_raw_mode(stat.st_mode & 0o7777)) {
        Err(Errno::XDEV) => Err(Cause::Escapes(sub_path.to_owned())),
        opened => Ok(opened.map_err(SystemCallFailure::of("open the subPath", sub_path))?),
    }
}

/// Mounts the open file or directory on `target`, unless it is already mounted there.
fn bind(paths: &PodPaths, source: &OwnedFd, target: &str, propagation: Propagation) -> Result<(), Cause> {
    match open_path(target) {
        Err(SystemCallFailure { errno: Errno::NOENT, .. }) => {}
        Err(failure) => return Err(failure.into()),
        Ok(found) if is_bound(source, &found, target)? => return Ok(()),
        // An earlier container left this mount, for example before a ConfigMap changed. The open descriptor would keep
        // the mount in use.
        Ok(found) => {
            drop(found);
            mounts::unmount(target, Where::AtAndBelow)?;
        }
    }
    let kind =
        FileType::from_raw_mode(rustix::fs::fstat(source).map_err(SystemCallFailure::of("examine", target))?.st_mode);
    make_target(paths, target, kind == FileType::Directory)?;
    rustix::mount::mount_bind(path_of(source), target).map_err(SystemCallFailure::of("mount a sub-path on", target))?;
    // Without this, a bind mount of a shared mount stays in its peer group: an unmount below one of them also takes
    // effect below the other.
    let change = match propagation {
        Propagation::Private => Some(MountPropagationFlags::PRIVATE),
        Propagation::HostToContainer => Some(MountPropagationFlags::DOWNSTREAM),
        Propagation::Bidirectional => None,
    };
    if let Some(change) = change {
        rustix::mount::mount_change(target, change)
            .map_err(SystemCallFailure::of("change the propagation of", target))?;
    }
    Ok(())
}

fn is_bound(source: &OwnedFd, found: &OwnedFd, target: &str) -> Result<bool, SystemCallFailure> {
    let identity = |fd| beneath::identity(fd).map_err(SystemCallFailure::of("examine", target));
    Ok(is_mount_point(found, target)? && identity(found)? == identity(source)?)
}

/// Creates the file or directory that is mounted over. Replaces one of another type that an earlier mount left.
fn make_target(paths: &PodPaths, target: &str, is_directory: bool) -> Result<(), Cause> {
    match std::fs::symlink_metadata(target) {
        Ok(found) if found.is_dir() == is_directory && !found.is_symlink() => return Ok(()),
        Ok(found) if found.is_dir() => rustix::fs::rmdir(target).map_err(SystemCallFailure::of("remove", target))?,
        Ok(_) => rustix::fs::unlink(target).map_err(SystemCallFailure::of("remove", target))?,
        Err(_) => {}
    }
    if is_directory {
        return Ok(paths.create(target, 0o750)?);
    }
    let above = target.rsplit_once('/').map_or(target, |(above, _)| above);
    paths.create(above, 0o750)?;
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(target, flags, Mode::from_raw_mode(0o640))
        .map_err(SystemCallFailure::of("create file", target))?;
    Ok(())
}

#[cfg(test)]
#[path = "tests/sub_path.rs"]
mod tests;
