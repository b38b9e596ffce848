//! `ttlSecondsAfterFinished`: removes the manifest of a Job some time after its end. Its pods end with it (Y8).

use super::JobRun;
use super::phase::{JobPhase, Removal};
use crate::api::reason::Reason;
use crate::api::time::{Boot, Now};
use crate::engine::effect::{Effect, RemovedManifest, Severity};
use crate::engine::outbox::Outbox;
use crate::engine::owner::Owner;
use std::time::Duration;

/// *(ours)* A manifest that cannot be removed, or that is there again, is removed again after this time.
const RETRY: Duration = Duration::from_secs(600);

impl JobRun {
    /// Returns when the manifest has to be removed. The time since the end is that of the wall clock, as in a cluster.
    pub(super) fn expires(&self, now: Now) -> Option<Boot> {
        let JobPhase::Ended(_, ended) = self.phase else { return None };
        let left = self.job.ttl()?.saturating_sub(now.wall.since(ended));
        match &self.removal {
            Removal::NotBegun => Some(now.boot + left),
            Removal::InFlight { .. } => None,
            Removal::Ended { again, .. } => Some((*again).max(now.boot + left)),
        }
    }

    /// Begins to remove the manifest if it is time. (A CronJob removes its Jobs itself.)
    pub(super) fn expire(&mut self, now: Now, outbox: &mut Outbox) {
        if self.job.created_by.is_some() || self.expires(now).is_none_or(|at| at > now.boot) {
            return;
        }
        let head = &self.job.head;
        let (of, source, digest) = (head.key.clone(), head.source.clone(), head.digest.clone());
        let removed = RemovedManifest { of, source, digest };
        outbox.begin(Owner::ManifestRemoval(head.key.clone()), |op| Effect::RemoveManifest { op, removed });
        self.removal = match std::mem::take(&mut self.removal) {
            Removal::NotBegun => Removal::InFlight { failure: None },
            Removal::InFlight { failure } | Removal::Ended { failure, .. } => Removal::InFlight { failure },
        };
    }

    /// Handles the end of the removal. `failure`: why the manifest is still there.
    pub fn manifest_removed(&mut self, failure: Option<String>, now: Now, outbox: &mut Outbox) {
        let Removal::InFlight { failure: before } = std::mem::take(&mut self.removal) else { return };
        if let Some(why) = failure.as_ref().filter(|why| before.as_ref() != Some(why)) {
            let message = format!("cannot remove the manifest of the Job after ttlSecondsAfterFinished: {why}");
            outbox.emit(self.subject(), Severity::Warning, Reason::FailedDelete, message);
        }
        self.removal = Removal::Ended { failure, again: now.boot + RETRY };
        self.state.due = self.next_step(now);
    }
}
