//! Measures a process with /proc and strace.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

/// The wall clock in nanoseconds since the epoch, for comparison with timestamps of the runtime.
pub fn now() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_nanos() as i64
}

/// CPU time in seconds, including threads that have ended. The resolution is 10 ms.
pub fn cpu_of_all(pid: u32) -> f64 {
    ticks(pid, 11) + ticks(pid, 12)
}

/// CPU time in seconds of the programs that the process ran and that have ended. The resolution is 10 ms.
pub fn cpu_of_programs(pid: u32) -> f64 {
    ticks(pid, 13) + ticks(pid, 14)
}

/// A field of the process, in seconds.
fn ticks(pid: u32, field: usize) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process runs");
    // The command name may contain spaces and parentheses, so the fields start after the last `) `.
    let fields: Vec<&str> = stat.rsplit(") ").next().expect("fields").split(' ').collect();
    fields[field].parse::<f64>().expect("a number") / rustix::param::clock_ticks_per_second() as f64
}

/// CPU time in seconds of the current threads. The resolution is 1 ns.
pub fn cpu(pid: u32) -> f64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("the process runs");
    let spent = tasks
        .flatten()
        .filter_map(|t| fs::read_to_string(t.path().join("schedstat")).ok()?.split(' ').next()?.parse::<u64>().ok());
    spent.sum::<u64>() as f64 / 1e9
}

pub fn threads(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/task")).expect("the process runs").count()
}

pub fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).expect("the process runs").count()
}

/// The memory of a process, in MB (10^6 bytes).
pub struct Memory {
    /// Heap and stacks. The kernel cannot reclaim them without swap.
    pub anonymous: f64,
    /// Resident memory, with each page divided by the number of processes that map it.
    pub proportional: f64,
    /// All resident pages. Those that are not anonymous are mostly code, which the kernel can reclaim.
    pub resident: f64,
}

pub fn memory(pid: u32) -> Memory {
    let value = |file: &str, name: &str| {
        let text = fs::read_to_string(format!("/proc/{pid}/{file}")).expect("the process runs");
        let line = text.lines().find_map(|l| l.strip_prefix(name)).expect("a line of this name");
        let kib: f64 = line.split_whitespace().next().expect("a number").parse().expect("a number");
        kib * 1024.0 / 1e6
    };
    Memory {
        anonymous: value("status", "RssAnon:"),
        proportional: value("smaps_rollup", "Pss:"),
        resident: value("status", "VmRSS:"),
    }
}

/// Number of system calls per second during `time`. None if strace is not available.
pub fn system_calls(pid: u32, time: Duration) -> Option<f64> {
    // The attachment takes a part of the time in which calls are counted.
    let begun = Instant::now();
    Some(count_calls(pid, "all", || std::thread::sleep(time))? / begun.elapsed().as_secs_f64())
}

/// Number of these system calls (as in strace's `-e trace=`) during an action. None if strace is not available, and then the action
/// takes place all the same.
pub fn count_calls(pid: u32, calls: &str, action: impl FnOnce()) -> Option<f64> {
    let summary = std::env::temp_dir().join(format!("wherry-bench-strace-{}", std::process::id()));
    let strace = Command::new("strace")
        .args(["-c", "-f", "-e", &format!("trace={calls}"), "-o"])
        .arg(&summary)
        .args(["-p", &pid.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    // It attaches within this time.
    std::thread::sleep(Duration::from_millis(500));
    action();
    let mut strace = strace.ok()?;
    crate::support::lab::signal(&strace.id().to_string(), "INT");
    let _ = strace.wait();
    let text = fs::read_to_string(&summary).unwrap_or_default();
    let _ = fs::remove_file(&summary);
    // strace writes no table if there was no call.
    text.lines()
        .find(|l| l.ends_with(" total"))
        .map_or(Some(0.0), |l| l.split_whitespace().filter_map(|w| w.parse::<f64>().ok()).nth(3))
}
