//! What the engine shows to the API and the commands: pods, health checks, counts.

use crate::api::facts::RuntimeFact;
use crate::api::k8s;
use crate::api::pod::Pod;
use crate::api::time::Wall;
use crate::engine::admission::Admission;
use crate::engine::pod::placement::Placement;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// The kubelet's message for a node that is not ready because it is shutting down.
pub const SHUTTING_DOWN: &str = "node is shutting down";

pub struct PodView<'a> {
    pub pod: &'a Rc<Pod>,
    pub status: &'a k8s::PodStatus,
    /// A manifest or the API server defines the pod.
    pub desired: bool,
    /// A3, A4: the state of its admission.
    pub admission: &'a Admission,
    /// For a pod that terminates because it is not desired or was evicted through the API: the time of the request, and
    /// the grace period in seconds.
    pub deletion: Option<(Wall, i64)>,
    pub placement: Placement,
}

/// One line of `/readyz?verbose`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    pub name: &'static str,
    pub result: Result<String, String>,
}

/// Counts and short texts for `wherry status` and the gauge metrics.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    pub runtime: Option<RuntimeFact>,
    pub runtime_up: bool,
    /// The runtime has reported its status since it was connected.
    pub runtime_answered: bool,
    pub runtime_error: Option<String>,
    /// The time since the start of the last successful relist.
    pub pleg_age: Option<Duration>,
    pub desired: usize,
    /// A1: pods that have a share of the node or wait for one.
    pub active: usize,
    /// A3: rejected pods.
    pub rejected: usize,
    /// A4: pods that wait for room.
    pub waiting_for_room: usize,
    /// A10: the node is cordoned.
    pub cordoned: bool,
    /// A10, A11: pods that wait for `uncordon`.
    pub waiting_for_uncordon: usize,
    /// W27: drained pods that are desired.
    pub drained: usize,
    /// The number of pods by (lifecycle, config), as in `kubelet_working_pods`. Rejected pods are not included,
    /// because a kubelet has no worker for them.
    pub working: BTreeMap<(&'static str, &'static str), usize>,
    /// The number of pods with a ready sandbox.
    pub running_pods: usize,
    /// The number of containers by state: created, running, exited, unknown.
    pub containers: BTreeMap<&'static str, usize>,
}
