//! The room on the node that pods hold: those that are admitted and not known to be terminated.

use crate::api::names::Uid;
use crate::api::resources::Resources;
use crate::engine::pod::worker::{State, Worker};
use std::collections::BTreeMap;

/// The sum of the requests of the admitted pods.
pub fn requested(workers: &BTreeMap<Uid, Box<Worker>>) -> Resources {
    let mut requested = Resources::default();
    workers.values().filter(|w| holds_room(w)).for_each(|w| requested.add(&w.admission.requests.resources));
    requested
}

/// A1: admitted, and not known to be terminated.
pub fn holds_room(worker: &Worker) -> bool {
    match worker.state {
        State::Terminating(_) => true,
        State::Sync(_) => worker.admission.is_admitted(),
        State::Waiting | State::Terminated(_) | State::Finished(_) | State::Forgotten(_) => false,
    }
}
