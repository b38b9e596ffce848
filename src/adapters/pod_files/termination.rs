//! Reads termination messages: from the file that a container can write to, or from the end of its log if the pod has
//! `terminationMessagePolicy: FallbackToLogsOnError`.
//!
//! The limits are a kubelet's: the last 4096 bytes of the file, or the last 2048 bytes of the text in the log's last 80
//! lines. A read error becomes the message, as in a kubelet, so that it is visible in the status.

use super::error::{Result, failed, is_failing_disk};
use crate::api::log_line;
use crate::api::ordered::OrderSlice;
use crate::foreign::{self, Links};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use std::fs::{DirEntry, File, Metadata};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const MAX_MESSAGE: u64 = 4096;
const MAX_LOG_LINES: usize = 80;
const MAX_LOG_BYTES: usize = 2048;
/// How much of the log's end is read, in bytes: enough for 80 lines with their prefixes if 2048 bytes of text are
/// needed, and for the longest line that a runtime writes (16 KiB).
const LOG_TAIL: u64 = 64 << 10;

/// Creates an empty file that every user in a container can write to. Returns its path; None on a file system that is
/// read-only or fails.
///
/// # Errors
/// The file cannot be created.
pub fn make(directory: &str) -> Result<Option<String>> {
    loop {
        let path = format!("{directory}/{:08x}", random()?);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        match rustix::fs::openat(CWD, &path, flags, Mode::from_raw_mode(0o666)) {
            // Set the mode explicitly, because the umask may have restricted it.
            Ok(fd) => {
                rustix::fs::fchmod(&fd, Mode::from_raw_mode(0o666)).map_err(|e| failed("set the mode of", &path, e))?;
                return Ok(Some(path));
            }
            Err(Errno::EXIST) => {}
            Err(e) if is_failing_disk(e) => return Ok(None),
            Err(e) => return Err(failed("create", &path, e)),
        }
    }
}

fn random() -> Result<u32> {
    let mut bytes = [0; 4];
    File::open("/dev/urandom")
        .and_then(|mut f| f.read_exact(&mut bytes))
        .map_err(|e| format!("failed to read /dev/urandom: {e}"))?;
    Ok(u32::from_ne_bytes(bytes))
}

/// Removes all but `new`, which was just made, and the newest other files; `keep` files stay. Ignores errors, because a
/// leftover message does no harm.
pub fn forget_old(directory: &str, new: &str, keep: usize) {
    let (Ok(entries), Ok(now)) = (std::fs::read_dir(directory), std::fs::metadata(new)) else { return };
    let of = |entry: DirEntry| {
        let at = changed(&entry.metadata().ok().filter(Metadata::is_file)?);
        // A later time than that of the new file is from before the clock was set back.
        Some((at <= changed(&now), at, entry.path()))
    };
    let mut files: Vec<_> = entries.flatten().filter_map(of).filter(|(.., path)| path != Path::new(new)).collect();
    files.order();
    for (.., path) in &files[..files.len().saturating_sub(keep.saturating_sub(1))] {
        let _ = std::fs::remove_file(path);
    }
}

/// Returns the time of the last change.
fn changed(metadata: &Metadata) -> (i64, i64) {
    (metadata.mtime(), metadata.mtime_nsec())
}

/// Reads the termination message. With `fallback`, uses the log if the file is empty. Must run on a helper thread,
/// because these files can be on a file system that hangs.
pub fn message(file: Option<&str>, log: &str, fallback: bool) -> String {
    let told = match file.map(|path| (path, tail(path, MAX_MESSAGE))) {
        None => String::new(),
        Some((_, Ok(bytes))) => String::from_utf8_lossy(&bytes).into_owned(),
        Some((path, Err(e))) => return format!("Error on reading termination log {path}: {e}"),
    };
    if !told.is_empty() || !fallback || log.is_empty() {
        return told;
    }
    match tail(log, LOG_TAIL) {
        Ok(bytes) => log_text(&bytes),
        Err(e) => format!("Error on reading container log {log}: {e}"),
    }
}

/// Reads the last bytes of a file. Returns nothing if there is no such file.
fn tail(path: &str, most: u64) -> Result<Vec<u8>> {
    let mut file = match foreign::open(Path::new(path), Links::Refuse) {
        Ok(file) => file,
        Err(e) if e.is_missing() => return Ok(Vec::new()),
        Err(e) => return Err(format!("read {path}: {e}")),
    };
    let mut bytes = Vec::new();
    let end = |e: std::io::Error| format!("read {path}: {e}");
    let size = file.seek(SeekFrom::End(0)).map_err(end)?;
    file.seek(SeekFrom::Start(size.saturating_sub(most))).map_err(end)?;
    file.take(most).read_to_end(&mut bytes).map_err(end)?;
    Ok(bytes)
}

/// Returns the text in the lines of a log. A partial line is joined with the next one.
fn log_text(bytes: &[u8]) -> String {
    let cut = bytes.len() as u64 == LOG_TAIL;
    let mut lines: Vec<&[u8]> = bytes.split_inclusive(|b| *b == b'\n').collect();
    // The first line may be truncated at its start. Keep it only if it is the only line.
    if cut && lines.len() > 1 {
        lines.remove(0);
    }
    let mut text = Vec::new();
    for line in &lines[lines.len().saturating_sub(MAX_LOG_LINES)..] {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let parsed = log_line::parse(line);
        // A line without the log format is used unchanged.
        text.extend_from_slice(parsed.map_or(line, |l| l.text));
        if !parsed.is_some_and(|l| l.partial) {
            text.push(b'\n');
        }
    }
    String::from_utf8_lossy(&text[text.len().saturating_sub(MAX_LOG_BYTES)..]).into_owned()
}
