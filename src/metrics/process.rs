//! The families `process_*`, read from /proc during a scrape.

use super::exposition::Kind;
use rustix::process::{Resource, getrlimit};

/// The values that do not change while the process runs.
#[derive(Debug)]
pub struct Process {
    ticks: f64,
    page_size: f64,
    /// The start time in seconds since the Unix epoch. None if /proc cannot be read.
    start_time: Option<f64>,
}

/// The fields of /proc/self/stat that are used here, in its units.
#[derive(Debug, PartialEq)]
struct Stat {
    cpu_ticks: f64,
    start_ticks: f64,
    virtual_bytes: f64,
    resident_pages: f64,
}

impl Process {
    pub fn new() -> Process {
        let ticks = rustix::param::clock_ticks_per_second().max(1) as f64;
        let boot = std::fs::read_to_string("/proc/stat").ok().and_then(|s| boot_time(&s));
        let start_time = boot.zip(read_stat()).map(|(boot, stat)| boot + stat.start_ticks / ticks);
        Process { ticks, page_size: rustix::param::page_size() as f64, start_time }
    }

    /// Returns the name, kind, help text and value of each family. The value is None if it cannot be read; the family
    /// is then omitted.
    pub fn read(&self) -> [(&'static str, Kind, &'static str, Option<f64>); 7] {
        let stat = read_stat();
        let stat = stat.as_ref();
        // Subtract one for the directory, which is itself open during the count.
        let fds = std::fs::read_dir("/proc/self/fd").ok().map(|dir| dir.count().saturating_sub(1) as f64);
        let limit = |resource| Some(getrlimit(resource).current.map_or(u64::MAX as f64, |n| n as f64));
        use Kind::{Counter, Gauge};
        let cpu = stat.map(|s| s.cpu_ticks / self.ticks);
        let resident = stat.map(|s| s.resident_pages * self.page_size);
        let start_help = "Start time of the process since unix epoch in seconds.";
        let address_help = "Maximum amount of virtual memory available in bytes.";
        let virtual_bytes = stat.map(|s| s.virtual_bytes);
        [
            ("process_cpu_seconds_total", Counter, "Total user and system CPU time spent in seconds.", cpu),
            ("process_max_fds", Gauge, "Maximum number of open file descriptors.", limit(Resource::Nofile)),
            ("process_open_fds", Gauge, "Number of open file descriptors.", fds),
            ("process_resident_memory_bytes", Gauge, "Resident memory size in bytes.", resident),
            ("process_start_time_seconds", Gauge, start_help, self.start_time),
            ("process_virtual_memory_bytes", Gauge, "Virtual memory size in bytes.", virtual_bytes),
            ("process_virtual_memory_max_bytes", Gauge, address_help, limit(Resource::As)),
        ]
    }
}

fn read_stat() -> Option<Stat> {
    parse_stat(&std::fs::read_to_string("/proc/self/stat").ok()?)
}

fn parse_stat(text: &str) -> Option<Stat> {
    // Start after the last parenthesis: the process name in parentheses may contain any character, including
    // parentheses.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    // proc(5) numbers the fields from 1. The first field here is number 3.
    let field = |n: usize| fields.get(n - 3)?.parse::<f64>().ok();
    Some(Stat {
        cpu_ticks: field(14)? + field(15)?,
        start_ticks: field(22)?,
        virtual_bytes: field(23)?,
        resident_pages: field(24)?,
    })
}

fn boot_time(stat: &str) -> Option<f64> {
    stat.lines().find_map(|l| l.strip_prefix("btime "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_confuse() {
        let text = "7 (a) b) S 1 7 7 0 -1 4194560 100 0 0 0 12 34 0 0 20 0 1 0 5678 4096 9 18446744073709551615 0 0";
        let expected = Stat { cpu_ticks: 46.0, start_ticks: 5678.0, virtual_bytes: 4096.0, resident_pages: 9.0 };
        assert_eq!(parse_stat(text), Some(expected));
        assert_eq!(parse_stat("nonsense"), None);
    }

    #[test]
    fn the_start_is_in_the_past_and_not_far() {
        let now = jiff::Timestamp::now().as_second() as f64;
        let start = Process::new().start_time.unwrap();
        assert!(start <= now + 1.0 && start > now - 3600.0 * 24.0, "{start} {now}");
    }
}
