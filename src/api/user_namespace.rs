//! The host ids of a pod with a user namespace of its own (`hostUsers: false`). As in a kubelet, each pod has 65536
//! ids, and the first range starts at 65536.

use crate::api::hash;
use crate::api::names::Uid;
use serde::Serialize;
use std::fmt;

/// The number of user ids, and of group ids, of a pod. Inside the pod they start at 0.
pub const IDS_PER_POD: u32 = 65_536;
/// The number of ranges. The ids below the first one belong to the host; 4294967295 is not an id.
const RANGES: u32 = u32::MAX / IDS_PER_POD - 1;

/// The user ids and the group ids of a pod on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct IdRange(u32);

impl IdRange {
    /// Returns the first id on the host.
    pub fn first(self) -> u32 {
        self.0 * IDS_PER_POD
    }

    /// Returns the range that a pod gets if it is free.
    pub fn preferred(uid: &Uid) -> IdRange {
        IdRange(1 + hash::fnv1a(uid.as_str().as_bytes()) % RANGES)
    }

    /// Returns the next range. After the last range, starts again with the first one.
    pub fn next(self) -> IdRange {
        IdRange(1 + self.0 % RANGES)
    }

    /// Reads the text that `Display` writes. None if it is not the first id of a range.
    pub fn from_text(text: &str) -> Option<IdRange> {
        let first: u32 = text.parse().ok()?;
        let range = first / IDS_PER_POD;
        (first.is_multiple_of(IDS_PER_POD) && (1..=RANGES).contains(&range)).then_some(IdRange(range))
    }
}

/// Shows the first id on the host.
impl fmt::Display for IdRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.first().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_outside_of_the_hosts_ids_and_are_read_back() {
        let last = IdRange(RANGES);
        assert_eq!(last.next(), IdRange(1));
        assert_eq!((IdRange(1).first(), IdRange(1).next()), (65_536, IdRange(2)));
        assert!(last.first().checked_add(IDS_PER_POD).is_some());
        for range in [IdRange(1), last] {
            assert_eq!(IdRange::from_text(&range.to_string()), Some(range));
        }
        for text in ["", "0", "65537", "-65536", "4294901760", "4294967296"] {
            assert_eq!(IdRange::from_text(text), None, "{text}");
        }
    }
}
