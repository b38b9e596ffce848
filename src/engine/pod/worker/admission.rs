//! The node's decision about a pod (A3, A4). Nothing of a pod starts before it is admitted. A pod that started in a
//! previous run must be admitted again once nothing of it runs any more, for example after a reboot.

use super::{State, Worker};
use crate::engine::admission::pod_requests::PodRequests;
use crate::engine::admission::{self, Admission};
use crate::engine::context::Context;
use crate::engine::effect::Measure;
use crate::engine::pleg::cache::Entry;
use crate::engine::pod::status::{self, Cause};
use k8s_openapi::api::core::v1 as core;
use serde::Serialize;
use std::rc::Rc;

/// The node's decision about the pod, and what it rests on.
#[derive(Debug, Default, Serialize)]
pub struct PodAdmission {
    pub decision: Admission,
    /// A1: the position among the pods that take room: first come, first served.
    pub place: u64,
    /// A2; for an orphan one pod.
    pub requests: Rc<PodRequests>,
}

impl PodAdmission {
    pub fn is_admitted(&self) -> bool {
        self.decision == Admission::Admitted
    }

    pub fn waits_because(&self, why: &str) -> bool {
        matches!(&self.decision, Admission::Waits(current) if current == why)
    }

    /// A3: why the pod is rejected.
    pub fn rejection(&self) -> Option<&Cause> {
        match &self.decision {
            Admission::Rejected(cause) => Some(cause),
            _ => None,
        }
    }

    /// A kill replaces a rejection: the pod waits for the end of the kill, and a retry must not start it.
    pub fn withdraw_rejection(&mut self) {
        if self.rejection().is_some() {
            self.decision = Admission::Open;
        }
    }

    /// The status of a waiting pod.
    pub fn status_before(&self) -> core::PodStatus {
        match &self.decision {
            Admission::Rejected(cause) => status::rejected(cause),
            Admission::Waits(why) => status::waits_for_room(why),
            Admission::Cordoned => status::waits_for_uncordon(),
            Admission::Open | Admission::Admitted => status::waiting(),
        }
    }
}

impl Worker {
    /// The pod is not admitted yet and may be: it waits, or it started in a previous run.
    pub fn may_be_admitted(&self) -> bool {
        matches!(self.admission.decision, Admission::Open | Admission::Waits(_) | Admission::Cordoned)
            && matches!(self.state, State::Waiting | State::Sync(_))
    }

    /// The pod started in a previous run, and its current status is unknown: the read is in flight or has failed.
    pub fn is_unread(&self, entry: &Entry) -> bool {
        self.state.is_sync() && !entry.usable()
    }

    pub fn admit(&mut self) {
        self.admission.decision = Admission::Admitted;
        self.state.set_wants_room(false);
    }

    /// A4: the pod waits for room; `why` is the status message.
    pub fn wait_for_room(&mut self, why: String) {
        self.go_back();
        self.admission.decision = Admission::Waits(why);
    }

    /// A10: the pod waits for `uncordon`.
    pub fn hold(&mut self) {
        self.go_back();
        self.admission.decision = Admission::Cordoned;
    }

    /// A10: the pod has never started, and waits for `uncordon`.
    pub fn is_held_by_cordon(&self) -> bool {
        self.admission.decision == Admission::Cordoned && matches!(self.state, State::Waiting)
    }

    /// A3: rejects the pod. A rejection because of a shutdown is not recorded.
    pub fn reject(&mut self, cause: Cause, ctx: &mut Context<'_>) {
        let reason = admission::counted(&cause.reason);
        ctx.outbox.measure(Measure::AdmissionRejected { reason: reason.clone() });
        ctx.emit_warning(self.pod.as_ref(), None, reason, cause.message.clone());
        self.state.set_wants_room(false);
        self.go_back();
        self.admission.decision = Admission::Rejected(cause);
        if !self.is_rejected_for_now() {
            self.record.wait_for_write();
        }
    }

    /// Opens a rejection again, because a shutdown is over or a user requested a retry.
    pub fn reopen_admission(&mut self) {
        let recorded = !self.is_rejected_for_now();
        self.admission.decision = Admission::Open;
        if recorded {
            self.record.wait_for_write();
        }
    }

    /// S4: the rejection ends with the shutdown. That of a pod of the API server is final (C5).
    pub fn is_rejected_for_now(&self) -> bool {
        self.admission.rejection() == Some(&Cause::node_shutdown()) && !self.is_from_api_server()
    }

    /// Returns the pod to Waiting if no operation is in flight. Nothing of it runs, and nothing may start.
    pub(super) fn go_back(&mut self) {
        if self.state.is_sync() && !self.ops.is_active() {
            self.state = State::Waiting;
        }
    }
}
