//! The priority groups of a node shutdown and their periods (S1). Pure arithmetic. `view` is the representation for
//! users; `retry` is the schedule of retries to logind.

pub mod retry;
pub mod view;

use crate::api::ordered::OrderSlice;
use crate::api::priority::CRITICAL;
use serde::Serialize;
use std::time::Duration;

/// The maximum period (S1). A longer period is probably a mistake; a kubelet has no limit.
pub const LONGEST: Duration = Duration::from_secs(3600);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Group {
    /// The group contains the pods with at least this priority, up to the priority of the next group.
    pub priority: i32,
    /// In whole seconds. If it is zero, the pods are killed with the minimum grace period, and Wherry does not wait
    /// for them.
    pub period: Duration,
}

/// The groups in the order in which they are stopped: lowest priority first. Empty: graceful shutdown is off.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Groups(Vec<Group>);

impl Groups {
    /// Builds the groups from `shutdownGracePeriod` (`total`) and its last part, `shutdownGracePeriodCriticalPods`
    /// (`critical`). Fractions of a second are dropped. Graceful shutdown is off if `total` is zero. `critical` must
    /// not exceed `total`.
    pub fn from_total(total: Duration, critical: Duration) -> Groups {
        let (total, critical) = (total.as_secs(), critical.as_secs());
        if total == 0 {
            return Groups::default();
        }
        let period = |s: u64| Duration::from_secs(s);
        Groups(vec![
            Group { priority: 0, period: period(total.saturating_sub(critical)) },
            Group { priority: CRITICAL, period: period(critical) },
        ])
    }

    /// Builds the groups from `shutdownGracePeriodByPodPriority`: pairs of priority and whole seconds. Priorities
    /// must be unique.
    pub fn by_priority(groups: impl IntoIterator<Item = (i32, u64)>) -> Groups {
        let group = |(priority, s)| Group { priority, period: Duration::from_secs(s) };
        let mut groups: Vec<Group> = groups.into_iter().map(group).collect();
        groups.order_by_key(|g| g.priority);
        Groups(groups)
    }

    pub fn is_off(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Group> {
        self.0.iter()
    }

    pub fn get(&self, index: usize) -> Option<&Group> {
        self.0.get(index)
    }

    /// Returns the delay that logind must grant.
    pub fn sum(&self) -> Duration {
        self.0.iter().map(|g| g.period).sum()
    }

    /// Returns the index of the group with the highest priority that is not above `priority`. A pod below all groups
    /// belongs to the lowest one.
    pub fn index_of(&self, priority: i32) -> usize {
        self.0.iter().rposition(|g| g.priority <= priority).unwrap_or(0)
    }

    /// S2: returns the periods that fit into the available time. From the highest group down, each gets its full
    /// period until the time is used up.
    pub fn within(&self, mut time: Duration) -> Vec<Duration> {
        let mut periods: Vec<Duration> = Vec::with_capacity(self.0.len());
        for group in self.0.iter().rev() {
            let period = group.period.min(time);
            time -= period;
            periods.push(period);
        }
        periods.reverse();
        periods
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn s1_there_are_two_groups_or_the_configured_ones() {
        let g = Groups::from_total(S(30), Duration::from_millis(10_900));
        assert_eq!(g.iter().map(|g| (g.priority, g.period.as_secs())).collect::<Vec<_>>(), [(0, 20), (CRITICAL, 10)]);
        assert!(Groups::from_total(S(0), S(0)).is_off());
        let g = Groups::by_priority([(100, 5), (-10, 1), (10, 3)]);
        assert_eq!(g.sum(), S(9));
        for (priority, group) in [(-11, 0), (-10, 0), (9, 0), (10, 1), (99, 1), (100, 2), (i32::MAX, 2)] {
            assert_eq!(g.index_of(priority), group, "{priority}");
        }
    }

    #[test]
    fn s2_the_highest_groups_get_the_available_time() {
        let g = Groups::by_priority([(0, 10), (5, 20), (9, 30)]);
        for (time, periods) in
            [(60, [10, 20, 30]), (90, [10, 20, 30]), (55, [5, 20, 30]), (40, [0, 10, 30]), (7, [0, 0, 7])]
        {
            assert_eq!(g.within(S(time)), periods.map(S), "{time}");
        }
    }
}
