//! The pods that the API server binds to this node.
//!
//! Before the first complete list, Wherry uses the pods in its records, so that the node continues where it was even
//! without the server. Pods beyond what the node can hold are in `excess`.

use super::excess::{self, Excess, ExcessPod};
use super::mirrors::{Mirror, Mirrors};
use super::reflector::{Change, Gaps, Reflector, Step};
use super::stored::Stored;
use super::warning::warn;
use crate::api::cluster::in_place;
use crate::api::cluster::mirror::MIRROR;
use crate::api::cluster::pod_object::{self, MirrorOf, PodObject, Rejection};
use crate::api::cluster::request::{ApiError, ApiResponse};
use crate::api::cluster::watched::Watched;
use crate::api::document::context::Context;
use crate::api::names::{FullName, Uid};
use crate::api::ordered::CollectOrdered;
use crate::api::pod::Pod;
use crate::api::time::Wall;
use crate::engine::effect::RecordChange;
use crate::engine::op::OpId;
use crate::engine::outbox::Outbox;
use crate::engine::owner::Owner;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

/// The key of the record with the resource version.
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
    pub reflector: Reflector<Listed>,
    known: BTreeMap<Uid, Bound>,
    pub excess: Excess,
    /// The new pods of the list in flight.
    #[serde(skip)]
    new: New,
    source: Source,
    pub mirrors: Mirrors,
}

/// The maximum total size of the pods that are kept, as JSON in bytes.
const MOST_BYTES: usize = 32 << 20;

/// A pod from a list or a watch.
#[derive(Debug, PartialEq)]
pub enum Listed {
    Pod(Box<PodObject>),
    Excess(Box<ExcessPod>),
}

impl Listed {
    fn uid(&self) -> &Uid {
        match self {
            Listed::Pod(object) => &object.uid,
            Listed::Excess(pod) => &pod.uid,
        }
    }
}

/// The numbers of pods that were not known before.
#[derive(Clone, Copy, Debug, Default)]
struct New {
    live: usize,
    /// Terminated pods and mirrors.
    others: usize,
    /// Pods beyond the limits.
    excess: usize,
    bytes: usize,
}

/// Where the known pods come from (C3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum Source {
    /// The records of an earlier process. Pods without a record may also be bound to this node.
    Records,
    /// A complete list of the server, since this start.
    Server,
}

/// A pod that is bound to this node.
#[derive(Debug, Serialize)]
pub struct Bound {
    pub name: FullName,
    /// The pod, or why Wherry cannot run it.
    pub pod: Result<Rc<Pod>, Rejection>,
    /// The grace period of its deletion.
    pub deletion: Option<Duration>,
    /// The phase on the server is Succeeded or Failed.
    pub ended: bool,
    /// An earlier process has recorded the pod.
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

/// A change of the pods.
#[derive(Debug, PartialEq)]
pub enum Seen {
    /// At most the status on the server has changed, usually because this node has reported it.
    Status(Uid, Box<Stored>),
    /// The pod is new or has changed. The status is the one on the server.
    Pod(Uid, Box<Stored>),
    /// The object no longer exists.
    Gone(Uid),
    /// The mirror with this UID has this status on the server.
    Mirror(Uid, Box<Stored>),
}

impl Pods {
    pub fn new(node: &str) -> Pods {
        let node: Rc<str> = node.into();
        Pods {
            reflector: Reflector::new(Watched::Pods(node.clone())),
            node,
            known: BTreeMap::new(),
            excess: Excess::default(),
            new: New::default(),
            source: Source::Records,
            mirrors: Mirrors::default(),
        }
    }

    /// Takes a pod from its record. `deletion`: the grace period of its deletion.
    pub fn recorded(&mut self, pod: &Rc<Pod>, deletion: Option<Duration>) {
        let (name, uid, pod) = (pod.name.clone(), pod.uid.clone(), Ok(pod.clone()));
        let bound = Bound { name, pod, deletion, ended: false, recorded: true, generation: None, closed_gate: None };
        self.known.insert(uid, bound);
    }

    /// Returns true if there has been a complete list since the start, so that every pod bound to this node is known.
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
        let (seen, most) = (seen(step.wall), step.most_pods);
        let context = Context::new(&self.node, &seen);
        let Pods { reflector, known, new, excess, .. } = self;
        if reflector.arrived() == 0 {
            *new = New::default();
        }
        let (count, left_out) = (Cell::new(*new), Cell::new(0));
        let decode = |object: Value, bytes| {
            let read = read(object, bytes, context, known, most, &count);
            if matches!(read, Ok(Kept::Nothing)) && count.get().excess > excess::MOST {
                left_out.set(1);
            }
            read.map(Kept::listed)
        };
        reflector.item(op, json, &decode, step);
        *new = count.get();
        excess.leave_out(left_out.get());
    }

