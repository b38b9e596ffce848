//! The controller of a DaemonSet: at most one pod, if the node admits it.

use super::controller::{Controller, ControllerState};
use super::inputs::{NameEnd, WorkloadInputs, create_pod};
use super::progress::RolloutCondition;
use super::record::{self, StoredBase, StoredOwn};
use super::revision::{Replica, Revision};
use super::rolling;
use crate::api::names::Uid;
use crate::api::ordered::OrderSlice;
use crate::api::pod::Pod;
use crate::api::reason::Reason;
use crate::api::time::Now;
use crate::api::workload::daemon_set::{self, DaemonSet, DaemonUpdate};
use crate::api::workload::head::WorkloadHead;
use crate::api::workload::key::WorkloadKind;
use crate::api::workload::replica::{self, PodOwner};
use crate::api::workload::template;
use crate::engine::admission::placement::Placement;
use crate::engine::effect::{Severity, Subject};
use crate::engine::outbox::Outbox;
use serde::Serialize;
use std::rc::Rc;

#[derive(Debug, Serialize)]
pub struct Daemon {
    #[serde(skip)]
    daemon_set: Rc<DaemonSet>,
    state: ControllerState,
    /// Whether the node admits the pod.
    placement: Placement,
    /// Why it does not. It remains when the node admits the pod.
    placed: RolloutCondition,
    counts: DaemonCounts,
}

/// What the status says about the pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DaemonCounts {
    /// The node admits a pod.
    pub desired: bool,
    /// There is a pod, which may be terminating.
    pub has_pod: bool,
    pub ready: bool,
    pub available: bool,
    /// There is a pod of the present template, and no older one.
    pub updated: bool,
}

impl Controller for Daemon {
    fn head(&self) -> &WorkloadHead {
        &self.daemon_set.head
    }

    fn state(&self) -> &ControllerState {
        &self.state
    }

    fn state_mut(&mut self) -> &mut ControllerState {
        &mut self.state
    }

    fn revision_of(&self, pod: &Pod) -> Option<String> {
        let hash = pod.object.metadata.labels.as_ref()?.get(template::REVISION_LABEL)?;
        replica::belongs_to(pod, &self.head().key).then(|| hash.clone())
    }

    fn step(&mut self, room: &mut usize, inputs: &mut WorkloadInputs<'_>) -> bool {
        self.choose_revision(inputs);
        self.place(inputs);
        let subject = self.subject();
        let mut changed = false;
        for uid in self.ending(inputs) {
            changed |= self.state.delete(&uid, &subject, inputs.outbox);
        }
        changed |= self.create(room, inputs);
        self.state.forget_revisions(self.daemon_set.history_limit(), None);
        self.count(inputs);
        self.state.due = self.state.history.next_deadline(self.daemon_set.min_ready(), inputs.now.boot);
        changed
    }

    fn record(&self) -> String {
        record::write(&self.state.stored(&self.daemon_set.head), &StoredOwn::DaemonSet)
    }
}

impl Daemon {
    /// Makes the controller of a DaemonSet. `stored`: its record.
    pub fn new(daemon_set: Rc<DaemonSet>, stored: Option<StoredBase>, now: Now, outbox: &mut Outbox) -> Daemon {
        Daemon {
            state: ControllerState::new(&daemon_set.head, stored, now.wall, outbox),
            daemon_set,
            placement: Placement::Admitted,
            placed: RolloutCondition::default(),
            counts: DaemonCounts::default(),
        }
    }

    /// Takes a new version of the manifest.
    pub fn change(&mut self, daemon_set: Rc<DaemonSet>) {
        self.state.change(&self.daemon_set.head, &daemon_set.head);
        self.daemon_set = daemon_set;
    }

    pub fn daemon_set(&self) -> &Rc<DaemonSet> {
        &self.daemon_set
    }

    pub fn counts(&self) -> &DaemonCounts {
        &self.counts
    }

    /// Returns the conditions, by their types.
    pub fn conditions(&self) -> Vec<(&'static str, &RolloutCondition)> {
        let placed = (self.placement != Placement::Admitted).then_some(("Placed", &self.placed));
        placed.into_iter().chain(self.state.failure()).collect()
    }

    fn subject(&self) -> Subject {
        Subject::workload(&self.daemon_set.head.key)
    }

    /// Makes the revision of the present template the newest one, with the annotations of the DaemonSet.
    fn choose_revision(&mut self, inputs: &mut WorkloadInputs<'_>) {
        let DaemonSet { head, object } = &*self.daemon_set;
        let is_new = self.state.choose_revision(head, &object.metadata, inputs.now.wall);
        if let (true, DaemonUpdate::Surge, Some(port)) =
            (is_new, self.daemon_set.update(), self.state.history.port_in_use())
        {
            let message = rolling::replaces_in_place(&port);
            inputs.outbox.emit(self.subject(), Severity::Normal, Reason::ReplacingInPlace, message);
        }
    }

