//! One pass of admission: determines which pods have a share of the node's resources, and decides about the pods that
//! request one (A1 to A7).
//!
//! A pod has a share if it was admitted, if this pass admits it, if it waits, or if resources are reserved for it.
//! They are reserved for a pod that starts again under its UID, and for a pod of a previous process that does not
//! request resources yet. A pod with a share may be preempted, and starts again by A9 (`Victims::to_restart`).

use super::Admission;
use super::fit::{self, Insufficient};
use super::node_snapshot::{AdmissionVerdict, NodeSnapshot};
use super::pod_requests::PodRequests;
use super::predicates;
use super::preempt::{self, Candidate, may_preempt};
use super::rejection;
use super::resize;
use super::victims::Victims;
use crate::api::eviction::Condition;
use crate::api::names::Uid;
use crate::api::node_facts::NodeFacts;
use crate::api::ordered::OrderSlice;
use crate::api::pod::Pod;
use crate::api::priority::CRITICAL;
use crate::api::qos::Qos;
use crate::api::resources::Resources;
use crate::api::time::Boot;
use crate::api::workload::replica::is_of_daemon_set;
use crate::engine::desired::names::Names;
use crate::engine::devices::Devices;
use crate::engine::eviction::levels::Pressure;
use crate::engine::pleg::cache::Cache;
use crate::engine::pod::kill::Cause;
use crate::engine::pod::kill::TerminationSource;
use crate::engine::pod::worker::{ResizeVerdict, State, Worker};
use crate::engine::slots::READ_PATIENCE;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The maximum number of pods that a message names.
const NAMED: usize = 3;

/// The state of the node that a pass reads.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    pub now: Boot,
    pub node: &'a NodeFacts,
    pub workers: &'a BTreeMap<Uid, Box<Worker>>,
    pub names: &'a Names,
    pub cache: &'a Cache,
    pub pressure: &'a Pressure,
    pub devices: &'a Devices,
    /// A10: pods that have never started on the node do not start.
    pub cordoned: bool,
    /// The resources of the node without the devices of plugins.
    pub configured: &'a Resources,
}

/// A result of a pass. The node carries it out after the pass.
#[derive(Debug, PartialEq)]
pub enum Decision {
    Admit(Uid),
    /// A4: the pod waits. The text is the message of its status.
    Wait(Uid, String),
    /// A10: the pod waits for `uncordon`.
    Hold(Uid),
    Reject(Uid, Cause),
    /// A8: the victims, and the first resource that is short.
    Preempt(Vec<Uid>, Rc<str>),
    /// A9: this victim starts again.
    Restart(Uid),
    /// R3: the pod gets its new resources.
    Resize(Uid),
    /// R2: the new resources do not fit.
    PostponeResize(Uid, ResizeVerdict),
}

impl Input<'_> {
    fn has_its_name(&self, worker: &Worker) -> bool {
        self.names.is_first(&worker.name, &worker.uid)
    }

    /// W8: returns true if the pod that currently has this pod's name was edited, and continues until its record has
    /// been written.
    fn follows_outdated(&self, worker: &Worker) -> bool {
        let first = self.names.first(&worker.name);
        first
            .filter(|uid| **uid != worker.uid)
            .and_then(|uid| self.workers.get(uid))
            .is_some_and(|w| w.state.is_outdated())
    }

    /// Returns true if the pod is in Sync, and its current status is not known (`State::is_unread`).
    fn is_unread(&self, worker: &Worker) -> bool {
        self.cache.get(&worker.uid).is_some_and(|e| worker.state.is_unread(e))
    }

    fn runs(&self, worker: &Worker) -> bool {
        self.cache.get(&worker.uid).is_some_and(|e| e.running().next().is_some())
    }
}

/// A pod that requests resources, or that will request them once its worker starts again.
struct RoomRequest<'a> {
    place: (bool, u64),
    worker: &'a Worker,
    /// The requests of the pod that the worker runs next, if the request is for that pod.
    after_end: Option<PodRequests>,
}

impl RoomRequest<'_> {
    fn requests(&self) -> &PodRequests {
        self.after_end.as_ref().unwrap_or(&self.worker.admission.requests)
    }
}

/// A share of the node's resources. Its pod may be preempted.
#[derive(Clone, Copy)]
struct Share<'a> {
    worker: &'a Worker,
    requests: &'a PodRequests,
}

/// The pods, grouped by their claims on the node's resources.
#[derive(Default)]
struct Pods<'a> {
    requesting: Vec<RoomRequest<'a>>,
    holding: Vec<&'a Worker>,
    ending: Vec<&'a Worker>,
    /// A9: victims that wait only for free resources.
    victims: Vec<&'a Worker>,
}

