//! The control plane on other processors than the node, as if it ran on another machine.

use crate::support::control_plane::ControlPlane;
use crate::support::lab::Runtime;
use std::fs;
use std::process::{Command, Stdio};

/// Until it is dropped, this process, the runtime, and the programs that they start have only the first half of the processors.
pub struct Divided {
    /// The process ids.
    node: [u32; 2],
    count: usize,
}

impl Divided {
    /// The control plane gets the other half. On a machine with one processor, both have it.
    pub fn new(runtime: &Runtime, plane: &ControlPlane) -> Divided {
        let runtime = fs::read_to_string(&runtime.pid_file).expect("the runtime's process id");
        let node = [std::process::id(), runtime.trim().parse().expect("a process id")];
        let count = std::thread::available_parallelism().expect("the number of processors").get();
        let half = count.div_ceil(2);
        node.into_iter().for_each(|pid| move_to(pid, 0, half - 1));
        plane.processes().into_iter().for_each(|pid| move_to(pid, half.min(count - 1), count - 1));
        Divided { node, count }
    }
}

impl Drop for Divided {
    fn drop(&mut self) {
        self.node.into_iter().for_each(|pid| move_to(pid, 0, self.count - 1));
    }
}

/// Moves all threads of a process to the processors from `first` to `last`.
fn move_to(pid: u32, first: usize, last: usize) {
    let status = Command::new("taskset")
        .args(["--all-tasks", "--cpu-list", "--pid", &format!("{first}-{last}"), &pid.to_string()])
        .stdout(Stdio::null())
        .status();
    assert!(status.expect("taskset").success(), "process {pid} stays on its processors");
}
