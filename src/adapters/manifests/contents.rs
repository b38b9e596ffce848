//! The documents of a file, compared with its previous documents (D2). An unchanged document keeps its object, a broken
//! one keeps its last good version.
//!
//! A pod is in force once it has its priority (A5). While its PriorityClass does not exist, the last good version of
//! the pod stays in force, as for a broken document.

use crate::api::document::{Document, Key, Object};
use crate::api::pod::Pod;
use crate::api::priority::{self, Classes, Given, PriorityClass};
use crate::api::problem::Problem;
use serde_json::Value;
use std::rc::Rc;

/// The object that a valid document defines.
#[derive(Clone, Debug)]
pub(super) enum Thing {
    Class(PriorityClass),
    /// A pod and the priority that it got from a PriorityClass, if any.
    Pod(Rc<Pod>, Option<Given>),
    /// A pod whose priority is not known yet, and its last good version.
    Open(Rc<Pod>, Option<Box<Held>>),
}

/// A document in force, or one that waits for its PriorityClass.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) thing: Thing,
    /// The document as JSON text, dropped once its record is written. (A tree of values needs ten times the memory and
    /// fragments it.)
    pub(super) content: Option<Box<str>>,
}

impl Held {
    pub(super) fn new(object: Object, content: Option<&Value>) -> Held {
        let thing = match object {
            Object::Pod(pod) => Thing::Open(Rc::new(*pod), None),
            Object::PriorityClass(class) => Thing::Class(class),
        };
        Held { thing, content: content.map(|content| content.to_string().into()) }
    }

    /// A document accepted earlier, with the priority that its PriorityClass gave it then (D2).
    pub(super) fn accepted(object: Object, given: Option<Given>) -> Held {
        let thing = match object {
            Object::Pod(pod) if given.is_some() || priority::named(pod.spec()).is_none() => with_priority(*pod, given),
            Object::Pod(pod) => Thing::Open(Rc::new(*pod), None),
            Object::PriorityClass(class) => Thing::Class(class),
        };
        Held { thing, content: None }
    }

    pub(super) fn digest(&self) -> &str {
        match &self.thing {
            Thing::Class(class) => &class.digest,
            Thing::Pod(pod, _) | Thing::Open(pod, _) => &pod.digest,
        }
    }

    /// The number of the document in its file.
    pub(super) fn number(&self) -> u32 {
        match &self.thing {
            Thing::Class(class) => class.source.document,
            Thing::Pod(pod, _) | Thing::Open(pod, _) => pod.source.document,
        }
    }

    fn key(&self) -> Key {
        match &self.thing {
            Thing::Class(class) => Key::PriorityClass(class.name.clone()),
            Thing::Pod(pod, _) | Thing::Open(pod, _) => Key::Pod(pod.name.clone()),
        }
    }

    /// The version in force: this one, or the last good one of a pod that waits for its PriorityClass.
    pub(super) fn in_force(&self) -> Option<&Held> {
        match &self.thing {
            Thing::Open(_, before) => before.as_deref().and_then(Held::in_force),
            _ => Some(self),
        }
    }

    pub(super) fn in_force_mut(&mut self) -> Option<&mut Held> {
        if matches!(self.thing, Thing::Open(..)) {
            let Thing::Open(_, before) = &mut self.thing else { return None };
            return before.as_deref_mut().and_then(Held::in_force_mut);
        }
        Some(self)
    }

    /// The pod in force; None for a PriorityClass.
    pub(super) fn pod(&self) -> Option<&Rc<Pod>> {
        match &self.in_force()?.thing {
            Thing::Pod(pod, _) => Some(pod),
            _ => None,
        }
    }

    pub(super) fn class(&self) -> Option<&PriorityClass> {
        if let Thing::Class(class) = &self.thing { Some(class) } else { None }
    }

    pub(super) fn given(&self) -> Option<&Given> {
        if let Thing::Pod(_, given) = &self.thing { given.as_ref() } else { None }
    }

    /// True for a pod that has no priority and no version in force.
    pub(super) fn is_lost(&self) -> bool {
        matches!(self.thing, Thing::Open(..)) && self.in_force().is_none()
    }

