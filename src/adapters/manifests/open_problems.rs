//! The current problems, each with the time since which it exists, and their log lines.

use crate::api::problem::Problem;
use crate::api::time::{Boot, Now, Wall};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::time::Duration;

/// A problem that disappears and returns is logged at most once in this time.
const AGAIN: Duration = Duration::from_secs(60);

/// Groups of problems of a path. Each group is reported and cleared separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// The file cannot be read or parsed.
    Content,
    /// The PriorityClasses of the file or of its pods (A5), which depend on other files too.
    Class,
    /// The record of the file could not be written.
    Record,
}

/// The problems of one path, and the time since which they exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenProblem {
    pub path: String,
    pub since: Wall,
    pub problems: Vec<Problem>,
}

#[derive(Debug, Default)]
pub(super) struct OpenProblems {
    /// The key is the file's name (two names may look the same as text), or None for the directory.
    now: BTreeMap<(Option<OsString>, Kind), OpenProblem>,
    logged: BTreeMap<(Option<OsString>, Kind), (Boot, Vec<Problem>)>,
}

impl OpenProblems {
    /// Replaces the problems of the file of this name (None: the directory). An empty list clears them.
    pub(super) fn set(&mut self, name: Option<&OsStr>, path: &str, kind: Kind, problems: Vec<Problem>, now: Now) {
        let key = (name.map(OsStr::to_owned), kind);
        if problems.is_empty() {
            if self.now.remove(&key).is_some() {
                log::info!("manifest corrected file={path:?}");
            }
            return;
        }
        let recent = |(at, what): &(Boot, Vec<Problem>)| *what == problems && now.boot.since(*at) < AGAIN;
        if self.now.get(&key).is_some_and(|standing| standing.problems == problems) {
            return;
        }
        if !self.logged.get(&key).is_some_and(recent) {
            for problem in &problems {
                log::warn!("{}", log_line(problem));
            }
            self.logged.retain(|_, (at, _)| now.boot.since(*at) < AGAIN);
            self.logged.insert(key.clone(), (now.boot, problems.clone()));
        }
        let since = self.now.get(&key).map_or(now.wall, |standing| standing.since);
        self.now.insert(key, OpenProblem { path: path.to_owned(), since, problems });
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &OpenProblem> {
        self.now.values()
    }
}

/// The log line for a problem. Fields that the problem does not have are omitted.
fn log_line(problem: &Problem) -> String {
    let mut text = format!("manifest error file={:?}", problem.path);
    // Writing to a String cannot fail.
    let _ = match (problem.line, problem.document) {
        (Some(line), _) => write!(text, " line={line}"),
        (None, document) if document > 1 => write!(text, " document={document}"),
        _ => Ok(()),
    };
    if let Some(field) = &problem.field {
        let _ = write!(text, " field={field:?}");
    }
    let _ = write!(text, " error={:?}", problem.message);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_line_has_only_the_known_fields() {
        let whole = Problem::of_file("/m/a", "a FIFO");
        assert_eq!(log_line(&whole), r#"manifest error file="/m/a" error="a FIFO""#);
        let field = Problem { document: 2, line: Some(7), field: Some("spec.x".into()), ..whole };
        assert_eq!(log_line(&field), r#"manifest error file="/m/a" line=7 field="spec.x" error="a FIFO""#);
    }
}
