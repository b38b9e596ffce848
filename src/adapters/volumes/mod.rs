//! Manages the volumes of pods, in a kubelet's layout: sets them up below the pod's directory, mounts parts of them
//! for containers (`sub_path`), replaces the files of ConfigMaps and Secrets, and removes everything again.
//!
//! Each call is synchronous and must run on a helper thread, because a file system can hang. Each call can be
//! repeated, even after Wherry was killed in the middle of it. Containers can change their volumes at any time, so the
//! code follows no link that a container can create, and removes nothing below a mount point.

mod atomic;
mod beneath;
mod claim;
mod empty_dir;
mod error;
mod host_path;
mod mounts;
mod ownership;
mod paths;
mod sub_path;
#[cfg(test)]
mod tests;

pub use claim::{make_claim, remove_claim};
pub use error::{Cause, SystemCallFailure, VolumeError};
pub use sub_path::{ForContainer, container_mounts};

use crate::adapters::pod_files::remove_tree;
use crate::api::layout::Layout;
use crate::api::volume::{FilesPlugin, Volume, VolumeFile, VolumeKind};
use mounts::{FileSystem, Where};
use ownership::GroupAccess;
use paths::{PodPaths, one_part};

/// Sets up all volumes of a pod. Volumes that are already set up stay as they are, except that the files of ConfigMaps
/// and Secrets are updated.
///
/// # Errors
/// The first error. The other volumes are set up nevertheless.
pub fn set_up(layout: &Layout, uid: &str, volumes: &[Volume]) -> Result<(), VolumeError> {
    let mut result = Ok(());
    for volume in volumes {
        let done = PodPaths::new(layout, uid).and_then(|paths| set_up_one(&paths, volume));
        result = result.and(done.map_err(of(volume)));
    }
    result
}

/// Replaces the files of a volume that is set up, if they differ. Returns whether they did. Does nothing for other
/// kinds of volumes.
///
/// # Errors
/// The volume is not set up, or a file cannot be written. See `atomic::write` for the files that the volume then
/// contains.
pub fn update_files(layout: &Layout, uid: &str, volume: &Volume) -> Result<bool, VolumeError> {
    let VolumeKind::Files { plugin, files } = &volume.kind else { return Ok(false) };
    let update = || {
        let directory = PodPaths::new(layout, uid)?.volume(volume)?;
        // Without the mount, a Secret would be written to the disk below the mount point.
        if !std::path::Path::new(&directory).exists()
            || plugin.is_in_memory() && !mounts::is_mounted(&directory, &MEMORY)?
        {
            return Err(Cause::NotSetUp(directory));
        }
        write_files(&directory, files, volume)
    };
    update().map_err(of(volume))
}

/// Unmounts everything below the directory of a pod and removes the contents of its volumes. No container of the pod
/// may be running. Succeeds if there is nothing to remove.
///
/// # Errors
/// A mount is in use, or a file cannot be removed. Nothing below a mount is removed.
pub fn tear_down(layout: &Layout, uid: &str) -> Result<(), VolumeError> {
    let wrong = VolumeError::TearDown;
    let paths = PodPaths::new(layout, uid).map_err(|cause| wrong(cause.to_string()))?;
    if !std::fs::symlink_metadata(&paths.own).is_ok_and(|found| found.is_dir()) {
        return Ok(());
    }
    mounts::unmount(&paths.own, Where::Below).map_err(|failure| wrong(failure.to_string()))?;
    // Remove the marker of an emptyDir before its files, so that a partly removed volume is not considered ready.
    for part in ["volume-subpaths", "plugins", "volumes"] {
        remove_tree(&paths.own, part).map_err(wrong)?;
    }
    Ok(())
}

/// Unmounts the sub-paths of one container, which must not be running. Succeeds if there are none.
///
/// # Errors
/// A mount is in use.
pub fn tear_down_container(layout: &Layout, uid: &str, container: &str) -> Result<(), VolumeError> {
    let wrong = VolumeError::TearDown;
    let paths = PodPaths::new(layout, uid).and_then(|paths| one_part(container).map(|_| paths));
    let paths = paths.map_err(|cause| wrong(cause.to_string()))?;
    let Ok(volumes) = std::fs::read_dir(paths.sub_paths()) else { return Ok(()) };
    let mut result = Ok(());
    for volume in volumes.flatten().filter_map(|entry| entry.file_name().into_string().ok()) {
        let above = format!("{}/{volume}", paths.sub_paths());
        let unmounted =
            mounts::unmount(&format!("{above}/{container}"), Where::Below).map_err(|f| wrong(f.to_string()));
        result = result.and(unmounted.and_then(|()| remove_tree(&above, container).map_err(wrong)));
    }
    result
}

const MEMORY: FileSystem = FileSystem::Tmpfs { size: None };

fn of(volume: &Volume) -> impl Fn(Cause) -> VolumeError + '_ {
    |cause| VolumeError::SetUp { volume: volume.name.clone(), cause }
}

fn set_up_one(paths: &PodPaths, volume: &Volume) -> Result<(), Cause> {
    match (&volume.kind, volume.plugin()) {
        (VolumeKind::EmptyDir(medium), plugin) => {
            let directory = paths.volume(volume)?;
            let marker = paths.marker(plugin.unwrap_or_default(), &volume.name);
            empty_dir::set_up(paths, &directory, &marker, *medium, volume.fs_group)
        }
        (VolumeKind::HostPath { path, check }, _) => host_path::check(path, *check),
        (VolumeKind::Claim { path, .. }, _) => claim::set_up(paths, path, volume),
        (VolumeKind::Image { .. }, _) => Ok(()),
        (VolumeKind::Files { plugin, files }, _) => set_up_files(paths, &paths.volume(volume)?, *plugin, files, volume),
    }
}

fn set_up_files(
    paths: &PodPaths,
    directory: &str,
    plugin: FilesPlugin,
    files: &[VolumeFile],
    volume: &Volume,
) -> Result<(), Cause> {
    paths.create(directory, empty_dir::MODE)?;
    if plugin.is_in_memory() {
        mounts::mount(directory, &MEMORY)?;
    }
    write_files(directory, files, volume)?;
    Ok(())
}

/// Sets the group of the volume's own directory, then writes the files.
fn write_files(directory: &str, files: &[VolumeFile], volume: &Volume) -> Result<bool, Cause> {
    let gid = volume.fs_group.map(|group| group.gid);
    if let Some(gid) = gid {
        let root = mounts::open_path(directory)?;
        ownership::give(&root, gid, GroupAccess::Read)
            .map_err(SystemCallFailure::of("change the group of", directory))?;
    }
    atomic::write(directory, files, gid)
}
