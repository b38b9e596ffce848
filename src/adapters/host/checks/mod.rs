//! Checks the machine before pods start: kernel settings, mounts, permissions, free space, clock. The checks read
//! small files and make system calls. They change nothing and never wait for another process; the agent itself checks
//! the runtime and the bus. If a file system hangs, they wait only for a limited time. Each check has a remedy that an
//! administrator can apply.
//!
//! - `kernel`: modules, limits, privileges of this process, AppArmor;
//! - `cgroups`: mounted hierarchies and their controllers;
//!   `raspberry_pi` knows why one of them is missing on that board;
//! - `paths`: directories, permissions, free space;
//! - `storage`: whether what is written survives a reboot; `fstab` finds a file system that is not mounted;
//! - `swap`: where the kernel swaps to;
//! - `clock`: whether the clock is set and synchronised, and goes on without power;
//! - `cni`: the network configuration, in the directories that the runtime reports.

mod cgroups;
mod clock;
pub mod cni;
mod fstab;
mod kernel;
mod paths;
mod raspberry_pi;
mod roots;
mod storage;
mod swap;

pub use fstab::missing_mount;
pub use paths::{ConfiguredDirectory, Purpose, hangs, is_stuck};
pub use roots::Roots;

use crate::api::cgroups::CgroupNames;
use crate::api::finding::Finding;
use crate::api::time::Wall;
use std::time::Duration;

/// The parts of the configuration that the checks need.
#[derive(Clone, Debug)]
pub struct CheckSettings {
    pub cgroups: CgroupNames,
    pub seccomp_default: bool,
    /// Whether pods share the machine's swap (`swapBehavior: LimitedSwap`).
    pub pods_swap: bool,
    pub directories: Vec<ConfiguredDirectory>,
    pub now: Wall,
    /// The maximum time to wait for directories on file systems that do not respond.
    pub patience: Duration,
}

/// Runs all checks and returns the findings in display order. This takes about a millisecond and a few dozen system
/// calls, unless a file system hangs.
pub fn machine(roots: &Roots, wanted: &CheckSettings) -> Vec<Finding> {
    let mut found = kernel::inspect(roots, wanted.seccomp_default);
    found.extend(cgroups::inspect(roots, &wanted.cgroups, wanted.patience));
    found.extend(paths::inspect(roots, &wanted.directories, wanted.patience));
    found.push(swap::inspect(roots, wanted.pods_swap));
    found.push(clock::inspect(roots, wanted.now));
    found
}

/// Checks whether an inotify instance can be created. Not part of `machine`, because closing an instance takes up to 20
/// ms.
pub fn inotify() -> Option<Finding> {
    kernel::try_inotify()
}
