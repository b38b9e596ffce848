//! The worker's own status, in addition to the pod's status: its state, its current operation and its waiting reasons.

use serde::Serialize;

/// Extends a pod's status for `wherry describe`. Remaining seconds are rounded up, so that 0 means that the time is
/// over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerStatus {
    /// `Waiting`, `Sync`, `Terminating`, `Terminated` or `Finished`.
    pub state: &'static str,
    /// W27: the pod is not started until `undrain`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub drained: bool,
    /// For a Terminating pod: the rest of its grace period (W4).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_left_seconds: Option<u64>,
    /// The operation in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doing: Option<String>,
    /// W9, W10: containers that wait for their next start.
    pub back_off: Vec<NextStart>,
    /// The image that is being pulled, or that waits for other pulls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull: Option<PullProgress>,
    /// Images that wait for their next pull.
    pub pull_back_off: Vec<NextPull>,
    /// Other waiting reasons, in words.
    pub waits_for: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NextStart {
    pub container: String,
    /// Seconds until the next attempt.
    pub seconds: u64,
    /// True for the back-off after the container's end (W10), false after an error (W9).
    pub after_end: bool,
}

/// A pull in progress. CRI does not report how far it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PullProgress {
    pub image: String,
    /// Seconds since the pull began, or, before that, since it has been waiting.
    pub seconds: u64,
    /// The number of pods whose pulls come first; None: the pull has begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ahead: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NextPull {
    pub image: String,
    pub seconds: u64,
    /// The number of consecutive failures.
    pub failures: u32,
    pub error: String,
}
