//! Admission (A): runs a pass (`pass`) over the pods that request room, and carries out its decisions (A6 to A8).
//! Restarts victims of preemption when there is room (A9).
//!
//! A pass covers all workers and ends at the first preemption; another pass evaluates the changed state. There is no
//! pass while no pod requests room and nothing changes.

use super::Engine;
use crate::api::names::Uid;
use crate::api::node_facts::NodeFacts;
use crate::api::pod::Pod;
use crate::api::qos::Qos;
use crate::api::reason::Reason;
use crate::api::resources::{CPU, Resources};
use crate::api::time::Boot;
use crate::engine::admission::node_snapshot::{NodeSnapshot, Verdict};
use crate::engine::admission::out_of_pods;
use crate::engine::admission::pod_requests::PodRequests;
use crate::engine::context::Owner;
use crate::engine::effect::{CgroupCall, Effect, Measure, Severity, TimerKey};
use crate::engine::event::Answer;
use crate::engine::op::OpError;
use crate::engine::pod::kill::{Kill, TerminationSource};
use crate::engine::pod::record::{Preempted, Record};
use crate::engine::pod::status::Cause;
use crate::engine::pod::worker::{State, Worker};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// A9: the minimum time between two attempts to restart a victim.
const RETURN_AFTER: Duration = Duration::from_secs(30);

/// The state of admission that is not part of the workers.
#[derive(Debug, Default, Serialize)]
pub struct Admitting {
    /// A change may have freed or taken room.
    stale: bool,
    /// The place of the last pod that requested room (A1).
    last_place: u64,
    /// A8: victims that have not stopped yet, each with the resource that was short.
    victims: BTreeMap<Uid, Rc<str>>,
    /// A9: when a victim was killed or last restarted.
    tried: BTreeMap<Uid, Boot>,
    armed: Option<Boot>,
    /// Pods added in this step.
    pub(super) new: Vec<Uid>,
    /// The requests behind the current CPU weight of the burstable class, in milli-CPU. None if the weight has not been
    /// set, or setting it failed.
    cpu_weight_set: Option<u64>,
}

/// A result of a pass. It is carried out after the pass.
pub(super) enum Decision {
    Admit(Uid),
    Wait(Uid, String),
    Reject(Uid, Cause),
    /// A8: the victims, and the first resource that is short.
    Preempt(Vec<Uid>, Rc<str>),
    /// A9: this victim starts again.
    Return(Uid),
}

impl Engine {
    /// A1: the place of a new worker: behind all others, or the place of its predecessor.
    pub(super) fn next_place(&mut self, worker: &Worker) -> u64 {
        let before = self.desired.names().pods(&worker.name);
        let inherited =
            before.filter_map(|uid| self.workers.get(uid)).filter(|w| w.pod.is_some()).map(|w| w.place).min();
        inherited.unwrap_or_else(|| {
            self.admitting.last_place += 1;
            self.admitting.last_place
        })
    }

    /// A4: records when each new pod was first seen. This follows its admission, so that one write covers both.
    pub(super) fn record_the_new(&mut self) {
        for uid in std::mem::take(&mut self.admitting.new) {
            self.with_worker(&uid, |worker, _, ctx| worker.keep_record(ctx));
        }
    }

    /// Room has been freed or taken: the next step runs a pass.
    pub(super) fn room_changed(&mut self) {
        self.admitting.stale = true;
    }

    /// A3: a user requests a retry of a rejected pod.
    pub(super) fn retry(&mut self, uid: &Uid) {
        let Some(worker) = self.workers.get_mut(uid) else { return };
        if worker.rejection().is_none() || worker.is_rejected_for_now() {
            return;
        }
        self.admitting.last_place += 1;
        worker.place = self.admitting.last_place;
        self.with_worker(uid, |worker, _, ctx| worker.ask_again(ctx));
        self.dirty.insert(uid.clone());
    }

    /// Starts a worker that has its name and was admitted, or that runs already.
    pub(super) fn begin(&mut self, uid: &Uid) -> bool {
        let begins = self.may_begin(uid)
            && self.workers.get_mut(uid).is_some_and(|w| {
                let ready = w.is_admitted() || w.was_begun() && w.rejection().is_none();
                ready && w.begin()
            });
        if begins {
            self.dirty.insert(uid.clone());
        }
        self.room_changed();
        begins
    }

