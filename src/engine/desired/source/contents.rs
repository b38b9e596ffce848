//! The documents of a file, compared with its previous documents (D2). An unchanged document keeps its object, a broken
//! one keeps its last good version.
//!
//! A pod is in force once its classes are known, because its priority is unknown before that (A5). Until then, the
//! last good version of the pod stays in force, as for a broken document.

use crate::api::claim::Claim;
use crate::api::data_object::DataObject;
use crate::api::document::{Document, Key, Object};
use crate::api::network_object::NetworkObject;
use crate::api::objects::{AcceptedPod, Given, PodDocument};
use crate::api::plain_object::PlainObject;
use crate::api::pod::Pod;
use crate::api::priority::{self, PriorityClass};
use crate::api::problem::Problem;
use crate::api::runtime_class::{self, RuntimeClass};
use crate::api::source::Source;
use crate::api::workload::Workload;
use serde_json::Value;
use std::rc::Rc;
use std::sync::Arc;

/// The object that a valid document defines.
#[derive(Clone, Debug)]
pub(super) enum Thing {
    Class(PriorityClass),
    RuntimeClass(RuntimeClass),
    Data(Rc<DataObject>),
    Claim(Rc<Claim>),
    Network(Rc<NetworkObject>),
    Plain(Rc<PlainObject>),
    Workload(Workload),
    /// A pod with the values of its classes.
    Accepted(AcceptedPod),
    /// A pod without the values of its classes, and its last good version.
    New(Rc<Pod>, Option<Box<Held>>),
}

/// A valid document.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) thing: Thing,
    /// The document as JSON text, until the record is known to have it. A tree of values would need ten times the
    /// memory and fragment it.
    pub(super) content: Option<Arc<str>>,
}

impl Held {
    pub(super) fn new(object: Object, content: &Value) -> Held {
        let thing = match object {
            Object::Pod(pod) => Thing::New(Rc::new(*pod), None),
            Object::PriorityClass(class) => Thing::Class(class),
            Object::RuntimeClass(class) => Thing::RuntimeClass(class),
            Object::Data(object) => Thing::Data(Rc::new(object)),
            Object::Claim(claim) => Thing::Claim(Rc::new(*claim)),
            Object::Network(object) => Thing::Network(Rc::new(*object)),
            Object::Plain(object) => Thing::Plain(Rc::new(*object)),
            Object::Workload(workload) => Thing::Workload(workload),
        };
        Held { thing, content: Some(content.to_string().into()) }
    }

    /// Makes a document from a record, with the values that its classes gave it (D2).
    pub(super) fn recorded(object: Object, given: Given, content: &Value) -> Held {
        let mut held = Held::new(object, content);
        if let Thing::New(pod, _) = held.thing {
            let mut pod = Rc::unwrap_or_clone(pod);
            if let Some(spec) = &mut pod.object.spec {
                given.apply(spec);
            }
            held.thing = Thing::Accepted(AcceptedPod { pod: Rc::new(pod), given });
        }
        held
    }

    pub(super) fn digest(&self) -> &str {
        match &self.thing {
            Thing::Class(class) => &class.digest,
            Thing::RuntimeClass(class) => &class.digest,
            Thing::Data(object) => &object.digest,
            Thing::Claim(claim) => &claim.digest,
            Thing::Network(object) => &object.digest,
            Thing::Plain(object) => &object.digest,
            Thing::Workload(workload) => &workload.head().digest,
            Thing::Accepted(AcceptedPod { pod, .. }) | Thing::New(pod, _) => &pod.digest,
        }
    }

    /// Returns the number of the document in its file.
    pub(super) fn number(&self) -> u32 {
        match &self.thing {
            Thing::Class(class) => class.source.document,
            Thing::RuntimeClass(class) => class.source.document,
            Thing::Data(object) => object.source.document,
            Thing::Claim(claim) => claim.source.document,
            Thing::Network(object) => object.source.document,
            Thing::Plain(object) => object.source.document,
            Thing::Workload(workload) => workload.head().source.document,
            Thing::Accepted(AcceptedPod { pod, .. }) | Thing::New(pod, _) => pod.source.document,
        }
    }

    pub(super) fn key(&self) -> Key {
        match &self.thing {
            Thing::Class(class) => Key::PriorityClass(class.name.clone()),
            Thing::RuntimeClass(class) => Key::RuntimeClass(class.name.clone()),
            Thing::Data(object) => Key::Data(object.key.clone()),
            Thing::Claim(claim) => Key::Claim(claim.key.clone()),
            Thing::Network(object) => Key::Network(object.key()),
            Thing::Plain(object) => Key::Plain(object.key.clone()),
            Thing::Workload(workload) => Key::Workload(workload.head().key.clone()),
            Thing::Accepted(AcceptedPod { pod, .. }) | Thing::New(pod, _) => Key::Pod(pod.name.clone()),
        }
    }

