//! Creates and syncs directories. Each error names the path.

use crate::adapters::durable;
use std::io::ErrorKind;
use std::path::Path;

/// Makes changes to the entries of a directory durable. Succeeds if the directory does not exist.
pub(super) fn sync_directory(directory: &Path) -> Result<(), String> {
    match durable::sync(directory) {
        // The directory does not exist: no record of this kind was ever written.
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(()),
        other => other.map_err(|e| failed("sync", directory, &e)),
    }
}

/// Creates a directory with the mode 0750, unless it exists.
pub(super) fn make_directory(directory: &Path) -> Result<(), String> {
    durable::make_directory(directory, 0o750).map_err(|e| failed("create directory", directory, &e))
}

/// Returns the text of an error: what failed, and on which path.
pub(super) fn failed(what: &str, path: &Path, e: &dyn std::fmt::Display) -> String {
    format!("failed to {what} {}: {e}", path.display())
}
