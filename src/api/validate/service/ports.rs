//! Validation of the ports of a Service.

use super::cluster_ips::is_headless;
use crate::api::k8s::{IntOrString, ServicePort, ServiceSpec};
use crate::api::problem::{At, Faults};
use crate::api::validate::complaints::{complain, one_of};
use crate::api::validate::network::{self, PROTOCOLS};
use crate::api::validate::syntax;

/// The maximum number of ports of a Service, and of an EndpointSlice *(ours)*. Each port has rules in the kernel for
/// each endpoint.
const MAX_PORTS: usize = 250;

pub(super) fn ports(spec: &ServiceSpec, at: At<'_>, faults: &mut Faults) {
    let ports = spec.ports.as_deref().unwrap_or_default();
    let type_ = spec.type_.as_deref().unwrap_or_default();
    if ports.is_empty() && !is_headless(spec) && type_ != "ExternalName" {
        faults.required(at, "");
    }
    if too_many(ports.len(), "Services", at, faults) {
        return;
    }
    for (i, port) in ports.iter().enumerate() {
        let earlier = &ports[..i];
        let at = at.item(i);
        name(port, earlier, ports.len() > 1, at.field("name"), faults);
        numbers(port, at, faults);
        node_port(port, earlier, type_, at.field("nodePort"), faults);
        if earlier.iter().any(|other| other.port == port.port && other.protocol == port.protocol) {
            let protocol = port.protocol.as_deref().unwrap_or_default();
            faults.duplicate(at, format!("{protocol}/{}", port.port));
        }
    }
}

/// Reports whether an object has too many ports. `kind`: what the ports can be divided among.
pub(in crate::api::validate) fn too_many(count: usize, kind: &str, at: At<'_>, faults: &mut Faults) -> bool {
    let is_too_many = count > MAX_PORTS;
    if is_too_many {
        let message = format!("Too many: {count}: must have at most {MAX_PORTS} items");
        faults.add(at, format!("{message}; divide the ports among several {kind}"));
    }
    is_too_many
}

fn name(port: &ServicePort, earlier: &[ServicePort], is_needed: bool, at: At<'_>, faults: &mut Faults) {
    match port.name.as_deref() {
        None | Some("") if is_needed => faults.required(at, ""),
        None | Some("") => {}
        Some(name) => {
            complain(syntax::dns_label(name), name, at, faults);
            if earlier.iter().any(|other| other.name.as_deref() == Some(name)) {
                faults.duplicate(at, name);
            }
        }
    }
}

fn numbers(port: &ServicePort, at: At<'_>, faults: &mut Faults) {
    network::number(port.port, at.field("port"), faults);
    one_of(port.protocol.as_deref(), &PROTOCOLS, at.field("protocol"), faults);
    match &port.target_port {
        Some(IntOrString::Int(number)) => network::number(*number, at.field("targetPort"), faults),
        Some(IntOrString::String(name)) => complain(syntax::port_name(name), name, at.field("targetPort"), faults),
        None => {}
    }
    if let Some(protocol) = port.app_protocol.as_deref() {
        complain(syntax::qualified_name(protocol), protocol, at.field("appProtocol"), faults);
    }
}

fn node_port(port: &ServicePort, earlier: &[ServicePort], type_: &str, at: At<'_>, faults: &mut Faults) {
    let Some(number) = port.node_port.filter(|number| *number != 0) else { return };
    if !["NodePort", "LoadBalancer"].contains(&type_) {
        return faults.forbidden(at, format_args!("may not be used when `type` is '{type_}'"));
    }
    network::number(number, at, faults);
    if earlier.iter().any(|other| other.node_port == Some(number) && other.protocol == port.protocol) {
        faults.duplicate(at, number);
    }
}
