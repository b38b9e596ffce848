//! W24: what other parts may ask of a pod. They ask, and never guess.

use super::{ActiveOp, State, Worker};
use crate::engine::pod::kill::TerminationSource;

impl Worker {
    /// A container of it runs or may still be started.
    pub fn could_have_running_containers(&self) -> bool {
        !self.is_over()
    }

    /// None runs, and none is coming. Not simply the opposite of the question before, which is cautious about what no
    /// worker knows.
    pub fn is_known_terminated(&self) -> bool {
        self.is_over()
    }

    pub fn should_be_finished(&self) -> bool {
        self.is_finished()
    }

    pub fn termination_was_requested(&self) -> bool {
        !matches!(self.state, State::Waiting | State::Sync)
    }

    /// Its containers are being stopped, or have been: none of them is being created or started.
    pub fn containers_should_be_terminating(&self) -> bool {
        let starting = matches!(
            self.op,
            Some((
                _,
                ActiveOp::RunSandbox { .. }
                    | ActiveOp::Create { .. }
                    | ActiveOp::Start { .. }
                    | ActiveOp::PrepareContainer { .. }
            ))
        );
        self.termination_was_requested() && !starting
    }

    /// Sandboxes, cgroup and directories have no use any more.
    pub fn runtime_parts_should_be_removed(&self) -> bool {
        self.is_over()
    }

    /// Dead containers and logs have no use any more (W26).
    pub fn content_should_be_removed(&self) -> bool {
        let evicted =
            self.waits_for.iter().copied().chain(self.cause.as_ref().and_then(|c| c.by)).any(TerminationSource::evicts);
        match self.state {
            State::Waiting | State::Sync => false,
            State::Terminating(_) => evicted,
            State::Terminated | State::Finished | State::Forgotten => evicted || !self.desired,
        }
    }
}
