//! cpu, memory and huge pages as the runtime wants them, and the OOM score that follows from the pod's QoS class.

use super::{RequestConfig, init_containers, is_sidecar};
use crate::adapters::cri::proto;
use crate::api::pod::Pod;
use crate::api::qos::Qos;
use crate::api::quantity::{self, amount};
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeMap;

/// The kernel's smallest and largest cpu.shares.
const MIN_SHARES: i64 = 2;
const MAX_SHARES: i64 = 262_144;
/// The kernel's smallest cpu quota, microseconds.
const MIN_QUOTA: i64 = 1000;
/// OOM scores of a guaranteed pod (and a node-critical one) and of a best-effort one.
const GUARANTEED_OOM_SCORE: i64 = -997;
const BEST_EFFORT_OOM_SCORE: i64 = 1000;

type Quantities = BTreeMap<String, Quantity>;

/// Requested and limited, of one container or a whole pod. None: nothing said.
#[derive(Clone, Copy, Default)]
struct Needs {
    cpu_request: Option<i64>,
    cpu_limit: Option<i64>,
    memory_limit: Option<i64>,
}

fn requests(c: &core::Container) -> Option<&Quantities> {
    c.resources.as_ref()?.requests.as_ref()
}

fn limits(c: &core::Container) -> Option<&Quantities> {
    c.resources.as_ref()?.limits.as_ref()
}

fn cpu(list: Option<&Quantities>) -> Option<i64> {
    amount(list, "cpu").map(|q| q.milli_value())
}

fn memory(list: Option<&Quantities>) -> Option<i64> {
    amount(list, "memory").map(|q| q.value())
}

impl Needs {
    fn of(c: &core::Container) -> Needs {
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

    /// All containers together with the sidecars, or the hungriest moment of the init phase if that is more.
    fn of_pod(spec: &core::PodSpec) -> Needs {
        let mut main =
            spec.containers.iter().fold(Needs::default(), |n, c| n.combine(Needs::of(c), i64::saturating_add));
        let (mut sidecars, mut init) = (Needs::default(), Needs::default());
        for c in init_containers(spec) {
            let moment = sidecars.combine(Needs::of(c), i64::saturating_add);
            if is_sidecar(c) {
                main = main.combine(Needs::of(c), i64::saturating_add);
                sidecars = moment;
            }
            init = init.combine(moment, i64::max);
        }
        main.combine(init, i64::max)
    }

    fn to_proto(self, cfg: &RequestConfig) -> proto::LinuxContainerResources {
        let mut r = proto::LinuxContainerResources {
            cpu_shares: shares(self.cpu_request.or(self.cpu_limit).unwrap_or(0)),
            memory_limit_in_bytes: self.memory_limit.unwrap_or(0),
            ..Default::default()
        };
        if cfg.cpu_cfs_quota {
            r.cpu_period = cfg.cpu_cfs_period;
            r.cpu_quota = quota(self.cpu_limit.unwrap_or(0), cfg.cpu_cfs_period);
        }
        r
    }
}

fn shares(milli: i64) -> i64 {
    (milli.saturating_mul(1024) / 1000).clamp(MIN_SHARES, MAX_SHARES)
}

/// Zero is "no limit".
fn quota(milli: i64, period: i64) -> i64 {
    if milli == 0 { 0 } else { (milli.saturating_mul(period) / 1000).max(MIN_QUOTA) }
}

pub fn container(pod: &Pod, c: &core::Container, cfg: &RequestConfig) -> proto::LinuxContainerResources {
    let mut r = Needs::of(c).to_proto(cfg);
    // No swap beyond the memory limit.
    r.memory_swap_limit_in_bytes = r.memory_limit_in_bytes;
    r.oom_score_adj = oom_score(pod, c, cfg.memory_capacity);
    r.hugepage_limits = cfg
        .huge_page_sizes
        .iter()
        .map(|&size| {
            let limit = limits(c).into_iter().flatten().find_map(|(name, q)| {
                let of = quantity::Quantity::parse(name.strip_prefix("hugepages-")?).ok()?.value();
                (u64::try_from(of) == Ok(size)).then(|| quantity::Quantity::parse(&q.0).ok()).flatten()
            });
            proto::HugepageLimit {
                page_size: page_size_name(size),
                limit: limit.and_then(|l| u64::try_from(l.value()).ok()).unwrap_or(0),
                ..Default::default()
            }
        })
        .collect();
    if cfg.oom_group {
        r.unified.insert("memory.oom.group".into(), "1".into());
    }
    r
}

/// The sum of the pod, and its overhead, both only for the runtime to know.
pub fn sandbox(pod: &Pod, cfg: &RequestConfig) -> (proto::LinuxContainerResources, proto::LinuxContainerResources) {
    let overhead = match &pod.spec().overhead {
        None => proto::LinuxContainerResources::default(),
        some => {
            let cpu = Some(cpu(some.as_ref()).unwrap_or(0));
            Needs { cpu_request: cpu, cpu_limit: cpu, memory_limit: memory(some.as_ref()) }.to_proto(cfg)
        }
    };
    (Needs::of_pod(pod.spec()).to_proto(cfg), overhead)
}

/// The more of the machine's memory a burstable container requests, the later it is killed.
fn oom_score(pod: &Pod, c: &core::Container, capacity: u64) -> i64 {
    let spec = pod.spec();
    if spec.priority_class_name.as_deref() == Some("system-node-critical") {
        return GUARANTEED_OOM_SCORE;
    }
    match Qos::of(spec) {
        Qos::Guaranteed => return GUARANTEED_OOM_SCORE,
        Qos::BestEffort => return BEST_EFFORT_OOM_SCORE,
        Qos::Burstable => {}
    }
    let score = |c: &core::Container| {
        let request = memory(requests(c)).or(memory(limits(c))).unwrap_or(0);
        1000 - i64::try_from(i128::from(request) * 1000 / i128::from(capacity.max(1))).unwrap_or(1000)
    };
    let mut own = score(c);
    if init_containers(spec).iter().any(|i| i.name == c.name && is_sidecar(i)) {
        // A sidecar does not go before those that it serves.
        own = own.min(spec.containers.iter().map(score).max().unwrap_or(own));
    }
    // Above a guaranteed pod, below a best-effort one.
    own.clamp(1000 + GUARANTEED_OOM_SCORE, BEST_EFFORT_OOM_SCORE - 1)
}

/// As the kernel's hugetlb controller names it: 2MB, 1GB, 64KB.
fn page_size_name(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 30 => format!("{}GB", b >> 30),
        b if b >= 1 << 20 => format!("{}MB", b >> 20),
        b => format!("{}KB", b >> 10),
    }
}
