//! The outcome of a retry (A3).

use crate::engine::pod::kill::Cause;
use std::fmt;

/// The state of the pod right after the retry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RetryOutcome {
    Admitted,
    /// A4. Contains the reason.
    Waits(String),
    RejectedAgain(Cause),
    /// S4: the node shuts down.
    AfterShutdown,
    /// The pod is not evaluated yet. Contains what it waits for.
    InItsTurn(Vec<String>),
}

impl fmt::Display for RetryOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RetryOutcome::Admitted => f.write_str("it is admitted"),
            RetryOutcome::Waits(why) => write!(f, "it must wait, {why}"),
            RetryOutcome::RejectedAgain(cause) => {
                write!(f, "it is rejected again ({}): {}", cause.reason, cause.message)
            }
            RetryOutcome::AfterShutdown => f.write_str("it is considered when the node's shutdown is over"),
            RetryOutcome::InItsTurn(waits_for) if waits_for.is_empty() => {
                f.write_str("it is considered when its turn comes")
            }
            RetryOutcome::InItsTurn(waits_for) => {
                write!(f, "it is considered when its turn comes; it waits for {}", waits_for.join("; "))
            }
        }
    }
}
