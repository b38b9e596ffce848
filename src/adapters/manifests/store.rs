//! The last good version of each file's documents, on disk (D2): what a broken file, or a missing directory, last said.
//!
//! One small JSON file per manifest, named by a digest of its path's bytes (two paths may differ only in bytes that are not UTF-8), in
//! `manifests` of the root directory, readable by its owner alone (a manifest may hold what is nobody's business). Each is written aside, synced and renamed, and then the
//! directory synced, once for all that are written together. A document carries its digest, so a damaged record is seen;
//! it is set aside, with a warning. Writing never comes between a manifest and its pod: it is a `Write` to be carried out
//! later, by a helper thread if one likes.

use super::mount::Mount;
use crate::api::priority::Given;
use crate::api::uid;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const VERSION: u32 = 1;
/// The record of the directory itself.
const DIRECTORY: &str = "directory.json";
/// The end of the name of a record that is being written.
const ASIDE: &str = ".new";

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Record {
    version: u32,
    /// The manifest's path; bytes that are not UTF-8 are replaced.
    path: String,
    /// If there are such bytes: the path in hexadecimal digits. Records of before did not have it, and paths that differ only in
    /// such bytes shared one record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path_bytes: Option<String>,
    pub(super) documents: Vec<RecordedDocument>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RecordedDocument {
    pub(super) number: u32,
    pub(super) digest: String,
    pub(super) content: Value,
    /// What a pod got from a class (A5).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) priority: Option<Given>,
}

impl Record {
    /// The manifest's path.
    pub(super) fn manifest(&self) -> PathBuf {
        let bytes = self.path_bytes.as_deref().and_then(from_hex);
        bytes.map_or_else(|| PathBuf::from(&self.path), |bytes| OsString::from_vec(bytes).into())
    }

    /// Whether it may be of a path like this one, of which it does not have the bytes.
    pub(super) fn may_be_of(&self, manifest: &Path) -> bool {
        self.path_bytes.is_none() && manifest.to_str().is_none() && manifest.to_string_lossy() == self.path
    }
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct DirectoryRecord {
    version: u32,
    directory: String,
    #[serde(flatten)]
    place: Place,
}

/// On which mount the directory was when it last had manifests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Place {
    pub(super) mount_point: String,
    /// The type of the file system, and its device or server. Records of before have neither.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) kind: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) source: Option<String>,
}

impl Place {
    pub(super) fn of(mount: &Mount) -> Place {
        let (kind, source) = (Some(mount.kind.clone()), Some(mount.source.clone()));
        Place { mount_point: mount.point.clone(), kind, source }
    }

    /// As far as it is known.
    pub(super) fn is(&self, mount: &Mount) -> bool {
        self.mount_point == mount.point
            && self.kind.as_ref().is_none_or(|kind| *kind == mount.kind)
            && self.source.as_ref().is_none_or(|source| *source == mount.source)
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.source, &self.kind) {
            (Some(source), Some(kind)) => write!(f, "{source} on {}, {kind}", self.mount_point),
            _ => f.write_str(&self.mount_point),
        }
    }
}

/// Changes of records that become durable together. It can be sent to another thread.
#[derive(Clone, Debug)]
pub struct Write {
    pub(super) changes: Vec<Change>,
}

#[derive(Clone, Debug)]
pub(super) struct Change {
    file: PathBuf,
    /// None removes it.
    text: Option<Vec<u8>>,
}

impl Write {
    /// Carries it out; when it returns all of it is durable.
    ///
    /// # Errors
    /// What was being done to which file, and why it failed. What comes after it is not tried, what came before it may be
    /// there.
    pub fn run(&self) -> Result<(), String> {
        self.changes.iter().try_for_each(Change::run)?;
        let directory = self.changes.first().map_or(Path::new("."), Change::directory);
        match File::open(directory).and_then(|d| d.sync_all()) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(failed("sync", directory, e)),
            _ => Ok(()),
        }
    }
}

fn failed(doing: &str, file: &Path, e: io::Error) -> String {
    format!("{doing} {}: {e}", file.display())
}

impl Change {
    /// The same one for all.
    fn directory(&self) -> &Path {
        self.file.parent().unwrap_or(Path::new("."))
    }

