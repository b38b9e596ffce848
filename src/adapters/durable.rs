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
fn write(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    create(path, content, mode)?.sync_all()
}

fn create(path: &Path, content: &[u8], mode: u32) -> io::Result<File> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(path)?;
    file.write_all(content)?;
    Ok(file)
}

/// The maximum size in bytes of a file that is renamed before it is synced: the smallest page. The kernel writes a page
/// as a whole, so after a power cut such a file is either unwritten or complete.
const ONE_PAGE: usize = 4096;

/// What still has to be done to make a written file durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Written {
    Durable,
    /// The directory has to be synced.
    InDirectory,
}

/// Reports whether the power failed before the first sync of a file with this content had ended. Such a file is empty,
/// or consists of zeros: ext4 notes the size and the place of new data before the data is written (`dioread_nolock`).
pub(super) fn is_unwritten(content: &[u8]) -> bool {
    content.iter().all(|byte| *byte == 0)
}

/// Creates or replaces a file, by means of the temporary file `aside` in the same directory. `rename` renames `aside`
/// to `path`. After a power cut, a replaced file has the old content or the new one, and a new file is missing,
/// unwritten (`is_unwritten`) or complete.
///
/// A new small file needs one sync instead of two, which spares a flash card: it is renamed first, and the sync then
/// covers its name too. Readers have to treat an unwritten file as a missing one.
///
/// # Errors
/// The file cannot be written, or `rename` failed. `aside` is removed, because the disk may be full.
pub(super) fn put(
    path: &Path,
    aside: &Path,
    content: &[u8],
    mode: u32,
    rename: impl FnOnce() -> io::Result<()>,
) -> io::Result<Written> {
    let is_new = matches!(fs::symlink_metadata(path), Err(e) if e.kind() == io::ErrorKind::NotFound);
    let written = create(aside, content, mode).and_then(|file| {
        if is_new && content.len() <= ONE_PAGE && syncs_names(&file) {
            rename()?;
            file.sync_all()?;
            return Ok(Written::Durable);
        }
        file.sync_all()?;
        rename()?;
        Ok(Written::InDirectory)
    });
    if written.is_err() {
        let _ = fs::remove_file(aside);
    }
    written
}

/// Reports whether the sync of a file on this file system also makes its latest name durable. ext4, XFS, Btrfs and F2FS
/// write both in one transaction; POSIX does not demand it.
fn syncs_names(file: &File) -> bool {
    const EXT4: u64 = 0xef53;
    const XFS: u64 = 0x5846_5342;
    const BTRFS: u64 = 0x9123_683e;
    const F2FS: u64 = 0xf2f5_2010;
    // The width and the sign of the field depend on the architecture.
    #[allow(clippy::cast_sign_loss, clippy::unnecessary_cast)]
    let found = rustix::fs::fstatfs(file).map(|stat| stat.f_type as u64 & 0xffff_ffff);
    matches!(found, Ok(EXT4 | XFS | BTRFS | F2FS))
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

    #[test]
    fn a_new_file_is_renamed_before_its_only_sync_and_an_old_one_after_its_sync() {
        let dir = tempfile::tempdir().unwrap();
        let (path, aside) = (dir.path().join("file"), dir.path().join("file.new"));
        let rename = || fs::rename(&aside, &path);
        // On any other file system, the directory has to be synced.
        let at_once = match syncs_names(&File::open(dir.path()).unwrap()) {
            true => Written::Durable,
            false => Written::InDirectory,
        };
        assert_eq!(put(&path, &aside, b"one", 0o600, rename).unwrap(), at_once);
        assert_eq!(put(&path, &aside, b"two", 0o600, rename).unwrap(), Written::InDirectory);
        assert_eq!(fs::read(&path).unwrap(), b"two");
        fs::remove_file(&path).unwrap();
        assert_eq!(put(&path, &aside, &[b'x'; ONE_PAGE + 1], 0o600, rename).unwrap(), Written::InDirectory);
        let refused = put(&path, &aside, b"three", 0o600, || Err(io::ErrorKind::TimedOut.into()));
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(!aside.exists());
    }
}
