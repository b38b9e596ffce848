//! What is wrong at present, since when, and that each is logged once.

use crate::api::problem::Problem;
use crate::api::time::{Boot, Now, Wall};
use std::collections::BTreeMap;
use std::time::Duration;

/// The same is logged again at most this often, should it come and go.
const AGAIN: Duration = Duration::from_secs(60);

/// Which kind of problems of a path: each is reported and mended by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Reading and understanding it.
    Content,
    /// What it says is said elsewhere too (D4).
    Collision,
    /// Its record could not be written.
    Record,
}

/// What is wrong with one path, and since when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    pub path: String,
    pub since: Wall,
    pub problems: Vec<Problem>,
}

#[derive(Debug, Default)]
pub(super) struct StandingProblems {
    now: BTreeMap<(String, Kind), Standing>,
    logged: BTreeMap<(String, Kind), (Boot, Vec<Problem>)>,
}

impl StandingProblems {
    /// Says what is wrong with `path` now; nothing ends it.
    pub(super) fn set(&mut self, path: &str, kind: Kind, problems: Vec<Problem>, now: Now) {
        let key = (path.to_owned(), kind);
        if problems.is_empty() {
            if self.now.remove(&key).is_some() {
                log::info!("manifest mended path={path:?}");
            }
            return;
        }
        let recent = |(at, what): &(Boot, Vec<Problem>)| *what == problems && now.boot.since(*at) < AGAIN;
        if self.now.get(&key).is_some_and(|standing| standing.problems == problems) {
            return;
        }
        if !self.logged.get(&key).is_some_and(recent) {
            for Problem { path, document, line, field, message } in &problems {
                log::warn!(
                    "manifest error path={path:?} document={document} line={} field={:?} error={message:?}",
                    line.unwrap_or(0),
                    field.as_deref().unwrap_or("")
                );
            }
            self.logged.retain(|_, (at, _)| now.boot.since(*at) < AGAIN);
            self.logged.insert(key.clone(), (now.boot, problems.clone()));
        }
        let since = self.now.get(&key).map_or(now.wall, |standing| standing.since);
        self.now.insert(key, Standing { path: path.to_owned(), since, problems });
    }

    /// Replaces all problems of one kind.
    pub(super) fn set_all(&mut self, kind: Kind, problems: Vec<Problem>, now: Now) {
        let mut by_path: BTreeMap<String, Vec<Problem>> = BTreeMap::new();
        for (path, _) in self.now.keys().filter(|(_, k)| *k == kind) {
            by_path.insert(path.clone(), Vec::new());
        }
        for problem in problems {
            by_path.entry(problem.path.clone()).or_default().push(problem);
        }
        for (path, problems) in by_path {
            self.set(&path, kind, problems, now);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Standing> {
        self.now.values()
    }
}
