//! The pidfds of the processes that the engine watches. Under chaos some of them fire late, or never.

use super::{Item, MS, World};
use crate::chance::below;
use std::collections::{BTreeMap, BTreeSet};
use wherry::api::names::Uid;
use wherry::engine::event::Event;

#[derive(Default)]
pub struct Pidfds {
    pub available: bool,
    /// The watched containers and sandboxes, by id, with their pods.
    pub watched: BTreeMap<String, Uid>,
    /// Watched objects whose pidfd fires late or never.
    late: BTreeSet<String>,
}

impl Pidfds {
    /// The engine's process has ended.
    pub(super) fn close(&mut self) {
        self.watched.clear();
        self.late.clear();
    }

    fn unwatch(&mut self, id: &str) {
        self.watched.remove(id);
        self.late.remove(id);
    }

    /// A pidfd fires once. Returns its pod if the engine still watches it.
    fn fire(&mut self, id: &str) -> Option<Uid> {
        if self.late.remove(id) { self.watched.remove(id) } else { None }
    }
}

impl World {
    pub(super) fn watch(&mut self, uid: Uid, id: String, pid: u32) {
        self.note(|| format!("  < watch {id} ({pid})"));
        let unlucky = self.chaos.as_mut().is_some_and(|c| c.mishap("no pidfd of", &id, 100).is_some());
        let ok = self.pidfds.available && !unlucky && self.runtime.lives(&id);
        if self.pidfds.watched.contains_key(&id) {
            self.checks.fail("nothing is watched twice", format!("{id} is"));
        }
        if ok {
            self.pidfds.watched.insert(id.clone(), uid.clone());
        }
        self.event_in(MS / 10, Event::Watched { uid, id, ok });
    }

    pub(super) fn unwatch(&mut self, id: &str) {
        self.note(|| format!("  < unwatch {id}"));
        self.pidfds.unwatch(id);
    }

    /// Makes the pidfds of ended processes readable.
    pub fn look_at_pidfds(&mut self) {
        let (late, runtime) = (&self.pidfds.late, &self.runtime);
        let over = self.pidfds.watched.keys().filter(|id| !late.contains(*id) && !runtime.lives(id));
        for id in over.cloned().collect::<Vec<_>>() {
            let life = self.process.life;
            let late = self.chaos.as_mut().and_then(|c| c.mishap("a late pidfd of", &id, 60));
            // A third of the late pidfds never fire.
            let after = late.map_or(Some(MS / 5), |mut dice| {
                let after = below(&mut dice, 20_000) * MS;
                (below(&mut dice, 3) > 0).then_some(after)
            });
            if let Some(after) = after {
                self.at(after, Item::Pidfd { life, id: id.clone() });
            }
            self.pidfds.late.insert(id);
        }
    }

    pub(super) fn pidfd_fires(&mut self, life: u32, id: String) {
        if life == self.process.life
            && let Some(uid) = self.pidfds.fire(&id)
        {
            self.step(Event::Ended { uid, id });
        }
    }
}
