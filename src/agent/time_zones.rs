//! Has a helper read the file of a time zone.

use super::jobs::{JobSpec, Jobs};
use crate::adapters::host::time_zone;
use crate::api::time::Now;
use crate::engine::event::Answer;
use crate::engine::op::{OpError, OpId};
use crate::event_loop::Class;
use std::time::Duration;

/// A file system that does not respond within this time is considered hung.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// Reads the file of a time zone. `name`: None for that of the machine.
pub(super) fn read(op: OpId, name: Option<String>, jobs: &mut Jobs, now: Now) {
    let spec = JobSpec::new(Class::Paths, "read the file of a time zone", now.boot + READ_TIMEOUT);
    let run = move || time_zone::read(name.as_deref()).map_err(OpError::Unknown);
    jobs.run_op(op, spec, run, Answer::TimeZone);
}
