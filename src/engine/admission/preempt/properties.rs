//! Properties of every choice, checked on many random nodes: it matches A7, it frees enough, and it does not take too
//! much.

use super::*;
use crate::api::resources::PODS;
use crate::engine::rng::Rng;
use std::collections::BTreeSet;

const ROUNDS: u32 = 20_000;

/// A pod with random requests. The numbers are small, so that there are ties.
struct Pod {
    uid: Uid,
    priority: i32,
    qos: Qos,
    requests: Resources,
    since: Wall,
}

impl Pod {
    fn candidate(&self) -> Candidate<'_> {
        let Pod { uid, priority, qos, requests, since } = self;
        Candidate { uid, priority: *priority, qos: *qos, requests, since: *since }
    }
}

fn below(rng: &mut Rng, n: u64) -> u64 {
    rng.draw() % n
}

/// Makes random pods and a random need, often of a single resource.
fn node(rng: &mut Rng) -> (Resources, Vec<Pod>) {
    let pods = (0..below(rng, 12)).map(|i| {
        let qos = [Qos::Guaranteed, Qos::Burstable, Qos::BestEffort][below(rng, 3) as usize];
        let some = u64::from(qos != Qos::BestEffort);
        let gpus = below(rng, 3);
        let requests = [(CPU, some * below(rng, 9)), (MEMORY, some * below(rng, 9)), ("x.io/gpu", gpus), (PODS, 1)];
        let since = Wall(below(rng, 3) as i64);
        Pod { uid: Uid::from(format!("{i:02}")), priority: below(rng, 3) as i32, qos, requests: requests.into(), since }
    });
    let pods = pods.collect();
    let (cpu, memory, gpus, count) = (below(rng, 30), below(rng, 30), below(rng, 6), below(rng, 8));
    let needed = match below(rng, 6) {
        0 => Resources::from([(CPU, cpu)]),
        1 => Resources::from([(MEMORY, memory)]),
        2 => Resources::from([("x.io/gpu", gpus)]),
        3 => Resources::from([(PODS, count)]),
        4 => Resources::from([(CPU, cpu), (MEMORY, memory)]),
        _ => Resources::from([(CPU, cpu / 2), (MEMORY, memory / 2), ("x.io/gpu", gpus), (PODS, count)]),
    };
    (needed, pods)
}

/// A direct implementation of A7 without optimisation.
mod in_words {
    use super::*;

    pub fn without<'a>(needed: &Resources, pods: impl IntoIterator<Item = &'a Pod>) -> Resources {
        let mut rest = needed.clone();
        pods.into_iter().for_each(|pod| rest.subtract(&pod.requests));
        rest
    }

    pub fn victims(needed: &Resources, pods: &[Pod]) -> Option<Vec<Uid>> {
        let of = |qos| pods.iter().filter(move |pod| pod.qos == qos);
        let (guaranteed, burstable, best_effort) = (of(Qos::Guaranteed), of(Qos::Burstable), of(Qos::BestEffort));
        if !without(needed, pods).is_empty() {
            return None;
        }
        let rest = without(&without(needed, best_effort.clone()), burstable.clone());
        let first = nearest(rest, guaranteed.collect());
        let rest = without(&without(needed, best_effort.clone()), first.iter().copied());
        let second = nearest(rest, burstable.collect());
        let rest = without(&without(needed, first.iter().copied()), second.iter().copied());
        let third = nearest(rest, best_effort.collect());
        Some([first, second, third].concat().iter().map(|pod| pod.uid.clone()).collect())
    }

    fn nearest(mut needed: Resources, mut pods: Vec<&Pod>) -> Vec<&Pod> {
        let mut taken = Vec::new();
        while !needed.is_empty() && !pods.is_empty() {
            let distance = |pod: &Pod| -> f64 {
                let part = |(name, amount): (&str, u64)| {
                    let left = amount.saturating_sub(pod.requests.get(name)) as f64 / amount as f64;
                    left * left
                };
                needed.iter().map(part).sum()
            };
            pods.order_by(|a, b| {
                let by_request = a.requests.get(MEMORY).cmp(&b.requests.get(MEMORY));
                let by_request = by_request.then(a.requests.get(CPU).cmp(&b.requests.get(CPU)));
                let otherwise = a.priority.cmp(&b.priority).then(b.since.cmp(&a.since)).then(a.uid.cmp(&b.uid));
                distance(a).total_cmp(&distance(b)).then(by_request).then(otherwise)
            });
            let pod = pods.remove(0);
            needed.subtract(&pod.requests);
            taken.push(pod);
        }
        taken
    }
}

