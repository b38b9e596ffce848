//! The node's side of admission (`engine/admission`): runs its passes, and carries out their decisions on the workers
//! (A6 to A9).

use super::Engine;
use super::cluster::with_own;
use crate::api::names::Uid;
use crate::api::node_facts::NodeFacts;
use crate::api::resources::Resources;
use crate::engine::admission::Admission;
use crate::engine::admission::pass::{Decision, Input};
use crate::engine::admission::room;
use crate::engine::pod::kill::{Kill, TerminationSource};
use crate::engine::pod::record::Preempted;
use std::borrow::Cow;

impl Engine {
    /// A4: records when each new pod was first seen. This runs after admission, so that one write covers both.
    pub(super) fn record_added(&mut self) {
        for uid in self.admission.take_added() {
            self.with_worker(&uid, |worker, _, _| worker.record.keep());
        }
    }

    /// A3: retries the admission of a rejected pod at a user's request.
    pub(super) fn retry(&mut self, uid: &Uid) {
        let Some(worker) = self.workers.get_mut(uid) else { return };
        if worker.admission.rejection().is_none() || worker.admission.is_rejected_for_now(worker.pod.as_ref()) {
            return;
        }
        worker.admission.place = self.admission.next_place();
        self.with_worker(uid, |worker, _, _| worker.reopen_admission());
        self.steps.touch(uid.clone());
    }

    /// Starts a worker that holds its full name and is admitted, or whose pod already runs. Returns true if the
    /// worker starts now.
    pub(super) fn begin(&mut self, uid: &Uid) -> bool {
        let begins = self.may_begin(uid)
            && self.workers.get_mut(uid).is_some_and(|w| {
                let ready = w.admission.is_admitted() || !w.history.waiting && w.admission.rejection().is_none();
                ready && w.begin()
            });
        if begins {
            self.steps.touch(uid.clone());
        }
        self.admission.room_changed();
        begins
    }

    /// Admits a pod that already runs, and gives it its full name.
    pub(super) fn adopt(&mut self, uid: &Uid) {
        // The record is out of date: the pod was retried after its rejection, and the new record could not be written.
        if self.workers.get(uid).is_some_and(|w| w.admission.rejection().is_some()) {
            self.with_worker(uid, |worker, _, _| worker.reopen_admission());
        }
        if let Some(worker) = self.workers.get_mut(uid) {
            worker.admit();
        }
        self.put_first(uid);
        if self.workers.get(uid).is_some_and(|w| self.desired.names().is_first(&w.name, uid)) {
            self.begin(uid);
        }
    }

    /// Runs a pass over the pods that request room. Returns true if there is more to step or to evaluate.
    pub(super) fn admit(&mut self) -> bool {
        if !self.desired.is_known() {
            return false;
        }
        let facts = with_own(&self.config.node, &self.cluster);
        let node = self.shared.devices.with_devices(&facts);
        let input = Input {
            now: self.now.boot,
            node: &node,
            workers: &self.workers,
            names: self.desired.names(),
            cache: &self.pleg.cache,
            pressure: self.reclaim.eviction.pressure(),
            devices: &self.shared.devices,
            cordoned: self.cordon.is_on(),
            configured: &self.config.node.allocatable,
        };
        let shutting_down = self.shutdown.is_on();
        if !self.pleg.was_compared() {
            let decisions = self.admission.reject_before_first_list(input, shutting_down);
            return self.carry_out(decisions);
        }
        let Some(decisions) = self.admission.step(input, shutting_down, &mut self.outbox) else { return false };
        let any = self.carry_out(decisions);
        self.admission.cpu_weight.update(&self.workers, &mut self.outbox);
        any
    }

    /// Carries out the decisions. Returns true if there is at least one.
    fn carry_out(&mut self, decisions: Vec<Decision>) -> bool {
        let any = !decisions.is_empty();
        for decision in decisions {
            self.decide(decision);
        }
        any
    }

    fn decide(&mut self, decision: Decision) {
        match decision {
            Decision::Admit(uid) => {
                if let Some(worker) = self.workers.get_mut(&uid) {
                    worker.admit();
                }
                self.begin(&uid);
                self.steps.touch(uid);
            }
            Decision::Wait(uid, why) => {
                if let Some(worker) = self.workers.get_mut(&uid) {
                    worker.wait_for(Admission::Waits(why));
                }
                self.steps.touch(uid);
            }
            Decision::Hold(uid) => {
                if let Some(worker) = self.workers.get_mut(&uid) {
                    worker.wait_for(Admission::Cordoned);
                }
                self.steps.touch(uid);
            }
            Decision::Reject(uid, cause) => {
                self.with_worker(&uid, |worker, _, ctx| worker.reject(cause, ctx));
                self.steps.touch(uid);
            }
            Decision::Preempt(victims, signal) => {
                for uid in victims {
                    if let Some(worker) = self.workers.get_mut(&uid) {
                        worker.history.preempted = Some(Preempted { at: self.now.wall, signal: signal.clone() });
                    }
                    let kill = Kill { by: TerminationSource::Preemption, message: None, grace: None };
                    self.with_worker(&uid, |worker, entry, ctx| worker.kill_for(None, &kill, entry, ctx));
                    self.steps.touch(uid);
                }
            }
            Decision::Resize(uid) => {
                self.with_worker(&uid, |worker, entry, ctx| worker.begin_resize(entry, ctx));
                self.admission.room_changed();
                self.steps.touch(uid);
            }
            Decision::PostponeResize(uid, verdict) => {
                self.with_worker(&uid, |worker, _, ctx| {
                    worker.in_place.resize.postpone(worker.pod.as_ref(), verdict, ctx)
                });
                self.steps.touch(uid);
            }
            Decision::Restart(uid) => self.release(TerminationSource::Preemption, Some(vec![uid])),
        }
    }

    /// Returns the facts of the node, which include its capacity, and the sum of the admitted pods' requests.
    pub fn node(&self) -> (Cow<'_, NodeFacts>, Resources) {
        let node = match with_own(&self.config.node, &self.cluster) {
            Cow::Borrowed(node) => self.shared.devices.with_devices(node),
            Cow::Owned(node) => Cow::Owned(self.shared.devices.with_devices(&node).into_owned()),
        };
        (node, room::requested(&self.workers))
    }
}
