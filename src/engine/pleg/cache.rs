//! The last status read of each pod, and whether a worker may act on it (P3 to P5).
//!
//! Status reads and the responses to the worker's own calls update an entry. `Generation` counts the engine's steps.
//! It orders reads and changes, because clock times could be equal.

use crate::api::facts::{ContainerFact, ContainerState, PodFacts, SandboxFact};
use crate::api::names::{ContainerId, SandboxId, Uid};
use crate::api::ordered::{CollectOrdered, OrderSlice};
use crate::api::pod::Pod;
use crate::api::time::Boot;
use crate::engine::op::OpId;
use crate::engine::pleg::foreign_objects::ForeignObjects;
use crate::engine::target::PodAddress;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// The number of an engine step.
pub type Generation = u64;

/// The number and the time of an engine step.
pub type StepTime = (Generation, Boot);

/// The entries of all pods with a worker.
pub type Cache = BTreeMap<Uid, Entry>;

#[derive(Debug, Default, Serialize)]
pub struct Entry {
    /// The pod's own sandboxes and containers.
    facts: PodFacts,
    /// Objects of other owners under the pod's UID, and the start of the list or read that showed them.
    foreign: ForeignObjects,
    foreign_seen: Option<(Generation, Boot)>,
    /// The status has been read at least once since Wherry started.
    known: bool,
    /// The facts are no older than this: the start of the read, or the last response to the worker's own call.
    fresh: Generation,
    /// When the worker's last call that changed something was answered or given up.
    changed: Generation,
    reading: Option<(OpId, Generation, Boot)>,
    /// A status read is due.
    wanted: bool,
    /// The entry is in the node's queue of due reads.
    queued: bool,
    /// The facts changed since the last `take_changed_facts`.
    changed_facts: bool,
    /// Until this time, a call with an unknown outcome may still take effect.
    doubt: Option<Boot>,
    /// Containers that the list, but not the cache, shows as created or unknown, and for which a read was requested.
    /// The value is the cached state (None: no such container).
    doubted: BTreeMap<String, Option<ContainerState>>,
    /// P4: the pod's addresses, which outlive the sandbox.
    ips: Vec<String>,
    /// The sandbox that has, or had, these addresses.
    addressed: Option<SandboxId>,
    /// The error of the last read.
    pub error: Option<String>,
}

impl Entry {
    /// Returns an entry for a pod of which the list shows nothing, so no read is needed.
    pub fn empty(generation: Generation) -> Entry {
        Entry { known: true, fresh: generation, ..Entry::default() }
    }

    pub fn facts(&self) -> &PodFacts {
        &self.facts
    }

    /// Reports whether a worker may act on the facts (P5).
    pub fn usable(&self) -> bool {
        self.known && !self.wanted && self.reading.is_none()
    }

    pub fn known(&self) -> bool {
        self.known
    }

    /// Returns true if the runtime is known to have nothing of the pod.
    pub fn shows_nothing(&self) -> bool {
        self.usable() && self.facts.sandboxes.is_empty() && self.facts.containers.is_empty()
    }

    /// Returns the generation of the facts: they are no older than this.
    pub fn fresh(&self) -> Generation {
        self.fresh
    }

    pub fn ips(&self) -> &[String] {
        &self.ips
    }

    /// Returns the address to which the pod's handlers connect. `pod`: None for an orphan.
    pub fn address(&self, pod: Option<&Pod>) -> PodAddress {
        let sandbox_on_host = || self.facts.sandboxes.first().is_some_and(|s| s.host_network);
        match self.ips.first() {
            _ if pod.map_or_else(sandbox_on_host, Pod::host_network) => PodAddress::Node,
            Some(ip) => PodAddress::Own(ip.clone()),
            None => PodAddress::Unknown,
        }
    }

    pub fn want_read(&mut self) {
        self.wanted = true;
    }

    /// Notes that the list shows the same as the cache.
    pub fn list_agrees(&mut self) {
        self.doubted.clear();
    }

    /// Notes the containers that the list, but not the cache, shows as created or unknown. Returns true if one of
    /// them is new or has changed its cached state since the last read, so that a read is worthwhile.
    pub fn doubts(&mut self, ids: impl Iterator<Item = String>) -> bool {
        let state = |id: &str| self.facts.containers.iter().find(|c| c.id.as_str() == id).map(|c| c.state);
        let doubted: BTreeMap<_, _> = ids
            .map(|id| {
                let state = state(&id);
                (id, state)
            })
            .collect_map();
        let news = doubted.iter().any(|(id, state)| self.doubted.get(id) != Some(state));
        self.doubted = doubted;
        news
    }

