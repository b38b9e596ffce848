//! The engine's input: external changes, and the answers to its effects.

use crate::api::claim::MadeDirectory;
use crate::api::cluster::certificate::{self, InUse};
use crate::api::cluster::request::{ApiError, ApiResponse};
use crate::api::cluster::requests::Signer;
use crate::api::credential_provider::Provided;
use crate::api::devices::{Allocated, Device, Registration};
use crate::api::facts::{
    ContainerFact, ExecOutput, FileSystemFact, ImageFact, ImageFsFact, ImageList, Listed, MachineFact, PodDiskFact,
    PodFacts, RuntimeFact, SandboxFact, UsageFact,
};
use crate::api::manifest_report::ManifestReport;
use crate::api::mount::Mount;
use crate::api::names::{ContainerId, FullName, Uid};
use crate::api::registry_credentials::Keyring;
use crate::api::sealing::StoredRecord;
use crate::engine::config::EngineConfig;
use crate::engine::control::request::Request;
use crate::engine::control::request_id::RequestId;
use crate::engine::op::{OpError, OpId};
pub use crate::engine::pleg::relist::{Kind, PlegEvent};
use crate::engine::pod::kill::{Kill, KillId, TerminationSource};
use serde::Serialize;
use std::time::Duration;

// Events are handled one at a time and moved once, so a box would only cost an allocation.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The records found at the start. This is the first event.
    Records(Vec<StoredRecord>),
    /// The pod directories found at the start, right after the records.
    Directories(Vec<PodDirectory>),
    /// The manifest directory has changed. The first report without `more` shows that it has been read (D1).
    Manifests(ManifestReport),
    /// Replaces the settings (SIGHUP), except those that `config` fixes at the start.
    Configure(Box<EngineConfig>),
    /// The runtime is connected.
    RuntimeUp,
    /// The connection to the runtime is lost. Each call in flight gets its own `Done`.
    RuntimeDown {
        why: String,
    },
    Due,
    /// P8: an event of the runtime's event stream. `uid` is None if the runtime does not name the pod.
    RuntimeEvent {
        uid: Option<Uid>,
        event: PlegEvent,
    },
    /// A pod that is still desired has to end (W5). The answer is `Effect::Killed`.
    Kill {
        id: KillId,
        uid: Uid,
        kill: Kill,
    },
    /// The cause of the kills has ended, for all pods or for `uids`. Pods without another cause start again (W6,
    /// W27).
    Release {
        by: TerminationSource,
        uids: Option<Vec<Uid>>,
    },
    /// Says whether the kernel reports memory pressure from now on.
    MemoryWatched {
        works: bool,
    },
    /// The kernel reports that programs wait for memory.
    MemoryIsShort,
    /// The first write to the log since `WatchLog`.
    LogWritten {
        id: ContainerId,
    },
    LogNotWatched {
        id: ContainerId,
    },
    /// A user's request. It ends in one `Effect::Answer`.
    Request {
        id: RequestId,
        request: Request,
    },
    /// The client of a request has disconnected. The request ends without an answer.
    RequestGone {
        id: RequestId,
    },
    /// From device plugins.
    Device(DeviceEvent),
    /// From logind.
    Logind(LogindEvent),
    /// From the API server.
    Api(ApiEvent),
    /// The server of the node (C6) listens on this port from now on. 0: it no longer listens.
    NodeServer {
        port: u16,
    },
    /// The answer to `ReadAddresses`: the addresses from which this machine reaches other networks, the preferred one
    /// first. Empty: the machine has no route at the moment.
    Addresses(Vec<String>),
    /// The process ends as soon as the records of this and of earlier events are written (C9). The pods keep running.
    Stopping,
    /// The answer to `Watch`. If the watch failed, a relist detects the end of the process.
    Watched {
        uid: Uid,
        id: String,
        ok: bool,
    },
    /// P8: a watched process has ended.
    Ended {
        uid: Uid,
        id: String,
    },
    Done {
        op: OpId,
        result: Result<Answer, OpError>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogindEvent {
    /// systemd's descriptor store had a lock of a previous run. Sent at the start, before all other events from
    /// logind.
    Inherited,
    /// logind is available on the bus. Sent again when logind has restarted.
    Up,
    /// The bus or logind is not available. Sent again when the reason changes.
    Down { why: String },
    /// The signal PrepareForShutdown.
    Preparing(bool),
}

/// Events from the API server, and about the node's credentials. The parts of an answer come before the `Done` of the
/// request.
#[derive(Clone, Debug, PartialEq)]
pub enum ApiEvent {
    /// An element of a list.
    Item { op: OpId, json: Vec<u8> },
    /// A line of a watch.
    Line { op: OpId, json: Vec<u8> },
    /// The request has ended.
    Done { op: OpId, result: Result<ApiResponse, ApiError> },
    /// The files of a certificate were read. None: there is no certificate; the credentials can be of another kind.
    Certificate(Signer, Option<InUse>),
}

/// Events from device plugins (G).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceEvent {
    /// A plugin registers, and waits for `AnswerRegistration`.
    Register { id: u64, registration: Registration },
    /// The plugin has sent its complete list.
    Listed { resource: String, devices: Vec<Device> },
    /// The connection to the plugin is lost.
    Lost { resource: String, why: String },
}

