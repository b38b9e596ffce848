//! The body of `/status`: what `wherry status` shows. Fields may be added; a reader takes what it knows.

use crate::api::node_facts::NodeFacts;
use crate::api::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, PODS, Resources};
use crate::api::shutdown::view::ShutdownView;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatus {
    /// Of wherry.
    pub version: String,
    pub node_name: String,
    pub uptime_seconds: u64,
    /// As the condition `Ready` of a Kubernetes node.
    pub ready: bool,
    /// `NodeShuttingDown`, or `KubeletNotReady`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_ready_reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_ready_message: Option<String>,
    pub runtime: RuntimeStatus,
    pub node: NodeRoom,
    pub pleg: PlegStatus,
    pub pods: PodCounts,
    pub manifests: ManifestStatus,
    pub shutdown: ShutdownView,
    /// What wherry waits for at present, a sentence each; empty if nothing holds it up.
    pub waiting_for: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RuntimeStatus {
    /// `unix:///run/containerd/containerd.sock`
    pub endpoint: String,
    pub connected: bool,
    /// `containerd`; empty before it was asked.
    pub name: String,
    pub version: String,
    /// Why it is not connected, or not ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_ready: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_not_ready: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PlegStatus {
    pub healthy: bool,
    /// Since the last successful relist began; None before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodCounts {
    pub desired: u64,
    /// A1
    pub active: u64,
    /// By phase.
    pub pending: u64,
    pub running: u64,
    /// Of the running ones: not all of their containers are ready.
    pub not_ready: u64,
    pub succeeded: u64,
    pub failed: u64,
    /// Of the failed ones: the node does not take them (A3).
    pub rejected: u64,
    /// Of the pending ones: they fit once others are gone (A4).
    pub waiting_for_room: u64,
    pub terminating: u64,
    /// W27: not started until `wherry undrain`.
    pub drained: u64,
    /// Containers running.
    pub containers: u64,
}

/// What the node has, and what of it is taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeRoom {
    /// By name: those that every node has, and what else there is any of.
    pub resources: BTreeMap<String, ResourceRoom>,
}

/// Cpu in thousandths, memory, storage and huge pages in bytes, the others in units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceRoom {
    /// All that there is.
    pub capacity: u64,
    /// What of it pods may ask for.
    pub allocatable: u64,
    /// What the pods that are here ask for (A1). May be more, after a reload.
    pub requested: u64,
}

impl NodeRoom {
    pub fn of(node: &NodeFacts, requested: &Resources) -> NodeRoom {
        let lists = [&node.capacity, &node.allocatable, requested];
        let names = lists.into_iter().flat_map(Resources::iter).map(|(name, _)| name);
        let one = |name: &str| {
            let [capacity, allocatable, requested] = lists.map(|list| list.get(name));
            (name.to_owned(), ResourceRoom { capacity, allocatable, requested })
        };
        NodeRoom { resources: names.chain([CPU, MEMORY, EPHEMERAL_STORAGE, PODS]).map(one).collect() }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ManifestStatus {
    pub directory: String,
    /// Files read.
    pub files: u64,
    /// `file:line: field: message`, one each.
    pub errors: Vec<String>,
}
