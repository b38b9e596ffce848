//! Repairs the cache of libcni: a file for the network of each sandbox in /var/lib/cni/results, written without fsync.
//! A power failure can leave such a file empty. The network is then never torn down: the runtime can neither stop nor
//! remove the sandbox, and the pod does not start again. If the file does not exist, the CNI plugins use their own
//! state.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The results directory in libcni's CacheDir (libcni/api.go). containerd and CRI-O do not change it. The name of a
/// result is `NETWORK-SANDBOX-INTERFACE`.
pub const RESULTS: &str = "/var/lib/cni/results";

/// Removes the empty results of these sandboxes. Returns each path with the outcome of its removal. Call this on a
/// helper thread, because the directory may be on a file system that hangs.
pub fn remove_empty(directory: &Path, sandboxes: &[String]) -> Vec<(PathBuf, io::Result<()>)> {
    let is_left_over = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        sandboxes.iter().any(|id| name.contains(&format!("-{id}-")))
            && fs::symlink_metadata(path).is_ok_and(|m| m.is_file() && m.len() == 0)
    };
    let paths = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    paths.filter(is_left_over).map(|path| (path.clone(), fs::remove_file(path))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_empty_results_of_the_sandboxes_that_are_named_go() {
        let dir = tempfile::tempdir().unwrap();
        let make = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let empty = make("a-net-1111-eth0", "");
        let kept = [make("a-net-2222-eth0", "{}"), make("a-net-3333-eth0", ""), dir.path().join("n-1111-lo")];
        fs::create_dir(&kept[2]).unwrap();
        let removed = remove_empty(dir.path(), &["1111".to_owned(), "2222".to_owned()]);
        assert!(matches!(removed.as_slice(), [(path, Ok(()))] if *path == empty), "{removed:?}");
        assert!(!empty.exists() && kept.iter().all(|path| path.exists()));
        assert!(remove_empty(&dir.path().join("none"), &["1111".to_owned()]).is_empty());
    }
}
