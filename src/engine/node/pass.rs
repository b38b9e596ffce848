//! One pass of admission: which pods have a share of the node's room, and the decisions about the pods that request one
//! (A1 to A7).
//!
//! A pod takes room if it was admitted, if this pass admits it, if it waits, or if room is reserved for it: a pod that
//! starts again under its UID, or a pod of a previous run that does not request room yet. In each case a pod with a
//! share may be preempted for it, and starts again by A9 (`who_returns`).

use super::Engine;
use super::admission::Decision;
use crate::api::names::Uid;
use crate::api::pod::Pod;
use crate::api::priority::CRITICAL;
use crate::engine::admission::fit::{self, Insufficient};
use crate::engine::admission::node_snapshot::{NodeSnapshot, Verdict};
use crate::engine::admission::pod_requests::PodRequests;
use crate::engine::admission::preempt::{self, Candidate, may_preempt};
use crate::engine::admission::rejection;
use crate::engine::pod::kill::TerminationSource;
use crate::engine::pod::worker::{State, Worker};
use crate::engine::slots::READ_PATIENCE;
use std::rc::Rc;

/// Maximum number of pods that a message names.
const NAMED: usize = 3;

/// A pod that requests room, or that will request it once its worker starts again.
struct Asking<'a> {
    place: (bool, u64),
    worker: &'a Worker,
    /// The requests of the pod as which the worker starts again.
    then: Option<PodRequests>,
}

impl Asking<'_> {
    fn requests(&self) -> &PodRequests {
        self.then.as_ref().unwrap_or(&self.worker.requests)
    }
}

/// A share of the room. Its pod may be preempted.
#[derive(Clone, Copy)]
struct Share<'a> {
    worker: &'a Worker,
    requests: &'a PodRequests,
}

impl Engine {
    pub(super) fn look_at_all(&self) -> Vec<Decision> {
        let mut asking: Vec<Asking<'_>> = Vec::new();
        let mut ending: Vec<&Worker> = Vec::new();
        let mut held: Vec<&Worker> = Vec::new();
        let mut victims: Vec<&Worker> = Vec::new();
        for worker in self.workers.values() {
            let runs = || self.pleg.cache().get(&worker.uid).is_some_and(|e| e.running().next().is_some());
            match worker.state {
                State::Terminating(_) => ending.push(worker),
                // W8: its successor has its place.
                State::Sync(_) if worker.is_outdated() => ending.push(worker),
                State::Terminated(_) | State::Finished(_) | State::Forgotten(_) if runs() => ending.push(worker),
                // (A waiting pod can be admitted if it runs without a record, behind another pod of its name.)
                State::Waiting | State::Sync(_) if worker.is_admitted() => held.push(worker),
                State::Waiting | State::Sync(_) if worker.may_be_admitted() => {
                    let place = (!worker.was_begun(), worker.place);
                    asking.push(Asking { place, worker, then: None });
                }
                _ => {}
            }
            if let Some(requests) = worker.asks_then() {
                asking.push(Asking { place: (false, worker.place), worker, then: Some(requests) });
            } else if worker.demand.desired && worker.waits_only_for(TerminationSource::Preemption) {
                victims.push(worker);
            }
        }
        asking.sort_by_key(|a| a.place);
        let mut pass = Pass {
            engine: self,
            room: NodeSnapshot::new(&self.config.node),
            shares: Vec::new(),
            ending,
            doubtful: Vec::new(),
            decisions: Vec::new(),
        };
        for worker in held {
            pass.hold(Share { worker, requests: &worker.requests });
        }
        for worker in &pass.ending {
            pass.room.give_back(&worker.name, &worker.requests);
        }
        for one in &asking {
            if !pass.look_at(one) {
                return pass.decisions;
            }
        }
        if pass.decisions.is_empty() {
            pass.decisions.extend(self.who_returns(&pass.room, victims));
        }
        pass.decisions
    }
}

struct Pass<'a> {
    engine: &'a Engine,
    room: NodeSnapshot<'a>,
    /// In the order in which they were given.
    shares: Vec<Share<'a>>,
    ending: Vec<&'a Worker>,
    /// Pods that may take room: their status is unknown and may show that they have ended, or they wait for such a pod.
    doubtful: Vec<Share<'a>>,
    decisions: Vec<Decision>,
}

impl<'a> Pass<'a> {
    fn hold(&mut self, share: Share<'a>) {
        self.room.hold(share.requests);
        self.shares.push(share);
    }

    fn promise(&mut self, share: Share<'a>) {
        self.room.promise(&share.worker.name, share.requests);
        self.shares.push(share);
    }

    fn doubt(&mut self, share: Share<'a>) {
        self.room.doubt(&share.worker.name, share.requests);
        self.doubtful.push(share);
    }

    /// It started in a previous run, and its status has not been read yet.
    fn is_unread(&self, worker: &Worker) -> bool {
        self.engine.pleg.cache().get(&worker.uid).is_some_and(|e| worker.is_unread(e))
    }