    /// Returns true if a read is in flight.
    pub fn is_busy(&self) -> bool {
        self.reading.is_some()
    }

    /// Returns true if a read should start now.
    pub fn read_due(&self) -> bool {
        (self.wanted || !self.known) && self.reading.is_none()
    }

    pub fn read_began(&mut self, op: OpId, generation: Generation, at: Boot) {
        self.reading = Some((op, generation, at));
        self.wanted = false;
    }

    /// Returns true if the read in flight has had no answer for this long.
    pub fn hangs(&self, now: Boot, after: Duration) -> bool {
        self.reading.is_some_and(|(.., at)| now.since(at) >= after)
    }

    pub fn is_reading(&self, op: OpId) -> bool {
        self.reading.is_some_and(|(o, ..)| o == op)
    }

    /// Handles the result of a read. A read that began before the worker's own last change is repeated (P5).
    pub fn read_done(&mut self, result: Result<(PodFacts, ForeignObjects), String>) {
        let Some((_, began, at)) = self.reading.take() else { return };
        let result = result.map(|(facts, foreign)| {
            self.meet(foreign, began, at);
            facts
        });
        match result {
            // Reads begin at the end of a step, so a read that began in the same step as the change has seen the
            // change.
            Ok(_) if began < self.changed => self.wanted = true,
            Ok(facts) => {
                self.facts = facts;
                self.facts.sandboxes.shrink_to_fit();
                self.facts.containers.shrink_to_fit();
                self.changed_facts = true;
                self.put_in_order();
                self.known = true;
                self.fresh = began;
                self.error = None;
                self.keep_ips();
            }
            // P3: the facts stay unchanged, so that the next list shows the change again.
            Err(why) => {
                self.changed_facts = true;
                self.wanted = true;
                self.error = Some(why);
            }
        }
    }

    /// W21: stores the objects of other owners under the pod's UID as of this time. Returns true if they have
    /// changed.
    pub fn meet(&mut self, foreign: ForeignObjects, began: Generation, at: Boot) -> bool {
        if self.foreign_seen.is_some_and(|(before, _)| before > began) {
            return false;
        }
        self.foreign_seen = Some((began, at));
        let news = self.foreign != foreign;
        self.foreign = foreign;
        news
    }

    pub fn foreign(&self) -> &ForeignObjects {
        &self.foreign
    }

    /// Returns the start of the last list or read that showed the objects of other owners.
    pub fn foreign_seen(&self) -> Option<(Generation, Boot)> {
        self.foreign_seen
    }

    /// Sorts the sandboxes by attempt, newest first. The attempt only grows, but times are not reliable, because the
    /// clock may have been set.
    fn put_in_order(&mut self) {
        self.facts.sandboxes.order_by_key(|s| std::cmp::Reverse((s.attempt, s.created_at)));
    }

    /// Marks the entry as queued for a due read. Returns true if the caller must add it to the queue.
    pub fn queue(&mut self) -> bool {
        let add = self.read_due() && !self.queued;
        self.queued |= add;
        add
    }

    /// Notes that the entry has left the queue.
    pub fn unqueue(&mut self) {
        self.queued = false;
    }

    /// P4: updates the pod's addresses. A pod that has terminated keeps its address in the status. If the pod has a
    /// new sandbox without an address, the pod has no address, whatever the previous sandbox had. The address of a
    /// running sandbox does not change, so an address that the runtime no longer reports is kept.
    fn keep_ips(&mut self) {
        let facts = &self.facts;
        if let Some(ready) = facts.sandboxes.iter().find(|s| s.ready) {
            if !ready.ips.is_empty() || self.addressed.as_ref() != Some(&ready.id) {
                self.ips.clone_from(&ready.ips);
                self.addressed = Some(ready.id.clone());
            }
            return;
        }
        let may_run = |c: &ContainerFact| matches!(c.state, ContainerState::Created | ContainerState::Running);
        if facts.sandboxes.is_empty() && facts.containers.iter().any(may_run) {
            self.ips.clear();
        }
    }

