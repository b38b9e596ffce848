//! The mounts of a container.

use serde::Serialize;

/// The mount point of the managed hosts file in a container.
pub const ETC_HOSTS: &str = "/etc/hosts";

/// A file or directory of the host, mounted into a container. Writable, without mount propagation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mount {
    pub container_path: String,
    pub host_path: String,
}
