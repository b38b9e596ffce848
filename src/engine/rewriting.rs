//! When a record whose content changes has to be written again.

use crate::api::time::Boot;
use serde::Serialize;
use std::time::Duration;

/// A failed write is repeated after this time.
const RETRY: Duration = Duration::from_secs(30);

/// The state of one record.
#[derive(Debug, Default, Serialize)]
pub enum Rewriting {
    /// There is nothing to write.
    #[default]
    Done,
    /// The content has changed since the last write.
    Due,
    InFlight {
        changed_since: bool,
    },
    Failed {
        again: Boot,
    },
}

impl Rewriting {
    /// Notes that the content has changed.
    pub fn changed(&mut self) {
        *self = match self {
            Rewriting::InFlight { .. } => Rewriting::InFlight { changed_since: true },
            Rewriting::Done | Rewriting::Due | Rewriting::Failed { .. } => Rewriting::Due,
        };
    }

    /// Returns true if the record has to be written now. The caller then begins the write.
    pub fn begins(&mut self, now: Boot) -> bool {
        let is_due = match self {
            Rewriting::Due => true,
            Rewriting::Failed { again } => *again <= now,
            Rewriting::Done | Rewriting::InFlight { .. } => false,
        };
        if is_due {
            *self = Rewriting::InFlight { changed_since: false };
        }
        is_due
    }

    /// Handles the end of a write.
    pub fn ended(&mut self, well: bool, now: Boot) {
        *self = match self {
            Rewriting::InFlight { changed_since: true } => Rewriting::Due,
            _ if well => Rewriting::Done,
            _ => Rewriting::Failed { again: now + RETRY },
        };
    }

    /// Returns true if the record has the present content.
    pub fn is_done(&self) -> bool {
        matches!(self, Rewriting::Done)
    }

    /// Returns the time of the next attempt after a failure.
    pub fn next_deadline(&self) -> Option<Boot> {
        if let Rewriting::Failed { again } = self { Some(*again) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_during_a_write_is_written_next_and_a_failure_is_repeated() {
        let mut record = Rewriting::default();
        assert!(!record.begins(Boot(0)));
        record.changed();
        assert!(record.begins(Boot(0)) && !record.begins(Boot(0)), "one write at a time");
        record.changed();
        record.ended(true, Boot(0));
        assert!(record.begins(Boot(0)), "the change during the write");
        record.ended(false, Boot(0));
        assert_eq!(record.next_deadline(), Some(Boot(0) + RETRY));
        assert!(!record.begins(Boot(1)) && record.begins(Boot(0) + RETRY));
        record.ended(true, Boot(2));
        assert!(matches!(record, Rewriting::Done));
    }
}