/// Calls `look` for many nodes with the chosen victims.
fn on_many_nodes(seed: u64, mut look: impl FnMut(&Resources, &[Pod], &[&Pod], &str)) {
    let mut rng = Rng::new(seed);
    let mut chosen = 0;
    for round in 0..ROUNDS {
        let (needed, pods) = node(&mut rng);
        let candidates: Vec<Candidate<'_>> = pods.iter().map(Pod::candidate).collect();
        let Some(uids) = victims(&needed, &candidates) else {
            assert!(!in_words::without(&needed, &pods).is_empty(), "round {round}: all together free enough");
            continue;
        };
        let uids: BTreeSet<&Uid> = uids.iter().collect();
        let taken: Vec<&Pod> = pods.iter().filter(|pod| uids.contains(&pod.uid)).collect();
        chosen += taken.len();
        look(&needed, &pods, &taken, &format!("seed {seed}, round {round}: {needed:?}, {uids:?}"));
    }
    assert!(chosen > ROUNDS as usize / 2, "too few victims: {chosen}");
}

#[test]
fn a7_the_choice_is_the_one_that_the_rule_describes() {
    let mut rng = Rng::new(1);
    let mut lengths = BTreeSet::new();
    for round in 0..ROUNDS {
        let (needed, pods) = node(&mut rng);
        let candidates: Vec<Candidate<'_>> = pods.iter().map(Pod::candidate).collect();
        let all = victims(&needed, &candidates);
        assert_eq!(all, in_words::victims(&needed, &pods), "round {round}: {needed:?}");
        lengths.insert(all.map(|all| all.len()));
    }
    assert!(lengths.len() > 10, "{lengths:?}");
}

#[test]
fn a7_the_same_again_and_in_any_order() {
    let mut rng = Rng::new(2);
    for round in 0..ROUNDS {
        let (needed, pods) = node(&mut rng);
        let mut candidates: Vec<Candidate<'_>> = pods.iter().map(Pod::candidate).collect();
        let all = victims(&needed, &candidates);
        assert_eq!(victims(&needed, &candidates), all, "round {round}");
        for last in (1..candidates.len()).rev() {
            candidates.swap(last, below(&mut rng, last as u64 + 1) as usize);
        }
        assert_eq!(victims(&needed, &candidates), all, "round {round}: {candidates:?}");
    }
}

#[test]
fn a7_the_chosen_victims_free_enough() {
    on_many_nodes(3, |needed, _, taken, case| {
        assert!(in_words::without(needed, taken.iter().copied()).is_empty(), "{case}");
    });
}

#[test]
fn a7_for_a_single_short_resource_no_victim_is_unnecessary() {
    let mut singles = 0;
    on_many_nodes(4, |needed, _, taken, case| {
        if needed.iter().count() > 1 {
            return;
        }
        for one in taken {
            singles += 1;
            let others = taken.iter().copied().filter(|pod| pod.uid != one.uid);
            assert!(!in_words::without(needed, others).is_empty(), "{} is unnecessary: {case}", one.uid);
        }
    });
    assert!(singles > 1000, "{singles}");
}

#[test]
fn a7_a_better_class_is_never_touched_where_the_worse_ones_would_do() {
    let mut spared = 0;
    on_many_nodes(5, |needed, pods, taken, case| {
        for qos in [Qos::Guaranteed, Qos::Burstable] {
            let worse_would_do = in_words::without(needed, pods.iter().filter(|pod| pod.qos > qos)).is_empty();
            let touched = taken.iter().any(|pod| pod.qos == qos);
            spared += usize::from(worse_would_do && !taken.is_empty());
            assert!(!(touched && worse_would_do), "{qos} is unnecessary: {case}");
        }
    });
    assert!(spared > 1000, "{spared}");
}
