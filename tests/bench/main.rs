//! The benchmark table (`make bench`): medians for Wherry as a black box, for the same CRI calls made directly in the same
//! run, and the limits of the project. All values are measured from outside: timestamps and log of the runtime, /proc,
//! strace. During a measurement the bench sends Wherry no request, except /healthz for the start and /pods for the soak test.
//!
//! `make bench ARGS="latency idle shutdown crowd size backoff engine probes volumes workloads services wear kubectl cluster"` selects parts; `cluster`, or one of its parts (`cluster-node`,
//! `cluster-back`, `cluster-crowd`, `cluster-soak`, `cluster-wear`), runs only if it is selected. `WHERRY_BENCH_WINDOW` is
//! the length of an idle measurement in seconds (60), `WHERRY_BENCH_STREAM` that of a stream in MB (256). `make bench ARGS=engine`
//! needs no runtime.

// The lists in clippy.toml apply only to `engine` and `api`.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

#[path = "../cost/node.rs"]
#[allow(dead_code)]
mod node;
#[path = "../simulation/runtime/mod.rs"]
#[allow(dead_code)]
mod runtime;
#[path = "../support/mod.rs"]
mod support;

mod admission;
mod cluster;
mod crowd;
mod direct;
mod engine;
mod idle;
mod kubectl;
mod latency;
mod probes;
mod process;
mod services;
mod shutdown;
mod soak;
mod table;
mod volumes;
mod wear;
mod workloads;

use table::Table;

fn main() {
    // cargo passes --bench.
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let asked = |part: &str| wanted.is_empty() || wanted.iter().any(|w| w == part);
    let mut table = Table::default();
    if asked("size") {
        let bytes = std::fs::metadata(env!("CARGO_BIN_EXE_wherry")).expect("the binary").len();
        table.row("binary, MB", bytes as f64 / 1e6, None, 8.0, "78");
    }
    if asked("engine") {
        engine::engine(&mut table);
        admission::admission(&mut table);
    }
    if asked("latency") {
        latency::start(&mut table);
        latency::pods(&mut table);
    }
    if asked("backoff") {
        latency::back_off(&mut table);
    }
    if asked("idle") {
        idle::idle(&mut table);
    }
    if asked("shutdown") {
        shutdown::shutdown(&mut table);
    }
    if asked("crowd") {
        crowd::crowd(&mut table);
    }
    if asked("probes") {
        probes::probes(&mut table);
    }
    if asked("volumes") {
        volumes::volumes(&mut table);
    }
    if asked("workloads") {
        workloads::workloads(&mut table);
    }
    if asked("services") {
        services::services(&mut table);
    }
    if asked("wear") {
        wear::wear(&mut table);
    }
    if asked("kubectl") {
        kubectl::kubectl(&mut table);
    }
    // Only with a control plane, which `ARGS=cluster` builds.
    for (part, measure) in cluster::PARTS {
        if wanted.iter().any(|w| w == "cluster" || w == part) {
            measure(&mut table);
        }
    }
    // The soak test runs only if it is selected, because it takes long.
    if wanted.iter().any(|w| w == "soak") {
        let lives = wanted.iter().find_map(|w| w.parse().ok());
        soak::soak(&mut table, lives.unwrap_or(10_000));
    }
    println!("{}", table.markdown());
    if table.missed() > 0 {
        println!("{} of {} values exceed their limit", table.missed(), table.len());
    }
}
