//! The controller of a StatefulSet: pods with numbers, which start from the lowest and end from the highest.

use super::controller::{Controller, ControllerState};
use super::inputs::{NameEnd, WorkloadInputs, create_pod};
use super::progress::RolloutCondition;
use super::record::{self, StoredOwn, StoredSequence, StoredWorkload};
use super::revision::{ReplicaState, Revision};
use crate::api::claim::ClaimKey;
use crate::api::k8s::PersistentVolumeClaim;
use crate::api::names::{FullName, Uid};
use crate::api::pod::Pod;
use crate::api::time::Now;
use crate::api::workload::head::WorkloadHead;
use crate::api::workload::key::WorkloadKind;
use crate::api::workload::replica::{self, PodOwner};
use crate::api::workload::stateful_set::{self, INDEX_LABEL, NAME_LABEL, StatefulSet, StatefulUpdate};
use crate::api::workload::template;
use crate::engine::effect::Subject;
use crate::engine::outbox::Outbox;
use serde::Serialize;
use std::collections::BTreeMap;
use std::rc::Rc;

#[derive(Debug, Serialize)]
pub struct Sequence {
    #[serde(skip)]
    stateful_set: Rc<StatefulSet>,
    state: ControllerState,
    /// The hash of the template that pods below the partition have. It is the present one when all pods have it.
    current: String,
    counts: SequenceCounts,
}

/// The numbers of pods in the status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SequenceCounts {
    /// Includes those that are terminating.
    pub replicas: u32,
    pub ready: u32,
    pub available: u32,
    pub current: u32,
    pub updated: u32,
}

/// What is known about the pod with a number.
#[derive(Clone, Debug)]
enum OrdinalPlace {
    /// A deleted pod is still terminating.
    Leaving,
    Taken {
        uid: Uid,
        is_updated: bool,
        state: ReplicaState,
    },
}

/// The next change.
#[derive(Clone, Debug, PartialEq)]
enum SequenceChange {
    Create(u32),
    Delete(u32, Uid),
}

impl Controller for Sequence {
    fn head(&self) -> &WorkloadHead {
        &self.stateful_set.head
    }

    fn state(&self) -> &ControllerState {
        &self.state
    }

    fn state_mut(&mut self) -> &mut ControllerState {
        &mut self.state
    }

    fn revision_of(&self, pod: &Pod) -> Option<String> {
        let label = pod.object.metadata.labels.as_ref()?.get(template::REVISION_LABEL)?;
        let hash = label.strip_prefix(&*self.head().name().name)?.strip_prefix('-')?;
        replica::belongs_to(pod, &self.head().key).then(|| hash.to_owned())
    }

    fn step(&mut self, room: &mut usize, inputs: &mut WorkloadInputs<'_>) -> bool {
        let StatefulSet { head, object } = &*self.stateful_set;
        self.state.choose_revision(head, &object.metadata, inputs.now.wall);
        let subject = Subject::workload(&self.head().key);
        let mut changed = false;
        let mut failure = None;
        let mut places = self.places();
        while let Some(change) = self.next_change(&places, inputs) {
            let (ordinal, place) = match change {
                SequenceChange::Delete(ordinal, uid) => {
                    self.state.delete(&uid, &subject, inputs.outbox);
                    (ordinal, OrdinalPlace::Leaving)
                }
                SequenceChange::Create(ordinal) => match self.create(ordinal, room, inputs) {
                    Ok(place) => (ordinal, place),
                    Err(why) => {
                        failure = Some((subject, why));
                        break;
                    }
                },
            };
            places.insert(ordinal, place);
            changed = true;
        }
        self.state.note_failure(failure, inputs);
        self.complete();
        self.state.forget_revisions(self.stateful_set.history_limit(), Some(&self.current));
        self.count(inputs);
        self.state.due = self.state.history.next_deadline(self.stateful_set.min_ready(), inputs.now.boot);
        changed
    }

    fn record(&self) -> String {
        let own = StoredSequence { current: self.current.clone() };
        record::write(&self.state.stored(self.head()), &StoredOwn::StatefulSet(own))
    }
}

impl Sequence {
    /// Makes the controller of a StatefulSet. `stored`: its record.
    pub fn new(of: Rc<StatefulSet>, stored: Option<StoredWorkload>, now: Now, outbox: &mut Outbox) -> Sequence {
        let (base, own) = stored.map(|stored| (stored.base, stored.own)).unzip();
        let stored = if let Some(StoredOwn::StatefulSet(stored)) = own { Some(stored) } else { None };
        Sequence {
            state: ControllerState::new(&of.head, base, now.wall, outbox),
            current: stored.map_or_else(|| of.head.hash.clone(), |stored| stored.current),
            stateful_set: of,
            counts: SequenceCounts::default(),
        }
    }

    /// Takes a new version of the manifest.
    pub fn change(&mut self, stateful_set: Rc<StatefulSet>) {
        self.state.change(&self.stateful_set.head, &stateful_set.head);
        self.stateful_set = stateful_set;
    }

