//! Requests and limits of a container.

use crate::api::k8s::Quantity as Written;
use crate::api::k8s::{Container, PodSpec, ResourceRequirements};
use crate::api::ordered::CollectOrdered;
use crate::api::pod_resources;
use crate::api::problem::{At, Faults};
use crate::api::quantity::Quantity;
use crate::api::resources::{Resources, of_containers};
use crate::api::validate::syntax;
use std::collections::{BTreeMap, BTreeSet};

type ResourceList = BTreeMap<String, Written>;

pub(super) fn resources(resources: &ResourceRequirements, at: At<'_>, faults: &mut Faults) {
    let none = ResourceList::new();
    let limits = resources.limits.as_ref().unwrap_or(&none);
    let requests = resources.requests.as_ref().unwrap_or(&none);
    if resources.claims.as_ref().is_some_and(|claims| !claims.is_empty()) {
        faults.not_yet(at.field("claims"));
    }
    let at_limits = at.field("limits");
    let limit: BTreeMap<&str, Quantity> =
        limits.iter().filter_map(|(name, q)| Some((name.as_str(), one(name, q, at_limits, faults)?))).collect_map();

    let at_requests = at.field("requests");
    for (name, written) in requests {
        // A request that was defaulted from its limit has been validated with the limit.
        let defaulted = limits.get(name) == Some(written);
        let Some(request) =
            (if defaulted { limit.get(name.as_str()).copied() } else { one(name, written, at_requests, faults) })
        else {
            continue;
        };
        let Some(limit) = limit.get(name.as_str()) else { continue };
        let shown = &limits[name].0;
        if is_never_shared(name) {
            if request != *limit {
                faults.invalid(at_requests, &written.0, format_args!("must be equal to {name} limit of {shown}"));
            }
        } else if request > *limit {
            let detail = format_args!("must be less than or equal to {name} limit of {shown}");
            faults.invalid(at_requests, &written.0, detail);
        }
    }

    let named = |wanted: fn(&str) -> bool| limits.keys().chain(requests.keys()).any(|name| wanted(name));
    if named(|n| n.starts_with(HUGE_PAGES)) && !named(|n| n == "cpu" || n == "memory") {
        faults.forbidden(at, "HugePages require cpu or memory");
    }
    for name in requests.keys().filter(|n| is_never_shared(n) && !limits.contains_key(*n)) {
        faults.required(at_limits.key(name), "Limit must be set for non overcommitable resources");
    }
}

/// Validates `resizePolicy`.
pub(super) fn resize_policy(container: &Container, pod_restarts: bool, at: At<'_>, faults: &mut Faults) {
    let mut seen = BTreeSet::new();
    let at_policies = at.field("resizePolicy");
    for (i, policy) in container.resize_policy.iter().flatten().enumerate() {
        let at = at_policies.item(i);
        if !matches!(policy.resource_name.as_str(), "cpu" | "memory") {
            faults.unsupported_value(at.field("resourceName"), &policy.resource_name, &["cpu", "memory"]);
        }
        if !seen.insert(&policy.resource_name) {
            faults.duplicate(at.field("resourceName"), &policy.resource_name);
        }
        match policy.restart_policy.as_str() {
            "NotRequired" => {}
            "RestartContainer" if pod_restarts => {}
            "RestartContainer" => {
                let detail = "must be NotRequired when the pod's restartPolicy is Never";
                faults.invalid(at.field("restartPolicy"), "RestartContainer", detail);
            }
            other => faults.unsupported_value(at.field("restartPolicy"), other, &["NotRequired", "RestartContainer"]),
        }
    }
}

