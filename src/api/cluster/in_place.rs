//! The changes of a pod's object that the running pod follows: labels, annotations, ephemeral containers, and the
//! fields of the spec that an API server lets users change. Everything else stays as it was when the node accepted
//! the pod.

use crate::api::k8s;
use crate::api::names::annotation;
use crate::api::pod::Pod;
use crate::api::resize;
use std::rc::Rc;

/// Returns the accepted pod with the changes of `new` that a running pod follows.
pub fn followed(accepted: &Rc<Pod>, new: &Pod) -> Rc<Pod> {
    let mut annotations = new.object.metadata.annotations.clone();
    // This is the time at which this node first saw the pod.
    if let (Some(annotations), Some(seen)) = (&mut annotations, annotation_of(accepted, annotation::CONFIG_SEEN)) {
        annotations.insert(annotation::CONFIG_SEEN.to_owned(), seen.clone());
    }
    let mut pod = (**accepted).clone();
    pod.object.metadata.labels.clone_from(&new.object.metadata.labels);
    pod.object.metadata.annotations = annotations;
    if accepted.ephemeral_specs() != new.ephemeral_specs() {
        pod = pod.with_ephemeral(new.ephemeral_specs().to_vec());
    }
    take_images(&mut pod, new);
    take_tolerations_and_deadline(&mut pod, new);
    let pod = resize::with_amounts(&pod, new).unwrap_or(pod);
    if pod.object == accepted.object { accepted.clone() } else { Rc::new(pod) }
}

/// Gives the containers, except ephemeral ones, the images of `new`.
pub fn take_images(pod: &mut Pod, new: &Pod) {
    let Some(spec) = &mut pod.object.spec else { return };
    let all = spec.init_containers.iter_mut().flatten().chain(&mut spec.containers);
    for (container, wanted) in all.zip(new.all_containers()).filter(|(container, wanted)| container.name == wanted.name)
    {
        container.image.clone_from(&wanted.image);
    }
}

/// Returns true if the containers of both pods, except ephemeral ones, have the same images.
pub fn has_images(pod: &Pod, new: &Pod) -> bool {
    pod.all_containers().zip(new.all_containers()).all(|(ours, theirs)| ours.image == theirs.image)
}

/// Gives the pod the tolerations of `new`, and its deadline if the pod has none or a later one.
pub fn take_tolerations_and_deadline(pod: &mut Pod, new: &Pod) {
    let Some(spec) = &mut pod.object.spec else { return };
    spec.tolerations.clone_from(&new.spec().tolerations);
    let before = spec.active_deadline_seconds;
    if let Some(wanted) = new.spec().active_deadline_seconds
        && before.is_none_or(|before| wanted < before)
    {
        spec.active_deadline_seconds = Some(wanted);
    }
}

pub fn has_tolerations_and_deadline(pod: &Pod, new: &Pod) -> bool {
    let of = |pod: &Pod| (pod.spec().tolerations.clone(), pod.spec().active_deadline_seconds);
    of(pod) == of(new)
}

fn annotation_of<'p>(pod: &'p Pod, key: &str) -> Option<&'p String> {
    pod.object.metadata.annotations.as_ref()?.get(key)
}

/// Returns true if the running pod has the whole spec of `new`, which means that the node has acted on its
/// generation.
pub fn has_spec(accepted: &Pod, new: &Pod) -> bool {
    let of = |pod: &Pod| k8s::PodSpec { ephemeral_containers: None, ..pod.spec().clone() };
    of(accepted) == of(new)
}

