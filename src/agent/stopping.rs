//! The end of the process after SIGTERM or SIGINT. Pods continue to run (S10).

use super::{Agent, Signal};
use crate::api::time::{Boot, Now};
use crate::engine::event::Event;
use std::time::Duration;

/// The maximum time until the last records are written. systemd kills the service after `TimeoutStopSec`, which is
/// longer.
const LONGEST: Duration = Duration::from_secs(5);

pub enum Course {
    Runs,
    /// The last records are being written.
    Stops {
        until: Boot,
    },
}

impl Agent {
    /// A second signal ends the process at once.
    pub(super) fn stop(&mut self, signal: Signal, now: Now) {
        self.course = match self.course {
            Course::Runs => {
                log::info!("stopping signal={signal:?}; pods keep running");
                self.notify_stopping(now);
                self.events.push_back(Event::Stopping);
                self.reporting.file.close();
                Course::Stops { until: now.boot + LONGEST }
            }
            Course::Stops { .. } => Course::Stops { until: now.boot },
        };
    }

    pub(super) fn stops_at(&self) -> Option<Boot> {
        match self.course {
            Course::Runs => None,
            Course::Stops { until } => Some(until),
        }
    }

    pub(super) fn has_stopped(&self, now: Now) -> bool {
        let Course::Stops { until } = self.course else { return false };
        let is_writing = self.disk.records.is_writing() || self.disk.records.waiting() > 0;
        if is_writing && until <= now.boot {
            log::warn!("stopping before the last records are written");
        }
        !is_writing && self.reporting.file.is_closed() || until <= now.boot
    }
}
