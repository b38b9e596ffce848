//! The resources of the node that are held by pods: those that are admitted and not known to have terminated.

use crate::api::names::Uid;
use crate::api::resources::Resources;
use crate::engine::pod::worker::{State, Worker};
use std::collections::BTreeMap;

/// Returns the sum of the requests of the pods that hold resources.
pub fn requested(workers: &BTreeMap<Uid, Box<Worker>>) -> Resources {
    let mut requested = Resources::default();
    workers.values().filter(|w| holds_room(w)).for_each(|w| requested.add(&w.admission.requests.resources));
    requested
}

/// A1: returns true if the pod is admitted and not known to have terminated.
pub fn holds_room(worker: &Worker) -> bool {
    match worker.state {
        State::Terminating(_) => true,
        State::Sync(_) => worker.admission.is_admitted(),
        State::Waiting | State::Terminated(_) | State::Finished(_) | State::Forgotten(_) => false,
    }
}
