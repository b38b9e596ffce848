//! Cgroup limits: computes the kernel settings from the requests and limits of a pod, with the arithmetic of a kubelet
//! (pkg/kubelet/cm: helpers_linux.go, qos_container_manager_linux.go, node_container_manager_linux.go). The settings of
//! a single container in the CRI use the same functions.

use crate::api::k8s;
use crate::api::ordered::CollectOrdered;
use crate::api::pod::{Pod, is_sidecar};
use crate::api::pod_resources::{self, requested_by};
use crate::api::qos::Qos;
use crate::api::quantity::{Quantities, Quantity, amount};
use crate::api::resources::{CPU, MEMORY, Resources};
use std::collections::BTreeMap;

/// The kernel's minimum and maximum for cpu.shares.
pub const MIN_SHARES: u64 = 2;
const MAX_SHARES: u64 = 262_144;
/// The maximum of cpu.weight (cgroup v2). The minimum is 1.
const MAX_WEIGHT: u64 = 10_000;
/// The kernel's minimum cpu quota, in microseconds.
const MIN_QUOTA: u64 = 1000;

/// The key for the number of processes (PIDs) in `Resources`.
pub const PIDS: &str = "pid";
/// The prefix of a huge page size in `Resources`.
const HUGE_PAGES: &str = "hugepages-";

/// The settings of one cgroup. None: not set, or no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// The value for cgroup v1; `weight` converts it for v2.
    pub cpu_shares: Option<u64>,
    pub cpu: Option<CpuQuota>,
    /// In bytes.
    pub memory: Option<u64>,
    /// Number of processes and threads.
    pub pids: Option<u64>,
    /// The limit in bytes for each page size in bytes.
    pub huge_pages: BTreeMap<u64, u64>,
}

/// CPU time per period, both in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuQuota {
    pub quota: u64,
    pub period: u64,
}

/// The node settings that affect the cgroups of pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRules {
    /// `cpuCFSQuota`: whether cpu limits are enforced.
    pub cpu_cfs_quota: bool,
    /// `cpuCFSQuotaPeriod` in microseconds.
    pub cpu_cfs_period: u64,
    /// `podPidsLimit`; None: no limit.
    pub pids_limit: Option<u64>,
    /// The machine's huge page sizes in bytes. Every size is limited. The limit is 0 if a pod does not request pages
    /// of the size.
    pub huge_page_sizes: Vec<u64>,
}

/// Requests and limits of one container or a whole pod, in milli-CPU and bytes. None: not specified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    pub cpu_request: Option<i64>,
    pub cpu_limit: Option<i64>,
    pub memory_limit: Option<i64>,
}

pub fn requests(c: &k8s::Container) -> Option<&Quantities> {
    c.resources.as_ref()?.requests.as_ref()
}

pub fn limits(c: &k8s::Container) -> Option<&Quantities> {
    c.resources.as_ref()?.limits.as_ref()
}

/// Returns the cpu amount in millicores.
pub fn cpu(list: Option<&Quantities>) -> Option<i64> {
    amount(list, CPU).map(Quantity::milli_value)
}

/// Returns the memory amount in bytes.
pub fn memory(list: Option<&Quantities>) -> Option<i64> {
    amount(list, MEMORY).map(Quantity::value)
}

/// Returns the amount of huge pages of this size in bytes. None if the list does not contain it.
pub fn huge_pages(list: Option<&Quantities>, page_size: u64) -> Option<u64> {
    list.into_iter().flatten().find_map(|(name, q)| {
        (huge_page_size(name)? == page_size).then(|| Quantity::parse(&q.0).ok()).flatten()?.value().try_into().ok()
    })
}

/// Returns the page size in bytes of a resource such as `hugepages-2Mi`.
fn huge_page_size(resource: &str) -> Option<u64> {
    Quantity::parse(resource.strip_prefix(HUGE_PAGES)?).ok()?.value().try_into().ok()
}

/// Returns the name that the kernel's hugetlb controller uses: 2MB, 1GB, 64KB.
pub fn page_size_name(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 30 => format!("{}GB", b >> 30),
        b if b >= 1 << 20 => format!("{}MB", b >> 20),
        b => format!("{}KB", b >> 10),
    }
}

impl Needs {
    pub fn of(c: &k8s::Container) -> Needs {
        Needs { cpu_request: cpu(requests(c)), cpu_limit: cpu(limits(c)), memory_limit: memory(limits(c)) }
    }

