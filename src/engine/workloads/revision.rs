//! One revision of a workload: its template, and the pods that were created from it. kubectl sees the revisions of a
//! Deployment as ReplicaSets, and those of a DaemonSet or a StatefulSet as ControllerRevisions.

use crate::api::k8s::PodTemplateSpec;
use crate::api::names::{FullName, Uid};
use crate::api::ordered::OrderSlice;
use crate::api::pod::Pod;
use crate::api::time::{Boot, Wall};
use crate::api::uid;
use crate::api::workload::key::{WorkloadKey, WorkloadKind};
use serde::Serialize;
use serde_json::json;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// The annotation that ranks pods for deletion: those with a lower number go first. The default is 0.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
/// *(ours)* The number of pods that have ended and stay visible, for each revision.
const ENDED: usize = 3;

/// The hash of the only revision of an object without roll-outs: a ReplicaSet or a Job.
pub const NO_HASH: &str = "";

#[derive(Debug, Serialize)]
pub struct Revision {
    /// `NAMESPACE/WORKLOAD-HASH`.
    pub name: FullName,
    pub uid: Uid,
    /// The hash of the template.
    pub hash: String,
    /// The position in the history. An earlier template that is used again gets a new number.
    pub number: u64,
    #[serde(skip)]
    pub template: Rc<PodTemplateSpec>,
    /// The size of the template in JSON.
    pub template_bytes: usize,
    /// The annotations of the workload when this was its template.
    #[serde(skip)]
    pub annotations: BTreeMap<String, String>,
    #[serde(skip)]
    pub created: Wall,
    /// The number of pods that the roll-out of a Deployment assigns to this revision now.
    pub wanted: u32,
    pub replicas: BTreeMap<Uid, Replica>,
    /// The deleted pods that are still terminating.
    pub leaving: BTreeMap<Uid, FullName>,
}

/// A pod that is not deleted.
#[derive(Debug, Serialize)]
pub struct Replica {
    #[serde(skip)]
    pub pod: Rc<Pod>,
    /// The position in the order of creation.
    pub number: u64,
    pub state: ReplicaState,
}

/// What is known about a replica, from worst to best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ReplicaState {
    /// All containers have ended for good.
    Ended,
    Pending,
    Running {
        restarts: u32,
    },
    Ready {
        since: Boot,
        restarts: u32,
    },
}

/// The published state of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenPod {
    pub end: SeenEnd,
    pub runs: bool,
    pub is_ready: bool,
    pub restarts: u32,
}

/// Whether a pod will never run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeenEnd {
    Open,
    /// All containers have ended for good (W7).
    Ended,
    /// The node does not admit the pod (A3).
    Rejected,
}

impl ReplicaState {
    pub fn is_ready(self) -> bool {
        matches!(self, ReplicaState::Ready { .. })
    }

    /// Returns true if the pod has been ready for at least `min_ready`.
    pub fn is_available(self, min_ready: Duration, now: Boot) -> bool {
        match self {
            ReplicaState::Ready { since, .. } => now.since(since) >= min_ready,
            _ => false,
        }
    }

    fn after(self, seen: Option<SeenPod>, now: Boot) -> ReplicaState {
        match (self, seen) {
            (_, Some(SeenPod { end: SeenEnd::Ended, .. })) => ReplicaState::Ended,
            (ReplicaState::Ready { since, .. }, Some(SeenPod { is_ready: true, restarts, .. })) => {
                ReplicaState::Ready { since, restarts }
            }
            (_, Some(SeenPod { is_ready: true, restarts, .. })) => ReplicaState::Ready { since: now, restarts },
            (_, Some(SeenPod { runs: true, restarts, .. })) => ReplicaState::Running { restarts },
            (_, Some(_) | None) => ReplicaState::Pending,
        }
    }
}

