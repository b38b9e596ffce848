//! The order in which pods are evicted (E4), and the message of an eviction.

use super::levels::Met;
use super::usage::{Amounts, Disks, Usage};
use crate::api::eviction::Signal;
use crate::api::names::{ContainerId, Uid};
use crate::api::pod::Pod;
use crate::api::resources::{EPHEMERAL_STORAGE, MEMORY, Resources};
use crate::api::time::Wall;
use std::cmp::Reverse;
use std::rc::Rc;

/// A pod that may be evicted.
pub struct Candidate {
    pub uid: Uid,
    pub pod: Rc<Pod>,
    pub requests: Resources,
    pub priority: i32,
    pub since: Wall,
    /// The running containers: name and id.
    pub containers: Vec<(String, ContainerId)>,
}

/// Returns the pod to evict first, and the message.
///
/// As in a kubelet, pods that use more than they request come before the others, then pods of a lower priority, then
/// the pod whose usage exceeds its request the most. Pods do not request process ids, so for these the priority comes
/// first. *(ours)* Among equal pods, the youngest comes first. `two_disks`: the images have a file system of their
/// own, so only the usage of the file system that is short counts.
pub fn first(met: &Met, candidates: &[Candidate], usage: &Usage, two_disks: bool) -> Option<(Uid, String)> {
    let signal = met.threshold.signal;
    let disks = if two_disks { on_one_disk(signal) } else { Disks::All };
    let key = |c: &&Candidate| {
        let over = over_request(signal, c, usage, disks);
        let exceeds = over > 0 && signal != Signal::PidAvailable;
        (Reverse(exceeds), c.priority, Reverse(over), Reverse(c.since), c.uid.clone())
    };
    let first = candidates.iter().min_by_key(key)?;
    Some((first.uid.clone(), message(met, first, usage)))
}

/// Returns which part of a pod's usage is on the file system of this signal, if the images have a file system of
/// their own.
fn on_one_disk(signal: Signal) -> Disks {
    match signal {
        Signal::NodefsAvailable | Signal::NodefsInodesFree => Disks::Node,
        Signal::ImagefsAvailable | Signal::ImagefsInodesFree => Disks::Images,
        Signal::MemoryAvailable | Signal::PidAvailable => Disks::All,
    }
}

/// Returns the usage of the pod minus its request.
fn over_request(signal: Signal, of: &Candidate, usage: &Usage, disks: Disks) -> i128 {
    let used = match signal {
        Signal::PidAvailable => usage.processes_of(&of.uid),
        _ => amount(signal, usage.of_pod(&of.uid, &of.containers, disks)),
    };
    i128::from(used) - i128::from(request(signal).map_or(0, |resource| of.requests.get(resource)))
}

fn amount(signal: Signal, used: Amounts) -> u64 {
    match signal {
        Signal::MemoryAvailable => used.memory,
        // Processes are counted by pod, not by container.
        Signal::PidAvailable => 0,
        Signal::NodefsAvailable | Signal::ImagefsAvailable => used.disk,
        Signal::NodefsInodesFree | Signal::ImagefsInodesFree => used.inodes,
    }
}

fn request(signal: Signal) -> Option<&'static str> {
    match signal {
        Signal::MemoryAvailable => Some(MEMORY),
        Signal::NodefsAvailable | Signal::ImagefsAvailable => Some(EPHEMERAL_STORAGE),
        Signal::PidAvailable | Signal::NodefsInodesFree | Signal::ImagefsInodesFree => None,
    }
}

/// Returns the kubelet's message: the resource, the threshold, and the containers that use more than they request.
fn message(met: &Met, of: &Candidate, usage: &Usage) -> String {
    let signal = met.threshold.signal;
    let (resource, level) = (signal.resource(), met.level);
    let limit = met.threshold.limit.of(level.capacity);
    let mut text = format!(
        "The node was low on resource: {resource}. Threshold quantity: {}, available: {}. ",
        signal.amount(limit),
        signal.amount(level.available)
    );
    for (name, id) in &of.containers {
        let used = amount(signal, usage.of_container(&of.uid, name, id, Disks::All));
        let spec = of.pod.all_containers().find(|c| c.name == *name);
        let requests =
            spec.and_then(|c| c.resources.as_ref()?.requests.as_ref()).map(Resources::of).unwrap_or_default();
        let requested = request(signal).map_or(0, |resource| requests.get(resource));
        if used > requested {
            text.push_str(&format!(
                "Container {name} was using {}, request is {}, has larger consumption of {resource}. ",
                signal.amount(used),
                signal.amount(requested)
            ));
        }
    }
    text
}
