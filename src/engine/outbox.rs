//! The effects of one step, and the operations in flight that they begin. The machines of the node and the workers push
//! their effects here, in the order in which they have to start.

use crate::api::pod::Pod;
use crate::api::reason::Reason;
use crate::engine::context::{Ops, Owner};
use crate::engine::effect::{Effect, Measure, Notice, RecordChange, RuntimeCall, Severity};
use crate::engine::op::OpId;
use serde::Serialize;
use std::rc::Rc;
use std::time::Duration;

#[derive(Debug, Default, Serialize)]
pub struct Outbox {
    pub ops: Ops,
    /// Empty between two steps.
    #[serde(skip)]
    pub effects: Vec<Effect>,
}

impl Outbox {
    pub fn push(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// The effects since the last call.
    pub fn take(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
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
        self.begin(owner, |op| Effect::Record { op, change })
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
        let (pod, container) = (pod.cloned(), container.map(str::to_owned));
        self.push(Effect::Notice(Notice { pod, container, severity, reason, message }));
    }

    /// Emits an event of the node.
    pub fn emit_node_event(&mut self, severity: Severity, reason: Reason, message: String) {
        self.emit_event(None, None, severity, reason, message);
    }
}
