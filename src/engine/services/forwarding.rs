//! Which connections go where: the table of rules for the kernel.

use super::allocation::Allocation;
use super::endpoints::{ServiceEndpoint, in_use};
use super::entry::ServiceEntry;
use super::wanted::protocol_and_port;
use crate::api::address_range::Family;
use crate::api::hash::fnv1a;
use crate::api::k8s::ServiceSpec;
use crate::api::service_table::{Balance, Entrance, Forward, Protocol, ServiceTable};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

/// The least number of places for the clients of a service with session affinity. Each endpoint has several, so that
/// they get about the same number of clients.
const MIN_PLACES: usize = 64;
const MAX_PLACES: usize = 1024;
const PLACES_PER_ENDPOINT: usize = 16;

/// *(ours)* The maximum number of places of all rules. Services can choose the same pods.
const MAX_TABLE: usize = 64 * 1024;

/// Returns the rules for all services, and whether some did not fit. `pods`: the addresses of the pods with a network
/// of their own.
pub fn table<'a>(services: impl Iterator<Item = &'a ServiceEntry>, pods: Vec<IpAddr>) -> (ServiceTable, bool) {
    let mut table = ServiceTable::default();
    let mut room = MAX_TABLE;
    let mut is_cut = false;
    for entry in services {
        table.addresses.extend(&entry.allocation.addresses);
        let of_service = forwards(entry);
        let places = of_service.iter().map(|one| one.to.places().len()).sum();
        match room.checked_sub(places) {
            Some(left) => {
                room = left;
                table.forwards.extend(of_service);
            }
            None => is_cut = true,
        }
    }
    if !table.forwards.is_empty() {
        table.outside = outside(&table.forwards, &pods);
        table.pods = pods;
    }
    (table, is_cut)
}

/// Returns the addresses of the endpoints that are not pods.
fn outside(forwards: &[Forward], pods: &[IpAddr]) -> Vec<IpAddr> {
    let pods: BTreeSet<IpAddr> = pods.iter().copied().collect();
    let endpoints: BTreeSet<IpAddr> = forwards.iter().flat_map(|one| one.to.places()).map(SocketAddr::ip).collect();
    endpoints.difference(&pods).copied().collect()
}

/// Returns the rules of one service.
fn forwards(entry: &ServiceEntry) -> Vec<Forward> {
    let mut all = Vec::new();
    let Some(spec) = &entry.service().spec else { return all };
    // A headless service has no address of its own to which something could connect.
    if entry.allocation == Allocation::default() {
        return all;
    }
    for (index, port) in spec.ports.iter().flatten().enumerate() {
        for family in Family::ALL {
            let Some((protocol, number)) = protocol_and_port(port) else { continue };
            let from = entrances(entry, spec, protocol, number, family);
            let place = |one: &ServiceEndpoint| Some(SocketAddr::new(one.address(family)?, (*one.ports.get(index)?)?));
            let places: Vec<SocketAddr> = in_use(&entry.endpoints).filter_map(place).collect();
            if from.is_empty() || places.is_empty() {
                continue;
            }
            let is_sticky = spec.session_affinity.as_deref() == Some("ClientIP");
            let balance = if is_sticky { Balance::ByClient(by_client(&places)) } else { Balance::Random(places) };
            all.push(Forward { protocol, from, to: balance });
        }
    }
    all
}

fn entrances(entry: &ServiceEntry, spec: &ServiceSpec, protocol: Protocol, port: u16, family: Family) -> Vec<Entrance> {
    let external = spec.external_ips.iter().flatten().filter_map(|text| text.parse::<IpAddr>().ok());
    let addresses = entry.allocation.addresses.iter().copied().chain(external);
    let mut all: Vec<Entrance> = addresses
        .filter(|address| Family::of(*address) == family)
        .map(|address| Entrance::Address(SocketAddr::new(address, port)))
        .collect();
    all.extend(entry.allocation.node_port(protocol, port).map(Entrance::NodePort));
    all
}

/// Returns the places for the hashes of clients. The endpoint of a place is the one with the highest score for it, so
/// an endpoint that comes or goes moves only the clients of its own places.
fn by_client(endpoints: &[SocketAddr]) -> Vec<SocketAddr> {
    let count = (endpoints.len() * PLACES_PER_ENDPOINT).next_power_of_two().clamp(MIN_PLACES, MAX_PLACES);
    let names: Vec<u32> = endpoints.iter().map(|one| fnv1a(one.to_string().as_bytes())).collect();
    let best = |place: usize| {
        let place = u32::try_from(place).unwrap_or_default();
        let scores = endpoints.iter().zip(&names).map(|(one, name)| (mixed(name ^ mixed(place)), one));
        scores.max().map(|(_, one)| *one)
    };
    (0..count).filter_map(best).collect()
}

/// Mixes the bits of a hash, so that similar inputs have different scores (the last steps of MurmurHash3).
fn mixed(hash: u32) -> u32 {
    let hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
    let hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
    hash ^ (hash >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn endpoints(count: u8) -> Vec<SocketAddr> {
        (1..=count).map(|i| SocketAddr::from(([10, 1, 0, i], 80))).collect()
    }

    #[test]
    fn clients_keep_their_endpoints_when_others_come_and_go() {
        let (four, five) = (by_client(&endpoints(4)), by_client(&endpoints(5)));
        assert_eq!(four.len(), 64);
        let mut counts: BTreeMap<SocketAddr, usize> = BTreeMap::new();
        four.iter().for_each(|one| *counts.entry(*one).or_default() += 1);
        assert!(counts.len() == 4 && counts.values().all(|count| (6..=28).contains(count)), "{counts:?}");
        let new = endpoints(5)[4];
        let moved = four.iter().zip(&five).filter(|(before, now)| before != now);
        assert!(moved.clone().all(|(_, now)| *now == new), "only the new endpoint gets clients of others");
        assert!((5..=25).contains(&moved.count()));
    }
}
