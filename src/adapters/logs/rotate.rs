//! Rotates the log files of one running container. The runtime must reopen the log afterwards.
//!
//! File names are those of a kubelet: `0.log` is renamed to `0.log.YYYYMMDD-HHMMSS`, and older rotated files get the
//! suffix `.gz`. The time is UTC. No line is lost if the process is killed at any point, because a file is removed
//! only after its compressed copy is on the disk under its final name. The next rotation removes a partial copy
//! (`.tmp`), and a file that already has a complete copy.
//!
//! Each call can block and must run on a helper thread. An error contains the path and the kernel's error.

use super::files;
use crate::api::ordered::OrderSlice;
use crate::foreign::{self, Links};
use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// The format of the time in the name of a rotated file (`timestampFormat` of a kubelet).
const TIME: &str = "%Y%m%d-%H%M%S";

/// Returns the size of a log in bytes; None if the file does not exist. The runtime must then reopen the log, because
/// a rotation was interrupted after the rename.
///
/// # Errors
/// The file cannot be examined.
pub fn size(log: &Path) -> Result<Option<u64>, String> {
    match fs::symlink_metadata(log) {
        Ok(found) => Ok(Some(found.len())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(failed("examine", log, &e)),
    }
}

/// Removes and compresses older files, and then renames the log. At most `max_files` (at least 2) files exist after the
/// runtime has reopened the log. Returns the new path, for `undo`.
///
/// # Errors
/// A file cannot be compressed, removed or renamed. The log keeps its name, and no line is lost.
pub fn rotate(log: &Path, max_files: usize, now: Timestamp) -> Result<PathBuf, String> {
    let mut old = tidy(log)?;
    // The current file and the one that is renamed below count towards the maximum, too.
    let surplus = old.len().saturating_sub(max_files.saturating_sub(2));
    for path in old.drain(..surplus) {
        remove(&path)?;
    }
    let newest = old.last().and_then(|path| time_of(log, path));
    for path in old.iter().filter(|path| !files::is_compressed(path)) {
        compress(path)?;
    }
    let rotated = ended(log, &format!(".{}", after(newest, now).strftime(TIME)));
    rename(log, &rotated)?;
    Ok(rotated)
}

/// Gives the log its name back after the runtime failed to reopen it. Does nothing if the log exists again, because
/// the runtime has then reopened it after all.
///
/// # Errors
/// The file cannot be renamed, and keeps the name of a rotated file.
pub fn undo(log: &Path, rotated: &Path) -> Result<(), String> {
    if size(log)?.is_some() {
        return Ok(());
    }
    rename(rotated, log)
}

/// Removes the leftovers of interrupted rotations. Returns the rotated files, the oldest first.
fn tidy(log: &Path) -> Result<Vec<PathBuf>, String> {
    let directory = log.parent().unwrap_or(Path::new("."));
    let name = log.file_name().unwrap_or_default().to_string_lossy();
    let wrong = |e: &io::Error| failed("read", directory, e);
    let mut all = Vec::new();
    for entry in fs::read_dir(directory).map_err(|e| wrong(&e))? {
        let entry = entry.map_err(|e| wrong(&e))?.file_name();
        // Other files do not belong to this log, and stay.
        let Some(rest) = entry.to_str().and_then(|n| n.strip_prefix(&*name)?.strip_prefix('.')) else { continue };
        all.push(rest.to_owned());
    }
    let mut kept = Vec::new();
    for rest in &all {
        let path = ended(log, &format!(".{rest}"));
        let copied = || all.iter().any(|other| other.strip_suffix(".gz") == Some(rest));
        if rest.ends_with(".tmp") || copied() {
            remove(&path)?;
        } else {
            kept.push(path);
        }
    }
    kept.order();
    Ok(kept)
}

/// Returns the time in the name of a rotated file.
fn time_of(log: &Path, rotated: &Path) -> Option<DateTime> {
    let name = rotated.file_name()?.to_str()?.strip_prefix(log.file_name()?.to_str()?)?.strip_prefix('.')?;
    DateTime::strptime(TIME, name.strip_suffix(".gz").unwrap_or(name)).ok()
}

/// Returns the time for the name of the next file. The names must sort in the order of the files even if the clock was
/// set back, which is common on machines without a battery.
fn after(newest: Option<DateTime>, now: Timestamp) -> DateTime {
    let now = now.to_zoned(TimeZone::UTC).datetime();
    let next = newest.and_then(|newest| newest.checked_add(1.second()).ok());
    next.map_or(now, |next| next.max(now))
}

/// Replaces a file with its compressed copy, which has the same mode and owner.
fn compress(path: &Path) -> Result<(), String> {
    let (copy, aside) = (ended(path, ".gz"), ended(path, ".tmp"));
    let written =
        write_copy(path, &aside).and_then(|()| fs::rename(&aside, &copy).map_err(|e| failed("create", &copy, &e)));
    if written.is_err() {
        let _ = fs::remove_file(&aside);
    }
    written?;
    remove(path)
}

fn write_copy(path: &Path, aside: &Path) -> Result<(), String> {
    let mut from = foreign::open(path, Links::Refuse).map_err(|e| format!("failed to open {}: {e}", path.display()))?;
    let mut copy = || -> io::Result<()> {
        let like = from.metadata()?;
        let to = OpenOptions::new().write(true).create_new(true).mode(0o600).open(aside)?;
        fchown(&to, Some(like.uid()), Some(like.gid()))?;
        to.set_permissions(fs::Permissions::from_mode(like.mode() & 0o777))?;
        let mut gz = GzEncoder::new(to, Compression::default());
        io::copy(&mut from, &mut gz)?;
        gz.finish()?.sync_all()
    };
    copy().map_err(|e| format!("failed to compress {} to {}: {e}", path.display(), aside.display()))
}

/// Renames a file. Fails if the new name exists.
fn rename(from: &Path, to: &Path) -> Result<(), String> {
    let wrong = |e: io::Error| format!("failed to rename {} to {}: {e}", from.display(), to.display());
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Not every file system supports the flag.
        Err(Errno::INVAL | Errno::NOSYS) if size(to)?.is_none() => fs::rename(from, to).map_err(wrong),
        result => result.map_err(|e| wrong(e.into())),
    }
}

fn remove(path: &Path) -> Result<(), String> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(failed("remove", path, &e)),
        _ => Ok(()),
    }
}

fn ended(path: &Path, end: &str) -> PathBuf {
    let mut longer = path.as_os_str().to_owned();
    longer.push(end);
    longer.into()
}

fn failed(action: &str, path: &Path, e: &io::Error) -> String {
    format!("failed to {action} {}: {e}", path.display())
}

#[cfg(test)]
mod tests;
