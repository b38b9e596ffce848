//! Names and creates the directories of one pod's volumes, in a kubelet's layout. Containers cannot change these
//! paths: all directories above a volume belong to root and have mode 0750.

use super::error::{Cause, SystemCallFailure};
use crate::api::layout::Layout;
use crate::api::volume::{Volume, VolumeKind};
use rustix::fs::Mode;
use rustix::io::Errno;

/// The mode of all directories above the volumes.
const PRIVATE: u32 = 0o750;

/// The paths of a pod.
pub(super) struct PodPaths {
    /// `<root>/pods`
    above: String,
    /// `<root>/pods/<uid>`
    pub(super) own: String,
}

impl PodPaths {
    /// Returns the paths of the pod with this UID.
    ///
    /// # Errors
    /// The UID cannot be part of a path.
    pub(super) fn new(layout: &Layout, uid: &str) -> Result<PodPaths, Cause> {
        let above = layout.pods();
        let own = format!("{above}/{}", one_part(uid)?);
        Ok(PodPaths { above, own })
    }

    /// Returns `<pod>/volumes/<plugin>/<name>`, or the path of a hostPath volume or of a claim.
    pub(super) fn volume(&self, volume: &Volume) -> Result<String, Cause> {
        match (volume.plugin(), &volume.kind) {
            (Some(plugin), _) => Ok(format!("{}/volumes/{plugin}/{}", self.own, one_part(&volume.name)?)),
            (None, VolumeKind::HostPath { path, .. } | VolumeKind::Claim { path, .. }) => Ok(path.clone()),
            (None, _) => Err(Cause::NoVolume),
        }
    }

    /// Returns the directory of the file `ready`, which exists once an emptyDir is set up.
    pub(super) fn marker(&self, plugin: &str, name: &str) -> String {
        format!("{}/plugins/{plugin}/{name}", self.own)
    }

    /// Returns the directory of all mounted sub-paths.
    pub(super) fn sub_paths(&self) -> String {
        format!("{}/volume-subpaths", self.own)
    }

    /// Returns `<pod>/volume-subpaths/<volume>/<container>`.
    pub(super) fn container_sub_paths(&self, volume: &str, container: &str) -> Result<String, Cause> {
        Ok(format!("{}/{}/{}", self.sub_paths(), one_part(volume)?, one_part(container)?))
    }

    /// Creates a directory below the pod's directory, and its missing parents with mode 0750.
    pub(super) fn create(&self, path: &str, mode: u32) -> Result<(), SystemCallFailure> {
        match (make(path, mode), path.rsplit_once('/')) {
            (Err(SystemCallFailure { errno: Errno::NOENT, .. }), Some((parent, _)))
                if path.len() > self.above.len() =>
            {
                self.create(parent, PRIVATE)?;
                make(path, mode).map(drop)
            }
            (done, _) => done.map(drop),
        }
    }
}

/// Creates one directory with exactly this mode, regardless of the umask. Does not change an existing one. Returns
/// whether it is new.
pub(super) fn make(path: &str, mode: u32) -> Result<bool, SystemCallFailure> {
    match rustix::fs::mkdir(path, Mode::from_raw_mode(mode)) {
        Ok(()) => {
            rustix::fs::chmod(path, Mode::from_raw_mode(mode))
                .map_err(SystemCallFailure::of("set the mode of", path))?;
            Ok(true)
        }
        Err(Errno::EXIST) if std::fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()) => Ok(false),
        Err(Errno::EXIST) => Err(SystemCallFailure::of("create directory", path)(Errno::NOTDIR)),
        Err(errno) => Err(SystemCallFailure::of("create directory", path)(errno)),
    }
}

/// Checks that a name is a single part of a path. Names come from manifests, and this check does not rely on their
/// validation.
pub(super) fn one_part(name: &str) -> Result<&str, Cause> {
    let wrong = name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']);
    if wrong { Err(Cause::Name(name.to_owned())) } else { Ok(name) }
}
