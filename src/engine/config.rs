//! What the engine is told once, at its start. Durations are as the configuration gives them.

use crate::api::node_facts::NodeFacts;
use crate::api::resources::{CPU, MEMORY, PODS, Resources};
use crate::api::shutdown::Groups;
use serde::Serialize;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EngineConfig {
    /// The id of our root directory: sandboxes and containers that carry it are ours (W21).
    pub owner: String,
    /// W9: how long a pod that is well goes without a sync (`syncFrequency`).
    pub sync_frequency: Duration,
    /// P1: how often everything is listed.
    pub relist_period: Duration,
    /// `runtimeRequestTimeout`: the deadline of a call to the runtime; some have more (a stop has its grace period on top).
    pub request_timeout: Duration,
    /// How long one image pull may take.
    pub pull_timeout: Duration,
    /// W10: `crashLoopBackOff.maxContainerRestartPeriod`.
    pub max_restart_backoff: Duration,
    /// How many pods may have a sandbox made at the same time (`maxParallelSandboxStarts`).
    pub parallel_sandboxes: usize,
    /// How many pods may have a container created and started at the same time (`maxParallelContainerStarts`).
    pub parallel_containers: usize,
    /// `maxParallelImagePulls`, 1 with `serializeImagePulls`.
    pub parallel_pulls: usize,
    /// How many pods' statuses are read side by side (P3).
    pub parallel_reads: usize,
    /// A2
    pub node: NodeFacts,
    /// S1
    pub shutdown: Groups,
    /// The kernel's id of this boot: a shutdown of another boot is over.
    pub boot_id: String,
    /// For the jitter (W9).
    pub seed: u64,
}

impl Default for EngineConfig {
    fn default() -> EngineConfig {
        EngineConfig {
            owner: String::new(),
            sync_frequency: Duration::from_secs(60),
            relist_period: Duration::from_secs(1),
            request_timeout: Duration::from_secs(120),
            pull_timeout: Duration::from_secs(1800),
            max_restart_backoff: Duration::from_secs(300),
            parallel_sandboxes: 4,
            parallel_containers: 4,
            parallel_pulls: 1,
            parallel_reads: 16,
            node: NodeFacts {
                allocatable: Resources::from([(PODS, 110), (CPU, 4000), (MEMORY, 8 << 30)]),
                ..NodeFacts::default()
            },
            shutdown: Groups::default(),
            boot_id: String::new(),
            seed: 1,
        }
    }
}
