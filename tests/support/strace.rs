//! Runs strace on a running agent and compares the system calls with docs/strace.md and docs/strace-pods.md.
//!
//! WHERRY_RECORD=DIR keeps each trace in DIR, to update these pages.

use super::agent::patience;
use super::lab::signal;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The phase in which no helper runs.
const IDLE: &str = "idle";

/// A trace of one process and its threads, from `attach` to `calls`.
pub struct Trace {
    child: Child,
    file: PathBuf,
    phase: &'static str,
}

/// Waits until the process sleeps, so that no event is pending and all helpers have ended. Gives up after 16 s:
/// events about the containers of other tests may never stop.
pub fn wait_quiet(pid: u32) {
    let switches = || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
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
    /// Attaches strace. `phase` is the name of a table in docs/strace*.md. On return strace records every call.
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
            let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
            status.lines().any(|l| l.strip_prefix("TracerPid:").is_some_and(|pid| pid.trim() != "0"))
        };
        while !traced() {
            assert!(Instant::now() < end, "strace does not attach");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        Trace { child, file, phase }
    }

    /// Ends the trace and returns it.
    fn end(mut self) -> String {
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
        text
    }

    /// Ends the trace. Returns the number of calls by name.
    pub fn calls(self) -> BTreeMap<String, u32> {
        count(&self.end())
    }

    /// Ends the trace and compares it with docs/strace*.md: each call marked `always` was seen, and each call seen is
    /// listed.
    pub fn matches_the_page(self) -> BTreeMap<String, u32> {
        self.matches_the_page_with_mounts().0
    }

    /// Like `matches_the_page`, and also returns the number of waits that ended only because the mount table had
    /// changed.
    pub fn matches_the_page_with_mounts(self) -> (BTreeMap<String, u32>, u32) {
        let page = page();
        let (phase, mut anywhere) = (documented(&page, self.phase), documented(&page, "anywhere"));
        if self.phase != IDLE {
            anywhere.extend(documented(&page, "helpers"));
        }
        let name = self.phase;
        let text = self.end();
        let calls = count(&text);
        let seen: BTreeSet<&String> = calls.keys().collect();
        let known: BTreeSet<&String> = phase.keys().chain(anywhere.keys()).collect();
        let unknown: Vec<_> = seen.difference(&known).collect();
        assert!(unknown.is_empty(), "{name}: not in docs/strace*.md: {unknown:?}; seen: {calls:?}");
        let missing: Vec<_> = phase.iter().filter(|(call, always)| **always && !seen.contains(call)).collect();
        assert!(
            missing.is_empty(),
            "{name}: docs/strace*.md says that these are always seen: {missing:?}; seen: {calls:?}"
        );
        let mounts = text.lines().filter(|line| line.contains("EPOLLPRI") && line.ends_with("= 1")).count();
        (calls, u32::try_from(mounts).expect("a number of lines"))
    }
}

/// Returns the number of calls that were started, by name.
fn count(trace: &str) -> BTreeMap<String, u32> {
    let mut calls = BTreeMap::new();
    for line in trace.lines() {
        // `PID   0.000012 name(...`. The rest of an interrupted call begins with `<...` and is not counted again.
        let Some(call) = line.split_whitespace().nth(2) else { continue };
        let Some((name, _)) = call.split_once('(') else { continue };
        if !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_') {
            *calls.entry(name.to_owned()).or_default() += 1;
        }
    }
    calls
}

/// Returns the text of docs/strace.md and docs/strace-pods.md.
pub fn page() -> String {
    let read = |name: &str| {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(name);
        fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    };
    ["docs/strace.md", "docs/strace-pods.md"].map(read).join("\n")
}

/// Returns the calls in the first column of the table after `<!-- table: NAME -->`, and whether the second column is
/// `always`.
pub fn documented(page: &str, name: &str) -> BTreeMap<String, bool> {
    let mark = format!("<!-- table: {name} -->");
    let at = page.find(&mark).unwrap_or_else(|| panic!("docs/strace*.md have no {mark}"));
    let rows = page[at..].lines().skip(1).skip_while(|l| l.trim().is_empty()).take_while(|l| l.starts_with('|'));
    let mut found = BTreeMap::new();
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        // A cell may list several calls: `brk`, `mmap`.
        for name in cells[0].split('`').skip(1).step_by(2) {
            found.insert(name.to_owned(), cells.get(1) == Some(&"always"));
        }
    }
    assert!(!found.is_empty(), "docs/strace*.md: the table {name} is empty");
    found
}
