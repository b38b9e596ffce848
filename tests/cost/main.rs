//! What the engine costs, where a count holds on every machine: allocations, bytes held. `make bench ARGS=engine` has
//! the figures themselves.

// The ban is for the engine (clippy.toml).
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

#[path = "../simulation/runtime.rs"]
#[allow(dead_code)]
mod runtime;

// (The bench uses more of it.)
#[allow(dead_code)]
mod node;

use allocation_counter::measure;
use node::{Node, Spent, pod};
use runtime::Runtime;
use std::time::Duration;

/// Of the last of some rounds, so that what grows by doubling has grown; the time is the shortest, on a busy machine the only
/// one that is the engine's.
fn spent(node: &mut Node, mut act: impl FnMut(&mut Node)) -> Spent {
    let mut shortest = Duration::MAX;
    for _ in 0..10 {
        node.spent = Spent::default();
        act(node);
        shortest = shortest.min(node.spent.time);
    }
    Spent { time: shortest, ..node.spent }
}

#[test]
fn p1_an_idle_relist_allocates_no_more_for_a_thousand_containers_than_for_a_hundred() {
    for (pods, containers) in [(100, 1), (1000, 1), (500, 2)] {
        let mut node = Node::with_pods(pods, containers);
        let spent = spent(&mut node, Node::relist);
        assert_eq!(spent.steps, 2, "the timer and the list: {spent:?}");
        assert!(spent.allocations <= 8, "{pods} pods: {spent:?}");
        // The goal is 1 ms in a release build.
        assert!(spent.time < Duration::from_millis(50), "{pods} pods: {spent:?}");
    }
}

#[test]
fn the_end_of_a_container_costs_the_same_among_a_thousand_as_among_a_hundred() {
    let cost = |pods| spent(&mut Node::with_pods(pods, 1), Node::end_one);
    let (few, many) = (cost(100), cost(1000));
    assert_eq!(few.steps, many.steps);
    assert!(many.allocations <= few.allocations + 8, "{few:?}, then {many:?}");
    assert!(many.bytes <= few.bytes + 4096, "{few:?}, then {many:?}");
}

#[test]
fn a_pod_with_one_container_is_held_in_20_kb() {
    let mut node = Node::new();
    let held = measure(|| node = Node::with_pods(1000, 1));
    let model = measure(|| node.runtime = Runtime::default());
    let engine = held.bytes_current + model.bytes_current;
    assert!((1_000_000..20_000_000).contains(&engine), "{engine} bytes for 1000 pods");
}

#[test]
fn ten_thousand_pod_lives_leave_no_more_behind_than_a_thousand() {
    let mut node = Node::new();
    let mut lives = |from: u32, to: u32| {
        measure(|| {
            for i in from..to {
                let pod = pod("web", 1, &format!("activeDeadlineSeconds: {}, ", i + 100));
                node.write(pod.clone());
                node.relist();
                node.remove(&pod);
                node.wait(2);
            }
            node.wait(120);
        })
        .bytes_current
    };
    lives(0, 100);
    let (first, rest) = (lives(100, 1000), lives(1000, 10_000));
    assert!(first.abs() < 4096 && rest.abs() < 4096, "{first} bytes, then {rest}");
    assert_eq!(node.engine.pods().len(), 0);
}
