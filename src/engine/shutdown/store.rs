//! Keeps the lock that Wherry holds, and no other, in systemd's descriptor store (S7). systemd's socket may be full or
//! missing, so storing and removing are retried with a back-off until systemd has accepted the message. A lock that
//! remains in the store delays the shutdown of the machine by logind's whole delay.

use crate::api::shutdown::retry;
use crate::api::time::Boot;
use crate::engine::op::{OpError, OpId};
use serde::Serialize;

#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub enum Store {
    #[default]
    Settled,
    Asked {
        op: OpId,
        failing_since: Option<Boot>,
    },
    Failed {
        since: Boot,
        again_at: Boot,
    },
}

impl Store {
    pub fn began(&mut self, op: OpId) {
        let failing_since = match self {
            Store::Settled => None,
            Store::Asked { failing_since, .. } => *failing_since,
            Store::Failed { since, .. } => Some(*since),
        };
        *self = Store::Asked { op, failing_since };
    }

    /// Returns the reason of a failure if it is the first one in a row.
    pub fn answered(&mut self, answered: OpId, result: Result<(), OpError>, now: Boot) -> Option<String> {
        let Store::Asked { op, failing_since } = *self else { return None };
        if op != answered {
            return None;
        }
        let Err(e) = result else {
            *self = Store::Settled;
            return None;
        };
        let since = failing_since.unwrap_or(now);
        *self = Store::Failed { since, again_at: now + retry::wait(now.since(since)) };
        failing_since.is_none().then(|| e.message().to_owned())
    }

    pub fn next(&self) -> Option<Boot> {
        if let Store::Failed { again_at, .. } = self { Some(*again_at) } else { None }
    }

    pub fn is_due(&self, now: Boot) -> bool {
        self.next().is_some_and(|at| at <= now)
    }
}
