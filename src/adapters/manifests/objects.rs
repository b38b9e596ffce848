//! The objects that the engine receives, and its decisions about them (A5).

use super::contents::{Held, Thing};
use super::open_problems::Kind;
use super::{Manifests, Wait};
use crate::api::document::Key;
use crate::api::objects::{AcceptedPod, Objects};
use crate::api::pod::{Pod, Source};
use crate::api::problem::Problem;
use crate::api::time::Now;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;

impl Manifests {
    /// Returns all objects, in the order of their paths. Two pods with the same name are both included; the engine
    /// decides between them (D4).
    pub(super) fn objects(&self) -> Objects {
        let held = || self.sources.values().flat_map(|source| &source.held);
        let classes = held().filter_map(Held::class).cloned().collect();
        let runtime_classes = held().filter_map(Held::runtime_class).cloned().collect();
        let data = held().filter_map(Held::data).cloned().collect();
        Objects { classes, runtime_classes, data, pods: held().filter_map(Held::pod_document).collect() }
    }

    /// Until the old name of a renamed file counts as removed, its objects exist twice. This is not a conflict.
    pub(super) fn is_being_renamed(&self) -> bool {
        let is_leaving = |name: &OsString| matches!(self.waits.get(name), Some((_, Wait::Gone)));
        let (leaving, staying): (Vec<_>, Vec<_>) = self.sources.iter().partition(|(name, _)| is_leaving(name));
        let mut keys = leaving.iter().flat_map(|(_, source)| &source.held).map(Held::key).peekable();
        if keys.peek().is_none() {
            return false;
        }
        let staying: BTreeSet<Key> = staying.iter().flat_map(|(_, source)| &source.held).map(Held::key).collect();
        keys.any(|key| staying.contains(&key))
    }

    /// The engine has accepted these pods. Their records will contain their priorities.
    pub fn accept(&mut self, pods: &[AcceptedPod]) {
        let pods: BTreeMap<_, _> = pods.iter().map(|accepted| (version(&accepted.pod), accepted)).collect();
        for (name, source) in &mut self.sources {
            for held in &mut source.held {
                let accepted = held.new_pod().and_then(|pod| pods.get(&version(pod)));
                if let Some(accepted) = accepted.copied().cloned() {
                    held.thing = Thing::Accepted(accepted);
                    self.dirty.insert(name.clone());
                }
            }
        }
    }

    /// Replaces the problems between objects of all files.
    pub fn object_problems(&mut self, mut problems: Vec<Problem>, now: Now) {
        for name in self.sources.keys().cloned().collect::<Vec<_>>() {
            let shown = self.shown(&name);
            let mut of_file: Vec<Problem> = problems.extract_if(.., |problem| problem.path == shown).collect();
            of_file.sort_by_key(|problem| problem.document);
            self.standing.set(Some(&name), &shown, Kind::Class, of_file, now);
        }
    }
}

/// Identifies one version of one document.
fn version(pod: &Pod) -> (&Source, &str) {
    (&pod.source, &pod.digest)
}
