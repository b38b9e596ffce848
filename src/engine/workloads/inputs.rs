//! What the controllers of workloads need from the node, and how they create a pod.

use super::revision::{Replica, Revision, SeenPod};
use crate::api::document::context::Context;
use crate::api::k8s::{PodSpec, PodStatus};
use crate::api::names::{FullName, Uid};
use crate::api::pod::Pod;
use crate::api::time::Now;
use crate::api::workload::replica::{self, PodOwner};
use crate::api::workload::template;
use crate::engine::admission::placement::Placement;
use crate::engine::outbox::Outbox;
use crate::engine::rng::Rng;
use std::rc::Rc;

/// *(ours)* The maximum number of pods of all workloads, with those that are terminating. A short manifest can ask for
/// any number of pods, and each needs memory.
pub const MAX_PODS: usize = 1000;
/// The maximum number of names that are tried for a new pod.
const DRAWS: usize = 100;

/// What a step needs from the node.
pub struct WorkloadInputs<'a> {
    pub now: Now,
    pub node_name: &'a str,
    pub rng: &'a mut Rng,
    pub outbox: &'a mut Outbox,
    /// Returns the published state of a pod; None for a pod without a worker.
    pub seen: &'a dyn Fn(&Uid) -> Option<SeenPod>,
    /// Returns the published status of a pod.
    pub status: &'a dyn Fn(&Uid) -> Option<&'a PodStatus>,
    /// Returns true if nothing of a deleted pod is left.
    pub is_gone: &'a dyn Fn(&Uid) -> bool,
    /// Returns true if a pod has this UID, or a pod with this name has not ended yet.
    pub is_taken: &'a dyn Fn(&FullName, &Uid) -> bool,
    /// Gives a new pod the values of its classes (A5).
    pub accept: &'a dyn Fn(Pod) -> Result<Rc<Pod>, String>,
    /// Returns whether the node admits the pod of a DaemonSet.
    pub placement: &'a dyn Fn(&PodSpec) -> Placement,
}

/// The end of a pod's name.
#[derive(Clone, Copy, Debug)]
pub enum NameEnd {
    Random,
    /// The number of a StatefulSet's pod.
    Ordinal(u32),
    /// The index of a Job's pod, and random characters.
    Indexed(u32),
}

/// Makes a pod of a revision. The random numbers may repeat those of an earlier run, so they are drawn until the pod
/// differs from all others. `room`: how many pods may be created, by all workloads.
///
/// # Errors
/// There are too many pods, another pod has the name, or a class does not exist.
pub fn create_pod(
    owner: PodOwner<'_>,
    revision: &Revision,
    end: NameEnd,
    room: &mut usize,
    inputs: &mut WorkloadInputs<'_>,
) -> Result<Rc<Pod>, String> {
    if *room == 0 {
        return Err(format!("the workloads have {MAX_PODS} pods, which is the maximum; reduce spec.replicas of one"));
    }
    let seen = inputs.now.wall.timestamp().map(|time| time.to_string()).unwrap_or_default();
    let context = Context::new(inputs.node_name, &seen);
    for _ in 0..DRAWS {
        let end = match end {
            NameEnd::Random => template::suffix(inputs.rng.draw()),
            NameEnd::Ordinal(ordinal) => ordinal.to_string(),
            NameEnd::Indexed(index) => format!("{index}-{}", template::suffix(inputs.rng.draw())),
        };
        let random: String = (0..4).map(|_| format!("{:016x}", inputs.rng.draw())).collect();
        let pod = replica::new(owner, &revision.template, &end, random, context);
        // The pods of this step have no workers yet.
        let is_new = |other: &Replica| other.pod.uid != pod.uid && other.pod.name != pod.name;
        if !(inputs.is_taken)(&pod.name, &pod.uid) && revision.replicas.values().all(is_new) {
            let pod = (inputs.accept)(pod)?;
            *room -= 1;
            return Ok(pod);
        }
    }
    Err(match end {
        NameEnd::Random | NameEnd::Indexed(_) => "no name is free".to_owned(),
        NameEnd::Ordinal(ordinal) => format!("another pod has the name {}-{ordinal}", owner.name.name),
    })
}
