//! How far a Job is, how far the removal of its manifest is, and its record.

use super::tally::StoredTally;
use crate::api::time::{Boot, Wall};
use crate::engine::nanoseconds;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How far the Job is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobPhase {
    Active,
    /// The result is known, and pods are still terminating.
    Ending(JobEnd),
    /// The second value: when the last pod had ended.
    Ended(JobEnd, #[serde(with = "nanoseconds")] Wall),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobEnd {
    pub is_success: bool,
    /// The reason of the condition.
    pub reason: String,
    pub message: String,
    /// When the result was known.
    #[serde(with = "nanoseconds")]
    pub known: Wall,
}

/// The removal of the manifest. `failure`: why it was still there after the last attempt.
#[derive(Debug, Default, Serialize)]
pub(super) enum Removal {
    #[default]
    NotBegun,
    InFlight {
        failure: Option<String>,
    },
    Ended {
        failure: Option<String>,
        again: Boot,
    },
}

/// The fields of a Job in its record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredJob {
    pub(super) tally: StoredTally,
    pub(super) phase: JobPhase,
    /// Nanoseconds since 1970.
    pub(super) started: Option<i64>,
    /// Only for a Job of a CronJob, which has no manifest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_job: Option<StoredCreatedJob>,
}

/// The object of a Job that a CronJob has created, without its template, which is that of its revision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredCreatedJob {
    /// The name of the CronJob.
    pub cron_job: String,
    pub object: Value,
}

impl JobEnd {
    pub(super) fn failed(reason: &str, message: impl Into<String>, known: Wall) -> JobEnd {
        JobEnd { is_success: false, reason: reason.to_owned(), message: message.into(), known }
    }

    pub(super) fn succeeded(reason: &str, message: impl Into<String>, known: Wall) -> JobEnd {
        JobEnd { is_success: true, reason: reason.to_owned(), message: message.into(), known }
    }
}
