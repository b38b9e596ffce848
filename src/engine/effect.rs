//! The engine's output: requests that the agent carries out. They are plain values, so that a test can print and
//! compare them.

use crate::api::claim::ClaimPlace;
use crate::api::cluster::certificate::Purpose;
use crate::api::cluster::request::ApiRequest;
use crate::api::cluster::requests::Signer;
use crate::api::credential_provider::Provider;
use crate::api::devices::Allocated;
use crate::api::event_object::InvolvedKind;
use crate::api::expand::Expanded;
use crate::api::facts::{ImageFact, MeasuredPod};
use crate::api::k8s::{Container, ContainerStateTerminated};
use crate::api::manifest_report::RecordUpdate;
use crate::api::mount::Mount;
use crate::api::names::{ContainerId, FullName, SandboxId, Uid};
use crate::api::pod::Pod;
use crate::api::problem::Problem;
use crate::api::reason::Reason;
use crate::api::registry_credentials::Credential;
use crate::api::service_table::{ServiceTable, UdpFlows};
use crate::api::source::Source;
use crate::api::user_namespace::IdRange;
use crate::api::volume::Volume;
use crate::api::workload::key::{WorkloadKey, WorkloadKind};
use crate::engine::control::error::RequestError;
pub use crate::engine::control::exec::{Command, ExecCall};
use crate::engine::control::reply::Reply;
use crate::engine::control::request_id::RequestId;
pub use crate::engine::control::stream::{Channels, StreamCall, StreamTarget};
use crate::engine::handler::HandlerCall;
pub use crate::engine::handler::{HookCall, HookKind, ProbeCall};
use crate::engine::op::OpId;
use crate::engine::pod::kill::KillId;
pub use crate::engine::probe::Kind;
pub use crate::engine::severity::Severity;
pub use crate::engine::target::{Destination, GrpcTarget, HttpTarget, PodAddress, Target};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Call the runtime. `timeout` is the deadline of the whole operation.
    Runtime { op: OpId, call: RuntimeCall, timeout: Duration },
    /// Stop waiting for `op`, and reset its stream. The operation still ends in exactly one `Done`: with
    /// `OpError::Unknown`, unless an answer had already arrived.
    Cancel { op: OpId },
    /// Change the pod's directories and files below the root directory and the log directory.
    Files { op: OpId, call: FilesCall },
    /// Change the cgroups of pods.
    Cgroup { op: OpId, call: CgroupCall },
    /// Remove the empty CNI result files of these sandboxes. Answer: `Ok`, even if some cannot be removed.
    RemoveEmptyNetworks { op: OpId, sandboxes: Vec<SandboxId> },
    /// Mount or unmount a pod's volumes. `timeout` as for `Runtime`.
    Volumes { op: OpId, call: VolumesCall, timeout: Duration },
    /// Read the node's docker configuration. Answer: `DockerConfig`, or an error, which is already logged.
    ReadDockerConfig { op: OpId, timeout: Duration },
    /// Run a credential provider for an image of this repository. Answer: `Provided`, or an error, which is already
    /// logged. The program is killed after `timeout`.
    AskProvider { op: OpId, provider: Box<Provider>, repository: String, timeout: Duration },
    /// Measure the file system of this path. Answer: `FileSystem`. `timeout` as for `Runtime`.
    MeasureFileSystem { op: OpId, path: String, timeout: Duration },
    /// Read the memory of the machine, and its process ids if `pids` is set. Answer: `Machine`.
    MeasureMachine { op: OpId, pids: bool },
    /// Measure the directories of these pods. Answer: `PodDisks`, which omits pods that cannot be measured. `timeout`
    /// as for `Runtime`.
    MeasurePods { op: OpId, pods: Vec<MeasuredPod>, timeout: Duration },
    /// Count the processes and threads in the cgroups of these pods. Answer: `Processes`, which omits pods whose
    /// cgroup cannot be read.
    CountProcesses { op: OpId, pods: Vec<Uid> },
    /// Start (true) or stop (false) watching the kernel's reports of memory pressure. `MemoryWatched` answers a
    /// start.
    WatchMemoryPressure(bool),
    /// Work on the files of a container's log.
    Log { op: OpId, call: LogCall },
    /// Watch for the next write to a log. `LogWritten` reports the write once, or `LogNotWatched` reports that the
    /// log cannot be watched.
    WatchLog { id: ContainerId, path: String },
    /// Stop watching the log. Succeeds if the log is not watched.
    UnwatchLog { id: ContainerId },
    /// Run a container's hook that has no exec handler. Answer: `Ok`, or an error with the hook's output. A hook is
    /// cancelled after `timeout`.
    Hook { op: OpId, call: Box<HookCall>, timeout: Duration },
    /// Run a probe that has no exec handler. Answer: `Probe`. The probe fails if it has not ended after `timeout`.
    Probe { op: OpId, call: ProbeCall, timeout: Duration },
    /// Answer a device plugin that registers. The error is the text for the plugin.
    AnswerRegistration { id: u64, result: Result<(), String> },
    /// Connect to a device plugin and watch its list of devices. The new connection replaces an earlier one for the
    /// same resource. `endpoint`: the name of its socket.
    WatchDevices { resource: String, endpoint: String },
    /// Call a device plugin. Answer: `Allocated` for Allocate, otherwise `Ok`. `timeout` as for `Runtime`.
    Device { op: OpId, call: DeviceCall, timeout: Duration },
    /// Call logind or systemd. A call without an answer ends after `timeout` with `OpError::Unknown`.
    Logind { op: OpId, call: LogindCall, timeout: Duration },
    /// Send a request to the API server. It ends in exactly one `ApiEvent::Done`, even if it times out or is
    /// cancelled. A watch has no `timeout`.
    Api { op: OpId, request: ApiRequest, timeout: Option<Duration> },
    /// Work on the files of the node's certificates (C7).
    Identity { op: OpId, call: IdentityCall },
    /// Read the addresses of this machine. `Event::Addresses` answers it once.
    ReadAddresses,
    /// `Engine::addresses` has changed. The node's server issues its own certificate again.
    AddressesChanged,
    /// S4: close the inhibitor lock, if Wherry holds one. `StoreLock` has to follow, because systemd's copy also
    /// holds the lock.
    ReleaseLock,
    /// S7: make systemd's descriptor store contain exactly the lock that Wherry holds.
    StoreLock { op: OpId },
    /// Connect to logind and keep the connection (true), or disconnect from the bus (false).
    UseLogind(bool),
    /// Write or delete a record. `Done` follows when the change is durable.
    Record { op: OpId, change: RecordChange },
    /// Write the records of these manifests. `Done` follows when all of them are durable, or with an error when one of
    /// them failed.
    StoreManifests { op: OpId, updates: Vec<RecordUpdate> },
    /// Remove the file of this object's manifest. Answer: `Ok`, also if it is not there. It is an error if the document
    /// has another digest (D3), or if the file defines other objects too.
    RemoveManifest { op: OpId, removed: RemovedManifest },
    /// Read the file of a time zone. `name`: None for that of the machine. Answer: `TimeZone`.
    ReadTimeZone { op: OpId, name: Option<String> },
    /// Create or remove the directory of a claim. `timeout` as for `Runtime`.
    Claim { op: OpId, call: ClaimCall, timeout: Duration },
    /// Change or check the rules of services in the kernel. `timeout` as for `Runtime`.
    ServiceTable { op: OpId, call: ServiceTableCall, timeout: Duration },
    /// Write log lines about manifests.
    ManifestNews(ManifestNews),
    /// P8: watch the init process of a container or sandbox of the pod. `Watched` reports whether that succeeded.
    /// `Ended` follows once, when the process has ended, and ends the watch.
    Watch { uid: Uid, id: String, pid: u32 },
    /// Stop watching the process. Succeeds if the process is not watched.
    Unwatch { id: String },
    /// W5: the answer to this kill: nothing of the pod runs any more.
    Killed { id: KillId },
    /// The answer to a request.
    Answer { id: RequestId, answer: Result<Reply, RequestError> },
    /// The pod's status changed, or the pod appeared or disappeared. Watchers receive the change.
    Publish { uid: Uid, name: FullName },
    /// What the API shows of workloads has changed.
    PublishWorkloads,
    /// What the API shows of claims has changed.
    PublishClaims,
    /// What the API shows of services has changed.
    PublishServices,
    /// Write a log line, and emit an event.
    Notice(Notice),
    /// Write a log line, and emit the event ContainerDied. Sent once for each termination of a container.
    ContainerEnded(Box<ContainerEnd>),
    /// Record a value of a metric. The names are the kubelet's.
    Measure(Measure),
}

