//! Whether the node admits the pod of a DaemonSet.

use super::predicates;
use crate::api::k8s::PodSpec;
use crate::api::node_facts::NodeFacts;
use crate::api::workload::daemon_set;
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Placement {
    /// A pod runs.
    Admitted,
    /// No pod starts, and a pod that runs ends. The text says why.
    Refused(String),
}

/// Compares the template of a DaemonSet with the node: its name, its labels, and the taints that keep pods from
/// running.
pub fn of(spec: &PodSpec, node: &NodeFacts) -> Placement {
    let tolerations = daemon_set::tolerations(spec);
    let refusals = [
        predicates::node_affinity(spec, node),
        predicates::node_name(spec, node),
        predicates::untolerated_taint(Some(&tolerations), node),
    ];
    let messages: Vec<String> = refusals.into_iter().flatten().map(|refusal| refusal.message).collect();
    if messages.is_empty() { Placement::Admitted } else { Placement::Refused(messages.join("; ")) }
}
