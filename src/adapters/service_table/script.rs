//! The input of `nft` that replaces the table of the services as a whole.
//!
//! A connection to a service gets its destination before routing. Connections between pods, and those to endpoints that
//! are no pods, also get the source address of this machine, so that the answers pass this machine.

use crate::api::address_range::Family;
use crate::api::ordered::CollectOrdered;
use crate::api::printable;
use crate::api::service_table::{Balance, Entrance, Forward, Protocol, ServiceTable};
use crate::api::uid::digest_of_bytes;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::SocketAddr;

/// The rules that do not depend on the services.
///
/// - The ports of the machine exclude the loopback addresses: the kernel does not forward packets from them.
/// - If a connection enters and leaves by the same bridge, the kernel tells the client to send directly to the pod. A
///   client that did so for the address of a service would bypass these rules. No rule is necessary: the kernel drops
///   this message of IPv4 if the connection is translated, and that of IPv6 names the address of the pod.
/// - What no rule matched is rejected before routing: a machine may have no route for the addresses of services.
/// - `reject` alone sends an ICMP message. The kernel limits the rate of these for each client, and a client without an
///   answer waits. It does not limit TCP resets.
const FIXED: &str = "  \
  chain services {
    ip daddr . meta l4proto . th dport vmap @entrances4
    ip6 daddr . meta l4proto . th dport vmap @entrances6
    meta nfproto ipv4 ip daddr != 127.0.0.0/8 fib daddr type local meta l4proto . th dport vmap @ports4
    meta nfproto ipv6 ip6 daddr != ::1 fib daddr type local meta l4proto . th dport vmap @ports6
  }
  chain prerouting { type nat hook prerouting priority dstnat; jump services; }
  chain output { type nat hook output priority -100; jump services; }
  chain postrouting {
    type nat hook postrouting priority srcnat - 1;
    ct status dnat ip saddr @pods4 ip daddr @pods4 masquerade
    ct status dnat ip6 saddr @pods6 ip6 daddr @pods6 masquerade
    ct status dnat ip daddr @outside4 masquerade
    ct status dnat ip6 daddr @outside6 masquerade
  }
  chain unmatched {
    meta l4proto tcp reject with tcp reset
    reject
  }
  chain reject-prerouting {
    type filter hook prerouting priority dstnat + 1;
    ip daddr @addresses4 goto unmatched
    ip6 daddr @addresses6 goto unmatched
  }
  chain reject-output {
    type filter hook output priority filter;
    ip daddr @addresses4 goto unmatched
    ip6 daddr @addresses6 goto unmatched
  }
";

/// The end of the names of sets and maps.
fn digit(family: Family) -> char {
    match family {
        Family::V4 => '4',
        Family::V6 => '6',
    }
}

fn address_type(family: Family) -> &'static str {
    match family {
        Family::V4 => "ipv4_addr",
        Family::V6 => "ipv6_addr",
    }
}

/// The keyword before fields of the packet.
fn keyword(family: Family) -> &'static str {
    match family {
        Family::V4 => "ip",
        Family::V6 => "ip6",
    }
}

/// Returns the input of `nft -f -` that replaces the table in a single transaction. Without services, the table does
/// not exist afterwards.
///
/// Of two forwards with the same entrance, the first one gets it. A forward without places, or with both versions of
/// the Internet Protocol, is ignored.
pub fn script(table: &ServiceTable, name: &str) -> String {
    let mut text = rules(table, name);
    if !table.is_empty() {
        let version = version_of(&text);
        let _ = writeln!(text, "add chain inet {name} {version}");
    }
    text
}

/// Returns the name of the empty chain that identifies the content of the table. It is the digest of the other lines of
/// the script.
pub fn version(table: &ServiceTable, name: &str) -> String {
    version_of(&rules(table, name))
}

fn version_of(rules: &str) -> String {
    format!("version-{}", printable::cut(&digest_of_bytes(rules.as_bytes()), 16))
}

/// Returns the script without the chain of the version. (Writing to a String cannot fail.)
fn rules(table: &ServiceTable, name: &str) -> String {
    // The first line creates the table if it does not exist: `delete` fails without a table.
    let mut text = format!("table inet {name}\ndelete table inet {name}\n");
    if table.is_empty() {
        return text;
    }
    let _ = writeln!(text, "table inet {name} {{");
    for family in Family::ALL {
        add_sets(&mut text, table, family);
    }
    let mut elements = Elements::default();
    for (index, forward) in table.forwards.iter().enumerate() {
        let Some(family) = family_of(forward) else { continue };
        if elements.add(index, forward, family) {
            add_forward(&mut text, index, forward, family);
        }
    }
    text.push_str(FIXED);
    text.push_str("}\n");
    elements.finish(&mut text, name);
    text
}

