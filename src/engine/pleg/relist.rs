//! Generates pod lifecycle events: compares a full list with the cached status of each pod (P1, P2).
//!
//! The old state is the cached one. Therefore a change whose read failed appears again (P3), and a change that the
//! worker made itself is not an event.

use crate::api::facts::{ContainerState, Listed, ListedContainer, ListedSandbox, PodFacts};
use crate::api::names::Uid;
use crate::api::ordered::{CollectOrdered, OrderSlice};
use crate::engine::pleg::foreign_objects::ForeignObjects;
use serde::Serialize;
use std::collections::BTreeMap;

/// The states of P1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Running,
    Exited,
    Unknown,
    NonExistent,
}

impl From<ContainerState> for State {
    fn from(s: ContainerState) -> State {
        match s {
            ContainerState::Running => State::Running,
            ContainerState::Exited => State::Exited,
            ContainerState::Created | ContainerState::Unknown => State::Unknown,
        }
    }
}

fn sandbox_state(ready: bool) -> State {
    if ready { State::Running } else { State::Exited }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Kind {
    ContainerStarted,
    ContainerDied,
    ContainerChanged,
    ContainerRemoved,
}

/// One change of a container or sandbox of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlegEvent {
    pub id: String,
    pub kind: Kind,
}

/// Returns the events of a state change (P2).
pub fn transition(old: State, new: State) -> &'static [Kind] {
    if old == new {
        return &[];
    }
    match new {
        State::Running => &[Kind::ContainerStarted],
        State::Exited => &[Kind::ContainerDied],
        State::Unknown => &[Kind::ContainerChanged],
        State::NonExistent if old == State::Exited => &[Kind::ContainerRemoved],
        State::NonExistent => &[Kind::ContainerDied, Kind::ContainerRemoved],
    }
}

/// The part of a list that belongs to one pod.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListedPod<'a> {
    pub sandboxes: &'a [&'a ListedSandbox],
    pub containers: &'a [&'a ListedContainer],
}

impl ListedPod<'_> {
    /// Returns true if a sandbox is ready, or a container runs or may run.
    pub fn runs(&self) -> bool {
        let may_run = |c: &&ListedContainer| matches!(c.state, ContainerState::Running | ContainerState::Unknown);
        self.sandboxes.iter().any(|s| s.ready) || self.containers.iter().any(may_run)
    }

    /// Returns the longest grace period in the pod's annotations, in seconds (W21).
    pub fn grace_seconds(&self) -> Option<u64> {
        let of_containers = self.containers.iter().filter_map(|c| c.grace_seconds);
        of_containers.chain(self.sandboxes.iter().filter_map(|s| s.grace_seconds)).max()
    }
}

/// A list, grouped by pod; our objects are separate from those of other owners (W21). Sorted vectors need few
/// allocations even for a list of a thousand containers.
#[derive(Debug)]
pub struct ByPod<'a> {
    sandboxes: Vec<&'a ListedSandbox>,
    containers: Vec<&'a ListedContainer>,
    other_sandboxes: Vec<&'a ListedSandbox>,
    other_containers: Vec<&'a ListedContainer>,
}

pub fn by_pod<'a>(listed: &'a Listed, owner: &str) -> ByPod<'a> {
    // `Iterator::partition` cannot preallocate its vectors.
    let mut sandboxes = Vec::with_capacity(listed.sandboxes.len());
    let mut containers = Vec::with_capacity(listed.containers.len());
    let (mut other_sandboxes, mut other_containers) = (Vec::new(), Vec::new());
    for s in &listed.sandboxes {
        if s.owner.as_deref() == Some(owner) { sandboxes.push(s) } else { other_sandboxes.push(s) }
    }
    for c in &listed.containers {
        if c.owner.as_deref() == Some(owner) { containers.push(c) } else { other_containers.push(c) }
    }
    // `of_uid` needs the objects sorted by UID.
    for sandboxes in [&mut sandboxes, &mut other_sandboxes] {
        sandboxes.order_by(|a, b| (&a.uid, &a.id).cmp(&(&b.uid, &b.id)));
    }
    for containers in [&mut containers, &mut other_containers] {
        containers.order_by(|a, b| (&a.uid, &a.id).cmp(&(&b.uid, &b.id)));
    }
    ByPod { sandboxes, containers, other_sandboxes, other_containers }
}

/// Returns the part with this UID of a vector that is sorted by UID.
fn of_uid<'v, T>(sorted: &'v [T], uid: &Uid, of: impl Fn(&T) -> &Uid) -> &'v [T] {
    let begin = sorted.partition_point(|t| of(t) < uid);
    let (_, rest) = sorted.split_at(begin);
    rest.split_at(rest.partition_point(|t| of(t) == uid)).0
}

