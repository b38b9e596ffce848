//! An inspection as a job of a helper thread.
//!
//! A foreign file system (served by another machine or program) can block an inspection forever. A thread that is
//! blocked in the kernel cannot be killed and keeps its process from exiting. The agent therefore never accesses such a
//! file system itself: it starts a helper process with a time limit (`foreign`). A local disk can hang too; the
//! deadline of the helper thread covers that.

use super::foreign;
use super::inspection::{self, InspectionOutcome, Question};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// An inspection to run on a helper thread. `_alive` is held while the thread runs.
pub struct Inspection {
    pub(super) ticket: u64,
    pub(super) question: Question,
    pub(super) inotify: Option<Arc<OwnedFd>>,
    /// The id of the mount that is being accessed.
    pub(super) at: Arc<AtomicU64>,
    pub(super) _alive: Arc<()>,
    /// The program that inspects foreign file systems. If it is not set, the helper thread accesses them itself.
    pub(super) reader: Option<PathBuf>,
    /// The time limit for that program.
    pub(super) limit: Duration,
}

/// The result of an inspection, for `Manifests::inspected`.
pub struct Inspected(pub(super) InspectionOutcome);

impl Inspection {
    /// Identifies the inspection for `Manifests::inspected`.
    pub fn ticket(&self) -> u64 {
        self.ticket
    }

    /// Runs the inspection. Blocks for as long as the file system does.
    pub fn run(self) -> Inspected {
        let inotify = self.inotify.as_ref().map(AsFd::as_fd);
        let at = |mount| self.at.store(mount, Ordering::Relaxed);
        let Some(reader) = &self.reader else { return Inspected(inspection::run(&self.question, inotify, &at)) };
        let mut local = self.question.clone();
        local.avoid.foreign = true;
        Inspected(match inspection::run(&local, inotify, &at) {
            InspectionOutcome::Refused(mount) if !self.question.refuses(&mount) => {
                foreign::run(reader, &self.question, inotify, self.limit)
            }
            outcome => outcome,
        })
    }
}
