//! P8: decides which init processes a pidfd watches, and which pods may change without a runtime event.
//!
//! The exit of a process causes a status read of its pod. The read is repeated until the runtime shows the exit. Only
//! lists and status reads are trusted; the watches only allow a longer relist period. A pod is *uncovered* while it
//! may change without a runtime event.

use crate::api::facts::ContainerState;
use crate::api::names::Uid;
use crate::api::time::Boot;
use crate::engine::effect::Effect;
use crate::engine::outbox::Outbox;
use crate::engine::pleg::cache::Entry;
use crate::engine::timers::Timers;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The waits in ms between the reads after an exit that the runtime does not show yet. The steps are short up to 70
/// ms, because containerd 1.6 and 1.7 show the exit after 15 to 65 ms: they run `runc delete` first. A read takes 2
/// ms.
const REREAD: [u64; 25] = [1, 2, 4, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 5, 10, 20, 50, 100, 200, 500, 1000];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum State {
    /// The watch was requested. The process counts as watched, because the response arrives at once.
    Asked,
    Watched,
    /// No pidfd is available (another PID namespace, no descriptors left).
    Unwatched,
    /// The process has exited. The number counts the status reads since then.
    Ended(usize),
}

#[derive(Debug, Default, Serialize)]
pub struct Watches {
    by_pod: BTreeMap<Uid, BTreeMap<String, State>>,
    uncovered: BTreeSet<Uid>,
    /// When the pods are read again, because a process has exited that the runtime still showed as running.
    rereads: Timers<Uid>,
}

impl Watches {
    pub fn rereads(&self) -> &Timers<Uid> {
        &self.rereads
    }

    pub fn due_rereads(&mut self, now: Boot) -> Vec<Uid> {
        self.rereads.expired(now)
    }

    /// Returns true if every change causes a runtime event.
    pub fn cover_all(&self) -> bool {
        self.uncovered.is_empty()
    }

    /// Returns the pods that may change without a runtime event.
    pub fn uncovered(&self) -> Vec<Uid> {
        self.uncovered.iter().cloned().collect()
    }

    /// Returns true if the pidfd has reported the exit.
    pub fn has_ended(&self, uid: &Uid, id: &str) -> bool {
        self.by_pod.get(uid).and_then(|w| w.get(id)).is_some_and(|s| matches!(s, State::Ended(_)))
    }

    /// Watches the running processes of a pod whose status has changed, and removes the pod's other watches.
    pub fn update(&mut self, uid: &Uid, entry: &Entry, now: Boot, outbox: &mut Outbox) {
        let watches = self.by_pod.entry(uid.clone()).or_default();
        let runs = running(entry);
        watches.retain(|id, state| {
            let stays = runs.iter().any(|(i, _)| i == id);
            if !stays && matches!(state, State::Asked | State::Watched) {
                outbox.push(Effect::Unwatch { id: id.clone() });
            }
            stays
        });
        for (id, pid) in runs {
            let Some(pid) = pid else { continue };
            if matches!(watches.get(id), None | Some(State::Unwatched)) {
                watches.insert(id.to_string(), State::Asked);
                outbox.push(Effect::Watch { uid: uid.clone(), id: id.to_string(), pid });
            }
        }
        self.update_cover(uid, entry, now);
    }

    pub fn forget(&mut self, uid: &Uid, outbox: &mut Outbox) {
        self.uncovered.remove(uid);
        self.rereads.clear(uid);
        for (id, state) in self.by_pod.remove(uid).unwrap_or_default() {
            match state {
                State::Asked | State::Watched => outbox.push(Effect::Unwatch { id }),
                State::Ended(_) | State::Unwatched => {}
            }
        }
    }

    /// Handles the response to `Effect::Watch`. Returns false if none was expected.
    pub fn answered(&mut self, uid: &Uid, id: &str, ok: bool) -> bool {
        let Some(state) = self.state(uid, id).filter(|s| **s == State::Asked) else { return false };
        *state = if ok { State::Watched } else { State::Unwatched };
        true
    }

    /// Notes the exit that a pidfd reports. Returns false if it is known already.
    pub fn ended(&mut self, uid: &Uid, id: &str) -> bool {
        let Some(state) = self.state(uid, id).filter(|s| !matches!(s, State::Ended(_))) else { return false };
        *state = State::Ended(0);
        true
    }

    fn state(&mut self, uid: &Uid, id: &str) -> Option<&mut State> {
        self.by_pod.get_mut(uid)?.get_mut(id)
    }

