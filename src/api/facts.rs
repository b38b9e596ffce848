//! Observed facts about sandboxes, containers and images, without protobuf types.
//!
//! `Listed` is the result of the two list calls for all pods (cheap, once per relist). `PodFacts` is the result of the
//! status calls for one pod. Both contain only fields that decisions and the pod status need.

use crate::api::eviction::Level;
use crate::api::names::{ContainerId, FullName, SandboxId, Uid};
use crate::api::runtime_features::RuntimeFeatures;
use crate::api::time::Wall;
use crate::api::user_namespace::IdRange;
use serde::Serialize;
use std::collections::BTreeMap;

/// The state of a container. The PLEG treats `Created` and `Unknown` as unknown (P1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum ContainerState {
    Created,
    Running,
    Exited,
    Unknown,
}

/// One sandbox in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedSandbox {
    pub id: SandboxId,
    pub uid: Uid,
    pub name: FullName,
    pub attempt: u32,
    pub ready: bool,
    /// The annotation `annotation::OWNER`, if present.
    pub owner: Option<String>,
    /// The annotation `annotation::SANDBOX_GRACE` in seconds, if present (W21).
    pub grace_seconds: Option<u64>,
    /// The annotation `annotation::USER_NAMESPACE`, if present (W28).
    pub user_namespace: Option<IdRange>,
    pub created_at: Wall,
}

/// One container in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedContainer {
    pub id: ContainerId,
    pub sandbox: SandboxId,
    pub uid: Uid,
    pub pod_name: FullName,
    pub name: String,
    pub attempt: u32,
    pub state: ContainerState,
    pub owner: Option<String>,
    /// The annotation `annotation::GRACE_PERIOD` in seconds, if present.
    pub grace_seconds: Option<u64>,
    pub created_at: Wall,
}

/// The result of both list calls, which start at the same time. Entries without the kubelet's pod labels are omitted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    pub sandboxes: Vec<ListedSandbox>,
    pub containers: Vec<ListedContainer>,
}

/// One sandbox from its status call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SandboxFact {
    pub id: SandboxId,
    pub attempt: u32,
    pub ready: bool,
    pub created_at: Wall,
    /// The IP addresses, with the primary address first. Empty with hostNetwork, and while the sandbox is not ready.
    /// A runtime may lose the addresses (CRI-O does after a restart without libcni's cached results).
    pub ips: Vec<String>,
    /// True if the sandbox uses the node's network.
    pub host_network: bool,
    pub owner: Option<String>,
    /// The annotation `annotation::USER_NAMESPACE`, if present (W28).
    pub user_namespace: Option<IdRange>,
    /// The PID of the sandbox's own process, from the verbose info, while the sandbox is ready. None if the runtime
    /// does not report it.
    pub pid: Option<u32>,
}

/// The user and group ids of a container's first process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ContainerUser {
    pub uid: i64,
    pub gid: i64,
    pub supplemental_groups: Vec<i64>,
}

/// One container from its status call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ContainerFact {
    pub id: ContainerId,
    /// Empty if the runtime does not report the sandbox in the container status; the container list always has it.
    pub sandbox: SandboxId,
    pub name: String,
    /// The restart count: `annotation::RESTART_COUNT`, otherwise the metadata's attempt.
    pub attempt: u32,
    pub state: ContainerState,
    pub created_at: Wall,
    pub started_at: Wall,
    pub finished_at: Wall,
    pub exit_code: i32,
    pub reason: String,
    pub message: String,
    /// The image name as the runtime reports it (status.image.image).
    pub image: String,
    /// The runtime's image reference (status.imageID).
    pub image_ref: String,
    /// `annotation::CONTAINER_HASH`: identifies the image in the spec for which the container was created
    /// (`hash::container`).
    pub spec_hash: Option<u32>,
    /// `annotation::BACKOFF_LEVEL`, 0 if absent.
    pub backoff_level: u32,
    /// `annotation::BOOT`: identifies the boot in which the container was created. None if absent.
    pub boot: Option<u32>,
    /// `annotation::GRACE_PERIOD` in seconds.
    pub grace_seconds: Option<u64>,
    /// The annotation `annotation::PRE_STOP` (JSON), if present.
    pub pre_stop: Option<String>,
    /// The signal that ends the container. None if the runtime does not report it.
    pub stop_signal: Option<&'static str>,
    /// The user of the first process. None if the runtime does not report it.
    pub user: Option<Box<ContainerUser>>,
    /// The host file that is mounted at the termination message path.
    pub termination_file: Option<String>,
    /// True if `annotation::TERMINATION_POLICY` is FallbackToLogsOnError.
    pub fallback_to_logs: bool,
    /// The log file on the host.
    pub log_path: String,
    pub owner: Option<String>,
    /// The PID of the init process, from the verbose info, while the container is running.
    pub pid: Option<u32>,
}

impl ContainerFact {
    /// Reports whether the runtime abandoned the start because its caller was killed or lost the connection. The
    /// container never ran. containerd reports this as an exit with code 128; only the message shows the cause.
    /// Either the context was cancelled (seen on 1.6.20), or containerd killed the helper that starts the shim (seen
    /// on 1.7.24).
    pub fn start_was_given_up(&self) -> bool {
        let says = |part| self.message.contains(part);
        self.state == ContainerState::Exited
            && self.started_at.0 <= 0
            && self.reason == "StartError"
            && (says("context canceled") || says("failed to start shim") && says("signal: killed"))
    }
}

