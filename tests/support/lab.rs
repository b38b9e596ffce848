//! The lab around a test program: the containerd that `tests/lab/in-lab.sh` started for it, and further ones that a
//! test starts when it means to harm it.

use super::agent::patience;
use super::cri::Cri;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A container runtime with its own root, state, socket and network.
pub struct Runtime {
    /// Its directory on disk.
    pub dir: PathBuf,
    pub socket: PathBuf,
    pub pid_file: PathBuf,
    /// The parent of all cgroups of this test program.
    pub cgroup: String,
    own: bool,
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: this program runs in a lab (make test-runtime)"))
}

impl Runtime {
    /// The one that all tests share.
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

    /// One of the test's own, gone when dropped. `name`: at most 12 of a-z, 0-9.
    pub fn own(name: &str) -> Runtime {
        Runtime::own_with(name, None)
    }

    /// The same; `programs`: a directory whose programs are taken before the system's.
    pub fn own_with(name: &str, programs: Option<&Path>) -> Runtime {
        let dir = PathBuf::from(variable("WHERRY_LAB_DIR")).join(name);
        // (The lab's scripts put WHERRY_LAB_BIN before PATH.)
        let mut bin: Vec<PathBuf> = programs.map(PathBuf::from).into_iter().collect();
        bin.extend(std::env::var_os("WHERRY_LAB_BIN").filter(|other| !other.is_empty()).map(PathBuf::from));
        let bin = std::env::join_paths(bin).expect("directories of the tests'");
        // A name decides the network: no two tests take the same one at the same time.
        let third = name.bytes().fold(0u32, |a, b| (a * 31 + u32::from(b)) % 60) * 4;
        let status = Command::new(script("runtime.sh"))
            .arg("up")
            .arg(&dir)
            .arg(name)
            .env("WHERRY_LAB_CGROUP", format!("{}/{name}", variable("WHERRY_LAB_CGROUP")))
            .env("WHERRY_LAB_SUBNET", format!("10.199.{third}.0/22"))
            .env("WHERRY_LAB_BIN", bin)
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

    /// A client of it, once it has found its containers again.
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

    /// kill -9 of containerd alone: shims and containers live on.
    pub fn kill(&self) {
        let pid = self.pid();
        signal(&pid, "KILL");
        // Until it is no process any more (of a zombie nothing is left but its name), `start_again` takes it for running.
        let end = Instant::now() + patience(120);
        while std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty()) {
            assert!(Instant::now() < end, "containerd does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Starts containerd again after `kill`, on the same directories, and waits until it answers.
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

/// A script of `tests/lab`.
pub fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lab").join(name)
}

/// The directory with the blobs of the images that `images.sh` made.
pub fn images() -> PathBuf {
    PathBuf::from(variable("WHERRY_LAB_IMAGES")).join("oci")
}

/// Sends a signal by its name without SIG.
pub fn signal(pid: &str, name: &str) {
    let status = Command::new("kill").arg(format!("-{name}")).arg(pid).status().expect("kill");
    assert!(status.success(), "kill -{name} {pid}: {status}");
}
