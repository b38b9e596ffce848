//! Carries out the rotation of container logs: a size on the loop, renames and compression by a helper.

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

/// Time limit to compress the files of a container: gigabytes take long on a small machine.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Returns the end of the operation, unless a job ends it later.
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
            // While a rotation hangs, another one of the same log must not touch its files.
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