    fn run(&self) -> Result<(), String> {
        let directory = self.directory();
        match &self.text {
            Some(text) => {
                DirBuilder::new()
                    .recursive(true)
                    .mode(0o750)
                    .create(directory)
                    .map_err(|e| failed("make", directory, e))?;
                let mut aside = OsString::from(&self.file);
                aside.push(ASIDE);
                let aside = PathBuf::from(aside);
                let write = || {
                    let mut file =
                        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&aside)?;
                    file.write_all(text)?;
                    file.sync_all()?;
                    fs::rename(&aside, &self.file)
                };
                if let Err(e) = write() {
                    // A full disk is not helped by what was begun on it.
                    let _ = fs::remove_file(&aside);
                    return Err(failed("write", &self.file, e));
                }
            }
            None => match fs::remove_file(&self.file) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed("remove", &self.file, e)),
                _ => {}
            },
        }
        Ok(())
    }

    /// What it would have recorded; None if it removes a record, or is the directory's.
    pub(super) fn record(&self) -> Option<Record> {
        self.text.as_ref().and_then(|text| serde_json::from_slice(text).ok())
    }
}

pub(super) struct Store {
    root: PathBuf,
}

impl Store {
    /// Removes what a write that was cut off left: each such file would stay as long as its manifest is not written again.
    pub(super) fn open(root: PathBuf) -> Store {
        for entry in fs::read_dir(&root).into_iter().flatten().flatten() {
            if entry.file_name().as_bytes().ends_with(ASIDE.as_bytes())
                && let Err(e) = fs::remove_file(entry.path())
            {
                log::warn!("cannot remove an unfinished record file={:?} error={:?}", entry.path(), e.to_string());
            }
        }
        Store { root }
    }

    fn file_of(&self, manifest: &[u8]) -> PathBuf {
        let digest = uid::digest_of_bytes(manifest);
        self.root.join(format!("{}.json", &digest[..32]))
    }

    /// What a manifest last said; None if nothing is recorded.
    pub(super) fn load(&self, manifest: &Path) -> Option<Record> {
        load(&self.file_of(manifest.as_os_str().as_bytes()))
    }

    /// The same from a record of before, which several paths may have shared. None for a path in UTF-8.
    pub(super) fn load_shared(&self, manifest: &Path) -> Option<Record> {
        let shared = manifest.to_string_lossy();
        let record = manifest.to_str().is_none().then(|| load(&self.file_of(shared.as_bytes())))?;
        record.filter(|record| record.may_be_of(manifest))
    }

    /// All records of manifests, in no order.
    pub(super) fn load_all(&self) -> Vec<Record> {
        let entries = fs::read_dir(&self.root).into_iter().flatten().flatten();
        let records = entries.map(|e| e.path()).filter(|file| {
            file.extension().is_some_and(|e| e == "json") && file.file_name().is_some_and(|n| n != DIRECTORY)
        });
        records.filter_map(|file| load(&file)).collect()
    }

    pub(super) fn put(&self, manifest: &Path, documents: Vec<RecordedDocument>) -> Change {
        let bytes = manifest.as_os_str().as_bytes();
        let path_bytes = manifest.to_str().is_none().then(|| hex(bytes));
        let path = manifest.to_string_lossy().into_owned();
        let record = Record { version: VERSION, path, path_bytes, documents };
        Change { file: self.file_of(bytes), text: Some(json(&record)) }
    }

    pub(super) fn delete(&self, manifest: &Path) -> Change {
        Change { file: self.file_of(manifest.as_os_str().as_bytes()), text: None }
    }

    /// Where the directory was when it last had manifests.
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

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u32> = text.chars().map(|digit| digit.to_digit(16)).collect::<Option<_>>()?;
    digits.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair.get(1)?).ok()).collect()
}

/// Records are texts, numbers and JSON values, all of which can always be written.
fn json(record: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(record).unwrap_or_default()
}

fn load(file: &Path) -> Option<Record> {
    let text = match fs::read(file) {
        Ok(text) => text,
        Err(e) => {
            if e.kind() != io::ErrorKind::NotFound {
                log::warn!("cannot read the record of a manifest file={:?} error={:?}", file, e.to_string());
            }
            return None;
        }
    };
    let why = match serde_json::from_slice::<Record>(&text) {
        Ok(record) if record.version > VERSION => format!("version {} is newer than this program", record.version),
        Ok(record) if record.documents.iter().any(|d| uid::digest(&d.content) != d.digest) => {
            "a document does not have its digest".to_owned()
        }
        Ok(record) => return Some(record),
        Err(e) => e.to_string(),
    };
    let mut aside = OsString::from(file);
    aside.push(".corrupt");
    let kept = fs::rename(file, &aside).is_ok();
    log::warn!("the record of a manifest is damaged file={file:?} set_aside={kept} error={why:?}");
    None
}
