//! The state machine of one Deployment. A step compares its revisions with the manifest and with the published states
//! of the pods, and then creates and deletes pods. It is level-triggered: nothing depends on how a state was reached.

use super::progress::{self, PodCounts, RolloutCondition, RolloutGoal, RolloutProgress, RolloutStep};
use super::record::{self, StoredDeployment, StoredRevision};
use super::replica_set::{self, Replica, ReplicaSet, ReplicaState, SeenPod};
use super::rolling::{self, RevisionSize, RollingLimits};
use crate::api::document::context::Context;
use crate::api::names::{FullName, Uid};
use crate::api::ordered::OrderSlice;
use crate::api::pod::Pod;
use crate::api::reason::Reason;
use crate::api::time::{Boot, Now, Wall};
use crate::api::workload::deployment::{Deployment, Strategy};
use crate::api::workload::replica::{self, OwningSet};
use crate::api::workload::template;
use crate::engine::effect::{RecordChange, Severity, Subject};
use crate::engine::outbox::Outbox;
use crate::engine::owner::Owner;
use crate::engine::rewriting::Rewriting;
use crate::engine::rng::Rng;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

/// *(ours)* How long a roll-out waits after a start of Wherry for the states of the pods that it finds: as long as
/// their states are unknown, it must not treat them as unavailable.
const SETTLING: Duration = Duration::from_secs(60);
/// *(ours)* The maximum number of pods of all Deployments, with those that are terminating. A short manifest can ask
/// for any number of pods, and each needs memory.
pub const MAX_PODS: usize = 1000;
/// *(ours)* The maximum size of the templates of all revisions of a Deployment, in bytes of JSON. Above it, the oldest
/// ones without pods are forgotten. The record has all of them, and may have 4 MiB.
const HISTORY_BYTES: usize = 1 << 20;
/// The maximum number of names that are tried for a new pod.
const DRAWS: usize = 100;
/// The annotations of a Deployment that its ReplicaSets do not get.
const NOT_INHERITED: [&str; 2] =
    ["kubectl.kubernetes.io/last-applied-configuration", "deployment.kubernetes.io/revision"];

/// What a step needs from the node.
pub struct RolloutInputs<'a> {
    pub now: Now,
    pub node_name: &'a str,
    pub rng: &'a mut Rng,
    pub outbox: &'a mut Outbox,
    /// Returns the published state of a pod; None for a pod without a worker.
    pub seen: &'a dyn Fn(&Uid) -> Option<SeenPod>,
    /// Returns true if nothing of a deleted pod is left.
    pub is_gone: &'a dyn Fn(&Uid) -> bool,
    /// Returns true if a pod has this UID, or a pod with this name has not ended yet.
    pub is_taken: &'a dyn Fn(&FullName, &Uid) -> bool,
    /// Gives a new pod the values of its classes (A5).
    pub accept: &'a dyn Fn(Pod) -> Result<Rc<Pod>, String>,
}

#[derive(Debug, Serialize)]
pub struct Rollout {
    #[serde(skip)]
    deployment: Rc<Deployment>,
    /// From the oldest to the newest revision. The newest one has the present template.
    sets: Vec<ReplicaSet>,
    created: Wall,
    generation: i64,
    /// The number of pods that were created.
    pods_created: u64,
    /// The number of replicas for which the sizes of the revisions were chosen, and the maximum then.
    scaled: (u32, u32),
    /// Until then, the states of some pods are unknown, so no old pod ends.
    settling: Option<Boot>,
    progress: RolloutProgress,
    counts: PodCounts,
    available: RolloutCondition,
    progressing: RolloutCondition,
    /// Why the last pod could not be created.
    failure: Option<RolloutCondition>,
    record: Rewriting,
    /// When a step is due without an event.
    due: Option<Boot>,
    /// Counts the changes of what the API shows.
    version: u64,
}

