//! Carries out the rotation of container logs: a size on the loop, renames and compression by a helper, and the watches
//! for writes.

use super::Agent;
use super::jobs::JobSpec;
use crate::adapters::logs::rotate;
use crate::api::names::ContainerId;
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

impl Agent {
    pub(super) fn use_log(&mut self, op: OpId, call: LogCall, now: Now) {
        match call {
            LogCall::Measure { path } => {
                let result = rotate::size(Path::new(&path)).map(Answer::LogSize);
                self.log_answered(op, result);
            }
            LogCall::Restore { path, rotated } => {
                let result = rotate::undo(Path::new(&path), Path::new(&rotated)).map(|()| Answer::Ok);
                self.log_answered(op, result);
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
                self.jobs.run_op(op, spec, work, Answer::Rotated);
            }
        }
    }

    fn log_answered(&mut self, op: OpId, result: Result<Answer, String>) {
        self.events.push_back(Event::Done { op, result: result.map_err(log_error) });
    }

    pub(super) fn watch_log(&mut self, id: ContainerId, path: &str) {
        let token = self.event_loop.token();
        let watched = self.kernel.log_writes.watch(self.event_loop.registry(), || token, id.clone(), path);
        if let Err(e) = watched {
            log::debug!("failed to watch the log; it is checked in each interval path={path} error={e:?}");
            self.events.push_back(Event::LogNotWatched { id });
        }
    }

    pub(super) fn logs_written(&mut self) {
        let written = self.kernel.log_writes.take();
        self.events.extend(written.into_iter().map(|id| Event::LogWritten { id }));
    }
}

fn log_error(message: String) -> OpError {
    OpError::Answered { code: Code::Other(2), message }
}
