//! The files of time zones (RFC 8536).

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// The database of time zones, from the package tzdata.
const DATABASE: &str = "/usr/share/zoneinfo";
/// The time zone of the machine: see localtime(5).
const LOCAL: &str = "/etc/localtime";
/// The maximum size of a file, in bytes. The largest one of tzdata has fewer than 4,000.
const MAX_SIZE: u64 = 64 << 10;

/// Reads the file of a time zone: `Europe/Berlin`, or None for that of the machine. Returns None if there is no file.
///
/// # Errors
/// The file cannot be read, or is too large.
pub fn read(name: Option<&str>) -> Result<Option<Box<[u8]>>, String> {
    let path = name.map_or_else(|| PathBuf::from(LOCAL), |name| Path::new(DATABASE).join(name));
    let failed = |why: &dyn std::fmt::Display| format!("cannot read {}: {why}", path.display());
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
        Err(e) => return Err(failed(&e)),
    };
    let mut content = Vec::new();
    file.take(MAX_SIZE + 1).read_to_end(&mut content).map_err(|e| failed(&e))?;
    if content.len() as u64 > MAX_SIZE {
        return Err(failed(&format_args!("it has more than {MAX_SIZE} bytes")));
    }
    Ok(Some(content.into()))
}
