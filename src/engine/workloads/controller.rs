//! What the controllers of all kinds of workloads have in common.

use super::history::History;
use super::inputs::WorkloadInputs;
use super::progress::RolloutCondition;
use super::record::StoredBase;
use super::revision::NO_HASH;
use crate::api::k8s::{ObjectMeta, PodTemplateSpec};
use crate::api::names::Uid;
use crate::api::pod::Pod;
use crate::api::reason::Reason;
use crate::api::time::{Boot, Now, Wall};
use crate::api::workload::head::WorkloadHead;
use crate::engine::effect::{Severity, Subject};
use crate::engine::outbox::Outbox;
use crate::engine::rewriting::Rewriting;
use serde::Serialize;
use std::rc::Rc;
use std::time::Duration;

/// *(ours)* A pod that cannot be created is tried again after this time.
const RETRY: Duration = Duration::from_secs(10);

/// The controller of one object. It is level-triggered: a step compares the object with its pods, and nothing depends
/// on how a state was reached.
pub trait Controller {
    fn head(&self) -> &WorkloadHead;

    fn state(&self) -> &ControllerState;

    fn state_mut(&mut self) -> &mut ControllerState;

    /// Returns the hash of the template from which a pod of an earlier run was created; None if the pod is not one of
    /// this object.
    fn revision_of(&self, pod: &Pod) -> Option<String>;

    /// Takes over a pod of an earlier run, which may have deleted it.
    fn adopt(&mut self, hash: &str, pod: &Rc<Pod>, is_deleted: bool, now: Now) {
        self.state_mut().adopt(hash, pod, is_deleted, now);
    }

    /// Takes over the published states of the pods, and forgets old ones that have ended. Returns true if there were
    /// any.
    fn observe(&mut self, inputs: &WorkloadInputs<'_>) -> bool {
        let history = &mut self.state_mut().history;
        history.observe(inputs);
        history.forget_ended()
    }

    /// Compares the object with its pods. Returns true if pods were created or deleted. `room`: how many pods may be
    /// created, by all workloads.
    fn step(&mut self, room: &mut usize, inputs: &mut WorkloadInputs<'_>) -> bool;

    /// Returns the content of the record.
    fn record(&self) -> String;
}

#[derive(Debug, Serialize)]
pub struct ControllerState {
    pub created: Wall,
    /// The number of changes of the manifest.
    pub generation: i64,
    pub history: History,
    /// Why the last pod could not be created.
    failure: Option<CreateFailure>,
    record: Rewriting,
    /// When a step is due without an event.
    pub due: Option<Boot>,
    /// Counts the changes of what the API shows.
    version: u64,
}

/// Why a pod could not be created, and when to try again.
#[derive(Debug, Serialize)]
struct CreateFailure {
    condition: RolloutCondition,
    again: Boot,
}

impl ControllerState {
    /// Makes the state of an object. `stored`: its record.
    pub fn new(head: &WorkloadHead, stored: Option<StoredBase>, now: Wall, outbox: &mut Outbox) -> ControllerState {
        let history = History::new(head.key.clone());
        let record = Rewriting::default();
        let mut state =
            ControllerState { created: now, generation: 1, history, failure: None, record, due: None, version: 0 };
        let Some(stored) = stored else {
            state.record_changed();
            return state;
        };
        (state.created, state.generation) = (stored.created, stored.generation);
        if stored.digest != head.digest {
            state.manifest_changed();
        }
        state.history.restore(stored.revisions, outbox);
        state
    }

    /// Returns the fields of the record.
    pub fn stored(&self, head: &WorkloadHead) -> StoredBase {
        StoredBase {
            namespace: head.name().namespace.to_string(),
            name: head.name().name.to_string(),
            created: self.created,
            generation: self.generation,
            digest: head.digest.clone(),
            revisions: self.history.stored(),
        }
    }

    /// Takes a new version of the manifest in the place of `before`.
    pub fn change(&mut self, before: &WorkloadHead, head: &WorkloadHead) {
        if before.digest != head.digest {
            self.manifest_changed();
        }
    }

    fn manifest_changed(&mut self) {
        self.generation += 1;
        self.shown_changed();
        self.record_changed();
    }

    /// Notes that the API has to show something else.
    pub fn shown_changed(&mut self) {
        self.version += 1;
    }

