//! In-place changes of a pod: determines whether two versions of a pod differ only in labels, annotations, and the
//! cpu and memory of containers (KEP-1287), and how each container gets its new amounts.
//!
//! Main containers and sidecars can be resized. As in Kubernetes 1.33, a resize must not remove a request or a limit
//! and must not change the QoS class, and pods with pod-level resources cannot be resized. In these cases the pod is
//! replaced.

use crate::api::apparmor;
use crate::api::k8s;
use crate::api::limits::{limits, requests};
use crate::api::names::annotation;
use crate::api::ordered::CollectOrdered;
use crate::api::pod::{Pod, is_sidecar};
use crate::api::pod_resources;
use crate::api::qos::Qos;
use crate::api::quantity::{Quantities, amount};
use crate::api::resources::{CPU, MEMORY};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const RESIZABLE: [&str; 2] = [CPU, MEMORY];

/// How a running container gets its new resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum How {
    Update,
    /// `resizePolicy` requires a restart for a resource that changes.
    Restart,
}

/// Reports whether `new` differs from `current` only in labels, annotations, and resources that can change while the
/// pod runs.
pub fn is_in_place(current: &Pod, new: &Pod) -> bool {
    current.name == new.name
        && without_amounts(current) == without_amounts(new)
        && if changes_amounts(current, new) { is_resize(current, new) } else { metadata(current) != metadata(new) }
}

/// Reports whether the requests or limits of a resizable container differ between two versions with the same
/// containers.
pub fn changes_amounts(current: &Pod, new: &Pod) -> bool {
    pairs(current, new).any(|(a, b)| a.resources != b.resources)
}

/// Returns the pod with the amounts of `new`. None if it has them already, or if the running pod cannot be resized to
/// them.
pub fn with_amounts(current: &Pod, new: &Pod) -> Option<Pod> {
    if !changes_amounts(current, new) {
        return None;
    }
    let mut resized = current.clone();
    let spec = resized.object.spec.as_mut()?;
    let sidecars = spec.init_containers.iter_mut().flatten().filter(|c| is_sidecar(c));
    let wanted = pairs(current, new).map(|(_, wanted)| wanted);
    for (container, wanted) in sidecars.chain(&mut spec.containers).zip(wanted) {
        container.resources.clone_from(&wanted.resources);
    }
    is_in_place(current, &resized).then_some(resized)
}

/// Reports whether the amounts of a running pod can be changed to those of `new`.
fn is_resize(current: &Pod, new: &Pod) -> bool {
    let (old, wanted) = (current.spec(), new.spec());
    !pod_resources::is_set(old)
        && !pod_resources::is_set(wanted)
        && pairs(current, new).all(|(a, b)| keeps_all(a, b))
        && Qos::of(old) == Qos::of(wanted)
}

/// Reports whether the document `new` still defines the pod `current`, although its UID differs: either it is the
/// same version, or `current` is running and can be changed to it in place.
pub fn continues(current: &Pod, new: &Pod, can_be_resized: bool) -> bool {
    let same_document = current.name == new.name && current.source == new.source;
    same_document && (current.digest == new.digest || can_be_resized && is_in_place(current, new))
}

/// Returns the new version with the identity of the current one.
pub fn continued(current: &Pod, new: &Pod) -> Pod {
    let mut pod = new.clone();
    pod.uid = current.uid.clone();
    let (metadata, old) = (&mut pod.object.metadata, &current.object.metadata);
    metadata.uid = old.uid.clone();
    for key in IDENTITY {
        let value = old.annotations.as_ref().and_then(|all| all.get(key)).cloned();
        if let Some(value) = value {
            metadata.annotations.get_or_insert_default().insert(key.into(), value);
        }
    }
    pod
}

/// Returns how the container gets the amounts of `new`. None if it has them already.
pub fn how(current: &k8s::Container, new: &k8s::Container) -> Option<How> {
    let changed = RESIZABLE.into_iter().filter(|resource| {
        let both = [requests, limits].map(|list| (amount(list(current), resource), amount(list(new), resource)));
        both.iter().any(|(a, b)| a != b)
    });
    let policy = |resource: &str| {
        let mut all = new.resize_policy.iter().flatten();
        match all.any(|p| p.resource_name == resource && p.restart_policy == "RestartContainer") {
            true => How::Restart,
            false => How::Update,
        }
    };
    changed.map(policy).max()
}