    fn combine(self, other: Needs, how: impl Fn(i64, i64) -> i64) -> Needs {
        let both = |a: Option<i64>, b: Option<i64>| match (a, b) {
            (Some(a), Some(b)) => Some(how(a, b)),
            (a, b) => a.or(b),
        };
        Needs {
            cpu_request: both(self.cpu_request, other.cpu_request),
            cpu_limit: both(self.cpu_limit, other.cpu_limit),
            memory_limit: both(self.memory_limit, other.memory_limit),
        }
    }

    /// Returns the needs of a pod without overhead. Each of them is the amount of the pod as a whole, if it has one.
    /// Otherwise it is the sum of all main containers and sidecars, or the largest need during the init phase if that
    /// is more.
    pub fn of_pod(spec: &k8s::PodSpec) -> Needs {
        let mut main =
            spec.containers.iter().fold(Needs::default(), |n, c| n.combine(Needs::of(c), i64::saturating_add));
        let (mut sidecars, mut init) = (Needs::default(), Needs::default());
        for c in spec.init_containers.iter().flatten() {
            let moment = sidecars.combine(Needs::of(c), i64::saturating_add);
            if is_sidecar(c) {
                main = main.combine(Needs::of(c), i64::saturating_add);
                sidecars = moment;
            }
            init = init.combine(moment, i64::max);
        }
        let containers = main.combine(init, i64::max);
        let (requests, limits) = (pod_resources::requests(spec), pod_resources::limits(spec));
        Needs {
            cpu_request: cpu(requests).or(containers.cpu_request),
            cpu_limit: cpu(limits).or(containers.cpu_limit),
            memory_limit: memory(limits).or(containers.memory_limit),
        }
    }
}

fn natural(amount: i64) -> u64 {
    u64::try_from(amount).unwrap_or(0)
}

/// Converts millicores to cpu.shares: 1024 per core.
pub fn shares(milli: u64) -> u64 {
    (milli.saturating_mul(1024) / 1000).clamp(MIN_SHARES, MAX_SHARES)
}

/// Converts cpu.shares to cpu.weight (cgroup v2) by mapping one range to the other, as runc and a kubelet do.
pub fn weight(shares: u64) -> u64 {
    let shares = shares.clamp(MIN_SHARES, MAX_SHARES);
    1 + (shares - MIN_SHARES) * (MAX_WEIGHT - 1) / (MAX_SHARES - MIN_SHARES)
}

/// Returns the quota for a cpu limit in millicores. None if the limit is 0, which means no limit.
pub fn quota(milli: u64, period: u64) -> Option<CpuQuota> {
    let quota = (milli.saturating_mul(period) / 1000).max(MIN_QUOTA);
    (milli > 0).then_some(CpuQuota { quota, period })
}

/// Returns the limits of a pod. A burstable pod has a limit only for resources that are limited for the pod as a
/// whole, or in all of its containers.
pub fn of_pod(pod: &Pod, rules: &PodRules) -> Limits {
    let spec = pod.spec();
    let requested = requested_by(pod);
    let huge_pages =
        rules.huge_page_sizes.iter().map(|&size| (size, huge_pages_of(&requested, size).unwrap_or(0))).collect_map();
    let limits = Limits { pids: rules.pids_limit, huge_pages, ..Limits::default() };
    if Qos::of(spec) == Qos::BestEffort {
        return Limits { cpu_shares: Some(MIN_SHARES), ..limits };
    }
    let cpu_limit = limit_of_pod(pod, Needs::of_pod(spec).cpu_limit, cpu);
    Limits {
        cpu_shares: Some(shares(requested.get(CPU))),
        cpu: cpu_limit.filter(|_| rules.cpu_cfs_quota).and_then(|milli| quota(milli, rules.cpu_cfs_period)),
        memory: memory_of_pod(pod),
        ..limits
    }
}

/// Returns the memory limit of the pod's cgroup, in bytes.
pub fn memory_of_pod(pod: &Pod) -> Option<u64> {
    limit_of_pod(pod, Needs::of_pod(pod.spec()).memory_limit, memory)
}