#[derive(Clone, Debug, PartialEq)]
pub enum ManifestNews {
    /// `Engine::manifest_problems` has new problems. `log`: those to log; empty if they were logged a moment ago.
    Errors { log: Vec<Problem> },
    /// A problem of the file or directory at this path is corrected.
    Corrected { path: String },
    /// A warning about a manifest that is in force.
    Warning { path: String, warning: &'static str },
}

/// The result of each call is durable before its answer is sent. Errors say what failed and contain no secrets.
#[derive(Clone, PartialEq)]
pub enum IdentityCall {
    /// Make the request for the next certificate. Answer: `CertificateRequest`.
    Request { purpose: Purpose, key: Key },
    /// Store the certificate of the last request, a chain in PEM, and use it for new connections. Answer:
    /// `Certificate`.
    Store { signer: Signer, chain: String },
}

/// Omits the certificate.
impl std::fmt::Debug for IdentityCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            IdentityCall::Request { purpose, key } => write!(f, "Request({purpose:?}, {key:?})"),
            IdentityCall::Store { signer, chain } => write!(f, "Store({signer:?}, {} bytes)", chain.len()),
        }
    }
}

/// The key of the next certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub enum Key {
    /// The key of an earlier request that was not answered, if there is one; otherwise a new key.
    Kept,
    /// A new key, because the earlier request was refused.
    New,
}

