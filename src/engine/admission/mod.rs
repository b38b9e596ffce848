//! Admission: `machine` runs a pass when a pod requests resources or the free resources change, `pass` decides about
//! each pod in order (A1 to A7), and `victims` restarts preempted pods (A9). They use pure calculations on the pods'
//! requests: `predicates`, `fit` and `node_snapshot` decide whether a pod fits (A2 to A4), `preempt` which pods have
//! to be preempted for it (A6, A7). `room` determines which pods hold resources, and `cpu_weight` follows the
//! requests of these pods.

mod cpu_weight;
pub mod fit;
pub mod machine;
pub mod node_snapshot;
pub mod pass;
pub mod placement;
pub mod pod_requests;
pub mod predicates;
pub mod preempt;
mod resize;
pub mod room;
#[cfg(test)]
mod tests;
mod victims;

use crate::api::reason::Reason;
use crate::api::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, PODS};
use crate::engine::pod::kill::Cause;
use fit::Insufficient;
use predicates::Refusal;
use serde::Serialize;

/// The state of a pod's admission.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub enum Admission {
    /// Not decided yet, or another pod has the name (W8).
    #[default]
    Open,
    /// A4: the pod fits once other pods are gone. The text names those pods and the missing resources.
    Waits(String),
    /// A10: the node is cordoned, and the pod has never started on it.
    Cordoned,
    Admitted,
    /// A3: the reason for the rejection.
    Rejected(Cause),
}

/// Returns the reason for rejecting a pod because the node would have more than `maxPods` pods. In the order of A3,
/// `pods` is the first of the resources.
pub fn out_of_pods() -> Reason {
    Reason::out_of(PODS)
}

/// The only reason that comes before the resources. All other reasons come after them (A3).
const BEFORE_RESOURCES: Reason = Reason::PodOSNotSupported;

/// A3: returns the first reason, with all reasons in the message. For a pod that may preempt others, the reasons
/// other than resources come first, because with any of them no pod is preempted (A6).
pub fn rejection(refusals: &[Refusal], missing: &[Insufficient], preempts: bool) -> Cause {
    let (first, after): (Vec<&Refusal>, Vec<&Refusal>) = refusals.iter().partition(|r| r.reason == BEFORE_RESOURCES);
    let of_refusals = |list: Vec<&Refusal>| list.into_iter().map(|r| (r.reason.clone(), r.message.clone())).collect();
    let of_resources = missing.iter().map(|i| (i.reason(), i.message())).collect();
    let all: [Vec<(Reason, String)>; 3] = match preempts {
        true => [of_refusals(first), of_refusals(after), of_resources],
        false => [of_refusals(first), of_resources, of_refusals(after)],
    };
    let all = all.concat();
    let reason = all.first().map_or(Reason::OutOfExtendedResources, |(reason, _)| reason.clone());
    let messages: Vec<String> = all.into_iter().map(|(_, message)| message).collect();
    Cause { reason, message: messages.join("; "), by: None }
}

/// Returns the reason for a rejection as a metric label, from a fixed set of a kubelet's names.
pub fn counted(reason: &Reason) -> Reason {
    const RESOURCES: [&str; 4] = [CPU, EPHEMERAL_STORAGE, MEMORY, PODS];
    match reason {
        Reason::AppArmor
        | Reason::NodeAffinity
        | Reason::NodeName
        | Reason::NodePorts
        | Reason::NodeShutdown
        | Reason::PodOSNotSupported
        | Reason::SysctlForbidden
        | Reason::TaintToleration => reason.clone(),
        reason if RESOURCES.into_iter().any(|resource| *reason == Reason::out_of(resource)) => reason.clone(),
        _ => Reason::OutOfExtendedResources,
    }
}
