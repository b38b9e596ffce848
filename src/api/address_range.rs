//! A range of IP addresses: `10.96.0.0/16`.

use serde::{Serialize, Serializer};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The family of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    V4,
    V6,
}

impl Family {
    pub const ALL: [Family; 2] = [Family::V4, Family::V6];

    pub fn of(address: IpAddr) -> Family {
        if address.is_ipv4() { Family::V4 } else { Family::V6 }
    }

    /// Returns the name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        }
    }

    pub fn of_name(name: &str) -> Option<Family> {
        Family::ALL.into_iter().find(|family| family.name() == name)
    }
}

/// The number of bits of an address of a range that differ, as in an API server: at most a million addresses.
const MAX_BITS: u8 = 20;
const MIN_BITS: u8 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    first: IpAddr,
    /// The number of leading bits that all addresses have in common.
    prefix: u8,
}

impl AddressRange {
    /// Parses a range in CIDR notation.
    ///
    /// # Errors
    /// It is not a range, its first address has other bits set, or it is too small or too large.
    pub fn parse(text: &str) -> Result<AddressRange, String> {
        let form = || format!("{text:?} must be a range of addresses such as 10.96.0.0/16");
        let (address, prefix) = text.split_once('/').ok_or_else(form)?;
        let first: IpAddr = address.parse().map_err(|_| form())?;
        let width = if first.is_ipv4() { 32 } else { 128 };
        let prefix: u8 = prefix.parse().ok().filter(|prefix| *prefix <= width).ok_or_else(form)?;
        let (least, most) = (width - MAX_BITS, width - MIN_BITS);
        if !(least..=most).contains(&prefix) {
            return Err(format!("{text:?} must have a prefix of {least} to {most} bits"));
        }
        let range = AddressRange { first, prefix };
        match range.first_of(first) {
            start if start == first => Ok(range),
            start => Err(format!("{text:?} must begin with its first address, {start}")),
        }
    }

    pub fn family(&self) -> Family {
        Family::of(self.first)
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        Family::of(address) == self.family() && self.first_of(address) == self.first
    }

    /// Returns the number of addresses that services can have. The first address of a range names the range, and the
    /// last one of IPv4 is for broadcasts.
    pub fn usable(&self) -> u32 {
        let all = 1u32 << self.bits();
        match self.family() {
            Family::V4 => all - 2,
            Family::V6 => all - 1,
        }
    }

    /// Returns a usable address. `index`: less than `usable`.
    pub fn usable_at(&self, index: u32) -> IpAddr {
        match self.first {
            IpAddr::V4(first) => Ipv4Addr::from_bits(first.to_bits() | (index + 1)).into(),
            IpAddr::V6(first) => Ipv6Addr::from_bits(first.to_bits() | u128::from(index + 1)).into(),
        }
    }

    /// Returns true if a service can have this address.
    pub fn is_usable(&self, address: IpAddr) -> bool {
        let last = self.usable_at(self.usable() - 1);
        self.contains(address) && address != self.first && address <= last
    }

    fn bits(&self) -> u8 {
        if self.first.is_ipv4() { 32 - self.prefix } else { 128 - self.prefix }
    }

    fn first_of(&self, address: IpAddr) -> IpAddr {
        match address {
            IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits() >> self.bits() << self.bits()).into(),
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> self.bits() << self.bits()).into(),
        }
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.prefix)
    }
}

impl Serialize for AddressRange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_range_has_its_usable_addresses() {
        for (text, usable, first, last, not) in [
            ("10.96.0.0/16", 65534, "10.96.0.1", "10.96.255.254", "10.96.255.255"),
            ("10.0.0.8/29", 6, "10.0.0.9", "10.0.0.14", "10.0.0.8"),
            ("fd00:10::/108", 1_048_575, "fd00:10::1", "fd00:10::f:ffff", "fd00:10::10:0"),
        ] {
            let range = AddressRange::parse(text).expect("a range");
            assert_eq!((range.to_string(), range.usable()), (text.to_owned(), usable));
            let (low, high) = (range.usable_at(0), range.usable_at(usable - 1));
            assert_eq!((low, high), (address(first), address(last)), "{text}");
            assert!(range.is_usable(low) && range.is_usable(high) && !range.is_usable(address(not)), "{text}");
        }
    }

    #[test]
    fn a_wrong_range_is_refused() {
        for text in
            ["", "10.96.0.0", "10.96.0.0/33", "10.96.0.0/8", "10.96.0.1/16", "10.96.0.0/30", "fd00::/64", "x/16"]
        {
            let why = AddressRange::parse(text).expect_err(text);
            assert!(why.contains(text), "{why}");
        }
    }
}