/// Calls to the CRI. Some consist of two calls and have one answer.
#[derive(Clone, Debug, PartialEq)]
pub enum RuntimeCall {
    /// Version and Status. Answer: `Runtime`.
    Status,
    /// ListPodSandbox and ListContainers. Answer: `Listed`.
    List,
    /// Everything about one pod: the lists filtered by its UID, then each status. Answer: `Pod`.
    ReadPod {
        uid: Uid,
    },
    /// RunPodSandbox, then its PodSandboxStatus. Answer: `Sandbox`.
    RunSandbox {
        pod: Rc<Pod>,
        attempt: u32,
        /// The runtime handler; empty for the default handler.
        handler: Box<str>,
        /// None: the pod uses the user namespace of the host.
        user_namespace: Option<IdRange>,
    },
    /// Answer: `Ok`, as for each call below that documents no other answer.
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
    /// Answer: `Image` (PullImage, then ImageStatus). `credential`: None for an anonymous pull.
    PullImage {
        pod: Rc<Pod>,
        image: String,
        credential: Option<Credential>,
    },
    /// Answer: `Created`.
    CreateContainer(Box<CreateContainer>),
    /// StartContainer, then its ContainerStatus. Answer: `Container`.
    StartContainer {
        id: ContainerId,
    },
    /// Send SIGTERM, and SIGKILL after `grace`. The deadline of the operation is longer.
    StopContainer {
        id: ContainerId,
        grace: Duration,
    },
    RemoveContainer {
        id: ContainerId,
    },
    /// UpdateContainerResources: the container gets the resources of the pod's spec.
    UpdateContainer {
        pod: Rc<Pod>,
        /// The container's name in the spec.
        container: String,
        id: ContainerId,
    },
    /// Make the runtime reopen the log of a running container.
    ReopenContainerLog {
        id: ContainerId,
    },
    /// ExecSync. The runtime kills a command that runs for longer than its timeout. Answer: `Executed`.
    Exec(Box<ExecCall>),
    /// Exec, Attach or PortForward: the runtime only returns a URL. Answer: `StreamUrl`.
    Stream(Box<StreamCall>),
    /// ExecSync of a probe or a hook. Answer: `Executed`.
    Handler(Box<HandlerCall>),
    /// ListContainerStats of all running containers. Answer: `Usage`.
    Usage,
    /// ListImages, ListContainers and a verbose Status. Answer: `Images`.
    ListImages,
    /// ImageFsInfo. Answer: `ImageFs`.
    ImageFs,
    /// Remove all names of the image with this id.
    RemoveImage {
        id: String,
    },
    /// containerd only: kill and delete the task of a container that containerd shows as exited but refuses to remove.
    /// Other runtimes answer `Unimplemented`.
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
    /// The sandbox's attempt. The call has to repeat the sandbox's configuration.
    pub sandbox_attempt: u32,
    /// The user namespace of the sandbox.
    pub user_namespace: Option<IdRange>,
    /// The restart count.
    pub attempt: u32,
    /// The value of `annotation::BACKOFF_LEVEL` (W10).
    pub backoff_level: u32,
    /// The value of `annotation::BOOT`. None if the id of the boot is unknown.
    pub boot: Option<u32>,
    /// The answer to ImageStatus. The container is created from the image's id. Its user applies if the spec sets none.
    pub image: ImageFact,
    /// The pod's IP addresses.
    pub ips: Vec<String>,
    /// Environment, command and arguments.
    pub process: Expanded,
    /// The mounts in the answer to `PrepareContainer`, those of the volumes, and those of device plugins.
    pub mounts: Vec<Mount>,
    /// The device nodes, annotations and CDI devices of device plugins. `process` contains their environment
    /// variables.
    pub devices: Allocated,
    /// W29: the container whose process id namespace an ephemeral container shares.
    pub target: Option<ContainerId>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum FilesCall {
    /// Create the pod's directory and its log directory.
    PreparePod { pod: Rc<Pod> },
    /// Create /etc/hosts, the container's log directory and a new termination message file. Answer: `Prepared` with
    /// the mounts of /etc/hosts and of the termination message file, in this order; the second one is missing on a
    /// read-only file system. `host_ips`: whether the answer
    /// has to contain the node's addresses.
    PrepareContainer {
        pod: Rc<Pod>,
        container: String,
        ips: Vec<String>,
        /// The lines of services for /etc/hosts.
        names: Rc<str>,
        attempt: u32,
        host_ips: bool,
    },
    /// Write /etc/hosts again, if it exists. `names` as above.
    WriteHosts { pod: Rc<Pod>, ips: Vec<String>, names: Rc<str> },
    /// Create the link in the directory of container logs.
    LinkLog { pod: Rc<Pod>, container: String, id: ContainerId, attempt: u32 },
    /// Read the termination message of an exited container: the file, or the end of the log if the file is empty,
    /// `fallback_to_logs` is set and the exit code is not 0. Answer: `Message`.
    ReadTermination {
        id: ContainerId,
        termination_file: Option<String>,
        log_path: String,
        fallback_to_logs: bool,
        exit_code: i32,
    },
    /// Remove the log file and the link of a removed container.
    RemoveContainerFiles { id: ContainerId, log_path: String },
    /// Remove everything of a finished pod: directory, log directory, links, cgroup. Succeeds if nothing exists.
    /// `kill`: first kill processes in the cgroup that the runtime no longer knows.
    /// `keep_directory`: leave the pod's empty directory as the marker that the cgroup may appear again (W26).
    RemovePod { uid: Uid, namespace: Rc<str>, name: Rc<str>, kill: bool, keep_directory: bool },
}

/// Calls about log files. The paths are absolute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogCall {
    /// Answer: `LogSize`.
    Measure { path: String },
    /// Remove and compress older files, and rename the log. Afterwards, at most `max_files` - 1 files exist. Answer:
    /// `Rotated`.
    Rotate { path: String, max_files: usize },
    /// Give the log its name back, unless there is a new log.
    Restore { path: String, rotated: String },
}

