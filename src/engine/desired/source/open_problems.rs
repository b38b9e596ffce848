//! The current problems of manifests, each with the time at which it appeared.

use crate::api::problem::Problem;
use crate::api::time::{Boot, Now, Wall};
use crate::engine::effect::{Effect, ManifestNews};
use crate::engine::outbox::Outbox;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::time::Duration;

/// A problem that disappears and returns is logged at most once in this time.
const AGAIN: Duration = Duration::from_secs(60);

/// The groups into which the problems of a path are divided. Each group is reported and cleared separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// The file cannot be read or parsed.
    Content,
    /// The PriorityClasses of the file or of its pods (A5), which depend on other files too.
    Class,
    /// The record of the file could not be written.
    Record,
}

/// The problems of one path, and the time at which its problems began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenProblem {
    pub path: String,
    pub since: Wall,
    pub problems: Vec<Problem>,
}

/// When problems were last logged, and these problems.
type Logged = (Boot, Vec<Problem>);

#[derive(Debug, Default)]
pub(super) struct OpenProblems {
    /// The key is the file's name (two names may look the same as text), or None for the directory.
    now: BTreeMap<(Option<OsString>, Kind), OpenProblem>,
    logged: BTreeMap<(Option<OsString>, Kind), Logged>,
}

impl OpenProblems {
    /// Replaces the problems of the file with this name (None: the directory). An empty list clears them.
    pub(super) fn set(
        &mut self,
        name: Option<&OsStr>,
        path: &str,
        kind: Kind,
        problems: Vec<Problem>,
        now: Now,
        outbox: &mut Outbox,
    ) {
        if problems.is_empty() {
            return self.clear(name, path, kind, outbox);
        }
        let key = (name.map(OsStr::to_owned), kind);
        if self.now.get(&key).is_some_and(|open| open.problems == problems) {
            return;
        }
        let recent = |(at, what): &Logged| *what == problems && now.boot.since(*at) < AGAIN;
        let log = !self.logged.get(&key).is_some_and(recent);
        if log {
            self.logged.retain(|_, (at, _)| now.boot.since(*at) < AGAIN);
            self.logged.insert(key.clone(), (now.boot, problems.clone()));
        }
        let log = if log { problems.clone() } else { Vec::new() };
        outbox.push(Effect::ManifestNews(ManifestNews::Errors { log }));
        let since = self.now.get(&key).map_or(now.wall, |open| open.since);
        self.now.insert(key, OpenProblem { path: path.to_owned(), since, problems });
    }

    pub(super) fn clear(&mut self, name: Option<&OsStr>, path: &str, kind: Kind, outbox: &mut Outbox) {
        if self.now.remove(&(name.map(OsStr::to_owned), kind)).is_some() {
            outbox.push(Effect::ManifestNews(ManifestNews::Corrected { path: path.to_owned() }));
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &OpenProblem> {
        self.now.values()
    }
}
