//! The settings of image garbage collection.

use serde::Serialize;
use std::time::Duration;

/// The settings, with the kubelet's defaults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ImageGcPolicy {
    /// `imageGCHighThresholdPercent`: from this disk usage on, images are removed to free space; 100 disables this.
    pub high_percent: u8,
    /// `imageGCLowThresholdPercent`: the disk usage at which such a removal stops.
    pub low_percent: u8,
    /// `imageMinimumGCAge`: an image that was detected more recently stays.
    pub min_age: Duration,
    /// `imageMaximumGCAge`. None: off.
    pub max_age: Option<Duration>,
    /// `imageGCPeriod`: the time between two runs.
    pub period: Duration,
}

impl Default for ImageGcPolicy {
    fn default() -> ImageGcPolicy {
        ImageGcPolicy {
            high_percent: 85,
            low_percent: 80,
            min_age: Duration::from_secs(120),
            max_age: None,
            period: Duration::from_secs(300),
        }
    }
}
