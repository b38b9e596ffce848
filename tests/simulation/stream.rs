//! The runtime's stream of container events: the changes since the last check, slightly late. Under chaos an event comes much
//! later, twice, or never.

use crate::chance::below;
use crate::world::{MS, World};
use std::collections::BTreeMap;
use wherry::api::facts::ContainerState;
use wherry::api::names::Uid;
use wherry::engine::event::{Event, Kind, PlegEvent};

/// The id of an object that does not exist.
pub const UNKNOWN: &str = "nothing-known";

/// The containers and sandboxes by id, with their pods and the last event sent.
#[derive(Default)]
pub struct Stream(BTreeMap<String, (Uid, Kind)>);

impl World {
    /// Sends events for all changes.
    pub fn look_at_stream(&mut self) {
        let Some(mut stream) = self.stream.take() else { return };
        let now = self.what_is();
        let gone = stream.0.iter().filter(|(id, _)| !now.contains_key(*id));
        let gone: Vec<_> = gone.map(|(id, (uid, _))| (uid.clone(), id.clone(), Kind::ContainerRemoved)).collect();
        let other = now.iter().filter(|(id, is)| stream.0.get(*id) != Some(is));
        let other: Vec<_> = other.map(|(id, (uid, kind))| (uid.clone(), id.clone(), *kind)).collect();
        for (uid, id, kind) in gone.into_iter().chain(other) {
            // The event of a removed sandbox does not contain its pod.
            let uid = (kind != Kind::ContainerRemoved).then_some(uid);
            self.send_hint(Event::RuntimeEvent { uid, event: PlegEvent { id, kind } });
        }
        stream.0 = now;
        self.stream = Some(stream);
    }

    fn what_is(&self) -> BTreeMap<String, (Uid, Kind)> {
        let sandboxes = self.runtime.sandboxes.values().filter(|s| s.owner.as_ref() == Some(&self.runtime.owner));
        let sandboxes = sandboxes.map(|s| {
            let kind = if s.ready { Kind::ContainerStarted } else { Kind::ContainerDied };
            (s.id.clone(), (s.uid.clone(), kind))
        });
        let containers = self.runtime.containers.values().filter(|c| c.owner.as_ref() == Some(&self.runtime.owner));
        let containers = containers.map(|c| {
            let kind = match c.shown_state() {
                ContainerState::Running => Kind::ContainerStarted,
                ContainerState::Exited => Kind::ContainerDied,
                ContainerState::Created | ContainerState::Unknown => Kind::ContainerChanged,
            };
            (c.id.clone(), (c.uid.clone(), kind))
        });
        sandboxes.chain(containers).collect()
    }

    fn send_hint(&mut self, event: Event) {
        let Event::RuntimeEvent { event: PlegEvent { id, .. }, .. } = &event else { return };
        let Some(chaos) = self.chaos.as_mut() else { return self.event_in(MS, event) };
        if chaos.mishap("no hint of", id, 125).is_some() {
            return;
        }
        let second = chaos.mishap("a second hint of", id, 125);
        let after = below(&mut chaos.dice("a hint of", id), 10 * MS);
        if let Some(mut dice) = second {
            self.event_in(below(&mut dice, 5000 * MS), event.clone());
        }
        self.event_in(after, event);
    }

    /// An event that the cache does not show, for this pod or without a pod.
    pub fn unknown_event(uid: Option<Uid>) -> Event {
        Event::RuntimeEvent { uid, event: PlegEvent { id: UNKNOWN.into(), kind: Kind::ContainerDied } }
    }
}