impl ByPod<'_> {
    pub fn shows(&self, uid: &Uid) -> bool {
        self.sandboxes.binary_search_by(|s| s.uid.cmp(uid)).is_ok()
            || self.containers.binary_search_by(|c| c.uid.cmp(uid)).is_ok()
    }

    /// Returns the UIDs with objects of other owners, each once, in order.
    pub fn shared(&self) -> impl Iterator<Item = &Uid> {
        let (sandboxes, containers) = (&self.other_sandboxes, &self.other_containers);
        let (mut s, mut c) =
            (sandboxes.iter().map(|s| &s.uid).peekable(), containers.iter().map(|c| &c.uid).peekable());
        std::iter::from_fn(move || {
            let uid = match (s.peek(), c.peek()) {
                (Some(a), Some(b)) => *a.min(b),
                (Some(uid), None) | (None, Some(uid)) => *uid,
                (None, None) => return None,
            };
            while s.next_if(|next| *next == uid).is_some() {}
            while c.next_if(|next| *next == uid).is_some() {}
            Some(uid)
        })
    }

    /// Returns the objects of other owners under this UID.
    pub fn foreign(&self, uid: &Uid) -> ForeignObjects {
        ForeignObjects::listed(
            of_uid(&self.other_sandboxes, uid, |s| &s.uid),
            of_uid(&self.other_containers, uid, |c| &c.uid),
            of_uid(&self.sandboxes, uid, |s| &s.uid),
        )
    }

    /// Returns the pods in the order of their UIDs.
    pub fn pods(&self) -> impl Iterator<Item = (&Uid, ListedPod<'_>)> {
        let (mut sandboxes, mut containers) = (self.sandboxes.as_slice(), self.containers.as_slice());
        std::iter::from_fn(move || {
            let uid = match (sandboxes.first(), containers.first()) {
                (Some(s), Some(c)) => (&s.uid).min(&c.uid),
                (Some(s), None) => &s.uid,
                (None, Some(c)) => &c.uid,
                (None, None) => return None,
            };
            let (of_sandboxes, rest) = sandboxes.split_at(sandboxes.iter().take_while(|s| s.uid == *uid).count());
            sandboxes = rest;
            let (of_containers, rest) = containers.split_at(containers.iter().take_while(|c| c.uid == *uid).count());
            containers = rest;
            Some((uid, ListedPod { sandboxes: of_sandboxes, containers: of_containers }))
        })
    }
}

/// Reports whether the cache already shows this event. A container that has exited does not run again under the same
/// id.
pub fn shows(cached: &PodFacts, event: &PlegEvent) -> bool {
    let sandbox = cached.sandboxes.iter().find(|s| s.id.as_str() == event.id).map(|s| sandbox_state(s.ready));
    let container = || cached.containers.iter().find(|c| c.id.as_str() == event.id).map(|c| State::from(c.state));
    let state = sandbox.or_else(container).unwrap_or(State::NonExistent);
    match event.kind {
        // P2: this event is not passed on.
        Kind::ContainerChanged => true,
        Kind::ContainerStarted => matches!(state, State::Running | State::Exited),
        Kind::ContainerDied => state == State::Exited,
        Kind::ContainerRemoved => state == State::NonExistent,
    }
}

/// Reports whether the list and the cache show the same states.
pub fn same(cached: &PodFacts, listed: &ListedPod<'_>) -> bool {
    cached.sandboxes.len() == listed.sandboxes.len()
        && cached.containers.len() == listed.containers.len()
        && listed.sandboxes.iter().all(|l| cached.sandboxes.iter().any(|s| s.id == l.id && s.ready == l.ready))
        && listed
            .containers
            .iter()
            .all(|l| cached.containers.iter().any(|c| c.id == l.id && State::from(c.state) == State::from(l.state)))
}

