//! Keeps the engine's last state for a crash report (`adapters::crash_files`), and reports how the previous process has
//! ended. The state is written soon after something has happened, and at most once a minute.

use super::event_recorder::EventRecorder;
use super::logging::LogDeduplicator;
use crate::adapters::crash_files::{CrashFiles, PreviousRun};
use crate::api::reason::Reason;
use crate::api::time::{Boot, Now};
use crate::config::Config;
use crate::engine::effect::Severity;
use crate::engine::node::Engine;
use crate::metrics::Metrics;
use crate::metrics::families;
use serde::Serialize;
use std::time::Duration;

/// Time between an event and the write, so that further events are included.
const DELAY: Duration = Duration::from_secs(5);
/// Minimum time between two writes.
const PAUSE: Duration = Duration::from_secs(60);

pub(super) struct LastState {
    files: CrashFiles,
    writing: Writing,
    /// The next write does not start before this time.
    not_before: Boot,
    /// How the previous process has ended, until this is reported.
    previous: Option<PreviousRun>,
    pid: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writing {
    UpToDate,
    Due(Boot),
    Writes { changed_since: bool },
}

/// The first fields of the file. The field `engine` follows, as `Engine::dump_text` returns it.
#[derive(Serialize)]
struct StateHead {
    version: &'static str,
    pid: u32,
    started: Now,
    now: Now,
}

impl LastState {
    /// Finds out how the previous process has ended, writes a report about a crash, and has panics of this process
    /// leave a report.
    pub(super) fn new(config: &Config) -> LastState {
        let files = CrashFiles::new(&config.socket, &config.root_dir);
        let previous = files.take();
        files.report_panics();
        LastState { files, writing: Writing::UpToDate, not_before: Boot(0), previous, pid: std::process::id() }
    }

    /// Logs how the previous process has ended, unless it has stopped on request. A crash is an event of the node and a
    /// metric too.
    pub(super) fn report_previous(&mut self, recorder: &mut EventRecorder, metrics: &Metrics, now: Now) {
        let Some(PreviousRun { end, report }) = self.previous.take() else { return };
        if !end.is_crash() {
            log::info!("the previous wherry {end}");
            return;
        }
        let report = report.map(|path| format!("; see {}", path.display())).unwrap_or_default();
        let message = format!("the previous wherry {end}{report}");
        recorder.node_event(Severity::Warning, Reason::AgentCrashed, &message, now);
        metrics.set(families::PREVIOUS_AGENT_CRASHED, [end.kind()], 1);
    }

    pub(super) fn changed(&mut self, now: Boot) {
        self.writing = match self.writing {
            Writing::UpToDate => Writing::Due((now + DELAY).max(self.not_before)),
            Writing::Writes { .. } => Writing::Writes { changed_since: true },
            due @ Writing::Due(_) => due,
        };
    }

    pub(super) fn next_deadline(&self) -> Option<Boot> {
        match self.writing {
            Writing::Due(at) => Some(at),
            Writing::UpToDate | Writing::Writes { .. } => None,
        }
    }

    pub(super) fn is_writing(&self) -> bool {
        matches!(self.writing, Writing::Writes { .. })
    }

    /// Begins a write. The result writes the state of this moment, on a helper thread.
    pub(super) fn write(
        &mut self,
        engine: &Engine,
        started: Now,
        now: Now,
    ) -> impl FnOnce() -> Result<(), String> + use<> {
        self.begin(now.boot);
        let head = StateHead { version: env!("CARGO_PKG_VERSION"), pid: self.pid, started, now };
        let head = serde_json::to_string(&head).unwrap_or_default();
        let content = format!("{},\"engine\":{}}}", head.strip_suffix('}').unwrap_or_default(), engine.dump_text());
        let files = self.files.clone();
        move || files.write_state(&content)
    }

    /// Removes the state, because the process stops on request.
    pub(super) fn stopped(&self) {
        self.files.remove_traces();
    }

    fn begin(&mut self, now: Boot) {
        self.not_before = now + PAUSE;
        self.writing = Writing::Writes { changed_since: false };
    }

    /// Handles the result of a write.
    pub(super) fn written(&mut self, result: Result<(), String>, log: &mut LogDeduplicator, now: Boot) {
        self.ended(now);
        if let Err(why) = result
            && let Some(repeated) = log.repetitions("last state", now)
        {
            log::warn!("failed to keep the state for a crash report error={why:?} repeated={repeated}");
        }
    }

    /// Notes that a write has ended. A failed write is repeated with the next change.
    fn ended(&mut self, now: Boot) {
        self.writing = match self.writing {
            Writing::Writes { changed_since: true } => Writing::Due((now + DELAY).max(self.not_before)),
            _ => Writing::UpToDate,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_events_is_written_once_a_minute() {
        let at = |seconds: u64| Boot(0) + Duration::from_secs(seconds);
        let dir = tempfile::tempdir().unwrap();
        let files = CrashFiles::new(&dir.path().join("socket"), dir.path());
        let mut state = LastState { files, writing: Writing::UpToDate, not_before: Boot(0), previous: None, pid: 1 };
        let mut writes = Vec::new();
        for second in 0..200 {
            state.changed(at(second));
            if state.next_deadline().is_some_and(|due| due <= at(second)) {
                state.begin(at(second));
                assert!(state.is_writing() && state.next_deadline().is_none());
                state.changed(at(second));
                state.ended(at(second));
                writes.push(second);
            }
        }
        assert_eq!(writes, [5, 65, 125, 185]);
    }
}
