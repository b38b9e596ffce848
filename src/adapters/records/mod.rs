//! Small records that must outlive the process: `<root>/records/<kind>/<key>.json`, one file each.
//!
//! A record is written aside, synced, renamed over the old one, and its directory synced: after a power cut there is
//! the old one or the new one. A file's first line says what it is: a version and the SHA-256 of the value, which is
//! all the rest. What does not fit (cut off, damaged, of another version) is set aside as `*.corrupt` with a warning:
//! a broken record must not keep a node from starting. What the values mean is the engine's business.
//!
//! A write takes as long as the disk takes to sync: `put`, `delete` and `set_aside` are for a helper thread. One that hangs
//! is given up, and may come back much later: each batch of changes has a number, writes into files of its own, and changes
//! nothing any more once a later batch was begun. `Root` is the directory above: its lock and its identity.

mod root;
#[cfg(test)]
mod tests;

pub use root::{Root, existing_id};

use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Of a file's form. The version of what a value holds is in the value.
const VERSION: u32 = 1;
const SUFFIX: &str = ".json";
/// What is being written, before it is renamed; the number of its batch stands before it.
const ASIDE: &str = ".new";
/// `.`, a number, and ASIDE.
const MAX_ASIDE: usize = 1 + 20 + ASIDE.len();
const CORRUPT: &str = ".corrupt";
/// Records of a kind that are kept aside: the last ones.
const MAX_CORRUPT: usize = 20;
/// A longer file is not one of ours.
const MAX_SIZE: u64 = 4 << 20;
/// The longest file name of usual file systems.
const MAX_FILE_NAME: usize = 255;

/// The records of one root directory. Errors name the file.
#[derive(Clone, Debug)]
pub struct Records {
    directory: PathBuf,
    batch: u64,
    order: Arc<Order>,
}

/// Which changes may take effect.
#[derive(Debug, Default)]
struct Order {
    /// The batch begun last.
    newest: AtomicU64,
    /// Held from the look at `newest` to the end of the change; only threads that may block take it.
    taking_effect: Mutex<()>,
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Header {
    version: u32,
    sha256: String,
}

impl Records {
    /// Makes the directory if it is not there.
    pub fn open(root: &Path) -> Result<Records, String> {
        let directory = root.join("records");
        make_directory(&directory)?;
        Ok(Records { directory, batch: 0, order: Arc::default() })
    }

    /// For one more batch of changes: what an earlier one has not done by now, it does not do any more. Never blocks.
    pub fn batch(&self) -> Records {
        let batch = self.order.newest.fetch_add(1, Ordering::SeqCst) + 1;
        Records { batch, ..self.clone() }
    }

    /// All records of these kinds that can be read, by `kind/key`, sorted. Warns of the others and sets them aside.
    /// What else is in the directory is not ours to judge.
    pub fn load(&self, kinds: &[&str]) -> Vec<(String, String)> {
        let mut records = Vec::new();
        for (kind, directory) in entries(&self.directory).into_iter().filter(|(k, _)| kinds.contains(&k.as_str())) {
            for (file, path) in entries(&directory) {
                if file.ends_with(ASIDE) {
                    // A write that was never finished; nobody was told that it was.
                    let _ = fs::remove_file(&path);
                    continue;
                }
                let Some(name) = file.strip_suffix(SUFFIX) else { continue };
                match read(&path).and_then(|value| Ok((decode(name)?, value))) {
                    Ok((key, value)) => records.push((format!("{kind}/{key}"), value)),
                    Err(why) => set_aside(&path, &why),
                }
            }
        }
        records.sort();
        records
    }

    /// Durable when it returns.
    pub fn put(&self, key: &str, value: &str) -> Result<(), String> {
        let path = self.path(key)?;
        let directory = path.parent().unwrap_or(&self.directory);
        make_directory(directory)?;
        let header = Header { version: VERSION, sha256: digest(value) };
        let header = serde_json::to_string(&header).map_err(|e| failed("write", &path, &e))?;
        let aside = appended(&path, &format!(".{}{ASIDE}", self.batch));
        let content = format!("{header}\n{value}");
        let written = write_aside(&aside, content.as_bytes(), 0o600)
            .map_err(|e| failed("write", &path, &e))
            .and_then(|()| self.take_effect(&path, || fs::rename(&aside, &path)));
        if written.is_err() {
            let _ = fs::remove_file(&aside);
        }
        written.and_then(|()| sync_directory(directory))
    }

    /// Durable when it returns; fine if there is none.
    pub fn delete(&self, key: &str) -> Result<(), String> {
        let path = self.path(key)?;
        self.take_effect(&path, || match fs::remove_file(&path) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            other => other,
        })?;
        match sync_directory(path.parent().unwrap_or(&self.directory)) {
            // There never was one of this kind.
            Err(_) if !path.parent().is_some_and(Path::is_dir) => Ok(()),
            other => other,
        }
    }

    /// Out of the way of the next `load`, and kept for people to look at; the oldest of many goes. Fine if there is none.
    pub fn set_aside(&self, key: &str) -> Result<(), String> {
        let path = self.path(key)?;
        let aside = appended(&path, CORRUPT);
        self.take_effect(&path, || match fs::rename(&path, &aside) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            other => other,
        })?;
        log::warn!("record set aside file={}", aside.display());
        forget_old(path.parent().unwrap_or(&self.directory));
        Ok(())
    }

    /// Makes a change, unless a later batch was begun: then what this one wanted is old.
    fn take_effect(&self, path: &Path, change: impl FnOnce() -> std::io::Result<()>) -> Result<(), String> {
        let _held = self.order.taking_effect.lock().unwrap_or_else(PoisonError::into_inner);
        if self.order.newest.load(Ordering::SeqCst) != self.batch {
            return Err(format!("change {}: given up, it took too long", path.display()));
        }
        change().map_err(|e| failed("change", path, &e))
    }

    fn path(&self, key: &str) -> Result<PathBuf, String> {
        let wrong = |why: &str| format!("record {key:?}: {why}");
        let (kind, rest) = key.split_once('/').ok_or_else(|| wrong("must be kind/key"))?;
        if kind.is_empty() || !kind.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
            return Err(wrong("the kind is not a plain word"));
        }
        let file = encode(rest) + SUFFIX;
        if rest.is_empty() || file.len() + MAX_ASIDE > MAX_FILE_NAME {
            return Err(wrong("the key is empty or too long for a file's name"));
        }
        Ok(self.directory.join(kind).join(file))
    }
}

