//! The format of the files in a root directory, in the file `format`: a number, and the version of Wherry that wrote
//! the files last. A later version that changes a format so that this one would misread it increases the number. An
//! older version then refuses to start, before it changes anything: a downgrade never sets records aside as corrupt.

use super::directories::failed;
use crate::adapters::durable::{self, Written};
use crate::foreign::{self, Links, Refused};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

/// The newest format that this version of Wherry reads and writes. Version 0.1.0 began with 1, without the file.
const FORMAT: u32 = 1;
const FILE: &str = "format";
/// The maximum size of the file, in bytes.
const MAX_BYTES: u64 = 4096;

/// The content of the file.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateFormat {
    format: u32,
    /// The version of Wherry.
    version: String,
}

/// Checks that this version can use the files of the root directory. Returns their format. Changes nothing. A format
/// that is missing, unwritten (after a power cut) or damaged is accepted, because the files themselves have versions
/// and checksums too.
///
/// # Errors
/// A newer version has written the files in a format that this one does not know; with the remedy.
pub fn check(root: &Path) -> Result<Option<StateFormat>, String> {
    match read(root) {
        Some(StateFormat { format, version }) if format > FORMAT => Err(format!(
            "{}: Wherry {version} has written the files of this directory in format {format}, but this version, {}, \
             supports only format {FORMAT}; nothing was changed. Install Wherry {version} or later again, or remove \
             all pods and files with its `wherry purge --yes`",
            root.join(FILE).display(),
            env!("CARGO_PKG_VERSION"),
        )),
        found => Ok(found),
    }
}

/// Writes the file unless it is up to date. `found` is its content. A failure is only logged, because a full or
/// read-only disk must not prevent the start.
pub(super) fn record(root: &Path, found: Option<StateFormat>) {
    let ours = StateFormat { format: FORMAT, version: env!("CARGO_PKG_VERSION").to_owned() };
    if found.as_ref() == Some(&ours) {
        return;
    }
    if let Some(StateFormat { version, .. }) = found {
        log::info!("the files were last written by another version version={version} root={}", root.display());
    }
    if let Err(e) = write(root, &ours) {
        log::warn!("{}", failed("write", &root.join(FILE), &e));
    }
}

fn read(root: &Path) -> Option<StateFormat> {
    let path = root.join(FILE);
    let content = match foreign::read(&path, Links::Refuse, MAX_BYTES) {
        Ok(content) if durable::is_unwritten(&content) => return None,
        Ok(content) => content,
        Err(Refused::Failed(_)) => return None,
        Err(refused) => {
            log::warn!("ignoring the format of the files file={} error={refused}", path.display());
            return None;
        }
    };
    serde_json::from_slice(&content)
        .inspect_err(|e| log::warn!("ignoring the format of the files file={} error={e}", path.display()))
        .ok()
}

fn write(root: &Path, format: &StateFormat) -> std::io::Result<()> {
    let path = root.join(FILE);
    let aside = durable::appended(&path, ".new");
    let mut text = serde_json::to_vec(format)?;
    text.push(b'\n');
    match durable::put(&path, &aside, &text, 0o640, || fs::rename(&aside, &path))? {
        Written::Durable => Ok(()),
        Written::InDirectory => durable::sync(root),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_newer_format_are_refused_and_others_are_noted() {
        let dir = tempfile::tempdir().unwrap();
        let (root, file) = (dir.path(), dir.path().join(FILE));
        let noted = || fs::read_to_string(&file).unwrap();
        let ours = format!("{{\"format\":1,\"version\":\"{}\"}}\n", env!("CARGO_PKG_VERSION"));
        // The files of version 0.1.0, a power cut during the first write, and garbage.
        for before in
            [None, Some(""), Some("\0\0\0"), Some("{"), Some("{\"format\":1,\"version\":\"0.0.9\",\"more\":1}")]
        {
            before.iter().for_each(|text| fs::write(&file, text).unwrap());
            record(root, check(root).unwrap());
            assert_eq!(noted(), ours, "{before:?}");
        }
        let newer = "{\"format\":2,\"version\":\"9.1.0\"}";
        fs::write(&file, newer).unwrap();
        let why = check(root).unwrap_err();
        for part in
            ["/format: Wherry 9.1.0", "in format 2", "only format 1", "nothing was changed", "Install Wherry 9.1.0"]
        {
            assert!(why.contains(part), "{why}");
        }
        assert_eq!(noted(), newer);
        fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &file).unwrap();
        assert_eq!(check(root), Ok(None), "a link is not followed");
    }
}
