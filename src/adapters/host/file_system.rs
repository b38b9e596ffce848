//! Measures file systems.

use crate::api::facts::FileSystemFact;
use rustix::fs::statvfs;
use std::io;
use std::path::Path;

/// Returns the size and the free space of the file system that contains the path. Blocks while the file system hangs,
/// so it must run on a helper thread.
///
/// # Errors
/// The path does not exist, or its file system fails.
pub fn measure(path: &Path) -> io::Result<FileSystemFact> {
    let sizes = statvfs(path)?;
    let bytes = |blocks: u64| blocks.saturating_mul(sizes.f_frsize);
    Ok(FileSystemFact {
        capacity: bytes(sizes.f_blocks),
        available: bytes(sizes.f_bavail),
        inodes: sizes.f_files,
        inodes_free: sizes.f_favail,
        id: rustix::fs::stat(path)?.st_dev,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_has_a_capacity_and_a_missing_path_is_an_error() {
        let fact = measure(Path::new("/")).unwrap();
        assert!(fact.capacity > 0 && fact.available <= fact.capacity, "{fact:?}");
        assert!(measure(Path::new("/nothing/is/here")).is_err());
    }
}