/// Memory statistics of a container other than its working set, from the runtime's stats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryFact {
    /// The limit minus the working set. The runtime may report 0 for a container without a limit.
    pub available_bytes: Option<u64>,
    /// All memory in use, including the page cache.
    pub usage_bytes: Option<u64>,
    /// Anonymous memory.
    pub rss_bytes: Option<u64>,
    /// Page faults since the container started.
    pub page_faults: Option<u64>,
    /// Page faults that read from a disk.
    pub major_page_faults: Option<u64>,
}

/// Resource usage of a container from the runtime's stats. None for values that the runtime does not report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageFact {
    pub id: ContainerId,
    /// Time of the CPU sample, in nanoseconds of the runtime's clock.
    pub cpu_at: i64,
    /// CPU time on all processors since the container was created, in nanoseconds.
    pub cpu_nanos: Option<u64>,
    /// The CPU usage that the runtime computes from its last samples, in billionths of a core.
    pub cpu_nano_cores: Option<u64>,
    /// Time of the memory sample, in nanoseconds of the runtime's clock.
    pub memory_at: i64,
    /// Working set size.
    pub memory_bytes: Option<u64>,
    pub memory: MemoryFact,
    /// Swap in use.
    pub swap_bytes: Option<u64>,
    /// The disk usage of the files that the container has written, excluding volumes and logs.
    pub disk_bytes: Option<u64>,
    pub disk_inodes: Option<u64>,
}

/// The result of a command in a container.
#[derive(Clone, PartialEq, Eq)]
pub struct ExecOutput {
    pub exit_code: i32,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

/// Omits the output, which may contain secrets.
impl std::fmt::Debug for ExecOutput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ExecOutput { exit_code, stdout, stderr } = self;
        write!(f, "ExecOutput(exit code {exit_code}, {} and {} bytes)", stdout.len(), stderr.len())
    }
}

/// All sandboxes and containers that the runtime has for one pod, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PodFacts {
    pub sandboxes: Vec<SandboxFact>,
    pub containers: Vec<ContainerFact>,
}

/// An image in the runtime.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ImageFact {
    /// The identifier for a container config (the runtime's id, `sha256:...`).
    pub id: String,
    /// The numeric user from the image config.
    pub uid: Option<i64>,
    /// The user name from the image config; empty if there is none.
    pub username: String,
    /// In bytes.
    pub size: u64,
}

/// One image in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ListedImage {
    /// The runtime's id, `sha256:...`.
    pub id: String,
    /// Full names with a tag.
    pub tags: Vec<String>,
    /// Full names with a digest.
    pub digests: Vec<String>,
    /// The size that the runtime reports, in bytes.
    pub size: u64,
    /// True if the runtime has pinned the image, so that it must not be removed.
    pub pinned: bool,
}

/// A container, of any owner, that uses an image. `pod` is None if the container does not belong to a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ImageUser {
    /// A name or an id.
    pub image: String,
    /// The runtime's reference to the image.
    pub image_ref: String,
    pub pod: Option<FullName>,
}

/// All images of the runtime, and all containers that use them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ImageList {
    pub images: Vec<ListedImage>,
    pub users: Vec<ImageUser>,
    /// The image of the runtime's sandboxes, if the runtime reports it.
    pub sandbox_image: Option<String>,
}

/// A file system in the runtime's ImageFsInfo.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ImageFsFact {
    /// A directory on the file system.
    pub mountpoint: String,
    /// The bytes that the images occupy.
    pub used_bytes: u64,
}

/// A file system from statvfs, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FileSystemFact {
    pub capacity: u64,
    /// The bytes that are available to unprivileged users.
    pub available: u64,
    /// 0 if the file system has no fixed number of inodes.
    pub inodes: u64,
    pub inodes_free: u64,
    /// Two paths with the same id are on the same file system.
    pub id: u64,
}

/// The disk usage of the files below a directory. `bytes` is the space that is allocated on the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DiskUse {
    pub bytes: u64,
    pub inodes: u64,
}

/// A pod whose directories are measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MeasuredPod {
    pub uid: Uid,
    pub name: FullName,
    /// The names of the pod's emptyDir volumes that are stored on disk.
    pub volumes: Vec<String>,
}

/// The disk usage of a pod outside of its containers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PodDiskFact {
    pub uid: Uid,
    /// The usage of each volume, by volume name.
    pub volumes: BTreeMap<String, DiskUse>,
    /// The usage of the logs, by container name.
    pub logs: BTreeMap<String, DiskUse>,
}

/// The memory and the process ids that the machine has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MachineFact {
    /// In bytes.
    pub memory: Level,
    /// The default value if process ids were not requested.
    pub pids: Level,
}

/// The results of the CRI calls Version and Status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RuntimeFact {
    pub name: String,
    pub version: String,
    /// None if ready; otherwise the reason and the message of the `RuntimeReady` condition.
    pub runtime_not_ready: Option<String>,
    /// As `runtime_not_ready`, for the condition `NetworkReady`.
    pub network_not_ready: Option<String>,
    pub features: RuntimeFeatures,
}