/// Returns the name and the UID of the revision with this hash. A ReplicaSet or a Job is its own revision, and
/// a CronJob has none.
pub fn identity(owner: &WorkloadKey, hash: &str) -> (FullName, Uid) {
    let name = FullName::new(&owner.name.namespace, &format!("{}-{hash}", owner.name.name));
    let kind = match owner.kind {
        WorkloadKind::CronJob | WorkloadKind::ReplicaSet | WorkloadKind::Job => {
            return (owner.name.clone(), owner.uid());
        }
        WorkloadKind::Deployment => "ReplicaSet",
        WorkloadKind::DaemonSet | WorkloadKind::StatefulSet => "ControllerRevision",
    };
    let uid = Uid::from(uid::of_name(kind, &name.namespace, &name.name));
    (name, uid)
}

impl Revision {
    /// Makes the revision of this template.
    pub fn new(owner: &WorkloadKey, hash: String, number: u64, template: Rc<PodTemplateSpec>, now: Wall) -> Revision {
        let (name, uid) = identity(owner, &hash);
        let template_bytes = json!(*template).to_string().len();
        Revision {
            name,
            uid,
            hash,
            number,
            template,
            template_bytes,
            annotations: BTreeMap::new(),
            created: now,
            wanted: 0,
            replicas: BTreeMap::new(),
            leaving: BTreeMap::new(),
        }
    }

    /// Gives the revision another template, from which its new pods are created.
    pub fn set_template(&mut self, template: &Rc<PodTemplateSpec>) {
        self.template = template.clone();
        self.template_bytes = json!(**template).to_string().len();
    }

    /// Adds a pod that was created.
    pub fn add(&mut self, pod: Rc<Pod>, number: u64) {
        self.replicas.insert(pod.uid.clone(), Replica { pod, number, state: ReplicaState::Pending });
    }

    /// Takes over the published states of the pods.
    pub fn observe(&mut self, seen: impl Fn(&Uid) -> Option<SeenPod>, is_gone: impl Fn(&Uid) -> bool, now: Boot) {
        for (uid, replica) in &mut self.replicas {
            replica.state = replica.state.after(seen(uid), now);
        }
        self.leaving.retain(|uid, _| !is_gone(uid));
    }

    /// Deletes a pod.
    pub fn delete(&mut self, uid: &Uid) -> Option<Replica> {
        let replica = self.replicas.remove(uid)?;
        self.leaving.insert(uid.clone(), replica.pod.name.clone());
        Some(replica)
    }

    /// Deletes the oldest pods that have ended. Returns true if there were any.
    pub fn forget_ended(&mut self) -> bool {
        let mut ended: Vec<(u64, Uid)> = Vec::new();
        for (uid, replica) in &self.replicas {
            if replica.state == ReplicaState::Ended {
                ended.push((replica.number, uid.clone()));
            }
        }
        ended.order();
        let surplus = ended.len().saturating_sub(ENDED);
        for (_, uid) in ended.into_iter().take(surplus) {
            self.delete(&uid);
        }
        surplus > 0
    }

    /// Returns the pods that have not ended.
    pub fn active(&self) -> impl Iterator<Item = (&Uid, &Replica)> {
        self.replicas.iter().filter(|(_, replica)| replica.state != ReplicaState::Ended)
    }

    /// Returns the number of pods that have not ended.
    pub fn count(&self) -> u32 {
        count(self.active())
    }

    pub fn ready(&self) -> u32 {
        count(self.active().filter(|(_, replica)| replica.state.is_ready()))
    }

    /// Returns the number of pods that have been ready for at least `min_ready`.
    pub fn available(&self, min_ready: Duration, now: Boot) -> u32 {
        count(self.active().filter(|(_, replica)| replica.state.is_available(min_ready, now)))
    }

    /// Returns when the next pod becomes available, if it stays ready.
    pub fn next_available(&self, min_ready: Duration, now: Boot) -> Option<Boot> {
        let at = |replica: &Replica| match replica.state {
            ReplicaState::Ready { since, .. } => Some(since + min_ready).filter(|at| *at > now),
            _ => None,
        };
        self.active().filter_map(|(_, replica)| at(replica)).min()
    }