fn failed(what: &str, path: &Path, e: &dyn std::fmt::Display) -> String {
    format!("{what} {}: {e}", path.display())
}

/// Name and path of what is in a directory; nothing, with a warning, if it cannot be read.
fn entries(directory: &Path) -> Vec<(String, PathBuf)> {
    let list = match fs::read_dir(directory) {
        Ok(list) => list,
        // A file where a directory should be is none of ours.
        Err(e) if e.kind() == ErrorKind::NotADirectory => return Vec::new(),
        Err(e) => {
            log::warn!("cannot read records directory={} error={e:?}", directory.display());
            return Vec::new();
        }
    };
    list.flatten().filter_map(|e| Some((e.file_name().into_string().ok()?, e.path()))).collect()
}

fn read(path: &Path) -> Result<String, String> {
    let mut text = String::new();
    let file = File::open(path).map_err(|e| e.to_string())?;
    file.take(MAX_SIZE).read_to_string(&mut text).map_err(|e| e.to_string())?;
    let (header, value) = text.split_once('\n').ok_or("cut off")?;
    let header: Header = serde_json::from_str(header).map_err(|e| format!("first line: {e}"))?;
    if header.version != VERSION {
        return Err(format!("version {} is not {VERSION}", header.version));
    }
    if header.sha256 != digest(value) {
        return Err("damaged or cut off: not what its first line says".into());
    }
    Ok(value.to_owned())
}

fn set_aside(path: &Path, why: &str) {
    let aside = appended(path, CORRUPT);
    match fs::rename(path, &aside) {
        Ok(()) => log::warn!("record set aside file={} reason={why:?}", aside.display()),
        Err(e) => log::warn!("record ignored file={} reason={why:?} error={e:?}", path.display()),
    }
    forget_old(path.parent().unwrap_or(path));
}

/// Keeps the last ones of what was set aside in a directory.
fn forget_old(directory: &Path) {
    let mut aside: Vec<((i64, i64), PathBuf)> = entries(directory)
        .into_iter()
        .filter(|(file, _)| file.ends_with(CORRUPT))
        .filter_map(|(_, path)| fs::symlink_metadata(&path).ok().map(|m| ((m.ctime(), m.ctime_nsec()), path)))
        .collect();
    aside.sort();
    for (_, path) in &aside[..aside.len().saturating_sub(MAX_CORRUPT)] {
        match fs::remove_file(path) {
            Ok(()) => log::info!("of many records set aside the oldest is removed file={}", path.display()),
            Err(e) => log::warn!("a record set aside long ago stays file={} error={e:?}", path.display()),
        }
    }
}

fn appended(path: &Path, end: &str) -> PathBuf {
    let mut longer = path.as_os_str().to_owned();
    longer.push(end);
    PathBuf::from(longer)
}

fn digest(value: &str) -> String {
    hex(&Sha256::digest(value.as_bytes()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A key as a file's name: everything but letters, digits, `_`, `-` and inner dots as `%XX`.
fn encode(key: &str) -> String {
    key.bytes().enumerate().fold(String::new(), |mut name, (at, byte)| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' => name.push(char::from(byte)),
            b'.' if at > 0 => name.push('.'),
            other => {
                let _ = write!(name, "%{other:02X}");
            }
        }
        name
    })
}

fn decode(name: &str) -> Result<String, String> {
    let mut bytes = Vec::new();
    let mut rest = name.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits: Vec<u8> = rest.by_ref().take(2).collect();
            let text = std::str::from_utf8(&digits).unwrap_or_default();
            bytes.push(u8::from_str_radix(text, 16).map_err(|_| "not a name of a record".to_owned())?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).map_err(|_| "not a name of a record".to_owned())
}

/// The old content or the new one, whatever happens in between.
fn write_durably(path: &Path, content: &[u8], mode: u32) -> Result<(), String> {
    let aside = appended(path, ASIDE);
    let written = write_aside(&aside, content, mode).and_then(|()| fs::rename(&aside, path));
    if let Err(e) = written {
        let _ = fs::remove_file(&aside);
        return Err(failed("write", path, &e));
    }
    path.parent().map_or(Ok(()), sync_directory)
}

fn write_aside(aside: &Path, content: &[u8], mode: u32) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(aside)?;
    file.write_all(content)?;
    file.sync_all()
}

fn sync_directory(directory: &Path) -> Result<(), String> {
    File::open(directory).and_then(|d| d.sync_all()).map_err(|e| failed("sync", directory, &e))
}

/// With its parents, readable by its owner and group only; durable itself.
fn make_directory(directory: &Path) -> Result<(), String> {
    if directory.is_dir() {
        return Ok(());
    }
    DirBuilder::new()
        .recursive(true)
        .mode(0o750)
        .create(directory)
        .map_err(|e| failed("make directory", directory, &e))?;
    directory.parent().filter(|p| !p.as_os_str().is_empty()).map_or(Ok(()), sync_directory)
}
