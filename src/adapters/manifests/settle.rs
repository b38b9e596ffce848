//! The priorities of pods, from the PriorityClasses of all files (A5).

use super::contents::Held;
use super::open_problems::Kind;
use super::{Manifests, Source, Wait};
use crate::api::priority::{Classes, PriorityClass};
use crate::api::problem::Problem;
use crate::api::time::Now;
use std::ffi::{OsStr, OsString};

impl Manifests {
    /// Pods get their priorities after all PriorityClasses have been read, so the order of the files does not matter
    /// (A5).
    pub(super) fn settle(&mut self, now: Now) {
        // A file that was just renamed does not define its classes twice.
        let (going, staying): (Vec<_>, Vec<_>) =
            self.sources.iter().partition(|(name, _)| matches!(self.waits.get(*name), Some((_, Wait::Gone))));
        let classes = |sources: &[(&OsString, &Source)]| -> Vec<PriorityClass> {
            sources.iter().flat_map(|(_, source)| &source.held).filter_map(Held::class).cloned().collect()
        };
        let (going, staying) = (classes(&going), classes(&staying));
        let moved = going.iter().filter(|class| !staying.iter().any(|other| other.name == class.name));
        let (classes, mut wrong) = Classes::collect(staying.iter().chain(moved));
        for name in self.sources.keys().cloned().collect::<Vec<_>>() {
            self.settle_file(&name, &classes, &mut wrong, now);
        }
    }

    fn settle_file(&mut self, name: &OsStr, classes: &Classes, wrong: &mut Vec<Problem>, now: Now) {
        let shown = self.shown(name);
        let Some(source) = self.sources.get_mut(name) else { return };
        let mut held = std::mem::take(&mut source.held);
        let unrecalled = std::mem::take(&mut source.unrecalled);
        let mut new = held.iter_mut().map(|held| usize::from(held.decide(classes))).sum::<usize>();
        if unrecalled && held.iter().any(Held::is_lost) {
            let recorded = self.recall(name, now).unwrap_or_default();
            let lost = held.iter_mut().filter(|held| held.is_lost());
            new += lost.map(|held| usize::from(held.recall(&recorded))).sum::<usize>();
        }
        if new > 0 {
            self.changed = true;
            self.dirty.insert(name.to_owned());
        }
        let mut problems: Vec<Problem> = wrong.extract_if(.., |problem| problem.path == shown).collect();
        problems.extend(held.iter().filter_map(|held| held.problem(classes)));
        problems.sort_by_key(|problem| problem.document);
        self.standing.set(Some(name), &shown, Kind::Class, problems, now);
        if let Some(source) = self.sources.get_mut(name) {
            source.held = held;
        }
    }
}
