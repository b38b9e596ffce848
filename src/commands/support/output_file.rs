//! The file into which `wherry support` writes. It gets its name when it is complete. A file that exists is never
//! changed.

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Only the owner can read the file, because it describes the machine in detail.
const MODE: u32 = 0o600;

/// A file without its final name. Dropping it removes it.
#[derive(Debug)]
pub(super) struct UnfinishedFile {
    file: File,
    path: PathBuf,
    aside: PathBuf,
    is_finished: bool,
}

impl UnfinishedFile {
    /// Creates a temporary file beside `path`.
    ///
    /// # Errors
    /// `path` exists, or its directory cannot be written.
    pub(super) fn create(path: &Path) -> Result<UnfinishedFile, String> {
        let failed = |why: &dyn std::fmt::Display| failed(path, why);
        let name = path.file_name().ok_or_else(|| failed(&"it has no file name"))?;
        if fs::symlink_metadata(path).is_ok() {
            return Err(existing(path));
        }
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}.new", std::process::id()));
        let aside = path.with_file_name(hidden);
        let file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(&aside).map_err(|e| failed(&e))?;
        Ok(UnfinishedFile { file, path: path.to_owned(), aside, is_finished: false })
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Gives the file its name, and returns its size in bytes.
    ///
    /// # Errors
    /// The file cannot be written, or another program has created a file with this name meanwhile.
    pub(super) fn finish(mut self) -> Result<u64, String> {
        let written = self.file.sync_all().and_then(|()| self.file.metadata());
        let size = written.map_err(|e| failed(&self.path, &e))?.len();
        rename_to_new(&self.aside, &self.path).map_err(|e| match e.kind() {
            ErrorKind::AlreadyExists => existing(&self.path),
            _ => failed(&self.path, &e),
        })?;
        self.is_finished = true;
        Ok(size)
    }
}

impl Drop for UnfinishedFile {
    fn drop(&mut self) {
        if !self.is_finished {
            let _ = fs::remove_file(&self.aside);
        }
    }
}

/// Renames a file unless there is already a file `to`.
fn rename_to_new(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        // The file system does not support the flag.
        Err(Errno::INVAL | Errno::NOSYS) => match fs::symlink_metadata(to) {
            Ok(_) => Err(ErrorKind::AlreadyExists.into()),
            Err(_) => fs::rename(from, to),
        },
        Err(e) => Err(e.into()),
    }
}

fn existing(path: &Path) -> String {
    format!("{} exists; remove it, or set --output to another file", path.display())
}

/// Returns the message of an error of the file.
pub(super) fn failed(path: &Path, why: &dyn std::fmt::Display) -> String {
    format!("failed to write {}: {why}; set --output to a file in another directory", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt as _;

    fn names(dir: &Path) -> Vec<String> {
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_finished_file_has_its_name_and_a_private_mode() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.tar.gz");
        let unfinished = UnfinishedFile::create(&path).unwrap();
        assert!(!path.exists());
        let mut file = unfinished.file();
        file.write_all(b"abc").unwrap();
        assert_eq!(unfinished.finish(), Ok(3));
        assert_eq!(names(dir.path()), ["a.tar.gz"]);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, MODE);
        let error = UnfinishedFile::create(&path).unwrap_err();
        assert!(error.starts_with(&path.display().to_string()) && error.contains("--output"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"abc");
    }

    #[test]
    fn an_error_leaves_nothing_behind_and_no_file_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.tar.gz");
        drop(UnfinishedFile::create(&path).unwrap());
        assert!(names(dir.path()).is_empty());
        let unfinished = UnfinishedFile::create(&path).unwrap();
        fs::write(&path, "of another program").unwrap();
        assert!(unfinished.finish().unwrap_err().contains(" exists; "));
        assert_eq!(fs::read_to_string(&path).unwrap(), "of another program");
        assert_eq!(names(dir.path()), ["a.tar.gz"]);
        let error = UnfinishedFile::create(&dir.path().join("none/a")).unwrap_err();
        assert!(error.contains("none/a: No such file") && error.contains("--output"), "{error}");
        assert!(UnfinishedFile::create(Path::new("/")).is_err());
    }
}
