//! Who goes so that a critical pod fits (A6, A7): of the pods that may be preempted as few of the better classes as
//! will do, and within a class, again and again, the one nearest to what is still needed.
//!
//! Each choice looks at every pod that is left, so the work grows with the square of the pods where nearly all have
//! to go. To keep a look cheap, what pods ask for is copied into plain arrays first, of the needed resources alone.

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

use crate::api::names::Uid;
use crate::api::priority::CRITICAL;
use crate::api::qos::Qos;
use crate::api::resources::{CPU, MEMORY, Resources};
use crate::api::time::Wall;
use std::cmp::{Ordering, Reverse};

/// An active pod, as far as preemption looks at it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate<'a> {
    pub uid: &'a Uid,
    pub priority: i32,
    pub qos: Qos,
    /// One of `pods` included.
    pub requests: &'a Resources,
    /// When it was first seen.
    pub since: Wall,
}

/// A6: may a pod of this priority push one of that priority out? (Not if its class never preempts.)
pub fn may_preempt(by: i32, victim: i32) -> bool {
    by > victim || by >= CRITICAL && victim < CRITICAL
}

/// The pods to kill so that `needed` becomes free; None if all candidates together would not do. In the order in
/// which they were chosen: guaranteed, burstable, best-effort. The same for the same candidates in any order.
pub fn victims(needed: &Resources, candidates: &[Candidate<'_>]) -> Option<Vec<Uid>> {
    let names: Vec<&str> = needed.iter().map(|(name, _)| name).collect();
    let needed: Vec<u64> = needed.iter().map(|(_, amount)| amount).collect();
    let of = |qos| Class::new(candidates.iter().filter(|c| c.qos == qos), &names);
    let (guaranteed, burstable, best_effort) = (of(Qos::Guaranteed), of(Qos::Burstable), of(Qos::BestEffort));
    let without_best_effort = less(&needed, &best_effort.sums());
    let for_guaranteed = less(&without_best_effort, &burstable.sums());
    if is_needed(&less(&for_guaranteed, &guaranteed.sums())) {
        return None;
    }
    let of_guaranteed = guaranteed.nearest(for_guaranteed);
    let of_burstable = burstable.nearest(less(&without_best_effort, &of_guaranteed.sums()));
    let for_best_effort = less(&less(&needed, &of_guaranteed.sums()), &of_burstable.sums());
    let of_best_effort = best_effort.nearest(for_best_effort);
    Some([of_guaranteed.uids, of_burstable.uids, of_best_effort.uids].concat().into_iter().cloned().collect())
}

/// Of each resource what is still needed once that much is free.
fn less(needed: &[u64], freed: &[u64]) -> Vec<u64> {
    needed.iter().zip(freed).map(|(needed, freed)| needed.saturating_sub(*freed)).collect()
}

fn is_needed(amounts: &[u64]) -> bool {
    amounts.iter().any(|amount| *amount > 0)
}

/// Pods of one class, each with a place in all three lists.
struct Class<'a> {
    uids: Vec<&'a Uid>,
    /// The place among pods that are equally near (`tie`).
    ranks: Vec<usize>,
    /// How much of each needed resource it frees, one amount after the other.
    amounts: Vec<u64>,
    /// How many resources are needed.
    width: usize,
}

impl<'a> Class<'a> {
    /// Those that free something of what is needed: no other has to go in any case.
    fn new<'c>(pods: impl Iterator<Item = &'c Candidate<'a>>, names: &[&str]) -> Class<'a>
    where
        'a: 'c,
    {
        let mut pods: Vec<&Candidate<'_>> = pods.collect();
        pods.sort_by(|a, b| tie(a, b));
        let mut class = Class::empty(names.len());
        let mut row = Vec::with_capacity(names.len());
        for (rank, pod) in pods.into_iter().enumerate() {
            row.clear();
            row.extend(names.iter().map(|name| pod.requests.get(name)));
            if is_needed(&row) {
                class.push(pod.uid, rank, &row);
            }
        }
        class
    }

    fn empty(width: usize) -> Class<'a> {
        Class { uids: Vec::new(), ranks: Vec::new(), amounts: Vec::new(), width }
    }

    fn push(&mut self, uid: &'a Uid, rank: usize, row: &[u64]) {
        self.uids.push(uid);
        self.ranks.push(rank);
        self.amounts.extend_from_slice(row);
    }

    fn row(&self, index: usize) -> &[u64] {
        &self.amounts[index * self.width..][..self.width]
    }

    /// The last pod comes into its place.
    fn remove(&mut self, index: usize) {
        self.uids.swap_remove(index);
        self.ranks.swap_remove(index);
        let last = self.uids.len() * self.width;
        self.amounts.copy_within(last.., index * self.width);
        self.amounts.truncate(last);
    }

    /// What all of them free.
    fn sums(&self) -> Vec<u64> {
        let mut sums = vec![0u64; self.width];
        for index in 0..self.uids.len() {
            sums.iter_mut().zip(self.row(index)).for_each(|(sum, amount)| *sum = sum.saturating_add(*amount));
        }
        sums
    }

    /// Those that are taken until nothing is needed any more, or none is left.
    fn nearest(mut self, mut needed: Vec<u64>) -> Class<'a> {
        let mut taken = Class::empty(self.width);
        while is_needed(&needed) {
            let Some(index) = self.nearest_one(&needed) else { break };
            needed = less(&needed, self.row(index));
            taken.push(self.uids[index], self.ranks[index], self.row(index));
            self.remove(index);
        }
        taken
    }

    fn nearest_one(&self, needed: &[u64]) -> Option<usize> {
        let mut best: Option<(usize, f64)> = None;
        for (index, amounts) in self.amounts.chunks_exact(self.width).enumerate() {
            let Some(distance) = distance(needed, amounts, best.map_or(f64::INFINITY, |(_, least)| least)) else {
                continue;
            };
            if best.is_none_or(|(other, least)| distance < least || self.ranks[index] < self.ranks[other]) {
                best = Some((index, distance));
            }
        }
        best.map(|(index, _)| index)
    }
}

/// A7: over all resources the square of the part that would still be needed after a pod that frees these amounts.
/// None if it is more than `least`.
fn distance(needed: &[u64], amounts: &[u64], least: f64) -> Option<f64> {
    let mut sum = 0.0;
    for (needed, amount) in needed.iter().zip(amounts) {
        // (Of what is not needed any more no amount is below.)
        if amount < needed {
            let left = (needed - amount) as f64 / *needed as f64;
            sum += left * left;
            if sum > least {
                return None;
            }
        }
    }
    Some(sum)
}

/// A7: the smaller request, the lower priority, the younger, the smaller UID.
fn tie(a: &Candidate<'_>, b: &Candidate<'_>) -> Ordering {
    let key = |c: &Candidate<'_>| (c.requests.get(MEMORY), c.requests.get(CPU), c.priority, Reverse(c.since));
    key(a).cmp(&key(b)).then_with(|| a.uid.cmp(b.uid))
}
