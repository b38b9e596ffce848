//! The last good version of the documents of each file, on disk (D2). It is in force while the file is broken or the
//! directory is missing.
//!
//! Each manifest has a small JSON file in `manifests` of the root directory. Its name is a digest of the bytes of the
//! manifest's path, because two paths may differ only in bytes that are not UTF-8. Only the owner can read it, because
//! a manifest may contain secrets. Each record is written to a temporary file, synced and renamed. Then the directory
//! is synced, once for all records of a `Write`. Each document has a digest. A damaged record fails this check and is
//! set aside with a warning. A pod never waits for the record of its manifest: a `Write` runs later, on a helper thread
//! if the caller wishes.

use super::mount::Mount;
use crate::adapters::durable;
use crate::api::uid;
use crate::api::{priority, runtime_class};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

const VERSION: u32 = 1;
/// The record of the directory itself.
const DIRECTORY: &str = "directory.json";
/// The suffix of a record that is being written.
const ASIDE: &str = ".new";

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Record {
    version: u32,
    /// The path of the manifest. Bytes that are not UTF-8 are replaced.
    path: String,
    /// If there are such bytes, the path in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path_bytes: Option<String>,
    pub(super) documents: Vec<RecordedDocument>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RecordedDocument {
    pub(super) number: u32,
    pub(super) digest: String,
    pub(super) content: Value,
    /// The priority that a pod got from a PriorityClass (A5).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) priority: Option<priority::Given>,
    /// The values that a pod got from a RuntimeClass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) runtime_class: Option<runtime_class::Given>,
}

impl Record {
    /// Returns the path of the manifest.
    pub(super) fn manifest(&self) -> PathBuf {
        let bytes = self.path_bytes.as_deref().and_then(from_hex);
        bytes.map_or_else(|| PathBuf::from(&self.path), |bytes| OsString::from_vec(bytes).into())
    }
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct DirectoryRecord {
    version: u32,
    directory: String,
    #[serde(flatten)]
    place: Place,
}

/// The mount of the directory when it last contained manifests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Place {
    pub(super) mount_point: String,
    /// The type of the file system.
    pub(super) kind: String,
    /// The device or server.
    pub(super) source: String,
}

impl Place {
    pub(super) fn of(mount: &Mount) -> Place {
        Place { mount_point: mount.point.clone(), kind: mount.kind.clone(), source: mount.source.clone() }
    }

    pub(super) fn is(&self, mount: &Mount) -> bool {
        *self == Place::of(mount)
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} on {}, {}", self.source, self.mount_point, self.kind)
    }
}

/// Changes of records that become durable together. Can be sent to another thread.
#[derive(Clone, Debug)]
pub struct Write {
    pub(super) changes: Vec<Change>,
}

#[derive(Clone, Debug)]
pub(super) struct Change {
    file: PathBuf,
    /// None removes the record.
    text: Option<Vec<u8>>,
}

impl Write {
    /// Applies the changes. They are durable when this returns.
    ///
    /// # Errors
    /// The operation, the file and the reason. The changes after it are not attempted, those before it may be on disk.
    pub fn run(&self) -> Result<(), String> {
        self.changes.iter().try_for_each(Change::run)?;
        let directory = self.changes.first().map_or(Path::new("."), Change::directory);
        match durable::sync(directory) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(failed("sync", directory, e)),
            _ => Ok(()),
        }
    }
}

fn failed(doing: &str, file: &Path, e: io::Error) -> String {
    format!("{doing} {}: {e}", file.display())
}

impl Change {
    /// All changes have the same directory.
    fn directory(&self) -> &Path {
        self.file.parent().unwrap_or(Path::new("."))
    }

    fn run(&self) -> Result<(), String> {
        let directory = self.directory();
        match &self.text {
            Some(text) => {
                durable::make_directory(directory, 0o750).map_err(|e| failed("create", directory, e))?;
                durable::replace(&self.file, &durable::appended(&self.file, ASIDE), text, 0o600)
                    .map_err(|e| failed("write", &self.file, e))?;
            }
            None => match fs::remove_file(&self.file) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed("remove", &self.file, e)),
                _ => {}
            },
        }
        Ok(())
    }

    /// Returns the record to write; None for a removal or the record of the directory.
    pub(super) fn record(&self) -> Option<Record> {
        self.text.as_ref().and_then(|text| serde_json::from_slice(text).ok())
    }
}

