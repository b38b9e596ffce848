//! The identity directory: its lock, and reads and atomic writes of its files.

use super::files::{self, CERTIFICATE, KUBECONFIG, LOCK, NEXT_KEY, SERVING_CERTIFICATE, SERVING_NEXT_KEY, SETTINGS};
use crate::adapters::durable;
use crate::foreign::{self, Links};
use rustix::fs::FlockOperation;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

const MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;
/// The mode of the root directory, if it must be created. It is the same as in `adapters::records`.
const ROOT_MODE: u32 = 0o750;
/// The maximum size of a file, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// Reports whether the kubeconfig is the one that `wherry join` writes, so that Wherry may replace the certificate that
/// it names.
pub fn is_managed(kubeconfig: &Path, root: &Path) -> bool {
    kubeconfig == files::kubeconfig(root)
}

/// The directory of the identity below a root directory.
#[derive(Clone, Debug)]
pub struct IdentityDirectory {
    path: PathBuf,
}

/// The lock of the directory. It is released when it is dropped, and by the kernel when the process ends.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl IdentityDirectory {
    /// Refers to the directory without accessing it. The directory may be missing.
    pub fn new(root: &Path) -> IdentityDirectory {
        IdentityDirectory { path: files::directory(root) }
    }

    /// Creates the directory and locks it.
    ///
    /// # Errors
    /// Another join holds the lock, or the file system reports an error.
    pub fn lock(&self) -> Result<Lock, String> {
        self.create()?;
        let path = self.path.join(LOCK);
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).mode(MODE).open(&path);
        let file = file.map_err(|e| failed("open", &path, &e))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Lock { _file: file }),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                Err(format!("{} is locked: another wherry join or leave is running; wait for it", path.display()))
            }
            Err(e) => Err(failed("lock", &path, &io::Error::from(e))),
        }
    }

    /// Creates the directory, for `wherry join` or for the serving certificate of a node with another kubeconfig.
    pub(super) fn create(&self) -> Result<(), String> {
        let failure = |e| failed("create directory", &self.path, &e);
        if let Some(root) = self.path.parent() {
            durable::make_directory(root, ROOT_MODE).map_err(failure)?;
            match DirBuilder::new().mode(DIRECTORY_MODE).create(&self.path) {
                Ok(()) => durable::sync(root).map_err(failure)?,
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                Err(e) => return Err(failure(e)),
            }
        }
        let metadata = fs::metadata(&self.path).map_err(|e| failed("examine", &self.path, &e))?;
        if !metadata.is_dir() {
            return Err(format!("{}: is not a directory; remove it and try again", self.path.display()));
        }
        if metadata.permissions().mode() & 0o077 != 0 {
            let only_ours = Permissions::from_mode(DIRECTORY_MODE);
            fs::set_permissions(&self.path, only_ours).map_err(|e| failed("restrict the mode of", &self.path, &e))?;
        }
        Ok(())
    }

    /// Returns the content of a file; None if it does not exist.
    pub(super) fn read(&self, name: &str) -> Result<Option<Vec<u8>>, String> {
        let path = self.path.join(name);
        match foreign::read(&path, Links::Follow, MAX_BYTES) {
            Ok(content) => Ok(Some(content)),
            Err(e) if e.is_missing() => Ok(None),
            Err(e) => Err(format!("failed to read {}: {e}", path.display())),
        }
    }

    /// Replaces a file atomically. The change is durable when the function returns.
    pub(super) fn write(&self, name: &str, content: &[u8]) -> Result<(), String> {
        let path = self.path.join(name);
        durable::replace(&path, &durable::appended(&path, ".new"), content, MODE)
            .and_then(|()| durable::sync(&self.path))
            .map_err(|e| failed("write", &path, &e))
    }

    /// Removes a file if it exists.
    pub(super) fn remove(&self, name: &str) -> Result<(), String> {
        let path = self.path.join(name);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(failed("remove", &path, &e)),
            _ => Ok(()),
        }
    }

    /// Stores the settings of the cluster.
    ///
    /// # Errors
    /// The file system reports an error.
    pub fn write_settings(&self, text: &str) -> Result<(), String> {
        self.write(SETTINGS, text.as_bytes())
    }

    /// Removes the settings of the cluster if they exist.
    ///
    /// # Errors
    /// The file system reports an error.
    pub fn remove_settings(&self) -> Result<(), String> {
        self.remove(SETTINGS)
    }

    /// Removes the serving certificate that another cluster has issued and the key of the next certificate, if they
    /// exist.
    ///
    /// # Errors
    /// The file system reports an error.
    pub fn remove_serving(&self) -> Result<(), String> {
        [SERVING_CERTIFICATE, SERVING_NEXT_KEY].iter().try_for_each(|name| self.remove(name))
    }

    /// Removes the identity. The kubeconfig is removed first, so that a partly removed identity cannot be used.
    ///
    /// # Errors
    /// The file system reports an error. The rest can be removed later.
    pub fn remove_all(&self) -> Result<(), String> {
        if !self.path.exists() {
            return Ok(());
        }
        for name in [KUBECONFIG, CERTIFICATE, NEXT_KEY, SERVING_CERTIFICATE, SERVING_NEXT_KEY, SETTINGS, LOCK] {
            self.remove(name)?;
            self.remove(&format!("{name}.new"))?;
        }
        match fs::remove_dir(&self.path) {
            // Files that are not part of the identity stay.
            Err(e) if e.kind() == ErrorKind::DirectoryNotEmpty => Ok(()),
            Err(e) => Err(failed("remove", &self.path, &e)),
            Ok(()) => Ok(()),
        }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

/// Formats an error of the file system. Only root has access to the state of a packaged Wherry, hence the remedy.
fn failed(what: &str, path: &Path, e: &io::Error) -> String {
    let remedy = match e.kind() {
        ErrorKind::PermissionDenied => "; run this command as root (sudo)",
        _ => "",
    };
    format!("failed to {what} {}: {e}{remedy}", path.display())
}
