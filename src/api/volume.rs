//! A pod's volumes with everything that is needed to set them up. The contents of ConfigMaps, Secrets and the
//! downward API are already resolved, so the code that sets up a volume needs neither the pod nor the objects.

use crate::api::quantity::Quantity;
use std::fmt;

/// One volume of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    pub name: String,
    pub kind: VolumeKind,
    /// `fsGroup` of the pod's security context. It has no effect on a hostPath volume, as in a kubelet.
    pub fs_group: Option<FsGroup>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeKind {
    EmptyDir(Medium),
    HostPath {
        /// An absolute path on the host.
        path: String,
        check: HostPathType,
    },
    /// The directory of a claim.
    Claim {
        /// An absolute path on the host.
        path: String,
        read_only: bool,
    },
    Files {
        plugin: FilesPlugin,
        /// If two files have the same path, the last one wins, as in a projected volume of a kubelet.
        files: Vec<VolumeFile>,
    },
    /// An image, which the runtime mounts.
    Image {
        /// The image reference as written in the spec.
        reference: String,
        /// The runtime's id of the image. Empty if it is not needed.
        id: String,
    },
}

/// Where an emptyDir stores its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    Disk,
    /// A tmpfs of at most `size` bytes. None: the kernel's default, half of the memory.
    Memory {
        size: Option<u64>,
    },
    /// A hugetlbfs with pages of `page_size` bytes, at most `size` bytes. None: no limit except that of the pod's
    /// cgroup.
    HugePages {
        page_size: u64,
        size: Option<u64>,
    },
}

/// Returns the page size in bytes of the medium `HugePages-<size>`. Returns Some(None) for `HugePages`, whose page
/// size follows from the requests of the containers, and None for any other medium.
pub fn huge_page_size(medium: &str) -> Option<Option<u64>> {
    let rest = medium.strip_prefix("HugePages")?;
    if rest.is_empty() {
        return Some(None);
    }
    let size = Quantity::parse(rest.strip_prefix('-')?).ok().filter(|size| size.is_whole())?.value();
    u64::try_from(size).ok().filter(|size| size.is_power_of_two()).map(Some)
}

/// `hostPath.type`: what must exist at the path before the pod starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostPathType {
    /// No check. The runtime creates a missing path as a directory.
    Unset,
    DirectoryOrCreate,
    Directory,
    FileOrCreate,
    File,
    Socket,
    CharDevice,
    BlockDevice,
}

/// The names of all types, sorted.
pub const HOST_PATH_TYPES: [(&str, HostPathType); 8] = [
    ("", HostPathType::Unset),
    ("BlockDevice", HostPathType::BlockDevice),
    ("CharDevice", HostPathType::CharDevice),
    ("Directory", HostPathType::Directory),
    ("DirectoryOrCreate", HostPathType::DirectoryOrCreate),
    ("File", HostPathType::File),
    ("FileOrCreate", HostPathType::FileOrCreate),
    ("Socket", HostPathType::Socket),
];

impl HostPathType {
    /// Returns the type with this name in a manifest.
    pub fn named(name: &str) -> Option<HostPathType> {
        HOST_PATH_TYPES.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
    }
}

/// The kinds of volumes whose files Wherry writes. Containers can only read them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilesPlugin {
    ConfigMap,
    Secret,
    Projected,
    DownwardApi,
}

impl FilesPlugin {
    /// Reports whether the files are on a tmpfs and never on a disk. A kubelet keeps only ConfigMaps on the disk.
    pub fn is_in_memory(self) -> bool {
        self != FilesPlugin::ConfigMap
    }
}

/// A file of a volume.
#[derive(Clone, PartialEq, Eq)]
pub struct VolumeFile {
    /// The path relative to the volume, without the components `.` and `..`.
    pub path: String,
    /// The permission bits, 0 to 0777.
    pub mode: u32,
    /// The uid of the user that owns the file. None: root.
    pub owner: Option<u32>,
    pub bytes: Vec<u8>,
}

