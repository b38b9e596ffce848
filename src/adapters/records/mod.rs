//! Stores small records that survive the process, one file each: `<root>/records/<kind>/<key>.json`.
//!
//! A record is written to a temporary file, synced, and renamed over the old one; then the directory is synced. After
//! a power cut the file is therefore either the old record or the new one. A small record without an old one is
//! renamed first and needs one sync; until that sync, a power cut can leave an empty file or zeros, which means that
//! there is no record (`durable::put`). The first line of a file contains a version and the SHA-256 of the value; the
//! rest is the value. An invalid file (truncated, damaged, of another version) is renamed to `*.corrupt` with a
//! warning, because a broken record must not prevent the start of a node. Only the engine interprets values. `seal`
//! defines the format of sealed records. A sealed record whose key is missing is not invalid and is kept.
//!
//! A write waits for the disk, so changes must be made on a helper thread. The agent abandons a thread that hangs, but
//! the thread may continue much later. Each batch of changes therefore has its own number and temporary files, and has
//! no effect once a later batch has started. `Root` is the root directory with its lock and its id.

mod directories;
pub mod format;
pub mod queue;
mod root;
pub mod seal;
#[cfg(test)]
mod tests;

use crate::api::ordered::OrderSlice;
pub use root::{Root, existing_id};

use crate::adapters::durable::{self, Written, appended};
use crate::adapters::root_place::RootPlace;
use crate::api::sealing::{Content, StoredRecord};
use crate::api::uid;
use crate::engine::effect::RecordChange;
use directories::{failed, make_directory, sync_directory};
use seal::{OpenError, SealKey};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The version of the file format. The value has its own version, which is part of the value.
const VERSION: u32 = 1;
const SUFFIX: &str = ".json";
/// The suffix of a temporary file, after the number of its batch.
const ASIDE: &str = ".new";
/// Maximum length of a temporary file's suffix: `.`, a number, and ASIDE.
const MAX_ASIDE: usize = 1 + 20 + ASIDE.len();
const CORRUPT: &str = ".corrupt";
/// Maximum number of `*.corrupt` files of each kind. Only the newest are kept.
const MAX_CORRUPT: usize = 20;
/// Maximum size of a record file, in bytes. Wherry writes no larger ones.
const MAX_SIZE: u64 = 4 << 20;
/// The longest file name on common file systems, in bytes.
const MAX_FILE_NAME: usize = 255;

/// The records of one root directory. Each error names the file.
#[derive(Clone, Debug)]
pub struct Records {
    directory: PathBuf,
    place: RootPlace,
    key: Option<Arc<SealKey>>,
    batch: u64,
    order: Arc<Order>,
}

/// Decides which batch may make changes.
#[derive(Debug, Default)]
struct Order {
    /// The batch that started last.
    newest: AtomicU64,
    /// Held from the check of `newest` to the end of the change. Only threads that may block take it.
    taking_effect: Mutex<()>,
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Header {
    version: u32,
    sha256: String,
}

impl Records {
    /// Opens the records of a root directory. Creates the directory if it is missing. `key`: for sealed records.
    ///
    /// # Errors
    /// The directory cannot be created.
    pub fn open(root: &Path, key: Option<Arc<SealKey>>) -> Result<Records, String> {
        let directory = root.join("records");
        make_directory(&directory)?;
        Ok(Records { directory, place: RootPlace::of(root), key, batch: 0, order: Arc::default() })
    }

    /// Starts another batch of changes. Earlier batches have no effect from now on. Never blocks.
    pub fn batch(&self) -> Records {
        let batch = self.order.newest.fetch_add(1, Ordering::SeqCst) + 1;
        Records { batch, ..self.clone() }
    }

