//! What the agent has reported, in the form for its next start (`adapters/report_file`). Times are in nanoseconds.

use serde::{Deserialize, Serialize};

/// The time since which a condition of the node has its status.
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
    /// UID, namespace and name. None: an event of the node.
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
