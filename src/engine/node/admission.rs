//! What the node takes (A): looks at the pods that ask for room in their order, admits, lets wait or rejects them, has others
//! killed for those that may push them out (A6 to A8), and lets these come back when there is room (A9).
//!
//! A pass goes over all workers and ends at the first preemption; what it changes is looked at by another one. Without a pod
//! that asks, and without a change of what is there, there is none.

use super::Engine;
use crate::api::names::Uid;
use crate::api::node::NodeFacts;
use crate::api::pod::Pod;
use crate::api::priority::CRITICAL;
use crate::api::qos::Qos;
use crate::api::resources::{CPU, Resources};
use crate::api::time::Boot;
use crate::engine::admission::asks::Asks;
use crate::engine::admission::fit::{self, Insufficient};
use crate::engine::admission::preempt::{self, Candidate, may_preempt};
use crate::engine::admission::rejection;
use crate::engine::admission::room::{Room, Verdict};
use crate::engine::context::Owner;
use crate::engine::effect::{CgroupCall, Effect, Measure, Severity, TimerKey};
use crate::engine::event::Answer;
use crate::engine::op::OpError;
use crate::engine::pod::kill::{Kill, Killer};
use crate::engine::pod::record::{Preempted, Record};
use crate::engine::pod::status::Cause;
use crate::engine::pod::worker::{State, Worker};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// A9: a victim is not tried again sooner.
const RETURN_AFTER: Duration = Duration::from_secs(30);
/// As many pods are named in a message.
const NAMED: usize = 3;

/// What the node remembers of it besides what stands in the workers.
#[derive(Debug, Default, Serialize)]
pub struct Admitting {
    /// Something changed that may make room, or takes some.
    stale: bool,
    /// The place of the pod that asked last (A1).
    last_place: u64,
    /// A8: victims that have not stopped yet, and the resource that was short.
    victims: BTreeMap<Uid, Rc<str>>,
    /// A9: when victims were killed or tried last.
    tried: BTreeMap<Uid, Boot>,
    armed: Option<Boot>,
    /// New in this step.
    pub(super) new: Vec<Uid>,
    /// What the burstable class was last weighed with, in milli-CPU; None: not yet, or it failed.
    weighed: Option<u64>,
}

/// What a pass found; carried out after it.
enum Decision {
    Admit(Uid),
    Wait(Uid, String),
    Reject(Uid, Cause),
    /// A8: these go for it; the first resource that is short.
    Preempt(Vec<Uid>, Rc<str>),
    /// A9
    Return(Uid),
}

/// Who asks for room: a pod that waits, or what a worker starts anew as.
struct Asking<'a> {
    place: (bool, u64),
    worker: &'a Worker,
    /// What it starts anew as.
    then: Option<Asks>,
}

impl Engine {
    /// A1: the place of a new worker: behind all others, or its predecessor's.
    pub(super) fn next_place(&mut self, worker: &Worker) -> u64 {
        let before = self.names.get(&worker.name).into_iter().flatten();
        let inherited =
            before.filter_map(|uid| self.workers.get(uid)).filter(|w| w.pod.is_some()).map(|w| w.place).min();
        inherited.unwrap_or_else(|| {
            self.admitting.last_place += 1;
            self.admitting.last_place
        })
    }

    /// A4: when a pod was first seen, once it is known whether it begins: one record says both.
    pub(super) fn record_the_new(&mut self) {
        for uid in std::mem::take(&mut self.admitting.new) {
            self.with_worker(&uid, |worker, _, ctx| worker.keep_record(ctx));
        }
    }

    /// What is there changed: pods that ask are looked at again.
    pub(super) fn room_changed(&mut self) {
        self.admitting.stale = true;
    }

    /// A3: somebody wants a rejected pod to be looked at again.
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

    /// A worker may begin, if its name is free: it was admitted, or what runs of it shows so.
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

    /// Something of it runs: it has its part of the node, and its name.
    pub(super) fn adopt(&mut self, uid: &Uid) {
        if let Some(worker) = self.workers.get_mut(uid) {
            worker.admit();
        }
        self.put_first(uid);
        if self.workers.get(uid).is_some_and(|w| self.has_its_name(w)) {
            self.begin(uid);
        }
    }

