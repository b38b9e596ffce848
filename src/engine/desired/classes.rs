//! A5, D2: gives each pod the values of its PriorityClass and its RuntimeClass once for each new version of the pod.
//! A pod whose class does not exist is not accepted: its last good version stays in force.

use crate::api::k8s::PodSpec;
use crate::api::objects::{AcceptedPod, Given, Objects, PodDocument};
use crate::api::pod::Pod;
use crate::api::priority::{self, Classes};
use crate::api::problem::Problem;
use crate::api::runtime_class::RuntimeClasses;
use crate::api::source::Source;
use crate::api::workload::Workload;
use std::rc::Rc;

/// The pods of a source, with the values of their classes.
#[derive(Debug, Default, PartialEq)]
pub struct Resolution {
    /// The pods in force: at most one version of each document, in the order of the documents.
    pub in_force: Vec<Rc<Pod>>,
    /// The versions that were new.
    pub accepted: Vec<AcceptedPod>,
    /// The problems of the classes, then those of the pods, in the order of the documents.
    pub problems: Vec<Problem>,
    pub runtime_classes: RuntimeClasses,
}

pub fn resolve(objects: Objects) -> Resolution {
    let (classes, mut problems) = Classes::collect(&objects.classes);
    let (runtime_classes, more) = RuntimeClasses::collect(objects.runtime_classes);
    problems.extend(more);
    let mut resolution = Resolution { problems, runtime_classes, ..Resolution::default() };
    for document in objects.pods {
        match document {
            PodDocument::Accepted(accepted) => {
                resolution.problems.extend(removed_class(&accepted, &classes));
                resolution.problems.extend(removed_runtime_class(&accepted.pod, &resolution.runtime_classes));
                resolution.in_force.push(accepted.pod);
            }
            PodDocument::New { pod, last_good } => match give(&pod, &classes, &resolution.runtime_classes) {
                Ok(given) => {
                    let accepted = with_values(pod, given);
                    resolution.in_force.push(accepted.pod.clone());
                    resolution.accepted.push(accepted);
                }
                Err(problem) => {
                    resolution.problems.push(problem);
                    resolution.in_force.extend(last_good.map(|accepted| accepted.pod));
                }
            },
        }
    }
    resolution
}

/// Returns the values that a pod gets from its classes.
///
/// # Errors
/// The first class that does not exist or contradicts the spec.
pub fn give(pod: &Pod, classes: &Classes, runtime_classes: &RuntimeClasses) -> Result<Given, Problem> {
    give_spec(pod.spec(), classes, runtime_classes).map_err(|(field, message)| problem(pod, field, message))
}

/// Returns the field and the message of the first class in the template of a workload that does not exist or
/// contradicts the spec.
pub fn missing_in_template(
    workload: &Workload,
    classes: &Classes,
    runtime_classes: &RuntimeClasses,
) -> Option<Problem> {
    let (field, message) = give_spec(workload.head().template.spec.as_ref()?, classes, runtime_classes).err()?;
    let Source { path, document } = workload.head().source.clone();
    Some(Problem { path, document, line: None, field: Some(format!("spec.template.{field}")), message })
}

/// Returns the values that a spec gets from its classes.
///
/// # Errors
/// The field, and the message.
fn give_spec(
    spec: &PodSpec,
    classes: &Classes,
    runtime_classes: &RuntimeClasses,
) -> Result<Given, (&'static str, String)> {
    let priority = classes.give(spec).map_err(|message| ("spec.priorityClassName", message))?;
    let runtime_class = runtime_classes.give(spec)?;
    Ok(Given { priority, runtime_class })
}

/// Sets the values in the pod.
pub fn with_values(pod: Rc<Pod>, given: Given) -> AcceptedPod {
    // Without a class, the pod remains the same `Rc`, which saves the memory of a copy.
    if given.is_nothing() {
        return AcceptedPod { pod, given };
    }
    let mut pod = Pod::clone(&pod);
    if let Some(spec) = &mut pod.object.spec {
        given.apply(spec);
    }
    AcceptedPod { pod: Rc::new(pod), given }
}

/// Returns the problem of a pod that keeps its priority although its class was removed.
fn removed_class(accepted: &AcceptedPod, classes: &Classes) -> Option<Problem> {
    let given = accepted.given.priority.as_ref().filter(|given| !given.by_default && !classes.knows(&given.class))?;
    let keeps = format!("; until then the pod keeps the priority {} that the class gave it", given.value);
    Some(problem(&accepted.pod, "spec.priorityClassName", priority::not_found(&given.class) + &keeps))
}

