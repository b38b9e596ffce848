//! The engine's settings. `Event::Configure` replaces them, except those that are fixed at the start.

use crate::api::cluster::node::{NodeInfo, Taint};
use crate::api::credential_provider::Provider;
use crate::api::document::context::NetworkPolicies;
use crate::api::eviction::EvictionPolicy;
use crate::api::hash;
use crate::api::node_facts::NodeFacts;
use crate::api::resources::{CPU, MEMORY, PODS, Resources};
use crate::api::service_settings::ServiceSettings;
use crate::api::shutdown::Groups;
use crate::api::storage_class::StorageClass;
use crate::api::time::Wall;
use crate::engine::cluster::access;
use crate::engine::cluster::sealing_settings::SealingSettings;
use crate::engine::cluster::traffic::Traffic;
use crate::engine::image_gc_policy::ImageGcPolicy;
use crate::engine::rotation_policy::RotationPolicy;
use serde::Serialize;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EngineConfig {
    #[serde(flatten)]
    pub fixed: FixedConfig,
    /// W9: the interval between two syncs of a healthy pod (`syncFrequency`).
    pub sync_frequency: Duration,
    /// P1: the interval between two relists.
    pub relist_period: Duration,
    /// `runtimeRequestTimeout`: the deadline of a call to the runtime. A stop adds its grace period.
    pub request_timeout: Duration,
    /// The deadline of one image pull.
    pub pull_timeout: Duration,
    /// W10: `crashLoopBackOff.maxContainerRestartPeriod`.
    pub max_restart_backoff: Duration,
    /// Maximum number of sandboxes that are started at the same time (`maxParallelSandboxStarts`).
    pub parallel_sandboxes: usize,
    /// Maximum number of containers that are started at the same time (`maxParallelContainerStarts`).
    pub parallel_containers: usize,
    /// Maximum number of image pulls at the same time (`maxParallelImagePulls`, 1 with `serializeImagePulls`).
    pub parallel_pulls: usize,
    /// The credential providers, in the order in which they are asked.
    pub credential_providers: Vec<Provider>,
    /// Maximum number of status reads at the same time (P3).
    pub parallel_reads: usize,
    /// A2: the node's name, labels and allocatable resources.
    pub node: NodeFacts,
    /// Image garbage collection.
    pub image_gc: ImageGcPolicy,
    /// Node-pressure eviction.
    pub eviction: EvictionPolicy,
    /// Container log rotation.
    pub log_rotation: RotationPolicy,
    /// A directory on the node's file system (`nodefs`): the root directory.
    pub root: String,
    /// The storage classes. The first is that of a claim without a class.
    pub storage_classes: Vec<StorageClass>,
    /// The addresses and names of services.
    pub services: ServiceSettings,
    /// S1: the shutdown grace periods by priority.
    pub shutdown: Groups,
    /// Set if the node is a member of a cluster.
    pub cluster: Option<ClusterConfig>,
}

/// The settings that are fixed at the start.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FixedConfig {
    /// The id of our root directory. Sandboxes and containers with this id in their annotation are ours (W21).
    pub owner: String,
    /// The manifest directory.
    pub manifests: String,
    /// `openSecrets: Refuse`: it is an error if every user of the machine can read a manifest that contains a Secret.
    pub refuse_open_secrets: bool,
    /// `networkPolicies`: what happens to a NetworkPolicy of a manifest (Y31).
    pub network_policies: NetworkPolicies,
    /// The kernel's id of this boot. A recorded shutdown with another boot id is over.
    pub boot_id: String,
    /// The start of this run of Wherry.
    pub started: Wall,
    /// The seed of the jitter (W9), and of the names of pods (Y1).
    pub seed: u64,
}

/// The settings of a node that is a member of a cluster. They are fixed at the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ClusterConfig {
    /// The addresses of this machine at the start or the reload, the preferred one first. `machine_addresses` tracks
    /// later changes.
    pub addresses: Vec<String>,
    /// The taints and the provider id only apply to a new Node object.
    pub taints: Vec<Taint>,
    pub provider_id: String,
    /// `status.nodeInfo`, except for the runtime's version, which is not known yet.
    pub info: NodeInfo,
    /// How often the node talks to the API server.
    pub traffic: Traffic,
    /// The access control of the node's server.
    pub reviews: access::Policy,
    /// How Secrets and tokens are stored on the disk. A change takes effect at the next start.
    pub sealing: SealingSettings,
    pub serving: ServingIssuer,
}

/// Who issues the certificate of the node's server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum ServingIssuer {
    /// Wherry itself, or an administrator: the engine has no part in it.
    #[default]
    Node,
    /// `serverTLSBootstrap`
    Cluster,
}

/// What limits the restart back-off.
#[derive(Clone, Copy, Debug)]
pub struct RestartBackoff {
    /// The longest delay.
    pub max: Duration,
    /// Identifies this boot of the machine. None if its id is unknown.
    pub boot: Option<u32>,
}

impl FixedConfig {
    /// Returns a digest of the id of this boot. None if the id is unknown.
    pub fn boot(&self) -> Option<u32> {
        (!self.boot_id.is_empty()).then(|| hash::fnv1a(self.boot_id.as_bytes()))
    }
}

impl EngineConfig {
    /// Returns the limits of the restart back-off (W10).
    pub fn restart_backoff(&self) -> RestartBackoff {
        RestartBackoff { max: self.max_restart_backoff, boot: self.fixed.boot() }
    }

    /// Takes the settings of `new` that can change.
    pub fn change_to(&mut self, new: EngineConfig) {
        let fixed = std::mem::take(&mut self.fixed);
        *self = EngineConfig { fixed, ..new };
    }

    pub fn traffic(&self) -> Traffic {
        self.cluster.as_ref().map(|cluster| cluster.traffic).unwrap_or_default()
    }
}

impl Default for EngineConfig {
    fn default() -> EngineConfig {
        EngineConfig {
            fixed: FixedConfig::default(),
            sync_frequency: Duration::from_secs(60),
            relist_period: Duration::from_secs(1),
            request_timeout: Duration::from_secs(120),
            pull_timeout: Duration::from_secs(1800),
            max_restart_backoff: Duration::from_secs(300),
            parallel_sandboxes: 4,
            parallel_containers: 4,
            parallel_pulls: 1,
            credential_providers: Vec::new(),
            parallel_reads: 16,
            node: NodeFacts {
                allocatable: Resources::from([(PODS, 110), (CPU, 4000), (MEMORY, 8 << 30)]),
                ..NodeFacts::default()
            },
            image_gc: ImageGcPolicy::default(),
            eviction: EvictionPolicy::default(),
            log_rotation: RotationPolicy::default(),
            root: String::new(),
            storage_classes: Vec::new(),
            services: ServiceSettings::default(),
            shutdown: Groups::default(),
            cluster: None,
        }
    }
}

impl Default for FixedConfig {
    fn default() -> FixedConfig {
        FixedConfig {
            owner: String::new(),
            manifests: String::new(),
            refuse_open_secrets: false,
            network_policies: NetworkPolicies::default(),
            boot_id: String::new(),
            started: Wall(0),
            seed: 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_the_configuration_keeps_what_is_fixed_at_the_start() {
        let run = |owner: &str, seed| FixedConfig { owner: owner.into(), seed, ..FixedConfig::default() };
        let mut config = EngineConfig { fixed: run("root-1", 7), ..EngineConfig::default() };
        config.change_to(EngineConfig { fixed: run("root-2", 8), parallel_reads: 3, ..EngineConfig::default() });
        assert_eq!((config.fixed, config.parallel_reads), (run("root-1", 7), 3));
    }
}
