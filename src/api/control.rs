//! Requests of the active commands (drain, exec, streams, usage) over the control socket, and their responses. The
//! bodies are JSON. New versions may add fields; readers ignore unknown ones.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// W27: body of `POST /drain`, and without a grace period of `POST /undrain`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DrainRequest {
    pub uids: Vec<String>,
    /// Replaces the pods' own grace periods. It can only shorten a grace period that has started (W4).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_period_seconds: Option<u64>,
}

/// The response: one entry per UID, in the order of the request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Drained {
    pub pods: Vec<DrainedPod>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DrainedPod {
    pub uid: String,
    /// Empty for an unknown pod.
    #[serde(default)]
    pub namespace: String,
    #[serde(default)]
    pub name: String,
    pub outcome: DrainOutcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DrainOutcome {
    /// Drained; the pod is being stopped.
    Ending,
    /// Drained; nothing of the pod runs.
    Down,
    /// Not drained: the pod has completed or failed by itself, and does not run again.
    Completed,
    /// Not drained: the pod has no manifest any more and is terminating.
    Undesired,
    /// No longer drained: the pod starts now or in its turn.
    Starts,
    /// No longer drained, but the pod waits for another reason.
    Waits,
    /// The pod was not drained.
    NotDrained,
    /// There is no pod with this UID.
    NotFound,
}

impl DrainOutcome {
    /// True if the pod is held back from now on.
    pub fn is_drained(self) -> bool {
        matches!(self, DrainOutcome::Ending | DrainOutcome::Down)
    }
}

/// W29: `POST /ephemeral`: gives a running pod further ephemeral containers, each in the form of
/// `spec.ephemeralContainers`. The response is an `EphemeralNames`.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EphemeralRequest {
    pub uid: String,
    pub containers: Vec<Value>,
}

/// The names of the ephemeral containers that the pod has now, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EphemeralNames {
    pub names: Vec<String>,
}

/// `POST /exec`. The response body is an `ExecHead` on one line, followed by the output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecRequest {
    pub uid: String,
    /// None: the container that the pod's annotation names, otherwise the first one.
    #[serde(default)]
    pub container: Option<String>,
    /// The program and its arguments. They are not passed through a shell.
    pub command: Vec<String>,
    /// The command is killed after this time.
    pub timeout_seconds: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecHead {
    pub exit_code: i32,
    /// Length of stdout in bytes. The rest of the body is stderr.
    pub stdout_bytes: u64,
    #[serde(default, skip_serializing_if = "OutputEnd::is_complete")]
    pub output_end: OutputEnd,
}

/// Whether an output is complete. Runtimes cut a long one without an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OutputEnd {
    #[default]
    Complete,
    /// Shorter than the limit, but a runtime that counts its log of the output may have cut it.
    Unknown,
    /// So near to the limit that any runtime may have cut it.
    Cut,
}

impl OutputEnd {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde requires")]
    fn is_complete(&self) -> bool {
        *self == OutputEnd::Complete
    }
}

/// `POST /stream`: requests the URL of a stream from the runtime, for example `{"uid": "UID", "exec": {"command":
/// ["sh"], "stdin": true, "stdout": true, "tty": true}}`. The response is a `StreamUrl`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StreamRequest {
    pub uid: String,
    #[serde(flatten)]
    pub kind: StreamKind,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StreamKind {
    /// Run a command in a container.
    Exec {
        /// As in `ExecRequest`.
        #[serde(default)]
        container: Option<String>,
        command: Vec<String>,
        #[serde(flatten)]
        channels: StreamChannels,
    },
    /// The streams of a container's own process.
    Attach {
        #[serde(default)]
        container: Option<String>,
        #[serde(flatten)]
        channels: StreamChannels,
    },
    /// Connections to ports of the pod.
    PortForward {
        #[serde(default)]
        ports: Vec<u16>,
    },
}

/// The standard streams that the client wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StreamChannels {
    pub stdin: bool,
    pub stdout: bool,
    /// Not with `tty`.
    pub stderr: bool,
    pub tty: bool,
}

/// A URL of the runtime's streaming server. It can be used once, and only for about a minute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StreamUrl {
    pub url: String,
}

/// `GET /images`: the images of the runtime, in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Images {
    pub images: Vec<ImageView>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageView {
    pub id: String,
    /// Full names with a tag.
    pub tags: Vec<String>,
    /// Full names with a digest.
    pub digests: Vec<String>,
    pub size_bytes: u64,
    /// `namespace/name` of each pod that uses or names the image.
    pub pods: Vec<String>,
    /// Absent if no use is known since the start of Wherry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_since_use: Option<u64>,
    pub state: ImageState,
    /// The place in the order in which the garbage collection would remove images, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removal_order: Option<u64>,
}

/// Why an image stays, or that it may be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ImageState {
    /// A container uses it, whether it runs or not.
    InUse,
    /// A manifest names it, and no container uses it.
    Named,
    /// The runtime keeps it.
    Pinned,
    /// The image of the runtime's sandboxes.
    Sandboxes,
    /// It is younger than `imageMinimumGCAge`.
    TooYoung,
    Removable,
}

/// `GET /usage`: resource usage of the running containers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Usage {
    pub pods: Vec<PodUsage>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodUsage {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub labels: BTreeMap<String, String>,
    pub containers: Vec<ContainerUsage>,
}

/// Values that the runtime does not report are absent. For units see `facts::UsageFact`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerUsage {
    pub name: String,
    pub id: String,
    pub restarts: u32,
    pub cpu_at: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_nanos: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_nano_cores: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    pub memory_at: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_available_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_usage_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_rss_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_faults: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub major_page_faults: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_inodes: Option<u64>,
}