/// Calls about cgroups. Each one answers `Ok`, or an error that names the cgroup or file.
#[derive(Clone, Debug, PartialEq)]
pub enum CgroupCall {
    /// Create the pod's cgroup and set the limits of the pod, before its sandbox. The limits of an existing cgroup
    /// are set again.
    Make { pod: Rc<Pod> },
    /// Remove the pod's empty cgroup from every hierarchy. Succeeds if there is none. `kill`: as for `RemovePod`.
    Remove { uid: Uid, kill: bool },
    /// Set the CPU weight of the burstable class: the sum of the CPU requests of its pods, in milli-CPU.
    SetCpuWeight { burstable: u64 },
    /// Remove the cgroups of all other pods, if they are old and nothing runs in them.
    Sweep { known: BTreeSet<Uid> },
}

/// Calls about volumes. Each one is retried until it succeeds, so it has to accept a volume that is already mounted
/// or removed.
#[derive(Clone, Debug, PartialEq)]
pub enum VolumesCall {
    /// Mount all volumes of the pod, before its first container, or bring the files of mounted ones up to date.
    Mount { uid: Uid, volumes: Vec<Volume> },
    /// Prepare the volume mounts of a container. Answer: `Mounts`, in the order of the spec.
    InContainer(Box<ContainerVolumes>),
    /// Unmount everything below the pod's directory and remove the contents of its volumes. Only used when no
    /// container of the pod runs. Succeeds if there is nothing to unmount.
    Unmount { uid: Uid },
}

