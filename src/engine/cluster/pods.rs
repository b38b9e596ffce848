//! The pods that the API server binds to this node.
//!
//! Before the first complete list, the pods of the records are the list: the node continues where it was, also without the
//! server.

use super::mirrors::{Mirror, Mirrors};
use super::reflector::{Change, Reflector, Step};
use crate::api::cluster::final_ends::FinalEnds;
use crate::api::cluster::in_place;
use crate::api::cluster::pod_object::{self, MirrorOf, PodObject, Rejection};
use crate::api::cluster::request::{ApiError, ApiResponse};
use crate::api::cluster::watched::Watched;
use crate::api::document::Context;
use crate::api::names::{FullName, Uid};
use crate::api::pod::Pod;
use crate::api::time::Wall;
use crate::engine::context::Owner;
use crate::engine::effect::RecordChange;
use crate::engine::op::OpId;
use crate::engine::outbox::Outbox;
use k8s_openapi::api::core::v1 as core;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

/// The key of the record of the version.
pub const KEY: &str = "cluster/pods";
const VERSION: u64 = 1;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    version: u64,
    resource_version: String,
}

#[derive(Debug, Serialize)]
pub struct Pods {
    node: Rc<str>,
    pub reflector: Reflector<PodObject>,
    known: BTreeMap<Uid, Bound>,
    source: Source,
    pub mirrors: Mirrors,
}

/// Where the known pods are from (C3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum Source {
    /// The records of an earlier run. A pod without a record may be bound to this node as well.
    Records,
    /// A complete list of the server, since this start.
    Server,
}

/// A pod that is bound to this node.
#[derive(Debug, Serialize)]
pub struct Bound {
    pub name: FullName,
    /// Or why Wherry cannot run it.
    pub pod: Result<Rc<Pod>, Rejection>,
    /// The grace period of its deletion.
    pub deletion: Option<Duration>,
    /// The phase at the server is Succeeded or Failed.
    pub ended: bool,
    /// It has a record of an earlier run.
    pub recorded: bool,
    /// The generation of the spec that the running pod has; None: not known.
    pub generation: Option<i64>,
    /// For a pod with readiness gates: why it is not ready although its containers are.
    pub closed_gate: Option<String>,
}

impl Bound {
    fn is_same(&self, other: &Bound) -> bool {
        let Bound { name: _, pod, deletion, ended, recorded: _, generation, closed_gate } = self;
        let has_pod = match (pod, &other.pod) {
            (Ok(pod), Ok(other)) => Rc::ptr_eq(pod, other),
            (Err(why), Err(other)) => why == other,
            _ => false,
        };
        has_pod
            && (*deletion, *ended, *generation) == (other.deletion, other.ended, other.generation)
            && *closed_gate == other.closed_gate
    }
}

/// The status at the server.
#[derive(Debug, PartialEq)]
pub struct Stored {
    pub status: core::PodStatus,
    pub final_ends: FinalEnds,
    pub resource_version: String,
}

/// A change of the pods.
#[derive(Debug, PartialEq)]
pub enum Seen {
    /// Only the status, as the server has it: mostly one that this node has reported.
    Status(Uid, Box<Stored>),
    /// The same, of a pod that is new or has changed.
    Pod(Uid, Box<Stored>),
    /// The object does not exist any more.
    Gone(Uid),
    /// The mirror with this UID has this state.
    Mirror(Uid, Box<Stored>),
}

impl Pods {
    pub fn new(node: &str) -> Pods {
        let node: Rc<str> = node.into();
        Pods {
            reflector: Reflector::new(Watched::Pods(node.clone())),
            node,
            known: BTreeMap::new(),
            source: Source::Records,
            mirrors: Mirrors::default(),
        }
    }

    /// A pod of the records. `deletion`: the grace period of its deletion.
    pub fn recorded(&mut self, pod: &Rc<Pod>, deletion: Option<Duration>) {
        let (name, uid, pod) = (pod.name.clone(), pod.uid.clone(), Ok(pod.clone()));
        let bound = Bound { name, pod, deletion, ended: false, recorded: true, generation: None, closed_gate: None };
        self.known.insert(uid, bound);
    }

    /// There was a complete list since the start: each pod that is bound to this node is known.
    pub fn were_listed(&self) -> bool {
        self.source == Source::Server
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Uid, &Bound)> {
        self.known.iter()
    }

    pub fn get(&self, uid: &Uid) -> Option<&Bound> {
        self.known.get(uid)
    }

    pub fn item(&mut self, op: OpId, json: &[u8], step: &mut Step<'_>) {
        let seen = seen(step.wall);
        let context = Context::new(&self.node, &seen);
        self.reflector.item(op, json, &|object| pod_object::read(object, context), step);
    }

