//! The effective configuration.

use super::flags::{DEFAULT_SOCKET, Flags};
use super::node_server::NodeServer;
use super::registration::Registration;
use super::{eviction, node_size, shutdown};
use crate::api::address_range::AddressRange;
use crate::api::cgroups::CgroupDriver;
use crate::api::credential_provider::Provider;
use crate::api::document::context::NetworkPolicies;
use crate::api::eviction::{EvictionPolicy, Signal};
use crate::api::node_facts::Sizing;
use crate::api::sealing;
use crate::api::service_settings::{DEFAULT_DOMAIN, ServiceSettings};
use crate::api::shutdown::Groups;
use crate::api::storage_class::{self, StorageClass};
use crate::engine::image_gc_policy::ImageGcPolicy;
use crate::engine::rotation_policy::RotationPolicy;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// What the configuration says about documents of manifests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ManifestRules {
    /// `openSecrets: Refuse`: whether a Secret in a file that every user can read is an error.
    pub refuse_open_secrets: bool,
    /// What happens to a NetworkPolicy.
    pub network_policies: NetworkPolicies,
}

/// The effective configuration, which results from defaults, files and flags. All paths are absolute.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub flags: Flags,
    /// staticPodPath
    pub manifests: PathBuf,
    /// The interval at which all manifests are read again while inotify is not available (D2).
    pub file_check_frequency: Duration,
    /// The period after which a healthy pod is synced again (W9).
    pub sync_frequency: Duration,
    pub root_dir: PathBuf,
    /// podLogsDir
    pub pod_logs_dir: PathBuf,
    /// Links to the logs of containers, by container id.
    pub container_logs_dir: PathBuf,
    /// The control socket.
    pub socket: PathBuf,
    /// A valid RFC 1123 subdomain.
    pub node_name: String,
    /// The path of containerRuntimeEndpoint.
    pub runtime_socket: PathBuf,
    /// The path of imageServiceEndpoint, if set. Not used: images are pulled through `runtime_socket`.
    pub image_socket: Option<PathBuf>,
    pub runtime_request_timeout: Duration,
    pub healthz_address: IpAddr,
    /// 0 turns the port off.
    pub healthz_port: u16,
    /// The listen address of the read-only port and of the node's server.
    pub address: IpAddr,
    /// 0 turns the port off.
    pub read_only_port: u16,
    /// The listen address of the kubectl port.
    pub kubectl_address: IpAddr,
    /// 0 turns the port off.
    pub kubectl_port: u16,
    /// The cgroup that contains the cgroups of pods: an absolute path without a trailing `/` (except for `/` itself).
    pub cgroup_root: String,
    pub cgroup_driver: CgroupDriver,
    pub cgroups_per_qos: bool,
    pub cluster_dns: Vec<IpAddr>,
    /// The DNS domain of the cluster, without a trailing dot. Empty if unset.
    pub cluster_domain: String,
    /// The resolv.conf of the host. None if pods get no resolver configuration from the host.
    pub resolv_conf: Option<PathBuf>,
    /// Whether containers without a seccomp profile use RuntimeDefault.
    pub seccomp_default: bool,
    /// Whether CPU limits are enforced.
    pub cpu_cfs_quota: bool,
    pub cpu_cfs_quota_period: Duration,
    /// `LimitedSwap`: whether containers of burstable pods may swap (cgroup v2).
    pub limited_swap: bool,
    /// The maximum back-off of a crashing container (W10).
    pub max_container_restart_period: Duration,
    /// The configured value. Use `parallel_image_pulls()`, which returns the effective one.
    pub serialize_image_pulls: Option<bool>,
    pub max_parallel_image_pulls: Option<u32>,
    /// The docker configuration. None selects the default paths in `adapters::credentials`.
    pub docker_config: Option<PathBuf>,
    /// The socket on which device plugins register. None turns device plugins off.
    pub device_plugin_socket: Option<PathBuf>,
    pub image_credential_provider_config: Option<PathBuf>,
    pub image_credential_provider_bin_dir: Option<PathBuf>,
    /// The content of `image_credential_provider_config`.
    pub credential_providers: Vec<Provider>,
    /// Maximum number of sandboxes created at the same time.
    pub max_parallel_sandbox_starts: u32,
    /// Which documents of manifests are errors.
    pub manifest_rules: ManifestRules,
    /// Maximum number of pods that start a container at the same time.
    pub max_parallel_container_starts: u32,
    /// The configured storage classes. Use `storage_classes`, which returns the effective ones.
    pub storage_configured: Vec<StorageClass>,
    /// The ranges of service addresses.
    pub service_ranges: Vec<AddressRange>,
    /// The garbage collection of images.
    pub image_gc: ImageGcPolicy,
    /// The rotation of container logs.
    pub log_rotation: RotationPolicy,
    /// Node-pressure eviction.
    pub eviction: eviction::EvictionSettings,
    /// Names of sysctls, or prefixes with a trailing `*`.
    pub allowed_unsafe_sysctls: Vec<String>,
    /// The configured values. `sizing` returns the effective ones.
    pub node: node_size::Notification,
    /// The configured values. Use `shutdown`, which contains the effective ones.
    pub shutdown_configured: shutdown::Notification,
    /// The groups of S1. Empty if graceful shutdown is off.
    pub shutdown: Groups,
    /// The directory for the logind drop-in (S2).
    pub logind_conf_dir: PathBuf,
    /// The kubeconfig through which the node joins a cluster. None if the node runs only the pods of its manifests.
    pub kubeconfig: Option<PathBuf>,
    /// Whether traffic with the API server costs money.
    pub metered_connection: bool,
    /// Whether Secrets and tokens of the API server are sealed on the disk (C15).
    pub seal_secrets: sealing::Policy,
    /// A KubeletConfiguration of the cluster. It applies only to fields that no other file sets.
    pub cluster_defaults: Option<PathBuf>,
    /// The server that the API server of the cluster connects to. It exists only with a kubeconfig.
    pub node_server: NodeServer,
    /// Settings of the registration with the API server.
    pub registration: Registration,
    /// The log verbosity, as in a kubelet: 0 for important messages, 4 for debugging, 6 and more for full message
    /// contents.
    pub verbosity: u32,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            flags: Flags::default(),
            manifests: "/etc/wherry/manifests".into(),
            file_check_frequency: Duration::from_secs(20),
            sync_frequency: Duration::from_secs(60),
            root_dir: "/var/lib/wherry".into(),
            pod_logs_dir: "/var/log/pods".into(),
            container_logs_dir: "/var/log/containers".into(),
            socket: DEFAULT_SOCKET.into(),
            node_name: String::new(),
            runtime_socket: "/run/containerd/containerd.sock".into(),
            image_socket: None,
            runtime_request_timeout: Duration::from_secs(120),
            healthz_address: Ipv4Addr::LOCALHOST.into(),
            healthz_port: 10248,
            address: Ipv4Addr::UNSPECIFIED.into(),
            read_only_port: 0,
            kubectl_address: Ipv4Addr::LOCALHOST.into(),
            kubectl_port: 0,
            cgroup_root: "/".into(),
            cgroup_driver: CgroupDriver::Cgroupfs,
            cgroups_per_qos: true,
            cluster_dns: Vec::new(),
            cluster_domain: String::new(),
            resolv_conf: Some("/etc/resolv.conf".into()),
            seccomp_default: false,
            cpu_cfs_quota: true,
            cpu_cfs_quota_period: Duration::from_millis(100),
            limited_swap: false,
            max_container_restart_period: Duration::from_secs(300),
            serialize_image_pulls: None,
            max_parallel_image_pulls: None,
            docker_config: None,
            device_plugin_socket: Some("/var/lib/kubelet/device-plugins/kubelet.sock".into()),
            image_credential_provider_config: None,
            image_credential_provider_bin_dir: None,
            credential_providers: Vec::new(),
            max_parallel_sandbox_starts: 4,
            manifest_rules: ManifestRules::default(),
            max_parallel_container_starts: 4,
            storage_configured: Vec::new(),
            service_ranges: ServiceSettings::default().ranges,
            image_gc: ImageGcPolicy::default(),
            log_rotation: RotationPolicy::default(),
            eviction: eviction::EvictionSettings::default(),
            allowed_unsafe_sysctls: Vec::new(),
            node: node_size::Notification::default(),
            shutdown_configured: shutdown::Notification::default(),
            shutdown: Groups::default(),
            logind_conf_dir: "/etc/systemd/logind.conf.d".into(),
            kubeconfig: None,
            metered_connection: false,
            seal_secrets: sealing::Policy::default(),
            cluster_defaults: None,
            node_server: NodeServer::default(),
            registration: Registration::default(),
            verbosity: 0,
        }
    }
}

