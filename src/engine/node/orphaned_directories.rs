//! Pod directories without a known pod. They have two causes. If Wherry is killed between the creation of a pod's
//! directory and its record, and the manifest is removed meanwhile, neither a record nor the runtime nor a manifest
//! refers to the directory. And after a cancelled RunPodSandbox the runtime may still create the pod's cgroup when
//! everything else of the pod is gone; the empty directory remains as a marker for that, also over a kill (W26).
//!
//! When all three have been read and nothing can appear late any more, a worker removes the directory together with the
//! cgroup. A pod that returns meanwhile takes the directory over.

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
    /// The path of a directory that was found at the start.
    path: Option<String>,
    due: Boot,
}

impl OrphanedDirectory {
    /// For a forgotten pod whose cgroup may still appear until `due`.
    pub fn of_this_life(name: FullName, due: Boot) -> OrphanedDirectory {
        OrphanedDirectory { name, path: None, due }
    }

    /// Passes the directory to the worker of a pod that is known after all.
    pub fn hand_over(self, worker: &mut Worker) {
        if self.path.is_some() {
            worker.has_directory();
        }
        worker.may_be_late(self.due);
    }
}

impl Engine {
    pub(super) fn take_directories(&mut self, found: Vec<PodDirectory>) {
        // A call of a previous run may still be in progress.
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
        // W21: the files of the UID stay while another owner uses it.
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
                    message: format!("{path} belongs to no known pod; removing it"),
                }));
            }
            // The runtime has nothing of ours for this UID.
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
        // A directory that is due waits for the first list or the manifests. Each of them causes a step.
        let at = at.filter(|at| *at > self.now.boot);
        if at != self.leftovers_armed {
            self.leftovers_armed = at;
            self.out.push(Effect::Timer { key: TimerKey::Leftovers, at });
        }
    }
}
