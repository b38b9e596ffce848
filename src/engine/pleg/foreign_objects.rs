//! Sandboxes and containers of other owners under the UID of one of our pods (W21): a kubelet's pod from the same
//! manifest, or pods of another root directory.
//!
//! Wherry acts only on objects with its own annotation. But the names of sandboxes and containers in the runtime, the
//! log directory and the cgroup are derived from the UID. So a worker must know about other owners: it starts nothing
//! next to their running pods, uses other attempt numbers, and leaves shared files and cgroups alone.

use crate::api::facts::{ContainerFact, ContainerState, ListedContainer, ListedSandbox, PodFacts, SandboxFact};
use crate::api::names::{ContainerId, SandboxId};
use serde::Serialize;
use std::collections::BTreeMap;

/// The runtime's objects of other owners under one UID.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ForeignObjects {
    /// Another owner has a running or dead object outside of our sandboxes.
    any: bool,
    /// One of the running objects.
    running: Option<ForeignObject>,
    /// The highest attempt of a sandbox.
    sandbox: Option<u32>,
    /// The highest attempt of a container, by container name.
    containers: BTreeMap<String, u32>,
}

/// A ready sandbox or a running container of another owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ForeignObject {
    /// `sandbox ID` or `container ID`.
    pub what: String,
    /// `annotation::OWNER`: the id of another root directory; None if Wherry did not create the object.
    pub owner: Option<String>,
}

impl ForeignObjects {
    /// Splits a pod's status into the objects of `owner` and those of others.
    pub fn split(mut facts: PodFacts, owner: &str) -> (PodFacts, ForeignObjects) {
        let ours = |o: &Option<String>| o.as_deref() == Some(owner);
        if facts.sandboxes.iter().all(|s| ours(&s.owner)) && facts.containers.iter().all(|c| ours(&c.owner)) {
            return (facts, ForeignObjects::default());
        }
        let (own, sandboxes): (Vec<SandboxFact>, Vec<_>) = facts.sandboxes.into_iter().partition(|s| ours(&s.owner));
        facts.sandboxes = own;
        let (own, containers): (Vec<ContainerFact>, Vec<_>) =
            facts.containers.into_iter().partition(|c| ours(&c.owner));
        facts.containers = own;
        let mut foreign = ForeignObjects::default();
        for s in sandboxes {
            foreign.add_sandbox(&s.id, s.attempt, s.ready, &s.owner);
        }
        for c in containers {
            let inside = facts.sandboxes.iter().any(|s| s.id == c.sandbox);
            foreign.add_container(&c.id, (&c.name, c.attempt), c.state, inside, &c.owner);
        }
        (facts, foreign)
    }

    /// Does the same for a list. The arguments are the objects of other owners under one UID, and our sandboxes under
    /// it.
    pub fn listed(
        sandboxes: &[&ListedSandbox],
        containers: &[&ListedContainer],
        own: &[&ListedSandbox],
    ) -> ForeignObjects {
        let mut foreign = ForeignObjects::default();
        for s in sandboxes {
            foreign.add_sandbox(&s.id, s.attempt, s.ready, &s.owner);
        }
        for c in containers {
            let inside = own.iter().any(|s| s.id == c.sandbox);
            foreign.add_container(&c.id, (&c.name, c.attempt), c.state, inside, &c.owner);
        }
        foreign
    }

    fn add_sandbox(&mut self, id: &SandboxId, attempt: u32, ready: bool, owner: &Option<String>) {
        self.any = true;
        self.sandbox = self.sandbox.max(Some(attempt));
        if ready && self.running.is_none() {
            self.running = Some(ForeignObject { what: format!("sandbox {id}"), owner: owner.clone() });
        }
    }

    /// Adds a container of another owner. `inside`: it is in one of our sandboxes and ends with the sandbox.
    fn add_container(
        &mut self,
        id: &ContainerId,
        (name, attempt): (&str, u32),
        state: ContainerState,
        inside: bool,
        owner: &Option<String>,
    ) {
        let highest = self.containers.entry(name.to_owned()).or_insert(attempt);
        *highest = attempt.max(*highest);
        if inside {
            return;
        }
        self.any = true;
        let runs = matches!(state, ContainerState::Running | ContainerState::Unknown);
        if runs && self.running.is_none() {
            self.running = Some(ForeignObject { what: format!("container {id}"), owner: owner.clone() });
        }
    }

