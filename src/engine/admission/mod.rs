//! Whether a pod fits onto the node (A1 to A4), and who would have to go for one that does not (A6, A7). Pure arithmetic over what
//! pods ask for; `engine::node` says whose turn it is and does what comes of it.

pub mod fit;
pub mod node_snapshot;
pub mod pod_requests;
pub mod predicates;
pub mod preempt;

use crate::engine::pod::status::Cause;
use fit::Insufficient;
use predicates::Refusal;
use serde::Serialize;

/// Where a pod stands with the node.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub enum Admission {
    /// It was not looked at yet, or its name is not free (W8).
    #[default]
    Open,
    /// A4: it fits once others are gone. For people: who, and what is missing till then.
    Waits(String),
    Admitted,
    /// A3: why not.
    Rejected(Cause),
}

/// The first of the resources: more than `maxPods` pods.
pub const OUT_OF_PODS: &str = "OutOfpods";

/// The one reason that comes before the resources; the others come after them (A3).
const BEFORE_RESOURCES: &str = "PodOSNotSupported";

/// A3: the first reason, and all of them as the message. Of a pod that others would have gone for the first that is no resource
/// counts: with any such they do not go (A6).
pub fn rejection(refusals: &[Refusal], missing: &[Insufficient], preempts: bool) -> Cause {
    let (first, after): (Vec<&Refusal>, Vec<&Refusal>) = refusals.iter().partition(|r| r.reason == BEFORE_RESOURCES);
    let of_refusals = |list: Vec<&Refusal>| list.into_iter().map(|r| (r.reason.clone(), r.message.clone())).collect();
    let of_resources = missing.iter().map(|i| (i.reason(), i.message())).collect();
    let all: [Vec<(String, String)>; 3] = match preempts {
        true => [of_refusals(first), of_refusals(after), of_resources],
        false => [of_refusals(first), of_resources, of_refusals(after)],
    };
    let all = all.concat();
    let reason = all.first().map_or_else(String::new, |(reason, _)| reason.clone());
    let messages: Vec<String> = all.into_iter().map(|(_, message)| message).collect();
    Cause { reason, message: messages.join("; "), by: None }
}

/// A rejection's reason from a closed set, for what counts reasons (a kubelet's own words).
pub fn counted(reason: &str) -> &'static str {
    const KNOWN: [&str; 10] = [
        "NodeAffinity",
        "NodeName",
        "NodePorts",
        "NodeShutdown",
        "OutOfcpu",
        "OutOfephemeral-storage",
        "OutOfmemory",
        OUT_OF_PODS,
        BEFORE_RESOURCES,
        "SysctlForbidden",
    ];
    KNOWN.into_iter().find(|known| *known == reason).unwrap_or("OutOfExtendedResources")
}