/// Calls about the rules of services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceTableCall {
    /// Replace the table in the kernel at once. An empty one is removed. Answer: `Ok`.
    Apply { table: Rc<ServiceTable> },
    /// Check whether the kernel has this table. Answer: `TableInForce`.
    Check { table: Rc<ServiceTable> },
    /// Have the kernel forget these conversations, so that the rules decide again. Answer: `Ok`.
    Forget { flows: Rc<UdpFlows> },
}

/// Calls about the directories of claims. No part of a path below the directory of the class may be a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimCall {
    /// Create the directory, unless it exists. `create_base`: create the directory of the class too. Answer:
    /// `MadeDirectory`.
    Make { place: ClaimPlace, create_base: bool },
    /// Remove the directory with everything in it, except what is mounted below it. Succeeds if it does not exist.
    Remove { place: ClaimPlace },
}

/// The volume mounts of a container.
#[derive(Clone, PartialEq)]
pub struct ContainerVolumes {
    pub uid: Uid,
    pub container: Container,
    /// The volumes, without the contents of their files.
    pub volumes: Vec<Volume>,
    /// The environment of the container, for `subPathExpr`.
    pub env: Vec<(String, String)>,
    /// The runtime can make a mount and all mounts below it read-only.
    pub recursive_read_only: bool,
}

/// Omits the environment, which may contain secrets.
impl std::fmt::Debug for ContainerVolumes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ContainerVolumes({}/{})", self.uid, self.container.name)
    }
}

/// Calls to the device plugin of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceCall {
    /// Allocate these devices for a container.
    Allocate { resource: String, ids: Vec<String> },
    /// PreStartContainer: a container with these devices is about to start.
    PreStart { resource: String, ids: Vec<String> },
}

impl DeviceCall {
    pub fn resource(&self) -> &str {
        match self {
            DeviceCall::Allocate { resource, .. } | DeviceCall::PreStart { resource, .. } => resource,
        }
    }
}

/// Calls for graceful shutdown (S2, S3). The answer is `Ok` unless documented otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogindCall {
    /// Read the property InhibitDelayMaxUSec. Answer: `Delay`.
    ReadDelay,
    /// Write this delay to our drop-in, in whole seconds, unless the drop-in contains it already.
    WriteDropIn { delay: Duration },
    /// Like `WriteDropIn`, but only if the drop-in exists. Answer: `Written`.
    LowerDropIn { delay: Duration },
    /// Send SIGHUP to logind through systemd's KillUnit.
    Reload,
    /// Take a shutdown delay lock, then close the previous one. `StoreLock` updates systemd's copies. Answer: `Locked`.
    Inhibit,
    /// Subscribe to PrepareForShutdown.
    Subscribe,
    /// Read the property PreparingForShutdown. Answer: `Preparing`.
    ReadPreparing,
    /// Check whether logind lists the lock that Wherry holds (ListInhibitors). Answer: `Inhibited`.
    ListInhibitors,
}

/// A key is `kind/name`. The value is JSON in a format that the engine defines.
#[derive(Clone, PartialEq)]
pub enum RecordChange {
    Put {
        key: String,
        value: String,
    },
    Delete {
        key: String,
    },
    /// Like `Put`, but sealed with the key of the service (C15).
    Seal {
        key: String,
        value: String,
    },
    /// Move an unusable record away: it is not read again, and a person can inspect it.
    SetAside {
        key: String,
    },
    /// Remove the records of this kind that were set aside and are not sealed.
    RemoveCorrupt {
        kind: String,
    },
}