/// Validates the resources of the pod as a whole.
pub(super) fn of_pod(spec: &PodSpec, at: At<'_>, faults: &mut Faults) {
    let Some(own) = &spec.resources else { return };
    let at = at.field("resources");
    resources(own, at, faults);
    for (list, field) in [(&own.limits, "limits"), (&own.requests, "requests")] {
        for name in list.iter().flatten().map(|(name, _)| name).filter(|name| !pod_resources::is_supported(name)) {
            let supported = &["cpu", "memory", "hugepages-<size>"];
            faults.unsupported_value(at.field(field).key(name), name, supported);
        }
    }
    let written = Resources::of;
    if let Some(requests) = pod_resources::requests(spec) {
        let (of_pod, sum) = (written(requests), of_containers(spec));
        for (name, written) in requests.iter().filter(|(name, _)| of_pod.get(name) < sum.get(name)) {
            let sum = pod_resources::written(name, sum.get(name)).0;
            let detail = format_args!("must be greater than or equal to aggregate container requests of {sum}");
            faults.invalid(at.field("requests").key(name), &written.0, detail);
        }
    }
    for container in spec.init_containers.iter().flatten().chain(&spec.containers) {
        let limits = container.resources.as_ref().and_then(|resources| resources.limits.as_ref());
        for (name, limit) in limits.into_iter().flatten() {
            let Some(of_pod) = pod_resources::limits(spec).and_then(|limits| limits.get(name)) else { continue };
            let (Ok(own), Ok(most)) = (Quantity::parse(&limit.0), Quantity::parse(&of_pod.0)) else { continue };
            if own > most {
                let of = &container.name;
                let detail = format_args!("container {of}: must be less than or equal to pod limits of {}", of_pod.0);
                faults.invalid(at.field("limits").key(name), &limit.0, detail);
            }
        }
    }
}

/// Validates the overhead. It is meant for pods with a runtime class, but a kubelet also honours it without one.
pub(super) fn overhead(overhead: &ResourceList, at: At<'_>, faults: &mut Faults) {
    for (name, written) in overhead {
        one(name, written, at, faults);
    }
}

/// Reports whether the domain is not Kubernetes' own and the name is short enough to be used in a quota.
pub(super) fn is_extended(name: &str) -> bool {
    let own = name.split_once('/').is_none_or(|(domain, _)| domain.ends_with("kubernetes.io"));
    !own && !name.starts_with(QUOTA) && syntax::qualified_name(&format!("{QUOTA}{name}")).is_empty()
}

/// Reports whether units of the resource are allocated exclusively to one pod, so that the request must equal the
/// limit.
fn is_never_shared(name: &str) -> bool {
    name.starts_with(HUGE_PAGES) || name.contains('/')
}

const QUOTA: &str = "requests.";

const HUGE_PAGES: &str = "hugepages-";

/// Validates one entry: a known resource, and an amount that is a number and not negative.
fn one(name: &str, written: &Written, at: At<'_>, faults: &mut Faults) -> Option<Quantity> {
    let at = at.key(name);
    let page_size = || {
        let size = name.strip_prefix(HUGE_PAGES).and_then(|size| Quantity::parse(size).ok());
        size.filter(|size| size.is_whole() && size.value() > 0)
    };
    let extended = name.contains('/');
    let complaints = syntax::qualified_name(name);
    if !complaints.is_empty() {
        complaints.into_iter().for_each(|complaint| faults.invalid(at, name, complaint));
        return None;
    }
    if extended && !is_extended(name) {
        faults.invalid_in_manifest(at, name, "doesn't follow extended resource name standard");
    }
    if !extended && !matches!(name, "cpu" | "memory" | "ephemeral-storage") && page_size().is_none() {
        faults.invalid(at, name, "must be a standard resource for containers");
        return None;
    }
    match Quantity::parse(&written.0) {
        Err(why) => faults.invalid(at, &written.0, why),
        Ok(amount) if amount.is_negative() => {
            faults.invalid(at, &written.0, "must be greater than or equal to 0");
        }
        Ok(amount) if extended && !amount.is_whole() => faults.invalid(at, &written.0, "must be an integer"),
        Ok(amount) => match page_size().filter(|page| amount.value() % page.value() != 0) {
            Some(page) => faults.invalid(at, &written.0, indivisible(name, amount, page)),
            None => return Some(amount),
        },
    }
    None
}

/// Returns the message for an amount that is not a multiple of the huge page size. The message suggests the next
/// multiple, in the unit of the resource's name.
fn indivisible(name: &str, amount: Quantity, page: Quantity) -> String {
    let size = name.strip_prefix(HUGE_PAGES).unwrap_or_default();
    let unit = size.trim_start_matches(|c: char| c.is_ascii_digit());
    let pages = amount.value() / page.value() + 1;
    let next = size[..size.len() - unit.len()].parse::<i64>().ok().and_then(|digits| digits.checked_mul(pages));
    let remedy = next.map_or(String::new(), |next| format!("; round it up to {next}{unit}"));
    format!("must be a multiple of the page size {size}{remedy}")
}