/// Returns the new memory limit in bytes, if it is lower than before or if there was none before.
pub fn lower_memory_limit(before: &k8s::ResourceRequirements, new: &k8s::Container) -> Option<u64> {
    let wanted = amount(limits(new), MEMORY)?;
    let before = amount(before.limits.as_ref(), MEMORY);
    before.is_none_or(|before| wanted < before).then(|| u64::try_from(wanted.value()).unwrap_or(0))
}

/// Returns the pod with the larger of the amounts before and after a resize. `before` has the old amounts of the
/// containers that have not been resized yet, by container name.
pub fn raised(pod: &Pod, before: &BTreeMap<&str, &k8s::ResourceRequirements>) -> Pod {
    let mut pod = pod.clone();
    let Some(spec) = &mut pod.object.spec else { return pod };
    let containers = spec.init_containers.iter_mut().flatten().chain(&mut spec.containers);
    for container in containers {
        let Some(before) = before.get(container.name.as_str()) else { continue };
        let now = container.resources.get_or_insert_default();
        raise(&mut now.requests, before.requests.as_ref());
        raise(&mut now.limits, before.limits.as_ref());
        // If the container had no limit before, it has none now.
        let had = |name: &str| before.limits.as_ref().is_some_and(|limits| limits.contains_key(name));
        if let Some(limits) = &mut now.limits {
            limits.retain(|name, _| !RESIZABLE.contains(&name.as_str()) || had(name));
        }
    }
    pod
}

const IDENTITY: [&str; 3] = [annotation::CONFIG_HASH, annotation::CONFIG_SEEN, annotation::CONFIG_SOURCE];

/// Returns pairs of the resizable containers: one container from each version.
fn pairs<'p>(a: &'p Pod, b: &'p Pod) -> impl Iterator<Item = (&'p k8s::Container, &'p k8s::Container)> {
    let of = |pod: &'p Pod| pod.init_containers().iter().filter(|c| is_sidecar(c)).chain(pod.containers());
    of(a).zip(of(b))
}

/// Reports whether `new` keeps all requests and limits, with any amounts.
fn keeps_all(current: &k8s::Container, new: &k8s::Container) -> bool {
    let kept = |list: fn(&k8s::Container) -> Option<&Quantities>| {
        let has = |c: &k8s::Container, resource| list(c).is_some_and(|all| all.contains_key(resource));
        RESIZABLE.into_iter().all(|resource| !has(current, resource) || has(new, resource))
    };
    kept(requests) && kept(limits)
}

/// Returns the labels, and the annotations that are not part of the pod's identity.
fn metadata(pod: &Pod) -> (BTreeMap<&str, &str>, BTreeMap<&str, &str>) {
    fn texts(map: Option<&BTreeMap<String, String>>) -> BTreeMap<&str, &str> {
        map.into_iter().flatten().map(|(key, value)| (key.as_str(), value.as_str())).collect_map()
    }
    let metadata = &pod.object.metadata;
    let mut annotations = texts(metadata.annotations.as_ref());
    annotations.retain(|key, _| !IDENTITY.contains(key));
    (texts(metadata.labels.as_ref()), annotations)
}