/// Returns `needed` plus the overhead if the resource is limited for the pod as a whole or in all of its containers.
fn limit_of_pod(pod: &Pod, needed: Option<i64>, of: fn(Option<&Quantities>) -> Option<i64>) -> Option<u64> {
    let spec = pod.spec();
    let limited = |list| of(list).is_some_and(|limit| limit > 0);
    let is_limited = limited(pod_resources::limits(spec)) || pod.all_containers().all(|c| limited(limits(c)));
    let overhead = of(spec.overhead.as_ref()).unwrap_or(0);
    is_limited.then(|| natural(needed.unwrap_or(0)).saturating_add(natural(overhead)))
}

/// Returns the limits for the cgroup of a QoS class. `burstable` is the sum of the cpu requests of that class, in
/// millicores.
pub fn of_class(class: Qos, burstable: u64) -> Limits {
    let cpu_shares = match class {
        Qos::BestEffort => MIN_SHARES,
        _ => shares(burstable),
    };
    Limits { cpu_shares: Some(cpu_shares), ..Limits::default() }
}

/// Returns the limits of `kubepods`: capacity minus reservations. `reserved` is empty unless `enforceNodeAllocatable`
/// contains `pods`. Hard eviction thresholds are not subtracted: pods may use that memory until they are evicted.
pub fn of_node(capacity: &Resources, reserved: &Resources) -> Limits {
    let mut left = capacity.clone();
    left.subtract(reserved);
    let known = |name: &str| Some(left.get(name)).filter(|_| capacity.get(name) > 0);
    let huge_pages =
        capacity.iter().filter_map(|(name, _)| Some((huge_page_size(name)?, left.get(name)))).collect_map();
    Limits { cpu_shares: Some(shares(left.get(CPU))), cpu: None, memory: known(MEMORY), pids: known(PIDS), huge_pages }
}

