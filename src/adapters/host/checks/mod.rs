//! A look at the machine before pods are started on it: what the kernel has, what is mounted, who may write where, how
//! much room there is, what the clock says. Reads small files and asks the kernel; changes nothing, and never waits for
//! another process (what does is the agent's: the runtime, the bus). It waits for a while for a directory whose file system
//! hangs.
//!
//! - `kernel`: features, limits, rights of this process, AppArmor;
//! - `cgroups`: what is mounted and which controllers there are;
//! - `paths`: directories, rights, room;
//! - `clock`; `cni`: the network's configuration, where the runtime says it is.

mod cgroups;
mod clock;
pub mod cni;
mod kernel;
mod paths;

pub use paths::{Directory, Purpose, hangs, is_stuck};

use crate::api::cgroups::CgroupNames;
use crate::api::finding::Finding;
use crate::api::time::Wall;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where the kernel's files, and those of services, are; a test has its own.
#[derive(Clone, Debug)]
pub struct Roots {
    pub proc: PathBuf,
    pub sys: PathBuf,
    pub run: PathBuf,
}

impl Default for Roots {
    fn default() -> Roots {
        Roots { proc: "/proc".into(), sys: "/sys".into(), run: "/run".into() }
    }
}

/// What the configuration wants of the machine.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub cgroups: CgroupNames,
    pub seccomp_default: bool,
    pub directories: Vec<Directory>,
    pub now: Wall,
    /// How long to wait for directories that give no answer.
    pub patience: Duration,
}

/// All of it, in the order in which people should read it. A millisecond, a few dozen system calls, unless a file system hangs.
pub fn machine(roots: &Roots, wanted: &Wanted) -> Vec<Finding> {
    let mut found = kernel::look(roots, wanted.seccomp_default);
    found.extend(cgroups::look(roots, &wanted.cgroups));
    found.extend(paths::look(&wanted.directories, wanted.patience));
    found.push(clock::look(roots, wanted.now));
    found
}

/// Whether an inotify can be had now. Not part of `machine`: to close one takes the kernel up to 20 ms.
pub fn inotify() -> Option<Finding> {
    kernel::try_inotify()
}

/// A small file's text, without blanks around it; None if it cannot be read.
fn text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}