impl Rollout {
    /// Makes the machine of a Deployment. `stored`: its record.
    pub fn new(deployment: Rc<Deployment>, stored: Option<StoredDeployment>, now: Now, outbox: &mut Outbox) -> Rollout {
        let mut rollout = Rollout {
            deployment,
            sets: Vec::new(),
            created: now.wall,
            generation: 1,
            pods_created: 0,
            scaled: (0, 0),
            settling: None,
            progress: RolloutProgress::Moving { step: RolloutStep::Created, last: now.boot },
            counts: PodCounts::default(),
            available: RolloutCondition::default(),
            progressing: RolloutCondition::default(),
            failure: None,
            record: Rewriting::default(),
            due: None,
            version: 0,
        };
        match stored {
            Some(stored) => rollout.restore(stored, now, outbox),
            None => rollout.record.changed(),
        }
        rollout
    }

    fn restore(&mut self, stored: StoredDeployment, now: Now, outbox: &mut Outbox) {
        self.created = stored.created;
        self.generation = stored.generation + i64::from(stored.digest != self.deployment.digest);
        self.scaled = stored.scaled;
        self.progress = RolloutProgress::restored(stored.progress, now.boot);
        for revision in stored.revisions {
            let number = revision.revision;
            match revision.replica_set(&self.deployment.name) {
                Ok(set) => self.sets.push(set),
                Err(why) => {
                    let message = format!("revision {number} of Deployment {} is lost: {why}", self.deployment.name);
                    outbox.emit_node_event(Severity::Warning, Reason::BadRecord, message);
                }
            }
        }
        self.sets.order_by_key(|set| set.revision);
        self.inherit();
        if stored.digest != self.deployment.digest {
            self.record.changed();
        }
    }

    /// Takes over a pod of an earlier run. Returns false if the pod is not one of this Deployment.
    pub fn adopt(&mut self, pod: &Rc<Pod>, now: Now) -> bool {
        let Some(owner) = replica::controller(&pod.object.metadata).filter(|owner| owner.kind == "ReplicaSet") else {
            return false;
        };
        let labels = pod.object.metadata.labels.as_ref();
        let Some(hash) = labels.and_then(|labels| labels.get(template::HASH_LABEL)) else { return false };
        let (name, uid) = replica_set::identity(&self.deployment.name, hash);
        if uid.as_str() != owner.uid || name.namespace != pod.name.namespace {
            return false;
        }
        self.pods_created += 1;
        let number = self.pods_created;
        self.settling = Some(now.boot + SETTLING);
        let set = match self.sets.iter_mut().position(|set| set.hash == *hash) {
            Some(at) => &mut self.sets[at],
            None => {
                // The record is lost. The template can be found in the pod.
                let template = Rc::new(replica::template_of(pod));
                self.record.changed();
                self.sets.insert(0, ReplicaSet::new(&self.deployment.name, hash.clone(), 0, template, now.wall));
                &mut self.sets[0]
            }
        };
        set.wanted += 1;
        set.add(pod.clone(), number);
        true
    }

    /// Takes a new version of the manifest.
    pub fn change(&mut self, deployment: Rc<Deployment>) {
        if deployment.digest != self.deployment.digest {
            self.generation += 1;
            self.version += 1;
            self.record.changed();
        }
        self.deployment = deployment;
        self.inherit();
    }

    /// Gives the annotations of the Deployment to the revision of its template.
    fn inherit(&mut self) {
        let Some(newest) = self.sets.last_mut().filter(|newest| newest.hash == self.deployment.hash) else { return };
        let annotations = inherited(&self.deployment);
        if newest.annotations != annotations {
            newest.annotations = annotations;
            self.record.changed();
        }
    }

    pub fn deployment(&self) -> &Rc<Deployment> {
        &self.deployment
    }

    pub fn sets(&self) -> &[ReplicaSet] {
        &self.sets
    }

    pub fn counts(&self) -> &PodCounts {
        &self.counts
    }

    pub fn created(&self) -> Wall {
        self.created
    }

    pub fn generation(&self) -> i64 {
        self.generation
    }

    /// Returns a number that changes whenever the API has to show something else.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the number of the present revision.
    pub fn revision(&self) -> u64 {
        self.sets.last().map_or(0, |set| set.revision)
    }

