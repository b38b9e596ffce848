//! The server: how to reach it and how to verify it. Pure.

use crate::net::tls::verified::Connector;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// The server of a client, and the identity of the client.
#[derive(Clone)]
pub struct Peer {
    pub host: Host,
    pub port: u16,
    /// Verifies the server and offers the protocol `h2`.
    pub tls: Connector,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    Address(IpAddr),
    /// A name, which the caller of the client resolves.
    Name(String),
}

impl Peer {
    /// Returns the host and the port as in a URL.
    pub fn authority(&self) -> String {
        let port = self.port;
        match &self.host {
            Host::Address(IpAddr::V4(ip)) => format!("{ip}:{port}"),
            Host::Address(IpAddr::V6(ip)) => format!("[{ip}]:{port}"),
            Host::Name(name) => format!("{name}:{port}"),
        }
    }
}

/// Formats the server as `https://HOST:PORT`.
impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "https://{}", self.authority())
    }
}

/// The addresses of the server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Addresses {
    Known(Vec<SocketAddr>),
    /// A look-up is necessary. `old` holds the addresses of the last look-up.
    Wanted {
        old: Vec<SocketAddr>,
    },
    /// A look-up was requested.
    Requested {
        old: Vec<SocketAddr>,
    },
}

impl Addresses {
    pub(super) fn of(peer: &Peer) -> Addresses {
        match peer.host {
            Host::Address(ip) => Addresses::Known(vec![SocketAddr::new(ip, peer.port)]),
            Host::Name(_) => Addresses::Wanted { old: Vec::new() },
        }
    }

    /// Requests a new look-up of a name after no address could be reached, because the addresses may have changed.
    pub(super) fn failed(&mut self, peer: &Peer) {
        if let (Host::Name(_), Addresses::Known(old)) = (&peer.host, &mut *self) {
            *self = Addresses::Wanted { old: std::mem::take(old) };
        }
    }

    /// Stores the result of a look-up. If it has no address, the addresses of the last look-up stay. Returns false if
    /// there are no addresses at all.
    pub(super) fn resolved(&mut self, found: Vec<SocketAddr>) -> bool {
        let old = match std::mem::replace(self, Addresses::Known(Vec::new())) {
            Addresses::Known(old) | Addresses::Wanted { old } | Addresses::Requested { old } => old,
        };
        let addresses = if found.is_empty() { old } else { found };
        let any = !addresses.is_empty();
        *self = if any { Addresses::Known(addresses) } else { Addresses::Wanted { old: addresses } };
        any
    }
}