    /// Finds out whether the node admits the pod, and reports if it does not.
    fn place(&mut self, inputs: &mut WorkloadInputs<'_>) {
        let spec = self.daemon_set.head.template.spec.as_ref();
        let placement = spec.map_or(Placement::Admitted, |spec| (inputs.placement)(spec));
        if placement == self.placement {
            return;
        }
        if let Placement::Refused(why) = &placement {
            self.placed.set("False", "FailedPlacement", why.clone(), inputs.now);
            let message = format!("failed to place pod on {:?}: {why}", inputs.node_name);
            inputs.outbox.emit(self.subject(), Severity::Warning, Reason::FailedPlacement, message);
        }
        self.placement = placement;
        self.state.shown_changed();
    }

    /// Returns how the pod is replaced. If the old pod has a port of the node that the new one needs, the new one could
    /// never start beside it.
    fn update(&self) -> DaemonUpdate {
        match self.daemon_set.update() {
            DaemonUpdate::Surge if self.state.history.port_in_use().is_some() => DaemonUpdate::InPlace,
            update => update,
        }
    }

    /// Returns the pods to delete.
    fn ending(&self, inputs: &WorkloadInputs<'_>) -> Vec<Uid> {
        let history = &self.state.history;
        if let Placement::Refused(_) = self.placement {
            return history.pods().map(|pod| pod.uid.clone()).collect();
        }
        let (new, old) = (active(history.newest()), active(history.older()));
        // There are more after a change back to an earlier template.
        let mut ending: Vec<Uid> =
            new.iter().skip(1).chain(old.iter().skip(1)).map(|(uid, _)| (*uid).clone()).collect();
        let Some((old, old_pod)) = old.first() else { return ending };
        let min_ready = self.daemon_set.min_ready();
        let new_is_available = new.first().map(|(_, pod)| pod.state.is_available(min_ready, inputs.now.boot));
        match (self.update(), new_is_available) {
            (DaemonUpdate::InPlace, _) | (DaemonUpdate::Surge, Some(true)) => ending.push((*old).clone()),
            (DaemonUpdate::Surge, Some(false)) if history.is_settled() && !old_pod.state.is_ready() => {
                ending.push((*old).clone());
            }
            // The template was changed back, or the strategy was another one.
            (DaemonUpdate::OnDelete, Some(_)) => ending.extend(new.first().map(|(uid, _)| (*uid).clone())),
            (DaemonUpdate::Surge, Some(false) | None) | (DaemonUpdate::OnDelete, None) => {}
        }
        ending
    }

    /// Creates the pod if there is none. Returns true if it was created.
    fn create(&mut self, room: &mut usize, inputs: &mut WorkloadInputs<'_>) -> bool {
        let history = &self.state.history;
        let (has_new, has_old) = (!active(history.newest()).is_empty(), !active(history.older()).is_empty());
        let is_leaving = history.revisions.iter().any(|revision| !revision.leaving.is_empty());
        let lacks_pod = match self.update() {
            DaemonUpdate::Surge => !has_new,
            DaemonUpdate::InPlace | DaemonUpdate::OnDelete => !has_new && !has_old && !is_leaving,
        };
        let (Some(newest), Placement::Admitted, true) = (history.newest(), &self.placement, lacks_pod) else {
            self.state.note_failure(None, inputs);
            return false;
        };
        let owner = PodOwner {
            kind: WorkloadKind::DaemonSet,
            name: self.daemon_set.head.name(),
            uid: &self.daemon_set.head.uid,
            hash: Some((template::REVISION_LABEL, &newest.hash)),
            source: &self.daemon_set.head.source,
        };
        let at = history.revisions.len() - 1;
        let subject = self.subject();
        match create_pod(owner, newest, NameEnd::Random, room, inputs) {
            Ok(pod) => {
                self.state.note_failure(None, inputs);
                self.state.add(at, with_tolerations(pod), &subject, inputs.outbox);
                true
            }
            Err(why) => {
                self.state.note_failure(Some((subject, why)), inputs);
                false
            }
        }
    }

    fn count(&mut self, inputs: &WorkloadInputs<'_>) {
        let (history, min_ready, now) = (&self.state.history, self.daemon_set.min_ready(), inputs.now.boot);
        let desired = self.placement == Placement::Admitted;
        let any = |of: &dyn Fn(&Replica) -> bool| {
            desired && history.revisions.iter().flat_map(Revision::active).any(|(_, replica)| of(replica))
        };
        let (has_new, has_old) = (!active(history.newest()).is_empty(), !active(history.older()).is_empty());
        let counts = DaemonCounts {
            desired,
            has_pod: history.pods_there() > 0,
            ready: any(&|replica| replica.state.is_ready()),
            available: any(&|replica| replica.state.is_available(min_ready, now)),
            updated: desired && has_new && !has_old,
        };
        if self.counts != counts {
            self.counts = counts;
            self.state.shown_changed();
        }
    }
}

/// Returns the pods of these revisions that have not ended, the oldest first.
fn active<'a>(revisions: impl IntoIterator<Item = &'a Revision>) -> Vec<(&'a Uid, &'a Replica)> {
    let mut all: Vec<_> = revisions.into_iter().flat_map(Revision::active).collect();
    all.order_by_key(|(_, replica)| replica.number);
    all
}

fn with_tolerations(pod: Rc<Pod>) -> Rc<Pod> {
    let mut pod = Rc::unwrap_or_clone(pod);
    if let Some(spec) = &mut pod.object.spec {
        spec.tolerations = Some(daemon_set::tolerations(spec));
    }
    Rc::new(pod)
}
