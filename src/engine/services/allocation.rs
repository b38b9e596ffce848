//! The addresses and node ports of services (Y25).
//!
//! Each follows from the name of its service, so that it is the same after the loss of the record too. Only if another
//! service has it already, the next free one is taken; the record then keeps the choice.

use crate::api::address_range::{AddressRange, Family};
use crate::api::hash::fnv1a;
use crate::api::names::FullName;
use crate::api::service_settings::{NODE_PORTS, ServiceSettings};
use crate::api::service_table::Protocol;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// What a service asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceWishes {
    pub addresses: WantedAddresses,
    pub node_ports: Vec<WantedPort>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum WantedAddresses {
    /// It is headless, or its name stands for an address.
    None,
    /// One of each of these families. `all`: it is an error if there is no range for one of them.
    Any { families: Vec<Family>, all: bool },
    /// Exactly these.
    These(Vec<IpAddr>),
}

/// A port of a service that gets a port of the node.
#[derive(Clone, Debug, PartialEq)]
pub struct WantedPort {
    pub protocol: Protocol,
    /// The port of the service.
    pub port: u16,
    /// The port of the node, if the service chooses it.
    pub node_port: Option<u16>,
}

/// What a service has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Allocation {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpAddr>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_ports: Vec<NodePort>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodePort {
    pub protocol: Protocol,
    pub port: u16,
    pub node_port: u16,
}

/// Why a service does not get what it asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllocationError {
    NoRange(Family),
    OutOfRange(IpAddr),
    AddressTaken { address: IpAddr, by: FullName },
    NoAddress,
    PortTaken { port: u16, by: FullName },
    NoPort,
}

impl Allocation {
    pub fn address(&self, family: Family) -> Option<IpAddr> {
        self.addresses.iter().copied().find(|address| Family::of(*address) == family)
    }

    pub fn node_port(&self, protocol: Protocol, port: u16) -> Option<u16> {
        self.node_ports.iter().find(|one| (one.protocol, one.port) == (protocol, port)).map(|one| one.node_port)
    }
}

/// Gives all services their addresses and ports. First come those that choose theirs, then those that had some
/// (`before`), then the others. A service with an error gets nothing of that kind.
pub fn allocate(
    services: &[(FullName, ServiceWishes)],
    before: &BTreeMap<FullName, Allocation>,
    settings: &ServiceSettings,
) -> BTreeMap<FullName, (Allocation, Vec<AllocationError>)> {
    let mut all: BTreeMap<FullName, (Allocation, Vec<AllocationError>)> = BTreeMap::new();
    let mut pool = Pool { settings, addresses: BTreeMap::new(), ports: BTreeMap::new() };
    for (name, wanted) in services {
        let place = all.entry(name.clone()).or_default();
        pool.take_chosen(name, wanted, place);
    }
    let had = |name: &FullName| before.get(name).cloned().unwrap_or_default();
    for (name, wanted) in services {
        let place = all.entry(name.clone()).or_default();
        pool.take_former(name, wanted, &had(name), &mut place.0);
    }
    for (name, wanted) in services {
        let place = all.entry(name.clone()).or_default();
        pool.take_free(name, wanted, place);
    }
    all
}

struct Pool<'a> {
    settings: &'a ServiceSettings,
    addresses: BTreeMap<IpAddr, FullName>,
    ports: BTreeMap<(Protocol, u16), FullName>,
}

