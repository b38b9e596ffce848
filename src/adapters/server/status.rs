//! The body of `/status`, which `wherry status` shows. Later versions may add fields; clients must ignore unknown
//! fields.

use crate::api::node_facts::NodeFacts;
use crate::api::ordered::CollectOrdered;
use crate::api::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, PODS, Resources};
use crate::api::shutdown::view::ShutdownView;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatus {
    /// The version of wherry.
    pub version: String,
    pub node_name: String,
    /// The directory with the state, and the CA of the API for kubectl. Empty if the agent is too old to report it.
    pub root_directory: String,
    /// The address of the API for kubectl. None if the API is off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubectl: Option<String>,
    pub uptime_seconds: u64,
    /// The status of the node's `Ready` condition.
    pub ready: bool,
    /// The reason if `ready` is false: `NodeShuttingDown` or `KubeletNotReady`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_ready_reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_ready_message: Option<String>,
    pub runtime: RuntimeStatus,
    /// The connection to the cluster. None if the node has no cluster and runs only the pods of its manifests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterStatus>,
    pub node: NodeRoom,
    pub pleg: PlegStatus,
    pub pods: PodCounts,
    pub manifests: ManifestStatus,
    pub shutdown: ShutdownView,
    /// The reasons why wherry is waiting now, one sentence each. Empty if nothing delays it.
    pub waiting_for: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RuntimeStatus {
    /// The runtime's socket, for example `unix:///run/containerd/containerd.sock`.
    pub endpoint: String,
    pub connected: bool,
    /// The runtime's name, for example `containerd`. Empty until the runtime has reported its version.
    pub name: String,
    pub version: String,
    /// The reason why the runtime is not connected or not ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_ready: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_not_ready: Option<String>,
}

/// The connection to the API server of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterStatus {
    /// The server's URL, for example `https://10.0.0.1:6443`, or the path of the kubeconfig if the kubeconfig cannot be
    /// used.
    pub server: String,
    /// Whether the server answers and has the Node object.
    pub registered: bool,
    /// How long the server has not answered, counted at most from the start of Wherry. None if it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreachable_seconds: Option<u64>,
    /// The error of the last attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Events that the server does not have yet.
    pub waiting_events: u64,
    /// Events that were dropped since the start, because there was no space for them.
    pub lost_events: u64,
    /// Whether another machine acts as this node.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub name_conflict: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PlegStatus {
    pub healthy: bool,
    /// The time since the start of the last successful relist, in seconds. None before the first one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodCounts {
    pub desired: u64,
    /// Pods that use resources of the node (A1).
    pub active: u64,
    /// Pods in the phase `Pending`.
    pub pending: u64,
    pub running: u64,
    /// Running pods with a container that is not ready.
    pub not_ready: u64,
    pub succeeded: u64,
    pub failed: u64,
    /// Failed pods that admission rejected (A3).
    pub rejected: u64,
    /// Pending pods that fit once the terminating pods are gone (A4).
    pub waiting_for_room: u64,
    pub terminating: u64,
    /// Drained pods, not started until `wherry undrain` (W27).
    pub drained: u64,
    /// Pods that wait for `wherry uncordon` (A10, A11).
    pub waiting_for_uncordon: u64,
    /// Running containers.
    pub containers: u64,
}

/// The resources of the node and their use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeRoom {
    /// By resource name: the resources that every node has, and all others with a capacity or a request.
    pub resources: BTreeMap<String, ResourceRoom>,
    /// Whether the node is cordoned (A10).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cordoned: bool,
    /// The conditions that are true (E2), for example `MemoryPressure`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pressure: Vec<String>,
}

/// The amounts of one resource: cpu in millicores, memory, storage and huge pages in bytes, the others in units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceRoom {
    /// The total amount.
    pub capacity: u64,
    /// The amount that pods can request.
    pub allocatable: u64,
    /// The sum of the active pods' requests (A1). It can exceed `allocatable` after the configuration is reloaded.
    pub requested: u64,
}

impl NodeRoom {
    pub fn of(node: &NodeFacts, requested: &Resources, pressure: Vec<String>) -> NodeRoom {
        let lists = [&node.capacity, &node.allocatable, requested];
        let names = lists.into_iter().flat_map(Resources::iter).map(|(name, _)| name);
        let one = |name: &str| {
            let [capacity, allocatable, requested] = lists.map(|list| list.get(name));
            (name.to_owned(), ResourceRoom { capacity, allocatable, requested })
        };
        let resources = names.chain([CPU, MEMORY, EPHEMERAL_STORAGE, PODS]).map(one).collect_map();
        NodeRoom { resources, cordoned: false, pressure }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ManifestStatus {
    pub directory: String,
    /// The number of files read.
    pub files: u64,
    /// One string for each error: `file:line: field: message`.
    pub errors: Vec<String>,
}
