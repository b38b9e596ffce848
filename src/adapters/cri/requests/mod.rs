//! From a pod to what the runtime is asked: pure functions from the pod's spec and the node's settings to CRI
//! messages, field by field as a kubelet sends them (recorded from one; only `io.wherry.*` annotations are added).
//!
//! Split by idea: `sandbox` and `container` build the two configs; `resources` (cpu, memory, OOM score), `security`
//! (users, capabilities, profiles, namespaces), `dns` and `annotations` are what they consist of. What cannot be
//! expressed is an error that names the field; nothing is left out silently.

mod annotations;
mod container;
mod dns;
mod resources;
mod sandbox;
mod security;
#[cfg(test)]
pub(super) mod tests;

pub use container::container_config;
pub use dns::{HostDns, dns_notices};
pub use sandbox::sandbox_config;

use crate::api::cgroups::CgroupNames;
use crate::api::layout::Layout;
use crate::api::pod::is_sidecar;
use k8s_openapi::api::core::v1 as core;

/// What the node, not the pod, decides about sandboxes and containers.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestConfig {
    pub layout: Layout,
    pub cgroups: CgroupNames,
    /// The id of the root directory, for `annotation::OWNER` (W21).
    pub owner: String,
    /// `clusterDNS`; empty: `ClusterFirst` falls back to `Default`.
    pub cluster_dns: Vec<String>,
    /// `clusterDomain`, may be empty.
    pub cluster_domain: String,
    /// What `resolvConf` says.
    pub host_dns: HostDns,
    /// `seccompDefault`: containers that ask for no profile get RuntimeDefault instead of Unconfined.
    pub seccomp_default: bool,
    /// `cpuCFSQuota`: cpu limits are enforced.
    pub cpu_cfs_quota: bool,
    /// `cpuCFSQuotaPeriod` in microseconds (100000).
    pub cpu_cfs_period: i64,
    /// The machine's memory in bytes, for OOM scores.
    pub memory_capacity: u64,
    /// The machine's huge page sizes in bytes: each is limited, to 0 where a container asks for none.
    pub huge_page_sizes: Vec<u64>,
    /// The OOM killer takes all processes of a container (`memory.oom.group`): true on cgroup v2 unless
    /// `singleProcessOOMKill`.
    pub oom_group: bool,
}

/// The cpu quota's period unless configured otherwise, in microseconds.
pub const DEFAULT_CPU_CFS_PERIOD: i64 = 100_000;

fn init_containers(spec: &core::PodSpec) -> &[core::Container] {
    spec.init_containers.as_deref().unwrap_or_default()
}
