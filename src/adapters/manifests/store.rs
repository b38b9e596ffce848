//! The last good version of each file's documents, on disk (D2). It is in force while the file is broken or the
//! directory is missing.
//!
//! Each manifest has a small JSON file in `manifests` in the root directory, its record. The file name is a digest of
//! the bytes of the manifest's path, because two paths may differ only in bytes that are not UTF-8. Only the owner can
//! read a record, because a manifest may contain secrets. Each record is written as `durable::put` does; if the
//! directory has to be synced, this is done once for all records of a `Write`. An empty file, or one of zeros, is no
//! record. Each document has a digest. A damaged record fails this check and is set aside with a warning. A `Write`
//! runs on a helper thread.

use crate::adapters::durable::{self, Written};
use crate::adapters::mount_table::Mount;
use crate::adapters::root_place::RootPlace;
use crate::api::manifest_report::{DocumentUpdate, RecordUpdate, RecordedDocument};
use crate::api::objects::Given;
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
/// The file name of the directory's own record.
const DIRECTORY: &str = "directory.json";
/// The suffix of a record that is being written.
const ASIDE: &str = ".new";

#[derive(Debug, Serialize, Deserialize)]
struct ManifestRecord {
    version: u32,
    /// The path of the manifest. Bytes that are not UTF-8 are replaced.
    path: String,
    /// The path in hexadecimal, if it contains such bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path_bytes: Option<String>,
    documents: Vec<StoredDocument>,
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredDocument {
    number: u32,
    digest: String,
    content: Value,
    /// The priority that a pod got from a PriorityClass (A5).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    priority: Option<priority::Given>,
    /// The values that a pod got from a RuntimeClass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    runtime_class: Option<runtime_class::Given>,
}

impl ManifestRecord {
    /// Returns the path of the manifest.
    fn manifest(&self) -> PathBuf {
        let bytes = self.path_bytes.as_deref().and_then(from_hex);
        bytes.map_or_else(|| PathBuf::from(&self.path), |bytes| OsString::from_vec(bytes).into())
    }
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct DirectoryRecord {
    version: u32,
    directory: String,
    #[serde(flatten)]
    place: MountPlace,
}

/// The mount of the directory when it last contained manifests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MountPlace {
    pub(super) mount_point: String,
    /// The type of the file system.
    pub(super) kind: String,
    /// The device or server.
    pub(super) source: String,
}

impl MountPlace {
    pub(super) fn of(mount: &Mount) -> MountPlace {
        MountPlace { mount_point: mount.point.clone(), kind: mount.kind.clone(), source: mount.source.clone() }
    }

    pub(super) fn is(&self, mount: &Mount) -> bool {
        *self == MountPlace::of(mount)
    }
}

impl std::fmt::Display for MountPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} on {}, {}", self.source, self.mount_point, self.kind)
    }
}

impl StoredDocument {
    /// Returns the document to write. `old`: the current record, which has the content of a document whose update has
    /// none. Returns None if `old` does not contain it, because someone has removed the record.
    fn of(update: &DocumentUpdate, old: &mut [StoredDocument]) -> Option<StoredDocument> {
        let DocumentUpdate { number, digest, content, given: Given { priority, runtime_class } } = update.clone();
        let content = match content {
            Some(text) => serde_json::from_str(&text).ok()?,
            None => old.iter_mut().find(|old| old.digest == digest).map(|old| std::mem::take(&mut old.content))?,
        };
        Some(StoredDocument { number, digest, content, priority, runtime_class })
    }

    fn read(self) -> RecordedDocument {
        let StoredDocument { number, digest, content, priority, runtime_class } = self;
        RecordedDocument { number, digest, content, given: Given { priority, runtime_class } }
    }
}

/// Changes to records that become durable together. Can be sent to another thread.
#[derive(Clone, Debug)]
pub struct Write {
    pub(super) store: Store,
    /// The manifest directory.
    pub(super) directory: PathBuf,
    pub(super) updates: Vec<RecordUpdate>,
    /// The mount of the directory.
    pub(super) place: Option<MountPlace>,
}

impl Write {
    /// Applies the changes. They are durable when this returns.
    ///
    /// # Errors
    /// The failed operation, the file and the reason. The following changes are not attempted; the preceding ones may
    /// be on disk.
    pub fn run(&self) -> Result<(), String> {
        self.store.place.check()?;
        let mut written = Vec::new();
        for update in &self.updates {
            written.push(self.store.update(&self.directory.join(&update.name), &update.documents)?);
        }
        if let Some(place) = &self.place {
            written.push(self.store.put_place(&self.directory, place)?);
        }
        if !written.contains(&Written::InDirectory) {
            return Ok(());
        }
        match durable::sync(&self.store.root) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(failed("sync", &self.store.root, e)),
            _ => Ok(()),
        }
    }
}

fn failed(doing: &str, file: &Path, e: io::Error) -> String {
    format!("{doing} {}: {e}", file.display())
}

#[derive(Clone, Debug)]
pub(super) struct Store {
    /// The directory of the records.
    root: PathBuf,
    place: RootPlace,
}

