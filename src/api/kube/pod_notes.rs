//! Tracks which pods may have changed since they got their last versions.
//!
//! While no client is connected, nothing is compared and no state is kept. Only pods that a client may know are noted
//! then, so there are never more notes than there were pods at the end of the last connection. A later comparison
//! finds the pods that have appeared meanwhile.

use crate::api::names::FullName;
use crate::api::ordered::CollectOrdered;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, PartialEq)]
pub enum PodNotes {
    /// A client may be connected.
    Following {
        changed: BTreeSet<FullName>,
        /// The last state of terminating pods, for the watches that report their deletion.
        ending: BTreeMap<FullName, Value>,
    },
    /// No client is connected.
    Paused {
        /// Pods that a client may know.
        changed: BTreeSet<FullName>,
    },
}

impl Default for PodNotes {
    fn default() -> PodNotes {
        PodNotes::Paused { changed: BTreeSet::new() }
    }
}

impl PodNotes {
    /// Notes that the pod has changed. `is_known`: the pod has a version. `state`: returns the pod's state if it
    /// terminates.
    pub fn note(&mut self, name: &FullName, is_known: bool, state: impl FnOnce() -> Option<Value>) {
        match self {
            PodNotes::Following { changed, ending } => {
                changed.insert(name.clone());
                if let Some(state) = state() {
                    ending.insert(name.clone(), state);
                }
            }
            PodNotes::Paused { changed } if is_known => drop(changed.insert(name.clone())),
            PodNotes::Paused { .. } => {}
        }
    }

    /// Pauses, because the last client has disconnected.
    pub fn pause(&mut self) {
        if let PodNotes::Following { changed, .. } = self {
            *self = PodNotes::Paused { changed: std::mem::take(changed) };
        }
    }

    /// Resumes, because a client has connected. `present`: the pods that exist, with their states if they terminate.
    /// `known`: the pods that have versions. Returns false if a client was connected already.
    pub fn resume(
        &mut self,
        present: impl IntoIterator<Item = (FullName, Option<Value>)>,
        known: impl IntoIterator<Item = FullName>,
    ) -> bool {
        let PodNotes::Paused { changed } = self else { return false };
        let mut changed = std::mem::take(changed);
        let known: BTreeSet<FullName> = known.into_iter().collect_set();
        let (mut all, mut ending) = (BTreeSet::new(), BTreeMap::new());
        for (name, state) in present {
            if let Some(state) = state {
                ending.insert(name.clone(), state);
            }
            all.insert(name);
        }
        changed.extend(known.symmetric_difference(&all).cloned());
        *self = PodNotes::Following { changed, ending };
        true
    }

    /// Takes the pods that have to be compared. Empty while no client is connected.
    pub fn take(&mut self) -> BTreeSet<FullName> {
        match self {
            PodNotes::Following { changed, .. } => std::mem::take(changed),
            PodNotes::Paused { .. } => BTreeSet::new(),
        }
    }

    /// Takes the last state of a pod that is gone.
    pub fn last_state(&mut self, name: &FullName) -> Option<Value> {
        match self {
            PodNotes::Following { ending, .. } => ending.remove(name),
            PodNotes::Paused { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn name(name: &str) -> FullName {
        FullName::new("default", name)
    }

    fn names(all: &[&str]) -> BTreeSet<FullName> {
        all.iter().map(|n| name(n)).collect()
    }

    fn present(all: &[&str]) -> Vec<(FullName, Option<Value>)> {
        all.iter().map(|n| (name(n), None)).collect()
    }

    #[test]
    fn a_connected_client_gets_each_change_and_the_last_state_of_a_pod() {
        let mut notes = PodNotes::default();
        assert!(notes.resume(present(&["a"]), []));
        assert_eq!(notes.take(), names(&["a"]), "the first client knows nothing");
        assert!(!notes.resume(present(&["a", "b"]), names(&["a"])), "it is connected already");
        notes.note(&name("b"), false, || None);
        notes.note(&name("a"), true, || Some(json!(1)));
        notes.note(&name("a"), true, || Some(json!(2)));
        assert_eq!(notes.take(), names(&["a", "b"]));
        assert_eq!(notes.last_state(&name("a")), Some(json!(2)));
        assert_eq!((notes.last_state(&name("a")), notes.take()), (None, names(&[])));
    }

    #[test]
    fn changes_without_a_client_are_found_when_the_next_one_connects() {
        let mut notes = PodNotes::default();
        notes.resume(present(&["gone", "same", "changed"]), []);
        notes.take();
        notes.note(&name("gone"), true, || Some(json!("ends")));
        notes.pause();
        notes.note(&name("changed"), true, || panic!("no state is kept"));
        assert_eq!((notes.take(), notes.last_state(&name("gone"))), (names(&[]), None));
        let now =
            [(name("changed"), None), (name("new"), None), (name("same"), None), (name("ending"), Some(json!(3)))];
        assert!(notes.resume(now, names(&["gone", "same", "changed", "ending"])));
        assert_eq!(notes.take(), names(&["changed", "gone", "new"]));
        assert_eq!(notes.last_state(&name("ending")), Some(json!(3)));
    }

    #[test]
    fn notes_without_a_client_are_limited_by_the_known_pods() {
        let mut notes = PodNotes::default();
        notes.resume(present(&["a"]), []);
        notes.take();
        notes.pause();
        for n in 0..10_000 {
            notes.note(&name(&n.to_string()), false, || panic!("no state is kept"));
            notes.note(&name("a"), true, || panic!("no state is kept"));
        }
        assert_eq!(notes, PodNotes::Paused { changed: names(&["a"]) });
    }
}
