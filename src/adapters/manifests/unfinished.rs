//! What an inspection without an answer leaves behind.

use std::process::Child;
use std::sync::Arc;

/// What remains of an inspection that hangs.
#[derive(Debug)]
pub(super) enum Unfinished {
    /// An abandoned helper thread. The thread holds a clone of the `Arc`.
    Thread(Arc<()>),
    Process(Child),
    /// Nothing remains.
    Over,
}

impl Unfinished {
    /// True if this is a thread that has ended after all.
    pub(super) fn has_come_back(&self) -> bool {
        matches!(self, Unfinished::Thread(alive) if Arc::strong_count(alive) == 1)
    }

    /// True if the thread or process has ended after all.
    pub(super) fn is_over(&mut self) -> bool {
        match self {
            Unfinished::Thread(_) => self.has_come_back(),
            // If the wait fails, the process is not our child any more.
            Unfinished::Process(child) => !matches!(child.try_wait(), Ok(None)),
            Unfinished::Over => true,
        }
    }
}
