//! Bytes that reach the disk: flash cards wear out. The root directory is on a file system of its own, whose block device counts what
//! is written: the records, and also the journal and the metadata that each write costs. The pods' logs, and the files of the runtime,
//! are elsewhere.

use crate::idle::{wait_started, window};
use crate::process;
use crate::support::on_disk::OnDisk;
use crate::support::yaml::TRAP;
use crate::table::Table;
use std::fs;
use std::time::Duration;

const PODS: usize = 10;
/// The unit of the kernel's counter, in bytes, for every device.
const SECTOR: f64 = 512.0;
/// Limits: kB and syncs of a pod's start; kB of an idle day.
const START: (f64, f64) = (16.0, 3.0);
const IDLE_DAY: f64 = 0.0;

/// Returns how many bytes the device has received, with everything that was written before.
fn written(on: &OnDisk) -> f64 {
    let root = fs::File::open(on.agent.root()).expect("the root directory");
    rustix::fs::syncfs(&root).expect("syncfs");
    let stat = fs::read_to_string(on.device().join("stat")).expect("a block device");
    let sectors: f64 = stat.split_whitespace().nth(6).expect("sectors").parse().expect("a number");
    sectors * SECTOR
}

/// Returns the kB that an action writes.
pub fn kilobytes(on: &OnDisk, action: impl FnOnce()) -> f64 {
    let before = written(on);
    action();
    (written(on) - before) / 1e3
}

pub fn wear(table: &mut Table) {
    let mut on = OnDisk::prepare("wear");
    on.agent.run();
    let agent = &on.agent;
    let (mut cri, namespace, pid) = (agent.cri(), agent.namespace.clone(), agent.pid());
    let mut starts = || {
        for n in 0..PODS {
            agent.apply(&format!("pod-{n}"), TRAP);
            wait_started(&mut cri, &namespace, n + 1);
            std::thread::sleep(Duration::from_secs(1));
        }
    };
    let mut syncs = None;
    let all = kilobytes(&on, || {
        syncs = process::count_calls(pid, "fsync,fdatasync,syncfs,sync_file_range,msync", &mut starts)
    });
    let each = |of_all: f64| of_all / PODS as f64;
    table.row("written to the disk by a pod's start, kB", each(all), None, START.0, "");
    match syncs {
        Some(syncs) => table.row("syncs of a pod's start", each(syncs), None, START.1, ""),
        None => eprintln!("strace is not available; not counting syncs"),
    }
    table.row(&format!("written to the disk in an idle day with {PODS} pods, kB"), idle_day(&on), None, IDLE_DAY, "");
    let ends = kilobytes(&on, || {
        for n in 0..PODS {
            agent.delete(&format!("pod-{n}"));
        }
        agent.wait("the pods are gone", |agent| agent.pods().is_empty());
    });
    table.row("written to the disk by a pod's end, kB", each(ends), None, START.0, "");
}

/// The kB of a day, from those of an idle measurement.
pub fn idle_day(on: &OnDisk) -> f64 {
    std::thread::sleep(Duration::from_secs(15));
    let written = kilobytes(on, || std::thread::sleep(window()));
    written * 86_400.0 / window().as_secs_f64()
}