    pub fn record_changed(&mut self) {
        self.record.changed();
    }

    /// Returns true if the record has the present content.
    pub fn is_recorded(&self) -> bool {
        self.record.is_done()
    }

    /// Returns a number that changes whenever the API has to show something else.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Takes over a pod of an earlier run, which may have deleted it.
    pub fn adopt(&mut self, hash: &str, pod: &Rc<Pod>, is_deleted: bool, now: Now) {
        if self.history.adopt(hash, pod, is_deleted, now) {
            self.record_changed();
        }
    }

    /// Deletes a pod, and reports it as an event of `subject`. Returns false if there is no such pod.
    pub fn delete(&mut self, uid: &Uid, subject: &Subject, outbox: &mut Outbox) -> bool {
        let Some(replica) = self.history.delete(uid) else { return false };
        let message = format!("Deleted pod: {}", replica.pod.name.name);
        outbox.emit(subject.clone(), Severity::Normal, Reason::SuccessfulDelete, message);
        true
    }

    /// Adds a pod of the revision at this position, and reports it as an event of `subject`.
    pub fn add(&mut self, at: usize, pod: Rc<Pod>, subject: &Subject, outbox: &mut Outbox) {
        let message = format!("Created pod: {}", pod.name.name);
        outbox.emit(subject.clone(), Severity::Normal, Reason::SuccessfulCreate, message);
        self.history.add(at, pod);
    }

    /// Shows why pods cannot be created. The next change may remove the cause, or a pod that leaves does, of which no
    /// workload hears.
    pub fn note_failure(&mut self, failure: Option<(Subject, String)>, inputs: &mut WorkloadInputs<'_>) {
        let Some((subject, why)) = failure else {
            self.version += u64::from(self.failure.take().is_some());
            return;
        };
        let again = inputs.now.boot + RETRY;
        let failure =
            self.failure.get_or_insert_with(|| CreateFailure { condition: RolloutCondition::default(), again });
        failure.again = again;
        if failure.condition.set("True", "FailedCreate", why.clone(), inputs.now) {
            self.version += 1;
            let message = format!("Error creating: {why}");
            inputs.outbox.emit(subject, Severity::Warning, Reason::FailedCreate, message);
        }
    }

    /// Returns the condition that says why pods cannot be created, with its type.
    pub fn failure(&self) -> Option<(&'static str, &RolloutCondition)> {
        self.failure.as_ref().map(|failure| ("ReplicaFailure", &failure.condition))
    }

    /// Makes the revision of the present template the newest one, with the annotations of the object. Returns true if
    /// it was another one.
    pub fn choose_revision(&mut self, head: &WorkloadHead, metadata: &ObjectMeta, now: Wall) -> bool {
        let is_new = !self.history.is_newest(&head.hash);
        if is_new {
            self.history.choose(&head.hash, &head.template, now);
        }
        if self.history.annotate(metadata) || is_new {
            self.record_changed();
            self.shown_changed();
        }
        is_new
    }

    /// Makes this template that of new pods, for an object without roll-outs.
    pub fn set_only_template(&mut self, template: &Rc<PodTemplateSpec>, now: Wall) {
        match self.history.revisions.first_mut() {
            Some(own) if Rc::ptr_eq(&own.template, template) => {}
            Some(own) => own.set_template(template),
            None => {
                self.history.choose(NO_HASH, template, now);
                self.record_changed();
            }
        }
    }

    /// Forgets old revisions. `kept`: the hash of one that is needed without pods.
    pub fn forget_revisions(&mut self, limit: usize, kept: Option<&str>) {
        if self.history.forget(limit, kept) {
            self.record_changed();
            self.shown_changed();
        }
    }

    /// Returns true if the record has to be written now.
    pub fn begins_record(&mut self, now: Boot) -> bool {
        self.record.begins(now)
    }

    /// Handles the end of writing the record.
    pub fn recorded(&mut self, well: bool, now: Boot) {
        self.record.ended(well, now);
    }

    /// Returns when a step is due without an event.
    pub fn next_step(&self) -> Option<Boot> {
        let again = self.failure.as_ref().map(|failure| failure.again);
        self.due.into_iter().chain(again).min()
    }

    /// Returns the time of the next attempt to write the record after a failure.
    pub fn next_write(&self) -> Option<Boot> {
        self.record.next_deadline()
    }
}
