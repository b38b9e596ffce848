//! The root directory of a wherry instance. It is created if it is missing and locked against a second instance. It has
//! an id that never changes. The annotations of sandboxes and containers contain the id, which identifies their owner
//! (W21).

use super::directories::{failed, make_directory, sync_directory};
use super::format;
use crate::adapters::durable;
use crate::api::time::Wall;
use crate::api::uid;
use rustix::fs::FlockOperation;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

const ID_BYTES: usize = 16;
/// A time before this one (September 2020) shows that the clock was not set.
const CLOCK_IS_SET: Duration = Duration::from_secs(1_600_000_000);

/// A root directory, locked until the value is dropped. The kernel releases the lock when the process ends.
#[derive(Debug)]
pub struct Root {
    /// The id of the directory: 32 hexadecimal digits.
    pub id: String,
    /// When the id was created; None if the clock was not set then.
    pub created: Option<Wall>,
    lock: File,
}

impl Root {
    /// Returns the descriptor of the lock file.
    pub fn descriptor(&self) -> i32 {
        self.lock.as_raw_fd()
    }

    /// Creates the directory if it is missing, locks it, and reads or creates its id.
    ///
    /// # Errors
    /// Another process holds the lock (the error contains its PID), a newer version has changed the format of the
    /// files, the id is invalid, or the file system reports an error.
    pub fn open(path: &Path) -> Result<Root, String> {
        make_directory(path)?;
        let format = format::check(path)?;
        let lock = lock(&path.join("lock"))?;
        let id_path = path.join("id");
        let id = id(&id_path)?;
        format::record(path, format);
        Ok(Root { id, created: created(&id_path), lock })
    }
}

/// Reads the id of a root directory; None if Wherry has never used the directory. Creates nothing.
///
/// # Errors
/// The id cannot be read or is invalid.
pub fn existing_id(root: &Path) -> Result<Option<String>, String> {
    let path = root.join("id");
    if path.symlink_metadata().is_err_and(|e| e.kind() == ErrorKind::NotFound) {
        return Ok(None);
    }
    id(&path).map(Some)
}

/// Returns the modification time of the file; None if the clock was not set. A board without a real-time clock starts
/// each boot with a time long ago.
fn created(id: &Path) -> Option<Wall> {
    let since_epoch = fs::metadata(id).ok()?.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    let at = Wall(i64::try_from(since_epoch.as_nanos()).ok()?);
    (since_epoch > CLOCK_IS_SET).then_some(at)
}

/// Locks the file. It is open only for reading afterwards, so that an administrator can remount the file system
/// read-only while Wherry runs.
fn lock(path: &Path) -> Result<File, String> {
    let open = || OpenOptions::new().write(true).create(true).truncate(false).mode(0o640).open(path);
    let writable = match open() {
        // The kernel remounts a failing disk read-only. Wherry still manages the running pods.
        Err(e) if e.kind() == ErrorKind::ReadOnlyFilesystem => {
            log::warn!(
                "Wherry's root directory is on a read-only file system; Wherry cannot write records and starts no new \
                 pods lock={}",
                path.display()
            );
            None
        }
        other => Some(other.map_err(|e| failed("open", path, &e))?),
    };
    let mut file = File::open(path).map_err(|e| failed("open", path, &e))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let mut pid = String::new();
            let _ = (&mut file).take(20).read_to_string(&mut pid);
            let root = path.parent().unwrap_or(path).display();
            return Err(format!(
                "{root} is in use by another wherry (pid {}, lock {}); stop that process, or use another --root-dir",
                if pid.trim().is_empty() { "unknown" } else { pid.trim() },
                path.display()
            ));
        }
        Err(e) => return Err(failed("lock", path, &std::io::Error::from(e))),
    }
    // The PID is for users and for the message above. The lock also works without it, for example on a full disk.
    let _ = writable.map(|mut file| file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())));
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
                "{}: expected {} hexadecimal digits; write the value of the annotation io.wherry.owner of the node's \
                 running pods (crictl inspectp) to the file, or remove the file if no pods run",
                path.display(),
                2 * ID_BYTES
            ))
        }
        Err(e) if e.kind() == ErrorKind::NotFound => {
            let mut bytes = [0; ID_BYTES];
            let source = Path::new("/dev/urandom");
            File::open(source).and_then(|mut f| f.read_exact(&mut bytes)).map_err(|e| failed("read", source, &e))?;
            let id = uid::hex(&bytes);
            let aside = durable::appended(path, ".new");
            durable::replace(path, &aside, format!("{id}\n").as_bytes(), 0o640)
                .map_err(|e| failed("write", path, &e))?;
            path.parent().map_or(Ok(()), sync_directory)?;
            Ok(id)
        }
        Err(e) => Err(failed("read", path, &e)),
    }
}
