//! What libcni remembers of each sandbox's network: a file each in /var/lib/cni/results, written without a sync. A power cut leaves
//! such files empty, and with an empty one the network is never taken down: the runtime can neither stop nor remove the sandbox, and
//! the pod does not start again. Without the file the plugins do it from their own state.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// libcni's CacheDir and its directory for results (libcni/api.go); containerd and CRI-O leave it as it is.
pub const RESULTS: &str = "/var/lib/cni/results";

/// Removes files that are empty and older than `boot`, when the machine was started (or, where the clock starts anew with
/// the machine, younger than `now`). What was removed; what cannot be is left.
pub fn remove_empty(directory: &Path, boot: SystemTime, now: SystemTime) -> Vec<PathBuf> {
    let is_left_over = |path: &PathBuf| {
        let Ok(metadata) = fs::symlink_metadata(path) else { return false };
        metadata.is_file() && metadata.len() == 0 && metadata.modified().is_ok_and(|time| time < boot || time > now)
    };
    let paths = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    paths.filter(is_left_over).filter(|path| fs::remove_file(path).is_ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn only_empty_files_of_an_earlier_boot_go() {
        let dir = tempfile::tempdir().unwrap();
        let boot = SystemTime::now();
        let now = boot + Duration::from_secs(60);
        let make = |name: &str, text: &str, time: SystemTime| {
            let path = dir.path().join(name);
            fs::write(&path, text).unwrap();
            fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
            path
        };
        let (before, after) = (boot - Duration::from_secs(60), boot + Duration::from_secs(1));
        let empty = make("net-1-eth0", "", before);
        let odd = make("net-4-eth0", "", now + Duration::from_secs(600));
        let kept = [make("net-2-eth0", "{}", before), make("net-3-eth0", "", after), dir.path().join("inner")];
        fs::create_dir(&kept[2]).unwrap();
        let mut gone = remove_empty(dir.path(), boot, now);
        gone.sort();
        assert_eq!(gone, [empty.clone(), odd.clone()]);
        assert!(!empty.exists() && !odd.exists() && kept.iter().all(|path| path.exists()));
        assert!(remove_empty(&dir.path().join("none"), boot, now).is_empty());
    }
}
