//! The directory of the certificates: its lock, and reads and atomic writes of its files.

use crate::adapters::durable;
use rustix::fs::FlockOperation;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Other users can read nothing here. The certificates are not secret, but only root needs them.
const MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;
/// The mode of the root directory, if it must be created. It is the same as in `adapters::records`.
const ROOT_MODE: u32 = 0o750;
/// The maximum size of a file, in bytes.
const MAX_BYTES: u64 = 4 << 20;
/// The suffix of a temporary file.
const ASIDE: &str = ".new";
/// How long to wait for another process, which holds the lock only for a few writes.
const PATIENCE: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_millis(20);

/// The directory, locked until the value is dropped. The kernel releases the lock when the process ends.
#[derive(Debug)]
pub(super) struct LockedDirectory {
    path: PathBuf,
    _lock: File,
}

impl LockedDirectory {
    /// Creates the directory if it is missing, and locks it. Waits up to 10 s for the lock.
    ///
    /// # Errors
    /// Another process holds the lock for longer, or the file system reports an error.
    pub(super) fn open(path: &Path) -> Result<LockedDirectory, String> {
        let failure = |e| failed("create directory", path, &e);
        if let Some(root) = path.parent() {
            durable::make_directory(root, ROOT_MODE).map_err(failure)?;
        }
        make_private(path)?;
        let lock = lock(&path.join("lock"), PATIENCE)?;
        let directory = LockedDirectory { path: path.to_owned(), _lock: lock };
        make_private(&directory.path("clients"))?;
        Ok(directory)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Returns the directory itself.
    pub(super) fn root(&self) -> &Path {
        &self.path
    }

    /// Returns the content of a file; None if it does not exist.
    pub(super) fn read(&self, name: &str) -> Result<Option<Vec<u8>>, String> {
        read(&self.path(name))
    }

    /// Replaces a file atomically. The change is durable when the function returns.
    pub(super) fn write(&self, name: &str, content: &[u8]) -> Result<(), String> {
        let path = self.path(name);
        durable::replace(&path, &durable::appended(&path, ASIDE), content, MODE)
            .and_then(|()| path.parent().map_or(Ok(()), durable::sync))
            .map_err(|e| failed("write", &path, &e))
    }

    /// Removes a file if it exists. The removal is not synced, because a removal that a power cut undoes is repeated
    /// later.
    pub(super) fn remove(&self, name: &str) -> Result<(), String> {
        let path = self.path(name);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(failed("remove", &path, &e)),
            _ => Ok(()),
        }
    }
}

/// Creates a directory that only its owner can enter, or removes the permissions of others from an existing one.
fn make_private(path: &Path) -> Result<(), String> {
    match DirBuilder::new().mode(DIRECTORY_MODE).create(path) {
        Ok(()) => return path.parent().map_or(Ok(()), durable::sync).map_err(|e| failed("sync", path, &e)),
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
        // On a read-only file system, mkdir(2) reports another error for an existing directory.
        Err(_) if path.is_dir() => {}
        Err(e) => return Err(failed("create directory", path, &e)),
    }
    let metadata = fs::metadata(path).map_err(|e| failed("examine", path, &e))?;
    if !metadata.is_dir() {
        return Err(format!("{}: is not a directory; remove it and try again", path.display()));
    }
    if metadata.permissions().mode() & 0o077 != 0 {
        fs::set_permissions(path, Permissions::from_mode(DIRECTORY_MODE))
            .map_err(|e| failed("restrict the mode of", path, &e))?;
    }
    Ok(())
}

fn lock(path: &Path, patience: Duration) -> Result<File, String> {
    let mut writable = OpenOptions::new();
    writable.read(true).write(true).create(true).truncate(false).mode(MODE);
    let mut file = match writable.open(path) {
        // On a read-only file system, existing certificates can still be used.
        Err(e) if e.kind() == ErrorKind::ReadOnlyFilesystem => File::open(path),
        other => other,
    }
    .map_err(|e| failed("open", path, &e))?;
    let end = Instant::now() + patience;
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => break,
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < end => std::thread::sleep(RETRY),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut pid = String::new();
                let _ = (&mut file).take(20).read_to_string(&mut pid);
                let pid = if pid.trim().is_empty() { "unknown" } else { pid.trim() };
                return Err(format!(
                    "{} has been locked by another wherry (pid {pid}) for {} s; wait for it to end, or stop it",
                    path.display(),
                    patience.as_secs()
                ));
            }
            Err(e) => return Err(failed("lock", path, &io::Error::from(e))),
        }
    }
    // The PID is for users and for the message above. The lock works without it, for example on a full disk.
    let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    Ok(file)
}

/// Returns the content of a file; None if it does not exist.
pub(super) fn read(path: &Path) -> Result<Option<Vec<u8>>, String> {
    match File::open(path) {
        Ok(file) => content(file, path).map(Some),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(failed("open", path, &e)),
    }
}

pub(super) fn content(file: File, path: &Path) -> Result<Vec<u8>, String> {
    let mut content = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut content).map_err(|e| failed("read", path, &e))?;
    if content.len() as u64 > MAX_BYTES {
        return Err(format!("{}: is larger than {MAX_BYTES} bytes", path.display()));
    }
    Ok(content)
}

/// Formats an error of the file system. Only root has access to the state of a packaged Wherry, hence the remedy.
pub(super) fn failed(what: &str, path: &Path, e: &io::Error) -> String {
    let remedy = match e.kind() {
        ErrorKind::PermissionDenied => "; run this command as root (sudo)",
        _ => "",
    };
    format!("failed to {what} {}: {e}{remedy}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_is_not_released_is_an_error_with_the_pid() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let held = lock(&path, PATIENCE).unwrap();
        let error = lock(&path, Duration::from_secs(1)).map(|_| ()).unwrap_err();
        let by = format!("lock has been locked by another wherry (pid {}) for 1 s", std::process::id());
        assert!(error.contains(&by), "{error}");
        drop(held);
        assert!(lock(&path, Duration::ZERO).is_ok());
    }

    #[test]
    fn a_file_that_is_too_large_or_in_the_way_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubectl");
        let directory = LockedDirectory::open(&path).unwrap();
        assert_eq!(directory.read("x"), Ok(None));
        File::create(path.join("x")).unwrap().set_len(MAX_BYTES + 1).unwrap();
        assert!(directory.read("x").unwrap_err().contains("is larger than"));
        directory.write("x", b"y").unwrap();
        assert_eq!(directory.read("x"), Ok(Some(b"y".to_vec())));
        assert_eq!((directory.remove("x"), directory.remove("x"), directory.read("x")), (Ok(()), Ok(()), Ok(None)));
        drop(directory);
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let error = LockedDirectory::open(&file).map(|_| ()).unwrap_err();
        assert!(error.contains("is not a directory; remove it"), "{error}");
    }
}
