//! Carries out the rotation of container logs. The loop itself reads sizes; a helper renames and compresses files.

use super::jobs::{JobSpec, Jobs};
use crate::adapters::logs::rotate;
use crate::api::time::Now;
use crate::engine::effect::LogCall;
use crate::engine::event::{Answer, Event};
use crate::engine::op::{Code, OpError, OpId};
use crate::event_loop::Class;
use jiff::Timestamp;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time limit for compressing the logs of a container. Gigabytes take long on a small machine.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Carries out a call. Returns the event that ends the operation, unless a job ends it later.
pub(super) fn use_log(op: OpId, call: LogCall, jobs: &mut Jobs, now: Now) -> Option<Event> {
    match call {
        LogCall::Measure { path } => {
            let result = rotate::size(Path::new(&path)).map(Answer::LogSize).map_err(log_error);
            Some(Event::Done { op, result })
        }
        LogCall::Restore { path, rotated } => {
            let restored = rotate::undo(Path::new(&path), Path::new(&rotated));
            Some(Event::Done { op, result: restored.map(|()| Answer::Ok).map_err(log_error) })
        }
        LogCall::Rotate { path, max_files } => {
            // While a rotation hangs, no other rotation of the same log may touch its files.
            let (path, of_job) = (PathBuf::from(&path), PathBuf::from(path));
            let at = Timestamp::from_nanosecond(i128::from(now.wall.0)).unwrap_or_default();
            let work = move || {
                let rotated = rotate::rotate(&path, max_files, at).map_err(log_error)?;
                Ok(rotated.to_string_lossy().into_owned())
            };
            let spec = JobSpec::new(Class::Logs, "rotate a container's log", now.boot + TIMEOUT).on(&of_job);
            jobs.run_op(op, spec, work, Answer::Rotated);
            None
        }
    }
}

fn log_error(message: String) -> OpError {
    OpError::Answered { code: Code::Other(2), message }
}