    pub fn line(&mut self, op: OpId, json: &[u8], step: &mut Step<'_>) -> Vec<Seen> {
        let seen = seen(step.wall);
        let context = Context::new(&self.node, &seen);
        let change = self.reflector.line(op, json, &|object| pod_object::read(object, context), step);
        change.map(|change| self.take(change, step.outbox)).unwrap_or_default()
    }

    /// Returns None if nothing has changed.
    pub fn ended(
        &mut self,
        op: OpId,
        result: &Result<ApiResponse, ApiError>,
        step: &mut Step<'_>,
    ) -> Option<Vec<Seen>> {
        self.reflector.ended(op, result, step).map(|change| self.take(change, step.outbox))
    }

    /// The version of an earlier run. An unusable one is moved aside.
    pub fn version_found(&mut self, text: &str, outbox: &mut Outbox) {
        match serde_json::from_str(text) {
            Ok(Record { version: VERSION, resource_version }) => self.reflector.not_older_than(resource_version),
            _ => {
                super::warn(outbox, format!("record {KEY} is unusable; moving it aside"));
                outbox.record(Owner::Cluster, RecordChange::SetAside { key: KEY.to_owned() });
            }
        }
    }

    /// C14: a list after the next start must not be older than the binding or the deletion of a pod.
    fn take(&mut self, change: Change<PodObject>, outbox: &mut Outbox) -> Vec<Seen> {
        let concerned = match &change {
            Change::Set(object) | Change::Gone(object) => Some(object.uid.clone()),
            Change::All(_) => None,
        };
        let bindings = |pods: &Pods| -> BTreeMap<Uid, bool> {
            let binding = |(uid, bound): (&Uid, &Bound)| (uid.clone(), bound.deletion.is_some());
            match &concerned {
                Some(uid) => pods.known.get_key_value(uid).map(binding).into_iter().collect(),
                None => pods.known.iter().map(binding).collect(),
            }
        };
        let before = bindings(self);
        let seen = self.apply(change);
        if let Some(version) = self.reflector.version().filter(|_| before != bindings(self)) {
            let record = Record { version: VERSION, resource_version: version.to_owned() };
            let value = serde_json::to_string(&record).unwrap_or_default();
            outbox.record(Owner::Cluster, RecordChange::Put { key: KEY.to_owned(), value });
        }
        seen
    }

    fn apply(&mut self, change: Change<PodObject>) -> Vec<Seen> {
        match change {
            Change::Set(object) => vec![self.set(object)],
            Change::Gone(object) => {
                self.known.remove(&object.uid);
                self.mirrors.gone(&object.uid);
                vec![Seen::Gone(object.uid)]
            }
            Change::All(objects) => {
                self.source = Source::Server;
                let listed: BTreeSet<Uid> = objects.iter().map(|object| object.uid.clone()).collect();
                let gone = self.known.keys().filter(|uid| !listed.contains(uid)).cloned();
                let mut seen: Vec<Seen> = gone.map(Seen::Gone).collect();
                self.known.retain(|uid, _| listed.contains(uid));
                self.mirrors.listed(BTreeMap::new());
                seen.extend(objects.into_iter().map(|object| self.set(object)));
                seen
            }
        }
    }

    fn set(&mut self, object: PodObject) -> Seen {
        let PodObject { uid, name, pod, deletion, status, final_ends, resource_version, mirror, generation, .. } =
            object;
        let deletion = deletion.map(|d| d.grace);
        if let Some(MirrorOf { uid: of, digest }) = mirror {
            self.mirrors.set(&uid, Mirror { name, of, digest, deletion });
            return Seen::Mirror(uid, Box::new(Stored { status, final_ends, resource_version }));
        }
        let phase = status.phase.as_deref();
        let ended = matches!(phase, Some("Succeeded" | "Failed"));
        let before = self.known.get(&uid);
        let recorded = before.is_some_and(|bound| bound.recorded);
        let (pod, generation) = match (before.map(|bound| (&bound.pod, bound.generation)), pod) {
            (Some((Ok(accepted), acted_on)), Ok(new)) => {
                let followed = in_place::followed(accepted, &new);
                let generation = if in_place::has_spec(&followed, &new) { generation } else { acted_on };
                (Ok(followed), generation)
            }
            (Some((Ok(accepted), acted_on)), Err(_)) => (Ok(accepted.clone()), acted_on),
            (_, pod) => (pod.map(Rc::from), generation),
        };
        let closed_gate = pod.as_ref().ok().and_then(|pod| in_place::closed_gate(pod.spec(), &status));
        let bound = Bound { name, pod, deletion, ended, recorded, generation, closed_gate };
        let stored = Box::new(Stored { status, final_ends, resource_version });
        let is_same = before.is_some_and(|before| before.is_same(&bound));
        self.known.insert(uid.clone(), bound);
        if is_same { Seen::Status(uid, stored) } else { Seen::Pod(uid, stored) }
    }
}

/// The time for the annotation `config.seen`.
fn seen(now: Wall) -> String {
    now.timestamp().map(|at| at.to_string()).unwrap_or_default()
}
