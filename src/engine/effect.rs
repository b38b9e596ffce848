//! What the engine asks of the world. Values only: a test can print and compare them.

use crate::api::facts::ImageFact;
use crate::api::names::{ContainerId, FullName, SandboxId, Uid};
use crate::api::pod::Pod;
use crate::api::time::Boot;
use crate::engine::op::OpId;
use crate::engine::pod::kill::KillId;
use crate::engine::probe::Kind;
use k8s_openapi::api::core::v1::LifecycleHandler;
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
    /// Work on the cgroups that pods' containers are in.
    Cgroup { op: OpId, call: CgroupCall },
    /// Make a pod's volumes ready, or take them away. `timeout` as for `Runtime`.
    Volumes { op: OpId, call: VolumesCall, timeout: Duration },
    /// Run a container's hook: `Ok`, or an error that says what it printed. A hook that is not done after `timeout` is ended.
    Hook { op: OpId, call: Box<HookCall>, timeout: Duration },
    /// Probe a container. Answer: `Probe`; one that is not done after `timeout` has failed.
    Probe { op: OpId, call: ProbeCall, timeout: Duration },
    /// Ask logind, or systemd, for something. One that is not answered after `timeout` ends as `OpError::Unknown`.
    Logind { op: OpId, call: LogindCall, timeout: Duration },
    /// S4: close the inhibitor lock, if there is one. `StoreLock` follows: a copy in systemd's store keeps logind waiting.
    ReleaseLock,
    /// S7: make systemd's descriptor store hold the lock that Wherry holds, and no other.
    StoreLock { op: OpId },
    /// Connect to logind, and stay connected; or leave the bus.
    UseLogind(bool),
    /// Keep, or forget, a small record on disk; `Done` comes when it is durable.
    Record { op: OpId, change: RecordChange },
    /// P8: watch the init process of a container or sandbox of the pod; `Watched` says whether that could be had, `Ended`
    /// comes once, when the process has ended, and ends the watch.
    Watch { uid: Uid, id: String, pid: u32 },
    /// Watch it no more. Fine if it is not watched.
    Unwatch { id: String },
    /// Set the one deadline of `key`, or clear it.
    Timer { key: TimerKey, at: Option<Boot> },
    /// W5: nothing runs any more of the pod that this kill was for.
    Killed { id: KillId },
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
    /// What containerd keeps of a container that it shows as ended and refuses to remove: killed and deleted, by its own task
    /// service. Unimplemented by every other runtime.
    DeleteTask {
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
    /// `kill`: what still runs in that cgroup, though the runtime knows nothing of it any more, is killed first.
    /// `keep_directory`: its directory stays, empty, as the mark that the cgroup may turn up again.
    RemovePod { uid: Uid, namespace: Rc<str>, name: Rc<str>, kill: bool, keep_directory: bool },
}

/// Each answers `Ok`, or says what could not be made or written.
#[derive(Clone, Debug, PartialEq)]
pub enum CgroupCall {
    /// The pod's own cgroup, and what the pod may use as a whole; before its sandbox. What is there already is set anew.
    Make { pod: Rc<Pod> },
    /// The pod's cgroup goes from every hierarchy (it is empty by now). Fine if there is none. `kill`: as for `RemovePod`.
    Remove { uid: Uid, kill: bool },
    /// The weight of the burstable class: what its pods that are here ask for together, in milli-CPU.
    SetCpuWeight { burstable: u64 },
}

