//! The settings of container log rotation.

use serde::Serialize;
use std::time::Duration;

/// The settings, with the kubelet's defaults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RotationPolicy {
    /// `containerLogMaxSize` in bytes. None: no rotation.
    pub max_size: Option<u64>,
    /// `containerLogMaxFiles`: the number of log files of a container, including the current one.
    pub max_files: usize,
    /// `containerLogMaxWorkers`: the maximum number of rotations at the same time.
    pub workers: usize,
    /// `containerLogMonitorInterval`: the minimum time between two checks of a log.
    pub interval: Duration,
}

impl Default for RotationPolicy {
    fn default() -> RotationPolicy {
        RotationPolicy { max_size: Some(10 << 20), max_files: 5, workers: 1, interval: Duration::from_secs(10) }
    }
}
