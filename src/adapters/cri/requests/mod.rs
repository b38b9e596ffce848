//! Builds the CRI messages for a pod from its spec and the node's settings. Pure functions. Every field has the value
//! that a kubelet sends (compared with recordings); only the `io.wherry.*` annotations are added.
//!
//! `sandbox` and `container` build the two configs from `resources` (cpu, memory, OOM score), `security` (users,
//! capabilities, profiles, namespaces), `dns` and `annotations`. A value that the CRI cannot represent is an error that
//! names the field; nothing is dropped silently.

mod annotations;
mod container;
mod dns;
mod resources;
mod sandbox;
mod security;
mod swap;
#[cfg(test)]
pub(super) mod tests;

pub use container::{container_config, container_resources};
pub use dns::{HostDns, dns_notices};
pub use sandbox::sandbox_config;
pub use swap::Swap;

use crate::api::cgroups::CgroupNames;
use crate::api::k8s;
use crate::api::layout::Layout;
use crate::api::pod::is_sidecar;

/// The node's settings for sandboxes and containers.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestConfig {
    pub layout: Layout,
    pub cgroups: CgroupNames,
    /// The id of the root directory, for `annotation::OWNER` (W21).
    pub owner: String,
    /// `clusterDNS`. If it is empty, `ClusterFirst` falls back to `Default`.
    pub cluster_dns: Vec<String>,
    /// `clusterDomain`, may be empty.
    pub cluster_domain: String,
    /// The content of the file `resolvConf`.
    pub host_dns: HostDns,
    /// `seccompDefault`: containers without a profile get RuntimeDefault instead of Unconfined.
    pub seccomp_default: bool,
    /// `cpuCFSQuota`: cpu limits are enforced.
    pub cpu_cfs_quota: bool,
    /// `cpuCFSQuotaPeriod` in microseconds (default 100000).
    pub cpu_cfs_period: i64,
    /// The machine's memory in bytes, for OOM scores.
    pub memory_capacity: u64,
    /// The machine's huge page sizes in bytes. Each is limited, to 0 if a container requests none.
    pub huge_page_sizes: Vec<u64>,
    /// The OOM killer kills all processes of a container (`memory.oom.group`): true on cgroup v2 unless
    /// `singleProcessOOMKill`.
    pub oom_group: bool,
    pub swap: Swap,
    /// The paths of this machine that are hidden from containers in addition to the fixed ones.
    pub masked_paths: Vec<String>,
    /// SELinux is on.
    pub selinux: bool,
}

fn init_containers(spec: &k8s::PodSpec) -> &[k8s::Container] {
    spec.init_containers.as_deref().unwrap_or_default()
}
