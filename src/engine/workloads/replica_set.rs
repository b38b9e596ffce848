//! The controller of a ReplicaSet of a manifest: a number of pods of a template. A new template is that of new pods
//! only. A Deployment has a ReplicaSet for each of its revisions, and adjusts its pods in the same way.

use super::controller::{Controller, ControllerState};
use super::inputs::{NameEnd, WorkloadInputs, create_pod};
use super::progress::RolloutCondition;
use super::record::{self, StoredBase, StoredOwn};
use super::revision::{NO_HASH, Revision};
use crate::api::pod::Pod;
use crate::api::time::Now;
use crate::api::workload::head::WorkloadHead;
use crate::api::workload::key::WorkloadKind;
use crate::api::workload::replica::{self, PodOwner};
use crate::api::workload::replica_set::ReplicaSet;
use crate::api::workload::template;
use crate::engine::effect::Subject;
use crate::engine::outbox::Outbox;
use serde::Serialize;
use std::rc::Rc;

#[derive(Debug, Serialize)]
pub struct Replication {
    #[serde(skip)]
    replica_set: Rc<ReplicaSet>,
    state: ControllerState,
    counts: ReplicaCounts,
}

/// The numbers of pods in the status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReplicaCounts {
    pub replicas: u32,
    /// Those with the labels of the present template.
    pub fully_labeled: u32,
    pub ready: u32,
    pub available: u32,
    pub terminating: u32,
}

impl Controller for Replication {
    fn head(&self) -> &WorkloadHead {
        &self.replica_set.head
    }

    fn state(&self) -> &ControllerState {
        &self.state
    }

    fn state_mut(&mut self) -> &mut ControllerState {
        &mut self.state
    }

    fn revision_of(&self, pod: &Pod) -> Option<String> {
        let is_own = replica::belongs_to(pod, &self.head().key);
        is_own.then(|| NO_HASH.to_owned())
    }

    fn step(&mut self, room: &mut usize, inputs: &mut WorkloadInputs<'_>) -> bool {
        self.state.set_only_template(&self.replica_set.head.template, inputs.now.wall);
        self.state.history.revisions[0].wanted = self.replica_set.replicas();
        let (changed, failure) = adjust(&mut self.state, 0, &self.replica_set.head, room, inputs);
        self.state.note_failure(failure, inputs);
        self.count(inputs);
        self.state.due = self.state.history.next_deadline(self.replica_set.min_ready(), inputs.now.boot);
        changed
    }

    fn record(&self) -> String {
        record::write(&self.state.stored(self.head()), &StoredOwn::ReplicaSet)
    }
}

impl Replication {
    /// Makes the controller of a ReplicaSet. `stored`: its record.
    pub fn new(of: Rc<ReplicaSet>, stored: Option<StoredBase>, now: Now, outbox: &mut Outbox) -> Replication {
        let state = ControllerState::new(&of.head, stored, now.wall, outbox);
        Replication { state, replica_set: of, counts: ReplicaCounts::default() }
    }

    /// Takes a new version of the manifest.
    pub fn change(&mut self, replica_set: Rc<ReplicaSet>) {
        self.state.change(&self.replica_set.head, &replica_set.head);
        self.replica_set = replica_set;
    }

    pub fn replica_set(&self) -> &Rc<ReplicaSet> {
        &self.replica_set
    }

    pub fn counts(&self) -> &ReplicaCounts {
        &self.counts
    }

    /// Returns the conditions, by their types.
    pub fn conditions(&self) -> Vec<(&'static str, &RolloutCondition)> {
        self.state.failure().into_iter().collect()
    }

    fn count(&mut self, inputs: &WorkloadInputs<'_>) {
        let [own] = &self.state.history.revisions[..] else { return };
        let wanted = own.template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref());
        let is_labeled = |pod: &Pod| {
            let labels = pod.object.metadata.labels.as_ref();
            wanted.into_iter().flatten().all(|(key, value)| labels.and_then(|all| all.get(key)) == Some(value))
        };
        let labeled = own.active().filter(|(_, replica)| is_labeled(&replica.pod)).count();
        let counts = ReplicaCounts {
            replicas: own.count(),
            fully_labeled: u32::try_from(labeled).unwrap_or(u32::MAX),
            ready: own.ready(),
            available: own.available(self.replica_set.min_ready(), inputs.now.boot),
            terminating: u32::try_from(own.leaving.len()).unwrap_or(u32::MAX),
        };
        if self.counts != counts {
            self.counts = counts;
            self.state.shown_changed();
        }
    }
}

/// Creates and deletes pods of the revision at this position, until it has as many as it wants. Returns true if there
/// were any, and why the next one could not be created. `head`: the object that asks for them.
pub fn adjust(
    state: &mut ControllerState,
    at: usize,
    head: &WorkloadHead,
    room: &mut usize,
    inputs: &mut WorkloadInputs<'_>,
) -> (bool, Option<(Subject, String)>) {
    let set = &state.history.revisions[at];
    let subject = Subject::replica_set(set.name.clone(), set.uid.clone());
    let mut changed = false;
    for uid in set.surplus() {
        changed |= state.delete(&uid, &subject, inputs.outbox);
    }
    while let set = &state.history.revisions[at]
        && set.count() < set.wanted
    {
        match create_pod(owner(set, head), set, NameEnd::Random, room, inputs) {
            Ok(pod) => {
                state.add(at, pod, &subject, inputs.outbox);
                changed = true;
            }
            Err(why) => return (changed, Some((subject, why))),
        }
    }
    (changed, None)
}

fn owner<'a>(set: &'a Revision, head: &'a WorkloadHead) -> PodOwner<'a> {
    PodOwner {
        kind: WorkloadKind::ReplicaSet,
        name: &set.name,
        uid: &set.uid,
        hash: (set.hash != NO_HASH).then_some((template::HASH_LABEL, &*set.hash)),
        source: &head.source,
    }
}
