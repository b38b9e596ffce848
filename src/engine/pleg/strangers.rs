//! Sandboxes and containers of other owners under the UID of a pod of ours (W21): a kubelet's pod of the same manifest, or the
//! pods of another root directory.
//!
//! Wherry acts on what carries its own annotation and on nothing else. But whoever shares a UID shares more than a label: the
//! names of sandboxes and containers in the runtime, the log directory and the cgroup are made of it. So a worker has to know
//! that somebody else is there: it starts nothing beside what runs, takes other numbers, and leaves what is shared alone.

use crate::api::facts::{ContainerFact, ContainerState, ListedContainer, ListedSandbox, PodFacts, SandboxFact};
use crate::api::names::{ContainerId, SandboxId};
use serde::Serialize;
use std::collections::BTreeMap;

/// What the runtime has of others under one UID.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Strangers {
    /// There is something outside of our own sandboxes, running or dead.
    any: bool,
    /// One that runs.
    running: Option<Stranger>,
    /// The highest attempt of a sandbox.
    sandbox: Option<u32>,
    /// The highest attempt of a container, by its name.
    containers: BTreeMap<String, u32>,
}

/// A sandbox that is ready, or a container that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stranger {
    /// `sandbox ID` or `container ID`.
    pub what: String,
    /// `annotation::OWNER`: the id of another root directory; None of what wherry did not make.
    pub owner: Option<String>,
}

impl Strangers {
    /// Takes what is not `owner`'s out of the status of a pod.
    pub fn split(mut facts: PodFacts, owner: &str) -> (PodFacts, Strangers) {
        let ours = |o: &Option<String>| o.as_deref() == Some(owner);
        if facts.sandboxes.iter().all(|s| ours(&s.owner)) && facts.containers.iter().all(|c| ours(&c.owner)) {
            return (facts, Strangers::default());
        }
        let (own, sandboxes): (Vec<SandboxFact>, Vec<_>) = facts.sandboxes.into_iter().partition(|s| ours(&s.owner));
        facts.sandboxes = own;
        let (own, containers): (Vec<ContainerFact>, Vec<_>) =
            facts.containers.into_iter().partition(|c| ours(&c.owner));
        facts.containers = own;
        let mut strangers = Strangers::default();
        for s in sandboxes {
            strangers.add_sandbox(&s.id, s.attempt, s.ready, &s.owner);
        }
        for c in containers {
            let inside = facts.sandboxes.iter().any(|s| s.id == c.sandbox);
            strangers.add_container(&c.id, (&c.name, c.attempt), c.state, inside, &c.owner);
        }
        (facts, strangers)
    }

    /// The same of a list: the things of others under one UID, and our sandboxes under it.
    pub fn listed(sandboxes: &[&ListedSandbox], containers: &[&ListedContainer], own: &[&ListedSandbox]) -> Strangers {
        let mut strangers = Strangers::default();
        for s in sandboxes {
            strangers.add_sandbox(&s.id, s.attempt, s.ready, &s.owner);
        }
        for c in containers {
            let inside = own.iter().any(|s| s.id == c.sandbox);
            strangers.add_container(&c.id, (&c.name, c.attempt), c.state, inside, &c.owner);
        }
        strangers
    }

    fn add_sandbox(&mut self, id: &SandboxId, attempt: u32, ready: bool, owner: &Option<String>) {
        self.any = true;
        self.sandbox = self.sandbox.max(Some(attempt));
        if ready && self.running.is_none() {
            self.running = Some(Stranger { what: format!("sandbox {id}"), owner: owner.clone() });
        }
    }

    /// `inside`: it is in a sandbox of ours, and ends with that.
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
            self.running = Some(Stranger { what: format!("container {id}"), owner: owner.clone() });
        }
    }

    /// The runtime has something of others under this UID: its log directory and its cgroup are not ours alone.
    pub fn share_the_uid(&self) -> bool {
        self.any
    }

    /// One that runs.
    pub fn running(&self) -> Option<&Stranger> {
        self.running.as_ref()
    }

    /// The first number of a sandbox that theirs leave free.
    pub fn next_sandbox(&self) -> u32 {
        self.sandbox.map_or(0, |attempt| attempt.saturating_add(1))
    }

    /// The first number of a container of this name that theirs leave free.
    pub fn next_container(&self, name: &str) -> u32 {
        self.containers.get(name).map_or(0, |attempt| attempt.saturating_add(1))
    }
}

impl Stranger {
    /// For people: what is there, and whose it is.
    pub fn in_words(&self) -> String {
        match &self.owner {
            Some(owner) => format!("{} of the root directory with the id {owner}", self.what),
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
    fn w21_nothing_of_others_takes_no_number_and_shares_nothing() {
        let none = Strangers::listed(&[], &[], &[&sandbox("s1", 4, true, Some("me"))]);
        assert_eq!(none, Strangers::default());
        assert_eq!((none.next_sandbox(), none.next_container("main"), none.share_the_uid()), (0, 0, false));
    }

    #[test]
    fn w21_what_is_dead_takes_its_numbers_and_what_runs_is_named_with_its_owner() {
        let dead = sandbox("s1", 4, false, Some("you"));
        let ended =
            [container("c1", "s1", 2, ContainerState::Exited), container("c2", "s1", 1, ContainerState::Created)];
        let strangers = Strangers::listed(&[&dead], &ended.each_ref(), &[]);
        assert_eq!((strangers.next_sandbox(), strangers.next_container("main")), (5, 3));
        assert!(strangers.running().is_none() && strangers.share_the_uid());

        let ready = sandbox("s1", 4, true, Some("you"));
        let strangers = Strangers::listed(&[&ready], &[], &[]);
        let words = "sandbox s1 of the root directory with the id you";
        assert_eq!(strangers.running().map(Stranger::in_words).as_deref(), Some(words));

        // Nobody knows whether one in the state unknown runs.
        for state in [ContainerState::Running, ContainerState::Unknown] {
            let strangers = Strangers::listed(&[], &[&container("c1", "s1", 0, state)], &[]);
            let words = "container c1, which wherry did not create";
            assert_eq!(strangers.running().map(Stranger::in_words).as_deref(), Some(words));
        }
    }

    #[test]
    fn w21_a_container_of_others_in_a_sandbox_of_ours_takes_its_number_alone() {
        let ours = sandbox("s1", 0, true, Some("me"));
        let inside = container("c1", "s1", 3, ContainerState::Running);
        let strangers = Strangers::listed(&[], &[&inside], &[&ours]);
        assert!(!strangers.share_the_uid() && strangers.running().is_none());
        assert_eq!(strangers.next_container("main"), 4);
    }
}
