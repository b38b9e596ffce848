//! The states of the inhibitor lock: the connection, the lock itself, and the current round of calls to logind. `lock`
//! implements the transitions.

use super::problem::Problems;
use crate::api::time::Boot;
use crate::engine::effect::LogindCall;
use crate::engine::op::OpId;
use serde::Serialize;
use std::time::Duration;

#[derive(Debug, Serialize)]
pub enum Link {
    Down { why: Option<String> },
    Up { subscribed: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Held {
    No,
    /// Wherry has the descriptor. It is not known yet whether this logind knows the lock.
    Unconfirmed,
    Yes,
}

#[derive(Debug, Serialize)]
pub enum Work {
    Idle {
        at: Option<Boot>,
    },
    Calling {
        step: Step,
        op: Option<OpId>,
        round: Round,
    },
    /// Between two reads of the delay after a reload.
    Pausing {
        until: Boot,
        change: Change,
        reads: u32,
        round: Round,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Step {
    ReadDelay(Read),
    WriteDropIn,
    LowerDropIn,
    Reload(Change),
    List,
    Inhibit,
    Subscribe,
    ReadPreparing,
}

impl Step {
    /// Returns the call for this step. `delay`: the sum of the periods.
    pub fn call(self, delay: Duration) -> LogindCall {
        match self {
            Step::ReadDelay(_) => LogindCall::ReadDelay,
            Step::WriteDropIn => LogindCall::WriteDropIn { delay },
            Step::LowerDropIn => LogindCall::LowerDropIn { delay },
            Step::Reload(_) => LogindCall::Reload,
            Step::List => LogindCall::ListInhibitors,
            Step::Inhibit => LogindCall::Inhibit,
            Step::Subscribe => LogindCall::Subscribe,
            Step::ReadPreparing => LogindCall::ReadPreparing,
        }
    }
}

/// The reason for a read of the delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Read {
    First,
    /// After a reload, for the nth time.
    After(Change, u32),
    Periodic,
    Shutdown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Change {
    Raise,
    Lower,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Kind {
    #[default]
    Whole,
    /// A whole round that repeats a round with a problem.
    Retry,
    /// A new lock after a cancelled shutdown. `then_whole`: a whole round follows.
    Relock { then_whole: bool },
}

#[derive(Debug, Default, Serialize)]
pub struct Round {
    pub kind: Kind,
    pub problems: Problems,
}

impl Round {
    pub fn of(kind: Kind) -> Round {
        Round { kind, problems: Problems::default() }
    }
}
