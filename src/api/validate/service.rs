//! Validation of a complete Service, with the messages of Kubernetes.

mod cluster_ips;
pub(super) mod ports;

use super::complaints::one_of;
use super::{address, labels, named_metadata, syntax};
use crate::api::k8s::{self, ObjectMeta, ServiceSpec};
use crate::api::network_defaults;
use crate::api::problem::{At, Fault, Faults};
use std::net::IpAddr;

/// The maximum time that a client keeps its pod, in seconds.
const MAX_AFFINITY_TIMEOUT: i32 = 86_400;
/// The former form of `loadBalancerSourceRanges`.
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
const TRAFFIC_POLICIES: [&str; 2] = ["Cluster", "Local"];

pub(crate) fn service(service: &k8s::Service) -> Vec<Fault> {
    let mut faults = Faults::default();
    named_metadata(&service.metadata, "service", syntax::dns_1035_label, &mut faults);
    let root = At::Root;
    let at = root.field("spec");
    let empty = ServiceSpec::default();
    let spec = service.spec.as_ref().unwrap_or(&empty);
    type_(spec, at, &mut faults);
    ports::ports(spec, at.field("ports"), &mut faults);
    labels(spec.selector.as_ref(), at.field("selector"), &mut faults);
    affinity(spec, at, &mut faults);
    cluster_ips::cluster_ips(spec, at, &mut faults);
    let at_addresses = at.field("externalIPs");
    for (i, text) in spec.external_ips.iter().flatten().enumerate() {
        address::not_special(text, at_addresses.item(i), &mut faults);
    }
    traffic(spec, at, &mut faults);
    load_balancer(spec, at, &mut faults);
    source_ranges(&service.metadata, spec, root, &mut faults);
    faults.0
}

fn type_(spec: &ServiceSpec, at: At<'_>, faults: &mut Faults) {
    const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    let type_ = spec.type_.as_deref().unwrap_or_default();
    one_of(Some(type_), &TYPES, at.field("type"), faults);
    match type_ {
        "ExternalName" => external_name(spec, at, faults),
        "LoadBalancer" | "NodePort" if cluster_ips::is_headless(spec) => {
            let at = at.field("clusterIPs");
            faults.invalid(at.item(0), "None", format_args!("may not be set to 'None' for {type_} services"));
        }
        _ => {}
    }
}

/// Checks a Service that is another name of an address.
fn external_name(spec: &ServiceSpec, at: At<'_>, faults: &mut Faults) {
    for (is_set, field) in [
        (spec.cluster_ips.is_some(), "clusterIPs"),
        (spec.ip_families.as_ref().is_some_and(|families| !families.is_empty()), "ipFamilies"),
        (spec.ip_family_policy.is_some(), "ipFamilyPolicy"),
    ] {
        if is_set {
            faults.forbidden(at.field(field), "may not be set for ExternalName services");
        }
    }
    let at = at.field("externalName");
    let name = spec.external_name.as_deref().unwrap_or_default();
    if name.is_empty() {
        faults.required(at, "");
    } else if name.parse::<IpAddr>().is_err() {
        let why = "the name of a Service here stands for addresses, and not for another name; write the IP address, \
                   or use a Service without a selector and an EndpointSlice with the addresses";
        faults.forbidden(at, why);
    } else {
        address::parse(name, at, faults);
    }
}

fn affinity(spec: &ServiceSpec, at: At<'_>, faults: &mut Faults) {
    one_of(spec.session_affinity.as_deref(), &["ClientIP", "None"], at.field("sessionAffinity"), faults);
    let client = spec.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref());
    if let Some(timeout) = client.and_then(|client| client.timeout_seconds)
        && !(1..=MAX_AFFINITY_TIMEOUT).contains(&timeout)
    {
        let at = at.field("sessionAffinityConfig");
        let at = at.field("clientIP");
        let detail = format_args!("must be greater than 0 and less than {MAX_AFFINITY_TIMEOUT}");
        faults.invalid(at.field("timeoutSeconds"), timeout, detail);
    }
}

fn traffic(spec: &ServiceSpec, at: At<'_>, faults: &mut Faults) {
    let policy = spec.external_traffic_policy.as_deref().unwrap_or_default();
    if network_defaults::externally_accessible(spec) {
        one_of(Some(policy), &TRAFFIC_POLICIES, at.field("externalTrafficPolicy"), faults);
    } else if !policy.is_empty() {
        let detail = "may only be set for externally-accessible services";
        faults.invalid(at.field("externalTrafficPolicy"), policy, detail);
    }
    if let Some(policy) = spec.internal_traffic_policy.as_deref() {
        one_of(Some(policy), &TRAFFIC_POLICIES, at.field("internalTrafficPolicy"), faults);
    }
    if let Some(distribution) = spec.traffic_distribution.as_deref() {
        let known = ["PreferClose", "PreferSameZone", "PreferSameNode"];
        one_of(Some(distribution), &known, at.field("trafficDistribution"), faults);
    }
}

/// Refuses the fields that a load balancer outside the machine would carry out.
fn load_balancer(spec: &ServiceSpec, at: At<'_>, faults: &mut Faults) {
    let is_set = |text: &Option<String>| text.as_deref().is_some_and(|text| !text.is_empty());
    if spec.allocate_load_balancer_node_ports.is_some() && spec.type_.as_deref() != Some("LoadBalancer") {
        let why = "may only be used when `type` is 'LoadBalancer'";
        faults.forbidden(at.field("allocateLoadBalancerNodePorts"), why);
    }
    if spec.health_check_node_port.is_some_and(|port| port != 0) {
        let why = "no load balancer checks the health of this machine; remove the field";
        faults.forbidden(at.field("healthCheckNodePort"), why);
    }
    if is_set(&spec.load_balancer_ip) {
        let why = "no load balancer provides the address; remove the field, and use externalIPs for an address of this \
                   machine";
        faults.forbidden(at.field("loadBalancerIP"), why);
    }
    if is_set(&spec.load_balancer_class) {
        let why = "the controller of the class does not run here; remove the field";
        faults.forbidden(at.field("loadBalancerClass"), why);
    }
}

/// Refuses a restriction of the clients in either form. If it were ignored, all clients could reach the port.
fn source_ranges(metadata: &ObjectMeta, spec: &ServiceSpec, root: At<'_>, faults: &mut Faults) {
    let why = "the addresses of clients are not restricted here, so the port would be open to all; restrict them with \
               the firewall of the machine, and remove this";
    if spec.load_balancer_source_ranges.as_ref().is_some_and(|ranges| !ranges.is_empty()) {
        let at = root.field("spec");
        faults.forbidden(at.field("loadBalancerSourceRanges"), why);
    }
    let annotation = metadata.annotations.as_ref().and_then(|annotations| annotations.get(SOURCE_RANGES));
    if annotation.is_some_and(|ranges| !ranges.trim().is_empty()) {
        let at = root.field("metadata");
        let at = at.field("annotations");
        faults.forbidden(at.key(SOURCE_RANGES), why);
    }
}

#[cfg(test)]
mod tests;
