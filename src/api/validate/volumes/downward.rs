//! Files of the downward API: one field of the pod, or one resource of a container.

use super::paths::{file_path, mode};
use crate::api::k8s::{DownwardAPIVolumeFile, ObjectFieldSelector, PodSpec, ResourceFieldSelector};
use crate::api::problem::{At, Faults};
use crate::api::quantity::Quantity;
use crate::api::validate::complaints::complain;
use crate::api::validate::syntax;

const FIELDS: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
const CPU_DIVISORS: [&str; 2] = ["1m", "1"];
const DIVISORS: [&str; 13] = ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];

pub(super) fn file(file: &DownwardAPIVolumeFile, spec: &PodSpec, at: At<'_>, faults: &mut Faults) {
    file_path(&file.path, at.field("path"), faults);
    mode(file.mode, at.field("mode"), faults);
    match (&file.field_ref, &file.resource_field_ref) {
        (Some(_), Some(_)) => {
            faults.invalid(at, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously");
        }
        (None, None) => faults.required(at, "one of fieldRef and resourceFieldRef is required"),
        (Some(selector), None) => field(selector, at.field("fieldRef"), faults),
        (None, Some(selector)) => resource(selector, spec, at.field("resourceFieldRef"), faults),
    }
}

fn field(selector: &ObjectFieldSelector, at: At<'_>, faults: &mut Faults) {
    let version = selector.api_version.as_deref().unwrap_or("v1");
    if version != "v1" {
        faults.invalid(at.field("apiVersion"), version, "only v1 is supported");
    }
    let at = at.field("fieldPath");
    let path = selector.field_path.as_str();
    let subscript = path.split_once("['").and_then(|(path, key)| Some((path, key.strip_suffix("']")?)));
    match subscript {
        _ if path.is_empty() => faults.required(at, ""),
        Some(("metadata.labels", key)) => complain(syntax::qualified_name(key), key, at, faults),
        Some(("metadata.annotations", key)) => {
            complain(syntax::qualified_name(&key.to_lowercase()), key, at, faults);
        }
        Some((path, _)) => faults.invalid(at, path, "does not support subscript"),
        None if !FIELDS.contains(&path) => faults.unsupported_value(at, path, &FIELDS),
        None => {}
    }
}

fn resource(selector: &ResourceFieldSelector, spec: &PodSpec, at: At<'_>, faults: &mut Faults) {
    let at_name = at.field("containerName");
    let mut containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    match selector.container_name.as_deref() {
        None | Some("") => faults.required(at_name, ""),
        Some(name) if containers.any(|container| container.name == name) => {}
        Some(name) => faults.not_found(at_name, name),
    }
    let name = selector.resource.as_str();
    let pages = ["limits.hugepages-", "requests.hugepages-"].iter().any(|prefix| name.starts_with(prefix));
    if name.is_empty() {
        return faults.required(at.field("resource"), "");
    }
    if !pages && !RESOURCES.contains(&name) {
        return faults.unsupported_value(at.field("resource"), name, &RESOURCES);
    }
    let (supported, of): (&[&str], &str) = match name.split_once('.') {
        Some((_, "cpu")) => (&CPU_DIVISORS, "cpu"),
        Some((_, "memory")) => (&DIVISORS, "memory"),
        Some((_, "ephemeral-storage")) => (&DIVISORS, "local ephemeral storage"),
        _ => (&DIVISORS, "hugepages"),
    };
    let Some(divisor) = &selector.divisor else { return };
    let at = at.field("divisor");
    match Quantity::parse(&divisor.0) {
        Err(why) => faults.invalid(at, &divisor.0, why),
        // Zero is treated as if the divisor were not set.
        Ok(divisor) if divisor.is_zero() => {}
        Ok(found) if supported.iter().any(|known| Quantity::parse(known) == Ok(found)) => {}
        Ok(_) => {
            let list = supported.join(", ");
            let detail = format_args!("only divisor's values {list} are supported with the {of} resource");
            faults.invalid(at, name, detail);
        }
    }
}
