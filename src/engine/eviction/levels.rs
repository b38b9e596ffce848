//! The measured levels, the thresholds that are met, and the conditions of the node (E1, E2).

use crate::api::eviction::{Condition, EvictionPolicy, Level, Signal, Threshold, ThresholdKind};
use crate::api::facts::{FileSystemFact, MachineFact};
use crate::api::reason::Reason;
use crate::api::time::Boot;
use crate::engine::effect::Severity;
use crate::engine::outbox::Outbox;
use serde::Serialize;
use std::collections::BTreeMap;

/// *(ours)* A signal is calm while the available amount exceeds the limit by at least this percentage of the
/// capacity.
const CALM: u64 = 20;

/// The results of one measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Levels {
    pub machine: Option<MachineFact>,
    pub nodefs: Option<FileSystemFact>,
    pub imagefs: Option<FileSystemFact>,
}

impl Levels {
    /// Returns the level of the signal. None if it was not measured, or the file system has no fixed number of
    /// inodes.
    pub fn get(&self, signal: Signal) -> Option<Level> {
        let bytes = |f: FileSystemFact| Level { capacity: f.capacity, available: f.available };
        let inodes = |f: FileSystemFact| Level { capacity: f.inodes, available: f.inodes_free };
        let level = match signal {
            Signal::MemoryAvailable => self.machine?.memory,
            Signal::PidAvailable => self.machine?.pids,
            Signal::NodefsAvailable => bytes(self.nodefs?),
            Signal::NodefsInodesFree => inodes(self.nodefs?),
            Signal::ImagefsAvailable => bytes(self.imagefs?),
            Signal::ImagefsInodesFree => inodes(self.imagefs?),
        };
        Some(level).filter(|level| level.capacity > 0)
    }

    /// Returns true if removing images improves this signal, because the images are on its file system.
    pub fn has_images(&self, signal: Signal) -> bool {
        match signal {
            Signal::MemoryAvailable | Signal::PidAvailable => false,
            Signal::ImagefsAvailable | Signal::ImagefsInodesFree => true,
            Signal::NodefsAvailable | Signal::NodefsInodesFree => {
                matches!((self.nodefs, self.imagefs), (Some(node), Some(images)) if node.id == images.id)
            }
        }
    }
}

/// A threshold that is met.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Met {
    pub threshold: Threshold,
    pub level: Level,
}

/// The stage of a threshold that is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum Stage {
    /// A soft threshold that has been met for less than its grace period.
    Grace { since: Boot },
    /// Pods are evicted.
    Due,
}

impl Stage {
    fn advance(&mut self, kind: ThresholdKind, now: Boot) {
        match (*self, kind) {
            (Stage::Grace { since }, ThresholdKind::Soft(grace)) if now.since(since) < grace => {}
            _ => *self = Stage::Due,
        }
    }
}

/// The pressure on the node.
#[derive(Debug, Default, Serialize)]
pub struct Pressure {
    /// The thresholds that are met.
    #[serde(serialize_with = "as_list")]
    met: BTreeMap<(Signal, ThresholdKind), Stage>,
    /// The conditions that are true, and when a threshold of each was last met.
    conditions: BTreeMap<Condition, Boot>,
    /// For every signal, far more is available than its thresholds require.
    calm: bool,
}

fn as_list<S: serde::Serializer>(
    met: &BTreeMap<(Signal, ThresholdKind), Stage>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(met)
}

impl Pressure {
    /// Takes the levels of a measurement. Returns the threshold to act on, if pods must be evicted.
    pub fn measured(
        &mut self,
        levels: &Levels,
        policy: &EvictionPolicy,
        now: Boot,
        outbox: &mut Outbox,
    ) -> Option<Met> {
        self.met.retain(|key, _| policy.thresholds.iter().any(|t| (t.signal, t.kind) == *key));
        let before: Vec<Signal> = self.met.keys().map(|(signal, _)| *signal).collect();
        let mut act: Option<Met> = None;
        self.calm = true;
        for threshold in &policy.thresholds {
            let key = (threshold.signal, threshold.kind);
            // A level that is unknown changes nothing.
            let Some(level) = levels.get(threshold.signal) else { continue };
            let limit = threshold.limit.of(level.capacity);
            self.calm &= level.available >= limit.saturating_add(level.capacity / 100 * CALM);
            if !threshold.is_met(level, self.met.get(&key) == Some(&Stage::Due)) {
                self.met.remove(&key);
                continue;
            }
            let stage = self.met.entry(key).or_insert(Stage::Grace { since: now });
            stage.advance(threshold.kind, now);
            let first = act.as_ref().is_none_or(|met| key < (met.threshold.signal, met.threshold.kind));
            if *stage == Stage::Due && first {
                act = Some(Met { threshold: threshold.clone(), level });
            }
            if !before.contains(&threshold.signal) && self.met.keys().filter(|(s, _)| *s == key.0).count() == 1 {
                let message = format!("Attempting to reclaim {}", threshold.signal.resource());
                outbox.emit_node_event(Severity::Warning, Reason::EvictionThresholdMet, message);
            }
        }
        self.set_conditions(policy, now, outbox);
        act
    }

    /// E2: updates the conditions. A condition is true while one of its thresholds is met, and for the transition
    /// period after that.
    fn set_conditions(&mut self, policy: &EvictionPolicy, now: Boot, outbox: &mut Outbox) {
        let is_watched = |condition| policy.thresholds.iter().any(|t| t.signal.condition() == condition);
        for condition in Condition::ALL {
            let is_met = self.met.keys().any(|(signal, _)| signal.condition() == condition);
            let was = self.conditions.contains_key(&condition);
            if is_met {
                self.conditions.insert(condition, now);
            } else if let Some(last) = self.conditions.get(&condition)
                && (now.since(*last) >= policy.transition || !is_watched(condition))
            {
                self.conditions.remove(&condition);
            }
            let is = self.conditions.contains_key(&condition);
            if is != was {
                let reason = if is { condition.began() } else { condition.ended() };
                let severity = if is { Severity::Warning } else { Severity::Normal };
                let message = format!("Node status is now: {reason}");
                outbox.emit_node_event(severity, reason, message);
            }
        }
    }

    /// Forgets the pressure, because nothing is watched any longer.
    pub fn clear(&mut self) {
        *self = Pressure::default();
    }

    pub fn conditions(&self) -> impl Iterator<Item = Condition> {
        self.conditions.keys().copied()
    }

    pub fn has(&self, condition: Condition) -> bool {
        self.conditions.contains_key(&condition)
    }

    /// Returns true if no threshold is met and no condition is true.
    pub fn is_over(&self) -> bool {
        self.met.is_empty() && self.conditions.is_empty()
    }

    pub fn is_calm(&self) -> bool {
        self.calm && self.is_over()
    }
}