pub(super) struct Store {
    root: PathBuf,
}

impl Store {
    /// Removes unfinished records of a previous run, which otherwise stay until the same manifest is recorded again.
    pub(super) fn open(root: PathBuf) -> Store {
        for entry in fs::read_dir(&root).into_iter().flatten().flatten() {
            if entry.file_name().as_bytes().ends_with(ASIDE.as_bytes())
                && let Err(e) = fs::remove_file(entry.path())
            {
                log::warn!("failed to remove an unfinished record file={:?} error={:?}", entry.path(), e.to_string());
            }
        }
        Store { root }
    }

    fn file_of(&self, manifest: &[u8]) -> PathBuf {
        let digest = uid::digest_of_bytes(manifest);
        self.root.join(format!("{}.json", &digest[..32]))
    }

    /// Returns the last good version of a manifest; None if there is no record.
    pub(super) fn load(&self, manifest: &Path) -> Option<Record> {
        load(&self.file_of(manifest.as_os_str().as_bytes()))
    }

    /// Returns all records of manifests, in no particular order.
    pub(super) fn load_all(&self) -> Vec<Record> {
        let entries = fs::read_dir(&self.root).into_iter().flatten().flatten();
        let records = entries.map(|e| e.path()).filter(|file| {
            file.extension().is_some_and(|e| e == "json") && file.file_name().is_some_and(|n| n != DIRECTORY)
        });
        records.filter_map(|file| load(&file)).collect()
    }

    pub(super) fn put(&self, manifest: &Path, documents: Vec<RecordedDocument>) -> Change {
        let bytes = manifest.as_os_str().as_bytes();
        let path_bytes = manifest.to_str().is_none().then(|| uid::hex(bytes));
        let path = manifest.to_string_lossy().into_owned();
        let record = Record { version: VERSION, path, path_bytes, documents };
        Change { file: self.file_of(bytes), text: Some(json(&record)) }
    }

    pub(super) fn delete(&self, manifest: &Path) -> Change {
        Change { file: self.file_of(manifest.as_os_str().as_bytes()), text: None }
    }

    /// Returns the recorded mount of the directory.
    pub(super) fn place(&self, directory: &Path) -> Option<Place> {
        let text = fs::read(self.root.join(DIRECTORY)).ok()?;
        let record: DirectoryRecord = serde_json::from_slice(&text).ok()?;
        (record.directory == directory.to_string_lossy() && record.version == VERSION).then_some(record.place)
    }

    pub(super) fn put_place(&self, directory: &Path, place: &Place) -> Change {
        let directory = directory.to_string_lossy().into_owned();
        let record = DirectoryRecord { version: VERSION, directory, place: place.clone() };
        Change { file: self.root.join(DIRECTORY), text: Some(json(&record)) }
    }
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u32> = text.chars().map(|digit| digit.to_digit(16)).collect::<Option<_>>()?;
    digits.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair.get(1)?).ok()).collect()
}

/// A record consists of texts, numbers and JSON values, whose serialization cannot fail.
fn json(record: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(record).unwrap_or_default()
}

fn load(file: &Path) -> Option<Record> {
    let text = match fs::read(file) {
        Ok(text) => text,
        Err(e) => {
            if e.kind() != io::ErrorKind::NotFound {
                log::warn!("failed to read the record of a manifest file={:?} error={:?}", file, e.to_string());
            }
            return None;
        }
    };
    let why = match serde_json::from_slice::<Record>(&text) {
        Ok(record) if record.version > VERSION => format!("version {} is newer than this program", record.version),
        Ok(record) if record.documents.iter().any(|d| uid::digest(&d.content) != d.digest) => {
            "the digest of a document does not match".to_owned()
        }
        Ok(record) => return Some(record),
        Err(e) => e.to_string(),
    };
    let kept = fs::rename(file, durable::appended(file, ".corrupt")).is_ok();
    log::warn!("the record of a manifest is damaged file={file:?} set_aside={kept} error={why:?}");
    None
}