    /// Admits a pod that runs already, and gives it its name.
    pub(super) fn adopt(&mut self, uid: &Uid) {
        // The record is out of date: the pod was retried after its rejection, and the new record could not be written.
        if self.workers.get(uid).is_some_and(|w| w.rejection().is_some()) {
            self.with_worker(uid, |worker, _, ctx| worker.ask_again(ctx));
        }
        if let Some(worker) = self.workers.get_mut(uid) {
            worker.admit();
        }
        self.put_first(uid);
        if self.workers.get(uid).is_some_and(|w| self.has_its_name(w)) {
            self.begin(uid);
        }
    }

    /// Runs a pass over the pods that request room. True if there is more to step or to evaluate.
    pub(super) fn admit(&mut self) -> bool {
        if !self.desired.is_known() {
            return false;
        }
        if !self.pleg.was_compared() {
            return self.reject_before_the_first_list();
        }
        let asked = self.workers.values().any(|w| w.may_be_admitted());
        if !asked && !std::mem::take(&mut self.admitting.stale) {
            return false;
        }
        self.count_victims();
        if self.shutdown.is_on() {
            return false;
        }
        let decisions = self.look_at_all();
        let any = !decisions.is_empty();
        for decision in decisions {
            self.decide(decision);
        }
        self.set_cpu_weight();
        any
    }

    /// A9: the victim that starts again now, if any. In order, each victim keeps its room from the later ones if it
    /// fits or will fit once the terminating pods are gone, even if it was killed less than 30 s ago. A victim that
    /// does not fit in addition to the pods that stay keeps no room.
    pub(super) fn who_returns(&self, room: &NodeSnapshot<'_>, victims: Vec<&Worker>) -> Option<Decision> {
        // A victim may have been edited meanwhile under the same UID.
        let asking = victims.into_iter().filter_map(|w| match (w.demand.successor.as_deref(), w.pod.as_deref()) {
            (Some(then), _) => Some((w, then, Rc::new(PodRequests::of(then)))),
            (None, pod) => Some((w, pod?, w.requests.clone())),
        });
        let mut asking: Vec<(&Worker, &Pod, Rc<PodRequests>)> = asking.collect();
        asking.sort_by_key(|(w, _, requests)| (Reverse(requests.priority), w.start_time));
        let mut room = room.clone();
        for (worker, pod, requests) in asking {
            match room.look_at(pod, &requests) {
                Verdict::Against { .. } => {}
                Verdict::Fits if worker.is_finished() && self.may_return_at(worker) <= self.now.boot => {
                    return Some(Decision::Return(worker.uid.clone()));
                }
                Verdict::Fits | Verdict::Later(_) => room.promise(&worker.name, &requests),
            }
        }
        None
    }

    /// A2: rejects the pods beyond `maxPods` before the first list. Pods of a previous run do not count against them.
    /// Other rejections wait for the list. If a pod without a record may be running, nothing is certain and none is
    /// rejected.
    fn reject_before_the_first_list(&mut self) -> bool {
        if !std::mem::take(&mut self.admitting.stale) || self.shutdown.is_on() {
            return false;
        }
        if self.workers.values().any(|w| w.never_began() && w.had_directory()) {
            return false;
        }
        let mut decisions = self.look_at_all();
        decisions.retain(|d| matches!(d, Decision::Reject(_, cause) if cause.reason == out_of_pods()));
        let any = !decisions.is_empty();
        for decision in decisions {
            self.decide(decision);
        }
        any
    }

    fn may_return_at(&self, worker: &Worker) -> Boot {
        self.admitting.tried.get(&worker.uid).map_or(Boot(0), |at| *at + RETURN_AFTER)
    }

    pub(super) fn has_its_name(&self, worker: &Worker) -> bool {
        self.desired.names().is_first(&worker.name, &worker.uid)
    }

