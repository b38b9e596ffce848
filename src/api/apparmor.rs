//! The AppArmor profile of a container: its own field, the pod's field, or the older annotation of the pod.

use crate::api::k8s::{AppArmorProfile, Container, Pod};

/// The prefix of the annotation for a container. The name of the container follows.
pub(crate) const ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile<'a> {
    RuntimeDefault,
    Unconfined,
    /// The name of a profile that is loaded in the kernel.
    Localhost(&'a str),
}

/// Returns the profile of a container. None leaves the choice to the runtime.
pub fn of<'a>(pod: &'a Pod, container: &'a Container) -> Option<Profile<'a>> {
    let own = container.security_context.as_ref().and_then(|context| context.app_armor_profile.as_ref());
    let of_pod = || {
        let context = pod.spec.as_ref()?.security_context.as_ref()?;
        context.app_armor_profile.as_ref()
    };
    let annotation = || {
        let annotations = pod.metadata.annotations.as_ref()?;
        let (_, value) = annotations.iter().find(|(key, _)| key.strip_prefix(ANNOTATION) == Some(&container.name))?;
        of_annotation(value)
    };
    own.or_else(of_pod).map(of_field).or_else(annotation)
}

fn of_field(profile: &AppArmorProfile) -> Profile<'_> {
    match profile.type_.as_str() {
        "Unconfined" => Profile::Unconfined,
        "Localhost" => Profile::Localhost(profile.localhost_profile.as_deref().unwrap_or_default()),
        _ => Profile::RuntimeDefault,
    }
}

/// Returns the profile in an annotation. None if the value is empty or not valid.
pub fn of_annotation(value: &str) -> Option<Profile<'_>> {
    match value {
        "runtime/default" => Some(Profile::RuntimeDefault),
        "unconfined" => Some(Profile::Unconfined),
        _ => value.strip_prefix("localhost/").filter(|name| !name.is_empty()).map(Profile::Localhost),
    }
}

/// Reports whether AppArmor has to enforce a profile for the pod.
pub fn is_required(pod: &Pod) -> bool {
    let spec = pod.spec.iter();
    let mut all = spec.flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers));
    all.any(|container| of(pod, container).is_some_and(|profile| profile != Profile::Unconfined))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(annotation: &str, of_pod: Option<&str>, own: Option<&str>) -> Pod {
        let profile = |kind: Option<&str>| match kind {
            Some("Localhost") => json!({"appArmorProfile": {"type": "Localhost", "localhostProfile": "mine"}}),
            Some(kind) => json!({"appArmorProfile": {"type": kind}}),
            None => json!({}),
        };
        serde_json::from_value(json!({
            "metadata": {"annotations": {format!("{ANNOTATION}main"): annotation,
                format!("{ANNOTATION}b"): "unconfined"}},
            "spec": {
                "securityContext": profile(of_pod),
                "containers": [{"name": "main", "securityContext": profile(own)}],
            },
        }))
        .expect("a pod")
    }

    #[test]
    fn the_container_precedes_the_pod_and_the_annotation() {
        for (annotation, of_pod, own, profile) in [
            ("", None, None, None),
            ("x", None, None, None),
            ("localhost/", None, None, None),
            ("localhost/a/b", None, None, Some(Profile::Localhost("a/b"))),
            ("runtime/default", None, None, Some(Profile::RuntimeDefault)),
            ("runtime/default", Some("Unconfined"), None, Some(Profile::Unconfined)),
            ("unconfined", Some("Unconfined"), Some("Localhost"), Some(Profile::Localhost("mine"))),
            ("unconfined", Some("Localhost"), Some("RuntimeDefault"), Some(Profile::RuntimeDefault)),
        ] {
            let pod = pod(annotation, of_pod, own);
            let container = &pod.spec.as_ref().expect("a spec").containers[0];
            assert_eq!(of(&pod, container), profile, "{annotation} {of_pod:?} {own:?}");
            let required = profile.is_some_and(|profile| profile != Profile::Unconfined);
            assert_eq!(is_required(&pod), required);
        }
    }
}
