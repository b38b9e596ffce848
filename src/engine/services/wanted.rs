//! Which addresses and node ports a service asks for, and why it does not get them.

use super::allocation::{AllocationError, ServiceWishes, WantedAddresses, WantedPort};
use crate::api::address_range::{AddressRange, Family};
use crate::api::k8s::{Service, ServicePort, ServiceSpec};
use crate::api::reason::Reason;
use crate::api::service_settings::ServiceSettings;
use crate::api::service_table::Protocol;
use std::net::IpAddr;

const HEADLESS: &str = "None";

/// Returns what a valid service asks for.
pub fn of(service: &Service, settings: &ServiceSettings) -> ServiceWishes {
    let Some(spec) = &service.spec else {
        return ServiceWishes { addresses: WantedAddresses::None, node_ports: Vec::new() };
    };
    let (has_node_ports, chosen_only) = match spec.type_.as_deref() {
        Some("NodePort") => (true, false),
        Some("LoadBalancer") => (true, spec.allocate_load_balancer_node_ports == Some(false)),
        _ => (false, false),
    };
    let port = |port| {
        let (protocol, number) = protocol_and_port(port)?;
        let node_port = port.node_port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0);
        (node_port.is_some() || !chosen_only).then_some(WantedPort { protocol, port: number, node_port })
    };
    let ports = spec.ports.iter().flatten().filter(|_| has_node_ports);
    ServiceWishes { addresses: addresses(spec, settings), node_ports: ports.filter_map(port).collect() }
}

fn addresses(spec: &ServiceSpec, settings: &ServiceSettings) -> WantedAddresses {
    if is_headless(spec) || spec.type_.as_deref() == Some("ExternalName") {
        return WantedAddresses::None;
    }
    let chosen = spec.cluster_ips.iter().flatten().chain(&spec.cluster_ip).filter_map(|text| text.parse().ok());
    let mut these: Vec<IpAddr> = Vec::new();
    for address in chosen {
        if !these.contains(&address) {
            these.push(address);
        }
    }
    if !these.is_empty() {
        return WantedAddresses::These(these);
    }
    let policy = spec.ip_family_policy.as_deref();
    let named = spec.ip_families.iter().flatten().filter_map(|name| Family::of_name(name));
    let first = settings.ranges.first().map(AddressRange::family);
    let mut families: Vec<Family> = named.collect();
    if families.is_empty() {
        families.extend(first);
    }
    let is_dual = matches!(policy, Some("PreferDualStack" | "RequireDualStack")) || families.len() > 1;
    match is_dual {
        true => {
            let others = Family::ALL.into_iter().filter(|family| !families.contains(family));
            families.extend(others.collect::<Vec<_>>());
        }
        false => families.truncate(1),
    }
    WantedAddresses::Any { families, all: policy != Some("PreferDualStack") }
}

pub fn is_headless(spec: &ServiceSpec) -> bool {
    spec.cluster_ip.as_deref() == Some(HEADLESS)
}

/// Returns the address for which the name of the service stands, if it has no pods.
pub fn external_address(spec: &ServiceSpec) -> Option<IpAddr> {
    let is_it = spec.type_.as_deref() == Some("ExternalName");
    spec.external_name.as_deref().filter(|_| is_it)?.parse().ok()
}

/// Returns the reason of the event, which is that of an API server where it has one.
pub fn reason(error: &AllocationError) -> Reason {
    match error {
        AllocationError::OutOfRange(_) => Reason::ClusterIPOutOfRange,
        AllocationError::AddressTaken { .. } => Reason::ClusterIPAlreadyAllocated,
        AllocationError::PortTaken { .. } => Reason::PortAlreadyAllocated,
        AllocationError::NoRange(_) | AllocationError::NoAddress | AllocationError::NoPort => {
            Reason::FailedServiceAllocation
        }
    }
}

pub fn message(error: &AllocationError) -> String {
    match error {
        AllocationError::OutOfRange(address) => {
            format!("clusterIP {address} is not in a range of serviceClusterIPRange; choose another one, or none")
        }
        AllocationError::AddressTaken { address, by } => {
            format!("clusterIP {address} belongs to the service {by}; choose another one, or none")
        }
        AllocationError::PortTaken { port, by } => {
            format!("nodePort {port} belongs to the service {by}; choose another one, or none")
        }
        AllocationError::NoRange(family) => {
            format!("serviceClusterIPRange has no range of {}; add one, or change ipFamilies", family.name())
        }
        AllocationError::NoAddress => "no address of serviceClusterIPRange is free; choose a larger range".to_owned(),
        AllocationError::NoPort => "no node port is free; remove services of the type NodePort".to_owned(),
    }
}

/// Returns the protocol and the number of a port of a valid service.
pub fn protocol_and_port(port: &ServicePort) -> Option<(Protocol, u16)> {
    Some((Protocol::of_name(port.protocol.as_deref().unwrap_or("TCP"))?, u16::try_from(port.port).ok()?))
}