    /// Takes the last good version of a pod from the record of its file. If the recorded document is the same, it
    /// replaces this one. Otherwise it stays in force until the pod has a priority. Returns true if a version is in
    /// force as a result.
    pub(super) fn recall(&mut self, recorded: &[Held]) -> bool {
        let Thing::Open(pod, None) = &mut self.thing else { return false };
        let name = Key::Pod(pod.name.clone());
        let same = |held: &&Held| held.digest() == pod.digest && held.given().is_some();
        if let Some(held) = recorded.iter().find(same) {
            *self = held.clone();
            return true;
        }
        let before = recorded.iter().find(|held| held.key() == name && held.in_force().is_some());
        self.thing = Thing::Open(pod.clone(), before.cloned().map(Box::new));
        before.is_some()
    }

    /// Gives a pod its priority if it can be determined. Returns true if this brings the pod into force.
    pub(super) fn decide(&mut self, classes: &Classes) -> bool {
        let Thing::Open(pod, _) = &self.thing else { return false };
        let Ok(given) = classes.give(pod.spec()) else { return false };
        self.thing = match given {
            // Keeps the same `Rc`, so that the pod counts as unchanged.
            None => Thing::Pod(pod.clone(), None),
            given => with_priority(Pod::clone(pod), given),
        };
        true
    }

    /// The problem with the pod's PriorityClass: it does not exist, so the pod is not in force; or it was removed, and
    /// the pod keeps the priority that it got.
    pub(super) fn problem(&self, classes: &Classes) -> Option<Problem> {
        let (pod, message) = match &self.thing {
            Thing::Open(pod, _) => (pod, classes.give(pod.spec()).err()?),
            Thing::Pod(pod, Some(given)) if !given.by_default && !classes.knows(&given.class) => {
                let keeps = format!("; until then the pod keeps the priority {} that the class gave it", given.value);
                (pod, priority::not_found(&given.class) + &keeps)
            }
            _ => return None,
        };
        Some(Problem {
            path: pod.source.path.clone(),
            document: pod.source.document,
            line: None,
            field: Some("spec.priorityClassName".to_owned()),
            message,
        })
    }
}

fn with_priority(mut pod: Pod, given: Option<Given>) -> Thing {
    if let (Some(given), Some(spec)) = (&given, &mut pod.object.spec) {
        given.apply(spec);
    }
    Thing::Pod(Rc::new(pod), given)
}

/// Returns the documents in force after a file was read and parsed, and all problems in it.
///
/// A broken document with a known name keeps the version of that name. If it has no name or a new one, the version that
/// it replaces is unknown. In this case all previous documents of the file stay in force, except those that have a new
/// good version.
///
/// `old` contains the previous documents of the file. It is None when the file is read for the first time; then
/// `recall` supplies them, but only if a document is broken.
pub(super) fn merge(
    old: Option<Vec<Held>>,
    recall: impl FnOnce() -> Vec<Held>,
    documents: Vec<Document>,
    make: impl Fn(&Document) -> Result<Object, Vec<Problem>>,
) -> (Vec<Held>, Vec<Problem>) {
    let unknown = old.is_none();
    let mut old: Vec<Option<Held>> = old.into_iter().flatten().map(Some).collect();
    let mut now: Vec<Held> = Vec::new();
    let mut problems = Vec::new();
    let mut broken = Vec::new();
    for document in documents {
        if let Some(held) = take_same(&mut old, &document.digest) {
            now.push(held);
            continue;
        }
        match make(&document) {
            Ok(object) => now.push(Held::new(object, Some(&document.content))),
            Err(more) => {
                problems.extend(more);
                if document.may_be_ours() {
                    broken.push((now.len(), document.key()));
                }
            }
        }
    }
    if unknown && !broken.is_empty() {
        old = recall().into_iter().map(Some).collect();
    }
    // A document with a new good version is replaced. A pod keeps the old version until the new one has its priority.
    for place in &mut old {
        let Some(key) = place.as_ref().map(Held::key) else { continue };
        if let Some(new) = now.iter_mut().find(|new| new.key() == key)
            && let Some(held) = place.take()
            && let Thing::Open(_, before @ None) = &mut new.thing
        {
            *before = last_good(held).map(Box::new);
        }
    }
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
    now.shrink_to_fit();
    (now, problems)
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
        Thing::Open(_, before) => before.and_then(|before| last_good(*before)),
        _ => Some(held),
    }
}