impl Store {
    /// Opens the store. Removes unfinished records of a previous run, which would otherwise stay until the same
    /// manifest is recorded again.
    pub(super) fn open(root: PathBuf) -> Store {
        for entry in fs::read_dir(&root).into_iter().flatten().flatten() {
            if entry.file_name().as_bytes().ends_with(ASIDE.as_bytes())
                && let Err(e) = fs::remove_file(entry.path())
            {
                log::warn!("failed to remove an unfinished record file={:?} error={:?}", entry.path(), e.to_string());
            }
        }
        let place = RootPlace::of(root.parent().unwrap_or(&root));
        Store { root, place }
    }

    /// Returns the path of a manifest's record.
    pub(super) fn file_of(&self, manifest: &Path) -> PathBuf {
        let digest = uid::digest_of_bytes(manifest.as_os_str().as_bytes());
        self.root.join(format!("{}.json", &digest[..32]))
    }

    /// Returns the last good version of a manifest; None if there is no record.
    pub(super) fn load(&self, manifest: &Path) -> Option<Vec<RecordedDocument>> {
        let record = load(&self.file_of(manifest))?;
        Some(record.documents.into_iter().map(StoredDocument::read).collect())
    }

    /// Returns the path and the record of each manifest whose record file is `wanted`, in no particular order.
    pub(super) fn load_all(&self, wanted: impl Fn(&PathBuf) -> bool) -> Vec<(PathBuf, Vec<RecordedDocument>)> {
        let entries = fs::read_dir(&self.root).into_iter().flatten().flatten();
        let records = entries.map(|e| e.path()).filter(|file| {
            file.extension().is_some_and(|e| e == "json") && file.file_name().is_some_and(|n| n != DIRECTORY)
        });
        let records = records.filter(wanted).filter_map(|file| load(&file));
        records
            .map(|record| (record.manifest(), record.documents.into_iter().map(StoredDocument::read).collect()))
            .collect()
    }

    /// Writes the record of a manifest, or removes it if there are no documents.
    fn update(&self, manifest: &Path, documents: &[DocumentUpdate]) -> Result<Written, String> {
        let file = self.file_of(manifest);
        let mut old = match documents.iter().any(|document| document.content.is_none()) {
            true => load(&file).map(|record| record.documents).unwrap_or_default(),
            false => Vec::new(),
        };
        let stored = documents.iter().filter_map(|update| StoredDocument::of(update, &mut old));
        let documents: Vec<StoredDocument> = stored.collect();
        if documents.is_empty() {
            return match fs::remove_file(&file) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => Err(failed("remove", &file, e)),
                _ => Ok(Written::InDirectory),
            };
        }
        let path_bytes = manifest.to_str().is_none().then(|| uid::hex(manifest.as_os_str().as_bytes()));
        let path = manifest.to_string_lossy().into_owned();
        self.put(&file, &ManifestRecord { version: VERSION, path, path_bytes, documents })
    }

    fn put(&self, file: &Path, record: &impl Serialize) -> Result<Written, String> {
        durable::make_directory(&self.root, 0o750).map_err(|e| failed("create", &self.root, e))?;
        let aside = durable::appended(file, ASIDE);
        durable::put(file, &aside, &json(record), 0o600, || fs::rename(&aside, file))
            .map_err(|e| failed("write", file, e))
    }

    /// Returns the recorded mount of the directory.
    pub(super) fn place(&self, directory: &Path) -> Option<MountPlace> {
        let text = fs::read(self.root.join(DIRECTORY)).ok()?;
        let record: DirectoryRecord = serde_json::from_slice(&text).ok()?;
        (record.directory == directory.to_string_lossy() && record.version == VERSION).then_some(record.place)
    }

    fn put_place(&self, directory: &Path, place: &MountPlace) -> Result<Written, String> {
        let directory = directory.to_string_lossy().into_owned();
        let record = DirectoryRecord { version: VERSION, directory, place: place.clone() };
        self.put(&self.root.join(DIRECTORY), &record)
    }
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u32> = text.chars().map(|digit| digit.to_digit(16)).collect::<Option<_>>()?;
    digits.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair.get(1)?).ok()).collect()
}

/// Serializes a record. This cannot fail, because a record consists of strings, numbers and JSON values.
fn json(record: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(record).unwrap_or_default()
}

fn load(file: &Path) -> Option<ManifestRecord> {
    let text = match fs::read(file) {
        Ok(text) => text,
        Err(e) => {
            if e.kind() != io::ErrorKind::NotFound {
                log::warn!("failed to read the record of a manifest file={:?} error={:?}", file, e.to_string());
            }
            return None;
        }
    };
    if durable::is_unwritten(&text) {
        let removed = fs::remove_file(file).is_ok();
        log::info!("a power cut has interrupted the write of this new record file={file:?} removed={removed}");
        return None;
    }
    let why = match serde_json::from_slice::<ManifestRecord>(&text) {
        Ok(record) if record.version > VERSION => format!("version {} is newer than supported", record.version),
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
