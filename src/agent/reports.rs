//! Preserves across a restart what the agent has reported (`adapters::report_file`): its events, and when the status of
//! each node condition last changed. The file is written shortly after a change, but not often, and when the process
//! stops.

use super::jobs::{JobSpec, Jobs};
use super::logging::LogDeduplicator;
use crate::adapters::report_file;
use crate::api::time::{Boot, Now};
use crate::event_loop::Class;
use crate::kubectl_api::condition_times::ConditionTimes;
use crate::kubectl_api::event_cache::EventCache;
use std::path::PathBuf;
use std::time::Duration;

/// Time between a change and the write, so that further changes are included.
const DELAY: Duration = Duration::from_secs(1);
/// Minimum time between two writes.
const PAUSE: Duration = Duration::from_secs(10);
/// Time limit for a write to the run directory.
pub(super) const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// The file and the state of its writes.
pub(super) struct ReportFile {
    path: PathBuf,
    boot_id: String,
    state: State,
    /// The next write does not start before this time.
    not_before: Boot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Saved,
    Due(Boot),
    Writing {
        changed_since: bool,
    },
    /// The last write before the process stops is due.
    LastDue,
    LastWriting {
        /// Whether the file lacks a change that happened before the process began to stop.
        changed_since: bool,
    },
    Closed,
}

impl ReportFile {
    /// Reads the file of the previous run.
    pub(super) fn open(socket: &std::path::Path, boot_id: String) -> (ReportFile, report_file::Reports) {
        let path = report_file::path(socket);
        let found = report_file::read(&path, &boot_id).unwrap_or_else(|why| {
            log::warn!("the events of the last run are lost error={why:?}");
            report_file::Reports::default()
        });
        (ReportFile { path, boot_id, state: State::Saved, not_before: Boot(0) }, found)
    }

    pub(super) fn changed(&mut self, now: Boot) {
        self.state = match self.state {
            State::Saved => State::Due((now + DELAY).max(self.not_before)),
            State::Writing { .. } => State::Writing { changed_since: true },
            other => other,
        };
    }

    /// Prepares for the end of the process: pending changes are written at once.
    pub(super) fn close(&mut self) {
        self.state = match self.state {
            State::Saved => State::Closed,
            State::Due(_) => State::LastDue,
            State::Writing { changed_since } => State::LastWriting { changed_since },
            other => other,
        };
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    pub(super) fn next_deadline(&self) -> Option<Boot> {
        match self.state {
            State::Due(at) => Some(at),
            State::LastDue => Some(Boot(0)),
            State::Saved | State::Writing { .. } | State::LastWriting { .. } | State::Closed => None,
        }
    }

    /// Writes the file on a helper thread.
    pub(super) fn write(&mut self, conditions: &ConditionTimes, events: &EventCache, jobs: &mut Jobs, now: Now) {
        let content = report_file::content(&self.boot_id, conditions.kept(), events.kept(now.boot));
        let path = self.path.clone();
        self.begin(now.boot);
        let spec = JobSpec::new(Class::Records, "write events", now.boot + WRITE_TIMEOUT);
        jobs.run(
            spec,
            move || report_file::write(&path, &content),
            |agent, written, now| {
                let log = &mut agent.reporting.standing;
                let written = written.unwrap_or_else(|e| Err(log.job_failed(&e, now.boot)));
                agent.reporting.file.written(written, log, now.boot);
            },
        );
    }

    fn written(&mut self, result: Result<(), String>, log: &mut LogDeduplicator, now: Boot) {
        self.ended(now);
        if let Err(why) = result
            && let Some(repeated) = log.repetitions("reports", now)
        {
            log::warn!("failed to store the events for the next start error={why:?} repeated={repeated}");
        }
    }

    /// Notes that a write begins.
    fn begin(&mut self, now: Boot) {
        self.not_before = now + PAUSE;
        self.state = match self.state {
            State::LastDue => State::LastWriting { changed_since: false },
            _ => State::Writing { changed_since: false },
        };
    }

    /// Notes that a write has ended. A failed write is repeated with the next change.
    fn ended(&mut self, now: Boot) {
        self.state = match self.state {
            State::Writing { changed_since: true } => State::Due((now + DELAY).max(self.not_before)),
            State::Writing { changed_since: false } => State::Saved,
            State::LastWriting { changed_since: true } => State::LastDue,
            State::LastWriting { changed_since: false } => State::Closed,
            other => other,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Boot {
        Boot(0) + Duration::from_secs(seconds)
    }

    #[test]
    fn a_flood_of_events_is_written_every_ten_seconds_and_at_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let (mut file, _) = ReportFile::open(&dir.path().join("socket"), "b".into());
        let mut writes = Vec::new();
        for second in 0..35 {
            file.changed(at(second));
            if file.next_deadline().is_some_and(|due| due <= at(second)) {
                file.begin(at(second));
                file.changed(at(second));
                file.ended(at(second));
                writes.push(second);
            }
        }
        assert_eq!(writes, [1, 11, 21, 31]);
        file.close();
        assert_eq!((file.is_closed(), file.next_deadline()), (false, Some(at(0))));
        file.begin(at(35));
        file.changed(at(35));
        file.ended(at(35));
        assert!(file.is_closed());
        let (mut saved, _) = ReportFile::open(&dir.path().join("socket"), "b".into());
        saved.close();
        assert!(saved.is_closed(), "nothing has changed");
    }

    #[test]
    fn the_end_waits_for_a_write_and_writes_what_changed_meanwhile() {
        let dir = tempfile::tempdir().unwrap();
        for changes in [false, true] {
            let (mut file, _) = ReportFile::open(&dir.path().join("socket"), "b".into());
            file.changed(at(0));
            file.begin(at(1));
            if changes {
                file.changed(at(1));
            }
            file.close();
            assert_eq!((file.is_closed(), file.next_deadline()), (false, None), "one write at a time");
            file.ended(at(2));
            assert_eq!((file.is_closed(), file.next_deadline()), (!changes, changes.then(|| at(0))));
        }
    }
}
