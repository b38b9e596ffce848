//! The last status read of each pod, and whether it may be acted on (P3 to P5).
//!
//! An entry is set by status reads and by the answers of the worker's own calls. `Turn` counts the engine's steps:
//! it orders readings and changes, where clocks could tie.

use crate::api::facts::{ContainerFact, ContainerState, PodFacts, SandboxFact};
use crate::api::names::{ContainerId, SandboxId};
use crate::api::time::Boot;
use crate::engine::op::OpId;
use crate::engine::pleg::strangers::Strangers;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// The number of an engine step.
pub type Generation = u64;

#[derive(Debug, Default, Serialize)]
pub struct Entry {
    /// Of what is ours.
    facts: PodFacts,
    /// What others have under the pod's UID, and when it was last looked at: the begin of the list or of the reading.
    strangers: Strangers,
    looked: Option<(Generation, Boot)>,
    /// Read at least once in this life of the process.
    known: bool,
    /// The facts are no older than this: the begin of the reading, or the worker's last own answer.
    fresh: Generation,
    /// The last own call that changed something was answered, or given up, then.
    changed: Generation,
    reading: Option<(OpId, Generation, Boot)>,
    /// A reading is due.
    wanted: bool,
    /// In the node's queue of pods whose reading is due.
    queued: bool,
    /// The facts are others than when this was last asked.
    changed_facts: bool,
    /// What became of a call is not known, and may turn up until then.
    doubt: Option<Boot>,
    /// Containers that a list showed as created or unknown while the cache does not, and for which a read was asked: the
    /// state that the cache had (None: no such container).
    doubted: BTreeMap<String, Option<ContainerState>>,
    /// P4: the addresses that the pod had.
    ips: Vec<String>,
    /// Why the last reading failed.
    pub error: Option<String>,
}

impl Entry {
    /// An entry for a pod of which the list shows nothing: nothing needs to be read.
    pub fn empty(generation: Generation) -> Entry {
        Entry { known: true, fresh: generation, ..Entry::default() }
    }

    pub fn facts(&self) -> &PodFacts {
        &self.facts
    }

    /// May a worker act on the facts (P5)?
    pub fn usable(&self) -> bool {
        self.known && !self.wanted && self.reading.is_none()
    }

    pub fn known(&self) -> bool {
        self.known
    }

    /// It is known that the runtime has nothing of the pod.
    pub fn shows_nothing(&self) -> bool {
        self.usable() && self.facts.sandboxes.is_empty() && self.facts.containers.is_empty()
    }

    /// The facts are no older than this turn.
    pub fn fresh(&self) -> Generation {
        self.fresh
    }

    pub fn ips(&self) -> &[String] {
        &self.ips
    }

    pub fn want_read(&mut self) {
        self.wanted = true;
    }

    /// The list shows the same as the cache.
    pub fn list_agrees(&mut self) {
        self.doubted.clear();
    }

    /// The list shows these containers as created or unknown, and the cache does not. True if the status of one of them is
    /// worth a read: it is new, or was in another state when it was read.
    pub fn doubts(&mut self, ids: impl Iterator<Item = String>) -> bool {
        let state = |id: &str| self.facts.containers.iter().find(|c| c.id.as_str() == id).map(|c| c.state);
        let doubted: BTreeMap<_, _> = ids
            .map(|id| {
                let state = state(&id);
                (id, state)
            })
            .collect();
        let news = doubted.iter().any(|(id, state)| self.doubted.get(id) != Some(state));
        self.doubted = doubted;
        news
    }

    /// A reading is under way.
    pub fn is_busy(&self) -> bool {
        self.reading.is_some()
    }

    /// A reading should begin now.
    pub fn read_due(&self) -> bool {
        (self.wanted || !self.known) && self.reading.is_none()
    }

    pub fn read_began(&mut self, op: OpId, generation: Generation, at: Boot) {
        self.reading = Some((op, generation, at));
        self.wanted = false;
    }

    /// A reading has had no answer for so long.
    pub fn hangs(&self, now: Boot, after: Duration) -> bool {
        self.reading.is_some_and(|(.., at)| now.since(at) >= after)
    }

    pub fn is_reading(&self, op: OpId) -> bool {
        self.reading.is_some_and(|(o, ..)| o == op)
    }

    /// A reading came back. One that began before the worker's own last change is made again (P5).
    pub fn read_done(&mut self, result: Result<(PodFacts, Strangers), String>) {
        let Some((_, began, at)) = self.reading.take() else { return };
        let result = result.map(|(facts, strangers)| {
            self.meet(strangers, began, at);
            facts
        });
        match result {
            // (Reads begin at the end of a turn: one that began in the change's own turn saw it.)
            Ok(_) if began < self.changed => self.wanted = true,
            Ok(facts) => {
                self.facts = facts;
                self.changed_facts = true;
                self.sort();
                self.known = true;
                self.fresh = began;
                self.error = None;
                self.keep_ips();
            }
            // P3: the change is seen again; the facts stay what they were.
            Err(why) => {
                self.changed_facts = true;
                self.wanted = true;
                self.error = Some(why);
            }
        }
    }

