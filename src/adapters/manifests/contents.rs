//! What a file says, given what it said before (D2): documents that did not change keep their object, a broken one
//! keeps its last good version.
//!
//! A pod is in force once it has its priority (A5). If its class is not there (yet), its last good version stays in force
//! meanwhile, as that of a broken document does.

use crate::api::document::{Document, Key, Object};
use crate::api::pod::Pod;
use crate::api::priority::{self, Classes, Given, PriorityClass};
use crate::api::problem::Problem;
use serde_json::Value;
use std::rc::Rc;

/// What a good document is.
#[derive(Clone, Debug)]
pub(super) enum Thing {
    Class(PriorityClass),
    /// With its priority.
    Pod(Rc<Pod>, Option<Given>),
    /// A pod whose priority is not known yet, and its last good version.
    Open(Rc<Pod>, Option<Box<Held>>),
}

/// A document in force, or one that waits for its class.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) thing: Thing,
    /// As it was written, in JSON, until its record is: not held for longer. (A tree of values takes ten times the memory, and leaves
    /// it in pieces.)
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

    /// One that was accepted before, with what it got from a class then (D2).
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

    /// Its number in the file.
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

    /// The version that counts: this one, or the last good one of a pod that waits for its class.
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

    /// The pod in force, if it is one.
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

    /// A pod that has no priority and no version in force.
    pub(super) fn is_lost(&self) -> bool {
        matches!(self.thing, Thing::Open(..)) && self.in_force().is_none()
    }

    /// What a pod was when it was last good, from its file's record: taken if it is this very document, else in force
    /// meanwhile. True if it had been lost.
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

    /// Gives a pod its priority, if that can be known. True if it came into force by this.
    pub(super) fn decide(&mut self, classes: &Classes) -> bool {
        let Thing::Open(pod, _) = &self.thing else { return false };
        let Ok(given) = classes.give(pod.spec()) else { return false };
        self.thing = match given {
            // The very same one.
            None => Thing::Pod(pod.clone(), None),
            given => with_priority(Pod::clone(pod), given),
        };
        true
    }

    /// What is wrong about its class: there is none, so it is not in force; or its class has gone, and it keeps what it got.
    pub(super) fn problem(&self, classes: &Classes) -> Option<Problem> {
        let (pod, message) = match &self.thing {
            Thing::Open(pod, _) => (pod, classes.give(pod.spec()).err()?),
            Thing::Pod(pod, Some(given)) if !given.by_default && !classes.knows(&given.class) => {
                let keeps = format!("; until then the pod keeps the priority {} that it got from it", given.value);
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

/// The documents in force after a file was read that could be taken apart, and all that is wrong in it.
///
/// A broken document of a known name keeps the version of that name. If it has no name, or a new one, nobody knows which
/// one it was: then everything that the file said and does not say otherwise now is kept.
///
/// `old` is what the file said; if that is not known (it is read for the first time) `recall` is asked, but only for the
/// sake of a broken document.
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
    // What has a new good version is replaced, not kept, or kept until that has its priority.
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

/// Takes what this document was the last time. One that is in force meanwhile may be meant again (an edit taken back).
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