/// Returns the pod without its identity, labels, annotations and resizable amounts. Annotations that set AppArmor
/// profiles are kept, because a container gets its profile when it is created.
fn without_amounts(pod: &Pod) -> k8s::Pod {
    let mut object = pod.object.clone();
    object.metadata.uid = None;
    object.metadata.labels = None;
    let annotations = object.metadata.annotations.take().unwrap_or_default();
    let profiles: BTreeMap<_, _> =
        annotations.into_iter().filter(|(key, _)| key.starts_with(apparmor::ANNOTATION)).collect_map();
    object.metadata.annotations = Some(profiles);
    let Some(spec) = &mut object.spec else { return object };
    // Records of older versions contain the default.
    spec.dns_policy.get_or_insert_with(|| "ClusterFirst".to_owned());
    // Ephemeral containers belong to the running pod, not to a version of its manifest.
    spec.ephemeral_containers = None;
    let sidecars = spec.init_containers.iter_mut().flatten().filter(|c| is_sidecar(c));
    for container in sidecars.chain(&mut spec.containers) {
        let Some(resources) = &mut container.resources else { continue };
        for list in [&mut resources.requests, &mut resources.limits] {
            if let Some(amounts) = list {
                amounts.retain(|name, _| !RESIZABLE.contains(&name.as_str()));
            }
            list.take_if(|amounts| amounts.is_empty());
        }
        container.resources.take_if(|resources| **resources == k8s::ResourceRequirements::default());
    }
    object
}

