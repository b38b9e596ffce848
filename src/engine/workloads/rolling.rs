//! The arithmetic of a roll-out, as in the Deployment controller of Kubernetes: how many pods each revision gets next.

use crate::api::ordered::OrderSlice;

/// The size of one revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RevisionSize {
    /// The number of pods that the revision is to have.
    pub wanted: u32,
    /// The number of its pods that are available now.
    pub available: u32,
}

/// The limits of a rolling update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RollingLimits {
    pub replicas: u32,
    pub surge: u32,
    pub unavailable: u32,
}

impl RollingLimits {
    /// Returns the maximum number of pods of all revisions.
    pub fn most(&self) -> u32 {
        self.replicas.saturating_add(self.surge)
    }

    /// Returns the minimum number of available pods.
    fn least_available(&self) -> u32 {
        self.replicas.saturating_sub(self.unavailable)
    }
}

fn total(sizes: &[RevisionSize]) -> u32 {
    sizes.iter().map(|size| size.wanted).sum()
}

/// Assigns pods to the new revision. `old` has all other revisions.
pub fn grow(limits: RollingLimits, old: &[RevisionSize], new: &mut RevisionSize) {
    if new.wanted >= limits.replicas {
        new.wanted = limits.replicas;
        return;
    }
    let room = limits.most().saturating_sub(total(old) + new.wanted);
    new.wanted += room.min(limits.replicas - new.wanted);
}

/// Takes pods from the old revisions, the oldest first: those that are not available, and then others, as long as
/// enough pods are available.
pub fn shrink(limits: RollingLimits, old: &mut [RevisionSize], new: RevisionSize) {
    let unavailable_of_new = new.wanted.saturating_sub(new.available);
    let mut most = (total(old) + new.wanted).saturating_sub(limits.least_available() + unavailable_of_new);
    if most == 0 {
        return;
    }
    for size in old.iter_mut() {
        let unhealthy = size.wanted.saturating_sub(size.available).min(most);
        size.wanted -= unhealthy;
        most -= unhealthy;
    }
    let available: u32 = old.iter().chain([&new]).map(|size| size.available).sum();
    let mut surplus = available.saturating_sub(limits.least_available());
    for size in old.iter_mut() {
        let ends = size.wanted.min(surplus);
        size.wanted -= ends;
        size.available = size.available.min(size.wanted);
        surplus -= ends;
    }
}

/// Changes the sizes in proportion, because the number of replicas has changed during a roll-out. `before`: the maximum
/// number of pods for which the sizes were chosen. `sizes`: from the oldest to the newest revision.
pub fn scale(limits: RollingLimits, before: u32, sizes: &mut [RevisionSize]) {
    let goal = if limits.replicas == 0 { 0 } else { limits.most() };
    let present = total(sizes);
    let mut order: Vec<usize> = (0..sizes.len()).filter(|at| sizes[*at].wanted > 0).collect();
    if goal > present {
        // The largest first; of equal ones, the newest.
        order.order_by(|a, b| (sizes[*b].wanted, b).cmp(&(sizes[*a].wanted, a)));
    } else {
        order.order_by(|a, b| (sizes[*b].wanted, a).cmp(&(sizes[*a].wanted, b)));
    }
    let difference = i64::from(goal) - i64::from(present);
    let mut left = difference;
    for at in &order {
        let wanted = i64::from(sizes[*at].wanted);
        let share = rounded(wanted * i64::from(goal), i64::from(before.max(1))) - wanted;
        let change = if difference > 0 { share.clamp(0, left) } else { share.clamp(left, 0) };
        left -= change;
        set(&mut sizes[*at], wanted + change);
    }
    // The largest revision gets what the rounding left over.
    for at in order {
        let wanted = i64::from(sizes[at].wanted);
        let after = (wanted + left).max(0);
        left -= after - wanted;
        set(&mut sizes[at], after);
    }
}

fn set(size: &mut RevisionSize, wanted: i64) {
    size.wanted = u32::try_from(wanted.max(0)).unwrap_or(u32::MAX);
    size.available = size.available.min(size.wanted);
}

fn rounded(value: i64, by: i64) -> i64 {
    (2 * value + by) / (2 * by)
}

