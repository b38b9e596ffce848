//! P8: which init processes are watched by a pidfd, and how often everything has to be listed therefore.
//!
//! A process that ended causes a status read of its pod; while the runtime does not show that end yet the read is
//! repeated. The list stays the truth: what is watched only decides how seldom it has to be asked for. A pod is
//! *uncovered* while something of it may change without a hint.

use super::Engine;
use crate::api::facts::ContainerState;
use crate::api::names::Uid;
use crate::engine::effect::{Effect, TimerKey};
use crate::engine::pleg::cache::Entry;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// After an end that the runtime does not show yet, ms between the reads. containerd 1.6 and 1.7 show it after 15 to 25 ms (they
/// run `runc delete` first): there the steps stay short.
const REREAD: [u64; 14] = [1, 2, 4, 5, 5, 5, 5, 10, 20, 50, 100, 200, 500, 1000];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum State {
    /// Counts as watched: the answer comes at once.
    Asked,
    Watched,
    /// There is no pidfd for it (another PID namespace, no descriptors left).
    Unwatched,
    /// It has ended, and was read so often since.
    Ended(usize),
}

#[derive(Debug, Default, Serialize)]
pub struct Watches {
    by_pod: BTreeMap<Uid, BTreeMap<String, State>>,
    uncovered: BTreeSet<Uid>,
}

impl Watches {
    /// Nothing can change without a hint.
    pub fn cover_all(&self) -> bool {
        self.uncovered.is_empty()
    }

    pub fn uncovered(&self) -> Vec<Uid> {
        self.uncovered.iter().cloned().collect()
    }

    /// Its pidfd has told.
    pub(super) fn has_ended(&self, uid: &Uid, id: &str) -> bool {
        self.by_pod.get(uid).and_then(|w| w.get(id)).is_some_and(|s| matches!(s, State::Ended(_)))
    }
}

impl Engine {
    /// The facts of a pod changed: what runs is watched, what does not is no more.
    pub(super) fn watch_what_runs(&mut self, uid: &Uid) {
        let Some(entry) = self.cache.get(uid) else { return };
        let watches = self.watches.by_pod.entry(uid.clone()).or_default();
        let runs = running(entry);
        watches.retain(|id, state| {
            let stays = runs.iter().any(|(i, _)| i == id);
            if !stays && matches!(state, State::Asked | State::Watched) {
                self.out.push(Effect::Unwatch { id: id.clone() });
            }
            stays
        });
        for (id, pid) in runs {
            let Some(pid) = pid else { continue };
            if matches!(watches.get(id), None | Some(State::Unwatched)) {
                watches.insert(id.to_string(), State::Asked);
                self.out.push(Effect::Watch { uid: uid.clone(), id: id.to_string(), pid });
            }
        }
        self.look_at_cover(uid);
    }

    /// The pod is forgotten.
    pub(super) fn unwatch_all(&mut self, uid: &Uid) {
        self.watches.uncovered.remove(uid);
        for (id, state) in self.watches.by_pod.remove(uid).unwrap_or_default() {
            match state {
                State::Asked | State::Watched => self.out.push(Effect::Unwatch { id }),
                State::Ended(_) => self.out.push(Effect::Timer { key: TimerKey::Reread(uid.clone()), at: None }),
                State::Unwatched => {}
            }
        }
    }

    pub(super) fn watched(&mut self, uid: &Uid, id: &str, ok: bool) {
        let state = self.watches.by_pod.get_mut(uid).and_then(|w| w.get_mut(id));
        let Some(state) = state.filter(|s| **s == State::Asked) else { return };
        *state = if ok { State::Watched } else { State::Unwatched };
        self.look_at_cover(uid);
    }

    pub(super) fn process_ended(&mut self, uid: &Uid, id: &str) {
        let state = self.watches.by_pod.get_mut(uid).and_then(|w| w.get_mut(id));
        let Some(state) = state.filter(|s| !matches!(s, State::Ended(_))) else { return };
        *state = State::Ended(0);
        // The answer of a stop causes a read anyway.
        if !self.workers.get(uid).is_some_and(|w| w.is_stopping(id)) {
            self.read_soon(uid);
        }
        self.look_at_cover(uid);
    }

    /// A hint: the status of this pod is read now.
    pub(super) fn read_soon(&mut self, uid: &Uid) {
        if let Some(entry) = self.cache.get_mut(uid) {
            entry.want_read();
            self.pleg.queue(uid, entry);
        }
    }

    /// A pod was read: what has ended and is still shown running is looked at again.
    pub(super) fn reread_the_ended(&mut self, uid: &Uid) {
        let ended = self.watches.by_pod.get_mut(uid).into_iter().flatten().filter_map(|(_, state)| match state {
            State::Ended(tries) => {
                *tries += 1;
                Some(*tries - 1)
            }
            _ => None,
        });
        if let Some(tries) = ended.min() {
            let wait = REREAD.get(tries).or(REREAD.last()).copied().unwrap_or(1000);
            let at = self.now.boot + Duration::from_millis(wait);
            self.out.push(Effect::Timer { key: TimerKey::Reread(uid.clone()), at: Some(at) });
            self.look_at_cover(uid);
        }
    }

    /// Can something of this pod change without a hint?
    pub(super) fn look_at_cover(&mut self, uid: &Uid) {
        let Some(entry) = self.cache.get(uid) else { return };
        let watches = self.watches.by_pod.get(uid);
        // Of what has just ended the reading is under way.
        let covered = |s: &State| matches!(s, State::Asked | State::Watched | State::Ended(0));
        let watched = |id: &str| watches.and_then(|w| w.get(id)).is_some_and(covered);
        // Of sandboxes those whose process is known.
        let sandboxes = &entry.facts().sandboxes;
        let seen = sandboxes.iter().filter(|s| s.ready && s.pid.is_some()).all(|s| watched(s.id.as_str()))
            && entry.running().all(|c| c.state == ContainerState::Running && watched(c.id.as_str()));
        if seen && entry.error.is_none() && !entry.in_doubt(self.now.boot) {
            self.watches.uncovered.remove(uid);
        } else {
            self.watches.uncovered.insert(uid.clone());
        }
    }
}

/// What runs of a pod: ids of containers and sandboxes, and their init processes.
fn running(entry: &Entry) -> Vec<(&str, Option<u32>)> {
    let facts = entry.facts();
    let containers = facts.containers.iter().filter(|c| c.state == ContainerState::Running);
    let sandboxes = facts.sandboxes.iter().filter(|s| s.ready);
    containers.map(|c| (c.id.as_str(), c.pid)).chain(sandboxes.map(|s| (s.id.as_str(), s.pid))).collect()
}