    fn decide(&mut self, decision: Decision) {
        match decision {
            Decision::Admit(uid) => {
                if let Some(worker) = self.workers.get_mut(&uid) {
                    worker.admit();
                }
                self.begin(&uid);
                self.dirty.insert(uid);
            }
            Decision::Wait(uid, why) => {
                if let Some(worker) = self.workers.get_mut(&uid) {
                    worker.wait_for_room(why);
                }
                self.dirty.insert(uid);
            }
            Decision::Reject(uid, cause) => {
                self.with_worker(&uid, |worker, _, ctx| worker.reject(cause, ctx));
                self.dirty.insert(uid);
            }
            Decision::Preempt(victims, signal) => {
                for uid in victims {
                    if let Some(worker) = self.workers.get_mut(&uid) {
                        worker.preempted = Some(Preempted { at: self.now.wall, signal: signal.clone() });
                    }
                    let kill = Kill { by: TerminationSource::Preemption, message: None, grace: None };
                    self.with_worker(&uid, |worker, entry, ctx| worker.kill_for(None, &kill, entry, ctx));
                    self.admitting.victims.insert(uid.clone(), signal.clone());
                    self.admitting.tried.insert(uid.clone(), self.now.boot);
                    self.dirty.insert(uid);
                }
            }
            Decision::Return(uid) => {
                self.admitting.tried.insert(uid.clone(), self.now.boot);
                self.release(TerminationSource::Preemption, Some(vec![uid]));
            }
        }
    }

    /// Restores a victim from a record of a previous run, so that it is counted and restarted.
    pub(super) fn remember_victim(&mut self, record: &Record) {
        let Some(of) = record.preempted.as_ref().filter(|_| record.waits_for.contains(&TerminationSource::Preemption))
        else {
            return;
        };
        let uid = &record.pod.uid;
        if record.termination.is_some() && record.terminal.is_none() {
            self.admitting.victims.insert(uid.clone(), of.signal.clone());
        }
        // If the clock was set back, wait at most the whole period from now.
        let ago = u64::try_from(self.now.wall.since(of.at).as_nanos()).unwrap_or(u64::MAX);
        let at = Boot(self.now.boot.0.saturating_sub(ago));
        self.admitting.tried.insert(uid.clone(), at);
    }

    /// A8: counts each victim once it has stopped.
    fn count_victims(&mut self) {
        let Engine { workers, admitting, outbox, .. } = self;
        admitting.victims.retain(|uid, signal| {
            let stopped = workers.get(uid).is_none_or(Worker::is_over);
            if stopped {
                outbox.measure(Measure::Preempted { signal: signal.clone() });
            }
            !stopped
        });
    }

    /// A9: sets the timer for the next restart of a victim.
    pub(super) fn arm_returns(&mut self) {
        let now = self.now.boot;
        self.admitting.tried.retain(|uid, at| *at + RETURN_AFTER > now && self.workers.contains_key(uid));
        let at = self.admitting.tried.values().map(|at| *at + RETURN_AFTER).min();
        if at != self.admitting.armed {
            self.admitting.armed = at;
            self.outbox.push(Effect::Timer { key: TimerKey::Admission, at });
        }
    }

    pub(super) fn admission_timer(&mut self) {
        self.admitting.armed = None;
        self.room_changed();
    }

    /// Sets the CPU weight of the burstable class to the sum of the requests of its pods.
    fn set_cpu_weight(&mut self) {
        let burstable = self.workers.values().filter(|w| w.requests.qos == Qos::Burstable && is_here(w));
        let sum = burstable.map(|w| w.requests.resources.get(CPU)).fold(0, u64::saturating_add);
        if self.admitting.cpu_weight_set != Some(sum) {
            self.admitting.cpu_weight_set = Some(sum);
            let op = self.outbox.ops.begin(Owner::Cgroups);
            self.outbox.push(Effect::Cgroup { op, call: CgroupCall::SetCpuWeight { burstable: sum } });
        }
    }

    pub(super) fn cpu_weight_set(&mut self, result: Result<Answer, OpError>) {
        if let Err(e) = result {
            // The next change retries.
            self.admitting.cpu_weight_set = None;
            let message = format!("failed to set the CPU weight of the burstable cgroup: {e}");
            self.outbox.tell_of_node(Severity::Warning, Reason::FailedCgroup, message);
        }
    }

    /// The capacity of the node, and the sum of the requests of the admitted pods.
    pub fn node(&self) -> (&NodeFacts, Resources) {
        let mut requested = Resources::default();
        self.workers.values().filter(|w| is_here(w)).for_each(|w| requested.add(&w.requests.resources));
        (&self.config.node, requested)
    }
}

/// A1: admitted, and not known to be terminated.
fn is_here(worker: &Worker) -> bool {
    match worker.state {
        State::Terminating(_) => true,
        State::Sync(_) => worker.is_admitted(),
        State::Waiting | State::Terminated(_) | State::Finished(_) | State::Forgotten(_) => false,
    }
}
