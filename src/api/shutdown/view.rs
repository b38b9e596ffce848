//! What people see of graceful shutdown: `wherry status`, `wherry shutdown-plan`, `/status`. Fields may be added; a reader takes
//! what it knows.

use serde::{Deserialize, Serialize};

/// Whether the node is ready for a shutdown, and the one in progress.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ShutdownView {
    /// The configuration asks for it.
    pub enabled: bool,
    /// A lock is held: logind waits for it.
    pub armed: bool,
    /// Why it is not armed, or what is worse than was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// How long logind waits at most (InhibitDelayMaxUSec); None while it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_seconds: Option<f64>,
    /// The sum of the groups' periods.
    pub needed_seconds: u64,
    /// Lowest priority first: the order in which they are stopped.
    pub groups: Vec<GroupView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_progress: Option<ProgressView>,
    /// RFC 3339 in whole seconds: when the last shutdown of the node began, and when its work was done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// S8: the same in seconds since the Unix epoch. 0 if there was none; the end also while one is in progress.
    pub started_seconds: f64,
    pub ended_seconds: f64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupView {
    pub priority: i32,
    /// As the configuration says.
    pub period_seconds: u64,
    /// What logind's delay leaves of it (S2); None while the delay is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub granted_seconds: Option<u64>,
    /// Pods that would be stopped with it now.
    pub pods: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProgressView {
    /// How long it has been going on.
    pub since_seconds: f64,
    /// The priority of the group that is being stopped; None when all are done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<i32>,
    /// Until the lock is released at the latest.
    pub left_seconds: f64,
    pub released: bool,
}

/// Who would be stopped when, were the node shut down now.
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
    /// Counted from the shutdown's begin; sooner if the pods before end sooner. A group without pods takes no time.
    pub from_seconds: u64,
    pub until_seconds: u64,
    pub period_seconds: u64,
    /// None while logind's delay is unknown; then the times are those of the configured period.
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
    /// What it would get.
    pub grace_seconds: u64,
    /// Its own `terminationGracePeriodSeconds`; more than it would get: it is cut off.
    pub own_grace_seconds: u64,
}