/// Returns the problem of a pod that could not get a new sandbox, because its class was removed.
fn removed_runtime_class(pod: &Pod, classes: &RuntimeClasses) -> Option<Problem> {
    let message = classes.handler(pod.spec()).err()?;
    Some(problem(pod, "spec.runtimeClassName", message + "; until then the pod gets no new sandbox"))
}

fn problem(pod: &Pod, field: &str, message: String) -> Problem {
    Problem {
        path: pod.source.path.clone(),
        document: pod.source.document,
        line: None,
        field: Some(field.to_owned()),
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::document::context::Context;
    use crate::api::document::{self, Object};

    /// Returns the objects in this text, none of which has been accepted yet.
    fn objects(text: &str) -> Objects {
        let context = Context::new("lab", "2027-01-15T08:00:00Z");
        let (found, problems) = document::read_objects(text.as_bytes(), "/m/a.yaml", context);
        assert_eq!(problems, []);
        let mut objects = Objects::default();
        for object in found {
            match object {
                Object::Pod(pod) => objects.pods.push(PodDocument::New { pod: Rc::new(*pod), last_good: None }),
                Object::PriorityClass(class) => objects.classes.push(class),
                Object::RuntimeClass(class) => objects.runtime_classes.push(class),
                Object::Data(_) | Object::Claim(_) | Object::Network(_) | Object::Plain(_) | Object::Workload(_) => {}
            }
        }
        objects
    }

    fn class(name: &str, more: &str) -> String {
        format!(
            "---\n{{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {{name: {name}}}, \
             value: 5{more}}}\n"
        )
    }

    fn pod(spec: &str) -> String {
        format!(
            "---\n{{apiVersion: v1, kind: Pod, metadata: {{name: web}}, spec: {{{spec}containers: [{{name: m, \
             image: 'i:1'}}]}}}}\n"
        )
    }

    fn new_pod(objects: &Objects) -> Rc<Pod> {
        let [PodDocument::New { pod, .. }] = objects.pods.as_slice() else { panic!("one new pod: {objects:?}") };
        pod.clone()
    }

    #[test]
    fn a5_a_new_pod_gets_the_priority_of_its_class_and_is_accepted() {
        let resolution = resolve(objects(&(pod("priorityClassName: gold, ") + &class("gold", ""))));
        let [accepted] = resolution.accepted.as_slice() else { panic!("{resolution:?}") };
        assert!(Rc::ptr_eq(&accepted.pod, &resolution.in_force[0]));
        assert_eq!((priority::of(accepted.pod.spec()), resolution.problems.len()), (5, 0));
        assert_eq!(accepted.given.priority.as_ref().map(|given| &*given.class), Some("gold"));
    }

    #[test]
    fn a5_a_pod_without_a_class_is_accepted_unchanged() {
        let objects = objects(&pod(""));
        let pod = new_pod(&objects);
        let resolution = resolve(objects);
        assert!(Rc::ptr_eq(&resolution.accepted[0].pod, &pod) && resolution.accepted[0].given.is_nothing());
    }

    #[test]
    fn a5_an_accepted_pod_keeps_its_priority() {
        let first = resolve(objects(&(pod("") + &class("usual", ", globalDefault: true"))));
        let pods: Vec<PodDocument> = first.accepted.iter().cloned().map(PodDocument::Accepted).collect();
        // A pod that names no class has no problem when the default class is removed.
        let again = resolve(Objects { pods, ..Objects::default() });
        assert_eq!((&again.in_force, &again.accepted, &again.problems), (&first.in_force, &vec![], &vec![]));
        assert_eq!(priority::of(again.in_force[0].spec()), 5);
    }

    #[test]
    fn d2_without_its_class_a_pod_is_not_accepted_and_its_last_good_version_stays_in_force() {
        let last_good = resolve(objects(&pod(""))).accepted.remove(0);
        let mut objects = objects(&pod("priorityClassName: gold, "));
        assert_eq!(resolve(objects.clone()).in_force, []);
        objects.pods = vec![PodDocument::New { pod: new_pod(&objects), last_good: Some(last_good.clone()) }];
        let resolution = resolve(objects);
        assert_eq!((&resolution.in_force, &resolution.accepted), (&vec![last_good.pod], &vec![]));
        let problems: Vec<String> = resolution.problems.iter().map(ToString::to_string).collect();
        assert_eq!(
            problems,
            ["/m/a.yaml: spec.priorityClassName: no PriorityClass with name gold was found; add a manifest of kind \
              PriorityClass with this name"]
        );
    }
}