    /// Returns the maximum number of pods of all revisions.
    pub fn most(&self) -> u32 {
        self.scaled.1
    }

    /// Returns the conditions, by their types.
    pub fn conditions(&self) -> Vec<(&'static str, &RolloutCondition)> {
        let progressing = self.deployment.progress_deadline().map(|_| ("Progressing", &self.progressing));
        let failure = self.failure.as_ref().map(|failure| ("ReplicaFailure", failure));
        [("Available", &self.available)].into_iter().chain(progressing).chain(failure).collect()
    }

    /// Returns the pods that are desired now.
    pub fn pods(&self) -> impl Iterator<Item = &Rc<Pod>> {
        self.sets.iter().flat_map(|set| set.replicas.values()).map(|replica| &replica.pod)
    }

    pub fn has(&self, uid: &Uid) -> bool {
        self.sets.iter().any(|set| set.replicas.contains_key(uid) || set.leaving.contains(uid))
    }

    /// Deletes a pod because a user asks for it. Another one replaces it.
    pub fn delete(&mut self, uid: &Uid) -> bool {
        self.sets.iter_mut().any(|set| set.delete(uid).is_some())
    }

    /// Returns when a step is due without an event.
    pub fn next_deadline(&self) -> Option<Boot> {
        self.due.into_iter().chain(self.record.next_deadline()).min()
    }

    fn next_step(&self, now: Boot) -> Option<Boot> {
        let min_ready = self.deployment.min_ready();
        let available = self.sets.iter().filter_map(|set| set.next_available(min_ready, now));
        let times_out = self.progress.times_out(self.deployment.progress_deadline());
        available.chain(times_out).chain(self.settling).min()
    }

    /// Returns true if a pod could not be created.
    pub fn lacks_pods(&self) -> bool {
        self.failure.is_some()
    }

    /// Returns the number of pods that need memory: also those that have ended or are terminating.
    pub fn pods_there(&self) -> usize {
        self.sets.iter().map(|set| set.replicas.len() + set.leaving.len()).sum()
    }

    /// Takes over the published states of the pods. Returns true if pods were deleted.
    pub fn observe(&mut self, inputs: &RolloutInputs<'_>) -> bool {
        let mut changed = false;
        for set in &mut self.sets {
            changed |= set.observe(inputs.seen, inputs.is_gone, inputs.now.boot);
        }
        self.settle(inputs.now.boot);
        changed
    }

    /// Compares the Deployment with its pods. Returns true if pods were created or deleted. `room`: how many pods may
    /// be created, by all Deployments.
    pub fn step(&mut self, room: &mut usize, inputs: &mut RolloutInputs<'_>) -> bool {
        self.choose_revision(inputs);
        self.resize(inputs);
        let changed = self.replace(room, inputs);
        self.forget_revisions();
        self.count(inputs);
        self.due = self.next_step(inputs.now.boot);
        changed
    }

    /// Returns true if the newest revision has the present template. A paused Deployment does not begin a new revision.
    fn is_current(&self) -> bool {
        self.sets.last().is_some_and(|newest| newest.hash == self.deployment.hash)
    }

    /// Ends the time in which the states of adopted pods are unknown.
    fn settle(&mut self, now: Boot) {
        let is_known = |state: &ReplicaState| matches!(state, ReplicaState::Ready { .. } | ReplicaState::Ended);
        let mut all = self.sets.iter().flat_map(|set| set.replicas.values());
        let all_known = all.all(|replica| is_known(&replica.state));
        self.settling.take_if(|until| all_known || *until <= now);
    }

