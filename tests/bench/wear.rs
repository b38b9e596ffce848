//! Bytes that reach the disk: flash cards wear out. The root directory is on a file system of its own, whose block device counts what
//! is written: the records, and also the journal and the metadata that each write costs. The pods' logs, and the files of the runtime,
//! are elsewhere.

use crate::idle::{wait_started, window};
use crate::process;
use crate::support::agent::Agent;
use crate::support::lab::{Runtime, run, text};
use crate::support::yaml::TRAP;
use crate::table::Table;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::time::Duration;

const PODS: usize = 10;
/// The unit of the kernel's counter, in bytes, for every device.
const SECTOR: f64 = 512.0;
/// Limits: kB and syncs of a pod's start; kB of an idle day.
const START: (f64, f64) = (16.0, 3.0);
const IDLE_DAY: f64 = 0.0;

/// An agent whose root directory is an ext4 in a file. Dropping it unmounts the file system, and the kernel then frees its device.
pub struct OnDisk {
    pub agent: Agent,
}

impl OnDisk {
    pub fn prepare(name: &str) -> OnDisk {
        let agent = Agent::prepare(name, &Runtime::shared());
        let image = agent.dir.join("root.ext4");
        fs::File::create(&image).and_then(|file| file.set_len(256 << 20)).expect("an image");
        // Without the work that ext4 otherwise does in the background after the first mount.
        run("mkfs.ext4", &["-q", "-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0", text(&image)]);
        fs::create_dir_all(agent.root()).expect("the root directory");
        run("mount", &["-o", "loop,noatime", text(&image), text(&agent.root())]);
        OnDisk { agent }
    }

    /// Returns how many bytes the device has received, with everything that was written before.
    fn written(&self) -> f64 {
        let root = fs::File::open(self.agent.root()).expect("the root directory");
        rustix::fs::syncfs(&root).expect("syncfs");
        let device = root.metadata().expect("a device").dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let stat = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).expect("a block device");
        let sectors: f64 = stat.split_whitespace().nth(6).expect("sectors").parse().expect("a number");
        sectors * SECTOR
    }

    /// Returns the kB that an action writes.
    pub fn kilobytes(&self, action: impl FnOnce()) -> f64 {
        let before = self.written();
        action();
        (self.written() - before) / 1e3
    }
}

impl Drop for OnDisk {
    fn drop(&mut self) {
        // A lazy unmount: the agent may still use the directory.
        let _ = Command::new("umount").arg("-l").arg(self.agent.root()).status();
    }
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
    let all =
        on.kilobytes(|| syncs = process::count_calls(pid, "fsync,fdatasync,syncfs,sync_file_range,msync", &mut starts));
    let each = |of_all: f64| of_all / PODS as f64;
    table.row("written to the disk by a pod's start, kB", each(all), None, START.0, "");
    match syncs {
        Some(syncs) => table.row("syncs of a pod's start", each(syncs), None, START.1, ""),
        None => eprintln!("strace is not available; not counting syncs"),
    }
    table.row(&format!("written to the disk in an idle day with {PODS} pods, kB"), idle_day(&on), None, IDLE_DAY, "");
    let ends = on.kilobytes(|| {
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
    let written = on.kilobytes(|| std::thread::sleep(window()));
    written * 86_400.0 / window().as_secs_f64()
}
