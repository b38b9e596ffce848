//! The pods that the API server binds to this node.
//!
//! Before the first complete list, the pods of the records are the list: the node continues where it was, also without the
//! server.

use super::mirrors::{Mirror, Mirrors};
use super::reflector::{Change, Reflector, Step};
use crate::api::cluster::in_place;
use crate::api::cluster::pod_object::{self, MirrorOf, PodObject, Rejection};
use crate::api::cluster::request::{ApiError, ApiResponse};
use crate::api::cluster::watched::Watched;
use crate::api::document::Context;
use crate::api::names::{FullName, Uid};
use crate::api::pod::Pod;
use crate::api::time::Wall;
use crate::engine::op::OpId;
use k8s_openapi::api::core::v1 as core;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

#[derive(Debug, Serialize)]
pub struct Pods {
    node: Rc<str>,
    pub reflector: Reflector<PodObject>,
    known: BTreeMap<Uid, Bound>,
    pub mirrors: Mirrors,
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

/// The status at the server.
#[derive(Debug, PartialEq)]
pub struct Stored {
    pub status: core::PodStatus,
    pub resource_version: String,
}

/// A change of the pods.
#[derive(Debug, PartialEq)]
pub enum Seen {
    /// The state that the server has.
    Status(Uid, Box<Stored>),
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
            mirrors: Mirrors::default(),
        }
    }

    /// A pod of the records. `deletion`: the grace period of its deletion.
    pub fn recorded(&mut self, pod: &Rc<Pod>, deletion: Option<Duration>) {
        let (name, uid, pod) = (pod.name.clone(), pod.uid.clone(), Ok(pod.clone()));
        let bound = Bound { name, pod, deletion, ended: false, recorded: true, generation: None, closed_gate: None };
        self.known.insert(uid, bound);
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
        change.map(|change| self.take(change)).unwrap_or_default()
    }

    /// Returns None if nothing has changed.
    pub fn ended(
        &mut self,
        op: OpId,
        result: &Result<ApiResponse, ApiError>,
        step: &mut Step<'_>,
    ) -> Option<Vec<Seen>> {
        self.reflector.ended(op, result, step).map(|change| self.take(change))
    }

    fn take(&mut self, change: Change<PodObject>) -> Vec<Seen> {
        match change {
            Change::Set(object) => vec![self.set(object)],
            Change::Gone(object) => {
                self.known.remove(&object.uid);
                self.mirrors.gone(&object.uid);
                vec![Seen::Gone(object.uid)]
            }
            Change::All(objects) => {
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
        let PodObject { uid, name, pod, deletion, status, resource_version, mirror, generation, .. } = object;
        let deletion = deletion.map(|d| d.grace);
        if let Some(MirrorOf { uid: of, digest }) = mirror {
            self.mirrors.set(&uid, Mirror { name, of, digest, deletion });
            return Seen::Mirror(uid, Box::new(Stored { status, resource_version }));
        }
        let phase = status.phase.as_deref();
        let ended = matches!(phase, Some("Succeeded" | "Failed"));
        let before = self.known.get(&uid);
        let recorded = before.is_some_and(|bound| bound.recorded);
        let (pod, generation) = match (before.map(|bound| (&bound.pod, bound.generation)), pod) {
            (Some((Ok(accepted), _)), Ok(new)) if in_place::has_spec(accepted, &new) => {
                (Ok(in_place::followed(accepted, &new)), generation)
            }
            (Some((Ok(accepted), acted_on)), new) => {
                let followed = new.map_or_else(|_| accepted.clone(), |new| in_place::followed(accepted, &new));
                (Ok(followed), acted_on)
            }
            (_, pod) => (pod.map(Rc::from), generation),
        };
        let closed_gate = pod.as_ref().ok().and_then(|pod| in_place::closed_gate(pod.spec(), &status));
        let bound = Bound { name, pod, deletion, ended, recorded, generation, closed_gate };
        self.known.insert(uid.clone(), bound);
        Seen::Status(uid, Box::new(Stored { status, resource_version }))
    }
}

/// The time for the annotation `config.seen`.
fn seen(now: Wall) -> String {
    now.timestamp().map(|at| at.to_string()).unwrap_or_default()
}
