//! Who goes so that a critical pod fits (A6, A7): of the pods that may be preempted as few of the better classes as will do, and
//! within a class, again and again, the one nearest to what is still needed.

use crate::api::names::Uid;
use crate::api::priority::CRITICAL;
use crate::api::qos::Qos;
use crate::api::resources::{CPU, MEMORY, Resources};
use crate::api::time::Wall;
use std::cmp::{Ordering, Reverse};

/// An active pod, as far as preemption looks at it.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    pub uid: Uid,
    pub priority: i32,
    pub qos: Qos,
    /// One of `pods` included.
    pub requests: Resources,
    /// When it was first seen.
    pub since: Wall,
}

/// A6: may a pod of this priority push one of that priority out? (Not if its class never preempts.)
pub fn may_preempt(by: i32, victim: i32) -> bool {
    by > victim || by >= CRITICAL && victim < CRITICAL
}

/// The pods to kill so that `needed` becomes free; None if all candidates together would not do. In the order in which they were
/// chosen: guaranteed, burstable, best-effort. The same for the same candidates in any order.
pub fn victims(needed: &Resources, candidates: &[Candidate]) -> Option<Vec<Uid>> {
    let of = |qos: Qos| -> Vec<&Candidate> { candidates.iter().filter(|c| c.qos == qos).collect() };
    let (guaranteed, burstable, best_effort) = (of(Qos::Guaranteed), of(Qos::Burstable), of(Qos::BestEffort));
    if !without(without(without(needed.clone(), &best_effort), &burstable), &guaranteed).is_empty() {
        return None;
    }
    let of_guaranteed = nearest(without(without(needed.clone(), &best_effort), &burstable), guaranteed);
    let of_burstable = nearest(without(without(needed.clone(), &best_effort), &of_guaranteed), burstable);
    let of_best_effort = nearest(without(without(needed.clone(), &of_burstable), &of_guaranteed), best_effort);
    Some([of_guaranteed, of_burstable, of_best_effort].concat().iter().map(|c| c.uid.clone()).collect())
}

/// What is still needed once these are gone.
fn without(mut needed: Resources, pods: &[&Candidate]) -> Resources {
    pods.iter().for_each(|c| needed.subtract(&c.requests));
    needed
}

/// Of the pods those that are taken until nothing is needed any more, or none is left.
fn nearest(mut needed: Resources, mut pods: Vec<&Candidate>) -> Vec<&Candidate> {
    let mut taken = Vec::new();
    while !needed.is_empty() {
        let best = pods.iter().enumerate().min_by(|(_, a), (_, b)| {
            let by_distance = distance(&needed, a).total_cmp(&distance(&needed, b));
            by_distance.then_with(|| tie(a, b))
        });
        let Some((index, _)) = best else { break };
        let pod = pods.swap_remove(index);
        needed.subtract(&pod.requests);
        taken.push(pod);
    }
    taken
}

/// A7: over all resources the square of the part that would still be needed after it.
fn distance(needed: &Resources, pod: &Candidate) -> f64 {
    let part = |(name, amount): (&str, u64)| {
        let left = amount.saturating_sub(pod.requests.get(name)) as f64 / amount as f64;
        left * left
    };
    needed.iter().map(part).sum()
}

