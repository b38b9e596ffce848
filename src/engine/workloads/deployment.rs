//! The controller of a Deployment. A step compares its revisions with the manifest and with the published states of the
//! pods, and then creates and deletes pods.

use super::controller::{Controller, ControllerState};
use super::history::ChosenRevision;
use super::inputs::WorkloadInputs;
use super::progress::{self, PodCounts, RolloutCondition, RolloutGoal, RolloutProgress, RolloutStep};
use super::record::{self, StoredOwn, StoredRollout, StoredWorkload};
use super::replica_set;
use super::revision::{self, Revision};
use super::rolling::{self, RevisionSize, RollingLimits};
use crate::api::pod::Pod;
use crate::api::reason::Reason;
use crate::api::time::Now;
use crate::api::workload::deployment::{Deployment, Strategy};
use crate::api::workload::head::WorkloadHead;
use crate::api::workload::replica;
use crate::api::workload::template;
use crate::engine::effect::{Severity, Subject};
use crate::engine::outbox::Outbox;
use serde::Serialize;
use std::rc::Rc;

#[derive(Debug, Serialize)]
pub struct Rollout {
    #[serde(skip)]
    deployment: Rc<Deployment>,
    state: ControllerState,
    /// The number of replicas for which the sizes of the revisions were chosen, and the maximum then.
    scaled: (u32, u32),
    progress: RolloutProgress,
    counts: PodCounts,
    available: RolloutCondition,
    progressing: RolloutCondition,
}

impl Controller for Rollout {
    fn head(&self) -> &WorkloadHead {
        &self.deployment.head
    }

    fn state(&self) -> &ControllerState {
        &self.state
    }

    fn state_mut(&mut self) -> &mut ControllerState {
        &mut self.state
    }

    fn revision_of(&self, pod: &Pod) -> Option<String> {
        let owner = replica::controller(&pod.object.metadata).filter(|owner| owner.kind == "ReplicaSet")?;
        let hash = pod.object.metadata.labels.as_ref()?.get(template::HASH_LABEL)?;
        let (name, uid) = revision::identity(&self.deployment.head.key, hash);
        (uid.as_str() == owner.uid && name.namespace == pod.name.namespace).then(|| hash.clone())
    }

    /// The size of a revision is the number of its pods in the last run.
    fn adopt(&mut self, hash: &str, pod: &Rc<Pod>, is_deleted: bool, now: Now) {
        self.state.adopt(hash, pod, is_deleted, now);
        let mut revisions = self.state.history.revisions.iter_mut();
        if let Some(revision) = revisions.find(|revision| !is_deleted && revision.hash == hash) {
            revision.wanted += 1;
        }
    }

    fn step(&mut self, room: &mut usize, inputs: &mut WorkloadInputs<'_>) -> bool {
        self.choose_revision(inputs);
        self.resize(inputs);
        let changed = self.replace(room, inputs);
        if !self.deployment.is_paused() {
            self.state.forget_revisions(self.deployment.history_limit(), None);
        }
        self.count(inputs);
        let times_out = self.progress.times_out(self.deployment.progress_deadline());
        let of_pods = self.state.history.next_deadline(self.deployment.min_ready(), inputs.now.boot);
        self.state.due = of_pods.into_iter().chain(times_out).min();
        changed
    }

    fn record(&self) -> String {
        let rollout = StoredRollout { scaled: self.scaled, progress: self.progress.stored() };
        record::write(&self.state.stored(&self.deployment.head), &StoredOwn::Deployment(rollout))
    }
}

impl Rollout {
    /// Makes the controller of a Deployment. `stored`: its record.
    pub fn new(deployment: Rc<Deployment>, stored: Option<StoredWorkload>, now: Now, outbox: &mut Outbox) -> Rollout {
        let (base, own) = stored.map(|stored| (stored.base, stored.own)).unzip();
        let created = RolloutProgress::Moving { step: RolloutStep::Created, last: now.boot };
        let stored = if let Some(StoredOwn::Deployment(stored)) = own { Some(stored) } else { None };
        let mut rollout = Rollout {
            state: ControllerState::new(&deployment.head, base, now.wall, outbox),
            deployment,
            scaled: stored.as_ref().map_or((0, 0), |stored| stored.scaled),
            progress: stored.map_or(created, |stored| RolloutProgress::restored(stored.progress, now.boot)),
            counts: PodCounts::default(),
            available: RolloutCondition::default(),
            progressing: RolloutCondition::default(),
        };
        rollout.inherit();
        rollout
    }

    /// Takes a new version of the manifest.
    pub fn change(&mut self, deployment: Rc<Deployment>) {
        self.state.change(&self.deployment.head, &deployment.head);
        self.deployment = deployment;
        self.inherit();
    }

    /// Gives the annotations of the Deployment to the revision of its template.
    fn inherit(&mut self) {
        if self.is_current() && self.state.history.annotate(&self.deployment.object.metadata) {
            self.state.record_changed();
        }
    }

    pub fn deployment(&self) -> &Rc<Deployment> {
        &self.deployment
    }

    pub fn sets(&self) -> &[Revision] {
        &self.state.history.revisions
    }

    pub fn counts(&self) -> &PodCounts {
        &self.counts
    }

    /// Returns the maximum number of pods of all revisions.
    pub fn most(&self) -> u32 {
        self.scaled.1
    }

    /// Returns the conditions, by their types.
    pub fn conditions(&self) -> Vec<(&'static str, &RolloutCondition)> {
        let progressing = self.deployment.progress_deadline().map(|_| ("Progressing", &self.progressing));
        [("Available", &self.available)].into_iter().chain(progressing).chain(self.state.failure()).collect()
    }

