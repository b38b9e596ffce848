//! strace on a running agent, and what docs/strace.md says is seen there.
//!
//! WHERRY_RECORD=DIR keeps each trace in DIR, for the page.

use super::agent::patience;
use super::lab::signal;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The phase in which nothing is given to a helper.
const IDLE: &str = "idle";

/// A strace of one process and its threads, from `attach` to `calls`.
pub struct Trace {
    child: Child,
    file: PathBuf,
    phase: &'static str,
}

/// Waits until the process sleeps: what was on its way has come, and helpers have ended. (A stream of events of other
/// tests' containers never ends; then this is how long a test waits.)
pub fn wait_quiet(pid: u32) {
    let switches = || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
        let line = status.lines().find(|l| l.starts_with("voluntary_ctxt_switches:"));
        line.map(str::to_owned)
    };
    for _ in 0..8 {
        let before = switches();
        std::thread::sleep(Duration::from_secs(2));
        if switches() == before {
            return;
        }
    }
}

impl Trace {
    /// `phase`: a table of docs/strace.md. Returns when every call from now on is seen.
    pub fn attach(pid: u32, phase: &'static str) -> Trace {
        let file = std::env::temp_dir().join(format!("wherry-strace-{phase}-{pid}"));
        let child = Command::new("strace")
            .args(["-f", "-r", "-s", "64", "-o"])
            .arg(&file)
            .args(["-p", &pid.to_string()])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("strace (tests/lab/install.sh runtime)");
        let end = Instant::now() + patience(120);
        let traced = || {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
            status.lines().any(|l| l.strip_prefix("TracerPid:").is_some_and(|pid| pid.trim() != "0"))
        };
        while !traced() {
            assert!(Instant::now() < end, "strace does not attach");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        Trace { child, file, phase }
    }

    /// Ends it: how often each system call was made.
    pub fn calls(mut self) -> BTreeMap<String, u32> {
        signal(&self.child.id().to_string(), "INT");
        self.child.wait().expect("strace");
        let text = fs::read_to_string(&self.file).expect("a trace");
        fs::remove_file(&self.file).expect("remove the trace");
        if let Some(directory) = std::env::var_os("WHERRY_RECORD").filter(|d| !d.is_empty()) {
            fs::create_dir_all(&directory).expect("WHERRY_RECORD");
            let version = std::env::var("WHERRY_RUNTIME").unwrap_or_default();
            let name = format!("strace-{}{version}.txt", self.phase);
            fs::write(PathBuf::from(directory).join(name), &text).expect("keep the trace");
        }
        count(&text)
    }

    /// Ends it and holds it against the page: what is always seen was, and nothing that the page does not have.
    pub fn matches_the_page(self) -> BTreeMap<String, u32> {
        let page = page();
        let (phase, mut anywhere) = (documented(&page, self.phase), documented(&page, "anywhere"));
        if self.phase != IDLE {
            anywhere.extend(documented(&page, "helpers"));
        }
        let name = self.phase;
        let calls = self.calls();
        let seen: BTreeSet<&String> = calls.keys().collect();
        let known: BTreeSet<&String> = phase.keys().chain(anywhere.keys()).collect();
        let unknown: Vec<_> = seen.difference(&known).collect();
        assert!(unknown.is_empty(), "{name}: not in docs/strace.md: {unknown:?}; seen: {calls:?}");
        let missing: Vec<_> = phase.iter().filter(|(call, always)| **always && !seen.contains(call)).collect();
        assert!(
            missing.is_empty(),
            "{name}: docs/strace.md says that these are always seen: {missing:?}; seen: {calls:?}"
        );
        calls
    }
}

/// By name, the calls that were begun.
fn count(trace: &str) -> BTreeMap<String, u32> {
    let mut calls = BTreeMap::new();
    for line in trace.lines() {
        // `PID   0.000012 name(...`; what goes on after another thread's call begins with `<...`.
        let Some(call) = line.split_whitespace().nth(2) else { continue };
        let Some((name, _)) = call.split_once('(') else { continue };
        if !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_') {
            *calls.entry(name.to_owned()).or_default() += 1;
        }
    }
    calls
}

/// docs/strace.md.
pub fn page() -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/strace.md");
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The first column of the table behind `<!-- table: NAME -->`, and whether the second says `always`.
pub fn documented(page: &str, name: &str) -> BTreeMap<String, bool> {
    let mark = format!("<!-- table: {name} -->");
    let at = page.find(&mark).unwrap_or_else(|| panic!("docs/strace.md has no {mark}"));
    let rows = page[at..].lines().skip(1).skip_while(|l| l.trim().is_empty()).take_while(|l| l.starts_with('|'));
    let mut found = BTreeMap::new();
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        // A cell may name several: `brk`, `mmap`.
        for name in cells[0].split('`').skip(1).step_by(2) {
            found.insert(name.to_owned(), cells.get(1) == Some(&"always"));
        }
    }
    assert!(!found.is_empty(), "docs/strace.md: the table {name} is empty");
    found
}