    /// Reads all valid records of these kinds, sorted. Sets invalid ones aside with a warning. Other kinds belong to
    /// other parts of Wherry and are not read.
    pub fn load(&self, kinds: &[&str]) -> Vec<StoredRecord> {
        let mut records = Vec::new();
        for (kind, directory) in entries(&self.directory).into_iter().filter(|(k, _)| kinds.contains(&k.as_str())) {
            for (file, path) in entries(&directory) {
                if file.ends_with(ASIDE) {
                    // An unfinished write left this file. The write was never reported as done.
                    let _ = fs::remove_file(&path);
                    continue;
                }
                let Some(name) = file.strip_suffix(SUFFIX) else { continue };
                match stored(&kind, name, &path, self.key.as_deref()) {
                    Ok(record) => records.push(record),
                    Err(_) if read(&path).is_ok_and(|content| durable::is_unwritten(&content)) => {
                        remove_unwritten(&path);
                    }
                    Err(why) => set_aside(&path, &why),
                }
            }
        }
        records.order_by(|a, b| a.key.cmp(&b.key));
        records
    }

    /// Returns the valid records of these kinds, as `load` does, in a process other than the agent. Changes nothing,
    /// and skips invalid records.
    ///
    /// # Errors
    /// A directory cannot be read, for example because the user lacks the permission.
    pub fn look(root: &Path, kinds: &[&str], key: Option<&SealKey>) -> Result<Vec<StoredRecord>, String> {
        let mut records = Vec::new();
        for kind in kinds {
            let directory = root.join("records").join(kind);
            let list = match fs::read_dir(&directory) {
                Err(e) if e.kind() == ErrorKind::NotFound => continue,
                list => list.map_err(|e| failed("read", &directory, &e))?,
            };
            for entry in list.flatten() {
                let file = entry.file_name();
                let Some(name) = file.to_str().and_then(|name| name.strip_suffix(SUFFIX)) else { continue };
                records.extend(stored(kind, name, &entry.path(), key));
            }
        }
        records.order_by(|a, b| a.key.cmp(&b.key));
        Ok(records)
    }

    /// Makes the changes in order, and returns one result for each. A change that succeeded is durable when the
    /// function returns. All changes in one directory share one sync. Deleting or setting aside a record that does not
    /// exist succeeds. An error means that the key is invalid, that the file cannot be changed, that the file system of
    /// the root directory is not mounted, or that a later batch has started.
    pub fn make(&self, changes: &[RecordChange]) -> Vec<Result<(), String>> {
        if let Err(why) = self.place.check() {
            return vec![Err(why); changes.len()];
        }
        let made: Vec<Result<Option<PathBuf>, String>> = changes.iter().map(|change| self.make_one(change)).collect();
        let mut synced: BTreeMap<PathBuf, Result<(), String>> = BTreeMap::new();
        let mut sync = |directory: Option<PathBuf>| match directory {
            Some(directory) => synced.entry(directory).or_insert_with_key(|d| sync_directory(d)).clone(),
            None => Ok(()),
        };
        made.into_iter().map(|directory| directory.and_then(&mut sync)).collect()
    }

    /// Makes a change. Returns the directory that has to be synced; None if the change is already durable.
    fn make_one(&self, change: &RecordChange) -> Result<Option<PathBuf>, String> {
        let key = match change {
            RecordChange::Put { key, .. } | RecordChange::Seal { key, .. } => key,
            RecordChange::Delete { key } | RecordChange::SetAside { key } => key,
            RecordChange::RemoveCorrupt { kind } => return self.remove_corrupt(kind).map(Some),
        };
        let path = self.path(key)?;
        let written = match change {
            RecordChange::Put { value, .. } => self.put(&path, &plain(&path, value)?)?,
            RecordChange::Seal { value, .. } => {
                let sealed = self.key.as_ref().ok_or_else(|| "the service has no key".to_owned());
                let sealed = sealed.and_then(|with| with.seal(key, value)).map_err(|e| failed("seal", &path, &e))?;
                self.put(&path, &sealed)?
            }
            RecordChange::RemoveCorrupt { .. } => Written::InDirectory,
            RecordChange::Delete { .. } => {
                self.take_effect(&path, || match fs::remove_file(&path) {
                    Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
                    other => other,
                })?;
                Written::InDirectory
            }
            RecordChange::SetAside { .. } => {
                self.set_aside(&path)?;
                Written::InDirectory
            }
        };
        Ok((written == Written::InDirectory).then(|| path.parent().unwrap_or(&self.directory).to_owned()))
    }