    pub fn line(&mut self, op: OpId, json: &[u8], step: &mut Step<'_>) -> Vec<Seen> {
        let (seen, most) = (seen(step.wall), step.most_pods);
        let context = Context::new(&self.node, &seen);
        let known = &self.known;
        let live = known.values().filter(|bound| !bound.ended).count();
        let count = Cell::new(New { live, others: known.len() - live, ..New::default() });
        let decode = |object: Value, bytes| read(object, bytes, context, known, most, &count).map(Kept::listed);
        let change = self.reflector.line(op, json, &decode, step);
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

    /// Takes the record with the resource version of an earlier process. An unusable record is moved aside.
    pub fn version_found(&mut self, text: &str, outbox: &mut Outbox) {
        match serde_json::from_str(text) {
            Ok(Record { version: VERSION, resource_version }) => self.reflector.not_older_than(resource_version),
            _ => {
                warn(outbox, format!("record {KEY} is unusable; moving it aside"));
                outbox.record(Owner::Cluster, RecordChange::SetAside { key: KEY.to_owned() });
            }
        }
    }

    /// Applies the change. C14: records the resource version if a pod was bound or deleted, because a list after the
    /// next start must not be older.
    fn take(&mut self, change: Change<Listed>, outbox: &mut Outbox) -> Vec<Seen> {
        let concerned = match &change {
            Change::Set(object) | Change::Gone(object) => Some(object.uid().clone()),
            Change::All(..) => None,
        };
        let bindings = |pods: &Pods| -> BTreeMap<Uid, bool> {
            let binding = |(uid, bound): (&Uid, &Bound)| (uid.clone(), bound.deletion.is_some());
            match &concerned {
                Some(uid) => pods.known.get_key_value(uid).map(binding).into_iter().collect_map(),
                None => pods.known.iter().map(binding).collect_map(),
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

    fn apply(&mut self, change: Change<Listed>) -> Vec<Seen> {
        match change {
            Change::Set(listed) => self.take_one(listed).into_iter().collect(),
            Change::Gone(listed) => {
                let uid = listed.uid();
                self.known.remove(uid);
                self.mirrors.gone(uid);
                self.excess.remove(uid);
                vec![Seen::Gone(uid.clone())]
            }
            Change::All(all, gaps) => {
                self.source = Source::Server;
                let listed: BTreeSet<Uid> = all.iter().map(|listed| listed.uid().clone()).collect_set();
                let stays = |uid: &Uid, bound: &Bound| listed.contains(uid) || may_be_listed(&gaps, uid, bound);
                let gone = self.known.iter().filter(|(uid, bound)| !stays(uid, bound)).map(|(uid, _)| uid.clone());
                let mut seen: Vec<Seen> = gone.map(Seen::Gone).collect();
                self.known.retain(|uid, bound| stays(uid, bound));
                self.excess.listed(|uid| listed.contains(uid));
                self.mirrors.listed(BTreeMap::new());
                seen.extend(all.into_iter().filter_map(|listed| self.take_one(listed)));
                seen
            }
        }
    }

    fn take_one(&mut self, listed: Listed) -> Option<Seen> {
        match listed {
            Listed::Pod(object) => {
                self.excess.remove(&object.uid);
                Some(self.set(*object))
            }
            Listed::Excess(pod) => {
                self.excess.set(*pod);
                None
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

/// C17: how much is kept of a pod.
enum Kept {
    All(Box<PodObject>),
    Excess(Box<ExcessPod>),
    /// The pod needs no action, or there are too many excess pods.
    Nothing,
}

impl Kept {
    fn listed(self) -> Option<Listed> {
        match self {
            Kept::All(object) => Some(Listed::Pod(object)),
            Kept::Excess(pod) => Some(Listed::Excess(pod)),
            Kept::Nothing => None,
        }
    }
}

/// Reads as much of a pod as is kept. C17: known pods are always read completely. `most`: the maximum number of new
/// live pods, and also of new terminated pods and mirrors.
fn read(
    object: Value,
    bytes: usize,
    context: Context<'_>,
    known: &BTreeMap<Uid, Bound>,
    most: usize,
    count: &Cell<New>,
) -> Result<Kept, String> {
    let metadata = &object["metadata"];
    let text = |field: &str| metadata[field].as_str().filter(|text| !text.is_empty());
    let is_known = text("uid").is_some_and(|uid| known.contains_key(&Uid::from(uid)));
    let has_ended = matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    let is_mirror = !metadata["annotations"][MIRROR].is_null();
    let mut new = count.get();
    let has_room = new.bytes + bytes <= MOST_BYTES;
    let number = if has_ended || is_mirror { &mut new.others } else { &mut new.live };
    if is_known || has_room && *number < most {
        if !is_known {
            *number += 1;
        }
        new.bytes += bytes;
        count.set(new);
        return pod_object::read(object, context).map(Box::new).map(Kept::All);
    }
    let is_deleted = !metadata["deletionTimestamp"].is_null();
    new.excess += 1;
    count.set(new);
    if (has_ended || is_mirror) && !is_deleted || new.excess > excess::MOST {
        return Ok(Kept::Nothing);
    }
    match (text("uid"), text("namespace"), text("name")) {
        (Some(uid), Some(namespace), Some(name)) => {
            let (uid, name) = (Uid::from(uid), FullName::new(namespace, name));
            Ok(Kept::Excess(Box::new(ExcessPod { uid, name, is_deleted })))
        }
        _ => Err("the pod has no UID, namespace or name".to_owned()),
    }
}

/// Returns true if an unusable item of the list may be this pod, so that the pod has to stay.
fn may_be_listed(gaps: &Gaps, uid: &Uid, bound: &Bound) -> bool {
    gaps.may_have(Some(uid.as_str()), &bound.name.namespace, &bound.name.name)
}

/// Returns the time for the `config.seen` annotation.
fn seen(now: Wall) -> String {
    now.timestamp().map(|at| at.to_string()).unwrap_or_default()
}
