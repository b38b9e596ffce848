//! The state of one pod beyond its status: the worker's state, and the reasons why the node delays it (W8, P6,
//! limits, A3, A4).

use super::Engine;
use crate::api::names::Uid;
use crate::api::time::Boot;
use crate::engine::admission::Admission;
use crate::engine::pod::worker::{State, Worker, WorkerStatus, waits_for_foreign_objects};
use crate::engine::shutdown::pods::pods_in_words;

impl Engine {
    pub fn worker_status(&self, uid: &Uid, now: Boot) -> Option<WorkerStatus> {
        let worker = self.workers.get(uid)?;
        let mut worker_status = worker.worker_status(now);
        let waits_for = &mut worker_status.waits_for;
        match worker.state {
            State::Waiting => self.add_waiting(worker, waits_for),
            State::Sync(_) => {
                self.add_starting(worker, now, waits_for);
                if let Some(pull) = &mut worker_status.pull {
                    pull.ahead = self.shared.slots.pulls.ahead_of(uid);
                }
            }
            State::Terminating(_) | State::Terminated(_) | State::Finished(_) | State::Forgotten(_) => {
                if !self.runtime.is_up() {
                    waits_for.push("a connection to the container runtime".into());
                }
            }
        }
        if let Some(why) = self.pleg.cache.get(uid).and_then(|e| e.error.as_deref()) {
            worker_status.waits_for.push(format!("a successful status read; the last one failed: {why}"));
        }
        Some(worker_status)
    }
    /// Adds what a pod that has not begun waits for.
    fn add_waiting(&self, worker: &Worker, waits_for: &mut Vec<String>) {
        let first = self.desired.names().first(&worker.name).filter(|first| **first != worker.uid);
        if let Some(first) = first {
            waits_for.push(format!("the pod {first} of the same name, which has not finished yet"));
        }
        match &worker.admission.decision {
            Admission::Waits(why) => waits_for.push(format!("room: {why}")),
            Admission::Cordoned => waits_for.push("`wherry uncordon`, to start".into()),
            Admission::Rejected(_) if worker.admission.is_rejected_for_now(worker.pod.as_ref()) => {
                waits_for.push("the end of the node's shutdown".into());
            }
            Admission::Rejected(_) => waits_for.push("a new version of its manifest, or `wherry retry`".into()),
            // A4: running pods are admitted before new ones, so a new pod waits for the first relist.
            Admission::Open if first.is_none() && !self.pleg.was_compared() => {
                waits_for.push("the first relist".into());
            }
            Admission::Open | Admission::Admitted => {}
        }
    }

    /// Adds what delays the starts of a pod in `Sync`.
    fn add_starting(&self, worker: &Worker, now: Boot, waits_for: &mut Vec<String>) {
        let uid = &worker.uid;
        if let Some((_, why)) = self
            .pleg
            .cache
            .get(uid)
            .and_then(|entry| waits_for_foreign_objects(worker.pod.as_ref()?, &worker.state, entry))
        {
            waits_for.push(why);
        }
        let queues = [
            (&self.shared.slots.sandboxes, "its turn to start its sandbox"),
            (&self.shared.slots.containers, "its turn to start a container"),
            (&self.shared.slots.pulls, "its turn to pull an image"),
        ];
        for (slots, reason) in queues {
            if let Some(ahead) = slots.ahead_of(uid) {
                waits_for.push(format!("{reason}: {} ahead of it", pods_in_words(ahead)));
            }
        }
        // Only starts are delayed. Running containers are not affected.
        if !self.may_start() {
            let failed = self.checks(now).into_iter().filter_map(|c| c.result.err());
            waits_for.extend(failed.map(|why| format!("starts: {why}")));
            if self.shutdown.is_undecided() {
                waits_for.push("starts: the progress of the node's shutdown is not known yet".into());
            }
        } else if !self.runtime.network_ready() {
            waits_for.push("sandboxes: the container runtime's network is not ready".into());
        }
    }
}
