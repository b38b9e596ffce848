//! The node's admission of pods (A): decides when a pass (`pass`) evaluates the pods that request resources, and
//! keeps the state that outlives a pass. `engine/node/admission` applies the decisions to the workers.
//!
//! A pass covers all workers and ends at the first preemption; another pass evaluates the changed state. There is no
//! pass while no pod requests resources and nothing changes.

use super::cpu_weight::CpuWeight;
use super::out_of_pods;
use super::pass::{self, Decision, Input};
use super::victims::Victims;
use crate::api::names::Uid;
use crate::api::time::Boot;
use crate::engine::desired::names::Names;
use crate::engine::outbox::Outbox;
use crate::engine::pod::worker::{ResizeVerdict, Worker};
use serde::Serialize;
use std::collections::BTreeMap;

/// The state of admission that is not part of the workers.
#[derive(Debug, Default, Serialize)]
pub struct NodeAdmission {
    /// A change may have freed or taken resources.
    room_changed: bool,
    /// The place in the queue of the last pod that requested resources (A1).
    last_place: u64,
    pub victims: Victims,
    /// Pods added in this step.
    added: Vec<Uid>,
    pub cpu_weight: CpuWeight,
}

impl NodeAdmission {
    /// Makes the next step run a pass, because resources have been freed or taken.
    pub fn room_changed(&mut self) {
        self.room_changed = true;
    }

    /// A1: returns the place in the queue behind all other pods.
    pub fn next_place(&mut self) -> u64 {
        self.last_place += 1;
        self.last_place
    }

    /// A1: returns the place in the queue of a new worker: the place of its predecessor, or else behind all other
    /// pods.
    pub fn place_of(&mut self, worker: &Worker, names: &Names, workers: &BTreeMap<Uid, Box<Worker>>) -> u64 {
        let before = names.pods(&worker.name).filter_map(|uid| workers.get(uid));
        let inherited = before.filter(|w| w.pod.is_some()).map(|w| w.admission.place).min();
        inherited.unwrap_or_else(|| self.next_place())
    }

    /// Notes that a pod was added.
    pub fn added(&mut self, uid: Uid) {
        self.added.push(uid);
    }

    /// Returns the pods that were added since the last call.
    pub fn take_added(&mut self) -> Vec<Uid> {
        std::mem::take(&mut self.added)
    }

    /// Runs a pass if a pod requests resources or the free resources may have changed. Returns None if there was no
    /// pass.
    pub fn step(&mut self, input: Input<'_>, shutting_down: bool, outbox: &mut Outbox) -> Option<Vec<Decision>> {
        let requested = input.workers.values().any(|w| {
            w.admission.is_due(&w.state)
                || w.wanted_resize().is_some_and(|wanted| wanted.verdict == ResizeVerdict::Open)
        });
        if !requested && !std::mem::take(&mut self.room_changed) {
            return None;
        }
        self.victims.count(input.workers, outbox);
        if shutting_down {
            return None;
        }
        let decisions = pass::run(input, &self.victims);
        for decision in &decisions {
            match decision {
                Decision::Preempt(victims, signal) => {
                    victims.iter().for_each(|uid| self.victims.killed(uid, signal, input.now));
                }
                Decision::Restart(uid) => self.victims.restarted(uid, input.now),
                Decision::Admit(_) | Decision::Wait(..) | Decision::Hold(_) | Decision::Reject(..) => {}
                Decision::Resize(_) | Decision::PostponeResize(..) => {}
            }
        }
        Some(decisions)
    }

    /// A2: before the first list, rejects only pods beyond `maxPods`. Pods of a previous process do not count towards
    /// this limit. Other rejections wait for the list. If a pod without a record may be running, nothing is certain,
    /// and no pod is rejected.
    pub fn reject_before_first_list(&mut self, input: Input<'_>, shutting_down: bool) -> Vec<Decision> {
        if !std::mem::take(&mut self.room_changed) || shutting_down {
            return Vec::new();
        }
        if input.workers.values().any(|w| w.never_began() && w.volumes.had_directory()) {
            return Vec::new();
        }
        let mut decisions = pass::run(input, &self.victims);
        decisions.retain(|d| matches!(d, Decision::Reject(_, cause) if cause.reason == out_of_pods()));
        decisions
    }

    /// A9: makes this step run a pass if a victim may start again now.
    pub fn consider_victims(&mut self, now: Boot) {
        if self.victims.forget_passed(now) {
            self.room_changed();
        }
    }
}