impl Config {
    /// Returns the storage classes.
    pub fn storage_classes(&self) -> Vec<StorageClass> {
        match self.storage_configured.is_empty() {
            true => storage_class::without_configuration(&self.root_dir.to_string_lossy()),
            false => self.storage_configured.clone(),
        }
    }

    /// Returns the settings of services.
    pub fn service_settings(&self) -> ServiceSettings {
        let domain = if self.cluster_domain.is_empty() { DEFAULT_DOMAIN } else { &self.cluster_domain };
        ServiceSettings { ranges: self.service_ranges.clone(), domain: domain.to_owned() }
    }

    /// Returns the listen address of the health endpoint, or None if it is off.
    pub fn healthz(&self) -> Option<SocketAddr> {
        (self.healthz_port != 0).then(|| SocketAddr::new(self.healthz_address, self.healthz_port))
    }

    /// Returns the listen address of the read-only server, or None if it is off.
    pub fn read_only(&self) -> Option<SocketAddr> {
        (self.read_only_port != 0).then(|| SocketAddr::new(self.address, self.read_only_port))
    }

    /// Returns the listen address of the API for kubectl, or None if it is off.
    pub fn kubectl(&self) -> Option<SocketAddr> {
        (self.kubectl_port != 0).then(|| SocketAddr::new(self.kubectl_address, self.kubectl_port))
    }

