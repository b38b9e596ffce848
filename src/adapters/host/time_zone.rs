//! The files of time zones (RFC 8536).

use crate::foreign::{self, Links};
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
/// The file cannot be read, is not a regular file, or is too large.
pub fn read(name: Option<&str>) -> Result<Option<Box<[u8]>>, String> {
    read_file(&name.map_or_else(|| PathBuf::from(LOCAL), |name| Path::new(DATABASE).join(name)))
}

fn read_file(path: &Path) -> Result<Option<Box<[u8]>>, String> {
    match foreign::read(path, Links::Follow, MAX_SIZE) {
        Ok(content) => Ok(Some(content.into())),
        Err(refused) if refused.is_missing() => Ok(None),
        Err(refused) => Err(format!("cannot read {}: {refused}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_zone_that_is_missing_is_no_error_and_one_that_is_no_file_or_too_large_is() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("zone");
        assert_eq!(read_file(&path), Ok(None));
        assert_eq!(read_file(&path.join("below")), Ok(None));
        fs::write(&path, b"TZif").expect("a file");
        assert_eq!(read_file(&path), Ok(Some(b"TZif".as_slice().into())));
        fs::write(&path, vec![0; 70_000]).expect("a file");
        let why = read_file(&path).expect_err("too large");
        assert!(why.contains("70000 bytes, larger than the limit of 65536"), "{why}");
        let why = read_file(directory.path()).expect_err("a directory");
        assert!(why.contains("a directory, not a regular file"), "{why}");
    }
}
