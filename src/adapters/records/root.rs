//! The root directory of one wherry: made if missing, locked against a second instance, and known by an id that
//! stays the same for ever. Sandboxes and containers carry that id, and so tell whose they are (W21).

use super::{failed, hex, make_directory, write_durably};
use rustix::fs::FlockOperation;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const ID_BYTES: usize = 16;

/// Locked as long as it lives, and by the kernel's doing no longer than the process.
#[derive(Debug)]
pub struct Root {
    pub path: PathBuf,
    /// 32 hexadecimal digits.
    pub id: String,
    lock: File,
}

impl Root {
    /// Of the lock file.
    pub fn descriptor(&self) -> i32 {
        self.lock.as_raw_fd()
    }

    /// # Errors
    /// Someone else has the lock (with the PID that it left there), or the file system says no.
    pub fn open(path: &Path) -> Result<Root, String> {
        make_directory(path)?;
        let lock = lock(&path.join("lock"))?;
        let id = id(&path.join("id"))?;
        Ok(Root { path: path.to_owned(), id, lock })
    }
}

/// The id of a root directory that is there; None if there was never a wherry on it. Nothing is made.
///
/// # Errors
/// It cannot be read, or is no id.
pub fn existing_id(root: &Path) -> Result<Option<String>, String> {
    let path = root.join("id");
    if path.symlink_metadata().is_err_and(|e| e.kind() == ErrorKind::NotFound) {
        return Ok(None);
    }
    id(&path).map(Some)
}

fn lock(path: &Path) -> Result<File, String> {
    let mut writable = OpenOptions::new();
    writable.read(true).write(true).create(true).truncate(false).mode(0o640);
    let mut file = match writable.open(path) {
        // A disk gone bad: what runs is looked after all the same.
        Err(e) if e.kind() == ErrorKind::ReadOnlyFilesystem => {
            log::warn!("the root directory is read-only: nothing new can be kept lock={}", path.display());
            File::open(path)
        }
        other => other,
    }
    .map_err(|e| failed("open", path, &e))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let mut pid = String::new();
            let _ = (&mut file).take(20).read_to_string(&mut pid);
            let root = path.parent().unwrap_or(path).display();
            return Err(format!(
                "{root} is in use by another wherry (pid {}, lock {}): stop that one, or give this one a --root-dir of its own",
                if pid.trim().is_empty() { "unknown" } else { pid.trim() },
                path.display()
            ));
        }
        Err(e) => return Err(failed("lock", path, &std::io::Error::from(e))),
    }
    // For people, and for the message above; the lock holds without it, on a full disk too.
    let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    Ok(file)
}

fn id(path: &Path) -> Result<String, String> {
    match fs::read_to_string(path) {
        Ok(text) => {
            let id = text.trim();
            if id.len() == 2 * ID_BYTES && id.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Ok(id.to_owned());
            }
            Err(format!(
                "{}: not {} hexadecimal digits: write there what running pods of this node carry as the annotation \
                 io.wherry.owner (crictl inspectp), or remove the file if there are none",
                path.display(),
                2 * ID_BYTES
            ))
        }
        Err(e) if e.kind() == ErrorKind::NotFound => {
            let mut bytes = [0; ID_BYTES];
            let source = Path::new("/dev/urandom");
            File::open(source).and_then(|mut f| f.read_exact(&mut bytes)).map_err(|e| failed("read", source, &e))?;
            let id = hex(&bytes);
            write_durably(path, format!("{id}\n").as_bytes(), 0o640)?;
            Ok(id)
        }
        Err(e) => Err(failed("read", path, &e)),
    }
}
