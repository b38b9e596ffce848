//! The mounts of a container.

use serde::Serialize;

/// The mount point of the managed hosts file in a container.
pub const ETC_HOSTS: &str = "/etc/hosts";

/// A file or directory of the host, mounted into a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mount {
    pub container_path: String,
    pub host_path: String,
    pub access: Access,
    pub propagation: Propagation,
    /// Wherry owns the files: where SELinux is on, the runtime gives them the label of the container. Files of the host keep
    /// their labels.
    pub owned: bool,
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
            host_path: host_path.into(),
            access: Access::default(),
            propagation: Propagation::default(),
            owned: true,
        }
    }
}
