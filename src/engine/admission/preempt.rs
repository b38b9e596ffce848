//! Chooses the pods that are preempted for a critical pod (A6, A7): as few pods as possible of the better QoS classes
//! and, within a class, repeatedly the pod whose requests are nearest to the remaining need.
//!
//! Each choice scans all remaining pods, so the work is quadratic if nearly all of them are chosen. To keep a scan
//! cheap, the requests are first copied into plain arrays that contain only the needed resources.

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

use crate::api::names::Uid;
use crate::api::ordered::OrderSlice;
use crate::api::priority::CRITICAL;
use crate::api::qos::Qos;
use crate::api::resources::{CPU, MEMORY, Resources};
use crate::api::time::Wall;
use std::cmp::{Ordering, Reverse};

/// The properties of an active pod that preemption needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate<'a> {
    pub uid: &'a Uid,
    pub priority: i32,
    pub qos: Qos,
    /// The requests, including 1 for `pods`.
    pub requests: &'a Resources,
    /// When the pod was first seen.
    pub since: Wall,
}

/// A6: reports whether a pod with priority `by` may preempt one with priority `victim`. The caller checks
/// `preemptionPolicy`.
pub fn may_preempt(by: i32, victim: i32) -> bool {
    by > victim || by >= CRITICAL && victim < CRITICAL
}

/// Returns the pods to kill so that `needed` becomes free, in the order in which they were chosen: guaranteed,
/// burstable, best-effort. None if all candidates together do not free enough. The order of `candidates` does not
/// matter.
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

/// Returns the need for each resource that remains once `freed` is free.
fn less(needed: &[u64], freed: &[u64]) -> Vec<u64> {
    needed.iter().zip(freed).map(|(needed, freed)| needed.saturating_sub(*freed)).collect()
}

fn is_needed(amounts: &[u64]) -> bool {
    amounts.iter().any(|amount| *amount > 0)
}

/// Pods of one class. The three lists share their indices.
struct Class<'a> {
    uids: Vec<&'a Uid>,
    /// The rank of each pod among equally near pods (see `tie`).
    ranks: Vec<usize>,
    /// The amount of each needed resource that a pod frees, `width` amounts for each pod.
    amounts: Vec<u64>,
    /// The number of needed resources.
    width: usize,
}

impl<'a> Class<'a> {
    /// Keeps only pods that free some of the needed resources; no other pod can be a victim.
    fn new<'c>(pods: impl Iterator<Item = &'c Candidate<'a>>, names: &[&str]) -> Class<'a>
    where
        'a: 'c,
    {
        let mut pods: Vec<&Candidate<'_>> = pods.collect();
        pods.order_by(|a, b| tie(a, b));
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

    /// Removes a pod. The last pod takes its index.
    fn remove(&mut self, index: usize) {
        self.uids.swap_remove(index);
        self.ranks.swap_remove(index);
        let last = self.uids.len() * self.width;
        self.amounts.copy_within(last.., index * self.width);
        self.amounts.truncate(last);
    }

    /// Returns the amounts that all pods together free.
    fn sums(&self) -> Vec<u64> {
        let mut sums = vec![0u64; self.width];
        for index in 0..self.uids.len() {
            sums.iter_mut().zip(self.row(index)).for_each(|(sum, amount)| *sum = sum.saturating_add(*amount));
        }
        sums
    }

    /// Returns the pods that are chosen one by one until nothing more is needed or no pod remains.
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

/// A7: returns the sum over all resources of the squared fraction that remains needed, or None if it exceeds `least`.
fn distance(needed: &[u64], amounts: &[u64], least: f64) -> Option<f64> {
    let mut sum = 0.0;
    for (needed, amount) in needed.iter().zip(amounts) {
        // A resource with no remaining need adds nothing, because no amount is below zero.
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

/// A7: returns the order of equally near pods: the smaller memory request, the smaller cpu request, the lower
/// priority, the younger pod, the smaller UID.
fn tie(a: &Candidate<'_>, b: &Candidate<'_>) -> Ordering {
    let key = |c: &Candidate<'_>| (c.requests.get(MEMORY), c.requests.get(CPU), c.priority, Reverse(c.since));
    key(a).cmp(&key(b)).then_with(|| a.uid.cmp(b.uid))
}
