//! cpu, memory and huge page limits in the CRI's units, and the OOM score for the pod's QoS class.

use super::request_config::RequestConfig;
use super::swap;
use crate::adapters::cri::proto;
use crate::api::k8s;
use crate::api::limits::{Needs, cpu, huge_pages, limits, memory, page_size_name, quota, requests, shares};
use crate::api::pod::{Pod, is_sidecar};
use crate::api::pod_resources;
use crate::api::qos::Qos;
use crate::api::resources::{MEMORY, of_containers};

/// OOM scores of a guaranteed (or node-critical) pod and of a best-effort pod.
const GUARANTEED_OOM_SCORE: i64 = -997;
const BEST_EFFORT_OOM_SCORE: i64 = 1000;

fn to_proto(needs: Needs, cfg: &RequestConfig) -> proto::LinuxContainerResources {
    let natural = |milli: Option<i64>| milli.and_then(|m| u64::try_from(m).ok()).unwrap_or(0);
    let signed = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX);
    let mut r = proto::LinuxContainerResources {
        cpu_shares: signed(shares(natural(needs.cpu_request.or(needs.cpu_limit)))),
        memory_limit_in_bytes: needs.memory_limit.unwrap_or(0),
        ..Default::default()
    };
    if cfg.cpu_cfs_quota {
        r.cpu_period = cfg.cpu_cfs_period;
        let period = u64::try_from(cfg.cpu_cfs_period).unwrap_or(0);
        // Zero means no limit.
        r.cpu_quota = quota(natural(needs.cpu_limit), period).map_or(0, |q| signed(q.quota));
    }
    r
}

pub fn container(pod: &Pod, c: &k8s::Container, cfg: &RequestConfig) -> proto::LinuxContainerResources {
    let own = Needs::of(c);
    let of_pod = |list| (cpu(list), memory(list));
    let (cpu_limit, memory_limit) = of_pod(pod_resources::limits(pod.spec()));
    // As in a kubelet, a container without a limit gets the limit of the pod.
    let needs = Needs {
        cpu_limit: own.cpu_limit.filter(|n| *n > 0).or(cpu_limit),
        memory_limit: own.memory_limit.filter(|n| *n > 0).or(memory_limit),
        ..own
    };
    let mut r = to_proto(needs, cfg);
    swap::limit(pod, c, cfg.swap, cfg.memory_capacity, &mut r);
    r.oom_score_adj = oom_score(pod, c, cfg.memory_capacity);
    r.hugepage_limits = huge_page_limits(pod, c, cfg);
    if cfg.oom_group {
        r.unified.insert("memory.oom.group".into(), "1".into());
    }
    r
}

/// Returns a limit for each page size: the container's limit, or else the pod's, or else 0.
fn huge_page_limits(pod: &Pod, c: &k8s::Container, cfg: &RequestConfig) -> Vec<proto::HugepageLimit> {
    let limit = |size| huge_pages(limits(c), size).or_else(|| huge_pages(pod_resources::limits(pod.spec()), size));
    let of_size = |&size| proto::HugepageLimit {
        page_size: page_size_name(size),
        limit: limit(size).unwrap_or(0),
        ..Default::default()
    };
    cfg.huge_page_sizes.iter().map(of_size).collect()
}

/// Returns the sum of the pod's resources, and its overhead. Both only inform the runtime and set no limit.
pub fn sandbox(pod: &Pod, cfg: &RequestConfig) -> (proto::LinuxContainerResources, proto::LinuxContainerResources) {
    let overhead = match &pod.spec().overhead {
        None => proto::LinuxContainerResources::default(),
        some => {
            let cpu = Some(cpu(some.as_ref()).unwrap_or(0));
            to_proto(Needs { cpu_request: cpu, cpu_limit: cpu, memory_limit: memory(some.as_ref()) }, cfg)
        }
    };
    (to_proto(Needs::of_pod(pod.spec()), cfg), overhead)
}

/// Returns the OOM score. The larger the memory request of a burstable container, the later the OOM killer kills it.
fn oom_score(pod: &Pod, c: &k8s::Container, capacity: u64) -> i64 {
    let spec = pod.spec();
    if spec.priority_class_name.as_deref() == Some("system-node-critical") {
        return GUARANTEED_OOM_SCORE;
    }
    match Qos::of(spec) {
        Qos::Guaranteed => return GUARANTEED_OOM_SCORE,
        Qos::BestEffort => return BEST_EFFORT_OOM_SCORE,
        Qos::Burstable => {}
    }
    // Each container gets an equal share of the rest of the pod's request.
    let rest = memory(pod_resources::requests(spec)).map_or(0, |of_pod| {
        let of_containers = i64::try_from(of_containers(spec).get(MEMORY)).unwrap_or(i64::MAX);
        of_pod.saturating_sub(of_containers).max(0)
    });
    let count = i64::try_from(pod.all_containers().count()).unwrap_or(i64::MAX);
    let share = rest / count.max(1);
    let score = |c: &k8s::Container| {
        let request = memory(requests(c)).or(memory(limits(c))).unwrap_or(0).saturating_add(share);
        1000 - i64::try_from(i128::from(request) * 1000 / i128::from(capacity.max(1))).unwrap_or(1000)
    };
    let mut own = score(c);
    if pod.init_containers().iter().any(|i| i.name == c.name && is_sidecar(i)) {
        // A sidecar is not killed before the main containers that it serves.
        own = own.min(spec.containers.iter().map(score).max().unwrap_or(own));
    }
    // Keep the score between the scores of a guaranteed and a best-effort pod.
    own.clamp(1000 + GUARANTEED_OOM_SCORE, BEST_EFFORT_OOM_SCORE - 1)
}
