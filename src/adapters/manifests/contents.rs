//! What a file says, given what it said before (D2): documents that did not change keep their pod, a broken one
//! keeps its last good version.

use crate::api::document::Document;
use crate::api::pod::Pod;
use crate::api::problem::Problem;
use serde_json::Value;
use std::rc::Rc;

/// A document in force.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) pod: Rc<Pod>,
    /// As it was written, until its record is: not held for longer.
    pub(super) content: Option<Value>,
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
    make: impl Fn(&Document) -> Result<Pod, Vec<Problem>>,
) -> (Vec<Held>, Vec<Problem>) {
    let unknown = old.is_none();
    let mut old: Vec<Option<Held>> = old.into_iter().flatten().map(Some).collect();
    let mut now: Vec<Held> = Vec::new();
    let mut problems = Vec::new();
    let mut broken = Vec::new();
    for document in documents {
        let same = |held: &Option<Held>| held.as_ref().is_some_and(|h| h.pod.digest == document.digest);
        if let Some(held) = old.iter_mut().find(|held| same(held)).and_then(Option::take) {
            now.push(held);
            continue;
        }
        match make(&document) {
            Ok(pod) => now.push(Held { pod: Rc::new(pod), content: Some(document.content) }),
            Err(more) => {
                problems.extend(more);
                if document.may_be_pod() {
                    broken.push((now.len(), document.name()));
                }
            }
        }
    }
    if unknown && !broken.is_empty() {
        old = recall().into_iter().map(Some).collect();
    }
    // What has a new good version is replaced, not kept.
    for held in &mut old {
        if held.as_ref().is_some_and(|h| now.iter().any(|n| n.pod.name == h.pod.name)) {
            *held = None;
        }
    }
    let mut kept = 0;
    let mut unsure = false;
    for (place, name) in broken {
        let last = name.and_then(|name| {
            old.iter_mut().find(|held| held.as_ref().is_some_and(|h| h.pod.name == name)).and_then(Option::take)
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
    (now, problems)
}