    /// One pass over who asks for room. True if there is more to step, or to look at.
    pub(super) fn admit(&mut self) -> bool {
        if !self.sources_ready || !self.pleg.was_compared() {
            return false;
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
        self.weigh();
        any
    }

    fn look_at_all(&self) -> Vec<Decision> {
        let node = &self.config.node;
        let mut room = Room::new(node);
        let mut asking: Vec<Asking<'_>> = Vec::new();
        let mut ending: Vec<&Worker> = Vec::new();
        let mut held: Vec<&Worker> = Vec::new();
        let mut returning: Vec<&Worker> = Vec::new();
        for worker in self.workers.values() {
            let runs = || self.cache.get(&worker.uid).is_some_and(|e| e.running().next().is_some());
            match worker.state {
                State::Terminating(_) => ending.push(worker),
                // W8: its successor has its place.
                State::Sync if worker.is_outdated() => ending.push(worker),
                State::Terminated | State::Finished | State::Forgotten if runs() => ending.push(worker),
                // (One that waits runs without a record, behind another of its name.)
                State::Waiting | State::Sync if worker.is_admitted() => held.push(worker),
                State::Waiting | State::Sync if worker.may_be_admitted() => {
                    let place = (!worker.was_begun(), worker.place);
                    asking.push(Asking { place, worker, then: None });
                }
                _ => {}
            }
            if let Some(asks) = worker.asks_then() {
                asking.push(Asking { place: (false, worker.place), worker, then: Some(asks) });
            } else if worker.is_finished() && worker.desired && worker.waits_only_for(Killer::Preemption) {
                returning.push(worker);
            }
        }
        held.iter().for_each(|w| room.hold(&w.asks));
        ending.iter().for_each(|w| room.give_back(&w.name, &w.asks));
        asking.sort_by_key(|a| a.place);

        let mut decisions = Vec::new();
        let mut before: Vec<&Worker> = Vec::new();
        for one in &asking {
            let worker = one.worker;
            if let Some(asks) = &one.then {
                // What would be rejected at its turn keeps nobody else out (A6: it may push others out).
                let pushes = asks.preempts && held.iter().any(|w| may_preempt(asks.priority, w.asks.priority));
                let against = |pod: &Rc<Pod>| matches!(room.look_at(pod, asks), Verdict::Against { .. });
                if pushes || !worker.restart.as_ref().is_some_and(against) {
                    room.promise(&worker.name, asks);
                }
                continue;
            }
            let entry = self.cache.get(&worker.uid);
            if entry.is_some_and(|e| worker.is_unread(e)) {
                // A4: what began before comes first, and whether it runs is not known yet.
                return decisions;
            }
            let Some(pod) = worker.pod.as_deref().filter(|_| worker.wants_room()) else {
                room.promise(&worker.name, &worker.asks);
                continue;
            };
            match room.look_at(pod, &worker.asks) {
                Verdict::Fits if self.has_its_name(worker) => {
                    room.hold(&worker.asks);
                    decisions.push(Decision::Admit(worker.uid.clone()));
                }
                Verdict::Fits => room.promise(&worker.name, &worker.asks),
                Verdict::Later(missing) => {
                    room.promise(&worker.name, &worker.asks);
                    before.push(worker);
                    let why = waits_for(&missing, &ending);
                    if self.has_its_name(worker) && !worker.waits_because(&why) {
                        decisions.push(Decision::Wait(worker.uid.clone(), why));
                    }
                }
                Verdict::Against { refusals, missing } => {
                    let may = |w: &&&Worker| may_preempt(worker.asks.priority, w.asks.priority);
                    let may_go: Vec<&Worker> =
                        held.iter().chain(&before).filter(may).filter(|_| worker.asks.preempts).copied().collect();
                    if refusals.is_empty()
                        && let Some(victims) = self.victims(&missing, &may_go)
                    {
                        let signal = missing.first().map_or_else(|| "".into(), |i| i.resource.as_str().into());
                        decisions.push(Decision::Preempt(victims, signal));
                        return decisions;
                    }
                    let critical = worker.asks.priority >= CRITICAL;
                    let cause = rejection(&refusals, &missing, critical || !may_go.is_empty());
                    decisions.push(Decision::Reject(worker.uid.clone(), cause));
                }
            }
        }
        if decisions.is_empty() {
            decisions.extend(self.who_returns(&room, returning));
        }
        decisions
    }

    /// A7
    fn victims(&self, missing: &[Insufficient], may_go: &[&Worker]) -> Option<Vec<Uid>> {
        let candidates: Vec<Candidate<'_>> = may_go
            .iter()
            .map(|w| Candidate {
                uid: &w.uid,
                priority: w.asks.priority,
                qos: w.asks.qos,
                requests: &w.asks.requests,
                since: w.start_time,
            })
            .collect();
        preempt::victims(&fit::shortages(missing), &candidates)
    }

    /// A9: of the victims that may be tried again the first one that fits.
    fn who_returns(&self, room: &Room<'_>, mut returning: Vec<&Worker>) -> Option<Decision> {
        returning.sort_by_key(|w| (Reverse(w.asks.priority), w.start_time));
        let fits = |w: &&&Worker| {
            // It may have been edited meanwhile, under its UID.
            let verdict = match (w.restart.as_deref(), w.pod.as_deref()) {
                (Some(then), _) => room.look_at(then, &Asks::of(then)),
                (None, Some(pod)) => room.look_at(pod, &w.asks),
                (None, None) => return false,
            };
            self.may_return_at(w) <= self.now.boot && verdict == Verdict::Fits
        };
        returning.iter().find(fits).map(|w| Decision::Return(w.uid.clone()))
    }

    fn may_return_at(&self, worker: &Worker) -> Boot {
        self.admitting.tried.get(&worker.uid).map_or(Boot(0), |at| *at + RETURN_AFTER)
    }

    fn has_its_name(&self, worker: &Worker) -> bool {
        self.names.get(&worker.name).and_then(|queue| queue.front()) == Some(&worker.uid)
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
                    let kill = Kill { by: Killer::Preemption, message: None, grace: None };
                    self.with_worker(&uid, |worker, entry, ctx| worker.kill_for(None, &kill, entry, ctx));
                    self.admitting.victims.insert(uid.clone(), signal.clone());
                    self.admitting.tried.insert(uid.clone(), self.now.boot);
                    self.dirty.insert(uid);
                }
            }
            Decision::Return(uid) => {
                self.admitting.tried.insert(uid.clone(), self.now.boot);
                self.release(Killer::Preemption, Some(vec![uid]));
            }
        }
    }

    /// A victim of an earlier life of wherry is counted and comes back as one of this life.
    pub(super) fn remember_victim(&mut self, record: &Record) {
        let Some(of) = record.preempted.as_ref().filter(|_| record.waits_for.contains(&Killer::Preemption)) else {
            return;
        };
        let uid = &record.pod.uid;
        if record.termination.is_some() && record.terminal.is_none() {
            self.admitting.victims.insert(uid.clone(), of.signal.clone());
        }
        // Of a clock that was set back no more is taken than the whole wait from now.
        let ago = u64::try_from(self.now.wall.since(of.at).as_nanos()).unwrap_or(u64::MAX);
        let at = Boot(self.now.boot.0.saturating_sub(ago));
        self.admitting.tried.insert(uid.clone(), at);
    }

    /// A8: each is counted once it stopped.
    fn count_victims(&mut self) {
        let Engine { workers, admitting, out, .. } = self;
        admitting.victims.retain(|uid, signal| {
            let stopped = workers.get(uid).is_none_or(Worker::is_over);
            if stopped {
                out.push(Effect::Measure(Measure::Preempted { signal: signal.clone() }));
            }
            !stopped
        });
    }

    /// A9: the next time that a victim may be tried again.
    pub(super) fn arm_returns(&mut self) {
        let now = self.now.boot;
        self.admitting.tried.retain(|uid, at| *at + RETURN_AFTER > now && self.workers.contains_key(uid));
        let at = self.admitting.tried.values().map(|at| *at + RETURN_AFTER).min();
        if at != self.admitting.armed {
            self.admitting.armed = at;
            self.out.push(Effect::Timer { key: TimerKey::Admission, at });
        }
    }

    pub(super) fn admission_timer(&mut self) {
        self.admitting.armed = None;
        self.room_changed();
    }

    /// The weight of the burstable class follows what its pods ask for.
    fn weigh(&mut self) {
        let burstable = self.workers.values().filter(|w| w.asks.qos == Qos::Burstable && is_here(w));
        let sum = burstable.map(|w| w.asks.requests.get(CPU)).fold(0, u64::saturating_add);
        if self.admitting.weighed != Some(sum) {
            self.admitting.weighed = Some(sum);
            let op = self.ops.begin(Owner::Cgroups);
            self.out.push(Effect::Cgroup { op, call: CgroupCall::Weigh { burstable: sum } });
        }
    }

    pub(super) fn weighed(&mut self, result: Result<Answer, OpError>) {
        if let Err(e) = result {
            // Tried again with the next change.
            self.admitting.weighed = None;
            let message = format!("the cgroup of the burstable pods could not be weighed: {e}");
            self.tell_of_node(Severity::Warning, "FailedCgroup", message);
        }
    }

    /// What the node has, and what of it the pods that are here ask for.
    pub fn node(&self) -> (&NodeFacts, Resources) {
        let mut requested = Resources::default();
        self.workers.values().filter(|w| is_here(w)).for_each(|w| requested.add(&w.asks.requests));
        (&self.config.node, requested)
    }
}

/// A1: admitted, and not known to be terminated.
fn is_here(worker: &Worker) -> bool {
    match worker.state {
        State::Terminating(_) => true,
        State::Sync => worker.is_admitted(),
        State::Waiting | State::Terminated | State::Finished | State::Forgotten => false,
    }
}

/// A4, for people.
fn waits_for(missing: &[Insufficient], ending: &[&Worker]) -> String {
    let of_use = |w: &&&Worker| missing.is_empty() || missing.iter().any(|i| w.asks.requests.get(&i.resource) > 0);
    let who: Vec<String> = ending.iter().filter(of_use).map(|w| w.name.to_string()).collect();
    let mut names = who.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    if who.len() > NAMED {
        names = format!("{names} and {} more", who.len() - NAMED);
    }
    let what: Vec<String> = missing.iter().map(Insufficient::message).collect();
    let what = if what.is_empty() { "a host port is still in use".to_owned() } else { what.join("; ") };
    format!("waiting for {names} to end: {what}")
}
