//! Cordons of the node and evictions through the API (A10, A11).

use super::Engine;
use crate::api::names::Uid;
use crate::engine::control::{LONGEST_GRACE, Reply, RequestError, RequestId};
use crate::engine::event::Answer;
use crate::engine::op::{OpError, OpId};
use crate::engine::pod::kill::{Kill, KillId, TerminationSource};
use crate::engine::pod::worker::Worker;
use std::time::Duration;

impl Engine {
    /// A10: returns true if the node is cordoned.
    pub fn is_cordoned(&self) -> bool {
        self.cordon.is_on()
    }

    pub(super) fn cordon(&mut self, id: RequestId, on: bool) -> Option<Result<Reply, RequestError>> {
        self.cordon.request(id, on, &mut self.outbox).map(|(_, answer)| answer.map(|on| Reply::Cordoned { on }))
    }

    pub(super) fn cordon_recorded(&mut self, op: OpId, result: Result<Answer, OpError>) {
        let (answers, changed) = self.cordon.answered(op, result.map(drop), &mut self.outbox);
        for (id, answer) in answers {
            self.answer(id, answer.map(|on| Reply::Cordoned { on }));
        }
        if changed {
            self.cordon_changed();
        }
    }

    fn cordon_changed(&mut self) {
        self.release_evicted();
        self.touch_all();
        self.admission.room_changed();
    }

    /// A11: lets evicted pods start again unless the node is cordoned.
    pub(super) fn release_evicted(&mut self) {
        let evicted = |w: &Worker| w.demand.is_evicted_through_api() && !self.cordon.is_on();
        let evicted: Vec<Uid> = self.workers.values().filter(|w| evicted(w)).map(|w| w.uid.clone()).collect();
        if !evicted.is_empty() {
            self.release(TerminationSource::ApiEviction, Some(evicted));
        }
    }

    /// A11: kills the pod. It starts again after it has ended, or on a cordoned node after `uncordon`.
    ///
    /// # Errors
    /// There is no such pod, the grace period is too long, or a disruption budget forbids it (Y32).
    pub(super) fn evict(
        &mut self,
        id: RequestId,
        uid: &Uid,
        grace: Option<Duration>,
    ) -> Result<Option<Reply>, RequestError> {
        self.check_pods(std::slice::from_ref(uid))?;
        if grace.is_some_and(|grace| grace > LONGEST_GRACE) {
            return Err(RequestError::GraceTooLong);
        }
        let Some(pod) = self.pod(uid).map(|view| view.pod.name.clone()) else {
            return Err(RequestError::UnknownPod(uid.clone()));
        };
        if let Some(refusal) = self.budget_refuses(uid) {
            return Err(RequestError::Budget(refusal));
        }
        let before = self.outbox.begun_records().len();
        // A pod that waits for `uncordon` runs nothing, so an eviction would change nothing.
        if !self.workers.get(uid).is_some_and(|worker| worker.admission.is_held_by_cordon(&worker.state)) {
            let kill = Kill { by: TerminationSource::ApiEviction, message: None, grace };
            self.kill(KillId::ApiEviction(pod.clone()), uid.clone(), kill);
            // W8: settle first. If the pod has been edited, this makes it undesired, so that its release starts no
            // successor under its own UID.
            self.settle_all();
            self.release_evicted();
            self.outbox.publish(uid, &pod);
            self.settle_all();
        }
        let reply = Reply::Evicted { pod };
        self.answer_durably(id, reply, std::slice::from_ref(uid), before)
    }
}