    fn put(&self, path: &Path, content: &[u8]) -> Result<Written, String> {
        make_directory(path.parent().unwrap_or(&self.directory))?;
        let aside = appended(path, &format!(".{}{ASIDE}", self.batch));
        let rename = || self.unless_abandoned(|| fs::rename(&aside, path));
        durable::put(path, &aside, content, 0o600, rename).map_err(|e| failed("write", path, &e))
    }

    /// Renames a record to `*.corrupt`, so that `load` ignores it and a user can inspect it. Removes the oldest
    /// `*.corrupt` file if there are too many.
    fn set_aside(&self, path: &Path) -> Result<(), String> {
        let aside = appended(path, CORRUPT);
        self.take_effect(path, || match fs::rename(path, &aside) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            other => other,
        })?;
        log::warn!("set aside a record that cannot be used file={}", aside.display());
        forget_old(path.parent().unwrap_or(&self.directory));
        Ok(())
    }

    /// Removes the `*.corrupt` files of a kind that are not sealed. Returns the directory that has to be synced.
    fn remove_corrupt(&self, kind: &str) -> Result<PathBuf, String> {
        let directory = self.directory.join(kind);
        if !directory.is_dir() {
            return Ok(directory);
        }
        for (file, path) in entries(&directory) {
            if file.ends_with(CORRUPT) && !read(&path).is_ok_and(|content| seal::is_sealed(&content)) {
                self.take_effect(&path, || fs::remove_file(&path))?;
                log::info!("removed a corrupt record that is not sealed file={}", path.display());
            }
        }
        Ok(directory)
    }

    /// Makes a change, unless a later batch has started, which makes this change obsolete.
    fn take_effect(&self, path: &Path, change: impl FnOnce() -> io::Result<()>) -> Result<(), String> {
        self.unless_abandoned(change).map_err(|e| failed("change", path, &e))
    }

    fn unless_abandoned(&self, change: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let _held = self.order.taking_effect.lock().unwrap_or_else(PoisonError::into_inner);
        if self.order.newest.load(Ordering::SeqCst) != self.batch {
            return Err(io::Error::other("abandoned, because it took too long"));
        }
        change()
    }

    fn path(&self, key: &str) -> Result<PathBuf, String> {
        let wrong = |why: &str| format!("record {key:?}: {why}");
        let (kind, rest) = key.split_once('/').ok_or_else(|| wrong("must be kind/key"))?;
        if kind.is_empty() || !kind.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
            return Err(wrong("the kind may contain only letters, digits and -"));
        }
        let file = encode(rest) + SUFFIX;
        if rest.is_empty() || file.len() + MAX_ASIDE > MAX_FILE_NAME {
            return Err(wrong("the key is empty or too long for a file name"));
        }
        Ok(self.directory.join(kind).join(file))
    }
}

/// Returns the names and paths of a directory's entries. Logs a warning and returns nothing if the directory cannot be
/// read.
fn entries(directory: &Path) -> Vec<(String, PathBuf)> {
    let list = match fs::read_dir(directory) {
        Ok(list) => list,
        // Wherry did not create this file, which is in place of a directory, so ignore it.
        Err(e) if e.kind() == ErrorKind::NotADirectory => return Vec::new(),
        Err(e) => {
            log::warn!("failed to read records; continuing without them directory={} error={e:?}", directory.display());
            return Vec::new();
        }
    };
    list.flatten().filter_map(|e| Some((e.file_name().into_string().ok()?, e.path()))).collect()
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let mut content = Vec::new();
    let file = File::open(path).map_err(|e| e.to_string())?;
    file.take(MAX_SIZE).read_to_end(&mut content).map_err(|e| e.to_string())?;
    Ok(content)
}

