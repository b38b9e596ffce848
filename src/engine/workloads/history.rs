//! The revisions of a workload and their pods.

use super::inputs::WorkloadInputs;
use super::record::StoredRevision;
use super::revision::{Replica, ReplicaState, Revision};
use crate::api::k8s::{ObjectMeta, PodTemplateSpec};
use crate::api::names::Uid;
use crate::api::ordered::OrderSlice;
use crate::api::pod::Pod;
use crate::api::reason::Reason;
use crate::api::time::{Boot, Now, Wall};
use crate::api::workload::key::WorkloadKey;
use crate::api::workload::replica;
use crate::engine::effect::Severity;
use crate::engine::outbox::Outbox;
use serde::Serialize;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

/// *(ours)* How long a roll-out waits after a start of Wherry for the states of the pods that it finds: as long as
/// their states are unknown, it must not treat them as unavailable.
const SETTLING: Duration = Duration::from_secs(60);
/// *(ours)* The maximum size of the templates of all revisions of a workload, in bytes of JSON. Above it, the oldest
/// ones without pods are forgotten. The record has all of them, and may have 4 MiB.
const HISTORY_BYTES: usize = 1 << 20;
/// The annotations of a workload that its revisions do not get.
const NOT_INHERITED: [&str; 2] =
    ["kubectl.kubernetes.io/last-applied-configuration", "deployment.kubernetes.io/revision"];

#[derive(Debug, Serialize)]
pub struct History {
    #[serde(skip)]
    owner: WorkloadKey,
    /// From the oldest to the newest. The newest one has the present template.
    pub revisions: Vec<Revision>,
    /// The number of pods that were created.
    pods_created: u64,
    /// Until then, the states of some pods are unknown.
    settling: Option<Boot>,
}

/// How a template became the one of the newest revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChosenRevision {
    Created,
    /// An earlier revision has this template.
    Found,
}

impl History {
    pub fn new(owner: WorkloadKey) -> History {
        History { owner, revisions: Vec::new(), pods_created: 0, settling: None }
    }

    /// Takes the revisions of a record. An unusable one is lost.
    pub fn restore(&mut self, stored: Vec<StoredRevision>, outbox: &mut Outbox) {
        for revision in stored {
            let number = revision.revision;
            match revision.restore(&self.owner) {
                Ok(revision) => self.revisions.push(revision),
                Err(why) => {
                    let message = format!("revision {number} of {} is lost: {why}", self.owner);
                    outbox.emit_node_event(Severity::Warning, Reason::BadRecord, message);
                }
            }
        }
        self.revisions.order_by_key(|revision| revision.number);
    }

    /// Takes over a pod of an earlier run, which may have deleted it. The pods come in the order of their creation. Of
    /// two with one name, the earlier run has deleted the older, although its record does not say so yet. Returns true
    /// if its revision was not known.
    pub fn adopt(&mut self, hash: &str, pod: &Rc<Pod>, is_deleted: bool, now: Now) -> bool {
        self.settling = Some(now.boot + SETTLING);
        let known = self.revisions.iter().position(|revision| revision.hash == hash);
        let at = known.unwrap_or_else(|| {
            // The record is lost. The template can be found in the pod.
            let template = Rc::new(replica::template_of(pod));
            self.revisions.insert(0, Revision::new(&self.owner, hash.to_owned(), 0, template, now.wall));
            0
        });
        if is_deleted {
            self.revisions[at].leaving.insert(pod.uid.clone(), pod.name.clone());
        } else {
            let older = self.pods().find(|other| other.name == pod.name).map(|other| other.uid.clone());
            older.map(|uid| self.delete(&uid));
            self.add(at, pod.clone());
        }
        known.is_none()
    }

    /// Adds a pod of the revision at this position.
    pub fn add(&mut self, at: usize, pod: Rc<Pod>) {
        self.pods_created += 1;
        self.revisions[at].add(pod, self.pods_created);
    }

    pub fn newest(&self) -> Option<&Revision> {
        self.revisions.last()
    }

    /// Returns all revisions but the newest.
    pub fn older(&self) -> &[Revision] {
        self.revisions.split_last().map_or(&[], |(_, older)| older)
    }

    /// Returns the number of the newest revision.
    pub fn number(&self) -> u64 {
        self.newest().map_or(0, |newest| newest.number)
    }

    /// Returns true if the newest revision has the template with this hash.
    pub fn is_newest(&self, hash: &str) -> bool {
        self.newest().is_some_and(|newest| newest.hash == hash)
    }

