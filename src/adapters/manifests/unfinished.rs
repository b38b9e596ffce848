//! The threads and processes that hung inspections leave behind.

use std::process::Child;
use std::sync::Arc;

/// What an inspection that hangs leaves behind.
#[derive(Debug)]
pub(super) enum Unfinished {
    /// An abandoned helper thread. The thread holds a clone of the `Arc`.
    Thread(Arc<()>),
    Process(Child),
    /// Nothing remains.
    Over,
}

impl Unfinished {
    /// Reports whether this is a thread that has ended after all.
    pub(super) fn has_come_back(&self) -> bool {
        matches!(self, Unfinished::Thread(alive) if Arc::strong_count(alive) == 1)
    }

    /// Reports whether the thread or process has ended after all.
    pub(super) fn is_over(&mut self) -> bool {
        match self {
            Unfinished::Thread(_) => self.has_come_back(),
            // If the wait fails, the process is no longer a child of the agent.
            Unfinished::Process(child) => !matches!(child.try_wait(), Ok(None)),
            Unfinished::Over => true,
        }
    }
}
