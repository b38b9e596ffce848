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
    /// True if Wherry owns the files. If SELinux is on, the runtime then gives them the label of the container. Files
    /// of the host keep their labels.
    pub owned: bool,
}

/// Where the files are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum MountSource {
    /// A path on the host.
    Host(String),
    /// The file system of an image, which the runtime mounts.
    Image(ImageSource),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ImageSource {
    /// The image reference as written in the spec.
    pub reference: String,
    /// The runtime's id of the image.
    pub id: String,
    /// A directory in the image. Empty for the whole image.
    pub sub_path: String,
}

/// What the container may do with the files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Access {
    #[default]
    ReadWrite,
    /// Read-only, but other mounts below this one are not affected.
    ReadOnly,
    /// Read-only, including other mounts below this one.
    RecursiveReadOnly,
}

/// Whether mounts that are created later, below this one, propagate between the host and the container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Propagation {
    #[default]
    Private,
    HostToContainer,
    Bidirectional,
}

impl Mount {
    /// Returns a writable mount of Wherry's own files, without propagation.
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