/// A7: the smaller request, the lower priority, the younger, the smaller UID.
fn tie(a: &Candidate, b: &Candidate) -> Ordering {
    let key = |c: &Candidate| (c.requests.get(MEMORY), c.requests.get(CPU), c.priority, Reverse(c.since));
    key(a).cmp(&key(b)).then_with(|| a.uid.cmp(&b.uid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::resources::PODS;
    use crate::engine::rng::Rng;
    use std::collections::BTreeSet;

    fn one(uid: &str, qos: Qos, cpu: u64, memory: u64) -> Candidate {
        let requests = Resources::from([(CPU, cpu), (MEMORY, memory), (PODS, 1)]);
        Candidate { uid: Uid::from(uid), priority: 0, qos, requests, since: Wall(5) }
    }

    fn chosen(needed: &Resources, candidates: &[Candidate]) -> Option<String> {
        let all = victims(needed, candidates);
        // The order in which they come does not matter.
        let backwards: Vec<Candidate> = candidates.iter().rev().cloned().collect();
        assert_eq!(all, victims(needed, &backwards));
        all.map(|all| all.iter().map(Uid::as_str).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn a6_critical_over_not_critical_and_higher_over_lower() {
        for (by, victim, may) in [
            (CRITICAL, 0, true),
            (CRITICAL, CRITICAL - 1, true),
            (CRITICAL, CRITICAL, false),
            (CRITICAL + 1000, CRITICAL, true),
            (CRITICAL, CRITICAL + 1000, false),
            (10, 9, true),
            (10, 10, false),
            (-5, -6, true),
            (0, i32::MAX, false),
        ] {
            assert_eq!(may_preempt(by, victim), may, "{by} {victim}");
        }
    }

    #[test]
    fn a7_the_worst_class_goes_first_and_better_ones_only_for_the_rest() {
        use Qos::{BestEffort, Burstable, Guaranteed};
        let node = [
            one("be-1", BestEffort, 0, 0),
            one("be-2", BestEffort, 0, 0),
            one("bu-1", Burstable, 100, 100),
            one("bu-2", Burstable, 200, 50),
            one("bu-3", Burstable, 300, 300),
            one("gu-1", Guaranteed, 100, 100),
            one("gu-2", Guaranteed, 400, 400),
        ];
        let cpu = |n| Resources::from([(CPU, n)]);
        let memory = |n| Resources::from([(MEMORY, n)]);
        for (needed, wanted) in [
            (Resources::default(), Some("")),
            (Resources::from([(PODS, 1)]), Some("be-1")),
            (Resources::from([(PODS, 3)]), Some("bu-2 be-1 be-2")),
            (cpu(1), Some("bu-2")),
            (cpu(100), Some("bu-2")),
            (cpu(201), Some("bu-3")),
            (cpu(301), Some("bu-3 bu-2")),
            (cpu(401), Some("bu-3 bu-2")),
            (cpu(600), Some("bu-3 bu-2 bu-1")),
            // All burstable ones and one more: the smallest that will do.
            (cpu(601), Some("gu-1 bu-3 bu-2 bu-1")),
            (cpu(700), Some("gu-1 bu-3 bu-2 bu-1")),
            (cpu(701), Some("gu-2 bu-3 bu-2")),
            (cpu(1100), Some("gu-2 gu-1 bu-3 bu-2 bu-1")),
            (cpu(1101), None),
            (memory(51), Some("bu-1")),
            (memory(350), Some("bu-3 bu-2")),
            (memory(951), None),
            (Resources::from([(CPU, 150), (MEMORY, 90)]), Some("bu-3")),
            (Resources::from([(CPU, 300), (MEMORY, 120)]), Some("bu-3")),
            (Resources::from([(CPU, 310), (MEMORY, 10), (PODS, 4)]), Some("bu-3 bu-2 be-1 be-2")),
            (Resources::from([("x.io/gpu", 1)]), None),
        ] {
            assert_eq!(chosen(&needed, &node).as_deref(), wanted, "{needed:?}");
        }
    }

    #[test]
    fn a7_a_tie_goes_to_the_smaller_request_the_lower_priority_the_younger_and_the_smaller_uid() {
        let base = |uid: &str| one(uid, Qos::Burstable, 100, 100);
        let with = |uid: &str, priority, since| Candidate { priority, since: Wall(since), ..base(uid) };
        let pods = Resources::from([(PODS, 1)]);
        for (candidates, wanted) in [
            (vec![one("a", Qos::Burstable, 1, 100), one("b", Qos::Burstable, 100, 1)], "b"),
            (vec![one("a", Qos::Burstable, 100, 100), one("b", Qos::Burstable, 99, 100)], "b"),
            (vec![with("a", 3, 5), with("b", 2, 1)], "b"),
            (vec![with("a", 2, 5), with("b", 2, 6)], "b"),
            (vec![base("b"), base("a")], "a"),
        ] {
            assert_eq!(chosen(&pods, &candidates).as_deref(), Some(wanted));
        }
    }

    #[test]
    fn a7_one_that_covers_the_need_is_nearer_than_several_smaller_ones() {
        let pods = |amounts: &[u64]| -> Vec<Candidate> {
            amounts.iter().map(|n| one(&format!("p{n}"), Qos::Burstable, *n, 1)).collect()
        };
        let cpu = |n| Resources::from([(CPU, n)]);
        for (needed, amounts, wanted) in [
            (10, &[3, 4, 5, 10][..], "p10"),
            (10, &[3, 4, 5, 100], "p100"),
            (10, &[3, 4, 5], "p5 p4 p3"),
            (9, &[3, 4, 5], "p5 p4"),
            (10, &[6, 5, 4], "p6 p4"),
        ] {
            assert_eq!(chosen(&cpu(needed), &pods(amounts)).as_deref(), Some(wanted), "{needed} of {amounts:?}");
        }
    }

    /// Over many nodes by chance: what is chosen frees enough; of a single short resource none is chosen for nothing; no better
    /// class is touched where the worse ones would do.
    #[test]
    fn a7_what_is_chosen_is_enough_and_not_more() {
        let mut rng = Rng::new(11);
        let mut below = |n: u64| rng.draw() % n;
        for round in 0..5000 {
            let pods: Vec<Candidate> = (0..below(12))
                .map(|i| {
                    let qos = [Qos::Guaranteed, Qos::Burstable, Qos::BestEffort][below(3) as usize];
                    let asks = u64::from(qos != Qos::BestEffort);
                    one(&format!("{i:02}"), qos, asks * below(9), asks * below(9))
                })
                .collect();
            let single = below(2) == 0;
            let mut needed = Resources::from([(CPU, 1 + below(20))]);
            if !single {
                needed.set(MEMORY, below(15));
                needed.set(PODS, below(4));
            }
            let all: Vec<&Candidate> = pods.iter().collect();
            let Some(chosen) = victims(&needed, &pods) else {
                assert!(!without(needed.clone(), &all).is_empty(), "{round}: all together would do");
                continue;
            };
            let chosen: BTreeSet<Uid> = chosen.into_iter().collect();
            let taken: Vec<&Candidate> = all.iter().copied().filter(|c| chosen.contains(&c.uid)).collect();
            assert!(without(needed.clone(), &taken).is_empty(), "{round}: {needed:?} is not covered by {taken:?}");
            for one in taken.iter().filter(|_| single) {
                let others: Vec<&Candidate> = taken.iter().copied().filter(|c| c.uid != one.uid).collect();
                // (Those of a worse class may have been taken for what a better one covers since.)
                let worse = one.qos > Qos::Guaranteed && taken.iter().any(|c| c.qos < one.qos);
                assert!(worse || !without(needed.clone(), &others).is_empty(), "{round}: {} for nothing", one.uid);
            }
            for qos in [Qos::Guaranteed, Qos::Burstable] {
                let worse: Vec<&Candidate> = all.iter().copied().filter(|c| c.qos > qos).collect();
                let touched = taken.iter().any(|c| c.qos == qos);
                assert!(!touched || !without(needed.clone(), &worse).is_empty(), "{round}: {qos} for nothing");
            }
        }
    }
}
