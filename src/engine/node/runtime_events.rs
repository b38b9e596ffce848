//! P8: what the runtime's event stream tells, and whether it is worth a status read.
//!
//! A hint causes a read of its pod, or a relist where no worker knows the pod, and nothing else. One that tells what the
//! cache shows already causes nothing. While a reading of the pod is under way it waits for what that shows; and so it does,
//! unless something died, while the worker has a call in flight whose answer will tell the same: a read in the middle of
//! a start would have to be made again (P5). What waits is bounded: a flood of events for one pod costs one read at a time.

use super::Engine;
use crate::api::names::Uid;
use crate::engine::event::{Kind, PlegEvent};
use crate::engine::pleg::relist;
use crate::engine::pod::worker::Worker;
use serde::Serialize;
use std::collections::BTreeMap;

/// Of more containers than these nothing is kept but that there was something.
const MAX_WAITING: usize = 16;

/// The last word on each container or sandbox of a pod, by its id.
type Waiting = BTreeMap<String, Kind>;

#[derive(Debug, Default, Serialize)]
pub struct Hints {
    waiting: BTreeMap<Uid, Waiting>,
}

impl Hints {
    fn wait(&mut self, uid: &Uid, event: PlegEvent) {
        let waiting = self.waiting.entry(uid.clone()).or_default();
        if waiting.len() < MAX_WAITING || waiting.contains_key(&event.id) {
            waiting.insert(event.id, event.kind);
        } else {
            // The end of nobody, which the cache never shows: a reading follows.
            waiting.insert(String::new(), Kind::ContainerDied);
        }
    }

    pub fn forget(&mut self, uid: &Uid) {
        self.waiting.remove(uid);
    }
}

impl Engine {
    pub(super) fn hinted(&mut self, uid: Option<Uid>, event: PlegEvent) {
        let known = uid.and_then(|uid| self.workers.get(&uid).map(|worker| (uid, worker)));
        let Some((uid, worker)) = known else {
            // Nobody misses what is gone.
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
            self.hints.wait(&uid, event);
        } else {
            self.read_soon(&uid);
        }
    }

    /// The pod was read, or a call of its worker has ended: what waited for that is looked at again.
    pub(super) fn weigh_hints(&mut self, uid: &Uid) {
        for (id, kind) in self.hints.waiting.remove(uid).unwrap_or_default() {
            self.hinted(Some(uid.clone()), PlegEvent { id, kind });
        }
    }
}

/// Has the worker a call in flight whose answer tells what the event does?
fn will_tell(worker: &Worker, event: &PlegEvent) -> bool {
    match event.kind {
        Kind::ContainerDied => worker.is_stopping(&event.id),
        _ => worker.is_changing(),
    }
}
