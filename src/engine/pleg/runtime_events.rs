//! P8: runtime events that wait until it is clear whether they need a status read.
//!
//! An event causes a status read of its pod, or a relist if no worker knows the pod, and nothing else. An event that
//! the cache already shows causes nothing. During a status read of the pod, an event waits for the result. An event
//! other than an exit also waits while the worker has a call in flight whose response will show the same, because a
//! read in the middle of a start would have to be repeated (P5). The number of waiting events is bounded: a flood of
//! events for one pod causes one read at a time.

use crate::api::names::Uid;
use crate::engine::pleg::relist::{Kind, PlegEvent};
use serde::Serialize;
use std::collections::BTreeMap;

/// The maximum number of containers with a waiting event, per pod. Beyond it, only the fact that there was an event
/// is kept.
const MAX_WAITING: usize = 16;

/// The last event of each container or sandbox of a pod, by id.
type Waiting = BTreeMap<String, Kind>;

#[derive(Debug, Default, Serialize)]
#[serde(transparent)]
pub struct WaitingEvents {
    by_pod: BTreeMap<Uid, Waiting>,
}

impl WaitingEvents {
    pub fn add(&mut self, uid: &Uid, event: PlegEvent) {
        let waiting = self.by_pod.entry(uid.clone()).or_default();
        if waiting.len() < MAX_WAITING || waiting.contains_key(&event.id) {
            waiting.insert(event.id, event.kind);
        } else {
            // The exit of a container that does not exist: the cache never shows it, so a read follows.
            waiting.insert(String::new(), Kind::ContainerDied);
        }
    }

    /// Takes the waiting events of a pod, because they can be evaluated now.
    pub fn take(&mut self, uid: &Uid) -> impl Iterator<Item = PlegEvent> + use<> {
        self.by_pod.remove(uid).unwrap_or_default().into_iter().map(|(id, kind)| PlegEvent { id, kind })
    }

    pub fn forget(&mut self, uid: &Uid) {
        self.by_pod.remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p8_the_number_of_waiting_events_is_bounded_and_none_is_lost_without_a_read() {
        let mut events = WaitingEvents::default();
        let uid = Uid::from("a");
        for n in 0..100 {
            events.add(&uid, PlegEvent { id: format!("c{n:02}"), kind: Kind::ContainerStarted });
        }
        events.add(&uid, PlegEvent { id: "c00".into(), kind: Kind::ContainerDied });
        let taken: Vec<PlegEvent> = events.take(&uid).collect();
        assert_eq!(taken.len(), MAX_WAITING + 1);
        assert_eq!(taken[0], PlegEvent { id: String::new(), kind: Kind::ContainerDied });
        assert_eq!(taken[1], PlegEvent { id: "c00".into(), kind: Kind::ContainerDied }, "the last event counts");
        assert_eq!(events.take(&uid).count(), 0);
    }
}
