//! The effects of one step, and the operations in flight that they begin. The machines of the node and the workers push
//! their effects here, in the order in which they have to start.

use crate::api::names::{FullName, Uid};
use crate::api::pod::Pod;
use crate::api::reason::Reason;
use crate::engine::effect::{ContainerEnd, Effect, Measure, Notice, RecordChange, RuntimeCall, Severity, Subject};
use crate::engine::op::OpId;
use crate::engine::owner::{Ops, Owner};
use serde::Serialize;
use std::rc::Rc;
use std::time::Duration;

/// Each kind of effect that other parts of the engine read before the end of the step has a list of its own.
#[derive(Debug, Default, Serialize)]
pub struct Outbox {
    pub ops: Ops,
    /// This and all further lists are empty between two steps.
    #[serde(skip)]
    effects: Vec<Effect>,
    #[serde(skip)]
    ends: Vec<ContainerEnd>,
    #[serde(skip)]
    notices: Vec<Notice>,
    /// Each pod occurs once.
    #[serde(skip)]
    published: Vec<(Uid, FullName)>,
    /// The pods that have ended for good (W7).
    #[serde(skip)]
    ended: Vec<Uid>,
    /// The record changes among the effects.
    #[serde(skip)]
    begun_records: Vec<BegunRecord>,
}

/// A record change that this step begins.
#[derive(Clone, Debug)]
pub struct BegunRecord {
    pub op: OpId,
    /// The key of the record, if it is written. None if it is removed: no answer depends on whether a removal
    /// succeeds.
    pub written: Option<String>,
}

impl Outbox {
    pub fn push(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// Publishes the pod: its status has changed, or the pod has appeared or disappeared.
    pub fn publish(&mut self, uid: &Uid, name: &FullName) {
        if !self.published.iter().any(|(of, called)| of == uid && called == name) {
            self.published.push((uid.clone(), name.clone()));
        }
    }

    /// Notes that a pod has ended for good (W7).
    pub fn note_end(&mut self, uid: &Uid) {
        self.ended.push(uid.clone());
    }

    /// Returns the pods that have ended for good since the last call.
    pub fn take_ended(&mut self) -> Vec<Uid> {
        std::mem::take(&mut self.ended)
    }

    pub fn report_ends(&mut self, ends: impl IntoIterator<Item = ContainerEnd>) {
        self.ends.extend(ends);
    }

    /// Returns the pods that this step has published so far.
    pub fn published(&self) -> &[(Uid, FullName)] {
        &self.published
    }

    /// Returns the events that this step has emitted so far.
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }

    /// Returns the record changes that this step has begun so far.
    pub fn begun_records(&self) -> &[BegunRecord] {
        &self.begun_records
    }

    /// Takes the effects since the last call. Terminations of containers come first, because the notices may be
    /// reactions to them. All other effects come after the statuses, because the answer to a request has to follow
    /// the new status of its pod.
    pub fn take(&mut self) -> Vec<Effect> {
        self.begun_records.clear();
        let others = self.ends.len() + self.notices.len() + self.published.len();
        if others == 0 {
            return std::mem::take(&mut self.effects);
        }
        let mut all = Vec::with_capacity(others + self.effects.len());
        all.extend(self.ends.drain(..).map(|end| Effect::ContainerEnded(Box::new(end))));
        all.extend(self.notices.drain(..).map(Effect::Notice));
        all.extend(self.published.drain(..).map(|(uid, name)| Effect::Publish { uid, name }));
        all.append(&mut self.effects);
        all
    }

    /// Begins an operation of this owner.
    pub fn begin(&mut self, owner: Owner, effect: impl FnOnce(OpId) -> Effect) -> OpId {
        let op = self.ops.begin(owner);
        self.push(effect(op));
        op
    }

    pub fn call_runtime(&mut self, owner: Owner, call: RuntimeCall, timeout: Duration) -> OpId {
        self.begin(owner, |op| Effect::Runtime { op, call, timeout })
    }

    pub fn record(&mut self, owner: Owner, change: RecordChange) -> OpId {
        let written = match &change {
            RecordChange::Put { key, .. } | RecordChange::Seal { key, .. } => Some(key.clone()),
            RecordChange::Delete { .. } | RecordChange::SetAside { .. } | RecordChange::RemoveCorrupt { .. } => None,
        };
        let op = self.begin(owner, |op| Effect::Record { op, change });
        self.begun_records.push(BegunRecord { op, written });
        op
    }

    pub fn measure(&mut self, measure: Measure) {
        self.push(Effect::Measure(measure));
    }

    pub fn emit_event(
        &mut self,
        pod: Option<&Rc<Pod>>,
        container: Option<&str>,
        severity: Severity,
        reason: Reason,
        message: String,
    ) {
        let (subject, container) = (pod.cloned().map_or(Subject::Node, Subject::Pod), container.map(str::to_owned));
        self.notices.push(Notice { subject, container, severity, reason, message });
    }

    /// Emits an event of this object.
    pub fn emit(&mut self, subject: Subject, severity: Severity, reason: Reason, message: String) {
        self.notices.push(Notice { subject, container: None, severity, reason, message });
    }

    /// Emits an event of the node.
    pub fn emit_node_event(&mut self, severity: Severity, reason: Reason, message: String) {
        self.emit_event(None, None, severity, reason, message);
    }
}
