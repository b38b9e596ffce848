//! The worker applies the decision of admission (A3, A4, A10).

use super::Worker;
use crate::engine::admission::{self, Admission};
use crate::engine::context::Context;
use crate::engine::effect::Measure;
use crate::engine::pod::kill::Cause;

impl Worker {
    pub fn admit(&mut self) {
        self.admission.decision = Admission::Admitted;
        self.state.set_wants_room(false);
    }

    /// Makes the pod wait with this decision: for room (A4), for `uncordon` (A10), or as rejected (A3).
    pub fn wait_for(&mut self, decision: Admission) {
        self.wait_again();
        self.admission.decision = decision;
    }

    /// A3: rejects the pod.
    pub fn reject(&mut self, cause: Cause, ctx: &mut Context<'_>) {
        let reason = admission::counted(&cause.reason);
        ctx.outbox.measure(Measure::AdmissionRejected { reason: reason.clone() });
        ctx.emit_warning(self.pod.as_ref(), None, reason, cause.message.clone());
        self.state.set_wants_room(false);
        self.wait_for(Admission::Rejected(cause));
        if self.admission.recorded_rejection(self.pod.as_ref()).is_some() {
            self.record.wait_for_write();
        }
    }

    /// Withdraws a rejection, because a shutdown is over or a user requested a retry. Admission decides again.
    pub fn reopen_admission(&mut self) {
        let recorded = !self.admission.is_rejected_for_now(self.pod.as_ref());
        self.admission.decision = Admission::Open;
        if recorded {
            self.record.wait_for_write();
        }
    }
}
