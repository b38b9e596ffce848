//! Amounts of memory and storage that are not a whole number of bytes. They are valid, and almost always a mistake:
//! `512m` is half a byte.

use crate::api::k8s::{Pod, ResourceRequirements};
use crate::api::problem::{At, Fault, Faults};
use crate::api::quantity::{Quantities, Quantity};

pub(crate) fn parts_of_bytes(pod: &Pod) -> Vec<Fault> {
    let mut faults = Faults::default();
    let root = At::Root;
    let at = root.field("spec");
    let Some(spec) = &pod.spec else { return faults.0 };
    of_resources(spec.resources.as_deref(), at, &mut faults);
    let init = spec.init_containers.as_deref().unwrap_or_default();
    for (field, list) in [("initContainers", init), ("containers", &spec.containers)] {
        let at = at.field(field);
        for (i, container) in list.iter().enumerate() {
            of_resources(container.resources.as_deref(), at.item(i), &mut faults);
        }
    }
    let at_volumes = at.field("volumes");
    for (i, volume) in spec.volumes.iter().flatten().enumerate() {
        let at = at_volumes.item(i);
        if let Some(limit) = volume.empty_dir.as_ref().and_then(|dir| dir.size_limit.as_ref()) {
            one(&limit.0, at.field("emptyDir").field("sizeLimit"), &mut faults);
        }
    }
    faults.0
}

fn of_resources(resources: Option<&ResourceRequirements>, at: At<'_>, faults: &mut Faults) {
    let Some(resources) = resources else { return };
    let at = at.field("resources");
    let limits = resources.limits.as_ref();
    // A request that was defaulted from its limit is not in the document.
    let defaulted = |name: &str, written| limits.and_then(|limits| limits.get(name)) == Some(written);
    let empty = Quantities::new();
    for (name, written) in limits.unwrap_or(&empty).iter().filter(|(name, _)| is_in_bytes(name)) {
        one(&written.0, at.field("limits").key(name), faults);
    }
    for (name, written) in resources.requests.iter().flatten().filter(|(name, _)| is_in_bytes(name)) {
        if !defaulted(name, written) {
            one(&written.0, at.field("requests").key(name), faults);
        }
    }
}

fn is_in_bytes(resource: &str) -> bool {
    matches!(resource, "memory" | "ephemeral-storage") || resource.starts_with("hugepages-")
}

fn one(written: &str, at: At<'_>, faults: &mut Faults) {
    if Quantity::parse(written).map_or(true, Quantity::is_whole) {
        return;
    }
    let remedy = match written.strip_suffix('m') {
        Some(number) => format!(": m means thousandths; write {number}Mi or {number}M"),
        None => "; it is rounded up".to_owned(),
    };
    faults.add(at, format!("{written:?} is not a whole number of bytes{remedy}"));
}