    /// Returns true if the newest revision has the present template. A paused Deployment does not begin a new revision.
    fn is_current(&self) -> bool {
        self.state.history.is_newest(&self.deployment.head.hash)
    }

    fn emit(&self, reason: Reason, message: String, inputs: &mut WorkloadInputs<'_>) {
        inputs.outbox.emit(Subject::workload(&self.deployment.head.key), Severity::Normal, reason, message);
    }

    /// Makes the revision of the present template the newest one.
    fn choose_revision(&mut self, inputs: &mut WorkloadInputs<'_>) {
        if self.is_current() || self.deployment.is_paused() {
            return;
        }
        let WorkloadHead { hash, template, .. } = &self.deployment.head;
        let step = match self.state.history.choose(hash, template, inputs.now.wall) {
            ChosenRevision::Created => RolloutStep::Created,
            ChosenRevision::Found => RolloutStep::Found,
        };
        self.inherit();
        self.progress = RolloutProgress::Moving { step, last: inputs.now.boot };
        self.state.record_changed();
        let strategy = self.deployment.strategy();
        if let (Strategy::Rolling { surge: 1.., .. }, Some(port)) = (strategy, self.state.history.port_in_use()) {
            self.emit(Reason::ReplacingInPlace, rolling::replaces_in_place(&port), inputs);
        }
    }

    /// Decides how many pods each revision has.
    fn resize(&mut self, inputs: &mut WorkloadInputs<'_>) {
        let (min_ready, now) = (self.deployment.min_ready(), inputs.now.boot);
        let of = |set: &Revision| RevisionSize { wanted: set.wanted, available: set.available(min_ready, now) };
        let mut sizes: Vec<RevisionSize> = self.sets().iter().map(of).collect();
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
            self.state.shown_changed();
            self.state.record_changed();
        }
        for (at, size) in sizes.into_iter().enumerate() {
            let set = &mut self.state.history.revisions[at];
            let before = std::mem::replace(&mut set.wanted, size.wanted);
            if before != size.wanted {
                let (direction, name) = (if size.wanted > before { "up" } else { "down" }, &set.name.name);
                let message = format!("Scaled {direction} replica set {name} from {before} to {}", size.wanted);
                self.emit(Reason::ScalingReplicaSet, message, inputs);
                self.state.shown_changed();
            }
        }
    }

    /// Returns the limits of the roll-out. If the old pods have ports of the node that the new ones need, no new pod
    /// could start before an old one has ended, so pods are replaced in place.
    fn limits(&self) -> RollingLimits {
        let replicas = self.deployment.replicas();
        match self.deployment.strategy() {
            Strategy::Recreate => RollingLimits { replicas, surge: 0, unavailable: replicas },
            Strategy::Rolling { unavailable, .. } if self.state.history.port_in_use().is_some() => {
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
        let is_empty = |set: &Revision| set.count() == 0 && set.leaving.is_empty();
        let old_are_gone = self.state.history.older().iter().all(is_empty);
        if old_are_gone || new.wanted > self.deployment.replicas() {
            new.wanted = self.deployment.replicas();
        }
    }

    fn roll(&self, limits: RollingLimits, sizes: &mut [RevisionSize]) {
        loop {
            let before = sizes.to_vec();
            let Some((new, old)) = sizes.split_last_mut() else { return };
            rolling::grow(limits, old, new);
            if self.state.history.is_settled() {
                rolling::shrink(limits, old, *new);
            }
            if *sizes == before[..] {
                return;
            }
        }
    }

    /// Creates and deletes pods. Returns true if there were any.
    fn replace(&mut self, room: &mut usize, inputs: &mut WorkloadInputs<'_>) -> bool {
        let mut changed = false;
        let mut failure = None;
        for at in 0..self.state.history.revisions.len() {
            let (has_changed, why) = replica_set::adjust(&mut self.state, at, &self.deployment.head, room, inputs);
            changed |= has_changed;
            failure = why.or(failure);
        }
        self.state.note_failure(failure, inputs);
        changed
    }

    /// Counts the pods, and derives the conditions.
    fn count(&mut self, inputs: &WorkloadInputs<'_>) {
        let (min_ready, now) = (self.deployment.min_ready(), inputs.now);
        let sum = |of: &dyn Fn(&Revision) -> u32| self.sets().iter().map(of).sum();
        let counts = PodCounts {
            replicas: sum(&Revision::count),
            updated: self.sets().last().filter(|_| self.is_current()).map_or(0, Revision::count),
            ready: sum(&Revision::ready),
            available: sum(&|set| set.available(min_ready, now.boot)),
            terminating: sum(&|set| u32::try_from(set.leaving.len()).unwrap_or(u32::MAX)),
        };
        let (replicas, deadline) = (self.deployment.replicas(), self.deployment.progress_deadline());
        let goal = RolloutGoal { replicas, deadline, is_paused: self.deployment.is_paused() };
        let progress = self.progress.next(&self.counts, &counts, &goal, now.boot);
        if progress.stored() != self.progress.stored() {
            self.state.record_changed();
        }
        if self.counts != counts {
            self.state.shown_changed();
        }
        (self.progress, self.counts) = (progress, counts);
        let tolerated = match self.deployment.strategy() {
            Strategy::Recreate => 0,
            Strategy::Rolling { unavailable, .. } => unavailable,
        };
        let (status, reason, message) = progress::availability(counts.available >= replicas.saturating_sub(tolerated));
        let mut changed = self.available.set(status, reason, message, now);
        let name = self.state.history.newest().map_or("", |set| &*set.name.name);
        let (status, reason, message) = progress::progressing(progress, name);
        changed |= self.progressing.set(status, reason, message, now);
        if changed {
            self.state.shown_changed();
        }
    }
}
