//! The swap of a container (`memorySwap.swapBehavior`), as a kubelet limits it.

use crate::adapters::cri::proto;
use crate::api::k8s::Container;
use crate::api::limits::{limits, memory, requests};
use crate::api::pod::Pod;
use crate::api::priority::{self, CRITICAL};
use crate::api::qos::Qos;

/// The file of cgroup v2 that contains the limit, in bytes.
const UNIFIED: &str = "memory.swap.max";

/// How the machine limits swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swap {
    /// The kernel does not limit swap by cgroup.
    Unlimited,
    /// cgroup v1: the limit covers memory and swap together. A container with a memory limit gets no swap beyond it.
    WithMemory,
    /// cgroup v2: swap has a limit of its own. `for_pods` is the swap in bytes that burstable pods share: the machine's
    /// swap with `LimitedSwap`, otherwise 0.
    Unified { for_pods: u64 },
}

/// Sets the swap limit. On cgroup v2, a container has one even if it has no memory limit.
pub fn limit(pod: &Pod, c: &Container, swap: Swap, capacity: u64, r: &mut proto::LinuxContainerResources) {
    match swap {
        Swap::Unlimited => {}
        Swap::WithMemory => r.memory_swap_limit_in_bytes = r.memory_limit_in_bytes,
        Swap::Unified { for_pods } => {
            r.unified.insert(UNIFIED.into(), share(pod, c, for_pods, capacity).to_string());
        }
    }
}

/// Returns the swap limit of a container, in bytes. A container of a burstable pod gets the same share of the swap as
/// its request has of the memory. A critical pod gets none, and neither does a container without a request or with a
/// request that equals its limit.
fn share(pod: &Pod, c: &Container, for_pods: u64, capacity: u64) -> u64 {
    let positive = |amount: Option<i64>| amount.and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0);
    let (request, limit) = (positive(memory(requests(c))), positive(memory(limits(c))));
    let Some(request) = request.filter(|_| request != limit) else { return 0 };
    let may_swap = Qos::of(pod.spec()) == Qos::Burstable && priority::of(pod.spec()) < CRITICAL;
    let share = u128::from(request) * u128::from(for_pods) / u128::from(capacity.max(1));
    if may_swap { u64::try_from(share).unwrap_or(u64::MAX) } else { 0 }
}
