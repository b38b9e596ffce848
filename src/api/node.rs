//! What a node is and has, as far as admission asks (A2).

use crate::api::resources::Resources;
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NodeFacts {
    /// `spec.nodeName` of a pod that is for this node; its field `metadata.name`.
    pub name: String,
    /// The well-known labels and those of the configuration.
    pub labels: BTreeMap<String, String>,
    /// All that the machine has. Cpu in milli, memory and storage in bytes, the others in units; `pods` is `maxPods`.
    pub capacity: Resources,
    /// Capacity less what is reserved for the system, for Kubernetes' own daemons and for hard eviction: what pods may ask for.
    pub allocatable: Resources,
    /// `allowedUnsafeSysctls`: names, or prefixes that end with `*`.
    pub allowed_unsafe_sysctls: Vec<String>,
}
