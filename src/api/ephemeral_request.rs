//! Requests for ephemeral containers (W29): `accepted` builds the new list of a pod from a request, with the checks
//! and the messages of an API server.

use crate::api::ephemeral;
use crate::api::k8s;
use crate::api::pod::Pod;
use crate::api::{defaults, document, validate};
use serde_json::Value;
use std::fmt;

/// The maximum number of ephemeral containers of a pod. Ephemeral containers are never removed from a pod.
pub const MAX_CONTAINERS: usize = 32;
/// The maximum size of all ephemeral containers of a pod as JSON, in bytes. Each record of the pod contains them.
pub const MAX_BYTES: usize = 128 << 10;

/// The containers of a request. `Debug` shows only their number, because environments and commands can contain secrets.
#[derive(Clone, PartialEq, Eq)]
pub enum RequestedContainers {
    /// New containers. Existing containers may be repeated unchanged.
    More(Vec<Value>),
    /// The complete new list of the pod.
    All(Vec<Value>),
}

impl fmt::Debug for RequestedContainers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestedContainers::More(list) => write!(f, "More({} containers)", list.len()),
            RequestedContainers::All(list) => write!(f, "All({} containers)", list.len()),
        }
    }
}

/// A field of a request, and the error in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    pub field: String,
    pub message: String,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// Sets the defaults of an ephemeral container.
fn complete(spec: &mut k8s::EphemeralContainer) {
    let mut container = ephemeral::of(spec).container;
    defaults::complete_container(&mut container, false);
    spec.termination_message_path = container.termination_message_path;
    spec.termination_message_policy = container.termination_message_policy;
    spec.image_pull_policy = container.image_pull_policy;
    spec.resources = container.resources;
    spec.env = container.env;
    spec.target_container_name.take_if(|name| name.is_empty());
}