    /// Makes the revision of the present template the newest one.
    fn choose_revision(&mut self, inputs: &mut RolloutInputs<'_>) {
        if self.is_current() || self.deployment.is_paused() {
            return;
        }
        let Deployment { name, hash, template, .. } = &*self.deployment;
        let next = self.revision() + 1;
        let (set, step) = match self.sets.iter().position(|set| set.hash == *hash) {
            Some(at) => (ReplicaSet { revision: next, ..self.sets.remove(at) }, RolloutStep::Found),
            None => {
                let set = ReplicaSet::new(name, hash.clone(), next, template.clone(), inputs.now.wall);
                (set, RolloutStep::Created)
            }
        };
        self.sets.push(set);
        self.inherit();
        self.progress = RolloutProgress::Moving { step, last: inputs.now.boot };
        self.record.changed();
        if let (Strategy::Rolling { surge: 1.., .. }, Some(port)) = (self.deployment.strategy(), self.port_in_use()) {
            let message = format!(
                "The old pods have the port {port} of the node, so a new pod starts only after an old one has ended; \
                 maxSurge has no effect on this roll-out"
            );
            let subject = Subject::deployment(&self.deployment);
            inputs.outbox.emit(subject, Severity::Normal, Reason::ReplacingInPlace, message);
        }
    }

    /// Returns a port of the node that old pods have and new ones need.
    fn port_in_use(&self) -> Option<String> {
        let old = self.sets.iter().rev().skip(1).filter(|set| set.wanted > 0);
        let ports = replica::host_ports(&self.deployment.template);
        old.flat_map(|set| replica::host_ports(&set.template)).find(|port| ports.contains(port))
    }

    /// Decides how many pods each revision has.
    fn resize(&mut self, inputs: &mut RolloutInputs<'_>) {
        let (min_ready, now) = (self.deployment.min_ready(), inputs.now.boot);
        let of = |set: &ReplicaSet| RevisionSize { wanted: set.wanted, available: set.available(min_ready, now) };
        let mut sizes: Vec<RevisionSize> = self.sets.iter().map(of).collect();
        let limits = self.limits();
        self.scale(limits, &mut sizes);
        if !self.deployment.is_paused() {
            match self.deployment.strategy() {
                Strategy::Recreate => self.recreate(&mut sizes),
                Strategy::Rolling { .. } => self.roll(limits, &mut sizes),
            }
        }
        let scaled = (limits.replicas, limits.most());
        if self.scaled != scaled {
            self.scaled = scaled;
            self.version += 1;
            self.record.changed();
        }
        for (set, size) in self.sets.iter_mut().zip(sizes) {
            if set.wanted != size.wanted {
                let (direction, before) = (if size.wanted > set.wanted { "up" } else { "down" }, set.wanted);
                let name = &set.name.name;
                let message = format!("Scaled {direction} replica set {name} from {before} to {}", size.wanted);
                let subject = Subject::deployment(&self.deployment);
                inputs.outbox.emit(subject, Severity::Normal, Reason::ScalingReplicaSet, message);
                set.wanted = size.wanted;
                self.version += 1;
            }
        }
    }

    /// Returns the limits of the roll-out. If the old pods have ports of the node that the new ones need, no new pod
    /// could start before an old one has ended, so pods are replaced in place.
    fn limits(&self) -> RollingLimits {
        let replicas = self.deployment.replicas();
        match self.deployment.strategy() {
            Strategy::Recreate => RollingLimits { replicas, surge: 0, unavailable: replicas },
            Strategy::Rolling { unavailable, .. } if self.port_in_use().is_some() => {
                RollingLimits { replicas, surge: 0, unavailable: unavailable.max(1) }
            }
            Strategy::Rolling { surge, unavailable } => RollingLimits { replicas, surge, unavailable },
        }
    }

    /// Applies a change of `spec.replicas`: to the only revision that has pods, or to all of them in proportion.
    fn scale(&self, limits: RollingLimits, sizes: &mut [RevisionSize]) {
        let (before, most) = self.scaled;
        if before == limits.replicas || before == 0 && most == 0 {
            return;
        }
        let with_pods: Vec<usize> = (0..sizes.len()).filter(|at| sizes[*at].wanted > 0).collect();
        match with_pods[..] {
            [] => {}
            [only] => sizes[only].wanted = limits.replicas,
            _ => rolling::scale(limits, most, sizes),
        }
    }

