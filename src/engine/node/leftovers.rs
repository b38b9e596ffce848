//! Directories of pods that nobody knows. A kill between making a pod's directory and its record, and the pod gone from the
//! desired set meanwhile: neither a record, nor the runtime, nor a manifest tells of it. Once all three have been asked it
//! is removed, by a worker, so that it is in nobody's way should the pod come back.

use super::Engine;
use crate::engine::effect::{Effect, Notice, Severity};
use crate::engine::event::PodDirectory;
use crate::engine::pleg::cache::Entry;
use crate::engine::pod::worker::Worker;

impl Engine {
    pub(super) fn take_directories(&mut self, found: Vec<PodDirectory>) {
        let unknown = found.into_iter().filter(|d| !self.workers.contains_key(&d.uid));
        self.directories.extend(unknown.map(|d| (d.uid.clone(), d)));
    }

    pub(super) fn clear_leftovers(&mut self) {
        if self.directories.is_empty() || !self.sources_ready || !self.pleg.was_compared() {
            return;
        }
        for (uid, found) in std::mem::take(&mut self.directories) {
            self.out.push(Effect::Notice(Notice {
                pod: None,
                container: None,
                severity: Severity::Warning,
                reason: "LeftoverDirectory",
                message: format!("{} is of no pod that is known: it is removed", found.path),
            }));
            // The runtime has nothing of it that is ours; what is not ours is not looked at.
            self.insert_worker(&uid, Entry::empty(self.turn), Worker::leftover(uid.clone(), found.name, self.now));
            self.dirty.insert(uid);
        }
    }
}
