//! The classes of jobs, and how many threads each of them has.

/// A group of jobs that share threads and a queue. Jobs of one class start in the order of submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Writes that must be durable before dependent work continues.
    Records,
    /// Reads of manifests and of the manifest directory.
    Manifests,
    /// Accesses to other paths that this process does not own.
    Paths,
    /// Credentials for image pulls, which come from files and programs that this process does not own.
    Credentials,
    /// Volumes of pods. Their host paths may be on any file system, such as a hung network file system.
    Volumes,
    /// Removals of files and trees. They can take minutes.
    Removals,
    /// Measurements of the disk usage of pods, which may have millions of files.
    Measurements,
    /// Rotations of container logs, which compress files of any size.
    Logs,
    /// Lookups of host names. A DNS server that does not answer blocks them for many seconds.
    Names,
}

impl Class {
    /// All classes in the order of declaration.
    pub const ALL: [Class; 9] = [
        Class::Records,
        Class::Manifests,
        Class::Paths,
        Class::Credentials,
        Class::Volumes,
        Class::Removals,
        Class::Measurements,
        Class::Logs,
        Class::Names,
    ];

    /// Returns the name used in messages.
    pub fn name(self) -> &'static str {
        match self {
            Class::Records => "records",
            Class::Manifests => "manifests",
            Class::Paths => "paths",
            Class::Credentials => "credentials",
            Class::Volumes => "volumes",
            Class::Removals => "removals",
            Class::Measurements => "measurements",
            Class::Logs => "logs",
            Class::Names => "names",
        }
    }

    /// Returns the maximum number of active threads. Abandoned threads do not count.
    pub const fn at_work(self) -> usize {
        2
    }

    /// Returns the stack size of each thread, in bytes. Only touched pages use memory. glibc's name resolution needs
    /// tens of KiB, and the compressor for logs several hundred.
    pub(super) const fn stack(self) -> usize {
        match self {
            Class::Logs => 2 << 20,
            _ => 256 << 10,
        }
    }

    /// Returns the maximum number of abandoned threads that are replaced. If the replacements hang too, the jobs of
    /// the class wait until a thread returns or their deadlines pass.
    pub const fn replaced(self) -> usize {
        match self {
            // Other manifests must stay readable when several manifests hang.
            Class::Manifests => 4,
            Class::Records
            | Class::Paths
            | Class::Credentials
            | Class::Volumes
            | Class::Removals
            | Class::Measurements
            | Class::Logs
            | Class::Names => 2,
        }
    }
}