    /// Makes the revision of this template the newest one.
    pub fn choose(&mut self, hash: &str, template: &Rc<PodTemplateSpec>, now: Wall) -> ChosenRevision {
        let number = self.number() + 1;
        let found = self.revisions.iter().position(|revision| revision.hash == *hash);
        let (revision, chosen) = match found {
            Some(at) => (Revision { number, ..self.revisions.remove(at) }, ChosenRevision::Found),
            None => {
                let new = Revision::new(&self.owner, hash.to_owned(), number, template.clone(), now);
                (new, ChosenRevision::Created)
            }
        };
        self.revisions.push(revision);
        chosen
    }

    /// Gives the annotations of the workload to the newest revision. Returns true if they have changed.
    pub fn annotate(&mut self, of_workload: &ObjectMeta) -> bool {
        let Some(newest) = self.revisions.last_mut() else { return false };
        let mut annotations = of_workload.annotations.clone().unwrap_or_default();
        annotations.retain(|key, _| !NOT_INHERITED.contains(&key.as_str()));
        let changed = newest.annotations != annotations;
        newest.annotations = annotations;
        changed
    }

    /// Forgets the oldest revisions without pods: those above the number `limit`, and those for which there is no
    /// memory. `kept`: the hash of one that is needed without pods. Returns true if there were any.
    pub fn forget(&mut self, limit: usize, kept: Option<&str>) -> bool {
        let is_over = |revision: &&Revision| {
            let has_pods = !revision.replicas.is_empty() || !revision.leaving.is_empty();
            revision.wanted == 0 && !has_pods && kept != Some(&*revision.hash)
        };
        let over = self.older().iter().filter(is_over).map(|revision| (revision.number, revision.template_bytes));
        let over: Vec<(u64, usize)> = over.collect();
        let surplus = over.len().saturating_sub(limit);
        let mut bytes: usize = self.revisions.iter().map(|revision| revision.template_bytes).sum();
        let mut forgotten = BTreeSet::new();
        for (at, (number, size)) in over.into_iter().enumerate() {
            if at < surplus || bytes > HISTORY_BYTES {
                forgotten.insert(number);
                bytes -= size;
            }
        }
        self.revisions.retain(|revision| !forgotten.contains(&revision.number));
        !forgotten.is_empty()
    }

    /// Returns the revisions as the record has them.
    pub fn stored(&self) -> Vec<StoredRevision> {
        self.revisions.iter().map(StoredRevision::of).collect()
    }

    /// Takes over the published states of the pods.
    pub fn observe(&mut self, inputs: &WorkloadInputs<'_>) {
        for revision in &mut self.revisions {
            revision.observe(inputs.seen, inputs.is_gone, inputs.now.boot);
        }
        let is_known = |replica: &Replica| replica.state.is_ready() || replica.state == ReplicaState::Ended;
        let all_known = self.revisions.iter().flat_map(|revision| revision.replicas.values()).all(is_known);
        self.settling.take_if(|until| all_known || *until <= inputs.now.boot);
    }

    /// Deletes the oldest pods of each revision that have ended. Returns true if there were any.
    pub fn forget_ended(&mut self) -> bool {
        let mut changed = false;
        for revision in &mut self.revisions {
            changed |= revision.forget_ended();
        }
        changed
    }

    /// Returns true if the states of all pods are known. After a start, they are not.
    pub fn is_settled(&self) -> bool {
        self.settling.is_none()
    }

    /// Returns when a pod becomes available, or the states count as known.
    pub fn next_deadline(&self, min_ready: Duration, now: Boot) -> Option<Boot> {
        let available = self.revisions.iter().filter_map(|revision| revision.next_available(min_ready, now));
        available.chain(self.settling).min()
    }

    /// Returns the pods that are desired now.
    pub fn pods(&self) -> impl Iterator<Item = &Rc<Pod>> {
        self.revisions.iter().flat_map(|revision| revision.replicas.values()).map(|replica| &replica.pod)
    }

    pub fn has(&self, uid: &Uid) -> bool {
        let has = |revision: &Revision| revision.replicas.contains_key(uid) || revision.leaving.contains_key(uid);
        self.revisions.iter().any(has)
    }

    /// Returns the number of pods that need memory: also those that have ended or are terminating.
    pub fn pods_there(&self) -> usize {
        self.revisions.iter().map(|revision| revision.replicas.len() + revision.leaving.len()).sum()
    }

    /// Deletes a pod.
    pub fn delete(&mut self, uid: &Uid) -> Option<Replica> {
        self.revisions.iter_mut().find_map(|revision| revision.delete(uid))
    }

    /// Returns a port of the node that pods of older revisions have and new ones need.
    pub fn port_in_use(&self) -> Option<String> {
        let (newest, old) = self.revisions.split_last()?;
        let old = old.iter().filter(|revision| revision.count() > 0 || revision.wanted > 0);
        let ports = replica::host_ports(&newest.template);
        old.flat_map(|revision| replica::host_ports(&revision.template)).find(|port| ports.contains(port))
    }
}
