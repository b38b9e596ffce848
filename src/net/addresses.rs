//! The node's IP addresses: those from which it reaches other networks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Destinations from the documentation ranges (RFC 5737, RFC 3849). Nothing is sent to them.
const ELSEWHERE: [SocketAddr; 2] = [
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 9),
    SocketAddr::new(IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)), 9),
];

/// Returns the source addresses of the default routes, IPv4 first. Empty without a network. Connecting a UDP socket
/// only selects a route; it sends nothing.
pub fn addresses() -> Vec<String> {
    let source = |to: &SocketAddr| {
        let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind((any, 0)).ok()?;
        socket.connect(to).ok()?;
        let address = socket.local_addr().ok()?.ip();
        (!address.is_unspecified() && !address.is_loopback()).then(|| address.to_string())
    };
    ELSEWHERE.iter().filter_map(source).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_the_node_belongs_to_an_interface() {
        for address in addresses() {
            // Only a local address can be bound.
            assert!(UdpSocket::bind((address.as_str(), 0)).is_ok(), "{address}");
        }
    }
}