/// Each is done again and again until it succeeds: what is there already is left as it is.
#[derive(Clone, Debug, PartialEq)]
pub enum VolumesCall {
    /// All volumes of the pod, before its first container.
    Mount { pod: Rc<Pod> },
    /// Whatever is mounted below the pod's directory, and what the volumes held. Nothing of the pod runs. Fine if there is
    /// nothing.
    Unmount { uid: Uid },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookKind {
    PostStart,
    PreStop,
}

#[derive(Clone, Debug, PartialEq)]
pub struct HookCall {
    pub kind: HookKind,
    /// None for an orphan: its handler comes from the container's annotation (W21).
    pub pod: Option<Rc<Pod>>,
    pub container: String,
    pub id: ContainerId,
    pub handler: LifecycleHandler,
    /// The pod's addresses, for a handler without a host.
    pub ips: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ProbeCall {
    pub kind: Kind,
    pub pod: Rc<Pod>,
    /// The container's name in the spec, where its handler is.
    pub container: String,
    pub id: ContainerId,
    /// The pod's addresses, for a handler without a host.
    pub ips: Vec<String>,
}

/// What graceful shutdown needs (S2, S3). Those that name no other answer have `Ok`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogindCall {
    /// The property InhibitDelayMaxUSec. Answer: `Delay`.
    ReadDelay,
    /// Our drop-in says so long, in whole seconds; it is only written if it does not say so already.
    WriteDropIn { delay: Duration },
    /// The same, but only if the drop-in exists. Answer: `Written`.
    LowerDropIn { delay: Duration },
    /// SIGHUP to logind through systemd's KillUnit.
    Reload,
    /// Take a shutdown delay lock. An earlier lock is closed after that; systemd's copies are `StoreLock`'s. Answer: `Locked`.
    Inhibit,
    /// Have PrepareForShutdown sent here.
    Subscribe,
    /// The property PreparingForShutdown. Answer: `Preparing`.
    ReadPreparing,
    /// Does logind list the lock that Wherry holds (ListInhibitors)? Answer: `Inhibited`.
    ListInhibitors,
}

/// Records are named `kind/key`, the value is JSON of the engine's own making.
#[derive(Clone, Debug, PartialEq)]
pub enum RecordChange {
    Put {
        key: String,
        value: String,
    },
    Delete {
        key: String,
    },
    /// It is of no use and nobody is to read it again, but a person may want to look at it.
    SetAside {
        key: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TimerKey {
    Relist,
    RuntimeStatus,
    Pod(Uid),
    /// P8: the pod's status is read again.
    Reread(Uid),
    /// A group's period is over, or the whole time is.
    Shutdown,
    /// A9: a victim of preemption may be tried again.
    Admission,
    /// Logind is asked again.
    Logind,
    /// What is left on disk of a pod that is gone is due.
    Leftovers,
    /// A call that hangs gives its slot to the next.
    Slots,
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

/// Labels come from closed sets, never from outside. docs/metrics.md says what is counted when.
#[derive(Clone, Debug, PartialEq)]
pub enum Measure {
    /// Of a relist that failed, too.
    RelistDuration(Duration),
    /// From the begin of the last good one.
    RelistInterval(Duration),
    PodStartDuration(Duration),
    /// From the sight of what changes a pod's status to its being shown.
    PodStatusDuration(Duration),
    /// `operation`: create, sync, kill, terminated.
    PodWorkerDuration {
        operation: &'static str,
        duration: Duration,
    },
    PodWorkerStartDuration(Duration),
    /// A sandbox is tried.
    StartedPod,
    StartedPodError,
    /// A container's start is tried. `container_type`: container, init_container.
    StartedContainer {
        container_type: &'static str,
    },
    /// `code`: the waiting reason that comes of it.
    StartedContainerError {
        container_type: &'static str,
        code: &'static str,
    },
    OrphanedPod,
    /// A3. `reason`: the first one; resources of the machine's own making are not told apart (`OutOfExtendedResources`).
    AdmissionRejected {
        reason: &'static str,
    },
    /// A8: a victim has stopped. `signal`: the first resource that was short.
    Preempted {
        signal: Rc<str>,
    },
    RestartedPod,
    ContainersPerPod(usize),
    /// `passed`: None if nobody knows.
    Probe {
        kind: Kind,
        passed: Option<bool>,
        pod: Rc<Pod>,
        container: String,
    },
    /// The pod is probed no more: its counts go.
    NoMoreProbes {
        pod: Rc<Pod>,
    },
}