    pub fn stateful_set(&self) -> &Rc<StatefulSet> {
        &self.stateful_set
    }

    pub fn counts(&self) -> &SequenceCounts {
        &self.counts
    }

    /// Returns the hash of the template that is being replaced, or of the present one.
    pub fn current(&self) -> &str {
        &self.current
    }

    /// Returns the conditions, by their types.
    pub fn conditions(&self) -> Vec<(&'static str, &RolloutCondition)> {
        self.state.failure().into_iter().collect()
    }

    /// Returns the pods by their numbers.
    fn places(&self) -> BTreeMap<u32, OrdinalPlace> {
        let mut places = BTreeMap::new();
        let newest = self.state.history.number();
        for revision in &self.state.history.revisions {
            let is_updated = revision.number == newest;
            for (uid, replica) in &revision.replicas {
                if let Some(ordinal) = self.ordinal(&replica.pod.name) {
                    places.insert(ordinal, OrdinalPlace::Taken { uid: uid.clone(), is_updated, state: replica.state });
                }
            }
        }
        // A pod that is terminating keeps its number from the next one.
        let leaving = self.state.history.revisions.iter().flat_map(|revision| revision.leaving.values());
        places.extend(leaving.filter_map(|name| Some((self.ordinal(name)?, OrdinalPlace::Leaving))));
        places
    }

    fn ordinal(&self, pod: &FullName) -> Option<u32> {
        pod.name.strip_prefix(&*self.head().name().name)?.strip_prefix('-')?.parse().ok()
    }

    /// Compares the pods with the manifest. None: there is nothing to do before something changes.
    fn next_change(&self, places: &BTreeMap<u32, OrdinalPlace>, inputs: &WorkloadInputs<'_>) -> Option<SequenceChange> {
        let min_ready = self.stateful_set.min_ready();
        let (wanted, is_ordered) = (self.stateful_set.ordinals(), self.stateful_set.is_ordered());
        let is_available = |state: &ReplicaState| state.is_available(min_ready, inputs.now.boot);
        let waits = |place: &OrdinalPlace| match place {
            OrdinalPlace::Leaving => true,
            OrdinalPlace::Taken { state, .. } => !is_available(state),
        };
        let update = self.stateful_set.update();
        for ordinal in wanted.clone() {
            match places.get(&ordinal) {
                None => return Some(SequenceChange::Create(ordinal)),
                Some(OrdinalPlace::Taken { uid, state: ReplicaState::Ended, .. }) => {
                    return Some(SequenceChange::Delete(ordinal, uid.clone()));
                }
                // *(ours)* In a cluster, a pod that never becomes ready blocks the change that would repair it.
                Some(OrdinalPlace::Taken { uid, is_updated: false, state })
                    if is_ordered && !state.is_ready() && self.state.history.is_settled() && takes(update, ordinal) =>
                {
                    return Some(SequenceChange::Delete(ordinal, uid.clone()));
                }
                Some(place) if is_ordered && waits(place) => return None,
                Some(_) => {}
            }
        }
        let surplus = || places.iter().filter(|(ordinal, _)| !wanted.contains(ordinal));
        let first_waiting = surplus().find(|(_, place)| waits(place)).map(|(ordinal, _)| *ordinal);
        for (ordinal, place) in surplus().collect::<Vec<_>>().into_iter().rev() {
            match place {
                OrdinalPlace::Leaving if is_ordered => return None,
                OrdinalPlace::Leaving => {}
                OrdinalPlace::Taken { .. } if is_ordered && waits(place) && first_waiting != Some(*ordinal) => {
                    return None;
                }
                OrdinalPlace::Taken { uid, .. } => return Some(SequenceChange::Delete(*ordinal, uid.clone())),
            }
        }
        next_update(update, wanted.rev().filter_map(|ordinal| Some((ordinal, places.get(&ordinal)?))), waits)
    }

    /// Creates the pod with this number, and returns what is known about it.
    ///
    /// # Errors
    /// There are too many pods, another pod has the name, or a class does not exist.
    fn create(
        &mut self,
        ordinal: u32,
        room: &mut usize,
        inputs: &mut WorkloadInputs<'_>,
    ) -> Result<OrdinalPlace, String> {
        let revisions = &self.state.history.revisions;
        let is_old =
            matches!(self.stateful_set.update(), StatefulUpdate::Rolling { partition, .. } if ordinal < partition);
        let of_current = revisions.iter().position(|revision| revision.hash == self.current).filter(|_| is_old);
        let at = of_current.unwrap_or(revisions.len().saturating_sub(1));
        let Some(revision) = revisions.get(at) else { return Err("the StatefulSet has no template".to_owned()) };
        let owner = PodOwner {
            kind: WorkloadKind::StatefulSet,
            name: self.head().name(),
            uid: &self.head().uid,
            hash: Some((template::REVISION_LABEL, &revision.name.name)),
            source: &self.head().source,
        };
        let pod = create_pod(owner, revision, NameEnd::Ordinal(ordinal), room, inputs)?;
        let is_updated = at + 1 == revisions.len();
        let place = OrdinalPlace::Taken { uid: pod.uid.clone(), is_updated, state: ReplicaState::Pending };
        let subject = Subject::workload(&self.head().key);
        self.state.add(at, self.with_identity(pod, ordinal), &subject, inputs.outbox);
        Ok(place)
    }

