//! The addresses of this machine, which its node and its pods report (C1).
//!
//! They change while Wherry runs: DHCP answers after the start, or the machine moves to another network. They are read
//! at a renewal of the lease, which wakes Wherry anyway. When the API server answers again, which can be in another
//! network, the lease is renewed at once.

use super::reflector::Step;
use crate::api::cluster::node::Address;
use crate::api::time::Boot;
use crate::engine::effect::Effect;
use serde::Serialize;

#[derive(Debug, Serialize)]
pub struct Addresses {
    /// The preferred one first.
    known: Vec<String>,
    reading: Reading,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum Reading {
    /// The last time. None: at the start only.
    Done(Option<Boot>),
    /// The event with the addresses follows.
    Running(Boot),
}

impl Addresses {
    /// `known`: as read at the start.
    pub fn new(known: Vec<String>) -> Addresses {
        Addresses { known, reading: Reading::Done(None) }
    }

    pub fn known(&self) -> &[String] {
        &self.known
    }

    /// The addresses in the status of the node.
    pub fn reported(&self, node: &str) -> Vec<Address> {
        let of = |kind: &str, address: &str| Address { kind: kind.to_owned(), address: address.to_owned() };
        let internal = self.known.iter().map(|ip| of("InternalIP", ip));
        internal.chain([of("Hostname", node)]).collect()
    }

    pub fn are_being_read(&self) -> bool {
        matches!(self.reading, Reading::Running(_))
    }

    /// The lease is being renewed. A renewal that failed is repeated soon, and the addresses are not read each time.
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

    /// The machine has these addresses. Returns whether the known ones have changed.
    pub fn found(&mut self, found: Vec<String>) -> bool {
        if let Reading::Running(at) = self.reading {
            self.reading = Reading::Done(Some(at));
        }
        // A machine without a route, for example because its cable is unplugged, probably gets the last ones again.
        if found.is_empty() || found == self.known {
            return false;
        }
        self.known = found;
        true
    }
}
