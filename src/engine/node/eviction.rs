//! Connects node-pressure eviction with the pods: selects the pods that may be evicted, kills them, and lets them
//! start again.

use super::Engine;
use crate::api::eviction::Condition;
use crate::api::facts::{ContainerState, MeasuredPod};
use crate::api::names::Uid;
use crate::api::priority::CRITICAL;
use crate::api::time::Boot;
use crate::engine::effect::Measure;
use crate::engine::event::Answer;
use crate::engine::eviction::levels::Levels;
use crate::engine::eviction::ranking::Candidate;
use crate::engine::eviction::{Action, Eviction, Inputs, limits, restart};
use crate::engine::op::{OpError, OpId};
use crate::engine::pod::kill::{Kill, TerminationSource};
use crate::engine::pod::worker::Worker;
use std::cmp::Reverse;

/// The label of the metric for a pod that exceeds a limit of its own.
const OWN_LIMIT: &str = "ephemeralpodfs.limit";

impl Engine {
    /// E4: returns the running pods that are neither critical nor terminating.
    fn candidates(&self) -> impl Iterator<Item = (&Uid, &Worker)> {
        let workers = self.workers.iter().map(|(uid, worker)| (uid, worker.as_ref()));
        workers.filter(|(_, w)| w.state.is_sync() && w.pod.is_some() && w.admission.requests.priority < CRITICAL)
    }

    fn eviction_candidates(&self) -> Vec<Candidate> {
        let candidate = |(uid, worker): (&Uid, &Worker)| {
            let running = self.containers(uid).iter().filter(|c| c.state == ContainerState::Running);
            Some(Candidate {
                uid: uid.clone(),
                pod: worker.pod.clone()?,
                requests: worker.admission.requests.resources.clone(),
                priority: worker.admission.requests.priority,
                since: worker.history.start_time,
                containers: running.map(|c| (c.name.clone(), c.id.clone())).collect(),
            })
        };
        self.candidates().filter_map(candidate).collect()
    }

    fn measured_pods(&self, only_limited: bool) -> Vec<MeasuredPod> {
        let measured = |(uid, worker): (&Uid, &Worker)| {
            let pod = worker.pod.as_deref().filter(|pod| !only_limited || limits::has_any(pod))?;
            let volumes = limits::empty_dirs(pod).map(str::to_owned).collect();
            Some(MeasuredPod { uid: uid.clone(), name: worker.name.clone(), volumes })
        };
        self.candidates().filter_map(measured).collect()
    }

    fn evicted_pods(&self) -> impl Iterator<Item = &Worker> {
        let evicted = |w: &&Worker| w.demand.desired && w.demand.waits_for.contains(&TerminationSource::Eviction);
        self.workers.values().map(Box::as_ref).filter(evicted)
    }

    /// E2: returns the pressure conditions of the node that are true.
    pub fn conditions(&self) -> impl Iterator<Item = Condition> {
        self.reclaim.eviction.pressure().conditions()
    }

    /// Returns the last measurement of the node's levels and its time. It is at most about a minute old.
    pub fn levels(&self) -> Option<(Boot, &Levels)> {
        self.reclaim.eviction.last()
    }

    fn with_eviction<T>(&mut self, f: impl FnOnce(&mut Eviction, &mut Inputs<'_>) -> T) -> T {
        let mut eviction = std::mem::take(&mut self.reclaim.eviction);
        let mut outbox = std::mem::take(&mut self.outbox);
        let mut inputs = Inputs {
            now: self.now.boot,
            policy: &self.config.eviction,
            root: &self.config.root,
            up: self.runtime.is_up(),
            candidates: &|| self.eviction_candidates(),
            measured: &|only_limited| self.measured_pods(only_limited),
            is_over: &|uid| self.workers.get(uid).is_none_or(|w| w.state.is_over()),
            any_waits: &|| self.evicted_pods().next().is_some(),
            outbox: &mut outbox,
        };
        let result = f(&mut eviction, &mut inputs);
        self.reclaim.eviction = eviction;
        self.outbox = outbox;
        result
    }

    pub(super) fn plan_eviction(&mut self) {
        let may_run = self.knows_its_pods();
        self.with_eviction(|eviction, inputs| eviction.plan(may_run, inputs));
    }

    pub(super) fn eviction_is_due(&mut self) {
        let actions = self.with_eviction(Eviction::measure_due);
        self.carry_out_evictions(actions);
    }

    pub(super) fn eviction_answered(&mut self, op: OpId, result: Result<Answer, OpError>) {
        let actions = self.with_eviction(|eviction, inputs| eviction.answered(op, result, inputs));
        self.carry_out_evictions(actions);
    }

    pub(super) fn memory_is_short(&mut self) {
        self.with_eviction(Eviction::memory_is_short);
    }

    /// Continues an eviction that waited for the removal of images, if the removal has ended.
    pub(super) fn images_may_be_reclaimed(&mut self) {
        if self.reclaim.images_are_reclaimed() {
            let actions = self.with_eviction(Eviction::images_reclaimed);
            self.carry_out_evictions(actions);
        }
    }

    fn carry_out_evictions(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Evict { uid, signal, message, grace } => {
                    self.outbox.measure(Measure::Evicted { signal: signal.map_or(OWN_LIMIT, |s| s.name()) });
                    if let Some(worker) = self.workers.get_mut(&uid) {
                        let history = &mut worker.history;
                        history.evicted = Some(restart::evicted(history.evicted.as_ref(), self.now.wall));
                    }
                    let kill = Kill { by: TerminationSource::Eviction, message: Some(message), grace: Some(grace) };
                    self.with_worker(&uid, |worker, entry, ctx| worker.kill_for(None, &kill, entry, ctx));
                    self.steps.touch(uid);
                }
                Action::ReclaimImages => {
                    // Each worker removes its dead containers.
                    self.touch_all();
                    self.reclaim_images();
                    self.images_may_be_reclaimed();
                }
                Action::RestartOne => self.restart_evicted(),
            }
        }
    }

    /// E5: after a measurement without pressure, lets one pod start again: the one with the highest priority, and
    /// among equals the oldest.
    fn restart_evicted(&mut self) {
        let now = self.now.wall;
        let evictions = self.workers.values_mut().filter_map(|w| w.history.evicted.as_mut());
        evictions.for_each(|of| restart::clock_was_set(of, now));
        let due = |w: &&Worker| w.history.evicted.as_ref().is_none_or(|of| restart::left(of, now).is_zero());
        let finished = self.evicted_pods().filter(|w| w.state.is_finished()).filter(due);
        let first = finished
            .min_by_key(|w| (Reverse(w.admission.requests.priority), w.history.start_time))
            .map(|w| w.uid.clone());
        if let Some(uid) = first {
            self.release(TerminationSource::Eviction, Some(vec![uid]));
        }
    }
}
