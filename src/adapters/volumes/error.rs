//! Why a volume cannot be set up, mounted in a container or removed. The messages follow those of a kubelet's events,
//! with the reason at the end.

use crate::api::volume::HostPathType;
use rustix::io::Errno;
use std::fmt;

/// A system call that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemCallFailure {
    /// The attempted action, such as `create directory`.
    pub doing: &'static str,
    pub path: String,
    pub errno: Errno,
}

impl SystemCallFailure {
    pub(super) fn of<'a>(doing: &'static str, path: &'a str) -> impl Fn(Errno) -> SystemCallFailure + 'a {
        move |errno| SystemCallFailure { doing, path: path.to_owned(), errno }
    }
}

impl fmt::Display for SystemCallFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "failed to {} {}: {}", self.doing, self.path, std::io::Error::from(self.errno))
    }
}

/// Why one volume or one mount is not usable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    Failed(SystemCallFailure),
    /// The file at the path does not have the type that `hostPath.type` demands.
    HostPathType {
        path: String,
        demanded: HostPathType,
    },
    /// The directory of a claim is missing, or is not a directory.
    NoClaimDirectory(String),
    /// A name cannot be part of a path.
    Name(String),
    /// The path of a file in a volume is not valid.
    FilePath(String),
    /// Two files of a volume conflict: the path of one is a directory in the path of the other.
    Collision {
        file: String,
        below: String,
    },
    /// Another file system is mounted on the volume's directory, or something else exists at the path of a link.
    Taken(String),
    /// The volume has to be set up first.
    NotSetUp(String),
    /// `subPathExpr` refers to a variable that the container does not have.
    MissingVariable(String),
    /// A sub-path is absolute or contains `..`.
    SubPath(String),
    /// A link in the sub-path leads out of the volume.
    Escapes(String),
    /// `recursiveReadOnly: Enabled` needs a runtime that supports it.
    RecursiveReadOnly,
    /// The pod has no volume with this name.
    NoVolume,
}

impl From<SystemCallFailure> for Cause {
    fn from(failure: SystemCallFailure) -> Cause {
        Cause::Failed(failure)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Failed(failure) => failure.fmt(f),
            Cause::HostPathType { path, demanded } => {
                write!(f, "hostPath type check failed: {path} is not {}", noun(*demanded))
            }
            Cause::NoClaimDirectory(path) => {
                write!(f, "the directory of the claim, {path}, does not exist; mount its file system, or create it")
            }
            Cause::Name(name) => write!(f, "the name {name:?} cannot be part of a path"),
            Cause::FilePath(path) => {
                write!(f, "invalid file path {path:?}: it must be relative, without '..', and not start with '..'")
            }
            Cause::Collision { file, below } => {
                write!(f, "conflicting paths: {file} is a file, so {below} cannot be below it; change one of the paths")
            }
            Cause::Taken(path) => write!(f, "{path} is in use by something else; remove or unmount it"),
            Cause::NotSetUp(path) => write!(f, "{path} is not set up yet"),
            Cause::MissingVariable(name) => write!(f, "missing value for {name:?}"),
            Cause::SubPath(path) => {
                write!(f, "invalid subPath {path:?}: it must be a non-empty relative path without '..'")
            }
            Cause::Escapes(path) => {
                write!(
                    f,
                    "subPath {path:?} leaves the volume: one of its components is a link to an absolute path or to a \
                     path outside the volume"
                )
            }
            Cause::RecursiveReadOnly => {
                f.write_str("recursive read-only mode is requested, but it is not supported by the runtime")
            }
            Cause::NoVolume => f.write_str("the pod has no such volume"),
        }
    }
}

fn noun(demanded: HostPathType) -> &'static str {
    match demanded {
        HostPathType::Directory | HostPathType::DirectoryOrCreate => "a directory",
        HostPathType::File | HostPathType::FileOrCreate => "a file",
        HostPathType::Socket => "a socket file",
        HostPathType::CharDevice => "a character device",
        HostPathType::BlockDevice => "a block device",
        HostPathType::Unset => "of this type",
    }
}

/// An error of this adapter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeError {
    SetUp {
        volume: String,
        cause: Cause,
    },
    Mount {
        volume: String,
        container: String,
        cause: Cause,
    },
    /// The message contains the path.
    TearDown(String),
}

impl fmt::Display for VolumeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VolumeError::SetUp { volume, cause } => {
                write!(f, "MountVolume.SetUp failed for volume {volume:?} : {cause}")
            }
            VolumeError::Mount { volume, container, cause } => {
                write!(f, "failed to prepare volumeMount {volume:?} of container {container:?}: {cause}")
            }
            VolumeError::TearDown(why) => write!(f, "UnmountVolume.TearDown failed: {why}"),
        }
    }
}
