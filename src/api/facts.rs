//! What was observed of sandboxes, containers and images: plain facts, without protobuf.
//!
//! `Listed` is what the two list calls show of everything (cheap, once a relist); `PodFacts` is what the
//! status calls show of one pod. Both hold only what decisions and the pod's status need.

use crate::api::names::{ContainerId, FullName, SandboxId, Uid};
use crate::api::time::Wall;
use serde::Serialize;

/// P1: `Created` and `Unknown` count as unknown.
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
    /// `annotation::OWNER`, if it has one.
    pub owner: Option<String>,
    /// `annotation::SANDBOX_GRACE` in seconds, if it has one (W21).
    pub grace_seconds: Option<u64>,
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
    /// `annotation::GRACE_PERIOD` in seconds.
    pub grace_seconds: Option<u64>,
    pub created_at: Wall,
}

/// Both lists, from calls that began at one moment. Things without the kubelet's pod labels are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    pub sandboxes: Vec<ListedSandbox>,
    pub containers: Vec<ListedContainer>,
}

/// One sandbox as its status call shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SandboxFact {
    pub id: SandboxId,
    pub attempt: u32,
    pub ready: bool,
    pub created_at: Wall,
    /// Primary first; empty with hostNetwork, or when it is not ready.
    pub ips: Vec<String>,
    pub owner: Option<String>,
    /// Its own process, from the verbose info, while ready; None if the runtime does not tell.
    pub pid: Option<u32>,
}

/// One container as its status call shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ContainerFact {
    pub id: ContainerId,
    /// Empty if the runtime does not tell (the list does).
    pub sandbox: SandboxId,
    pub name: String,
    /// The restart count: `annotation::RESTART_COUNT`, else the metadata's attempt.
    pub attempt: u32,
    pub state: ContainerState,
    pub created_at: Wall,
    pub started_at: Wall,
    pub finished_at: Wall,
    pub exit_code: i32,
    pub reason: String,
    pub message: String,
    /// The image's name as the runtime shows it (status.image.image).
    pub image: String,
    /// The runtime's image reference (status.imageID).
    pub image_ref: String,
    /// `annotation::BACKOFF_LEVEL`, 0 if absent.
    pub backoff_level: u32,
    /// `annotation::GRACE_PERIOD` in seconds.
    pub grace_seconds: Option<u64>,
    /// `annotation::PRE_STOP`, if it has one: JSON.
    pub pre_stop: Option<String>,
    /// The file on the host that is mounted at the termination message path.
    pub termination_file: Option<String>,
    /// `annotation::TERMINATION_POLICY` is FallbackToLogsOnError.
    pub fallback_to_logs: bool,
    /// The log file on the host.
    pub log_path: String,
    pub owner: Option<String>,
    /// The init process, from the verbose info, while running.
    pub pid: Option<u32>,
}

impl ContainerFact {
    /// Its start was given up because nobody waited for it any more (its caller was killed, or lost the connection), so
    /// it never ran. containerd shows that as an end, with 128, and tells the cause in words alone: its context was
    /// cancelled (seen on 1.6.20), or the helper that starts the shim, which it kills then, was killed (seen on 1.7.24).
    pub fn start_was_given_up(&self) -> bool {
        let says = |part| self.message.contains(part);
        self.state == ContainerState::Exited
            && self.started_at.0 <= 0
            && self.reason == "StartError"
            && (says("context canceled") || says("failed to start shim") && says("signal: killed"))
    }
}

/// All that the runtime has of one pod; sandboxes and containers newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PodFacts {
    pub sandboxes: Vec<SandboxFact>,
    pub containers: Vec<ContainerFact>,
}

/// An image that the runtime has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ImageFact {
    /// What a container's config names it by (the runtime's id, `sha256:...`).
    pub id: String,
    /// The numeric user that its config asks for.
    pub uid: Option<i64>,
    /// The user name that its config asks for; empty if none.
    pub username: String,
}

/// The runtime's own word on itself (Version and Status).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RuntimeFact {
    pub name: String,
    pub version: String,
    /// None if ready, else reason and message of the condition RuntimeReady.
    pub runtime_not_ready: Option<String>,
    /// The same for NetworkReady.
    pub network_not_ready: Option<String>,
}
