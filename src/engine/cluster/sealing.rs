//! C15: decides whether and in which form Secrets and tokens are written to the disk. The adapter of the records only
//! seals and opens them.

use super::sealing_settings::SealingSettings;
use crate::api::reason::Reason;
use crate::api::sealing::{Content, KeyState, Policy};
use crate::engine::effect::{RecordChange, Severity};
use crate::engine::op::{OpError, OpId};
use crate::engine::outbox::Outbox;
use crate::engine::owner::Owner;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;

/// The number of records that a message names.
const NAMED: usize = 3;

#[derive(Debug, Serialize)]
pub struct Sealing {
    settings: SealingSettings,
    /// The sealed records that could not be opened at the start. They are kept.
    locked: BTreeSet<String>,
    /// The writes in flight that convert a record to the other form.
    conversions: BTreeSet<OpId>,
}

/// Why Secrets or tokens are not on the disk, or cannot be read from it. Formats as the message and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub reason: Reason,
    pub message: String,
    pub remedy: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.message, self.remedy)
    }
}

/// The form of a new Secret or token on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    Plain,
    Sealed,
    /// It is not written.
    Withheld,
}

impl Protection {
    /// Returns the change that writes a record. None: the record is not written.
    pub fn put(self, key: String, value: String) -> Option<RecordChange> {
        match self {
            Protection::Plain => Some(RecordChange::Put { key, value }),
            Protection::Sealed => Some(RecordChange::Seal { key, value }),
            Protection::Withheld => None,
        }
    }
}

impl Sealing {
    pub fn new(settings: SealingSettings) -> Sealing {
        Sealing { settings, locked: BTreeSet::new(), conversions: BTreeSet::new() }
    }

    pub fn protection(&self) -> Protection {
        let SealingSettings { policy, key } = &self.settings;
        match (policy, key) {
            (Policy::Never, _) => Protection::Plain,
            (Policy::Auto | Policy::Required, KeyState::Usable) => Protection::Sealed,
            // Existing sealed records show that plain text is not wanted.
            (Policy::Auto, KeyState::Missing) if self.locked.is_empty() => Protection::Plain,
            _ => Protection::Withheld,
        }
    }

    /// Notes a record that cannot be opened.
    pub fn locked(&mut self, key: &str) {
        self.locked.insert(key.to_owned());
    }

    /// Converts a record of a Secret or a token to the form in which it would be written now. Is called when all
    /// records have been found.
    pub fn convert(&mut self, key: &str, content: &Content, outbox: &mut Outbox) {
        let change = match (content, self.protection()) {
            (Content::Plain(value), Protection::Sealed) => {
                RecordChange::Seal { key: key.to_owned(), value: value.clone() }
            }
            (Content::Sealed(value), Protection::Plain) => {
                RecordChange::Put { key: key.to_owned(), value: value.clone() }
            }
            _ => return,
        };
        self.conversions.insert(outbox.record(Owner::Cluster, change));
    }

    /// Removes the files of unusable records if Secrets are sealed, because those files may contain older plain text.
    pub fn sweep(&self, kinds: &[&str], outbox: &mut Outbox) {
        if self.protection() == Protection::Sealed {
            for kind in kinds {
                outbox.record(Owner::Cluster, RecordChange::RemoveCorrupt { kind: (*kind).to_owned() });
            }
        }
    }

    /// Handles the result of the write of a record. Returns false if the write is not a conversion.
    pub fn recorded(&mut self, op: OpId, result: &Result<(), OpError>, outbox: &mut Outbox) -> bool {
        let is_conversion = self.conversions.remove(&op);
        if let (true, Err(e)) = (is_conversion, result) {
            let message = format!(
                "a Secret or a token on the disk was not converted to its new form: {}; its next change or the next \
                 start of wherry tries again",
                e.message()
            );
            outbox.emit_node_event(Severity::Warning, Reason::FailedSeal, message);
        }
        is_conversion
    }

    /// Reports the problem that was found at the start, if there is one.
    pub fn report(&self, outbox: &mut Outbox) {
        if let Some(problem) = self.problem() {
            outbox.emit_node_event(Severity::Warning, problem.reason.clone(), problem.to_string());
        }
    }

    pub fn problem(&self) -> Option<Problem> {
        let SealingSettings { policy, key } = &self.settings;
        let first: Vec<&str> = self.locked.iter().take(NAMED).map(String::as_str).collect();
        let (reason, message) = if !first.is_empty() {
            let (count, named) = (self.locked.len(), first.join(", "));
            let more = if count > first.len() { ", ..." } else { "" };
            let message = format!(
                "{count} records of Secrets and tokens are sealed ({named}{more}), and {key}; they stay on the disk, \
                 and containers that need them wait for the API server"
            );
            (Reason::FailedUnseal, message)
        } else if self.protection() == Protection::Withheld {
            let setting = match policy {
                Policy::Required => "sealSecrets is Required, and ",
                _ => "",
            };
            (Reason::FailedSeal, format!("Secrets and tokens are not written to the disk: {setting}{key}"))
        } else {
            return None;
        };
        Some(Problem { reason, message, remedy: key.remedy() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealing(policy: Policy, key: KeyState, locked: &[&str]) -> Sealing {
        let mut sealing = Sealing::new(SealingSettings { policy, key });
        locked.iter().for_each(|key| sealing.locked(key));
        sealing
    }

    #[test]
    fn c15_the_form_follows_from_the_setting_the_key_and_the_records() {
        use KeyState::{Missing, Usable};
        use Policy::{Auto, Never, Required};
        use Protection::{Plain, Sealed, Withheld};
        let bad = || KeyState::Unusable("3 bytes".into());
        for (policy, key, locked, expected) in [
            (Auto, Missing, &[][..], Plain),
            (Auto, Missing, &["tokens/a"][..], Withheld),
            (Auto, bad(), &[], Withheld),
            (Auto, Usable, &[], Sealed),
            (Auto, Usable, &["tokens/a"], Sealed),
            (Required, Missing, &[], Withheld),
            (Required, bad(), &[], Withheld),
            (Required, Usable, &[], Sealed),
            (Never, Missing, &["tokens/a"], Plain),
            (Never, bad(), &[], Plain),
            (Never, Usable, &[], Plain),
        ] {
            let shown = format!("{policy:?} {key:?} {locked:?}");
            let sealing = sealing(policy, key, locked);
            assert_eq!(sealing.protection(), expected, "{shown}");
            let is_problem = expected == Withheld || !locked.is_empty();
            assert_eq!(sealing.problem().is_some(), is_problem, "{shown}");
        }
    }

    #[test]
    fn c15_a_problem_names_some_records_and_the_remedy() {
        let shown = |policy, key, locked: &[&str]| {
            let problem = sealing(policy, key, locked).problem().unwrap();
            (problem.reason.clone(), problem.to_string())
        };
        let (_, text) = shown(Policy::Auto, KeyState::Missing, &["a/1", "a/2", "a/3", "a/4"]);
        assert!(text.starts_with("4 records") && text.contains("(a/1, a/2, a/3, ...)"), "{text}");
        assert!(text.contains("LoadCredentialEncrypted=wherry.key:"), "{text}");
        let (reason, text) = shown(Policy::Required, KeyState::Missing, &[]);
        assert!(reason == Reason::FailedSeal && text.contains("sealSecrets is Required"), "{text}");
        let (_, text) = shown(Policy::Auto, KeyState::Usable, &["a/1"]);
        assert!(text.contains("a key other than"), "{text}");
    }
}