    /// Returns the pods to delete, in the order of a cluster: those that do not run, then those that are not ready,
    /// then those with the lowest deletion cost, the shortest time as ready, the most restarts, and the newest.
    pub fn surplus(&self) -> Vec<Uid> {
        let rank = |replica: &Replica| {
            let (state, since, restarts) = match replica.state {
                ReplicaState::Ended | ReplicaState::Pending => (0, None, 0),
                ReplicaState::Running { restarts } => (1, None, restarts),
                ReplicaState::Ready { since, restarts } => (2, Some(since), restarts),
            };
            (state, deletion_cost(&replica.pod), Reverse(since), Reverse(restarts), Reverse(replica.number))
        };
        let mut all: Vec<_> = self.active().map(|(uid, replica)| (rank(replica), uid.clone())).collect();
        all.order_by(|a, b| a.0.cmp(&b.0));
        let surplus = all.len().saturating_sub(usize::try_from(self.wanted).unwrap_or(usize::MAX));
        all.into_iter().take(surplus).map(|(_, uid)| uid).collect()
    }
}

fn count<'a>(replicas: impl Iterator<Item = (&'a Uid, &'a Replica)>) -> u32 {
    u32::try_from(replicas.count()).unwrap_or(u32::MAX)
}

fn deletion_cost(pod: &Pod) -> i32 {
    let annotations = pod.object.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(DELETION_COST)?.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::k8s;
    use crate::api::source::Source;

    fn key() -> WorkloadKey {
        WorkloadKey::new(WorkloadKind::Deployment, FullName::new("a", "web"))
    }

    fn pod(name: &str, cost: Option<&str>) -> Rc<Pod> {
        let mut object = k8s::Pod::default();
        object.metadata.annotations = cost.map(|cost| [(DELETION_COST.to_owned(), cost.to_owned())].into());
        Rc::new(Pod {
            uid: name.into(),
            name: FullName::new("a", name),
            source: Source { path: String::new(), document: 1 },
            digest: String::new(),
            object,
            ephemeral: Vec::new(),
        })
    }

    #[test]
    fn y5_pods_end_in_the_order_of_a_cluster() {
        let mut set = Revision::new(&key(), "h".into(), 1, Rc::default(), Wall(0));
        let ready = |since, restarts| ReplicaState::Ready { since: Boot(since), restarts };
        // The names are in the expected order.
        for (number, (name, cost, state)) in [
            ("i-oldest", None, ready(1, 0)),
            ("h-newest", None, ready(1, 0)),
            ("g-restarted", None, ready(1, 5)),
            ("f-ready-for-a-shorter-time", None, ready(2, 0)),
            ("e-cheap", Some("-1"), ready(1, 0)),
            ("j-expensive", Some("10"), ready(9, 9)),
            ("c-not-ready", None, ReplicaState::Running { restarts: 0 }),
            ("b-waits", None, ReplicaState::Pending),
            ("z-ended", None, ReplicaState::Ended),
        ]
        .into_iter()
        .enumerate()
        {
            set.add(pod(name, cost), number as u64);
            set.replicas.get_mut(&name.into()).expect("the pod").state = state;
        }
        let names: Vec<String> = set.surplus().iter().map(Uid::to_string).collect();
        let mut sorted = names.clone();
        sorted.sort();
        assert_eq!((names.len(), &names), (8, &sorted), "a pod that has ended does not count");
        set.wanted = 7;
        assert_eq!(set.surplus(), [Uid::from("b-waits")]);
    }

    #[test]
    fn y1_the_last_pods_that_have_ended_stay() {
        let mut set = Revision::new(&key(), "h".into(), 1, Rc::default(), Wall(0));
        for name in ["a", "b", "c", "d", "e"] {
            let number = set.replicas.len() as u64;
            set.add(pod(name, None), number);
        }
        let ended = SeenPod { end: SeenEnd::Ended, runs: false, is_ready: false, restarts: 0 };
        set.observe(|_| Some(ended), |_| false, Boot(0));
        assert!(set.forget_ended() && !set.forget_ended());
        assert_eq!(set.replicas.keys().map(Uid::as_str).collect::<Vec<_>>(), ["c", "d", "e"]);
        assert_eq!(set.count(), 0);
    }
}
