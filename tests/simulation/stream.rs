//! The runtime's stream of container events, as the engine is told of it: what changed since the last look, a little late,
//! and under chaos much later, twice, or never.

use crate::chance::below;
use crate::world::{MS, World};
use std::collections::BTreeMap;
use wherry::api::facts::ContainerState;
use wherry::api::names::Uid;
use wherry::engine::event::{Event, Kind, PlegEvent};

/// The id of nothing.
pub const UNKNOWN: &str = "nothing-known";

/// By the ids of containers and sandboxes: their pods, and what was told of them last.
#[derive(Default)]
pub struct Stream(BTreeMap<String, (Uid, Kind)>);

impl World {
    /// Tells of everything that became different.
    pub fn look_at_stream(&mut self) {
        let Some(mut stream) = self.stream.take() else { return };
        let now = self.what_is();
        let gone = stream.0.iter().filter(|(id, _)| !now.contains_key(*id));
        let gone: Vec<_> = gone.map(|(id, (uid, _))| (uid.clone(), id.clone(), Kind::ContainerRemoved)).collect();
        let other = now.iter().filter(|(id, is)| stream.0.get(*id) != Some(is));
        let other: Vec<_> = other.map(|(id, (uid, kind))| (uid.clone(), id.clone(), *kind)).collect();
        for (uid, id, kind) in gone.into_iter().chain(other) {
            // An event of a sandbox that is gone does not say whose it was.
            let uid = (kind != Kind::ContainerRemoved).then_some(uid);
            self.tell_hint(Event::Hint { uid, event: PlegEvent { id, kind } });
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

    fn tell_hint(&mut self, event: Event) {
        let Event::Hint { event: PlegEvent { id, .. }, .. } = &event else { return };
        let Some(chaos) = self.chaos.as_mut() else { return self.hint_in(MS, event) };
        if chaos.mishap("no hint of", id, 125).is_some() {
            return;
        }
        let second = chaos.mishap("a second hint of", id, 125);
        let after = below(&mut chaos.dice("a hint of", id), 10 * MS);
        if let Some(mut dice) = second {
            self.hint_in(below(&mut dice, 5000 * MS), event.clone());
        }
        self.hint_in(after, event);
    }

    /// An event that the cache does not show: of this pod, or of nobody.
    pub fn unknown_event(uid: Option<Uid>) -> Event {
        Event::Hint { uid, event: PlegEvent { id: UNKNOWN.into(), kind: Kind::ContainerDied } }
    }
}