/// Sets each amount to the larger of the two.
fn raise(now: &mut Option<Quantities>, before: Option<&Quantities>) {
    for resource in RESIZABLE {
        if let Some(written) = before.and_then(|before| before.get(resource))
            && amount(before, resource) > amount(now.as_ref(), resource)
        {
            now.get_or_insert_default().insert(resource.into(), written.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::document;
    use crate::api::document::context::Context;

    fn pod(uid: &str, spec: &str) -> Pod {
        let text = format!("{{apiVersion: v1, kind: Pod, metadata: {{name: a{uid}}}, spec: {{{spec}}}}}");
        let context = Context::new("lab", "2027-01-15T08:00:00Z");
        let (mut pods, problems) = document::read(text.as_bytes(), "/m/a.yaml", context);
        assert_eq!(problems, []);
        pods.remove(0)
    }

    fn one(resources: &str) -> Pod {
        pod("", &format!("containers: [{{name: m, image: 'i:1', resources: {resources}}}]"))
    }

    #[test]
    fn only_cpu_and_memory_can_change() {
        let current = one("{requests: {cpu: 100m, memory: 10Mi, ephemeral-storage: 1Gi}, limits: {memory: 20Mi}}");
        for (resources, is) in [
            ("{requests: {cpu: 200m, memory: 10Mi, ephemeral-storage: 1Gi}, limits: {memory: 20Mi}}", true),
            ("{requests: {cpu: 100m, memory: 10Mi, ephemeral-storage: 1Gi}, limits: {memory: 30Mi}}", true),
            // A limit is added.
            ("{requests: {cpu: 100m, memory: 10Mi, ephemeral-storage: 1Gi}, limits: {memory: 20Mi, cpu: 1}}", true),
            // The same amounts, written differently.
            ("{requests: {cpu: '0.1', memory: 10Mi, ephemeral-storage: 1Gi}, limits: {memory: 20Mi}}", true),
            // Nothing changes.
            ("{requests: {cpu: 100m, memory: 10Mi, ephemeral-storage: 1Gi}, limits: {memory: 20Mi}}", false),
            // An amount is removed.
            ("{requests: {cpu: 100m, memory: 10Mi, ephemeral-storage: 1Gi}}", false),
            // Another resource changes.
            ("{requests: {cpu: 200m, memory: 10Mi, ephemeral-storage: 2Gi}, limits: {memory: 20Mi}}", false),
            // The class becomes Guaranteed.
            ("{requests: {cpu: 1, memory: 20Mi, ephemeral-storage: 1Gi}, limits: {memory: 20Mi, cpu: 1}}", false),
        ] {
            assert_eq!(is_in_place(&current, &one(resources)), is, "{resources}");
        }
    }

    #[test]
    fn any_other_change_is_no_resize() {
        let current = one("{requests: {cpu: 100m}}");
        let other = |spec: &str| is_in_place(&current, &pod("", spec));
        assert!(other("containers: [{name: m, image: 'i:1', resources: {requests: {cpu: 1}}}]"));
        assert!(!other("containers: [{name: m, image: 'i:2', resources: {requests: {cpu: 1}}}]"));
        assert!(!other("hostNetwork: true, containers: [{name: m, image: 'i:1', resources: {requests: {cpu: 1}}}]"));
        let labelled =
            pod(", labels: {a: b}", "containers: [{name: m, image: 'i:1', resources: {requests: {cpu: 1}}}]");
        assert!(is_in_place(&current, &labelled) && changes_amounts(&current, &labelled));
        let only = |metadata: &str, image: &str| {
            pod(
                metadata,
                &format!("containers: [{{name: m, image: '{image}', resources: {{requests: {{cpu: 100m}}}}}}]"),
            )
        };
        let labels = only(", labels: {a: b}, annotations: {c: d}", "i:1");
        assert!(is_in_place(&current, &labels) && !changes_amounts(&current, &labels));
        assert!(!is_in_place(&current, &only(", labels: {a: b}", "i:2")));
        let profile = ", annotations: {container.apparmor.security.beta.kubernetes.io/m: unconfined}";
        assert!(!is_in_place(&current, &only(profile, "i:1")));
        assert!(!is_in_place(&current, &current), "nothing has changed");
        let init = |cpu: &str, policy: &str| {
            let init = format!("{{name: i, image: 'i:1', resources: {{requests: {{cpu: {cpu}}}}}{policy}}}");
            pod("", &format!("initContainers: [{init}], containers: [{{name: m, image: 'i:1'}}]"))
        };
        assert!(!is_in_place(&init("100m", ""), &init("200m", "")), "an init container runs once");
        assert!(is_resize(&init("100m", ", restartPolicy: Always"), &init("200m", ", restartPolicy: Always")));
    }

    #[test]
    fn a_continued_pod_has_its_identity_and_the_new_spec() {
        let (current, new) = (one("{requests: {cpu: 100m}}"), one("{requests: {cpu: 200m}}"));
        assert_ne!(current.uid, new.uid);
        let continued = continued(&current, &new);
        assert_eq!((&continued.uid, &continued.digest), (&current.uid, &new.digest));
        assert_eq!(continued.object.metadata, current.object.metadata);
        assert_eq!(continued.object.spec, new.object.spec);
    }

    #[test]
    fn the_policy_of_each_changed_resource_counts() {
        let policies = "resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}]";
        let with = |resources: &str| {
            pod("", &format!("containers: [{{name: m, image: 'i:1', resources: {resources}, {policies}}}]"))
        };
        let current = with("{requests: {cpu: 100m, memory: 1Mi}}");
        for (resources, wanted) in [
            ("{requests: {cpu: 200m, memory: 1Mi}}", Some(How::Update)),
            ("{requests: {cpu: 100m, memory: 2Mi}}", Some(How::Restart)),
            ("{requests: {cpu: 200m, memory: 2Mi}}", Some(How::Restart)),
            ("{requests: {cpu: '0.1', memory: 1Mi}}", None),
        ] {
            assert_eq!(how(current.at(0), with(resources).at(0)), wanted, "{resources}");
        }
    }

    #[test]
    fn the_raised_pod_has_the_larger_amounts() {
        let before = one("{requests: {cpu: 200m, memory: 1Mi}, limits: {memory: 4Mi}}");
        let after = one("{requests: {cpu: 100m, memory: 2Mi}, limits: {memory: 3Mi, cpu: 1}}");
        let old = before.at(0).resources.clone().unwrap();
        let raised = raised(&after, &[("m", &*old)].into());
        // The container had no cpu limit before the resize, so the raised pod has none.
        let wanted = one("{requests: {cpu: 200m, memory: 2Mi}, limits: {memory: 4Mi}}");
        assert_eq!(raised.at(0).resources, wanted.at(0).resources);
        // An added request applies at once.
        let small = one("{requests: {memory: 1Mi}}").at(0).resources.clone().unwrap();
        let raised = super::raised(&wanted, &[("m", &*small)].into());
        assert_eq!(
            raised.at(0).resources.as_ref().unwrap().requests,
            wanted.at(0).resources.as_ref().unwrap().requests
        );
        assert_eq!(lower_memory_limit(&old, after.at(0)), Some(3 << 20));
        assert_eq!(lower_memory_limit(after.at(0).resources.as_ref().unwrap(), before.at(0)), None);
    }
}
