//! What the engine asks of the world. Values only: a test can print and compare them.

use crate::api::facts::ImageFact;
use crate::api::names::{ContainerId, FullName, SandboxId, Uid};
use crate::api::pod::Pod;
use crate::api::time::Boot;
use crate::engine::op::OpId;
use std::rc::Rc;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Call the runtime. `timeout` is the deadline of the whole operation.
    Runtime { op: OpId, call: RuntimeCall, timeout: Duration },
    /// Stop waiting for `op` (its stream is reset). It still ends in its one `Done`, as `OpError::Unknown`
    /// unless an answer was there already.
    Cancel { op: OpId },
    /// Work on the pod's directories and files under the root and log directories.
    Files { op: OpId, call: FilesCall },
    /// Keep, or forget, a small record on disk; `Done` comes when it is durable.
    Record { op: OpId, change: RecordChange },
    /// P8: watch the init process of a container or sandbox of the pod; `Watched` says whether that could be had, `Ended`
    /// comes once, when the process has ended, and ends the watch.
    Watch { uid: Uid, id: String, pid: u32 },
    /// Watch it no more. Fine if it is not watched.
    Unwatch { id: String },
    /// Set the one deadline of `key`, or clear it.
    Timer { key: TimerKey, at: Option<Boot> },
    /// The pod's status or presence changed: watchers want to know.
    Publish { uid: Uid, name: FullName },
    /// Something to tell people: one line in the log, and an event of the pod.
    Notice(Notice),
    /// Something to count or time, by the kubelet's metric names.
    Measure(Measure),
}

/// Calls of the CRI. Some are two calls on the wire, answered as one.
#[derive(Clone, Debug, PartialEq)]
pub enum RuntimeCall {
    /// Version and Status. Answer: `Runtime`.
    Status,
    /// ListPodSandbox and ListContainers. Answer: `Listed`.
    List,
    /// Everything about one pod: the lists filtered by its UID, then all statuses. Answer: `Pod`.
    ReadPod {
        uid: Uid,
    },
    /// RunPodSandbox, then its PodSandboxStatus. Answer: `Sandbox`.
    RunSandbox {
        pod: Rc<Pod>,
        attempt: u32,
    },
    /// Answer: `Ok`. So are all below that name no other.
    StopSandbox {
        id: SandboxId,
    },
    RemoveSandbox {
        id: SandboxId,
    },
    /// Answer: `Image`.
    ImageStatus {
        image: String,
    },
    /// Answer: `Image` (PullImage, then ImageStatus).
    PullImage {
        pod: Rc<Pod>,
        image: String,
    },
    /// Answer: `Created`.
    CreateContainer(Box<CreateContainer>),
    /// StartContainer, then its ContainerStatus. Answer: `Container`.
    StartContainer {
        id: ContainerId,
    },
    /// SIGTERM, and SIGKILL after `grace`. The operation's time-out is longer.
    StopContainer {
        id: ContainerId,
        grace: Duration,
    },
    RemoveContainer {
        id: ContainerId,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub struct CreateContainer {
    pub pod: Rc<Pod>,
    /// The container's name in the spec.
    pub container: String,
    pub sandbox: SandboxId,
    /// The sandbox's attempt: the runtime wants the sandbox's config again.
    pub sandbox_attempt: u32,
    /// The restart count.
    pub attempt: u32,
    /// For `annotation::BACKOFF_LEVEL` (W10).
    pub backoff_level: u32,
    /// The image as ImageStatus showed it: its id is what the container is made from, its user what it runs as
    /// where the spec says none.
    pub image: ImageFact,
    /// The pod's addresses.
    pub ips: Vec<String>,
    /// The termination message file that `PrepareContainer` made.
    pub termination_file: String,
}

#[derive(Clone, Debug, PartialEq)]
pub enum FilesCall {
    /// The pod's directory and its log directory.
    PreparePod { pod: Rc<Pod> },
    /// /etc/hosts, the container's log directory and a new termination message file.
    /// Answer: `Prepared`.
    PrepareContainer { pod: Rc<Pod>, container: String, ips: Vec<String>, attempt: u32 },
    /// The link in the directory of container logs.
    LinkLog { pod: Rc<Pod>, container: String, id: ContainerId, attempt: u32 },
    /// The termination message of a container that ended: the file, else the log's tail if
    /// `fallback_to_logs` and the exit was an error. Answer: `Message`.
    ReadTermination {
        id: ContainerId,
        termination_file: Option<String>,
        log_path: String,
        fallback_to_logs: bool,
        exit_code: i32,
    },
    /// The log file and link of a dead container that was removed.
    RemoveContainerFiles { id: ContainerId, log_path: String },
    /// Everything of a pod that is over: its directory, log directory, links, cgroup. Fine if it is gone.
    RemovePod { uid: Uid, namespace: Rc<str>, name: Rc<str> },
    /// The pod's cgroup in every hierarchy (empty by now).
    RemoveCgroup { uid: Uid },
}

/// Records are named `kind/key`, the value is JSON of the engine's own making.
#[derive(Clone, Debug, PartialEq)]
pub enum RecordChange {
    Put { key: String, value: String },
    Delete { key: String },
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TimerKey {
    Relist,
    RuntimeStatus,
    Pod(Uid),
    /// P8: the pod's status is read again.
    Reread(Uid),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    Normal,
    Warning,
}

/// A Kubernetes event of a pod (reason and message as a kubelet words them), or of the node if `pod` is None.
#[derive(Clone, Debug, PartialEq)]
pub struct Notice {
    pub pod: Option<Rc<Pod>>,
    pub container: Option<String>,
    pub severity: Severity,
    pub reason: &'static str,
    pub message: String,
}

/// Durations are in seconds where the metric's name says so.
#[derive(Clone, Debug, PartialEq)]
pub enum Measure {
    RelistDuration(Duration),
    RelistInterval(Duration),
    PodStartDuration(Duration),
    PodWorkerDuration { operation: &'static str, duration: Duration },
    PodWorkerStartDuration(Duration),
    StartedPod,
    StartedPodError,
    StartedContainer,
    StartedContainerError { code: String },
    RunSandboxDuration(Duration),
    RunSandboxError,
    OrphanedPod,
    RestartedPod,
    ContainersPerPod(usize),
}