    /// Handles a read of the pod. If an exited process is still shown as running, the read is repeated later.
    pub fn was_read(&mut self, uid: &Uid, entry: &Entry, now: Boot) {
        let ended = self.by_pod.get_mut(uid).into_iter().flatten().filter_map(|(_, state)| match state {
            State::Ended(tries) => {
                *tries += 1;
                Some(*tries - 1)
            }
            _ => None,
        });
        if let Some(tries) = ended.min() {
            let wait = REREAD.get(tries).or(REREAD.last()).copied().unwrap_or(1000);
            self.rereads.set(uid.clone(), now + Duration::from_millis(wait));
            self.update_cover(uid, entry, now);
        }
    }

    /// Records whether the pod may change unnoticed without a runtime event, because a process of it is not
    /// watched.
    pub fn update_cover(&mut self, uid: &Uid, entry: &Entry, now: Boot) {
        let watches = self.by_pod.get(uid);
        // For a process that has just exited, the read is under way.
        let covered = |s: &State| matches!(s, State::Asked | State::Watched | State::Ended(0));
        let watched = |id: &str| watches.and_then(|w| w.get(id)).is_some_and(covered);
        // Only sandboxes with a known process are considered.
        let sandboxes = &entry.facts().sandboxes;
        let seen = sandboxes.iter().filter(|s| s.ready && s.pid.is_some()).all(|s| watched(s.id.as_str()))
            && entry.running().all(|c| c.state == ContainerState::Running && watched(c.id.as_str()));
        if seen && entry.error.is_none() && !entry.in_doubt(now) {
            self.uncovered.remove(uid);
        } else {
            self.uncovered.insert(uid.clone());
        }
    }
}

/// Returns the ids and init processes of the running containers and ready sandboxes of a pod.
fn running(entry: &Entry) -> Vec<(&str, Option<u32>)> {
    let facts = entry.facts();
    let containers = facts.containers.iter().filter(|c| c.state == ContainerState::Running);
    let sandboxes = facts.sandboxes.iter().filter(|s| s.ready);
    containers.map(|c| (c.id.as_str(), c.pid)).chain(sandboxes.map(|s| (s.id.as_str(), s.pid))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::facts::SandboxFact;
    use crate::api::time::Wall;

    fn entry(pid: Option<u32>, ready: bool) -> Entry {
        let mut entry = Entry::empty(1);
        let sandbox = SandboxFact {
            user_namespace: None,
            id: "s1".into(),
            attempt: 0,
            ready,
            created_at: Wall(1),
            ips: Vec::new(),
            host_network: false,
            owner: None,
            pid,
        };
        entry.put_sandbox(sandbox, 2);
        entry
    }

    #[test]
    fn p8_a_running_process_is_watched_until_the_status_shows_its_end() {
        let (mut watches, mut outbox, uid) = (Watches::default(), Outbox::default(), Uid::from("a"));
        watches.update(&uid, &entry(Some(7), true), Boot(0), &mut outbox);
        assert!(matches!(outbox.take().as_slice(), [Effect::Watch { pid: 7, .. }]));
        assert!(watches.cover_all(), "the answer arrives at once");
        assert!(watches.answered(&uid, "s1", true) && !watches.answered(&uid, "s1", true));
        watches.update(&uid, &entry(Some(7), false), Boot(0), &mut outbox);
        assert!(matches!(outbox.take().as_slice(), [Effect::Unwatch { .. }]));
    }

    #[test]
    fn p8_after_an_end_that_the_runtime_does_not_show_the_pod_is_read_again() {
        let (mut watches, mut outbox, uid) = (Watches::default(), Outbox::default(), Uid::from("a"));
        let runs = entry(Some(7), true);
        watches.update(&uid, &runs, Boot(0), &mut outbox);
        assert!(watches.ended(&uid, "s1") && !watches.ended(&uid, "s1") && watches.has_ended(&uid, "s1"));
        outbox.take();
        for wait in [1, 2, 4] {
            watches.was_read(&uid, &runs, Boot(0));
            assert_eq!(watches.rereads().next(), Some(Boot(0) + Duration::from_millis(wait)));
            assert!(!watches.cover_all());
        }
        watches.forget(&uid, &mut outbox);
        assert_eq!((watches.rereads().next(), outbox.take().len()), (None, 0));
        assert!(watches.cover_all());
    }

    #[test]
    fn p8_a_process_without_a_pidfd_leaves_its_pod_to_the_relists() {
        let (mut watches, mut outbox, uid) = (Watches::default(), Outbox::default(), Uid::from("a"));
        let runs = entry(Some(7), true);
        watches.update(&uid, &runs, Boot(0), &mut outbox);
        assert!(watches.answered(&uid, "s1", false));
        watches.update_cover(&uid, &runs, Boot(0));
        assert_eq!((watches.cover_all(), watches.uncovered()), (false, vec![uid]));
    }
}
