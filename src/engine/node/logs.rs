//! Connects log rotation with the containers of the pods.

use super::Engine;
use crate::api::names::Uid;
use crate::engine::log_rotation::{LogRotation, RotationInputs};

impl Engine {
    pub(super) fn with_logs<T>(&mut self, f: impl FnOnce(&mut LogRotation, &mut RotationInputs<'_>) -> T) -> T {
        let mut inputs = RotationInputs {
            now: self.now.boot,
            policy: &self.config.log_rotation,
            request_timeout: self.config.request_timeout,
            outbox: &mut self.outbox,
        };
        f(&mut self.reclaim.logs, &mut inputs)
    }

    /// Updates the set of logs that are rotated, because the containers of the pod may have changed.
    pub(super) fn update_logs(&mut self, uid: &Uid) {
        let pod = self.workers.get(uid).and_then(|worker| worker.pod.clone());
        let Engine { reclaim, pleg, config, outbox, now, .. } = self;
        let containers = pleg.cache.get(uid).map_or(&[][..], |entry| &entry.facts().containers);
        let mut inputs = RotationInputs {
            now: now.boot,
            policy: &config.log_rotation,
            request_timeout: config.request_timeout,
            outbox,
        };
        reclaim.logs.update(uid, pod.as_ref(), containers, &mut inputs);
    }
}
