//! The drop-in for logind (S2) that sets the maximum delay of inhibitor locks. Only this one file is ever changed. The
//! functions call fsync and therefore run on a helper thread.

use crate::adapters::durable;
use crate::foreign::{self, Links};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

/// The file name. It sorts late, so that it overrides most other drop-ins.
pub const NAME: &str = "99-wherry.conf";
/// The temporary file. logind ignores it because its name does not end in .conf.
const ASIDE: &str = ".99-wherry.conf.new";
/// The maximum number of bytes that are read of an existing drop-in. Wherry's own is much shorter.
const MAX_SIZE: u64 = 4096;

/// Writes the drop-in durably. Returns false, and writes nothing, if the file already has this content.
///
/// # Errors
/// Names the failed operation, the path and the cause.
pub fn write(directory: &Path, delay: Duration) -> Result<bool, String> {
    let path = directory.join(NAME);
    let content = content(delay);
    if foreign::read(&path, Links::Follow, MAX_SIZE).is_ok_and(|old| old == content.as_bytes()) {
        return Ok(false);
    }
    let failed = |what: &str, at: &Path, e: &std::io::Error| format!("{what} {}: {e}", at.display());
    durable::make_directory(directory, 0o755).map_err(|e| failed("create the directory", directory, &e))?;
    let aside = directory.join(ASIDE);
    match fs::remove_file(&aside) {
        // Left by an earlier write that a power failure interrupted.
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(failed("remove", &aside, &e)),
        _ => {}
    }
    durable::replace(&path, &aside, content.as_bytes(), 0o644).map_err(|e| failed("write", &path, &e))?;
    durable::sync(directory).map_err(|e| failed("sync", directory, &e))?;
    Ok(true)
}

/// Like `write`, but does nothing and returns false if there is no drop-in.
///
/// # Errors
/// Names the failed operation, the path and the cause.
pub fn lower(directory: &Path, delay: Duration) -> Result<bool, String> {
    let path = directory.join(NAME);
    match fs::symlink_metadata(&path) {
        Ok(_) => write(directory, delay),
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(false),
        Err(e) => Err(format!("stat {}: {e}", path.display())),
    }
}

/// Removes the drop-in. Returns false if there is none. The old delay applies until logind reads its configuration
/// again.
///
/// # Errors
/// Names the path and the cause.
pub fn remove(directory: &Path) -> Result<bool, String> {
    let path = directory.join(NAME);
    match fs::remove_file(&path) {
        Ok(()) => Ok(true),
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(false),
        Err(e) => Err(format!("remove {}: {e}", path.display())),
    }
}

fn content(delay: Duration) -> String {
    // Round up: a shorter delay would cut the grace period of the last pods short.
    let seconds = delay.as_secs() + u64::from(delay.subsec_nanos() > 0);
    format!(
        "# Written by wherry: the sum of its shutdown grace periods. wherry rewrites this file when they change. The \
         file stays\n\
         # when graceful shutdown is turned off; wherry purge removes it.\n\
         [Login]\nInhibitDelayMaxSec={seconds}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(directory).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn s2_the_drop_in_is_written_only_if_its_content_differs() {
        let dir = tempfile::tempdir().unwrap();
        let conf = dir.path().join("systemd/logind.conf.d");
        assert_eq!(write(&conf, Duration::from_secs(30)), Ok(true));
        let path = conf.join(NAME);
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().skip(2).collect::<Vec<_>>(), ["[Login]", "InhibitDelayMaxSec=30"]);
        assert!(text.starts_with("# Written by wherry"), "{text}");
        let inode = || std::os::unix::fs::MetadataExt::ino(&fs::metadata(&path).unwrap());
        let before = inode();
        assert_eq!(write(&conf, Duration::from_secs(30)), Ok(false));
        assert_eq!(inode(), before);
        assert_eq!(write(&conf, Duration::from_millis(30_001)), Ok(true));
        assert!(fs::read_to_string(&path).unwrap().ends_with("\nInhibitDelayMaxSec=31\n"));
        assert_eq!(names(&conf), [NAME]);
        assert_eq!((remove(&conf), remove(&conf)), (Ok(true), Ok(false)));
        assert!(names(&conf).is_empty());
        assert_eq!(remove(&conf.join("missing")), Ok(false));
    }

    #[test]
    fn s2_the_drop_in_is_lowered_only_if_it_exists() {
        let dir = tempfile::tempdir().unwrap();
        let lowered = |seconds| lower(dir.path(), Duration::from_secs(seconds));
        assert_eq!(lowered(10), Ok(false));
        assert_eq!(lower(&dir.path().join("missing"), Duration::from_secs(10)), Ok(false));
        assert!(names(dir.path()).is_empty());
        write(dir.path(), Duration::from_secs(30)).unwrap();
        assert_eq!((lowered(10), lowered(10)), (Ok(true), Ok(false)));
        assert!(fs::read_to_string(dir.path().join(NAME)).unwrap().ends_with("\nInhibitDelayMaxSec=10\n"));
    }

    #[test]
    fn s2_no_other_file_is_touched() {
        let dir = tempfile::tempdir().unwrap();
        let (theirs, target) = (dir.path().join("10-theirs.conf"), dir.path().join("target"));
        fs::write(&theirs, "[Login]\nInhibitDelayMaxSec=5\n").unwrap();
        fs::write(&target, "theirs").unwrap();
        // A symbolic link at the path is replaced, not followed. The remains of an interrupted write are removed.
        std::os::unix::fs::symlink(&target, dir.path().join(NAME)).unwrap();
        std::os::unix::fs::symlink(&target, dir.path().join(ASIDE)).unwrap();
        assert_eq!(write(dir.path(), Duration::from_secs(7)), Ok(true));
        assert_eq!(fs::read_to_string(&theirs).unwrap(), "[Login]\nInhibitDelayMaxSec=5\n");
        assert_eq!(fs::read_to_string(&target).unwrap(), "theirs");
        assert_eq!(names(dir.path()), ["10-theirs.conf", NAME, "target"]);
        assert!(fs::symlink_metadata(dir.path().join(NAME)).unwrap().is_file());
    }

    #[test]
    fn an_error_names_the_path_and_the_cause() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        let error = write(&dir.path().join("file/conf.d"), Duration::from_secs(1)).unwrap_err();
        assert!(error.contains("file/conf.d") && error.contains("Not a directory"), "{error}");
        // A path that not even root can write.
        let error = write(Path::new("/proc/wherry"), Duration::from_secs(1)).unwrap_err();
        assert!(error.starts_with("create the directory /proc/wherry: "), "{error}");
        fs::create_dir(dir.path().join(NAME)).unwrap();
        let error = write(dir.path(), Duration::from_secs(1)).unwrap_err();
        assert!(error.starts_with(&format!("write {}/{NAME}: ", dir.path().display())), "{error}");
        assert_eq!(names(dir.path()), [NAME, "file"]);
    }
}
