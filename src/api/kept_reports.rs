//! What the agent has reported, in the form that it stores for its next start (`adapters/report_file`). Times are in
//! nanoseconds.

use crate::api::event_object::InvolvedKind;
use serde::{Deserialize, Serialize};

/// A condition of the node, and when its status last changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeptCondition {
    pub kind: String,
    pub is_true: bool,
    pub since: i64,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeptEvent {
    #[serde(default)]
    pub kind: InvolvedKind,
    /// The UID, namespace and name of the pod, Deployment or ReplicaSet. None for an event of the node.
    pub pod: Option<(String, String, String)>,
    pub id: u64,
    pub order: u64,
    pub reason: String,
    pub message: String,
    pub field_path: Option<String>,
    pub first: i64,
    pub last: i64,
    pub last_boot: u64,
    pub count: u32,
    pub warning: bool,
}