    /// Returns the claims of the pods that exist.
    pub fn claims(&self) -> impl Iterator<Item = (ClaimKey, PersistentVolumeClaim)> {
        let replicas = self.state.history.revisions.iter().flat_map(|revision| revision.replicas.values());
        replicas.flat_map(|replica| {
            let templates = self.stateful_set.claim_templates().iter();
            templates.map(|template| self.stateful_set.claim(template, &replica.pod.name))
        })
    }

    /// Returns true if the number of the pod of this claim is one of the present pods.
    pub fn wants_claim(&self, key: &ClaimKey) -> bool {
        let templates = self.stateful_set.claim_templates().iter();
        let mut names = templates.filter_map(|template| template.metadata.name.as_deref());
        names.any(|template| {
            let pod = key.0.name.strip_prefix(template).and_then(|rest| rest.strip_prefix('-'));
            let ordinal = pod.and_then(|pod| self.ordinal(&FullName::new(&key.0.namespace, pod)));
            ordinal.is_some_and(|ordinal| self.stateful_set.ordinals().contains(&ordinal))
        })
    }

    /// Gives a pod its host name, its domain and the labels with its name and number.
    fn with_identity(&self, pod: Rc<Pod>, ordinal: u32) -> Rc<Pod> {
        let mut pod = Rc::unwrap_or_clone(pod);
        let name = pod.name.name.to_string();
        let labels = pod.object.metadata.labels.get_or_insert_default();
        labels.insert(NAME_LABEL.to_owned(), name.clone());
        labels.insert(INDEX_LABEL.to_owned(), ordinal.to_string());
        if let Some(spec) = &mut pod.object.spec {
            spec.hostname = Some(name);
            let domain = self.stateful_set.service_name();
            spec.subdomain = Some(domain.to_owned()).filter(|domain| !domain.is_empty());
            let templates = self.stateful_set.claim_templates();
            stateful_set::with_claims(spec, templates, |of| stateful_set::claim_name(of, &pod.name.name));
        }
        Rc::new(pod)
    }

    /// Ends an update: from now on, the present template is that of all pods.
    fn complete(&mut self) {
        let is_rolling = matches!(self.stateful_set.update(), StatefulUpdate::Rolling { .. });
        let Some(newest) = self.state.history.newest().filter(|newest| newest.hash != self.current && is_rolling)
        else {
            return;
        };
        let others = self.state.history.older().iter().map(|older| older.replicas.len() + older.leaving.len());
        if others.sum::<usize>() == 0 && newest.ready() == self.stateful_set.replicas() {
            self.current.clone_from(&newest.hash);
            self.state.record_changed();
            self.state.shown_changed();
        }
    }

    fn count(&mut self, inputs: &WorkloadInputs<'_>) {
        let (history, min_ready, now) = (&self.state.history, self.stateful_set.min_ready(), inputs.now.boot);
        let sum = |of: &dyn Fn(&Revision) -> u32| history.revisions.iter().map(of).sum();
        let of =
            |hash: &str| history.revisions.iter().find(|revision| revision.hash == hash).map_or(0, Revision::count);
        let counts = SequenceCounts {
            replicas: u32::try_from(history.pods_there()).unwrap_or(u32::MAX),
            ready: sum(&Revision::ready),
            available: sum(&|revision| revision.available(min_ready, now)),
            current: of(&self.current),
            updated: history.newest().map_or(0, Revision::count),
        };
        if self.counts != counts {
            self.counts = counts;
            self.state.shown_changed();
        }
    }
}

/// Returns true if the update replaces the pod with this number.
fn takes(update: StatefulUpdate, ordinal: u32) -> bool {
    matches!(update, StatefulUpdate::Rolling { partition, .. } if ordinal >= partition)
}

/// Returns the next pod to replace by one of the present template. `places`: the pods, from the highest number.
fn next_update<'a>(
    update: StatefulUpdate,
    places: impl Iterator<Item = (u32, &'a OrdinalPlace)>,
    waits: impl Fn(&OrdinalPlace) -> bool,
) -> Option<SequenceChange> {
    let StatefulUpdate::Rolling { unavailable, .. } = update else { return None };
    let mut waiting = 0;
    for (ordinal, place) in places.filter(|(ordinal, _)| takes(update, *ordinal)) {
        match place {
            OrdinalPlace::Taken { uid, is_updated: false, .. } => {
                return Some(SequenceChange::Delete(ordinal, uid.clone()));
            }
            place if waits(place) => waiting += 1,
            OrdinalPlace::Taken { .. } | OrdinalPlace::Leaving => {}
        }
        if waiting >= unavailable {
            return None;
        }
    }
    None
}