impl Pool<'_> {
    fn range(&self, family: Family) -> Option<&AddressRange> {
        self.settings.ranges.iter().find(|range| range.family() == family)
    }

    fn take_chosen(&mut self, name: &FullName, wanted: &ServiceWishes, to: &mut (Allocation, Vec<AllocationError>)) {
        if let WantedAddresses::These(addresses) = &wanted.addresses {
            let error = addresses.iter().find_map(|address| self.refuse(*address));
            match error {
                Some(error) => to.1.push(error),
                None => {
                    self.addresses.extend(addresses.iter().map(|address| (*address, name.clone())));
                    to.0.addresses.clone_from(addresses);
                }
            }
        }
        for port in &wanted.node_ports {
            let Some(node_port) = port.node_port else { continue };
            match self.ports.get(&(port.protocol, node_port)) {
                Some(by) => to.1.push(AllocationError::PortTaken { port: node_port, by: by.clone() }),
                None => self.give(name, port, node_port, &mut to.0),
            }
        }
    }

    fn refuse(&self, address: IpAddr) -> Option<AllocationError> {
        if !self.settings.ranges.iter().any(|range| range.is_usable(address)) {
            return Some(AllocationError::OutOfRange(address));
        }
        let by = self.addresses.get(&address)?.clone();
        Some(AllocationError::AddressTaken { address, by })
    }

    fn take_former(&mut self, name: &FullName, wanted: &ServiceWishes, had: &Allocation, to: &mut Allocation) {
        if let WantedAddresses::Any { families, .. } = &wanted.addresses {
            for family in families {
                if let Some(address) = had.address(*family)
                    && self.refuse(address).is_none()
                {
                    self.addresses.insert(address, name.clone());
                    to.addresses.push(address);
                }
            }
        }
        for port in wanted.node_ports.iter().filter(|port| port.node_port.is_none()) {
            if let Some(node_port) = had.node_port(port.protocol, port.port)
                && NODE_PORTS.contains(&node_port)
                && !self.ports.contains_key(&(port.protocol, node_port))
            {
                self.give(name, port, node_port, to);
            }
        }
    }

    fn take_free(&mut self, name: &FullName, wanted: &ServiceWishes, to: &mut (Allocation, Vec<AllocationError>)) {
        if let WantedAddresses::Any { families, all } = &wanted.addresses {
            for family in families {
                if to.0.address(*family).is_some() {
                    continue;
                }
                match self.range(*family).map(|range| free_address(range, name, &self.addresses)) {
                    Some(Some(address)) => {
                        self.addresses.insert(address, name.clone());
                        to.0.addresses.push(address);
                    }
                    Some(None) => to.1.push(AllocationError::NoAddress),
                    None if *all => to.1.push(AllocationError::NoRange(*family)),
                    None => {}
                }
            }
            // The order of the families is that of the service.
            let place = |address: &IpAddr| families.iter().position(|family| *family == Family::of(*address));
            if to.0.addresses.len() == 2 && place(&to.0.addresses[0]) > place(&to.0.addresses[1]) {
                to.0.addresses.reverse();
            }
        }
        for port in wanted.node_ports.iter().filter(|port| port.node_port.is_none()) {
            if to.0.node_port(port.protocol, port.port).is_some() {
                continue;
            }
            match free_port(name, port, &self.ports) {
                Some(node_port) => self.give(name, port, node_port, &mut to.0),
                None => to.1.push(AllocationError::NoPort),
            }
        }
    }

    fn give(&mut self, name: &FullName, port: &WantedPort, node_port: u16, to: &mut Allocation) {
        self.ports.insert((port.protocol, node_port), name.clone());
        to.node_ports.push(NodePort { protocol: port.protocol, port: port.port, node_port });
    }
}

/// Returns the number of places at the begin of a range that services get last, so that those which choose an address
/// find it free: as in an API server, a sixteenth, from 16 to 256.
fn chosen_band(size: u32) -> u32 {
    if size <= 16 { 0 } else { (size / 16).clamp(16, 256) }
}

fn free_address(range: &AddressRange, name: &FullName, taken: &BTreeMap<IpAddr, FullName>) -> Option<IpAddr> {
    let (size, band) = (range.usable(), chosen_band(range.usable()));
    let start = fnv1a(name.to_string().as_bytes()) % (size - band);
    let upper = (0..size - band).map(|i| band + (start + i) % (size - band));
    // A range can have a million addresses, but no more than this number is taken.
    let tried = taken.len() + 1;
    upper.take(tried).chain(0..band).map(|index| range.usable_at(index)).find(|address| !taken.contains_key(address))
}

fn free_port(name: &FullName, port: &WantedPort, taken: &BTreeMap<(Protocol, u16), FullName>) -> Option<u16> {
    let size = NODE_PORTS.end() - NODE_PORTS.start() + 1;
    // As in an API server, for the ports that services choose.
    let band = (size / 32).clamp(16, 128);
    let of_name = fnv1a(format!("{name}:{}", port.port).as_bytes());
    let start = u16::try_from(of_name % u32::from(size - band)).unwrap_or_default();
    let upper = (0..size - band).map(|i| band + (start + i) % (size - band));
    upper.chain(0..band).map(|i| NODE_PORTS.start() + i).find(|one| !taken.contains_key(&(port.protocol, *one)))
}
