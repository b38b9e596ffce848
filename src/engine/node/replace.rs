//! Replaces running pods whose manifests changed (W8, D3).
//!
//! A successor needs the root directory for its files and its record. A running pod is therefore stopped only after its
//! own record has been written once more. While that fails (read-only directory, full disk), the pod continues to run,
//! a warning reports the error, and the write is retried with a back-off. A pod whose manifest was removed has no
//! successor and is stopped at once.

use super::Engine;
use crate::api::names::Uid;

impl Engine {
    /// Marks the pod as outdated. Returns true if it has to continue until its record has been written.
    pub(super) fn outdate(&mut self, uid: &Uid) -> bool {
        let mut waits = false;
        self.with_worker(uid, |worker, entry, _| waits = worker.outdate(entry));
        if waits {
            self.desired.outdated(uid);
            self.steps.touch(uid.clone());
            self.admission.room_changed();
        }
        waits
    }

    /// Terminates the outdated pods that may be replaced now. Returns true if there is at least one.
    pub(super) fn replace_outdated(&mut self) -> bool {
        let may_be_replaced = |uid: &Uid| self.workers.get(uid).is_none_or(|w| w.may_be_replaced());
        let ready = self.desired.take_replaced(may_be_replaced);
        for uid in &ready {
            let Some(worker) = self.workers.get(uid) else { continue };
            if worker.demand.successor.is_none() {
                self.undesire(uid);
                continue;
            }
            let name = worker.name.clone();
            self.with_worker(uid, |worker, entry, ctx| worker.replace(None, entry, ctx));
            self.outbox.publish(uid, &name);
            self.steps.touch(uid.clone());
        }
        !ready.is_empty()
    }
}
