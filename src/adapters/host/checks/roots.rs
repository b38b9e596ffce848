//! The files of the kernel and of services that the checks read.

use std::fs;
use std::path::{Path, PathBuf};

/// The directories that contain the files of the kernel, of services and of the boot loader. Tests use their own.
#[derive(Clone, Debug)]
pub struct Roots {
    pub proc: PathBuf,
    pub sys: PathBuf,
    pub run: PathBuf,
    pub boot: PathBuf,
    pub etc: PathBuf,
}

impl Default for Roots {
    fn default() -> Roots {
        Roots::below(Path::new("/"))
    }
}

impl Roots {
    fn below(root: &Path) -> Roots {
        let [proc, sys, run, boot, etc] = ["proc", "sys", "run", "boot", "etc"].map(|name| root.join(name));
        Roots { proc, sys, run, boot, etc }
    }
}

/// Returns the trimmed text of a small file; None if it cannot be read.
pub(super) fn text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// Creates files with these contents below a temporary directory, and returns the roots in it.
#[cfg(test)]
pub(super) fn fake(files: &[(&str, &str)]) -> (tempfile::TempDir, Roots) {
    let dir = tempfile::tempdir().unwrap();
    for (path, content) in files {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    let roots = Roots::below(dir.path());
    (dir, roots)
}
