//! Directories of pods that nobody knows. A kill between making a pod's directory and its record, and the pod gone from the
//! desired set meanwhile: neither a record, nor the runtime, nor a manifest tells of it. And where a call for a sandbox was
//! given up, the runtime may make the pod's cgroup when all else of the pod is gone: its empty directory stays as the mark of
//! that, over a kill too.
//!
//! Once all three have been asked, and nothing can turn up late any more, it is removed with the cgroup, by a worker, so that
//! it is in nobody's way should the pod come back.

use super::Engine;
use crate::api::names::{FullName, Uid};
use crate::api::time::Boot;
use crate::engine::effect::{Effect, Notice, Severity, TimerKey};
use crate::engine::event::PodDirectory;
use crate::engine::pleg::cache::Entry;
use crate::engine::pod::worker::{LATE, Worker};
use serde::Serialize;

#[derive(Debug, Serialize)]
pub(super) struct OrphanedDirectory {
    name: FullName,
    /// Of one that was found at start.
    path: Option<String>,
    due: Boot,
}

impl OrphanedDirectory {
    /// Of a pod that is gone but for what may turn up until `due`.
    pub fn of_this_life(name: FullName, due: Boot) -> OrphanedDirectory {
        OrphanedDirectory { name, path: None, due }
    }

    /// The pod is known after all: what its worker has to know.
    pub fn hand_over(self, worker: &mut Worker) {
        if self.path.is_some() {
            worker.has_directory();
        }
        worker.may_be_late(self.due);
    }
}

impl Engine {
    pub(super) fn take_directories(&mut self, found: Vec<PodDirectory>) {
        // What an earlier life asked for may be under way.
        let due = self.now.boot + LATE;
        for PodDirectory { uid, name, path } in found {
            if !self.workers.contains_key(&uid) {
                self.directories.insert(uid, OrphanedDirectory { name, path: Some(path), due });
            }
        }
    }

    pub(super) fn remove_orphaned_directories(&mut self) {
        if self.directories.is_empty() || !self.sources_ready || !self.pleg.was_compared() {
            return;
        }
        let now = self.now.boot;
        // W21: what belongs to the UID stays as long as others have it.
        let due = self.directories.iter().filter(|(uid, l)| l.due <= now && !self.pleg.shares(uid));
        let due: Vec<Uid> = due.map(|(uid, _)| uid.clone()).collect();
        for uid in due {
            let Some(orphan) = self.directories.remove(&uid) else { continue };
            if let Some(path) = orphan.path {
                self.out.push(Effect::Notice(Notice {
                    pod: None,
                    container: None,
                    severity: Severity::Warning,
                    reason: "LeftoverDirectory",
                    message: format!("{path} is of no pod that is known: it is removed"),
                }));
            }
            // The runtime has nothing of it that is ours.
            self.insert_worker(
                &uid,
                Entry::empty(self.generation),
                Worker::leftover(uid.clone(), orphan.name, self.now),
            );
            self.dirty.insert(uid);
        }
    }

    pub(super) fn arm_orphaned_directories(&mut self) {
        let at = self.directories.values().map(|l| l.due.max(self.now.boot)).min();
        // Those that are due wait for the first list and the manifests, which make a step themselves.
        let at = at.filter(|at| *at > self.now.boot);
        if at != self.leftovers_armed {
            self.leftovers_armed = at;
            self.out.push(Effect::Timer { key: TimerKey::Leftovers, at });
        }
    }
}