/// Returns the message of the event: the old pods have this port of the node, so there is no surge.
pub fn replaces_in_place(port: &str) -> String {
    format!(
        "The old pods have the port {port} of the node, so a new pod starts only after an old one has ended; maxSurge \
         has no effect on this roll-out"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(all: &[(u32, u32)]) -> Vec<RevisionSize> {
        all.iter().map(|(wanted, available)| RevisionSize { wanted: *wanted, available: *available }).collect()
    }

    fn wanted(all: &[RevisionSize]) -> Vec<u32> {
        all.iter().map(|size| size.wanted).collect()
    }

    #[test]
    fn a_new_revision_grows_within_the_surge() {
        for (surge, old, new, expected) in [
            (1, vec![(3, 3)], 0, 1),
            (0, vec![(3, 3)], 0, 0),
            (0, vec![(2, 2)], 0, 1),
            (3, vec![(3, 3)], 0, 3),
            (10, vec![], 0, 3),
            (1, vec![(1, 1), (2, 0)], 1, 1),
            (1, vec![], 5, 3),
        ] {
            let limits = RollingLimits { replicas: 3, surge, unavailable: 0 };
            let mut size = RevisionSize { wanted: new, available: 0 };
            grow(limits, &sizes(&old), &mut size);
            assert_eq!(size.wanted, expected, "{surge} {old:?} {new}");
        }
    }

    #[test]
    fn old_pods_end_only_while_enough_are_available() {
        // (unavailable, old revisions, new revision, what the old ones have afterwards)
        for (unavailable, old, new, expected) in [
            (0, vec![(3, 3)], (1, 0), vec![3]),
            (0, vec![(3, 3)], (1, 1), vec![2]),
            (1, vec![(3, 3)], (1, 0), vec![2]),
            // Pods that are not available go first, even if they are newer than the others.
            (0, vec![(2, 2), (1, 0)], (1, 1), vec![2, 0]),
            (1, vec![(2, 2), (1, 0)], (1, 0), vec![2, 0]),
            // The new version never becomes ready: the old pods stay.
            (0, vec![(2, 2)], (2, 0), vec![2]),
            (3, vec![(3, 3)], (0, 0), vec![0]),
        ] {
            let limits = RollingLimits { replicas: 3, surge: 1, unavailable };
            let mut all = sizes(&old);
            shrink(limits, &mut all, RevisionSize { wanted: new.0, available: new.1 });
            assert_eq!(wanted(&all), expected, "{unavailable} {old:?} {new:?}");
        }
    }

    #[test]
    fn a_change_of_the_replicas_during_a_roll_out_keeps_the_proportion() {
        // Example of the Kubernetes documentation: 10 replicas, maxSurge 3, 8 old and 5 new; then 15 replicas.
        let limits = RollingLimits { replicas: 15, surge: 3, unavailable: 2 };
        let mut all = sizes(&[(8, 8), (5, 0)]);
        scale(limits, 13, &mut all);
        assert_eq!(wanted(&all), [11, 7]);
        let mut down = sizes(&[(8, 8), (5, 5)]);
        scale(RollingLimits { replicas: 5, surge: 1, unavailable: 0 }, 13, &mut down);
        assert_eq!(wanted(&down), [4, 2]);
        let mut none = sizes(&[(8, 8), (5, 5)]);
        scale(RollingLimits { replicas: 0, surge: 0, unavailable: 1 }, 13, &mut none);
        assert_eq!(wanted(&none), [0, 0]);
    }

    /// Plays a roll-out: in each round, some pods become available.
    #[test]
    fn a_roll_out_keeps_its_limits_and_ends() {
        for replicas in 1..8 {
            for surge in 0..4 {
                for unavailable in u32::from(surge == 0)..4 {
                    let limits = RollingLimits { replicas, surge, unavailable };
                    let (mut old, mut new) = (sizes(&[(replicas, replicas)]), RevisionSize { wanted: 0, available: 0 });
                    let mut rounds = 0;
                    while new.available < replicas {
                        grow(limits, &old, &mut new);
                        shrink(limits, &mut old, new);
                        assert!(total(&old) + new.wanted <= limits.most(), "{limits:?}");
                        let available = old[0].available + new.available;
                        assert!(available >= replicas.saturating_sub(unavailable), "{limits:?} {old:?} {new:?}");
                        new.available = new.wanted.min(new.available + 1);
                        rounds += 1;
                        assert!(rounds < 100, "{limits:?} {old:?} {new:?}");
                    }
                    shrink(limits, &mut old, new);
                    assert_eq!(wanted(&old), [0], "{limits:?}");
                }
            }
        }
    }
}
