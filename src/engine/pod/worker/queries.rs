//! W24: the questions that other parts ask the worker instead of deducing its state.

use super::ops::ActiveOp;
use super::{State, Worker};
use crate::engine::pod::kill::TerminationSource;

impl Worker {
    /// A container of the pod runs or can still be started.
    pub fn could_have_running_containers(&self) -> bool {
        !self.is_over()
    }

    /// No container runs or can still start. For a pod without a worker this is not the negation of the previous
    /// question, which is cautious.
    pub fn is_known_terminated(&self) -> bool {
        self.is_over()
    }

    pub fn should_be_finished(&self) -> bool {
        self.is_finished()
    }

    pub fn termination_was_requested(&self) -> bool {
        !matches!(self.state, State::Waiting | State::Sync(_))
    }

    /// The containers are being stopped or have been stopped, and no create or start call is in flight.
    pub fn containers_should_be_terminating(&self) -> bool {
        let starting = self.ops.active().is_some_and(ActiveOp::may_start_something);
        self.termination_was_requested() && !starting
    }

    /// Sandboxes, cgroup and directories are no longer needed.
    pub fn runtime_parts_should_be_removed(&self) -> bool {
        self.is_over()
    }

    /// Dead containers and logs are no longer needed (W26).
    pub fn content_should_be_removed(&self) -> bool {
        let evicted =
            self.waits_for.iter().copied().chain(self.cause.as_ref().and_then(|c| c.by)).any(TerminationSource::evicts);
        match self.state {
            State::Waiting | State::Sync(_) => false,
            State::Terminating(_) => evicted,
            State::Terminated(_) | State::Finished(_) | State::Forgotten(_) => evicted || !self.desired,
        }
    }
}