/// Returns the reason why the pod's `readinessGates` keep it from being Ready, in a kubelet's words. `stored`: the
/// status on the server.
pub fn closed_gate(spec: &k8s::PodSpec, stored: &k8s::PodStatus) -> Option<String> {
    let closed = spec.readiness_gates.iter().flatten().filter_map(|gate| {
        let name = &gate.condition_type;
        let found = stored.conditions.iter().flatten().find(|condition| condition.type_ == *name);
        match found.map(|condition| condition.status.as_str()) {
            Some("True") => None,
            Some(status) => Some(format!("the status of pod readiness gate {name:?} is not \"True\", but {status}")),
            None => Some(format!("corresponding condition of pod readiness gate {name:?} does not exist.")),
        }
    });
    let closed: Vec<String> = closed.collect();
    (!closed.is_empty()).then(|| closed.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::document;
    use crate::api::document::context::Context;
    use serde_json::json;

    fn pod(labels: &str, image: &str, seen: &str) -> Rc<Pod> {
        let text = format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: web, labels: {{{labels}}}}}, \
             spec: {{containers: [{{name: main, \
             image: '{image}'}}]}}}}"
        );
        let mut pod = document::read(text.as_bytes(), "/m/a.yaml", Context::new("lab", "")).0.remove(0);
        let annotations = pod.object.metadata.annotations.get_or_insert_default();
        annotations.insert(annotation::CONFIG_SEEN.to_owned(), seen.to_owned());
        Rc::new(pod)
    }

    fn with_spec(spec: &str) -> Rc<Pod> {
        let text = format!("{{apiVersion: v1, kind: Pod, metadata: {{name: web}}, spec: {{{spec}}}}}");
        Rc::new(document::read(text.as_bytes(), "/m/a.yaml", Context::new("lab", "")).0.remove(0))
    }

    #[test]
    fn a_running_pod_follows_what_can_change_while_it_runs() {
        let spec = |image: &str, cpu: &str, more: &str| {
            with_spec(&format!(
                "initContainers: [{{name: i, image: 'i:{image}'}}], containers: [{{name: main, image: 'm:{image}', \
                 resources: {{requests: {{cpu: {cpu}}}}}}}]{more}"
            ))
        };
        let accepted = spec("1", "1", "");
        let new = spec("2", "2", ", activeDeadlineSeconds: 9, tolerations: [{key: a, operator: Exists}]");
        let pod = followed(&accepted, &new);
        assert!(has_spec(&pod, &new) && !has_spec(&accepted, &new));
        assert_eq!(pod.digest, accepted.digest);
        // A deadline can only become earlier.
        let later = followed(&pod, &spec("2", "2", ", activeDeadlineSeconds: 10"));
        assert_eq!(later.spec().active_deadline_seconds, Some(9));
        // A resource request cannot be removed, but the other changes are still made.
        let without = with_spec("initContainers: [{name: i, image: 'i:3'}], containers: [{name: main, image: 'm:3'}]");
        let pod = followed(&accepted, &without);
        assert_eq!((pod.at(1).image.as_deref(), &pod.at(1).resources), (Some("m:3"), &accepted.at(1).resources));
        assert!(!has_spec(&pod, &without));
    }

    #[test]
    fn a_running_pod_follows_labels_and_images() {
        let accepted = pod("a: x", "i:1", "then");
        assert!(Rc::ptr_eq(&followed(&accepted, &pod("a: x", "i:1", "now")), &accepted));
        let other = pod("a: z", "i:2", "now");
        let followed = followed(&accepted, &other);
        assert_eq!(followed.object.metadata.labels, other.object.metadata.labels);
        assert_eq!(annotation_of(&followed, annotation::CONFIG_SEEN).map(String::as_str), Some("then"));
        assert_eq!((followed.at(0).image.as_deref(), &followed.digest), (Some("i:2"), &accepted.digest));
        assert!(!has_spec(&accepted, &other) && has_spec(&accepted, &pod("a: z", "i:1", "now")));
    }

    #[test]
    fn a_gate_is_open_if_its_condition_is_true() {
        let spec: k8s::PodSpec =
            serde_json::from_value(json!({ "containers": [], "readinessGates": [{ "conditionType": "a" }] })).unwrap();
        let stored = |conditions| serde_json::from_value(json!({ "conditions": conditions })).unwrap();
        let condition = |status| json!([{ "type": "a", "status": status }]);
        assert_eq!(closed_gate(&spec, &stored(condition("True"))), None);
        let why = closed_gate(&spec, &stored(condition("False"))).unwrap();
        assert_eq!(why, "the status of pod readiness gate \"a\" is not \"True\", but False");
        let why = closed_gate(&spec, &stored(json!([]))).unwrap();
        assert_eq!(why, "corresponding condition of pod readiness gate \"a\" does not exist.");
    }
}