    /// Returns the maximum number of parallel image pulls; None means no limit. As in a kubelet, the default is one,
    /// unless `serializeImagePulls` is false or `maxParallelImagePulls` is set.
    pub fn parallel_image_pulls(&self) -> Option<u32> {
        match (self.serialize_image_pulls, self.max_parallel_image_pulls) {
            (_, Some(n)) => Some(n),
            (Some(false), None) => None,
            (_, None) => Some(1),
        }
    }

    /// Returns the listen address of the node's server, or None if the node is not in a cluster or the server is off.
    pub fn node_server(&self) -> Option<SocketAddr> {
        let is_on = self.kubeconfig.is_some() && self.node_server.port != 0;
        is_on.then(|| SocketAddr::new(self.address, self.node_server.port))
    }

    pub fn eviction_policy(&self) -> EvictionPolicy {
        self.eviction.policy()
    }

    /// Returns the settings that determine the size of the node.
    pub fn sizing(&self) -> Sizing {
        let settings = &self.node;
        Sizing {
            name: self.node_name.clone(),
            max_pods: settings.max_pods,
            pods_per_core: Some(settings.pods_per_core).filter(|pods| *pods > 0),
            system_reserved: node_size::resources(&settings.system_reserved),
            kube_reserved: node_size::resources(&settings.kube_reserved),
            memory_available: self.eviction.hard(Signal::MemoryAvailable),
            nodefs_available: self.eviction.hard(Signal::NodefsAvailable),
            extended: settings.extended.clone(),
            labels: settings.labels.clone(),
            allowed_unsafe_sysctls: self.allowed_unsafe_sysctls.clone(),
        }
    }
}
