//! The files of the kernel and of services that the checks read.

use std::fs;
use std::path::{Path, PathBuf};

/// The directories that contain the files of the kernel and of services. Tests use their own.
#[derive(Clone, Debug)]
pub struct Roots {
    pub proc: PathBuf,
    pub sys: PathBuf,
    pub run: PathBuf,
}

impl Default for Roots {
    fn default() -> Roots {
        Roots { proc: "/proc".into(), sys: "/sys".into(), run: "/run".into() }
    }
}

/// Returns the trimmed text of a small file; None if it cannot be read.
pub(super) fn text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}
