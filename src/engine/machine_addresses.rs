//! The addresses of this machine, which its node and its pods report (C1), and to which Services lead (Y26).
//!
//! They can change while Wherry runs: DHCP answers after the start, or the machine moves to another network. Wherry
//! reads them when it is awake anyway.

use crate::api::cluster::node::Address;
use crate::api::time::Boot;
use crate::engine::effect::Effect;
use crate::engine::outbox::Outbox;
use serde::Serialize;
use std::time::Duration;

#[derive(Debug, Default, Serialize)]
pub struct MachineAddresses {
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

impl Default for Reading {
    fn default() -> Reading {
        Reading::Done(None)
    }
}

impl MachineAddresses {
    /// Creates the state from the addresses that were read at the start.
    pub fn new(known: Vec<String>) -> MachineAddresses {
        MachineAddresses { known, reading: Reading::default() }
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

    /// Reads the addresses, unless the last read is more recent than `least`.
    pub fn read_again(&mut self, least: Duration, now: Boot, outbox: &mut Outbox) {
        let is_due = match self.reading {
            Reading::Done(last) => last.is_none_or(|last| now.since(last) >= least),
            Reading::Running(_) => false,
        };
        if is_due {
            self.reading = Reading::Running(now);
            outbox.push(Effect::ReadAddresses);
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