/// Returns the ephemeral containers that the pod has after the request.
///
/// # Errors
/// All errors of the list, or the first wrong type and the unknown fields.
pub fn accepted(pod: &Pod, wanted: &RequestedContainers) -> Result<Vec<k8s::EphemeralContainer>, Vec<Invalid>> {
    let at_list = |message: String| vec![Invalid { field: "spec.ephemeralContainers".to_owned(), message }];
    let (RequestedContainers::More(values) | RequestedContainers::All(values)) = wanted;
    // The list is not parsed if it cannot be accepted.
    if values.len() > MAX_CONTAINERS {
        return Err(at_list(format!("Too many: {}: must have at most {MAX_CONTAINERS} items", values.len())));
    }
    let faults = |all: Vec<crate::api::problem::Fault>| -> Vec<Invalid> {
        all.into_iter().map(|f| Invalid { field: f.at.to_string(), message: f.what.to_string() }).collect()
    };
    let mut list = document::ephemeral_from_value(values).map_err(faults)?;
    list.iter_mut().for_each(complete);
    let existing = pod.ephemeral_specs();
    if matches!(wanted, RequestedContainers::More(_)) {
        let repeated = |old: &k8s::EphemeralContainer| list.iter().any(|new| new.name == old.name);
        let mut all: Vec<_> = existing.iter().filter(|old| !repeated(old)).cloned().collect();
        all.append(&mut list);
        list = all;
    }
    let mut errors = faults(validate::ephemeral(pod.spec(), &list));
    for old in existing {
        let change = match list.iter().find(|new| new.name == old.name) {
            None => "removed",
            Some(new) if new != old => "changed",
            Some(_) => continue,
        };
        errors.extend(at_list(format!("Forbidden: existing ephemeral containers {:?} may not be {change}", old.name)));
    }
    let size = serde_json::to_vec(&list).map_or(usize::MAX, |json| json.len());
    if size > MAX_BYTES {
        errors.extend(at_list(format!("Too long: may not be more than {MAX_BYTES} bytes")));
    }
    if list.len() > MAX_CONTAINERS {
        errors.extend(at_list(format!("Too many: {}: must have at most {MAX_CONTAINERS} items", list.len())));
    }
    if errors.is_empty() { Ok(list) } else { Err(errors) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::document::context::Context;
    use serde_json::json;

    fn pod() -> Pod {
        let text = "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {volumes: [{name: v}], \
                    initContainers: [{name: i, image: i:1}], containers: [{name: m, image: i:1}]}}";
        document::read(text.as_bytes(), "/m/a.yaml", Context::new("lab", "2027-01-15T08:00:00Z")).0.remove(0)
    }

    fn with(pod: &Pod, wanted: RequestedContainers) -> Pod {
        pod.with_ephemeral(accepted(pod, &wanted).unwrap())
    }

    fn errors(pod: &Pod, wanted: &RequestedContainers) -> Vec<String> {
        accepted(pod, wanted).unwrap_err().iter().map(Invalid::to_string).collect()
    }

    #[test]
    fn w29_a_container_is_added_with_its_defaults() {
        let new = json!({ "name": "d", "image": "b:1", "targetContainerName": "m", "stdin": true, "resources": {} });
        let pod = with(&pod(), RequestedContainers::More(vec![new]));
        let d = pod.ephemeral("d").unwrap();
        assert_eq!((d.target.as_deref(), d.container.image_pull_policy.as_deref()), (Some("m"), Some("IfNotPresent")));
        assert_eq!(d.container.termination_message_path.as_deref(), Some("/dev/termination-log"));
        assert_eq!((pod.at(2).name.as_str(), pod.first_ephemeral()), ("d", 2));
        assert_eq!((pod.all_containers().count(), pod.every_container().count()), (2, 3));
        assert_eq!(pod.field_of("d"), "spec.ephemeralContainers{d}");
        assert_eq!(pod.field_of("i"), "spec.initContainers{i}");
        assert_eq!(pod.field_of("m"), "spec.containers{m}");
        // The containers that the pod shows can be sent again.
        let shown = serde_json::to_value(pod.ephemeral_specs()).unwrap().as_array().unwrap().clone();
        assert_eq!(accepted(&pod, &RequestedContainers::All(shown)).unwrap(), pod.ephemeral_specs());
    }

    #[test]
    fn w29_existing_containers_are_neither_changed_nor_removed() {
        let pod = with(&pod(), RequestedContainers::More(vec![json!({ "name": "d", "image": "b:1" })]));
        let second = json!({ "name": "e", "image": "b:1" });
        assert_eq!(with(&pod, RequestedContainers::More(vec![second.clone()])).ephemeral.len(), 2);
        let removed = "spec.ephemeralContainers: Forbidden: existing ephemeral containers \"d\" may not be removed";
        assert_eq!(errors(&pod, &RequestedContainers::All(vec![second])), [removed]);
        let other = json!({ "name": "d", "image": "b:2" });
        for wanted in [RequestedContainers::All(vec![other.clone()]), RequestedContainers::More(vec![other])] {
            assert_eq!(errors(&pod, &wanted), [removed.replace("removed", "changed")]);
        }
    }

    #[test]
    fn w29_a_list_is_checked_as_by_an_api_server() {
        let check = |containers: Value, expected: &[&str]| {
            let list = containers.as_array().unwrap().clone();
            let found = errors(&pod(), &RequestedContainers::All(list));
            let expected: Vec<String> = expected.iter().map(|e| format!("spec.ephemeralContainers{e}")).collect();
            assert_eq!(found, expected, "{containers}");
        };
        check(json!([{}]), &["[0].name: Required value", "[0].image: Required value"]);
        check(json!([{ "name": "m", "image": "b" }]), &["[0].name: Duplicate value: \"m\""]);
        check(json!([{ "name": "i", "image": "b" }]), &["[0].name: Duplicate value: \"i\""]);
        check(
            json!([{ "name": "d", "image": "b" }, { "name": "d", "image": "b" }]),
            &["[1].name: Duplicate value: \"d\""],
        );
        check(
            json!([{ "name": "d", "image": "b", "targetContainerName": "x" }]),
            &["[0].targetContainerName: Not found: \"x\""],
        );
        check(
            json!([{ "name": "d", "image": "b", "volumeMounts": [{ "name": "v", "mountPath": "/v",
                "subPath": "s" }] }]),
            &["[0].volumeMounts[0].subPath: Forbidden: cannot be set for an Ephemeral Container"],
        );
        check(json!([{ "name": "d", "image": "b", "imagee": 1 }]), &["[0].imagee: unknown field; did you mean image?"]);
        for (field, value) in [
            ("ports", json!([{ "containerPort": 80 }])),
            ("resources", json!({ "limits": { "memory": "1Gi" } })),
            ("livenessProbe", json!({ "exec": { "command": ["true"] } })),
            ("readinessProbe", json!({ "exec": { "command": ["true"] } })),
            ("startupProbe", json!({ "exec": { "command": ["true"] } })),
            ("lifecycle", json!({ "preStop": { "exec": { "command": ["true"] } } })),
            ("restartPolicy", json!("Always")),
            ("resizePolicy", json!([{ "resourceName": "cpu", "restartPolicy": "NotRequired" }])),
        ] {
            let mut container = json!({ "name": "d", "image": "b" });
            container[field] = value;
            check(json!([container]), &[&format!("[0].{field}: Forbidden: cannot be set for an Ephemeral Container")]);
        }
        let name = errors(&pod(), &RequestedContainers::More(vec![json!({ "name": "Not a label", "image": "b" })]));
        assert!(name[0].starts_with("spec.ephemeralContainers[0].name: Invalid value: \"Not a label\""), "{name:?}");
        let wrong = errors(&pod(), &RequestedContainers::More(vec![json!({ "name": 1, "image": "b" })]));
        assert!(wrong[0].starts_with("spec.ephemeralContainers[0].name: "), "{wrong:?}");
        assert!(!errors(&pod(), &RequestedContainers::More(vec![json!("text")])).is_empty());
    }

    #[test]
    fn w29_number_and_size_are_limited() {
        let many = |n: usize| (0..n).map(|i| json!({ "name": format!("d{i}"), "image": "b" })).collect();
        let too_many = "spec.ephemeralContainers: Too many: 33: must have at most 32 items";
        assert_eq!(errors(&pod(), &RequestedContainers::More(many(33))), [too_many]);
        let full = with(&pod(), RequestedContainers::More(many(32)));
        assert_eq!(errors(&full, &RequestedContainers::More(vec![json!({ "name": "x", "image": "b" })])), [too_many]);
        let large = json!({ "name": "d", "image": "b", "command": ["x".repeat(MAX_BYTES)] });
        let too_long = "spec.ephemeralContainers: Too long: may not be more than 131072 bytes";
        assert_eq!(errors(&pod(), &RequestedContainers::More(vec![large])), [too_long]);
    }

    #[test]
    fn secrets_of_a_request_are_not_shown() {
        let wanted =
            RequestedContainers::More(vec![json!({ "name": "d", "env": [{ "name": "A", "value": "password" }] })]);
        assert_eq!(format!("{wanted:?}"), "More(1 containers)");
    }
}