    /// Returns the version in force: this one, or the last good one of a new pod.
    pub(super) fn in_force(&self) -> Option<&Held> {
        match &self.thing {
            Thing::New(_, last_good) => last_good.as_deref().and_then(Held::in_force),
            _ => Some(self),
        }
    }

    pub(super) fn in_force_mut(&mut self) -> Option<&mut Held> {
        if matches!(self.thing, Thing::New(..)) {
            let Thing::New(_, last_good) = &mut self.thing else { return None };
            return last_good.as_deref_mut().and_then(Held::in_force_mut);
        }
        Some(self)
    }

    pub(super) fn class(&self) -> Option<&PriorityClass> {
        if let Thing::Class(class) = &self.thing { Some(class) } else { None }
    }

    pub(super) fn runtime_class(&self) -> Option<&RuntimeClass> {
        if let Thing::RuntimeClass(class) = &self.thing { Some(class) } else { None }
    }

    pub(super) fn data(&self) -> Option<&Rc<DataObject>> {
        if let Thing::Data(object) = &self.thing { Some(object) } else { None }
    }

    pub(super) fn claim(&self) -> Option<&Rc<Claim>> {
        if let Thing::Claim(claim) = &self.thing { Some(claim) } else { None }
    }

    pub(super) fn network(&self) -> Option<&Rc<NetworkObject>> {
        if let Thing::Network(object) = &self.thing { Some(object) } else { None }
    }

    pub(super) fn plain(&self) -> Option<&Rc<PlainObject>> {
        if let Thing::Plain(object) = &self.thing { Some(object) } else { None }
    }

    pub(super) fn workload(&self) -> Option<&Workload> {
        if let Thing::Workload(workload) = &self.thing { Some(workload) } else { None }
    }

    fn accepted(&self) -> Option<&AcceptedPod> {
        if let Thing::Accepted(pod) = &self.thing { Some(pod) } else { None }
    }

    /// Returns the values that an accepted pod got from its classes; none for other documents.
    pub(super) fn given(&self) -> Given {
        self.accepted().map(|accepted| accepted.given.clone()).unwrap_or_default()
    }

    /// Returns the document with its last good version; None if it is not a pod.
    pub(super) fn pod_document(&self) -> Option<PodDocument> {
        match &self.thing {
            Thing::Class(_)
            | Thing::RuntimeClass(_)
            | Thing::Data(_)
            | Thing::Claim(_)
            | Thing::Network(_)
            | Thing::Plain(_)
            | Thing::Workload(_) => None,
            Thing::Accepted(accepted) => Some(PodDocument::Accepted(accepted.clone())),
            Thing::New(pod, _) => {
                let last_good = self.in_force().and_then(Held::accepted).cloned();
                Some(PodDocument::New { pod: pod.clone(), last_good })
            }
        }
    }

    /// Returns the pod, if it does not have the values of its classes yet.
    pub(super) fn new_pod(&self) -> Option<&Rc<Pod>> {
        if let Thing::New(pod, _) = &self.thing { Some(pod) } else { None }
    }

    /// Returns true for a pod that needs the record of its file when the file is read for the first time: a version
    /// that was accepted earlier keeps the values of its classes, and a version whose class does not exist needs its
    /// last good version.
    fn needs_record(&self) -> bool {
        self.new_pod().is_some_and(|pod| {
            let spec = pod.spec();
            spec.priority.is_none() || priority::named(spec).is_some() || runtime_class::named(spec).is_some()
        })
    }
}

/// Returns the documents in force after a file was read and parsed, and all problems in it.
///
/// A broken document with a known name keeps the version of that name. If it has no name or a new one, the version that
/// it replaces is unknown. In this case all previous documents of the file stay in force, except those that have a new
/// good version.
///
/// `old` contains the previous documents of the file. It is None when the file is read for the first time; then
/// `recall` supplies them, but only if a document is broken, a pod needs its record, or an object has fields that must
/// stay.
pub(super) fn merge(
    old: Option<Vec<Held>>,
    recall: impl FnOnce() -> Vec<Held>,
    documents: Vec<Document>,
    make: impl Fn(&Document) -> Result<Object, Vec<Problem>>,
) -> (Vec<Held>, Vec<Problem>) {
    let mut recall = old.is_none().then_some(|| recall().into_iter().map(Some).collect::<Vec<_>>());
    let mut old: Vec<Option<Held>> = old.into_iter().flatten().map(Some).collect();
    let mut now: Vec<Held> = Vec::new();
    let mut problems = Vec::new();
    let mut broken = Vec::new();
    for document in documents {
        if let Some(held) = take_same(&mut old, &document.digest) {
            now.push(held);
            continue;
        }
        let made = make(&document);
        if made.as_ref().is_ok_and(may_be_fixed)
            && let Some(recall) = recall.take()
        {
            old = recall();
            now.iter_mut().for_each(|held| take_recorded(held, &mut old));
        }
        if let Some(held) = take_same(&mut old, &document.digest) {
            now.push(held);
            continue;
        }
        match made.and_then(|object| changeable(&old, object)) {
            Ok(object) => now.push(Held::new(object, &document.content)),
            Err(more) => {
                problems.extend(more);
                if document.may_be_ours() {
                    broken.push((now.len(), document.key()));
                }
            }
        }
    }
    if (!broken.is_empty() || now.iter().any(Held::needs_record))
        && let Some(recall) = recall.take()
    {
        old = recall();
        now.iter_mut().for_each(|held| take_recorded(held, &mut old));
    }
    replace_old(&mut old, &mut now);
    keep_broken(old, broken, &mut now);
    now.shrink_to_fit();
    (now, problems)
}

