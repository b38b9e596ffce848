//! Reads files for the archive. Every read happens in a thread with a time limit, because a path can be on a file
//! system that hangs.

use super::archive::{CollectedPart, MAX_PART};
use crate::foreign::{self, Links};
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

/// A path that does not respond within this time is considered to be on a file system that hangs.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// Runs work that reads `path`, within `PATIENCE`.
///
/// # Errors
/// The error of the work, with the path, or the work did not end in time.
pub(super) fn read<T: Send + 'static>(
    path: &Path,
    work: impl FnOnce(&Path) -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let of_thread = path.to_owned();
    let result = foreign::within(PATIENCE, move || work(&of_thread));
    let failed = |why: &dyn std::fmt::Display| format!("cannot read {}: {why}", path.display());
    result.map_err(|why| failed(&why))?.map_err(|why| failed(&why))
}

/// Returns the content of a regular file. The archive cuts a file that is too long.
///
/// # Errors
/// The file cannot be read, or its file system hangs.
pub(super) fn file(path: &Path) -> Result<CollectedPart, String> {
    content(path, Links::Follow).map(CollectedPart::from)
}

/// Returns the content of a regular file as text.
///
/// # Errors
/// The file cannot be read, or its file system hangs.
pub(super) fn text(path: &Path, links: Links) -> Result<String, String> {
    content(path, links).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

fn content(path: &Path, links: Links) -> Result<Vec<u8>, String> {
    read(path, move |path| {
        let file = foreign::open(path, links).map_err(|e| e.to_string())?;
        let mut bytes = Vec::new();
        // One byte more than the limit shows the archive that the file is longer.
        file.take(MAX_PART as u64 + 1).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
        Ok(bytes)
    })
}
