//! One file in the manifest directory: decides by the name whether the file is read as a manifest, and reads it
//! safely.
//!
//! A path may lead to a FIFO, a device, a loop of symbolic links or a file of 1 GB (see `foreign::open`), and a file
//! may change while it is read.

use crate::api::document::MAX_BYTES;
use crate::foreign::{self, Links, Refused};
use rustix::fs::{FileType, Stat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Identifies the content of a file by its inode metadata: equal stamps mean equal content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    size: i64,
    /// Nanoseconds since the epoch, like `changed`.
    modified: i64,
    changed: i64,
}

impl Stamp {
    pub(super) fn of(stat: &Stat) -> Stamp {
        let nanos = |s: i64, n: i64| s.saturating_mul(1_000_000_000).saturating_add(n);
        Stamp {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size,
            modified: nanos(stat.st_mtime, stat.st_mtime_nsec as i64),
            changed: nanos(stat.st_ctime, stat.st_ctime_nsec as i64),
        }
    }

    /// Returns the time of the last change to content or metadata, in nanoseconds since the epoch.
    pub(super) fn latest(&self) -> i64 {
        self.modified.max(self.changed)
    }

    pub(super) fn same_inode(&self, other: &Stamp) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

/// What exists at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum FoundPath {
    Nothing,
    /// A directory entry. For a link, the stamp is that of its target, or None if the target does not exist.
    Entry {
        link: bool,
        hard_links: bool,
        stamp: Option<Stamp>,
    },
}

/// Why the content of a file was not read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Unread {
    /// The file no longer exists.
    Gone,
    /// The file changed while it was read; the caller reads it again later.
    Changing,
    /// The file exists but cannot be read. `passing` means that the cause may disappear without an inotify event.
    Broken { why: String, passing: bool },
}

/// Returns why an existing path does not lead to a readable file.
pub(super) fn unreadable(errno: Errno) -> Unread {
    let why = match errno {
        Errno::NOENT | Errno::NOTDIR => "a dangling symbolic link".to_owned(),
        Errno::LOOP => "a loop of symbolic links".to_owned(),
        other => format!("stat: {}", std::io::Error::from(other)),
    };
    Unread::Broken { why, passing: true }
}

/// Reads the regular file at a path that contains no symbolic links.
pub(super) fn read_regular(path: &Path) -> Result<(Vec<u8>, Stamp), Unread> {
    let failed = |doing: &str, e: std::io::Error| Unread::Broken { why: format!("{doing}: {e}"), passing: true };
    let mut file = foreign::open(path, Links::Refuse).map_err(|e| match e {
        Refused::Kind(FileType::Directory) => {
            broken("a directory; manifests in sub-directories are not read".to_owned())
        }
        // A symbolic link has replaced the file in the meantime.
        Refused::Kind(FileType::Symlink) => Unread::Changing,
        e if e.is_missing() => Unread::Gone,
        Refused::Failed(e) if e.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => Unread::Changing,
        Refused::Failed(e) => failed("open", e),
        other => broken(other.to_string()),
    })?;
    let stat = |file: &File| rustix::fs::fstat(file).map_err(|e| failed("fstat", e.into()));
    let before = stat(&file)?;
    if before.st_size > MAX_BYTES as i64 {
        return Err(broken(format!("{} bytes, larger than the limit of {MAX_BYTES}; split the file", before.st_size)));
    }
    let mut text = Vec::with_capacity(usize::try_from(before.st_size).unwrap_or(0) + 1);
    (&mut file).take(MAX_BYTES as u64 + 1).read_to_end(&mut text).map_err(|e| failed("read", e))?;
    let after = stat(&file)?;
    if Stamp::of(&before) != Stamp::of(&after) && i64::try_from(text.len()) != Ok(after.st_size) {
        return Err(Unread::Changing);
    }
    Ok((text, Stamp::of(&after)))
}

/// Reports whether every user of the machine can read the file: the mode bits for others permit reading the file and
/// searching its directory.
pub fn is_open(path: &Path) -> bool {
    let permits = |path: &Path, bit: u32| rustix::fs::stat(path).is_ok_and(|stat| stat.st_mode & bit != 0);
    permits(path, 0o004)
        && path.parent().is_none_or(|directory| directory.as_os_str().is_empty() || permits(directory, 0o001))
}

fn broken(why: String) -> Unread {
    Unread::Broken { why, passing: false }
}

/// Reports whether a file of this name is read as a manifest. Excludes dot files, temporary files of editors and
/// `lost+found`.
pub(super) fn counts(name: &OsStr) -> bool {
    let name = name.as_bytes();
    let sed = |n: &[u8]| n.len() == 9 && n.starts_with(b"sed") && n[3..].iter().all(u8::is_ascii_alphanumeric);
    let temporary = name.starts_with(b".")
        || name.ends_with(b"~")
        || (name.starts_with(b"#") && name.ends_with(b"#"))
        || [&b".swp"[..], b".swo", b".swx"].iter().any(|end| name.ends_with(end))
        // vim creates `4913` to test whether it can write. `sed -i` writes to `sedXXXXXX`, then renames that file.
        || name == b"4913"
        || sed(name)
        || name == b"lost+found";
    !name.is_empty() && !temporary
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dot_files_and_editor_backup_files_are_ignored() {
        for name in ["web.yaml", "web", "web.json", "x.txt", "x.yaml.bak", "seds.yaml", "4914", "#x"] {
            assert!(counts(OsStr::new(name)), "{name}");
        }
        for name in [".x", ".web.yaml.swp", "x~", "#x#", "x.swp", "4913", "sedAb12Cd", "..data", "lost+found"] {
            assert!(!counts(OsStr::new(name)), "{name}");
        }
    }
}
