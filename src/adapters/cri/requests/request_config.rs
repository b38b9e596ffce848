//! What the requests need to know about the node.

use super::host_dns::HostDns;
use super::swap::Swap;
use crate::api::cgroups::CgroupNames;
use crate::api::layout::Layout;

/// The node's settings for sandboxes and containers.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestConfig {
    pub layout: Layout,
    pub cgroups: CgroupNames,
    /// The id of the root directory, for `annotation::OWNER` (W21).
    pub owner: String,
    /// `clusterDNS`. If it is empty, `ClusterFirst` falls back to `Default`.
    pub cluster_dns: Vec<String>,
    /// `clusterDomain`; may be empty.
    pub cluster_domain: String,
    /// The content of the file `resolvConf`.
    pub host_dns: HostDns,
    /// `seccompDefault`: whether containers without a profile get RuntimeDefault instead of Unconfined.
    pub seccomp_default: bool,
    /// `cpuCFSQuota`: whether cpu limits are enforced.
    pub cpu_cfs_quota: bool,
    /// `cpuCFSQuotaPeriod` in microseconds (default 100000).
    pub cpu_cfs_period: i64,
    /// The machine's memory in bytes, for OOM scores.
    pub memory_capacity: u64,
    /// The machine's huge page sizes in bytes. Each is limited, to 0 if a container requests none.
    pub huge_page_sizes: Vec<u64>,
    /// Whether the OOM killer kills all processes of a container (`memory.oom.group`): true on cgroup v2 unless
    /// `singleProcessOOMKill` is set.
    pub oom_group: bool,
    pub swap: Swap,
    /// The paths of this machine that are hidden from containers in addition to the fixed ones.
    pub masked_paths: Vec<String>,
    /// Whether SELinux is on.
    pub selinux: bool,
}
