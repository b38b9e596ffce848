//! What the commands that do something ask over the control socket, and what they are told: JSON, in bodies. Fields may be
//! added; a reader takes what it knows.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// W27: `POST /drain`, and without a grace period `POST /undrain`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DrainRequest {
    pub uids: Vec<String>,
    /// Instead of the pods' own; it only shortens one that runs already (W4).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_period_seconds: Option<u64>,
}

/// In the order of the request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Drained {
    pub pods: Vec<DrainedPod>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DrainedPod {
    pub uid: String,
    /// Empty of one that is not there.
    #[serde(default)]
    pub namespace: String,
    #[serde(default)]
    pub name: String,
    pub outcome: DrainOutcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DrainOutcome {
    /// Drained: it is being stopped.
    Ending,
    /// Drained: nothing of it runs.
    Down,
    /// Not drained: it has completed, or failed, by itself, and does not run again anyway.
    Completed,
    /// Not drained: no manifest asks for it any more, it ends anyway.
    Undesired,
    /// No longer drained: it starts, or does when its turn comes.
    Starts,
    /// No longer drained, but it waits for something else.
    Waits,
    /// It was not drained.
    NotDrained,
    /// There is no such pod.
    NotFound,
}

impl DrainOutcome {
    /// The pod is held back from now on.
    pub fn is_drained(self) -> bool {
        matches!(self, DrainOutcome::Ending | DrainOutcome::Down)
    }
}

/// `POST /exec`. The answer's body is an `ExecHead` on a line, and then the output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecRequest {
    pub uid: String,
    /// None: the one that the pod's annotation names, else the first.
    #[serde(default)]
    pub container: Option<String>,
    /// The program and its arguments; no shell is between.
    pub command: Vec<String>,
    /// It is killed after so long.
    pub timeout_seconds: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecHead {
    pub exit_code: i32,
    /// So many bytes of stdout follow, and then stderr to the end.
    pub stdout_bytes: u64,
}

/// `GET /usage`: what the containers that run use.
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

/// Of what the runtime does not tell there is nothing: see `facts::UsageFact` for units.
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
}
