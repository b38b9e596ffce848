//! Kills for causes other than the manifests, and their release (W5, W6, W27). Requests that arrive before the
//! sources have been read (D1) wait in `desired`.
//!
//! A drain applies to a full name: it also holds back a new version of the manifest and the pods that wait for the
//! name (W27). The drain is forgotten together with the last pod of that name.

use super::Engine;
use crate::api::names::{FullName, Uid};
use crate::api::ordered::CollectOrdered;
use crate::engine::desired::Early;
use crate::engine::effect::Effect;
use crate::engine::pod::kill::{Kill, KillId, TerminationSource};
use std::collections::BTreeSet;

impl Engine {
    pub(super) fn kill(&mut self, id: KillId, uid: Uid, kill: Kill) {
        if let Some(early) = self.desired.early() {
            return early.push(Early::Kill(id, uid, kill));
        }
        if !self.workers.contains_key(&uid) {
            // Nothing of the pod runs, or it is an orphan, which is stopped anyway.
            return self.outbox.push(Effect::Killed { id });
        }
        self.with_worker(&uid, |worker, entry, ctx| worker.kill_for(Some(id), &kill, entry, ctx));
        if let TerminationSource::Drain | TerminationSource::ApiEviction = kill.by {
            self.hold_those_behind(&uid, kill.by);
        }
        self.steps.touch(uid);
    }

    /// W27, A11: holds back the pods that wait for the name of a drained or evicted pod.
    fn hold_those_behind(&mut self, uid: &Uid, by: TerminationSource) {
        let Some(worker) = self.workers.get(uid).filter(|w| w.demand.waits_for.contains(&by)) else { return };
        let behind: Vec<Uid> = self.desired.names().behind(&worker.name, uid).cloned().collect();
        for uid in behind {
            self.hold_successor(&uid, by);
        }
    }

    pub(super) fn release(&mut self, by: TerminationSource, uids: Option<Vec<Uid>>) {
        if let Some(early) = self.desired.early() {
            return early.push(Early::Release(by, uids));
        }
        for uid in uids.unwrap_or_else(|| self.workers.keys().cloned().collect()) {
            self.with_worker(&uid, |worker, _, ctx| worker.release(by, ctx));
            self.steps.touch(uid);
        }
        // A9: a victim may now be waiting only for room, so admission evaluates it.
        self.admission.room_changed();
    }

    /// W6: returns true if the pod has to run again, but a cause other than its own termination still prevents it.
    pub fn is_held_back(&self, uid: &Uid) -> bool {
        self.workers.get(uid).is_some_and(|w| w.demand.is_held_back())
    }

    /// Returns true if only the pod's status remains.
    pub fn is_finished(&self, uid: &Uid) -> bool {
        self.workers.get(uid).is_some_and(|w| w.state.is_finished())
    }

    /// W27: returns the names whose new pods are held back.
    pub(super) fn drained_names(&self) -> BTreeSet<FullName> {
        self.workers.values().filter(|w| w.demand.is_drained()).map(|w| w.name.clone()).collect_set()
    }

    /// W27, A11: holds back a pod that follows a drained or evicted pod.
    pub(super) fn hold_successor(&mut self, uid: &Uid, by: TerminationSource) {
        let kill = Kill { by, message: None, grace: None };
        self.with_worker(uid, |worker, entry, ctx| worker.kill_for(None, &kill, entry, ctx));
        self.steps.touch(uid.clone());
    }

    /// Handles the requests that waited for the sources.
    pub(super) fn handle_early(&mut self, requests: Vec<Early>) {
        for request in requests {
            match request {
                Early::Kill(id, uid, kill) => self.kill(id, uid, kill),
                Early::Release(by, uids) => self.release(by, uids),
            }
        }
    }
}
