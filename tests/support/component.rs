//! A program of a control plane as a process with a log. `api_server` and `control_plane` consist of these.

use super::agent::patience;
use super::lab::signal;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The address that agents and pods can reach: the node's address in the lab's network namespace
/// (`tests/lab/isolate.sh`). A pod reaches it through the gateway of its bridge.
pub const NODE_ADDRESS: &str = "192.0.2.2";

/// A running program. Dropping this value kills it.
pub struct Component {
    pub name: String,
    child: Child,
    log: PathBuf,
}

impl Component {
    /// Starts `program` of the directory `programs`. Its log is in `dir`; a second start appends to it.
    pub fn start(programs: &Path, dir: &Path, program: &str, arguments: &[String]) -> Component {
        let log = dir.join(format!("{program}.log"));
        let file = OpenOptions::new().create(true).append(true).open(&log).expect("a log");
        let child = Command::new(programs.join(program))
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("a file"))
            .stderr(file)
            .spawn()
            .expect(program);
        Component { name: program.to_owned(), child, log }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Starts an etcd for clients on loopback, on `port`. It also uses the next port. Returns the URL for its
    /// clients.
    pub fn etcd(programs: &Path, dir: &Path, port: u16) -> (Component, String) {
        let [clients, peers] = [port, port + 1].map(|port| format!("http://127.0.0.1:{port}"));
        let arguments = [
            format!("--data-dir={}", dir.join("etcd").display()),
            format!("--listen-client-urls={clients}"),
            format!("--advertise-client-urls={clients}"),
            format!("--listen-peer-urls={peers}"),
            format!("--initial-advertise-peer-urls={peers}"),
            format!("--initial-cluster=default={peers}"),
        ];
        (Component::start(programs, dir, "etcd", &arguments), clients)
    }

    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Returns the last lines of the log.
    pub fn end_of_log(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        format!("--- the end of the log of {}\n{}\n", self.name, lines[lines.len().saturating_sub(15)..].join("\n"))
    }

    /// Returns the resident memory, in MiB.
    pub fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) / 1024
    }
}

impl Drop for Component {
    fn drop(&mut self) {
        if !self.has_ended() {
            signal(&self.child.id().to_string(), "KILL");
        }
        let _ = self.child.wait();
    }
}

/// Waits until `ready`. If a component ends, or does not become ready in time, the test fails and prints the ends of
/// all logs.
pub fn wait_until(what: &str, components: &mut [Component], mut ready: impl FnMut() -> bool) {
    let end = Instant::now() + patience(240);
    while !ready() {
        let ended = components.iter_mut().find_map(|c| c.has_ended().then(|| c.name.clone()));
        if ended.is_some() || Instant::now() > end {
            let logs: String = components.iter().map(Component::end_of_log).collect();
            let why = ended.map_or("the timeout has expired".to_owned(), |name| format!("{name} has ended"));
            panic!("waited until {what}, but {why}\n{logs}");
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}