    /// W21: what others have under the pod's UID, as of a look that began then. True if it is news.
    pub fn meet(&mut self, strangers: Strangers, began: Generation, at: Boot) -> bool {
        if self.looked.is_some_and(|(before, _)| before > began) {
            return false;
        }
        self.looked = Some((began, at));
        let news = self.strangers != strangers;
        self.strangers = strangers;
        news
    }

    pub fn strangers(&self) -> &Strangers {
        &self.strangers
    }

    /// The begin of the last look at what others have under the pod's UID.
    pub fn looked(&self) -> Option<(Generation, Boot)> {
        self.looked
    }

    /// Newest first by the attempt, which only grows; a clock may have been set.
    fn sort(&mut self) {
        self.facts.sandboxes.sort_by_key(|s| std::cmp::Reverse((s.attempt, s.created_at)));
    }

    /// Puts the entry into the queue of readings that are due; true if it is to be added now.
    pub fn queue(&mut self) -> bool {
        let add = self.read_due() && !self.queued;
        self.queued |= add;
        add
    }

    /// It left that queue.
    pub fn unqueue(&mut self) {
        self.queued = false;
    }

    /// P4: the address of a pod that has ended stays in its status. A sandbox that is ready without an address has none,
    /// whatever its predecessor had.
    fn keep_ips(&mut self) {
        let facts = &self.facts;
        if let Some(ready) = facts.sandboxes.iter().find(|s| s.ready) {
            self.ips.clone_from(&ready.ips);
            return;
        }
        let may_run = |c: &ContainerFact| matches!(c.state, ContainerState::Created | ContainerState::Running);
        if facts.sandboxes.is_empty() && facts.containers.iter().any(may_run) {
            self.ips.clear();
        }
    }

    /// A call of the worker's own ended in a way that says nothing of the outcome: look again.
    pub fn changed_somehow(&mut self, generation: Generation) {
        self.changed = generation;
        self.wanted = true;
    }

    /// What a call did that was given up may turn up until then.
    pub fn doubt(&mut self, until: Boot) {
        self.doubt = self.doubt.max(Some(until));
        self.changed_facts = true;
    }

    pub fn in_doubt(&self, now: Boot) -> bool {
        self.doubt.is_some_and(|until| until > now)
    }

    /// True once after the facts, or the doubts of them, changed.
    pub fn take_changed_facts(&mut self) -> bool {
        std::mem::take(&mut self.changed_facts)
    }

    fn changed(&mut self, generation: Generation) {
        self.changed_facts = true;
        self.changed = generation;
        self.fresh = generation;
    }

    /// An answer of the worker's own call is as good as a reading.
    pub fn put_sandbox(&mut self, fact: SandboxFact, generation: Generation) {
        self.facts.sandboxes.retain(|s| s.id != fact.id);
        self.facts.sandboxes.push(fact);
        self.sort();
        self.keep_ips();
        self.changed(generation);
    }

    pub fn put_container(&mut self, fact: ContainerFact, generation: Generation) {
        match self.facts.containers.iter_mut().find(|c| c.id == fact.id) {
            // The status call does not tell the sandbox.
            Some(c) => {
                let sandbox = c.sandbox.clone();
                *c = fact;
                if c.sandbox.as_str().is_empty() {
                    c.sandbox = sandbox;
                }
            }
            None => self.facts.containers.insert(0, fact),
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
        SandboxFact { id, attempt, ready, created_at: Wall(9 - i64::from(attempt)), ips, owner: None, pid: None }
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
            backoff_level: 0,
            grace_seconds: None,
            pre_stop: None,
            termination_file: None,
            fallback_to_logs: false,
            log_path: String::new(),
            owner: None,
            pid: None,
        }
    }

    fn facts(sandboxes: Vec<SandboxFact>) -> Result<(PodFacts, Strangers), String> {
        Ok((PodFacts { sandboxes, containers: Vec::new() }, Strangers::default()))
    }

    #[test]
    fn p5_a_reading_that_began_before_the_last_own_change_is_made_again() {
        let mut e = Entry::default();
        assert!(e.read_due() && !e.usable());
        e.read_began(OpId(1), 5, Boot(5));
        e.changed_somehow(6);
        e.read_done(facts(vec![sandbox(0, true, "")]));
        assert!(e.read_due() && e.facts().sandboxes.is_empty());
        // One that began at the end of the change's own turn saw it.
        e.read_began(OpId(2), 6, Boot(6));
        e.read_done(facts(vec![sandbox(0, true, "")]));
        assert!(e.usable() && e.facts().sandboxes.len() == 1 && e.fresh() == 6);
    }

    #[test]
    fn p3_a_reading_that_failed_leaves_what_was_known_and_is_due_again() {
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
    fn p4_without_a_sandbox_the_address_goes_when_a_container_may_run() {
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
                Strangers::default(),
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
