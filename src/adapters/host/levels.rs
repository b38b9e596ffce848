//! Reads the amount of memory and of process ids that is available on the machine (E1).

use super::machine;
use crate::api::eviction::Level;
use crate::api::facts::MachineFact;
use std::fs;

/// Reads /proc, which never blocks. Process ids are counted only if `pids` is set. The available memory is the
/// kernel's own estimate, `MemAvailable`.
///
/// # Errors
/// The kernel does not provide a value.
pub fn read(pids: bool) -> Result<MachineFact, String> {
    let read = |path: &str| fs::read_to_string(path).map_err(|e| format!("read {path}: {e}"));
    let meminfo = read("/proc/meminfo")?;
    let memory = memory(&meminfo).ok_or("parse /proc/meminfo: no line MemTotal or MemAvailable")?;
    if !pids {
        return Ok(MachineFact { memory, pids: Level::default() });
    }
    let loadavg = read("/proc/loadavg")?;
    let threads = threads(&loadavg).ok_or_else(|| format!("parse /proc/loadavg: {:?}", loadavg.trim()))?;
    let limit = machine::most_processes().ok_or("read /proc/sys/kernel/pid_max: not a number")?;
    Ok(MachineFact { memory, pids: Level { capacity: limit, available: limit.saturating_sub(threads) } })
}

fn memory(meminfo: &str) -> Option<Level> {
    let bytes = |name| machine::meminfo_bytes(meminfo, name);
    Some(Level { capacity: bytes("MemTotal:")?, available: bytes("MemAvailable:")? })
}

/// Returns the number of processes and threads: the second number of the fourth word in /proc/loadavg.
fn threads(loadavg: &str) -> Option<u64> {
    loadavg.split_whitespace().nth(3)?.split_once('/')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e1_the_available_memory_and_process_ids_are_read_from_proc() {
        let text = "MemTotal:  2048 kB\nMemFree: 1 kB\nMemAvailable:   512 kB\n";
        assert_eq!(memory(text), Some(Level { capacity: 2 << 20, available: 512 << 10 }));
        assert_eq!(memory("MemTotal: 1 kB\n"), None);
        assert_eq!(threads("0.00 0.01 0.05 2/345 6789\n"), Some(345));
        assert_eq!(threads("0.00 0.01"), None);
        assert_eq!(read(false).unwrap().pids, Level::default());
        let fact = read(true).unwrap();
        for level in [fact.memory, fact.pids] {
            assert!(level.available > 0 && level.available < level.capacity, "{fact:?}");
        }
    }
}
