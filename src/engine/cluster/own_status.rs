//! The current status of the node, and the status that the last report to the API server contains.

use crate::api::cluster::node::{DeviceAmount, Image};
use crate::api::eviction::Condition;
use serde::Serialize;
use std::collections::BTreeMap;

/// The part of the node's status that can change at any time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Health {
    /// `containerd://1.7.0`
    pub runtime: String,
    /// Why the node is not ready; None if it is.
    pub why_not: Option<String>,
    pub pressures: Vec<Condition>,
    /// The resources of device plugins, by name.
    pub devices: BTreeMap<String, DeviceAmount>,
    /// The port of the node's server while it listens; otherwise 0.
    pub port: u16,
}

#[derive(Debug, Default, Serialize)]
pub struct OwnStatus {
    /// See `Health::port`.
    pub port: u16,
    pub health: Health,
    /// The images in the runtime's last list.
    #[serde(skip)]
    pub images: Vec<Image>,
    /// The health that the last report shows. None if it is not known; then the next report is compared with the
    /// server's state.
    reported: Option<Health>,
}

impl OwnStatus {
    /// Returns true if the last report shows the current health.
    pub fn is_reported(&self) -> bool {
        self.reported.as_ref() == Some(&self.health)
    }

    /// Notes that a report with the current health begins.
    pub fn report_begins(&mut self) {
        self.reported = Some(self.health.clone());
    }

    /// Makes the next report due. It is compared with the server's state.
    pub fn compare(&mut self) {
        self.reported = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c1_a_change_or_a_doubt_about_the_servers_state_needs_a_report() {
        let mut status = OwnStatus::default();
        assert!(!status.is_reported());
        status.report_begins();
        assert!(status.is_reported());
        status.health.port = 10_250;
        assert!(!status.is_reported());
        status.report_begins();
        status.compare();
        assert!(!status.is_reported());
    }
}