    /// Requests a new read after a call of the worker that ended with an unclear outcome.
    pub fn changed_somehow(&mut self, generation: Generation) {
        self.changed = generation;
        self.wanted = true;
    }

    /// Notes that a cancelled call may still take effect until this time.
    pub fn doubt(&mut self, until: Boot) {
        self.doubt = self.doubt.max(Some(until));
        self.changed_facts = true;
    }

    pub fn in_doubt(&self, now: Boot) -> bool {
        self.doubt.is_some_and(|until| until > now)
    }

    /// Returns true once after the facts, or the doubts about them, have changed.
    pub fn take_changed_facts(&mut self) -> bool {
        std::mem::take(&mut self.changed_facts)
    }

    fn changed(&mut self, generation: Generation) {
        self.changed_facts = true;
        self.changed = generation;
        self.fresh = generation;
    }

    /// Stores the response to the worker's own call, which is as good as a read.
    pub fn put_sandbox(&mut self, fact: SandboxFact, generation: Generation) {
        self.facts.sandboxes.retain(|s| s.id != fact.id);
        self.facts.sandboxes.reserve_exact(1);
        self.facts.sandboxes.push(fact);
        self.put_in_order();
        self.keep_ips();
        self.changed(generation);
    }

    pub fn put_container(&mut self, fact: ContainerFact, generation: Generation) {
        match self.facts.containers.iter_mut().find(|c| c.id == fact.id) {
            // The status call does not report the sandbox, so the known one is kept.
            Some(c) => {
                let sandbox = c.sandbox.clone();
                *c = fact;
                if c.sandbox.as_str().is_empty() {
                    c.sandbox = sandbox;
                }
            }
            None => {
                // Most pods have one container, and a growing vector allocates space for four.
                self.facts.containers.reserve_exact(1);
                self.facts.containers.insert(0, fact);
            }
        }
        self.changed(generation);
    }

    pub fn forget_container(&mut self, id: &ContainerId, generation: Generation) {
        self.facts.containers.retain(|c| c.id != *id);
        self.changed(generation);
    }

    pub fn forget_sandbox(&mut self, id: &SandboxId, generation: Generation) {
        self.facts.sandboxes.retain(|s| s.id != *id);
        self.facts.containers.retain(|c| c.sandbox != *id);
        self.changed(generation);
    }

