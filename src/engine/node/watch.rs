//! P8: decides which init processes a pidfd watches, and the relist period that follows from it.
//!
//! The end of a process causes a status read of its pod. The read is repeated until the runtime shows the end. Only
//! lists and status reads are trusted; the watches only allow a longer relist period. A pod is *uncovered* while it may
//! change without a runtime event.

use super::Engine;
use crate::api::facts::ContainerState;
use crate::api::names::Uid;
use crate::engine::effect::{Effect, TimerKey};
use crate::engine::pleg::cache::Entry;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The waits in ms between the reads after an end that the runtime does not show yet. The steps are short around 15 to
/// 25 ms, when containerd 1.6 and 1.7 show it (they run `runc delete` first).
const REREAD: [u64; 14] = [1, 2, 4, 5, 5, 5, 5, 10, 20, 50, 100, 200, 500, 1000];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum State {
    /// Counts as watched: the answer arrives at once.
    Asked,
    Watched,
    /// No pidfd is available (another PID namespace, no descriptors left).
    Unwatched,
    /// It has ended. The number counts the status reads since then.
    Ended(usize),
}

#[derive(Debug, Default, Serialize)]
pub struct Watches {
    by_pod: BTreeMap<Uid, BTreeMap<String, State>>,
    uncovered: BTreeSet<Uid>,
}

impl Watches {
    /// True if every change causes a runtime event.
    pub fn cover_all(&self) -> bool {
        self.uncovered.is_empty()
    }

    pub fn uncovered(&self) -> Vec<Uid> {
        self.uncovered.iter().cloned().collect()
    }

    /// The pidfd has reported the end.
    pub(super) fn has_ended(&self, uid: &Uid, id: &str) -> bool {
        self.by_pod.get(uid).and_then(|w| w.get(id)).is_some_and(|s| matches!(s, State::Ended(_)))
    }
}

impl Engine {
    /// The status of a pod changed: watches its running processes and removes the other watches.
    pub(super) fn watch_what_runs(&mut self, uid: &Uid) {
        let Some(entry) = self.cache.get(uid) else { return };
        let watches = self.watches.by_pod.entry(uid.clone()).or_default();
        let runs = running(entry);
        watches.retain(|id, state| {
            let stays = runs.iter().any(|(i, _)| i == id);
            if !stays && matches!(state, State::Asked | State::Watched) {
                self.outbox.push(Effect::Unwatch { id: id.clone() });
            }
            stays
        });
        for (id, pid) in runs {
            let Some(pid) = pid else { continue };
            if matches!(watches.get(id), None | Some(State::Unwatched)) {
                watches.insert(id.to_string(), State::Asked);
                self.outbox.push(Effect::Watch { uid: uid.clone(), id: id.to_string(), pid });
            }
        }
        self.look_at_cover(uid);
    }

    /// The pod is forgotten.
    pub(super) fn unwatch_all(&mut self, uid: &Uid) {
        self.watches.uncovered.remove(uid);
        for (id, state) in self.watches.by_pod.remove(uid).unwrap_or_default() {
            match state {
                State::Asked | State::Watched => self.outbox.push(Effect::Unwatch { id }),
                State::Ended(_) => self.outbox.push(Effect::Timer { key: TimerKey::Reread(uid.clone()), at: None }),
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
        // The answer to a stop causes a read anyway.
        if !self.workers.get(uid).is_some_and(|w| w.is_stopping(id)) {
            self.read_soon(uid);
        }
        self.look_at_cover(uid);
    }

    /// Requests a status read of the pod now.
    pub(super) fn read_soon(&mut self, uid: &Uid) {
        if let Some(entry) = self.cache.get_mut(uid) {
            entry.want_read();
            self.pleg.queue(uid, entry);
        }
    }

    /// The pod was read. If an ended process is still shown as running, the read is repeated later.
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
            self.outbox.push(Effect::Timer { key: TimerKey::Reread(uid.clone()), at: Some(at) });
            self.look_at_cover(uid);
        }
    }

    /// Updates whether the pod may change without a runtime event.
    pub(super) fn look_at_cover(&mut self, uid: &Uid) {
        let Some(entry) = self.cache.get(uid) else { return };
        let watches = self.watches.by_pod.get(uid);
        // For a process that has just ended, the read is under way.
        let covered = |s: &State| matches!(s, State::Asked | State::Watched | State::Ended(0));
        let watched = |id: &str| watches.and_then(|w| w.get(id)).is_some_and(covered);
        // Only sandboxes with a known process.
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

/// The running containers and ready sandboxes of a pod: ids and init processes.
fn running(entry: &Entry) -> Vec<(&str, Option<u32>)> {
    let facts = entry.facts();
    let containers = facts.containers.iter().filter(|c| c.state == ContainerState::Running);
    let sandboxes = facts.sandboxes.iter().filter(|s| s.ready);
    containers.map(|c| (c.id.as_str(), c.pid)).chain(sandboxes.map(|s| (s.id.as_str(), s.pid))).collect()
}
