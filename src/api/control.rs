//! The requests that commands such as drain, exec and usage send over the control socket, and the responses to them.
//! The bodies are JSON. New versions may add fields; readers ignore unknown fields.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// W27: the body of `POST /drain`, and of `POST /undrain`, which has no grace period.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DrainRequest {
    pub uids: Vec<String>,
    /// Replaces the pods' own grace periods. It can only shorten a grace period that has started (W4).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_period_seconds: Option<u64>,
    /// Also drain pods that a disruption budget protects (Y32).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ignore_budgets: bool,
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
    /// Drained; nothing of the pod is running.
    Down,
    /// Not drained: the pod has completed or failed by itself, and does not run again.
    Completed,
    /// Not drained: the pod no longer has a manifest and is terminating.
    Undesired,
    /// Not drained: a disruption budget allows no disruption of the pod now (Y32).
    Refused,
    /// No longer drained: the pod starts now or when its turn comes.
    Starts,
    /// No longer drained, but the pod waits for another reason.
    Waits,
    /// The pod was not drained.
    NotDrained,
    /// There is no pod with this UID.
    NotFound,
}

impl DrainOutcome {
    /// Reports whether the pod is drained, so that it stays stopped.
    pub fn is_drained(self) -> bool {
        matches!(self, DrainOutcome::Ending | DrainOutcome::Down)
    }
}

/// W29: `POST /ephemeral`: adds ephemeral containers to a running pod, each in the form of an item of
/// `spec.ephemeralContainers`. The response is an `EphemeralNames`.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EphemeralRequest {
    pub uid: String,
    pub containers: Vec<Value>,
}

/// The names of all ephemeral containers of the pod, in order.
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
    /// If None, the command runs in the container that the pod's annotation names, otherwise in the first container.
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

/// Whether the output of a command is complete. Runtimes truncate long output without an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OutputEnd {
    #[default]
    Complete,
    /// Shorter than the limit, but a runtime that applies the limit to its log of the output may have truncated it.
    Unknown,
    /// So close to the limit that any runtime may have truncated it.
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
    /// Attach to the streams of a container's main process.
    Attach {
        #[serde(default)]
        container: Option<String>,
        #[serde(flatten)]
        channels: StreamChannels,
    },
    /// Forward connections to ports of the pod.
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
    /// Not available with `tty`.
    pub stderr: bool,
    pub tty: bool,
}

/// A URL of the runtime's streaming server. It can be used once, and only for about a minute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StreamUrl {
    pub url: String,
}

/// `GET /volumes`: the directories of claims, in the order of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Volumes {
    pub volumes: Vec<VolumeView>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeView {
    pub namespace: String,
    pub claim: String,
    /// Pending, Bound, Terminating (the claim is deleted, but pods use it), Released (there is no claim), Removing or
    /// Failed (the directory cannot be removed).
    pub status: String,
    pub storage_class: String,
    /// Retain or Delete
    pub reclaim_policy: String,
    /// An absolute path.
    pub directory: String,
    /// `namespace/name` of each pod that refers to the claim.
    pub pods: Vec<String>,
    /// The size that the claim requests, a quantity. It is no limit.
    pub requested: String,
    /// The size on disk. `wherry volumes` adds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_bytes: Option<u64>,
}

/// `GET /images`: the images of the runtime, in the runtime's order.
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
    /// Absent if Wherry has seen no use of the image since it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_since_use: Option<u64>,
    pub state: ImageState,
    /// The position, from 1, in the order in which garbage collection would remove the images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removal_order: Option<u64>,
}

/// Whether an image may be removed, and if not, why it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ImageState {
    /// A container uses the image, whether the container is running or not.
    InUse,
    /// A manifest names the image, but no container uses it.
    Named,
    /// The runtime has pinned the image.
    Pinned,
    /// The runtime uses the image for its sandboxes.
    Sandboxes,
    /// The image is younger than `imageMinimumGCAge`.
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
