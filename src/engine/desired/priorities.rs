//! A5, D2: gives each pod its priority once, when its version is new. A pod whose PriorityClass does not exist is not
//! accepted: its last good version stays in force.

use crate::api::objects::{AcceptedPod, Objects, PodDocument};
use crate::api::pod::Pod;
use crate::api::priority::{self, Classes, Given};
use crate::api::problem::Problem;
use std::rc::Rc;

/// The pods of a source, with their priorities.
#[derive(Debug, Default, PartialEq)]
pub struct Resolution {
    /// At most one version of each document, in the order of the documents.
    pub in_force: Vec<Rc<Pod>>,
    /// The versions that were new.
    pub accepted: Vec<AcceptedPod>,
    /// In the order of the documents of the classes, then of the pods.
    pub problems: Vec<Problem>,
}

pub fn resolve(objects: Objects) -> Resolution {
    let (classes, problems) = Classes::collect(&objects.classes);
    let mut resolution = Resolution { problems, ..Resolution::default() };
    for document in objects.pods {
        match document {
            PodDocument::Accepted(accepted) => {
                resolution.problems.extend(removed_class(&accepted, &classes));
                resolution.in_force.push(accepted.pod);
            }
            PodDocument::New { pod, last_good } => match classes.give(pod.spec()) {
                Ok(given) => {
                    let accepted = with_priority(pod, given);
                    resolution.in_force.push(accepted.pod.clone());
                    resolution.accepted.push(accepted);
                }
                Err(message) => {
                    resolution.problems.push(problem(&pod, message));
                    resolution.in_force.extend(last_good.map(|accepted| accepted.pod));
                }
            },
        }
    }
    resolution
}

fn with_priority(pod: Rc<Pod>, given: Option<Given>) -> AcceptedPod {
    // Without a class it remains the same `Rc`, which saves the memory of a copy.
    let Some(given) = given else { return AcceptedPod { pod, given } };
    let mut pod = Pod::clone(&pod);
    if let Some(spec) = &mut pod.object.spec {
        given.apply(spec);
    }
    AcceptedPod { pod: Rc::new(pod), given: Some(given) }
}

/// The problem of a pod that keeps its priority although its class was removed.
fn removed_class(accepted: &AcceptedPod, classes: &Classes) -> Option<Problem> {
    let given = accepted.given.as_ref().filter(|given| !given.by_default && !classes.knows(&given.class))?;
    let keeps = format!("; until then the pod keeps the priority {} that the class gave it", given.value);
    Some(problem(&accepted.pod, priority::not_found(&given.class) + &keeps))
}

fn problem(pod: &Pod, message: String) -> Problem {
    Problem {
        path: pod.source.path.clone(),
        document: pod.source.document,
        line: None,
        field: Some("spec.priorityClassName".to_owned()),
        message,
    }
}