/// Continues with the recorded version of a document that has not changed.
fn take_recorded(held: &mut Held, recorded: &mut [Option<Held>]) {
    if let Some(same) = take_same(recorded, held.digest()) {
        *held = same;
    }
}

/// Returns true for an object of which an earlier version may not be changed.
fn may_be_fixed(object: &Object) -> bool {
    matches!(object, Object::Data(_) | Object::Claim(_) | Object::Workload(_))
}

/// Replaces the documents that have a new good version. A pod keeps the old version until the new one is accepted.
fn replace_old(old: &mut [Option<Held>], now: &mut [Held]) {
    for place in old {
        let Some(key) = place.as_ref().map(Held::key) else { continue };
        if let Some(new) = now.iter_mut().find(|new| new.key() == key)
            && let Some(held) = place.take()
            && let Thing::New(_, before @ None) = &mut new.thing
        {
            *before = last_good(held).map(Box::new);
        }
    }
}

/// Puts the last good versions of broken documents in their positions. `broken`: the position and the name of each.
fn keep_broken(mut old: Vec<Option<Held>>, broken: Vec<(usize, Option<Key>)>, now: &mut Vec<Held>) {
    let mut kept = 0;
    let mut unsure = false;
    for (place, key) in broken {
        let last = key.and_then(|key| {
            old.iter_mut().find(|held| held.as_ref().is_some_and(|h| h.key() == key)).and_then(Option::take)
        });
        match last {
            Some(held) => {
                now.insert(place + kept, held);
                kept += 1;
            }
            None => unsure = true,
        }
    }
    if unsure {
        now.extend(old.into_iter().flatten());
    }
}

/// Rejects a new version of an immutable ConfigMap or Secret, and one of a workload that changes a field that must
/// stay.
fn changeable(old: &[Option<Held>], object: Object) -> Result<Object, Vec<Problem>> {
    let old = || old.iter().flatten();
    let (source, field, message) = match &object {
        Object::Data(new) => {
            let held = old().filter_map(Held::data).find(|held| held.key == new.key);
            if !held.is_some_and(|held| held.immutable) {
                return Ok(object);
            }
            (&new.source, "data", "field is immutable when `immutable` is set; to change the values,")
        }
        Object::Claim(new) => {
            let held = old().filter_map(Held::claim).find(|held| held.key == new.key);
            match held.and_then(|held| held.immutable_difference(new)) {
                None => return Ok(object),
                Some(field) => {
                    let message = "spec is immutable after creation except resources.requests; to change it,";
                    (&new.source, field, message)
                }
            }
        }
        Object::Workload(new) => {
            let held = old().filter_map(Held::workload).find(|held| held.head().key == new.head().key);
            match held.and_then(|held| held.immutable_difference(new)) {
                None => return Ok(object),
                Some(field) => (&new.head().source, field, "field is immutable; to change it,"),
            }
        }
        Object::Pod(_) | Object::PriorityClass(_) | Object::RuntimeClass(_) | Object::Network(_) | Object::Plain(_) => {
            return Ok(object);
        }
    };
    let Source { path, document } = source.clone();
    let message = format!("Forbidden: {message} remove the file and add it again");
    Err(vec![Problem { path, document, line: None, field: Some(field.to_owned()), message }])
}

/// Takes the previous version of this document. After a reverted edit, this is the version that stayed in force.
fn take_same(old: &mut [Option<Held>], digest: &str) -> Option<Held> {
    let place = old.iter_mut().find(|place| {
        let same = |held: &Held| held.digest() == digest;
        place.as_ref().is_some_and(|held| same(held) || held.in_force().is_some_and(same))
    })?;
    let held = place.take()?;
    if held.digest() == digest { Some(held) } else { last_good(held) }
}

fn last_good(held: Held) -> Option<Held> {
    match held.thing {
        Thing::New(_, before) => before.and_then(|before| last_good(*before)),
        _ => Some(held),
    }
}
