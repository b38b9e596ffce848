//! Detects that the path of the root directory leads to another directory than at the start: its file system was
//! unmounted, or another one is mounted above it. A write would then reach the wrong file system, and would be lost or
//! misleading once the right one is back.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The root directory as it was at the start. Copies share what they find out.
#[derive(Clone, Debug)]
pub(super) struct RootPlace {
    root: PathBuf,
    /// The content of the file `id`. None if there is none, as in unit tests; then any directory is accepted.
    id: Option<String>,
    /// The device and the inode of the directory with this id.
    seen: Arc<Mutex<Option<(u64, u64)>>>,
}

impl RootPlace {
    pub(super) fn of(root: &Path) -> RootPlace {
        RootPlace { root: root.to_owned(), id: id_in(root), seen: Arc::default() }
    }

    /// Checks that the path leads to the directory with the same id. It may have another device number, for example
    /// after it was mounted again.
    ///
    /// # Errors
    /// The path leads to another directory, or to none; with the remedy.
    pub(super) fn check(&self) -> Result<(), String> {
        let Some(id) = &self.id else { return Ok(()) };
        let here = fs::metadata(&self.root).map(|meta| (meta.dev(), meta.ino())).map_err(|e| self.failed(&e))?;
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if *seen == Some(here) {
            return Ok(());
        }
        if id_in(&self.root).as_ref() != Some(id) {
            return Err(self.failed(&"it is not the directory in which this wherry has started"));
        }
        *seen = Some(here);
        Ok(())
    }

    fn failed(&self, why: &dyn std::fmt::Display) -> String {
        format!("{}: {why}; mount its file system again", self.root.display())
    }
}

fn id_in(root: &Path) -> Option<String> {
    fs::read_to_string(root.join("id")).ok().map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_directory_with_the_same_id_is_accepted() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        let make = |id: &str| {
            fs::create_dir(&root).unwrap();
            fs::write(root.join("id"), id).unwrap();
        };
        let other_place = |name: &str| fs::rename(&root, dir.path().join(name)).unwrap();
        make("1\n");
        let place = RootPlace::of(&root);
        assert_eq!((place.check(), place.check()), (Ok(()), Ok(())));
        // The file system is unmounted: the directory below it is empty.
        other_place("first");
        let missing = place.check().unwrap_err();
        assert!(
            missing.contains("/root: No such file") && missing.contains("mount its file system again"),
            "{missing}"
        );
        fs::create_dir(&root).unwrap();
        assert!(place.check().unwrap_err().contains("not the directory in which this wherry has started"));
        other_place("empty");
        make("2\n");
        assert!(place.check().is_err());
        other_place("second");
        // It is back, on another device.
        make("1");
        assert_eq!((place.check(), place.clone().check()), (Ok(()), Ok(())));
        assert_eq!(RootPlace::of(&dir.path().join("empty")).check(), Ok(()), "without an id");
    }
}
