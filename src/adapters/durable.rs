//! Durable changes to small files. The functions wait for the disk, so they run on a helper thread.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Replaces a file by means of the temporary file `aside` in the same directory. After a power cut, the file has
/// either the old content or the new one. The change is durable once the directory is synced.
///
/// # Errors
/// The new content cannot be written. The file keeps its old content, and `aside` is removed, because the disk may be
/// full.
pub(super) fn replace(path: &Path, aside: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let replaced = write(aside, content, mode).and_then(|()| fs::rename(aside, path));
    if replaced.is_err() {
        let _ = fs::remove_file(aside);
    }
    replaced
}

/// Writes a file and waits until its content is on the disk.
///
/// # Errors
/// The errors of open(2), write(2) and fsync(2).
pub(super) fn write(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

/// Makes changes to the entries of a directory durable.
///
/// # Errors
/// The errors of open(2) and fsync(2).
pub(super) fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Creates a directory and its missing parents, durably.
///
/// # Errors
/// The errors of mkdir(2), open(2) and fsync(2).
pub(super) fn make_directory(directory: &Path, mode: u32) -> io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    let parent = directory.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !parent.exists() {
        make_directory(parent, mode)?;
    }
    match DirBuilder::new().mode(mode).create(directory) {
        Err(_) if directory.is_dir() => {}
        made => made?,
    }
    sync(parent)
}

/// Returns the path with `end` appended to its file name.
pub(super) fn appended(path: &Path, end: &str) -> PathBuf {
    let mut longer = path.as_os_str().to_owned();
    longer.push(end);
    PathBuf::from(longer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_replacement_leaves_no_temporary_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/file");
        make_directory(path.parent().unwrap(), 0o750).unwrap();
        let aside = appended(&path, ".new");
        assert!(aside.ends_with("a/b/file.new"));
        replace(&path, &aside, b"new", 0o600).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert!(!aside.exists());
        let taken = path.parent().unwrap();
        assert!(replace(taken, &aside, b"new", 0o600).is_err());
        assert!(!aside.exists() && path.exists());
        assert!(make_directory(&path.join("c"), 0o750).is_err());
        assert!(make_directory(&path, 0o750).is_err());
    }
}