impl<'a> Pods<'a> {
    fn of(input: &Input<'a>) -> Pods<'a> {
        let mut pods = Pods::default();
        for worker in input.workers.values() {
            match worker.state {
                State::Terminating(_) => pods.ending.push(worker),
                // W8: the pod counts as terminating, because its successor has its place in the queue.
                State::Sync(_) if worker.state.is_outdated() => pods.ending.push(worker),
                // Its worker terminates the pod as soon as a status read confirms that the pod has ended.
                State::Sync(_) if worker.shown.has_ended() => pods.ending.push(worker),
                State::Terminated(_) | State::Finished(_) | State::Forgotten(_) if input.runs(worker) => {
                    pods.ending.push(worker);
                }
                // A waiting pod can be admitted if it runs without a record, behind another pod of its name.
                State::Waiting | State::Sync(_) if worker.admission.is_admitted() => pods.holding.push(worker),
                State::Waiting | State::Sync(_) if worker.admission.is_due(&worker.state) => {
                    let place = (worker.history.waiting, worker.admission.place);
                    pods.requesting.push(RoomRequest { place, worker, after_end: None });
                }
                _ => {}
            }
            // W6: the pod that starts under this UID after the current one.
            if let Some(requests) = worker.demand.next().map(PodRequests::of) {
                let place = (false, worker.admission.place);
                pods.requesting.push(RoomRequest { place, worker, after_end: Some(requests) });
            } else if worker.demand.desired && worker.demand.waits_only_for(TerminationSource::Preemption) {
                pods.victims.push(worker);
            }
        }
        pods.requesting.order_by_key(|request| request.place);
        pods
    }
}

/// Evaluates all pods that request resources, in the order of their places in the queue. The pass ends at the first
/// preemption.
pub fn run(input: Input<'_>, victims: &Victims) -> Vec<Decision> {
    let pods = Pods::of(&input);
    let mut pass = Pass {
        input,
        room: NodeSnapshot::new(input.node),
        shares: Vec::new(),
        ending: pods.ending,
        uncertain: Vec::new(),
        decisions: Vec::new(),
    };
    for worker in &pods.holding {
        pass.hold(Share { worker, requests: &worker.admission.requests });
    }
    for worker in &pass.ending {
        pass.room.add_ending(&worker.name, &worker.admission.requests);
    }
    for worker in resize::in_order(&pods.holding) {
        pass.resize(worker);
    }
    for request in &pods.requesting {
        if !pass.evaluate(request) {
            return pass.decisions;
        }
    }
    if pass.decisions.is_empty() {
        pass.decisions.extend(victims.to_restart(&pass.room, pods.victims, input.now).map(Decision::Restart));
    }
    pass.decisions
}

struct Pass<'a> {
    input: Input<'a>,
    room: NodeSnapshot<'a>,
    /// The shares in the order in which this pass assigned them.
    shares: Vec<Share<'a>>,
    ending: Vec<&'a Worker>,
    /// Pods that may take resources: their status is unknown and may show that they have ended, or they wait for such
    /// a pod.
    uncertain: Vec<Share<'a>>,
    decisions: Vec<Decision>,
}

impl<'a> Pass<'a> {
    fn hold(&mut self, share: Share<'a>) {
        self.room.hold(share.requests);
        self.shares.push(share);
    }

    /// R2: decides about the new resources of a running pod.
    fn resize(&mut self, worker: &'a Worker) {
        let Some(wanted) = worker.wanted_resize().filter(|_| !self.input.is_unread(worker)) else { return };
        let uid = worker.uid.clone();
        match resize::obstacle(&self.room, &worker.admission.requests, &wanted.requests) {
            None => {
                self.room.exchange(&worker.admission.requests, &wanted.requests);
                for share in self.shares.iter_mut().filter(|s| s.worker.uid == uid) {
                    share.requests = &wanted.requests;
                }
                self.decisions.push(Decision::Resize(uid));
            }
            Some(verdict) if verdict != wanted.verdict => self.decisions.push(Decision::PostponeResize(uid, verdict)),
            Some(_) => {}
        }
    }

    fn reserve(&mut self, share: Share<'a>) {
        self.room.reserve(&share.worker.name, share.requests);
        self.shares.push(share);
    }

    fn reserve_uncertain(&mut self, share: Share<'a>) {
        self.room.reserve_uncertain(&share.worker.name, share.requests);
        self.uncertain.push(share);
    }