    /// Starts the new pods when the old ones are gone.
    fn recreate(&self, sizes: &mut [RevisionSize]) {
        let Some((new, old)) = sizes.split_last_mut() else { return };
        old.iter_mut().for_each(|size| size.wanted = 0);
        let is_empty = |set: &ReplicaSet| set.count() == 0 && set.leaving.is_empty();
        let old_are_gone = self.sets.iter().rev().skip(1).all(is_empty);
        if old_are_gone || new.wanted > self.deployment.replicas() {
            new.wanted = self.deployment.replicas();
        }
    }

    fn roll(&self, limits: RollingLimits, sizes: &mut [RevisionSize]) {
        loop {
            let before = sizes.to_vec();
            let Some((new, old)) = sizes.split_last_mut() else { return };
            rolling::grow(limits, old, new);
            if self.settling.is_none() {
                rolling::shrink(limits, old, *new);
            }
            if *sizes == before[..] {
                return;
            }
        }
    }

    /// Creates and deletes pods. Returns true if there were any.
    fn replace(&mut self, room: &mut usize, inputs: &mut RolloutInputs<'_>) -> bool {
        let mut changed = false;
        let mut failure = None;
        for set in &mut self.sets {
            let subject = Subject::replica_set(set.name.clone(), set.uid.clone());
            for uid in set.surplus() {
                if let Some(replica) = set.delete(&uid) {
                    let message = format!("Deleted pod: {}", replica.pod.name.name);
                    inputs.outbox.emit(subject.clone(), Severity::Normal, Reason::SuccessfulDelete, message);
                    changed = true;
                }
            }
            while set.count() < set.wanted {
                match create(&self.deployment, set, room, inputs) {
                    Ok(pod) => {
                        self.pods_created += 1;
                        let message = format!("Created pod: {}", pod.name.name);
                        inputs.outbox.emit(subject.clone(), Severity::Normal, Reason::SuccessfulCreate, message);
                        set.add(pod, self.pods_created);
                        changed = true;
                    }
                    Err(why) => {
                        failure = Some((subject, why));
                        break;
                    }
                }
            }
        }
        self.note_failure(failure, inputs);
        changed
    }

    /// Shows why pods cannot be created. The next change of the manifests may remove the cause.
    fn note_failure(&mut self, failure: Option<(Subject, String)>, inputs: &mut RolloutInputs<'_>) {
        let Some((subject, why)) = failure else {
            self.version += u64::from(self.failure.take().is_some());
            return;
        };
        let condition = self.failure.get_or_insert_default();
        if condition.set("True", "FailedCreate", why.clone(), inputs.now) {
            self.version += 1;
            let message = format!("Error creating: {why}");
            inputs.outbox.emit(subject, Severity::Warning, Reason::FailedCreate, message);
        }
    }

    /// Forgets the oldest revisions without pods.
    fn forget_revisions(&mut self) {
        if self.deployment.is_paused() {
            return;
        }
        let newest = self.revision();
        let is_over = |set: &ReplicaSet| {
            set.revision != newest && set.wanted == 0 && set.replicas.is_empty() && set.leaving.is_empty()
        };
        let over = self.sets.iter().filter(|set| is_over(set)).map(|set| (set.revision, set.template_bytes));
        let over: Vec<(u64, usize)> = over.collect();
        let surplus = over.len().saturating_sub(self.deployment.history_limit());
        let mut bytes: usize = self.sets.iter().map(|set| set.template_bytes).sum();
        let mut forgotten = BTreeSet::new();
        for (at, (revision, size)) in over.into_iter().enumerate() {
            if at < surplus || bytes > HISTORY_BYTES {
                forgotten.insert(revision);
                bytes -= size;
            }
        }
        if !forgotten.is_empty() {
            self.sets.retain(|set| !forgotten.contains(&set.revision));
            self.record.changed();
            self.version += 1;
        }
    }

