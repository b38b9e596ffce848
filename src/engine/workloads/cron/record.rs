//! The fields of a CronJob in its record.

use serde::{Deserialize, Serialize};

/// Times in nanoseconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredCron {
    pub since: Option<i64>,
    pub last: Option<i64>,
    pub last_success: Option<i64>,
}