/// Reads a record. The error is the reason why it is invalid.
fn stored(kind: &str, name: &str, path: &Path, key: Option<&SealKey>) -> Result<StoredRecord, String> {
    let content = read(path)?;
    let name = format!("{kind}/{}", decode(name)?);
    let content = if seal::is_sealed(&content) {
        let opened =
            key.map_or_else(|| seal::check(&content).map(|()| None), |key| key.open(&name, &content).map(Some));
        match opened {
            Ok(Some(value)) => Content::Sealed(value),
            Ok(None) | Err(OpenError::OtherKey) => Content::Locked,
            Err(e) => return Err(e.to_string()),
        }
    } else {
        Content::Plain(value_of(content)?)
    };
    Ok(StoredRecord { key: name, content })
}

/// Returns the content of a plain file with this value.
fn plain(path: &Path, value: &str) -> Result<Vec<u8>, String> {
    let header = Header { version: VERSION, sha256: uid::digest_of_bytes(value.as_bytes()) };
    let header = serde_json::to_string(&header).map_err(|e| failed("write", path, &e))?;
    Ok(format!("{header}\n{value}").into_bytes())
}

/// Returns the value in a plain file.
fn value_of(content: Vec<u8>) -> Result<String, String> {
    let text = String::from_utf8(content).map_err(|e| e.utf8_error().to_string())?;
    let (header, value) = text.split_once('\n').ok_or("truncated: no first line")?;
    let header: Header = serde_json::from_str(header).map_err(|e| format!("invalid first line: {e}"))?;
    if header.version != VERSION {
        return Err(format!("unsupported version {}, expected {VERSION}", header.version));
    }
    if header.sha256 != uid::digest_of_bytes(value.as_bytes()) {
        return Err("damaged or truncated: the checksum in the first line does not match".into());
    }
    Ok(value.to_owned())
}

/// Removes a file that a power cut left before the first write of the record was durable.
fn remove_unwritten(path: &Path) {
    let removed = fs::remove_file(path).is_ok();
    log::info!("a power cut has interrupted the write of this new record file={} removed={removed}", path.display());
}

fn set_aside(path: &Path, why: &str) {
    let aside = appended(path, CORRUPT);
    match fs::rename(path, &aside) {
        Ok(()) => log::warn!("set aside an invalid record file={} reason={why:?}", aside.display()),
        Err(e) => log::warn!(
            "ignoring an invalid record; failed to set it aside file={} reason={why:?} error={e:?}",
            path.display()
        ),
    }
    forget_old(path.parent().unwrap_or(path));
}

/// Removes all but the newest `*.corrupt` files in a directory.
fn forget_old(directory: &Path) {
    let mut aside: Vec<((i64, i64), PathBuf)> = entries(directory)
        .into_iter()
        .filter(|(file, _)| file.ends_with(CORRUPT))
        .filter_map(|(_, path)| fs::symlink_metadata(&path).ok().map(|m| ((m.ctime(), m.ctime_nsec()), path)))
        .collect();
    aside.order();
    for (_, path) in &aside[..aside.len().saturating_sub(MAX_CORRUPT)] {
        match fs::remove_file(path) {
            Ok(()) => log::info!("removed the oldest corrupt record file={}", path.display()),
            Err(e) => log::warn!("failed to remove the oldest corrupt record file={} error={e:?}", path.display()),
        }
    }
}

/// Encodes a key as a file name: everything except letters, digits, `_`, `-` and non-leading dots becomes `%XX`.
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
            bytes.push(u8::from_str_radix(text, 16).map_err(|_| "not the name of a record".to_owned())?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).map_err(|_| "not the name of a record".to_owned())
}
