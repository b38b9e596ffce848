//! The addresses of this machine. They are those of the pods in its network, which have none of their own.

use crate::api::time::Boot;
use crate::engine::effect::Effect;
use crate::engine::outbox::Outbox;
use std::net::IpAddr;
use std::time::Duration;

/// *(ours)* How long they are not read again. The check of the rules in the kernel wakes Wherry every minute.
const MIN_AGE: Duration = Duration::from_secs(50);

#[derive(Debug, Default)]
pub struct HostAddresses {
    /// The preferred one of each family first.
    known: Vec<IpAddr>,
    is_reading: bool,
    /// When they were last read.
    read: Option<Boot>,
    /// There are services, and a pod in the network of the machine.
    is_needed: bool,
}

impl HostAddresses {
    pub fn known(&self) -> &[IpAddr] {
        &self.known
    }

    pub fn need(&mut self, is_needed: bool) {
        self.is_needed = is_needed;
    }

    /// Begins to read the addresses, if they are needed and not new.
    pub fn drive(&mut self, now: Boot, outbox: &mut Outbox) {
        let is_new = self.read.is_some_and(|read| now < read + MIN_AGE);
        if self.is_needed && !self.is_reading && !is_new {
            self.is_reading = true;
            self.read = Some(now);
            outbox.push(Effect::ReadAddresses);
        }
    }

    /// Takes the addresses that were read. Returns true if they have changed. A machine without a route, for example
    /// because its cable is unplugged, keeps the old ones.
    pub fn found(&mut self, found: &[String]) -> bool {
        self.is_reading = false;
        let found: Vec<IpAddr> = found.iter().filter_map(|address| address.parse().ok()).collect();
        let have_changed = !found.is_empty() && found != self.known;
        if have_changed {
            self.known = found;
        }
        have_changed
    }
}
