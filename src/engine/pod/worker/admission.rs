//! The node's decision about a pod (A3, A4). Nothing of a pod starts before it is admitted. A pod that started in a
//! previous run must be admitted again once nothing of it runs any more, for example after a reboot.

use super::state::State;
use crate::api::k8s;
use crate::api::pod::Pod;
use crate::engine::admission::Admission;
use crate::engine::admission::pod_requests::PodRequests;
use crate::engine::pod::kill::Cause;
use crate::engine::pod::status;
use serde::Serialize;
use std::rc::Rc;

/// The node's decision about the pod, and the basis of that decision.
#[derive(Debug, Default, Serialize)]
pub struct PodAdmission {
    pub decision: Admission,
    /// A1: the pod's place in the queue for the node's resources: first come, first served.
    pub place: u64,
    /// A2: the requests of the pod. For an orphan they contain only one `pods`.
    pub requests: Rc<PodRequests>,
}

impl PodAdmission {
    pub fn is_admitted(&self) -> bool {
        self.decision == Admission::Admitted
    }

    pub fn waits_because(&self, why: &str) -> bool {
        matches!(&self.decision, Admission::Waits(current) if current == why)
    }

    /// A3: returns the reason why the pod is rejected.
    pub fn rejection(&self) -> Option<&Cause> {
        match &self.decision {
            Admission::Rejected(cause) => Some(cause),
            _ => None,
        }
    }

    /// S4: returns true if the rejection ends with the shutdown. The rejection of a pod of the API server is final
    /// (C5).
    pub fn is_rejected_for_now(&self, pod: Option<&Rc<Pod>>) -> bool {
        self.rejection() == Some(&Cause::node_shutdown()) && !pod.is_some_and(|pod| pod.is_from_api_server())
    }

    /// A3: returns true if the pod will never be admitted.
    pub fn is_rejected_for_good(&self, pod: Option<&Rc<Pod>>) -> bool {
        self.rejection().is_some() && !self.is_rejected_for_now(pod)
    }

    /// Returns the rejection for the record. A rejection that ends with the shutdown is not recorded.
    pub(super) fn recorded_rejection(&self, pod: Option<&Rc<Pod>>) -> Option<&Cause> {
        self.rejection().filter(|_| !self.is_rejected_for_now(pod))
    }

    /// Returns true if the pod is not admitted yet but can be admitted: it waits, or it started in a previous run.
    pub fn is_due(&self, state: &State) -> bool {
        matches!(self.decision, Admission::Open | Admission::Waits(_) | Admission::Cordoned)
            && matches!(state, State::Waiting | State::Sync(_))
    }

    /// A10: returns true if the pod has never started, and waits for `uncordon`.
    pub fn is_held_by_cordon(&self, state: &State) -> bool {
        self.decision == Admission::Cordoned && matches!(state, State::Waiting)
    }

    /// Drops a rejection, because a kill replaces it: the pod waits until the cause of the kill is over, and a retry
    /// must not start it.
    pub fn withdraw_rejection(&mut self) {
        if self.rejection().is_some() {
            self.decision = Admission::Open;
        }
    }

    /// Returns the status of a waiting pod.
    pub fn status_before(&self) -> k8s::PodStatus {
        match &self.decision {
            Admission::Rejected(cause) => status::rejected(cause),
            Admission::Waits(why) => status::waits_for_room(why),
            Admission::Cordoned => status::waits_for_uncordon(),
            Admission::Open | Admission::Admitted => status::waiting(),
        }
    }
}