/// Adds the sets and the empty maps of a family.
fn add_sets(text: &mut String, table: &ServiceTable, family: Family) {
    let (end, address) = (digit(family), address_type(family));
    for (name, addresses) in [("addresses", &table.addresses), ("pods", &table.pods), ("outside", &table.outside)] {
        let _ = write!(text, "  set {name}{end} {{ type {address};");
        let of_family = addresses.iter().filter(|address| Family::of(**address) == family).collect_set();
        for (index, address) in of_family.iter().enumerate() {
            let _ = write!(text, "{}{address}", if index == 0 { " elements = { " } else { ", " });
        }
        text.push_str(if of_family.is_empty() { " }\n" } else { " } }\n" });
    }
    let _ = writeln!(text, "  map entrances{end} {{ type {address} . inet_proto . inet_service : verdict; }}");
    let _ = writeln!(text, "  map ports{end} {{ type inet_proto . inet_service : verdict; }}");
}

/// Returns the family of all addresses of a forward, or nothing if they differ or if there are no places.
fn family_of(forward: &Forward) -> Option<Family> {
    let places = forward.to.places();
    let family = Family::of(places.first()?.ip());
    let fits = |address: &SocketAddr| Family::of(address.ip()) == family;
    let entrance_fits = |entrance: &Entrance| match entrance {
        Entrance::Address(address) => fits(address),
        Entrance::NodePort(_) => true,
    };
    (places.iter().all(fits) && forward.from.iter().all(entrance_fits)).then_some(family)
}

/// Adds the chain of a forward.
fn add_forward(text: &mut String, index: usize, forward: &Forward, family: Family) {
    let (ip, protocol, places) = (keyword(family), protocol(forward.protocol), forward.to.places());
    let _ = write!(text, "  chain forward-{index} {{ meta l4proto {protocol} dnat {ip} to ");
    let _ = match &forward.to {
        Balance::Random(_) => write!(text, "numgen random mod {} map {{ ", places.len()),
        // Without a seed, the kernel selects one for each new table, and the clients change their places.
        Balance::ByClient(_) => write!(text, "jhash {ip} saddr mod {} seed 0x1 map {{ ", places.len()),
    };
    for (place, address) in places.iter().enumerate() {
        let comma = if place == 0 { "" } else { ", " };
        let _ = write!(text, "{comma}{place} : {} . {}", address.ip(), address.port());
    }
    text.push_str(" }; }\n");
}

fn protocol(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Sctp => "sctp",
    }
}

/// The elements of the maps.
#[derive(Default)]
struct Elements {
    seen: BTreeSet<(Family, Protocol, Entrance)>,
    /// The name of a map, and its elements.
    entrances: [String; 2],
    ports: [String; 2],
}

impl Elements {
    /// Adds the entrances that no earlier forward has. Returns whether there is one.
    fn add(&mut self, index: usize, forward: &Forward, family: Family) -> bool {
        let mut added = false;
        let protocol = protocol(forward.protocol);
        for entrance in &forward.from {
            // The scope and the flow label of an IPv6 address are not part of the key.
            let entrance = match entrance {
                Entrance::Address(address) => Entrance::Address(SocketAddr::new(address.ip(), address.port())),
                Entrance::NodePort(port) => Entrance::NodePort(*port),
            };
            let (maps, key) = match &entrance {
                Entrance::Address(a) => (&mut self.entrances, format!("{} . {protocol} . {}", a.ip(), a.port())),
                Entrance::NodePort(port) => (&mut self.ports, format!("{protocol} . {port}")),
            };
            let [map4, map6] = maps;
            let map = if family == Family::V4 { map4 } else { map6 };
            if self.seen.insert((family, forward.protocol, entrance)) {
                added = true;
                let _ = write!(map, "{}  {key} : goto forward-{index}", if map.is_empty() { "" } else { ",\n" });
            }
        }
        added
    }

    /// Adds the commands that fill the maps.
    fn finish(self, text: &mut String, table: &str) {
        for (name, maps) in [("entrances", self.entrances), ("ports", self.ports)] {
            for (family, elements) in Family::ALL.into_iter().zip(maps) {
                if !elements.is_empty() {
                    let end = digit(family);
                    let _ = writeln!(text, "add element inet {table} {name}{end} {{\n{elements}\n}}");
                }
            }
        }
    }
}
