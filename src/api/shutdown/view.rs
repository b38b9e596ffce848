//! Graceful shutdown as users see it in `wherry status`, `wherry shutdown-plan` and `/status`. New versions may add
//! fields; readers ignore unknown fields.

use serde::{Deserialize, Serialize};

/// Whether the node is prepared for a shutdown, and the state of a shutdown in progress.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ShutdownView {
    /// True if the configuration enables graceful shutdown.
    pub enabled: bool,
    /// True if Wherry holds a lock, so that logind delays a shutdown.
    pub armed: bool,
    /// Why graceful shutdown is not armed, or why it does not match the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The maximum delay that logind grants (InhibitDelayMaxUSec); None while it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_seconds: Option<f64>,
    /// The sum of the groups' periods.
    pub needed_seconds: u64,
    /// The groups in the order in which they are stopped: lowest priority first.
    pub groups: Vec<GroupView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_progress: Option<ProgressView>,
    /// Start of the last shutdown of the node, and the end of Wherry's part in it. RFC 3339 in whole seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// S8: the same times in seconds since the Unix epoch. 0 if there was no shutdown; the end is also 0 while a
    /// shutdown is in progress.
    pub started_seconds: f64,
    pub ended_seconds: f64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupView {
    pub priority: i32,
    /// The configured period.
    pub period_seconds: u64,
    /// The part of the period that logind's delay allows (S2); None while the delay is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub granted_seconds: Option<u64>,
    /// Number of pods that the group contains now.
    pub pods: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProgressView {
    /// Time since the shutdown began.
    pub since_seconds: f64,
    /// The priority of the group that is being stopped; None when all groups are done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<i32>,
    /// Maximum time until the lock is released.
    pub left_seconds: f64,
    pub released: bool,
}

/// The plan for a shutdown that would begin now: which pods stop, and when.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PlanView {
    pub enabled: bool,
    pub armed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_seconds: Option<f64>,
    pub needed_seconds: u64,
    pub groups: Vec<PlanGroup>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PlanGroup {
    pub priority: i32,
    /// When the group's period begins, counted from the start of the shutdown. It is earlier if the previous groups
    /// finish early. A group without pods takes no time.
    pub from_seconds: u64,
    pub until_seconds: u64,
    pub period_seconds: u64,
    /// None while logind's delay is unknown; the times are then based on the configured period.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub granted_seconds: Option<u64>,
    pub pods: Vec<PlanPod>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PlanPod {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub priority: i32,
    /// The grace period that the pod would get.
    pub grace_seconds: u64,
    /// The pod's `terminationGracePeriodSeconds`. If it exceeds `grace_seconds`, the shutdown cuts it short.
    pub own_grace_seconds: u64,
}
