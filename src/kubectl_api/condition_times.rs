//! Records when the status of each node condition last changed.

use crate::api::kept_reports::KeptCondition;
use crate::api::ordered::CollectOrdered;
use crate::api::time::{Boot, Now, Wall};
use crate::engine::node::Engine;
use std::collections::BTreeMap;
use std::time::Duration;

/// During this time after the start, a node that has not been ready yet is not recorded as not ready, because it may
/// just be starting.
const START: Duration = Duration::from_secs(30);

/// The status of each node condition, and when it last changed.
#[derive(Debug, Default)]
pub struct ConditionTimes {
    conditions: BTreeMap<String, (bool, Wall)>,
    /// Whether the node has been ready in this run.
    was_ready: bool,
}

impl ConditionTimes {
    pub fn restore(conditions: Vec<KeptCondition>) -> ConditionTimes {
        let conditions = conditions.into_iter().map(|c| (c.kind, (c.is_true, Wall(c.since)))).collect_map();
        ConditionTimes { conditions, was_ready: false }
    }

    pub fn kept(&self) -> Vec<KeptCondition> {
        let kept = |(kind, (is_true, since)): (&String, &(bool, Wall))| KeptCondition {
            kind: kind.clone(),
            is_true: *is_true,
            since: since.0,
        };
        self.conditions.iter().map(kept).collect()
    }

    /// Records the conditions of the node. Returns true if one of them has changed. `started` is the start of the
    /// process.
    pub fn follow_node(&mut self, engine: &Engine, started: Boot, now: Now) -> bool {
        let pressure: Vec<&str> = engine.conditions().map(|condition| condition.name()).collect();
        let is_ready = engine.not_ready(now.boot).is_none();
        let mut changed = false;
        for kind in PRESSURE {
            changed |= self.follow(kind, pressure.contains(&kind), now.wall);
        }
        self.was_ready |= is_ready;
        if self.was_ready || now.boot.since(started) >= START {
            changed |= self.follow(READY, is_ready, now.wall);
        }
        changed
    }

    /// Records the current status. Returns true if it has changed.
    fn follow(&mut self, kind: &str, is_true: bool, now: Wall) -> bool {
        if self.conditions.get(kind).is_some_and(|(before, _)| *before == is_true) {
            return false;
        }
        self.conditions.insert(kind.to_owned(), (is_true, now));
        true
    }

    /// Returns when the condition changed to this status, or None if that has not been recorded.
    pub fn since(&self, kind: &str, is_true: bool) -> Option<Wall> {
        self.conditions.get(kind).filter(|(noted, _)| *noted == is_true).map(|(_, since)| *since)
    }
}

/// The pressure conditions of the node.
pub const PRESSURE: [&str; 3] = ["MemoryPressure", "DiskPressure", "PIDPressure"];
pub const READY: &str = "Ready";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_of_the_nodes_conditions_survive_until_the_status_changes() {
        let mut times = ConditionTimes::default();
        assert!(times.follow(READY, true, Wall(1)) && !times.follow(READY, true, Wall(2)));
        let mut times = ConditionTimes::restore(times.kept());
        assert!(!times.follow(READY, true, Wall(3)));
        assert_eq!((times.since(READY, true), times.since(READY, false)), (Some(Wall(1)), None));
        assert!(times.follow(READY, false, Wall(4)));
        assert_eq!(times.since(READY, false), Some(Wall(4)));
    }
}