/// Omits the value, which may be secret.
impl std::fmt::Debug for RecordChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RecordChange::Put { key, value } => write!(f, "Put({key}, {} bytes)", value.len()),
            RecordChange::Seal { key, value } => write!(f, "Seal({key}, {} bytes)", value.len()),
            RecordChange::Delete { key } => write!(f, "Delete({key})"),
            RecordChange::SetAside { key } => write!(f, "SetAside({key})"),
            RecordChange::RemoveCorrupt { kind } => write!(f, "RemoveCorrupt({kind})"),
        }
    }
}

/// A Kubernetes event. Reason and message are worded like those of a kubelet or of a controller.
#[derive(Clone, Debug, PartialEq)]
pub struct Notice {
    pub subject: Subject,
    pub container: Option<String>,
    pub severity: Severity,
    pub reason: Reason,
    pub message: String,
}

/// The object of an event.
#[derive(Clone, Debug, PartialEq)]
pub enum Subject {
    Node,
    Pod(Rc<Pod>),
    Workload { kind: InvolvedKind, name: FullName, uid: Uid },
}

/// A document that has to be removed: the object that it defines, its place, and its digest (D3).
#[derive(Clone, Debug, PartialEq)]
pub struct RemovedManifest {
    pub of: WorkloadKey,
    pub source: Source,
    pub digest: String,
}

impl Subject {
    pub fn pod(&self) -> Option<&Rc<Pod>> {
        if let Subject::Pod(pod) = self { Some(pod) } else { None }
    }

    pub fn workload(of: &WorkloadKey) -> Subject {
        let kind = match of.kind {
            WorkloadKind::CronJob => InvolvedKind::CronJob,
            WorkloadKind::Deployment => InvolvedKind::Deployment,
            WorkloadKind::DaemonSet => InvolvedKind::DaemonSet,
            WorkloadKind::Job => InvolvedKind::Job,
            WorkloadKind::ReplicaSet => InvolvedKind::ReplicaSet,
            WorkloadKind::StatefulSet => InvolvedKind::StatefulSet,
        };
        Subject::Workload { kind, name: of.name.clone(), uid: of.uid() }
    }

    pub fn replica_set(name: FullName, uid: Uid) -> Subject {
        Subject::Workload { kind: InvolvedKind::ReplicaSet, name, uid }
    }
}

/// The termination of a container, as its pod's published status shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerEnd {
    pub pod: Rc<Pod>,
    pub container: String,
    pub restart_count: i32,
    /// The end of the container, including its termination message.
    pub end: ContainerStateTerminated,
}

/// A value of a metric. Labels come from closed sets, never from input. docs/metrics.md describes each metric.
#[derive(Clone, Debug, PartialEq)]
pub enum Measure {
    /// Includes failed relists.
    RelistDuration(Duration),
    /// Since the start of the last successful relist.
    RelistInterval(Duration),
    PodStartDuration(Duration),
    /// From the detection of a change to the publication of the pod's status.
    PodStatusDuration(Duration),
    /// `operation`: create, sync, kill, terminated.
    PodWorkerDuration {
        operation: &'static str,
        duration: Duration,
    },
    PodWorkerStartDuration(Duration),
    /// A sandbox start was attempted.
    StartedPod,
    StartedPodError,
    /// A container start was attempted. `container_type`: container, init_container.
    StartedContainer {
        container_type: &'static str,
    },
    /// `code`: the resulting waiting reason.
    StartedContainerError {
        container_type: &'static str,
        code: Reason,
    },
    OrphanedPod,
    /// A3. `reason`: the first reason. All extended resources share `OutOfExtendedResources`.
    AdmissionRejected {
        reason: Reason,
    },
    /// A8: a victim has stopped. `signal`: the first short resource.
    Preempted {
        signal: Rc<str>,
    },
    /// E4. `signal`: the eviction signal, or the limit that the pod exceeds.
    Evicted {
        signal: &'static str,
    },
    RestartedPod,
    /// The garbage collection has removed an image. `reason`: age, space.
    ImageCollected {
        reason: &'static str,
    },
    ContainersPerPod(usize),
    /// `passed`: None if the result is unknown.
    Probe {
        kind: Kind,
        passed: Option<bool>,
        pod: Rc<Pod>,
        container: String,
    },
    /// The pod has no more probes; its counters are removed.
    NoMoreProbes {
        pod: Rc<Pod>,
    },
}
