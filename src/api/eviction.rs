//! Node-pressure eviction: the signals, conditions and thresholds, with the names that a kubelet uses.

pub use crate::api::node_facts::Threshold as Limit;
use crate::api::reason::Reason;
use serde::Serialize;
use std::time::Duration;

/// A measured property of the node. Pods are evicted for the signals in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Signal {
    /// Memory that is free, or holds file pages that were not used recently. In bytes.
    MemoryAvailable,
    /// Process ids.
    PidAvailable,
    /// Space on the file system of the root directory. In bytes.
    NodefsAvailable,
    NodefsInodesFree,
    /// Space on the file system of the runtime's images. In bytes.
    ImagefsAvailable,
    ImagefsInodesFree,
}

impl Signal {
    pub const ALL: [Signal; 6] = [
        Signal::MemoryAvailable,
        Signal::PidAvailable,
        Signal::NodefsAvailable,
        Signal::NodefsInodesFree,
        Signal::ImagefsAvailable,
        Signal::ImagefsInodesFree,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Signal::MemoryAvailable => "memory.available",
            Signal::PidAvailable => "pid.available",
            Signal::NodefsAvailable => "nodefs.available",
            Signal::NodefsInodesFree => "nodefs.inodesFree",
            Signal::ImagefsAvailable => "imagefs.available",
            Signal::ImagefsInodesFree => "imagefs.inodesFree",
        }
    }

    pub fn of_name(name: &str) -> Option<Signal> {
        Signal::ALL.into_iter().find(|signal| signal.name() == name)
    }

    pub fn condition(self) -> Condition {
        match self {
            Signal::MemoryAvailable => Condition::MemoryPressure,
            Signal::PidAvailable => Condition::PidPressure,
            Signal::NodefsAvailable
            | Signal::NodefsInodesFree
            | Signal::ImagefsAvailable
            | Signal::ImagefsInodesFree => Condition::DiskPressure,
        }
    }

    /// Returns the name of the resource in messages.
    pub fn resource(self) -> &'static str {
        match self {
            Signal::MemoryAvailable => "memory",
            Signal::PidAvailable => "pids",
            Signal::NodefsAvailable | Signal::ImagefsAvailable => "ephemeral-storage",
            Signal::NodefsInodesFree | Signal::ImagefsInodesFree => "inodes",
        }
    }

    /// Formats an amount of this signal as a kubelet does: bytes with a binary suffix, all others as plain numbers.
    pub fn amount(self, n: u64) -> String {
        match self {
            Signal::MemoryAvailable | Signal::NodefsAvailable | Signal::ImagefsAvailable => in_bytes(n),
            Signal::PidAvailable | Signal::NodefsInodesFree | Signal::ImagefsInodesFree => n.to_string(),
        }
    }
}

/// Formats bytes with the largest binary suffix that leaves a whole number, as Kubernetes formats a quantity.
pub fn in_bytes(n: u64) -> String {
    const SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let thousands = if n == 0 { 0 } else { (n.trailing_zeros() / 10) as usize };
    format!("{}{}", n >> (10 * thousands), SUFFIXES.get(thousands).copied().unwrap_or_default())
}

/// A condition of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Condition {
    MemoryPressure,
    DiskPressure,
    PidPressure,
}

impl Condition {
    pub const ALL: [Condition; 3] = [Condition::MemoryPressure, Condition::DiskPressure, Condition::PidPressure];

    pub fn name(self) -> &'static str {
        match self {
            Condition::MemoryPressure => "MemoryPressure",
            Condition::DiskPressure => "DiskPressure",
            Condition::PidPressure => "PIDPressure",
        }
    }

    /// Returns the reason of the event for a condition that becomes true.
    pub fn began(self) -> Reason {
        match self {
            Condition::MemoryPressure => Reason::NodeHasInsufficientMemory,
            Condition::DiskPressure => Reason::NodeHasDiskPressure,
            Condition::PidPressure => Reason::NodeHasInsufficientPID,
        }
    }

    /// Returns the reason of the event for a condition that becomes false.
    pub fn ended(self) -> Reason {
        match self {
            Condition::MemoryPressure => Reason::NodeHasSufficientMemory,
            Condition::DiskPressure => Reason::NodeHasNoDiskPressure,
            Condition::PidPressure => Reason::NodeHasSufficientPID,
        }
    }
}

/// Total and available amount of a resource, in the unit of its signal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Level {
    pub capacity: u64,
    pub available: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum ThresholdKind {
    Hard,
    /// Pods are evicted once the signal has been below the limit for this time.
    Soft(Duration),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Threshold {
    pub signal: Signal,
    pub kind: ThresholdKind,
    /// The amount that must stay available.
    pub limit: Limit,
    /// `evictionMinimumReclaim`: once a threshold has caused an eviction, it stays met until this much more than the
    /// limit is available.
    pub reclaim: Option<Limit>,
}

impl Threshold {
    /// Reports whether the signal is below the limit. `was_due` is true if the previous measurement was a reason to
    /// evict a pod.
    pub fn is_met(&self, level: Level, was_due: bool) -> bool {
        let limit = self.limit.of(level.capacity);
        let more = self.reclaim.filter(|_| was_due).map_or(0, |reclaim| reclaim.of(level.capacity));
        level.available < limit.saturating_add(more)
    }
}

/// The settings of node-pressure eviction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EvictionPolicy {
    pub thresholds: Vec<Threshold>,
    /// `evictionPressureTransitionPeriod`: a condition stays true for this time after the pressure has ended.
    pub transition: Duration,
    /// `evictionMaxPodGracePeriod`: the longest grace period at a soft threshold.
    pub max_grace: Duration,
}

impl Default for EvictionPolicy {
    fn default() -> EvictionPolicy {
        EvictionPolicy { thresholds: Vec::new(), transition: Duration::from_secs(300), max_grace: Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantity_has_the_largest_suffix_that_leaves_a_whole_number() {
        let texts = [(0, "0"), (1023, "1023"), (1024, "1Ki"), (1025, "1025"), (100 << 20, "100Mi"), (3 << 30, "3Gi")];
        for (n, text) in texts {
            assert_eq!(in_bytes(n), text);
        }
        assert_eq!(in_bytes(51 * 1024 + (50 << 20)), "51251Ki");
        assert_eq!(
            (Signal::NodefsInodesFree.amount(2048), Signal::MemoryAvailable.amount(2048)),
            ("2048".into(), "2Ki".into())
        );
    }

    #[test]
    fn e2_a_threshold_that_was_due_stays_met_until_the_minimum_reclaim_is_available() {
        let threshold = |reclaim| Threshold {
            signal: Signal::MemoryAvailable,
            kind: ThresholdKind::Hard,
            limit: Limit::Amount(100),
            reclaim,
        };
        let level = |available| Level { capacity: 1000, available };
        let (plain, more) = (threshold(None), threshold(Some(Limit::Share(5_000))));
        assert_eq!([99, 100].map(|n| plain.is_met(level(n), true)), [true, false]);
        assert_eq!([99, 100, 149, 150].map(|n| more.is_met(level(n), true)), [true, true, true, false]);
        assert_eq!([99, 100, 149].map(|n| more.is_met(level(n), false)), [true, false, false]);
    }

    #[test]
    fn each_signal_is_found_by_its_name() {
        for signal in Signal::ALL {
            assert_eq!(Signal::of_name(signal.name()), Some(signal));
        }
        assert_eq!(Signal::of_name("memory.free"), None);
    }
}
