//! What the kernel does with the packets to services: one table of rules, which is replaced as a whole.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

/// The transport protocol of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

impl Protocol {
    pub const ALL: [Protocol; 3] = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];

    /// Returns the name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Tcp => "TCP",
            Protocol::Udp => "UDP",
            Protocol::Sctp => "SCTP",
        }
    }

    pub fn of_name(name: &str) -> Option<Protocol> {
        Protocol::ALL.into_iter().find(|protocol| protocol.name() == name)
    }
}

/// All rules.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct ServiceTable {
    /// The addresses of the services. A packet to one of them that no rule of `forwards` matches is rejected.
    pub addresses: Vec<IpAddr>,
    /// The addresses of the pods. A connection of a pod through a service gets the source address of this machine:
    /// otherwise the answer of a pod on the same bridge would not pass this machine.
    pub pods: Vec<IpAddr>,
    /// The addresses of the endpoints that are not among `pods`. A connection to them gets the source address of this
    /// machine: otherwise the answer of another machine would not pass this one.
    pub outside: Vec<IpAddr>,
    pub forwards: Vec<Forward>,
}

/// Connections to `from` go to one of `to`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Forward {
    pub protocol: Protocol,
    /// Not empty. All have the family of `to`.
    pub from: Vec<Entrance>,
    pub to: Balance,
}

/// Where the connections to a port of a service arrive.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub enum Entrance {
    /// This address.
    Address(SocketAddr),
    /// This port of all addresses of this machine that others can reach.
    NodePort(u16),
}

/// How connections are distributed.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub enum Balance {
    /// At random. Not empty.
    Random(Vec<SocketAddr>),
    /// By the address of the client: its hash, modulo the number of places, is an index. The same endpoint occurs more
    /// than once.
    ByClient(Vec<SocketAddr>),
}

/// Conversations over UDP. The kernel remembers where each goes, also after a change of the rules.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct UdpFlows {
    /// Those that go to these endpoints.
    pub endpoints: BTreeSet<IpAddr>,
    /// Those to these ports of the machine.
    pub ports: BTreeSet<u16>,
}

impl UdpFlows {
    pub fn is_empty(&self) -> bool {
        self.endpoints.is_empty() && self.ports.is_empty()
    }
}

impl ServiceTable {
    /// Returns the endpoints and the node ports of the rules for UDP.
    pub fn udp(&self) -> UdpFlows {
        let all = || self.forwards.iter().filter(|one| one.protocol == Protocol::Udp);
        let port = |entrance: &Entrance| if let Entrance::NodePort(port) = entrance { Some(*port) } else { None };
        UdpFlows {
            endpoints: all().flat_map(|one| one.to.places()).map(SocketAddr::ip).collect(),
            ports: all().flat_map(|one| &one.from).filter_map(port).collect(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty() && self.forwards.is_empty()
    }

    /// Returns true if some connections go to this address.
    pub fn leads_to(&self, address: IpAddr) -> bool {
        self.forwards.iter().any(|one| one.to.places().iter().any(|place| place.ip() == address))
    }
}

impl Balance {
    /// Returns the places, which are not empty.
    pub fn places(&self) -> &[SocketAddr] {
        match self {
            Balance::Random(places) | Balance::ByClient(places) => places,
        }
    }
}
