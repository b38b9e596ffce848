//! P8: handles runtime events and decides whether they need a status read.
//!
//! An event causes a status read of its pod, or a relist if no worker knows the pod, and nothing else. An event that
//! the cache already shows causes nothing. During a status read of the pod, an event waits for the result. An event
//! other than an end also waits while the worker has a call in flight whose answer will show the same, because a read
//! in the middle of a start would have to be repeated (P5). The number of waiting events is bounded: a flood of events
//! for one pod causes one read at a time.

use super::Engine;
use crate::api::names::Uid;
use crate::engine::event::{Kind, PlegEvent};
use crate::engine::pleg::relist;
use crate::engine::pod::worker::Worker;
use serde::Serialize;
use std::collections::BTreeMap;

/// Maximum number of containers with a waiting event. Beyond it, only the fact that there was an event is kept.
const MAX_WAITING: usize = 16;

/// The last event of each container or sandbox of a pod, by id.
type Waiting = BTreeMap<String, Kind>;

#[derive(Debug, Default, Serialize)]
pub struct WaitingEvents {
    waiting: BTreeMap<Uid, Waiting>,
}

impl WaitingEvents {
    fn wait(&mut self, uid: &Uid, event: PlegEvent) {
        let waiting = self.waiting.entry(uid.clone()).or_default();
        if waiting.len() < MAX_WAITING || waiting.contains_key(&event.id) {
            waiting.insert(event.id, event.kind);
        } else {
            // The end of a container that does not exist: the cache never shows it, so that a read follows.
            waiting.insert(String::new(), Kind::ContainerDied);
        }
    }

    pub fn forget(&mut self, uid: &Uid) {
        self.waiting.remove(uid);
    }
}

impl Engine {
    pub(super) fn runtime_event(&mut self, uid: Option<Uid>, event: PlegEvent) {
        let known = uid.and_then(|uid| self.workers.get(&uid).map(|worker| (uid, worker)));
        let Some((uid, worker)) = known else {
            // A removal needs no relist.
            if event.kind != Kind::ContainerRemoved {
                self.pleg.relist_soon();
            }
            return;
        };
        let Some(entry) = self.cache.get(&uid) else { return };
        if relist::shows(entry.facts(), &event) {
            return;
        }
        if entry.is_busy() || will_tell(worker, &event) {
            self.waiting_events.wait(&uid, event);
        } else {
            self.read_soon(&uid);
        }
    }

    /// The pod was read, or a call of its worker has ended: evaluates the events that waited for it.
    pub(super) fn recheck_waiting_events(&mut self, uid: &Uid) {
        for (id, kind) in self.waiting_events.waiting.remove(uid).unwrap_or_default() {
            self.runtime_event(Some(uid.clone()), PlegEvent { id, kind });
        }
    }
}

/// True if the worker has a call in flight whose answer will show the same as the event.
fn will_tell(worker: &Worker, event: &PlegEvent) -> bool {
    match event.kind {
        Kind::ContainerDied => worker.is_stopping(&event.id),
        _ => worker.is_changing(),
    }
}