    /// Evaluates the next pod. Returns false if other pods are preempted for it; the next pass then evaluates the
    /// remaining pods.
    fn evaluate(&mut self, request: &'a RoomRequest<'a>) -> bool {
        let worker = request.worker;
        let is_of_daemon_set = worker.pod.as_deref().is_some_and(is_of_daemon_set);
        if self.input.cordoned && !worker.history.is_bound() && !is_of_daemon_set {
            self.hold_back(request);
            return true;
        }
        let share = Share { worker, requests: request.requests() };
        // A pod that starts only after another one has terminated: the next pod of the same worker, or the successor
        // of an edited pod that still runs (W8).
        let begins_later = match &request.after_end {
            Some(_) => worker.demand.successor.as_ref(),
            None => worker.pod.as_ref().filter(|_| self.input.follows_outdated(worker)),
        };
        if let Some(pod) = begins_later {
            self.evaluate_for_later(pod, share);
            return true;
        }
        if self.input.is_unread(worker) {
            // A4: this pod comes first. But it may have ended, so no pod is rejected because of it; a pod that needs
            // its resources waits.
            self.reserve_uncertain(share);
            return true;
        }
        let Some(pod) = worker.pod.as_deref().filter(|_| worker.state.wants_room()) else {
            self.reserve(share);
            return true;
        };
        if let Some(why) = self.waits_without_room(pod, share.requests) {
            if self.input.has_its_name(worker) && !worker.admission.waits_because(&why) {
                self.decisions.push(Decision::Wait(worker.uid.clone(), why));
            }
            return true;
        }
        self.evaluate_now(pod, share)
    }

    /// A10: lets the pod wait without taking resources until `uncordon`.
    fn hold_back(&mut self, request: &RoomRequest<'_>) {
        let worker = request.worker;
        let is_shown = self.input.has_its_name(worker) && request.after_end.is_none();
        if is_shown && worker.admission.decision != Admission::Cordoned {
            self.decisions.push(Decision::Hold(worker.uid.clone()));
        }
    }

    /// Returns why the pod has to wait even if its resources are free.
    fn waits_without_room(&self, pod: &Pod, requests: &PodRequests) -> Option<String> {
        let pressure = || {
            let condition = not_tolerated(pod, requests, self.input.pressure)?;
            Some(format!("waiting for the end of the node's {}", condition.name()))
        };
        self.input.devices.missing(&requests.resources, self.input.configured).or_else(pressure)
    }

