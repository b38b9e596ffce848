//! What a CronJob sees of the Jobs that it has created.

use crate::api::time::Wall;
use crate::api::workload::key::WorkloadKey;

#[derive(Clone, Debug)]
pub struct CreatedJob {
    pub key: WorkloadKey,
    pub created: Wall,
    pub end: Option<CreatedEnd>,
    /// The time after its end (`ttlSecondsAfterFinished`) has passed.
    pub is_expired: bool,
}

/// The end of a Job.
#[derive(Clone, Copy, Debug)]
pub struct CreatedEnd {
    pub is_success: bool,
    pub at: Wall,
}
