//! Cost of admission by the number of pods: admission of one pod on a full node, and the worst case of choosing victims.

use crate::node::manifest;
use crate::table::{Table, median};
use std::hint::black_box;
use std::time::Instant;
use wherry::api::names::Uid;
use wherry::api::node_facts::NodeFacts;
use wherry::api::pod::Pod;
use wherry::api::qos::Qos;
use wherry::api::resources::{CPU, MEMORY, PODS, Resources};
use wherry::api::time::Wall;
use wherry::engine::admission::node_snapshot::{AdmissionVerdict, NodeSnapshot};
use wherry::engine::admission::pod_requests::PodRequests;
use wherry::engine::admission::preempt::{Candidate, victims};
use wherry::engine::rng::Rng;

/// Number of pods on the node, and the limit in µs for one more. The limit for 110 pods is the requirement; the others show
/// the growth.
const FULL: [(usize, f64); 3] = [(110, 100.0), (1000, 1000.0), (10_000, 10_000.0)];
/// Number of pods, and the limit in ms. The limit for 1,000 pods is the requirement; the others show the growth.
const CHOICES: [(usize, f64); 3] = [(100, 0.5), (1000, 10.0), (10_000, 2000.0)];
/// The part of the sum of all requests that must become free, in percent.
const PARTS: [u64; 2] = [10, 99];

pub fn admission(table: &mut Table) {
    for (pods, most) in FULL {
        let there: Vec<PodRequests> =
            (0..pods).map(|i| PodRequests::of(&manifest(&format!("pod-{i:05}"), 1, "").pod())).collect();
        let one = manifest("one-more", 1, "nodeName: node, ").pod();
        let enough = Resources::from([(CPU, 4_000_000), (MEMORY, 8 << 40), (PODS, pods as u64 + 1)]);
        let node =
            NodeFacts { allocatable: enough.clone(), capacity: enough, name: "node".into(), ..NodeFacts::default() };
        assert_eq!(evaluate(&node, &there, &one), AdmissionVerdict::Fits);
        let us = median(times(21, || evaluate(&node, &there, &one))) * 1e6;
        table.row(&format!("engine: admission of one pod on a node with {pods} pods, µs"), us, None, most, "");
    }

    for (pods, most) in CHOICES {
        for part in PARTS {
            let (asked, needed) = crowd(pods, part);
            let candidates: Vec<Candidate<'_>> = asked
                .iter()
                .map(|(uid, requests)| Candidate { uid, requests, priority: 0, qos: Qos::Burstable, since: Wall(1) })
                .collect();
            let gone = victims(&needed, &candidates).map_or(0, |all| all.len());
            assert!(gone * 100 >= pods * part as usize, "{gone} of {pods} pods are fewer than {part} %");
            let ms = median(times(if pods > 1000 { 3 } else { 21 }, || victims(&needed, &candidates))) * 1e3;
            let what = format!("engine: choosing victims among {pods} pods, 3 resources, {part} % needed, ms");
            table.row(&what, ms, None, most, "");
        }
    }
}

/// The duration of each round in seconds.
fn times<T>(rounds: usize, mut act: impl FnMut() -> T) -> Vec<f64> {
    let once = |_| {
        let begun = Instant::now();
        black_box(act());
        begun.elapsed().as_secs_f64()
    };
    (0..rounds).map(once).collect()
}

/// Admits one more pod to a new snapshot of the node.
fn evaluate(node: &NodeFacts, there: &[PodRequests], pod: &Pod) -> AdmissionVerdict {
    let mut room = NodeSnapshot::new(node);
    there.iter().for_each(|asks| room.hold(asks));
    room.evaluate(pod, &PodRequests::of(pod))
}

/// Pods with random requests, and this percentage of the sum of each resource.
fn crowd(pods: usize, percent: u64) -> (Vec<(Uid, Resources)>, Resources) {
    let mut rng = Rng::new(7);
    let mut sum = Resources::default();
    let one = |i| {
        let requests = Resources::from([(CPU, 1 + rng.draw() % 1000), (MEMORY, 1 + rng.draw() % (1 << 30)), (PODS, 1)]);
        sum.add(&requests);
        (Uid::from(format!("{i:032x}")), requests)
    };
    let asked = (0..pods).map(one).collect();
    let mut needed = Resources::default();
    sum.iter().for_each(|(name, amount)| needed.set(name, amount * percent / 100));
    (asked, needed)
}