    /// Evaluates the next pod. False if other pods are preempted for it; the next pass then evaluates the remaining
    /// pods.
    fn look_at(&mut self, one: &'a Asking<'a>) -> bool {
        let worker = one.worker;
        let share = Share { worker, requests: one.requests() };
        // A pod that starts after the end of another one: the same worker started again, or the successor of an edited
        // pod that still runs (W8).
        let begins_later = match &one.then {
            Some(_) => worker.demand.successor.as_ref(),
            None => worker.pod.as_ref().filter(|_| self.engine.follows_outdated(worker)),
        };
        if let Some(pod) = begins_later {
            // A pod that will be rejected later takes no room from others.
            let rejected = match self.room.look_at(pod, share.requests) {
                Verdict::Against { refusals, missing } => {
                    !refusals.is_empty() || victims(&missing, self.lower_than(share.requests)).is_none()
                }
                Verdict::Fits | Verdict::Later(_) => false,
            };
            if !rejected {
                self.promise(share);
            }
            return true;
        }
        if self.is_unread(worker) {
            // A4: it comes first. No pod is rejected because of a pod that may have ended; a pod that needs its room
            // waits.
            self.doubt(share);
            return true;
        }
        let Some(pod) = worker.pod.as_deref().filter(|_| worker.wants_room()) else {
            self.promise(share);
            return true;
        };
        match self.room.look_at(pod, share.requests) {
            Verdict::Fits if self.engine.has_its_name(worker) => {
                self.hold(share);
                self.decisions.push(Decision::Admit(worker.uid.clone()));
            }
            Verdict::Fits => self.promise(share),
            Verdict::Later(missing) => {
                if let Some(preempt) = self.instead_of_the_unreadable(pod, share.requests) {
                    return self.preempt(preempt);
                }
                let unread: Vec<&Worker> =
                    self.doubtful.iter().map(|s| s.worker).filter(|w| self.is_unread(w)).collect();
                let why = waits_for(&missing, &self.ending, &unread);
                if self.engine.has_its_name(worker) && !worker.waits_because(&why) {
                    self.decisions.push(Decision::Wait(worker.uid.clone(), why));
                }
                match unread.is_empty() {
                    true => self.promise(share),
                    false => self.doubt(share),
                }
            }
            Verdict::Against { refusals, missing } => {
                if refusals.is_empty()
                    && let Some(preempt) = victims(&missing, self.lower_than(share.requests))
                {
                    return self.preempt(preempt);
                }
                let preempts = share.requests.priority >= CRITICAL || self.lower_than(share.requests).next().is_some();
                let cause = rejection(&refusals, &missing, preempts);
                self.decisions.push(Decision::Reject(worker.uid.clone(), cause));
            }
        }
        true
    }

    /// Discards this pass's decisions about the victims. Always false.
    fn preempt(&mut self, (victims, signal): (Vec<Uid>, Rc<str>)) -> bool {
        self.decisions.retain(|d| !matches!(d, Decision::Admit(uid) | Decision::Wait(uid, _) if victims.contains(uid)));
        self.decisions.push(Decision::Preempt(victims, signal));
        false
    }

    /// A6: the shares that the pod may preempt.
    fn lower_than(&self, requests: &PodRequests) -> impl Iterator<Item = &Share<'a>> {
        let (preempts, priority) = (requests.preempts, requests.priority);
        self.shares.iter().filter(move |s| preempts && may_preempt(priority, s.requests.priority))
    }

    /// A4: a pod waits for a status that is being read. If the read fails or hangs, a pod that can preempt others does
    /// so instead.
    fn instead_of_the_unreadable(&self, pod: &Pod, requests: &PodRequests) -> Option<(Vec<Uid>, Rc<str>)> {
        let now = self.engine.now.boot;
        let fails = |s: &&Share<'_>| {
            let entry = self.engine.pleg.cache().get(&s.worker.uid);
            entry.is_some_and(|e| e.error.is_some() || e.hangs(now, READ_PATIENCE))
        };
        let (unread, waiting): (Vec<&Share<'_>>, Vec<&Share<'_>>) =
            self.doubtful.iter().partition(|s| self.is_unread(s.worker));
        let failing: Vec<&Share<'_>> = unread.into_iter().filter(fails).collect();
        if failing.is_empty() {
            return None;
        }
        let mut beside = self.room.clone();
        failing.iter().chain(&waiting).for_each(|s| beside.promise(&s.worker.name, s.requests));
        let of_waiting =
            waiting.into_iter().filter(|s| requests.preempts && may_preempt(requests.priority, s.requests.priority));
        match beside.look_at(pod, requests) {
            Verdict::Against { refusals, missing } if refusals.is_empty() => {
                victims(&missing, self.lower_than(requests).chain(of_waiting))
            }
            _ => None,
        }
    }
}

/// A7: the pods to preempt so that no resource is short, and the first short resource.
fn victims<'a>(missing: &[Insufficient], shares: impl Iterator<Item = &'a Share<'a>>) -> Option<(Vec<Uid>, Rc<str>)> {
    let candidates = shares.map(|s| Candidate {
        uid: &s.worker.uid,
        priority: s.requests.priority,
        qos: s.requests.qos,
        requests: &s.requests.resources,
        since: s.worker.start_time,
    });
    let victims = preempt::victims(&fit::shortages(missing), &candidates.collect::<Vec<_>>())?;
    Some((victims, missing.first().map_or_else(|| "".into(), |i| i.resource.as_str().into())))
}

/// A4: the message for people.
fn waits_for(missing: &[Insufficient], ending: &[&Worker], unread: &[&Worker]) -> String {
    let of_use = |w: &&&Worker| missing.is_empty() || missing.iter().any(|i| w.requests.resources.get(&i.resource) > 0);
    let names = |workers: &[&Worker]| {
        let who: Vec<String> = workers.iter().filter(of_use).map(|w| w.name.to_string()).collect();
        let names = who.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
        match who.len() {
            0 => None,
            n if n > NAMED => Some(format!("{names} and {} more", n - NAMED)),
            _ => Some(names),
        }
    };
    let ending = names(ending).map(|names| format!("{names} to end"));
    let unread = names(unread).map(|names| format!("the status of {names}"));
    let whom = ending.into_iter().chain(unread).collect::<Vec<_>>().join(", and for ");
    let what: Vec<String> = missing.iter().map(Insufficient::message).collect();
    let what = if what.is_empty() { "a host port is still in use".to_owned() } else { what.join("; ") };
    format!("waiting for {whom}: {what}")
}
