//! The revoked client certificates: one small file, which the agent reads again when it has changed.

use super::directory::{self, failed};
use crate::api::ordered::CollectOrdered;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::{self, File, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub(super) const FILE: &str = "revoked";
const VERSION: u32 = 1;

/// A revoked certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revocation {
    /// The serial number, in lower-case hexadecimal digits.
    pub serial: String,
    pub name: String,
    /// The time of the revocation.
    #[serde(with = "super::timestamp")]
    pub revoked: Timestamp,
    /// The end of the certificate's validity.
    #[serde(with = "super::timestamp")]
    pub expires: Timestamp,
}

#[derive(Serialize, Deserialize)]
struct RevocationsRecord {
    version: u32,
    revoked: Vec<Revocation>,
}

/// The serial numbers of the revoked certificates, as they were in the file when it was read.
#[derive(Clone, Debug)]
pub struct Revoked {
    path: PathBuf,
    /// The version of the file that was read. None if there was no file.
    stamp: Option<Stamp>,
    serials: BTreeSet<String>,
}

/// Identifies one version of the file. Each version is a separate file that is renamed into place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    /// The modification time, in seconds and nanoseconds.
    modified: (i64, i64),
}

impl From<Metadata> for Stamp {
    fn from(m: Metadata) -> Stamp {
        Stamp { device: m.dev(), inode: m.ino(), size: m.size(), modified: (m.mtime(), m.mtime_nsec()) }
    }
}

impl Revoked {
    /// Reads the file in `directory` (`super::directory`). Without a file, or without the directory, nothing is
    /// revoked. Takes no lock.
    ///
    /// # Errors
    /// The file cannot be read or is damaged. A server must then refuse every client: it cannot know which ones are
    /// revoked.
    pub fn load(directory: &Path) -> Result<Revoked, String> {
        let path = directory.join(FILE);
        let (stamp, entries) = read(&path)?;
        Ok(Revoked { path, stamp, serials: entries.into_iter().map(|entry| entry.serial).collect_set() })
    }

    /// Reports whether the certificate with this serial number (`x509::Certificate::serial`) is revoked.
    pub fn contains(&self, serial: &[u8]) -> bool {
        self.serials.contains(&crate::api::uid::hex(serial))
    }

    /// Reports whether the file has changed since `load`. Calls stat(2) once. Returns true if that fails; `load` then
    /// returns the error.
    pub fn changed(&self) -> bool {
        match fs::metadata(&self.path) {
            Ok(metadata) => self.stamp != Some(metadata.into()),
            Err(e) if e.kind() == ErrorKind::NotFound => self.stamp.is_some(),
            Err(_) => true,
        }
    }
}

/// Returns the revoked certificates in `directory`, in the order of their revocation.
///
/// # Errors
/// As for `Revoked::load`.
pub fn revocations(directory: &Path) -> Result<Vec<Revocation>, String> {
    read(&directory.join(FILE)).map(|(_, entries)| entries)
}

fn read(path: &Path) -> Result<(Option<Stamp>, Vec<Revocation>), String> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok((None, Vec::new())),
        Err(e) => return Err(failed("open", path, &e)),
    };
    // Examine the open file, because another one may be renamed into its place at any time.
    let stamp = file.metadata().map_err(|e| failed("examine", path, &e))?.into();
    let damaged = |why: String| {
        let path = path.display();
        format!(
            "{path}: is damaged ({why}); restore it from a backup, or remove the directory that contains it and issue \
             new kubeconfigs"
        )
    };
    let content: RevocationsRecord =
        serde_json::from_slice(&directory::content(file, path)?).map_err(|e| damaged(e.to_string()))?;
    if content.version != VERSION {
        return Err(damaged(format!("version {}, expected {VERSION}", content.version)));
    }
    Ok((Some(stamp), content.revoked))
}

/// Returns the content of the file for these certificates.
pub(super) fn text(revoked: Vec<Revocation>) -> Result<Vec<u8>, String> {
    serde_json::to_vec(&RevocationsRecord { version: VERSION, revoked })
        .map_err(|e| format!("failed to write {FILE}: {e}"))
}