    /// Evaluates a pod that wants to start now. Returns false if other pods are preempted for it.
    fn evaluate_now(&mut self, pod: &Pod, share: Share<'a>) -> bool {
        let worker = share.worker;
        // Taints do not affect a pod that has already started on this node, even if it starts again.
        let taint = predicates::untolerated(pod, self.input.node).filter(|_| !worker.history.is_bound());
        match self.room.evaluate(pod, share.requests).and_against(taint) {
            AdmissionVerdict::Fits if self.input.has_its_name(worker) => {
                self.hold(share);
                self.decisions.push(Decision::Admit(worker.uid.clone()));
            }
            AdmissionVerdict::Fits => self.reserve(share),
            AdmissionVerdict::Later(missing) => {
                if let Some(preempt) = self.instead_of_unreadable(pod, share.requests) {
                    return self.preempt(preempt);
                }
                self.wait(share, &missing);
            }
            AdmissionVerdict::Against { refusals, missing } => {
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

    /// Reserves resources for a pod that starts later, unless it will be rejected then.
    fn evaluate_for_later(&mut self, pod: &Pod, share: Share<'a>) {
        let rejected = match self.room.evaluate(pod, share.requests) {
            AdmissionVerdict::Against { refusals, missing } => {
                !refusals.is_empty() || victims(&missing, self.lower_than(share.requests)).is_none()
            }
            AdmissionVerdict::Fits | AdmissionVerdict::Later(_) => false,
        };
        if !rejected {
            self.reserve(share);
        }
    }

    /// A4: makes the pod wait for the resources of pods that are terminating or whose status is unknown.
    fn wait(&mut self, share: Share<'a>, missing: &[Insufficient]) {
        let worker = share.worker;
        let unread: Vec<&Worker> =
            self.uncertain.iter().map(|s| s.worker).filter(|w| self.input.is_unread(w)).collect();
        let why = waits_for(missing, &self.ending, &unread);
        if self.input.has_its_name(worker) && !worker.admission.waits_because(&why) {
            self.decisions.push(Decision::Wait(worker.uid.clone(), why));
        }
        match unread.is_empty() {
            true => self.reserve(share),
            false => self.reserve_uncertain(share),
        }
    }

    /// Decides to preempt the victims, and discards this pass's other decisions about them. Always returns false.
    fn preempt(&mut self, (victims, signal): (Vec<Uid>, Rc<str>)) -> bool {
        self.decisions.retain(|d| !matches!(d, Decision::Admit(uid) | Decision::Wait(uid, _) if victims.contains(uid)));
        self.decisions.push(Decision::Preempt(victims, signal));
        false
    }

    /// A6: returns the shares of the pods that a pod with these requests may preempt.
    fn lower_than(&self, requests: &PodRequests) -> impl Iterator<Item = &Share<'a>> {
        let (preempts, priority) = (requests.preempts, requests.priority);
        self.shares.iter().filter(move |s| preempts && may_preempt(priority, s.requests.priority))
    }

    /// A4: a pod waits while the status of another pod is being read. If the read fails or hangs, a pod that can
    /// preempt others does so instead. Returns its victims and the first insufficient resource.
    fn instead_of_unreadable(&self, pod: &Pod, requests: &PodRequests) -> Option<(Vec<Uid>, Rc<str>)> {
        let now = self.input.now;
        let fails = |s: &&Share<'_>| {
            let entry = self.input.cache.get(&s.worker.uid);
            entry.is_some_and(|e| e.error.is_some() || e.hangs(now, READ_PATIENCE))
        };
        let (unread, waiting): (Vec<&Share<'_>>, Vec<&Share<'_>>) =
            self.uncertain.iter().partition(|s| self.input.is_unread(s.worker));
        let failing: Vec<&Share<'_>> = unread.into_iter().filter(fails).collect();
        if failing.is_empty() {
            return None;
        }
        let mut beside = self.room.clone();
        failing.iter().chain(&waiting).for_each(|s| beside.reserve(&s.worker.name, s.requests));
        let of_waiting =
            waiting.into_iter().filter(|s| requests.preempts && may_preempt(requests.priority, s.requests.priority));
        match beside.evaluate(pod, requests) {
            AdmissionVerdict::Against { refusals, missing } if refusals.is_empty() => {
                victims(&missing, self.lower_than(requests).chain(of_waiting))
            }
            _ => None,
        }
    }
}

/// E6: returns a condition of the node that keeps the pod from starting. As in a kubelet, critical pods always start,
/// and pods with requests or limits start under memory pressure.
fn not_tolerated(pod: &Pod, requests: &PodRequests, pressure: &Pressure) -> Option<Condition> {
    let tolerates = |condition| match condition {
        Condition::MemoryPressure => requests.qos != Qos::BestEffort || tolerates_memory_pressure(pod),
        Condition::DiskPressure | Condition::PidPressure => false,
    };
    pressure.conditions().find(|condition| requests.priority < CRITICAL && !tolerates(*condition))
}

fn tolerates_memory_pressure(pod: &Pod) -> bool {
    const TAINT: &str = "node.kubernetes.io/memory-pressure";
    pod.spec().tolerations.iter().flatten().any(|t| {
        let exists = t.operator.as_deref() == Some("Exists");
        let of_effect = matches!(t.effect.as_deref().unwrap_or_default(), "" | "NoSchedule");
        let of_key = match t.key.as_deref().unwrap_or_default() {
            "" => exists,
            key => key == TAINT && (exists || t.value.as_deref().unwrap_or_default().is_empty()),
        };
        of_effect && of_key
    })
}

/// A7: returns the pods to preempt so that all resources suffice, and the first insufficient resource.
fn victims<'a>(missing: &[Insufficient], shares: impl Iterator<Item = &'a Share<'a>>) -> Option<(Vec<Uid>, Rc<str>)> {
    let candidates = shares.map(|s| Candidate {
        uid: &s.worker.uid,
        priority: s.requests.priority,
        qos: s.requests.qos,
        requests: &s.requests.resources,
        since: s.worker.history.start_time,
    });
    let victims = preempt::victims(&fit::shortages(missing), &candidates.collect::<Vec<_>>())?;
    Some((victims, missing.first().map_or_else(|| "".into(), |i| i.resource.as_str().into())))
}

/// A4: returns the message that tells users what the pod waits for.
fn waits_for(missing: &[Insufficient], ending: &[&Worker], unread: &[&Worker]) -> String {
    let of_use = |w: &&&Worker| {
        missing.is_empty() || missing.iter().any(|i| w.admission.requests.resources.get(&i.resource) > 0)
    };
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
