//! The lab of a test program: the shared containerd that `tests/lab/in-lab.sh` starts, and separate ones for tests
//! that kill or modify containerd.

use super::agent::patience;
use super::cri::Cri;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A container runtime with its own root, state, socket and network.
pub struct Runtime {
    /// The directory of the runtime on disk.
    pub dir: PathBuf,
    pub socket: PathBuf,
    pub pid_file: PathBuf,
    /// The parent of all cgroups that this test program creates.
    pub cgroup: String,
    own: bool,
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: this program runs in a lab (make test-runtime)"))
}

impl Runtime {
    /// Returns the runtime that all tests share.
    pub fn shared() -> Runtime {
        let run = PathBuf::from(variable("WHERRY_LAB_RUN"));
        Runtime {
            dir: PathBuf::from(variable("WHERRY_LAB_DIR")),
            socket: PathBuf::from(variable("WHERRY_LAB_SOCKET")),
            pid_file: run.join("containerd.pid"),
            cgroup: variable("WHERRY_LAB_CGROUP"),
            own: false,
        }
    }

    /// Starts a separate runtime for one test and removes it on drop. `name` has at most 12 characters of a-z and
    /// 0-9.
    pub fn own(name: &str) -> Runtime {
        Runtime::own_with(name, None)
    }

    /// Like `own`. Programs in the directory `programs` take precedence over those of the system.
    pub fn own_with(name: &str, programs: Option<&Path>) -> Runtime {
        let dir = PathBuf::from(variable("WHERRY_LAB_DIR")).join(name);
        // The scripts of the lab put WHERRY_LAB_BIN before PATH.
        let mut bin: Vec<PathBuf> = programs.map(PathBuf::from).into_iter().collect();
        bin.extend(std::env::var_os("WHERRY_LAB_BIN").filter(|other| !other.is_empty()).map(PathBuf::from));
        let bin = std::env::join_paths(bin).expect("valid directory names");
        // The name determines the subnet: tests that run at the same time need different names.
        let third = name.bytes().fold(0u32, |a, b| (a * 31 + u32::from(b)) % 60) * 4;
        let status = Command::new(script("runtime.sh"))
            .arg("up")
            .arg(&dir)
            .arg(name)
            .env("WHERRY_LAB_CGROUP", format!("{}/{name}", variable("WHERRY_LAB_CGROUP")))
            .env("WHERRY_LAB_SUBNET", format!("10.199.{third}.0/22"))
            .env("WHERRY_LAB_BIN", bin)
            .env("WHERRY_LAB_CERTS", PathBuf::from(variable("WHERRY_LAB_DIR")).join("certs.d"))
            .status()
            .expect("runtime.sh");
        assert!(status.success(), "runtime.sh up {name}: {status}");
        let run = PathBuf::from(format!("/run/wherry-{name}"));
        Runtime {
            dir,
            socket: run.join("containerd.sock"),
            pid_file: run.join("containerd.pid"),
            cgroup: format!("{}/{name}", variable("WHERRY_LAB_CGROUP")),
            own: true,
        }
    }

    /// Connects a client. Waits until the runtime has recovered its containers.
    pub fn connect(&self) -> Cri {
        let end = Instant::now() + patience(240);
        loop {
            match Cri::try_connect(&self.socket).and_then(|mut cri| cri.status().map(|_| cri)) {
                Ok(cri) => return cri,
                Err(e) => assert!(Instant::now() < end, "the runtime does not become ready: {e:?}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn pid(&self) -> String {
        std::fs::read_to_string(&self.pid_file).expect("containerd.pid").trim().to_string()
    }

    /// Kills containerd with SIGKILL. Shims and containers continue to run.
    pub fn kill(&self) {
        let pid = self.pid();
        signal(&pid, "KILL");
        // `start_again` would mistake an existing process for a running containerd. The command line of a zombie is
        // empty.
        let end = Instant::now() + patience(120);
        while std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty()) {
            assert!(Instant::now() < end, "containerd does not exit");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Simulates a power failure: only the files of the runtime on the disk remain. The mounts of the pods belong to
    /// Wherry, so a test removes them itself.
    pub fn cut_power(&self) {
        let status = Command::new(script("runtime.sh")).arg("cut").arg(&self.dir).status().expect("runtime.sh");
        assert!(status.success(), "runtime.sh cut: {status}");
    }

    /// Starts containerd again after `kill` or `cut_power`, on the same directories, and waits until it responds.
    pub fn start_again(&self) {
        let status = Command::new(script("runtime.sh")).arg("again").arg(&self.dir).status().expect("runtime.sh");
        assert!(status.success(), "runtime.sh again: {status}");
        self.connect();
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if self.own {
            let _ = Command::new(script("runtime.sh")).arg("down").arg(&self.dir).status();
        }
    }
}

/// Returns the path of a script in `tests/lab`.
pub fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lab").join(name)
}

/// Returns the path of the OCI layout with the images that `images.sh` builds.
pub fn images() -> PathBuf {
    PathBuf::from(variable("WHERRY_LAB_IMAGES")).join("oci")
}

/// Runs a program of the system, which must succeed.
pub fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().expect(program);
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Returns a path as an argument.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Sends a signal. `name` is the name of the signal without SIG.
pub fn signal(pid: &str, name: &str) {
    let status = Command::new("kill").arg(format!("-{name}")).arg(pid).status().expect("kill");
    assert!(status.success(), "kill -{name} {pid}: {status}");
}