fn huge_pages_of(resources: &Resources, page_size: u64) -> Option<u64> {
    resources.iter().find(|(name, _)| huge_page_size(name) == Some(page_size)).map(|(_, bytes)| bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::k8s::Quantity as Written;
    use serde_json::{Value, json};

    const MIB: u64 = 1 << 20;

    fn pod(spec: Value) -> Pod {
        Pod::of_spec("p", serde_json::from_value(spec).unwrap())
    }

    fn rules() -> PodRules {
        PodRules { cpu_cfs_quota: true, cpu_cfs_period: 100_000, pids_limit: None, huge_page_sizes: vec![] }
    }

    fn container(requests: Value, limits: Value) -> Value {
        json!({ "name": "c", "resources": { "requests": requests, "limits": limits } })
    }

    fn of(containers: Value) -> Limits {
        of_pod(&pod(json!({ "containers": containers })), &rules())
    }

    fn limits_of(shares: u64, quota: Option<u64>, memory: Option<u64>) -> Limits {
        let cpu = quota.map(|quota| CpuQuota { quota, period: 100_000 });
        Limits { cpu_shares: Some(shares), cpu, memory, ..Limits::default() }
    }

    #[test]
    fn shares_weight_and_quota_keep_the_kernels_bounds() {
        for (milli, of_v1, of_v2) in [
            (0, 2, 1),
            (1, 2, 1),
            (2, 2, 1),
            (3, 3, 1),
            (100, 102, 4),
            (250, 256, 10),
            (1000, 1024, 39),
            (2000, 2048, 79),
            (256_000, 262_144, 10_000),
            (300_000, 262_144, 10_000),
            (u64::MAX, 262_144, 10_000),
        ] {
            assert_eq!((shares(milli), weight(shares(milli))), (of_v1, of_v2), "{milli}m");
        }
        assert_eq!((weight(0), weight(u64::MAX)), (1, 10_000));
        let of = |milli, period| quota(milli, period).map(|q| q.quota);
        assert_eq!(of(0, 100_000), None);
        assert_eq!(of(1, 100_000), Some(1000), "the kernel's minimum");
        assert_eq!(of(11, 100_000), Some(1100));
        assert_eq!(of(250, 100_000), Some(25_000));
        assert_eq!(of(250, 10_000), Some(2500));
        assert_eq!(of(u64::MAX, 100_000), Some(u64::MAX / 1000));
    }

    #[test]
    fn a_guaranteed_pod_is_limited_in_all_and_a_best_effort_one_in_nothing() {
        let both = json!({ "cpu": "250m", "memory": "32Mi" });
        assert_eq!(of(json!([container(both.clone(), both.clone())])), limits_of(256, Some(25_000), Some(32 * MIB)));
        // Missing requests default to the limits.
        assert_eq!(of(json!([container(json!({}), both.clone())])), limits_of(256, Some(25_000), Some(32 * MIB)));
        let two = of(json!([container(both.clone(), both.clone()), container(both.clone(), both)]));
        assert_eq!(two, limits_of(512, Some(50_000), Some(64 * MIB)));
        assert_eq!(of(json!([{ "name": "c" }, { "name": "d" }])), limits_of(2, None, None));
        assert_eq!(of(json!([container(json!({ "cpu": "0" }), json!({}))])), limits_of(2, None, None));
    }

    #[test]
    fn a_burstable_pod_is_limited_only_in_what_all_its_containers_are() {
        let c = |requests: Value, limits: Value| container(requests, limits);
        let none = || json!({ "name": "n" });
        for (containers, wanted) in [
            (json!([c(json!({ "cpu": "100m" }), json!({}))]), limits_of(102, None, None)),
            (json!([c(json!({ "memory": "1Mi" }), json!({}))]), limits_of(2, None, None)),
            (json!([c(json!({ "cpu": "100m" }), json!({ "cpu": "200m" }))]), limits_of(102, Some(20_000), None)),
            (json!([c(json!({}), json!({ "memory": "8Mi" }))]), limits_of(2, None, Some(8 * MIB))),
            (json!([c(json!({ "cpu": "100m" }), json!({ "cpu": "200m" })), none()]), limits_of(102, None, None)),
            (
                json!([c(json!({}), json!({ "cpu": "1", "memory": "8Mi" })), c(json!({}), json!({ "memory": "4Mi" }))]),
                limits_of(1024, None, Some(12 * MIB)),
            ),
            (
                json!([c(json!({}), json!({ "memory": "8Mi" })), c(json!({}), json!({ "memory": "0" }))]),
                limits_of(2, None, None),
            ),
        ] {
            assert_eq!(of(containers.clone()), wanted, "{containers}");
        }
    }

    #[test]
    fn the_limits_of_the_pod_as_a_whole_precede_those_of_its_containers() {
        for (resources, wanted) in [
            (
                json!({ "requests": { "cpu": "500m" }, "limits": { "memory": "64Mi" } }),
                limits_of(512, None, Some(64 * MIB)),
            ),
            (json!({ "requests": { "cpu": "500m" }, "limits": { "cpu": "1" } }), limits_of(512, Some(100_000), None)),
            (json!({ "requests": { "memory": "1Mi" } }), limits_of(102, None, None)),
        ] {
            let containers = json!([{ "name": "n" }, container(json!({ "cpu": "100m" }), json!({ "memory": "8Mi" }))]);
            let pod = pod(json!({ "resources": resources, "containers": containers }));
            assert_eq!(super::of_pod(&pod, &rules()), wanted, "{resources}");
        }
    }

    #[test]
    fn init_containers_sidecars_and_overhead_count_as_in_a_request() {
        let container = |cpu: &str, sidecar: bool| {
            let amounts = json!({ "cpu": cpu, "memory": "1Mi" });
            let mut c = container(amounts.clone(), amounts);
            if sidecar {
                c["restartPolicy"] = json!("Always");
            }
            c
        };
        let of = |init: Value, overhead: Value| {
            let spec =
                json!({ "initContainers": init, "containers": [container("100m", false)], "overhead": overhead });
            of_pod(&pod(spec), &rules())
        };
        assert_eq!(of(json!([container("300m", false)]), json!({})), limits_of(307, Some(30_000), Some(MIB)));
        assert_eq!(of(json!([container("50m", true)]), json!({})), limits_of(153, Some(15_000), Some(2 * MIB)));
        let overhead = json!({ "cpu": "100m", "memory": "2Mi" });
        assert_eq!(of(json!([]), overhead.clone()), limits_of(204, Some(20_000), Some(3 * MIB)));
        // An init container without a limit: the pod has no limit.
        let spec = json!({ "initContainers": [{ "name": "i" }], "containers": [container("100m", false)],
            "overhead": overhead });
        assert_eq!(of_pod(&pod(spec), &rules()), limits_of(204, None, None));
    }

    #[test]
    fn an_empty_dir_in_memory_may_have_the_memory_of_the_cgroup_of_its_pod() {
        let container = |memory: &str| container(json!({}), json!({ "memory": memory }));
        let mut sidecar = container("2Mi");
        sidecar["restartPolicy"] = json!("Always");
        for (spec, wanted) in [
            (json!({ "containers": [container("8Mi"), container("4Mi")] }), Some(12)),
            (json!({ "initContainers": [sidecar.clone()], "containers": [container("8Mi")] }), Some(10)),
            (json!({ "initContainers": [sidecar, container("16Mi")], "containers": [container("8Mi")] }), Some(18)),
            (json!({ "containers": [container("8Mi")], "overhead": { "memory": "5Mi" } }), Some(13)),
            (json!({ "containers": [container("8Mi"), { "name": "n" }] }), None),
            (json!({ "initContainers": [{ "name": "n" }], "containers": [container("8Mi")] }), None),
            (json!({ "containers": [{ "name": "n" }], "resources": { "limits": { "memory": "9Mi" } } }), Some(9)),
        ] {
            let pod = pod(spec.clone());
            assert_eq!(memory_of_pod(&pod), wanted.map(|mib: u64| mib * MIB), "{spec}");
            assert_eq!(memory_of_pod(&pod), super::of_pod(&pod, &rules()).memory, "{spec}");
        }
    }

    #[test]
    fn the_nodes_rules_for_quotas_processes_and_huge_pages() {
        let both = json!({ "cpu": "1", "memory": "32Mi", "hugepages-2Mi": "4Mi" });
        let spec = json!({ "containers": [container(both.clone(), both.clone()), container(both.clone(), both)] });
        let rules = PodRules {
            cpu_cfs_quota: false,
            pids_limit: Some(100),
            huge_page_sizes: vec![2 * MIB, 1 << 30],
            ..rules()
        };
        let wanted = Limits {
            pids: Some(100),
            huge_pages: [(2 * MIB, 8 * MIB), (1 << 30, 0)].into(),
            ..limits_of(2048, None, Some(64 * MIB))
        };
        assert_eq!(of_pod(&pod(spec), &rules), wanted);
        let idle = of_pod(&pod(json!({ "containers": [{ "name": "c" }] })), &rules);
        assert_eq!((idle.pids, idle.huge_pages), (Some(100), [(2 * MIB, 0), (1 << 30, 0)].into()));
        let rules = PodRules { cpu_cfs_quota: true, cpu_cfs_period: 10_000, ..rules };
        let one = json!({ "cpu": "500m", "memory": "1Mi" });
        let limits = of_pod(&pod(json!({ "containers": [container(one.clone(), one)] })), &rules);
        assert_eq!(limits.cpu, Some(CpuQuota { quota: 5000, period: 10_000 }));
    }

    #[test]
    fn the_classes_and_the_node() {
        assert_eq!(of_class(Qos::BestEffort, 4000), limits_of(2, None, None));
        assert_eq!(of_class(Qos::Burstable, 0), limits_of(2, None, None));
        assert_eq!(of_class(Qos::Burstable, 1500), limits_of(1536, None, None));
        let capacity = Resources::from([(CPU, 2000), (MEMORY, 512 * MIB), (PIDS, 1000), ("hugepages-2Mi", 8 * MIB)]);
        assert_eq!(
            of_node(&capacity, &Resources::from([(CPU, 500), (MEMORY, 128 * MIB)])),
            Limits {
                pids: Some(1000),
                huge_pages: [(2 * MIB, 8 * MIB)].into(),
                ..limits_of(1536, None, Some(384 * MIB))
            }
        );
        // The reservations exceed the capacity: the limit is zero, which differs from no limit.
        let greedy = of_node(&Resources::from([(CPU, 1000), (MEMORY, MIB)]), &Resources::from([(MEMORY, 2 * MIB)]));
        assert_eq!(greedy, limits_of(1024, None, Some(0)));
        assert_eq!(of_node(&Resources::default(), &Resources::default()), limits_of(2, None, None));
    }

    #[test]
    fn huge_pages_are_found_by_size_however_it_is_written() {
        let list: Quantities = [("hugepages-2048Ki".to_owned(), Written("4Mi".into()))].into();
        assert_eq!(huge_pages(Some(&list), 2 * MIB), Some(4 * MIB));
        assert_eq!(huge_pages(Some(&list), 1 << 30), None);
        assert_eq!([2 * MIB, 1 << 30, 64 << 10].map(page_size_name), ["2MB", "1GB", "64KB"]);
    }
}