    /// Counts the pods, and derives the conditions.
    fn count(&mut self, inputs: &RolloutInputs<'_>) {
        let (min_ready, now) = (self.deployment.min_ready(), inputs.now);
        let sum = |of: &dyn Fn(&ReplicaSet) -> u32| self.sets.iter().map(of).sum();
        let counts = PodCounts {
            replicas: sum(&ReplicaSet::count),
            updated: self.sets.last().filter(|_| self.is_current()).map_or(0, ReplicaSet::count),
            ready: sum(&ReplicaSet::ready),
            available: sum(&|set| set.available(min_ready, now.boot)),
            terminating: sum(&|set| u32::try_from(set.leaving.len()).unwrap_or(u32::MAX)),
        };
        let (replicas, deadline) = (self.deployment.replicas(), self.deployment.progress_deadline());
        let goal = RolloutGoal { replicas, deadline, is_paused: self.deployment.is_paused() };
        let progress = self.progress.next(&self.counts, &counts, &goal, now.boot);
        if progress.stored() != self.progress.stored() {
            self.record.changed();
        }
        self.version += u64::from(self.counts != counts);
        (self.progress, self.counts) = (progress, counts);
        let tolerated = match self.deployment.strategy() {
            Strategy::Recreate => 0,
            Strategy::Rolling { unavailable, .. } => unavailable,
        };
        let (status, reason, message) = progress::availability(counts.available >= replicas.saturating_sub(tolerated));
        let mut changed = self.available.set(status, reason, message, now);
        let name = self.sets.last().map_or("", |set| &*set.name.name);
        let (status, reason, message) = progress::progressing(progress, name);
        changed |= self.progressing.set(status, reason, message, now);
        self.version += u64::from(changed);
    }

    /// Writes the record if it has to be written.
    pub fn write_record(&mut self, now: Boot, outbox: &mut Outbox) {
        if !self.record.begins(now) {
            return;
        }
        let stored = StoredDeployment {
            namespace: self.deployment.name.namespace.to_string(),
            name: self.deployment.name.name.to_string(),
            created: self.created,
            generation: self.generation,
            digest: self.deployment.digest.clone(),
            scaled: self.scaled,
            progress: self.progress.stored(),
            revisions: self.sets.iter().map(StoredRevision::of).collect(),
        };
        let name = self.deployment.name.clone();
        let (key, owner) = (record::key(&name), Owner::Deployment(name));
        outbox.record(owner, RecordChange::Put { key, value: record::write(&stored) });
    }

    /// Handles the end of writing the record.
    pub fn recorded(&mut self, well: bool, now: Boot) {
        self.record.ended(well, now);
    }
}

/// Returns the annotations that a ReplicaSet gets from its Deployment.
fn inherited(deployment: &Deployment) -> BTreeMap<String, String> {
    let mut annotations = deployment.object.metadata.annotations.clone().unwrap_or_default();
    annotations.retain(|key, _| !NOT_INHERITED.contains(&key.as_str()));
    annotations
}

/// Makes a pod of a revision. The random numbers may repeat those of an earlier run, so they are drawn until the pod
/// differs from all others.
///
/// # Errors
/// There are too many pods, or a class does not exist.
fn create(
    deployment: &Deployment,
    set: &ReplicaSet,
    room: &mut usize,
    inputs: &mut RolloutInputs<'_>,
) -> Result<Rc<Pod>, String> {
    if *room == 0 {
        return Err(format!("the Deployments have {MAX_PODS} pods, which is the maximum; reduce spec.replicas of one"));
    }
    let seen = inputs.now.wall.timestamp().map(|time| time.to_string()).unwrap_or_default();
    let owner = OwningSet { name: &set.name, uid: &set.uid, hash: &set.hash, source: &deployment.source };
    let context = Context::new(inputs.node_name, &seen);
    for _ in 0..DRAWS {
        let suffix = template::suffix(inputs.rng.draw());
        let random: String = (0..4).map(|_| format!("{:016x}", inputs.rng.draw())).collect();
        let pod = replica::new(owner, &set.template, &suffix, random, context);
        // The pods of this step have no workers yet.
        let is_new = |other: &Replica| other.pod.uid != pod.uid && other.pod.name != pod.name;
        if !(inputs.is_taken)(&pod.name, &pod.uid) && set.replicas.values().all(is_new) {
            let pod = (inputs.accept)(pod)?;
            *room -= 1;
            return Ok(pod);
        }
    }
    Err("no name is free".to_owned())
}
