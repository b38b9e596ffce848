//! Pod directories without a known pod, and when each one can be removed. They have two causes. If Wherry is killed
//! after it has created a pod's directory and before it has written the pod's record, and the manifest is removed
//! meanwhile, neither a record nor the runtime nor a manifest refers to the directory. After a cancelled
//! RunPodSandbox, the runtime may still create the pod's cgroup when everything else of the pod is gone; the empty
//! directory remains as a marker of this possibility. The marker remains even if Wherry is killed (W26).
//!
//! When the records, the runtime and the manifests have been read and no late cgroup can appear any more, the node
//! creates a worker that removes the directory together with the cgroup. A pod that returns meanwhile takes over the
//! directory.

use crate::api::names::{FullName, Uid};
use crate::api::reason::Reason;
use crate::api::time::Boot;
use crate::engine::effect::Severity;
use crate::engine::event::PodDirectory;
use crate::engine::outbox::Outbox;
use crate::engine::pod::worker::{LATE, Worker};
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Debug, Serialize)]
pub struct OrphanedDirectory {
    name: FullName,
    /// The path of a directory that was found at the start.
    path: Option<String>,
    due: Boot,
}

impl OrphanedDirectory {
    /// Passes the directory to the worker of a pod that is known after all.
    pub fn hand_over(self, worker: &mut Worker) {
        if self.path.is_some() {
            worker.volumes.has_directory();
        }
        worker.sandbox.may_be_late(self.due);
    }
}

#[derive(Debug, Default, Serialize)]
pub struct OrphanedDirectories {
    by_pod: BTreeMap<Uid, OrphanedDirectory>,
}

impl OrphanedDirectories {
    /// Stores the directories that were found at the start. `is_known`: the pod has a worker.
    pub fn found(&mut self, found: Vec<PodDirectory>, is_known: impl Fn(&Uid) -> bool, now: Boot) {
        // A call of a previous run may still be in progress, so a cgroup may still appear until this time.
        let due = now + LATE;
        for PodDirectory { uid, name, path } in found {
            if !is_known(&uid) {
                self.by_pod.insert(uid, OrphanedDirectory { name, path: Some(path), due });
            }
        }
    }

    /// Keeps the directory of a forgotten pod whose cgroup may still appear until `due`.
    pub fn keep(&mut self, uid: Uid, name: FullName, due: Boot) {
        self.by_pod.insert(uid, OrphanedDirectory { name, path: None, due });
    }

    /// Removes and returns the directory of a pod that has a worker again.
    pub fn take(&mut self, uid: &Uid) -> Option<OrphanedDirectory> {
        self.by_pod.remove(uid)
    }

    /// Takes the pods whose directories have to be removed now. `may_run`: the runtime has a pod with this UID, so
    /// its files stay.
    pub fn take_due(&mut self, may_run: impl Fn(&Uid) -> bool, now: Boot, outbox: &mut Outbox) -> Vec<(Uid, FullName)> {
        let due = self.by_pod.iter().filter(|(uid, orphan)| orphan.due <= now && !may_run(uid));
        let due: Vec<Uid> = due.map(|(uid, _)| uid.clone()).collect();
        let mut taken = Vec::new();
        for uid in due {
            let Some(orphan) = self.by_pod.remove(&uid) else { continue };
            if let Some(path) = orphan.path {
                let message = format!("{path} belongs to no known pod; removing it");
                outbox.emit_node_event(Severity::Warning, Reason::LeftoverDirectory, message);
            }
            taken.push((uid, orphan.name));
        }
        taken
    }

    /// Returns the earliest due time after `now`, the time of the last step. A directory that is due at `now` waits
    /// for the first list or the manifests, and each of these causes a step.
    pub fn next_deadline(&self, now: Boot) -> Option<Boot> {
        self.by_pod.values().map(|orphan| orphan.due).filter(|due| *due > now).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(uid: &str) -> PodDirectory {
        PodDirectory {
            uid: uid.into(),
            name: FullName::new("default", uid),
            path: format!("/var/lib/wherry/pods/{uid}"),
        }
    }

    fn due(orphans: &mut OrphanedDirectories, now: Boot) -> (Vec<String>, usize) {
        let mut outbox = Outbox::default();
        let due = orphans.take_due(|uid| uid.as_str() == "shared", now, &mut outbox);
        (due.into_iter().map(|(uid, _)| uid.to_string()).collect(), outbox.take().len())
    }

    #[test]
    fn w26_a_directory_without_a_pod_is_due_once_nothing_can_appear_late() {
        let mut orphans = OrphanedDirectories::default();
        let found = ["a", "known", "shared"].map(directory).to_vec();
        orphans.found(found, |uid| uid.as_str() == "known", Boot(0));
        orphans.keep("b".into(), FullName::new("default", "b"), Boot(0) + LATE * 2);
        assert_eq!(orphans.next_deadline(Boot(0)), Some(Boot(0) + LATE));
        assert_eq!(orphans.next_deadline(Boot(0) + LATE), Some(Boot(0) + LATE * 2));
        assert_eq!(due(&mut orphans, Boot(0)), (vec![], 0));
        // W21: the directory of a UID that another owner uses stays.
        assert_eq!(due(&mut orphans, Boot(0) + LATE), (vec!["a".into()], 1));
        assert_eq!(due(&mut orphans, Boot(0) + LATE * 2), (vec!["b".into()], 0), "the marker of this run is no news");
    }

    #[test]
    fn a_pod_that_returns_takes_its_directory_over() {
        let mut orphans = OrphanedDirectories::default();
        orphans.found(vec![directory("a")], |_| false, Boot(0));
        assert!(orphans.take(&"a".into()).is_some_and(|orphan| orphan.path.is_some()));
        assert_eq!(due(&mut orphans, Boot(0) + LATE), (vec![], 0));
    }
}
