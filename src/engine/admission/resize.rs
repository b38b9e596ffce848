//! R2: decides whether the new resources of a running pod fit.
//!
//! As in Kubernetes, only amounts that grow have to fit, a resize never preempts another pod, and resizes come before
//! pods that have not started: by priority, then by QoS class, then in the order of the queue.

use super::fit::{Insufficient, insufficient};
use super::node_snapshot::NodeSnapshot;
use super::pod_requests::PodRequests;
use crate::api::ordered::OrderSlice;
use crate::api::resources::{CPU, MEMORY, Resources};
use crate::engine::pod::worker::{ResizeVerdict, Worker};
use std::cmp::Reverse;

/// Returns the pods that want a resize, in the order in which the resizes are evaluated.
pub fn in_order<'a>(workers: &[&'a Worker]) -> Vec<&'a Worker> {
    let mut all: Vec<&Worker> = workers.iter().copied().filter(|w| w.wanted_resize().is_some()).collect();
    all.order_by_key(|w| (Reverse(w.admission.requests.priority), w.admission.requests.qos, w.admission.place));
    all
}

/// Returns why the new resources do not fit now. None if they fit.
pub fn obstacle(room: &NodeSnapshot<'_>, old: &PodRequests, new: &PodRequests) -> Option<ResizeVerdict> {
    let mut grown = Resources::default();
    for resource in [CPU, MEMORY].into_iter().filter(|r| new.resources.get(r) > old.resources.get(r)) {
        grown.set(resource, new.resources.get(resource));
    }
    let never = insufficient(&grown, &Resources::default(), room.allocatable());
    if !never.is_empty() {
        return Some(ResizeVerdict::Infeasible(joined(&never, Insufficient::capacity_message)));
    }
    let mut others = room.in_use().clone();
    others.subtract(&old.resources);
    let now = insufficient(&grown, &others, room.allocatable());
    (!now.is_empty()).then(|| ResizeVerdict::Deferred(joined(&now, Insufficient::message)))
}

fn joined(missing: &[Insufficient], message: fn(&Insufficient) -> String) -> String {
    missing.iter().map(message).collect::<Vec<_>>().join("; ")
}