    /// Returns true if the runtime has objects of other owners under this UID, so that the log directory and the
    /// cgroup are shared.
    pub fn share_the_uid(&self) -> bool {
        self.any
    }

    /// Returns one of the running objects of other owners.
    pub fn running(&self) -> Option<&ForeignObject> {
        self.running.as_ref()
    }

    /// Returns the first sandbox attempt above those of other owners.
    pub fn next_sandbox(&self) -> u32 {
        self.sandbox.map_or(0, |attempt| attempt.saturating_add(1))
    }

    /// Returns the first attempt for a container of this name above those of other owners.
    pub fn next_container(&self, name: &str) -> u32 {
        self.containers.get(name).map_or(0, |attempt| attempt.saturating_add(1))
    }
}

impl ForeignObject {
    /// Describes the object and its owner, for messages.
    pub fn in_words(&self) -> String {
        match &self.owner {
            Some(owner) => format!("{} of another Wherry (root directory with the id {owner})", self.what),
            None => format!("{}, which wherry did not create", self.what),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::names::{FullName, Uid};
    use crate::api::time::Wall;

    fn sandbox(id: &str, attempt: u32, ready: bool, owner: Option<&str>) -> ListedSandbox {
        ListedSandbox {
            user_namespace: None,
            id: id.into(),
            uid: Uid::from("u"),
            name: FullName::new("default", "web"),
            attempt,
            ready,
            owner: owner.map(str::to_owned),
            grace_seconds: None,
            created_at: Wall(1),
        }
    }

    fn container(id: &str, sandbox: &str, attempt: u32, state: ContainerState) -> ListedContainer {
        ListedContainer {
            id: id.into(),
            sandbox: sandbox.into(),
            uid: Uid::from("u"),
            pod_name: FullName::new("default", "web"),
            name: "main".into(),
            attempt,
            state,
            owner: None,
            grace_seconds: None,
            created_at: Wall(1),
        }
    }

    #[test]
    fn w21_without_objects_of_other_owners_no_attempt_is_reserved() {
        let none = ForeignObjects::listed(&[], &[], &[&sandbox("s1", 4, true, Some("me"))]);
        assert_eq!(none, ForeignObjects::default());
        assert_eq!((none.next_sandbox(), none.next_container("main"), none.share_the_uid()), (0, 0, false));
    }

    #[test]
    fn w21_dead_objects_reserve_their_attempts_and_running_ones_are_reported_with_their_owner() {
        let dead = sandbox("s1", 4, false, Some("you"));
        let ended =
            [container("c1", "s1", 2, ContainerState::Exited), container("c2", "s1", 1, ContainerState::Created)];
        let foreign = ForeignObjects::listed(&[&dead], &ended.each_ref(), &[]);
        assert_eq!((foreign.next_sandbox(), foreign.next_container("main")), (5, 3));
        assert!(foreign.running().is_none() && foreign.share_the_uid());

        let ready = sandbox("s1", 4, true, Some("you"));
        let foreign = ForeignObjects::listed(&[&ready], &[], &[]);
        let words = "sandbox s1 of another Wherry (root directory with the id you)";
        assert_eq!(foreign.running().map(ForeignObject::in_words).as_deref(), Some(words));

        // A container in the state unknown may run.
        for state in [ContainerState::Running, ContainerState::Unknown] {
            let foreign = ForeignObjects::listed(&[], &[&container("c1", "s1", 0, state)], &[]);
            let words = "container c1, which wherry did not create";
            assert_eq!(foreign.running().map(ForeignObject::in_words).as_deref(), Some(words));
        }
    }

    #[test]
    fn w21_a_foreign_container_in_our_sandbox_reserves_only_its_attempt() {
        let ours = sandbox("s1", 0, true, Some("me"));
        let inside = container("c1", "s1", 3, ContainerState::Running);
        let foreign = ForeignObjects::listed(&[], &[&inside], &[&ours]);
        assert!(!foreign.share_the_uid() && foreign.running().is_none());
        assert_eq!(foreign.next_container("main"), 4);
    }
}