/// Does not show the content, which may be a Secret's.
impl fmt::Debug for VolumeFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:o} {} bytes", self.path, self.mode, self.bytes.len())
    }
}

/// The group that owns a volume's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsGroup {
    pub gid: u32,
    /// `fsGroupChangePolicy: OnRootMismatch`: leaves all files as they are if the volume's root has the right group and
    /// mode.
    pub only_on_root_mismatch: bool,
}

impl Volume {
    /// Returns the kubelet's name for the volume's plugin, as used in paths. None for a hostPath, a claim and an
    /// image, which have no directory in that of the pod.
    pub fn plugin(&self) -> Option<&'static str> {
        match &self.kind {
            VolumeKind::EmptyDir(_) => Some("kubernetes.io~empty-dir"),
            VolumeKind::HostPath { .. } | VolumeKind::Claim { .. } | VolumeKind::Image { .. } => None,
            VolumeKind::Files { plugin: FilesPlugin::ConfigMap, .. } => Some("kubernetes.io~configmap"),
            VolumeKind::Files { plugin: FilesPlugin::Secret, .. } => Some("kubernetes.io~secret"),
            VolumeKind::Files { plugin: FilesPlugin::Projected, .. } => Some("kubernetes.io~projected"),
            VolumeKind::Files { plugin: FilesPlugin::DownwardApi, .. } => Some("kubernetes.io~downward-api"),
        }
    }

    /// Returns the path of a volume that is not in the pod's directory: a hostPath or a claim.
    pub fn outside_path(&self) -> Option<&str> {
        match &self.kind {
            VolumeKind::HostPath { path, .. } | VolumeKind::Claim { path, .. } => Some(path),
            VolumeKind::EmptyDir(_) | VolumeKind::Files { .. } | VolumeKind::Image { .. } => None,
        }
    }

    /// Reports whether the volume is read-only for all containers, whatever their mounts say.
    pub fn is_read_only(&self) -> bool {
        match self.kind {
            VolumeKind::Files { .. } | VolumeKind::Image { .. } => true,
            VolumeKind::Claim { read_only, .. } => read_only,
            VolumeKind::EmptyDir(_) | VolumeKind::HostPath { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_types_of_a_host_path_are_sorted_and_found_by_name() {
        assert!(HOST_PATH_TYPES.is_sorted_by_key(|(name, _)| *name));
        assert_eq!(HostPathType::named("Socket"), Some(HostPathType::Socket));
        assert_eq!(HostPathType::named("directory"), None);
    }

    #[test]
    fn the_page_size_is_part_of_the_medium() {
        for (medium, size) in [
            ("HugePages", Some(None)),
            ("HugePages-2Mi", Some(Some(2 << 20))),
            ("HugePages-1Gi", Some(Some(1 << 30))),
            ("HugePages-", None),
            ("HugePages-3Mi", None),
            ("HugePages-0", None),
            ("HugePages2Mi", None),
            ("Memory", None),
            ("", None),
        ] {
            assert_eq!(huge_page_size(medium), size, "{medium}");
        }
    }

    #[test]
    fn the_content_of_a_file_is_never_shown() {
        let file = VolumeFile { path: "a/password".into(), mode: 0o400, owner: None, bytes: b"hunter2".to_vec() };
        assert_eq!(format!("{file:?}"), "a/password 400 7 bytes");
    }

    #[test]
    fn only_config_maps_are_on_the_disk() {
        let files =
            |plugin| Volume { name: "v".into(), kind: VolumeKind::Files { plugin, files: Vec::new() }, fs_group: None };
        for (plugin, name, in_memory) in [
            (FilesPlugin::ConfigMap, "kubernetes.io~configmap", false),
            (FilesPlugin::Secret, "kubernetes.io~secret", true),
            (FilesPlugin::Projected, "kubernetes.io~projected", true),
            (FilesPlugin::DownwardApi, "kubernetes.io~downward-api", true),
        ] {
            assert_eq!((files(plugin).plugin(), plugin.is_in_memory()), (Some(name), in_memory));
        }
    }
}
