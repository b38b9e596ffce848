//! The mounts of a container.

use serde::Serialize;

/// The mount point of the managed hosts file in a container.
pub const ETC_HOSTS: &str = "/etc/hosts";

/// A file or directory, mounted into a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mount {
    pub container_path: String,
    pub source: MountSource,
    pub access: Access,
    pub propagation: Propagation,
    /// Wherry owns the files: where SELinux is on, the runtime gives them the label of the container. Files of the host
    /// keep their labels.
    pub owned: bool,
}

/// Where the files are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum MountSource {
    /// A path of the host.
    Host(String),
    /// The file system of an image, which the runtime mounts.
    Image(ImageSource),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ImageSource {
    /// As the spec names the image.
    pub reference: String,
    /// The runtime's id of the image.
    pub id: String,
    /// A directory of the image; empty for all of it.
    pub sub_path: String,
}

/// What the container may do with the files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Access {
    #[default]
    ReadWrite,
    /// Mounts below the mount stay as they are.
    ReadOnly,
    /// Mounts below the mount are read-only too.
    RecursiveReadOnly,
}

/// Which mounts made later, below the mount, appear on the other side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Propagation {
    #[default]
    Private,
    HostToContainer,
    Bidirectional,
}

impl Mount {
    /// A writable mount of Wherry's own files, without propagation.
    pub fn writable(container_path: impl Into<String>, host_path: impl Into<String>) -> Mount {
        Mount {
            container_path: container_path.into(),
            source: MountSource::Host(host_path.into()),
            access: Access::default(),
            propagation: Propagation::default(),
            owned: true,
        }
    }
}
