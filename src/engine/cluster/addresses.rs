//! The addresses of this machine, which its node and its pods report (C1).
//!
//! They can change while Wherry runs: DHCP answers after the start, or the machine moves to another network. Wherry
//! reads them when it renews the lease, because it is awake then anyway. When the API server becomes reachable again,
//! possibly from another network, Wherry renews the lease at once.

use super::reflector::Step;
use crate::api::cluster::node::Address;
use crate::api::time::Boot;
use crate::engine::effect::Effect;
use serde::Serialize;

#[derive(Debug, Serialize)]
pub struct Addresses {
    /// The preferred address is the first.
    known: Vec<String>,
    reading: Reading,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum Reading {
    /// When the addresses were last read. None if they were read only at the start.
    Done(Option<Boot>),
    /// A read is in progress; an event will deliver the addresses.
    Running(Boot),
}

impl Addresses {
    /// Creates the state from the addresses that were read at the start.
    pub fn new(known: Vec<String>) -> Addresses {
        Addresses { known, reading: Reading::Done(None) }
    }

    pub fn known(&self) -> &[String] {
        &self.known
    }

    /// Returns the addresses for the node's status.
    pub fn reported(&self, node: &str) -> Vec<Address> {
        let of = |kind: &str, address: &str| Address { kind: kind.to_owned(), address: address.to_owned() };
        let internal = self.known.iter().map(|ip| of("InternalIP", ip));
        internal.chain([of("Hostname", node)]).collect()
    }

    pub fn are_being_read(&self) -> bool {
        matches!(self.reading, Reading::Running(_))
    }

    /// Reads the addresses at a renewal of the lease. Skips this if the last read is recent, because a failed renewal
    /// is repeated soon.
    pub fn read_with_lease(&mut self, step: &mut Step<'_>) {
        let least = step.traffic.lease_period() / 2;
        let is_due = match self.reading {
            Reading::Done(last) => last.is_none_or(|last| step.now.since(last) >= least),
            Reading::Running(_) => false,
        };
        if is_due {
            self.reading = Reading::Running(step.now);
            step.outbox.push(Effect::ReadAddresses);
        }
    }

    /// Takes the addresses that were read. Returns whether the known addresses have changed.
    pub fn found(&mut self, found: Vec<String>) -> bool {
        if let Reading::Running(at) = self.reading {
            self.reading = Reading::Done(Some(at));
        }
        // A machine without a route, for example because its cable is unplugged, probably gets the same addresses
        // again later.
        if found.is_empty() || found == self.known {
            return false;
        }
        self.known = found;
        true
    }
}
