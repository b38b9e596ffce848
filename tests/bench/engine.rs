//! Cost of the engine: an idle relist, a change, a manifest, and the memory per pod. This uses the simulated
//! node of `tests/cost` and needs no runtime.

use crate::node::{Node, Spent, manifest};
use crate::table::{Table, median};
use allocation_counter::measure;
use std::time::Instant;

const ROUNDS: usize = 21;

/// Number of pods, containers per pod, and the limits: ms for an idle relist, µs for a change, ms for a manifest.
const NODES: [(usize, usize, f64, f64, f64); 4] =
    [(100, 1, 0.1, 50.0, 0.2), (1000, 1, 1.0, 50.0, 3.0), (500, 2, 1.0, 50.0, 3.0), (10_000, 1, 15.0, 100.0, 50.0)];

pub fn engine(table: &mut Table) {
    for (pods, containers, relist, change, desired) in NODES {
        let mut node = Node::with_pods(pods, containers);
        let of = match containers {
            1 => format!("of {pods} containers"),
            n => format!("of {} containers, {n} a pod", pods * n),
        };
        let (ms, allocations) = rounds(&mut node, 1e3, Node::relist);
        table.row(&format!("engine: an idle relist {of}, ms"), ms, None, relist, "");
        table.row(&format!("engine: an idle relist {of}, allocations"), allocations, None, 8.0, "");
        let (us, allocations) = rounds(&mut node, 1e6, Node::hint);
        table.row(&format!("engine: an unchanged status read of one {of}, µs"), us, None, change, "");
        table.row(&format!("engine: an unchanged status read of one {of}, allocations"), allocations, None, 60.0, "");
        let (us, allocations) = rounds(&mut node, 1e6, Node::end_one);
        table.row(&format!("engine: one {of} ended and started again, µs"), us, None, change * 2.0, "");
        table.row(&format!("engine: one {of} ended and started again, allocations"), allocations, None, 400.0, "");
        let unchanged = manifest("pod-00050", containers, "");
        let (ms, _) = rounds(&mut node, 1e3, |node| node.write(&unchanged));
        table.row(&format!("engine: a manifest that is written again {of}, ms"), ms, None, desired, "");
        let mut edits = 0;
        let (ms, _) = rounds(&mut node, 1e3, |node| {
            edits += 1;
            node.write(&manifest("pod-00050", containers, &format!("activeDeadlineSeconds: {}, ", 1_000_000 + edits)));
        });
        table.row(&format!("engine: edit of one pod until it runs, {of}, ms"), ms, None, desired * 3.0, "");
        let begun = Instant::now();
        for _ in 0..ROUNDS {
            std::hint::black_box(node.engine.summary(node.time().boot));
        }
        let us = begun.elapsed().as_secs_f64() * 1e6 / ROUNDS as f64;
        table.row(&format!("engine: a summary {of} for a scrape, µs"), us, None, relist * 1e3, "");
    }
    let pods = 1000;
    let mut node = Node::new();
    let held = measure(|| node = Node::with_pods(pods, 1));
    let runtime = measure(|| node.runtime = Default::default());
    let held = (held.bytes_current + runtime.bytes_current) as f64 / pods as f64 / 1000.0;
    table.row("engine: memory per pod with one container, kB", held, None, 20.0, "");
}

/// The medians of the engine's time, in units of 1/`parts` s, and of its number of allocations.
fn rounds(node: &mut Node, parts: f64, mut act: impl FnMut(&mut Node)) -> (f64, f64) {
    let (mut times, mut allocations) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        node.spent = Spent::default();
        act(node);
        times.push(node.spent.time.as_secs_f64() * parts);
        allocations.push(node.spent.allocations as f64);
        node.wait(2);
    }
    (median(times), median(allocations))
}
