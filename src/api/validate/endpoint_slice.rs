//! Validation of a complete EndpointSlice, with the messages of Kubernetes.

use super::complaints::{complain, one_of};
use super::network::{self, PROTOCOLS};
use super::service::ports::too_many;
use super::{address, data_metadata, syntax};
use crate::api::k8s::{self, Endpoint, EndpointPort, ObjectMeta};
use crate::api::problem::{At, Fault, Faults};
use std::net::IpAddr;

const MAX_ENDPOINTS: usize = 1000;
/// The maximum number of addresses of an endpoint.
const MAX_ADDRESSES: usize = 100;
/// The label with the name of the Service that a slice belongs to.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

pub(crate) fn endpoint_slice(slice: &k8s::EndpointSlice) -> Vec<Fault> {
    let mut faults = Faults::default();
    data_metadata(&slice.metadata, "endpointslice", &mut faults);
    let root = At::Root;
    service_name(&slice.metadata, root.field("metadata"), &mut faults);
    address_type(&slice.address_type, root.field("addressType"), &mut faults);
    let at = root.field("endpoints");
    if slice.endpoints.len() > MAX_ENDPOINTS {
        faults.too_many(at, slice.endpoints.len(), MAX_ENDPOINTS);
    } else {
        for (i, each) in slice.endpoints.iter().enumerate() {
            endpoint(each, &slice.address_type, at.item(i), &mut faults);
        }
    }
    ports(slice.ports.as_deref().unwrap_or_default(), root.field("ports"), &mut faults);
    faults.0
}

/// Checks that the slice belongs to a Service. In a cluster, one that does not is accepted and has no effect.
fn service_name(metadata: &ObjectMeta, at: At<'_>, faults: &mut Faults) {
    let service = metadata.labels.as_ref().and_then(|labels| labels.get(SERVICE_NAME));
    if service.is_none_or(String::is_empty) {
        let at = at.field("labels");
        faults.required(at.key(SERVICE_NAME), "the name of the Service that gets the endpoints");
    }
}

fn address_type(type_: &str, at: At<'_>, faults: &mut Faults) {
    match type_ {
        "" => faults.required(at, ""),
        "FQDN" => faults.forbidden(at, "names are not resolved; use IPv4 or IPv6, and write the addresses"),
        type_ => one_of(Some(type_), &["IPv4", "IPv6"], at, faults),
    }
}

fn endpoint(endpoint: &Endpoint, type_: &str, at: At<'_>, faults: &mut Faults) {
    let at_addresses = at.field("addresses");
    match endpoint.addresses.len() {
        0 => faults.required(at_addresses, "must contain at least 1 address"),
        count if count > MAX_ADDRESSES => faults.too_many(at_addresses, count, MAX_ADDRESSES),
        _ if ["IPv4", "IPv6"].contains(&type_) => {
            for (i, text) in endpoint.addresses.iter().enumerate() {
                address_of_type(text, type_, at_addresses.item(i), faults);
            }
        }
        _ => {}
    }
    if let Some(name) = endpoint.node_name.as_deref() {
        complain(syntax::dns_subdomain(name), name, at.field("nodeName"), faults);
    }
    if let Some(name) = endpoint.hostname.as_deref() {
        complain(syntax::dns_label(name), name, at.field("hostname"), faults);
    }
}

fn address_of_type(text: &str, type_: &str, at: At<'_>, faults: &mut Faults) {
    let Some(address) = address::not_special(text, at, faults) else { return };
    if address.is_ipv4() != (type_ == "IPv4") {
        faults.invalid(at, text, format_args!("must be an {type_} address"));
    } else if let IpAddr::V6(v6) = address
        && v6.to_string() != text
    {
        let canonical = v6.to_string();
        faults.invalid(at, text, format_args!("must be in canonical form ({canonical:?})"));
    }
}

fn ports(ports: &[EndpointPort], at: At<'_>, faults: &mut Faults) {
    if too_many(ports.len(), "EndpointSlices", at, faults) {
        return;
    }
    for (i, port) in ports.iter().enumerate() {
        let at = at.item(i);
        let name = port.name.as_deref().unwrap_or_default();
        if !name.is_empty() {
            complain(syntax::dns_label(name), name, at.field("name"), faults);
        }
        if ports[..i].iter().any(|other| other.name.as_deref().unwrap_or_default() == name) {
            faults.duplicate(at.field("name"), name);
        }
        match port.port {
            Some(number) => network::number(number, at.field("port"), faults),
            None => faults.required(at.field("port"), "a port without a number is all ports; write the number"),
        }
        one_of(port.protocol.as_deref(), &PROTOCOLS, at.field("protocol"), faults);
        if let Some(protocol) = port.app_protocol.as_deref() {
            complain(syntax::qualified_name(protocol), protocol, at.field("appProtocol"), faults);
        }
    }
}

#[cfg(test)]
mod tests;