/// Returns the events that lead from the cached state to the list.
pub fn changes(cached: &PodFacts, listed: &ListedPod<'_>) -> Vec<PlegEvent> {
    let mut old: BTreeMap<&str, State> = BTreeMap::new();
    old.extend(cached.sandboxes.iter().map(|s| (s.id.as_str(), sandbox_state(s.ready))));
    old.extend(cached.containers.iter().map(|c| (c.id.as_str(), State::from(c.state))));
    let mut new: BTreeMap<&str, State> = BTreeMap::new();
    new.extend(listed.sandboxes.iter().map(|s| (s.id.as_str(), sandbox_state(s.ready))));
    new.extend(listed.containers.iter().map(|c| (c.id.as_str(), State::from(c.state))));

    let mut events = Vec::new();
    let ids: std::collections::BTreeSet<&str> = old.keys().chain(new.keys()).copied().collect_set();
    for id in ids {
        let from = old.get(id).copied().unwrap_or(State::NonExistent);
        let to = new.get(id).copied().unwrap_or(State::NonExistent);
        events.extend(transition(from, to).iter().map(|&kind| PlegEvent { id: id.to_string(), kind }));
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;
    use State::*;

    #[test]
    fn p2_events_by_transition() {
        assert_eq!(transition(NonExistent, Running), [Kind::ContainerStarted]);
        assert_eq!(transition(Unknown, Running), [Kind::ContainerStarted]);
        assert_eq!(transition(Running, Exited), [Kind::ContainerDied]);
        assert_eq!(transition(NonExistent, Exited), [Kind::ContainerDied]);
        assert_eq!(transition(Running, Unknown), [Kind::ContainerChanged]);
        assert_eq!(transition(Exited, NonExistent), [Kind::ContainerRemoved]);
        assert_eq!(transition(Running, NonExistent), [Kind::ContainerDied, Kind::ContainerRemoved]);
        assert_eq!(transition(Unknown, NonExistent), [Kind::ContainerDied, Kind::ContainerRemoved]);
        assert!(transition(Running, Running).is_empty());
    }

    fn sandbox(uid: &str, id: &str, ready: bool, owner: &str) -> ListedSandbox {
        ListedSandbox {
            user_namespace: None,
            id: id.into(),
            uid: uid.into(),
            name: crate::api::names::FullName::new("default", uid),
            attempt: 0,
            ready,
            owner: Some(owner.into()),
            grace_seconds: None,
            created_at: crate::api::time::Wall(1),
        }
    }

    fn container(uid: &str, id: &str, state: ContainerState, owner: &str) -> ListedContainer {
        ListedContainer {
            id: id.into(),
            sandbox: "".into(),
            uid: uid.into(),
            pod_name: crate::api::names::FullName::new("default", uid),
            name: "main".into(),
            attempt: 0,
            state,
            owner: Some(owner.into()),
            grace_seconds: None,
            created_at: crate::api::time::Wall(1),
        }
    }

    #[test]
    fn w21_a_list_is_split_by_pod_without_objects_of_other_owners() {
        let listed = Listed {
            sandboxes: vec![
                sandbox("b", "s1", true, "me"),
                sandbox("a", "s2", true, "me"),
                sandbox("c", "s3", true, "you"),
            ],
            containers: vec![
                container("d", "c1", ContainerState::Running, "me"),
                container("a", "c2", ContainerState::Running, "me"),
                container("a", "c3", ContainerState::Exited, "me"),
                container("b", "c4", ContainerState::Running, "you"),
            ],
        };
        let pods = by_pod(&listed, "me");
        let shape: Vec<_> =
            pods.pods().map(|(uid, p)| (uid.to_string(), p.sandboxes.len(), p.containers.len())).collect();
        assert_eq!(shape, [("a".to_string(), 1, 2), ("b".to_string(), 1, 0), ("d".to_string(), 0, 1)]);
        assert!(pods.shows(&"d".into()) && !pods.shows(&"c".into()));
        assert_eq!(pods.shared().map(Uid::as_str).collect::<Vec<_>>(), ["b", "c"]);
        assert!(pods.foreign(&"b".into()).running().is_some_and(|s| s.what == "container c4"));
        assert!(pods.foreign(&"c".into()).running().is_some_and(|s| s.what == "sandbox s3"));
        assert!(!pods.foreign(&"a".into()).share_the_uid());
    }

    #[test]
    fn p2_a_state_already_in_the_cache_is_no_event() {
        let listed = Listed {
            sandboxes: vec![sandbox("a", "s1", true, "me")],
            containers: vec![container("a", "c1", ContainerState::Running, "me")],
        };
        let pods = by_pod(&listed, "me");
        let Some((_, shown)) = pods.pods().next() else { panic!("no pod") };
        let mut cached = PodFacts::default();
        assert!(!same(&cached, &shown));
        let kinds: Vec<Kind> = changes(&cached, &shown).into_iter().map(|e| e.kind).collect();
        assert_eq!(kinds, [Kind::ContainerStarted, Kind::ContainerStarted]);
        cached.sandboxes.push(crate::api::facts::SandboxFact {
            user_namespace: None,
            id: "s1".into(),
            attempt: 0,
            ready: true,
            created_at: crate::api::time::Wall(1),
            ips: Vec::new(),
            host_network: false,
            owner: None,
            pid: None,
        });
        let kinds: Vec<String> = changes(&cached, &shown).into_iter().map(|e| e.id).collect();
        assert_eq!(kinds, ["c1"]);
        let gone = changes(&cached, &ListedPod::default());
        assert_eq!(gone.iter().map(|e| e.kind).collect::<Vec<_>>(), [Kind::ContainerDied, Kind::ContainerRemoved]);
    }
}