    pub fn running(&self) -> impl Iterator<Item = &ContainerFact> {
        self.facts.containers.iter().filter(|c| matches!(c.state, ContainerState::Running | ContainerState::Unknown))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::time::Wall;

    fn sandbox(attempt: u32, ready: bool, ip: &str) -> SandboxFact {
        let ips = if ip.is_empty() { Vec::new() } else { vec![ip.to_string()] };
        let id = format!("s{attempt}").into();
        SandboxFact {
            user_namespace: None,
            id,
            attempt,
            ready,
            created_at: Wall(9 - i64::from(attempt)),
            ips,
            host_network: false,
            owner: None,
            pid: None,
        }
    }

    fn container(state: ContainerState) -> ContainerFact {
        ContainerFact {
            id: "c1".into(),
            sandbox: "s0".into(),
            name: "main".into(),
            attempt: 0,
            state,
            created_at: Wall(1),
            started_at: Wall(1),
            finished_at: Wall(0),
            exit_code: 0,
            reason: String::new(),
            message: String::new(),
            image: String::new(),
            image_ref: String::new(),
            spec_hash: None,
            backoff_level: 0,
            boot: None,
            grace_seconds: None,
            pre_stop: None,
            stop_signal: None,
            user: None,
            termination_file: None,
            fallback_to_logs: false,
            log_path: String::new(),
            owner: None,
            pid: None,
        }
    }

    fn facts(sandboxes: Vec<SandboxFact>) -> Result<(PodFacts, ForeignObjects), String> {
        Ok((PodFacts { sandboxes, containers: Vec::new() }, ForeignObjects::default()))
    }

    #[test]
    fn p5_a_reading_that_began_before_the_last_own_change_is_made_again() {
        let mut e = Entry::default();
        assert!(e.read_due() && !e.usable());
        e.read_began(OpId(1), 5, Boot(5));
        e.changed_somehow(6);
        e.read_done(facts(vec![sandbox(0, true, "")]));
        assert!(e.read_due() && e.facts().sandboxes.is_empty());
        // A read that began at the end of the change's own step saw it.
        e.read_began(OpId(2), 6, Boot(6));
        e.read_done(facts(vec![sandbox(0, true, "")]));
        assert!(e.usable() && e.facts().sandboxes.len() == 1 && e.fresh() == 6);
    }

    #[test]
    fn p3_a_failed_read_keeps_the_cached_state_and_is_repeated() {
        let mut e = Entry::empty(1);
        assert!(e.usable());
        e.want_read();
        e.read_began(OpId(1), 2, Boot(2));
        e.read_done(Err("busy".into()));
        assert!(!e.usable() && e.read_due() && e.known());
        assert_eq!(e.error.as_deref(), Some("busy"));
    }

    #[test]
    fn p4_an_address_stays_until_there_is_another() {
        let mut e = Entry::empty(1);
        e.put_sandbox(sandbox(0, true, "10.0.0.1"), 2);
        for (sandboxes, ip) in [
            (vec![sandbox(0, false, "")], "10.0.0.1"),
            (vec![], "10.0.0.1"),
            (vec![sandbox(1, true, "10.0.0.2"), sandbox(0, false, "")], "10.0.0.2"),
        ] {
            e.read_began(OpId(1), 3, Boot(3));
            e.read_done(facts(sandboxes));
            assert_eq!(e.ips(), [ip]);
        }
    }

    #[test]
    fn p4_a_ready_sandbox_without_an_address_does_not_show_that_of_the_dead_one() {
        let mut e = Entry::empty(1);
        e.put_sandbox(sandbox(0, true, "10.0.0.1"), 2);
        e.put_sandbox(sandbox(0, false, ""), 3);
        assert_eq!(e.ips(), ["10.0.0.1"]);
        e.put_sandbox(sandbox(1, true, ""), 4);
        assert!(e.ips().is_empty());
    }

    #[test]
    fn p4_a_running_sandbox_keeps_the_address_that_its_runtime_forgets() {
        let mut e = Entry::empty(1);
        e.put_sandbox(sandbox(0, true, "10.0.0.1"), 2);
        for (facts_of, ip) in [(sandbox(0, true, ""), "10.0.0.1"), (sandbox(0, true, "10.0.0.9"), "10.0.0.9")] {
            e.read_began(OpId(1), 3, Boot(3));
            e.read_done(facts(vec![facts_of]));
            assert_eq!(e.ips(), [ip]);
        }
        assert_eq!(e.address(None), PodAddress::Own("10.0.0.9".into()));
    }

    #[test]
    fn p4_only_the_nodes_network_has_the_nodes_address() {
        let mut e = Entry::empty(1);
        assert_eq!(e.address(None), PodAddress::Unknown);
        e.put_sandbox(SandboxFact { host_network: true, ..sandbox(0, true, "") }, 2);
        assert_eq!(e.address(None), PodAddress::Node);
        e.put_sandbox(sandbox(0, true, ""), 3);
        assert_eq!(e.address(None), PodAddress::Unknown);
    }

    #[test]
    fn p4_without_a_sandbox_the_address_is_dropped_when_a_container_may_run() {
        for (state, stays) in [
            (ContainerState::Created, false),
            (ContainerState::Running, false),
            (ContainerState::Exited, true),
            (ContainerState::Unknown, true),
        ] {
            let mut e = Entry::empty(1);
            e.put_sandbox(sandbox(0, true, "10.0.0.1"), 2);
            e.read_began(OpId(1), 3, Boot(3));
            e.read_done(Ok((
                PodFacts { sandboxes: Vec::new(), containers: vec![container(state)] },
                ForeignObjects::default(),
            )));
            assert_eq!(e.ips().len(), usize::from(stays), "{state:?}");
        }
    }

    #[test]
    fn the_newest_sandbox_is_first_whatever_the_clock_said() {
        let mut e = Entry::empty(1);
        e.put_sandbox(sandbox(0, false, ""), 2);
        e.put_sandbox(sandbox(1, true, ""), 3);
        assert_eq!(e.facts().sandboxes[0].attempt, 1);
        e.read_began(OpId(1), 4, Boot(4));
        e.read_done(facts(vec![sandbox(0, false, ""), sandbox(1, true, "")]));
        assert_eq!(e.facts().sandboxes[0].attempt, 1);
    }
}