/// A pod's directory below the root directory.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct PodDirectory {
    pub uid: Uid,
    /// The name in the pod's log directory or, without such a directory, a name that no pod can have.
    pub name: FullName,
    /// The path, for messages.
    pub path: String,
}

/// The answer to `PrepareContainer`: the files of the container exist.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Prepared {
    /// The mounts, in the order of the request.
    pub mounts: Vec<Mount>,
    /// The node's IP addresses, preferred first, if they were requested.
    pub host_ips: Vec<String>,
}

// The lint is disabled for the same reason as for `Event`.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    Ok,
    Runtime(RuntimeFact),
    Listed(Listed),
    Pod(PodFacts),
    Sandbox(SandboxFact),
    Image(Option<ImageFact>),
    Created(ContainerId),
    Container(ContainerFact),
    Executed(ExecOutput),
    /// A URL of the runtime's streaming server.
    StreamUrl(String),
    Usage(Vec<UsageFact>),
    Images(ImageList),
    /// The file systems of the images. A runtime reports at least one.
    ImageFs(Vec<ImageFsFact>),
    FileSystem(FileSystemFact),
    Machine(MachineFact),
    PodDisks(Vec<PodDiskFact>),
    /// The number of processes and threads of each pod.
    Processes(Vec<(Uid, u64)>),
    /// In bytes. None: there is no file.
    LogSize(Option<u64>),
    /// The new path of the log.
    Rotated(String),
    /// The devices that a plugin has allocated for a container.
    Allocated(Box<Allocated>),
    Prepared(Prepared),
    /// The volume mounts of a container.
    Mounts(Vec<Mount>),
    /// None: the node has no docker configuration.
    DockerConfig(Option<Keyring>),
    Provided(Provided),
    Message(String),
    Probe(ProbeResult),
    /// The server of an https hook does not support TLS, and the hook succeeded over http. The value is `host:port`
    /// of the server.
    WithoutTls(String),
    /// logind's maximum delay for inhibitor locks.
    Delay(Duration),
    /// False: nothing had to be written.
    Written(bool),
    CertificateRequest(certificate::SigningRequest),
    /// The certificate that was stored.
    Certificate(InUse),
    /// The directory of a claim exists.
    MadeDirectory(MadeDirectory),
    /// Whether the kernel has the rules of services.
    TableInForce(bool),
    /// The file of a time zone (RFC 8536). None: there is none.
    TimeZone(Option<Box<[u8]>>),
    Preparing(bool),
    Inhibited(bool),
    /// A new lock is held; the previous one is closed.
    Locked,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeResult {
    Passed,
    /// Passed with a warning (a redirect to another host).
    Warning(String),
    /// The output of the probe, or the reason why it could not run.
    Failed(String),
}
