//! Lists of files for the archive: names, modes, owners, sizes and times. No file is opened.

use super::archive::CollectedPart;
use super::reading;
use crate::api::ordered::OrderSlice as _;
use crate::api::printable;
use jiff::Timestamp;
use std::fmt::Write as _;
use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// The maximum number of files in a list.
const MAX_FILES: usize = 20_000;
/// The maximum depth of directories below the root directory.
const MAX_DEPTH: usize = 8;
const HEAD: &str = "type mode owner:group bytes time-of-the-last-change path\n";

/// Lists the files of the manifest directory, which does not include sub-directories.
pub(super) fn manifests(directory: &Path) -> Result<CollectedPart, String> {
    reading::read(directory, |directory| list(directory, 1, |_| false))
}

/// Lists the files below the root directory, without the content of the pods' volumes.
pub(super) fn root(directory: &Path) -> Result<CollectedPart, String> {
    reading::read(directory, |directory| list(directory, MAX_DEPTH, is_of_volumes))
}

/// Reports whether a path below the root directory contains files of pods: `pods/UID/volumes` or
/// `claims/NAMESPACE/NAME`.
fn is_of_volumes(path: &Path) -> bool {
    let names: Vec<_> = path.components().map(|name| name.as_os_str().to_string_lossy()).collect();
    match names.iter().map(|name| &**name).collect::<Vec<&str>>()[..] {
        ["pods", _, name] => name.starts_with("volume"),
        ["claims", _, _] => true,
        _ => false,
    }
}

/// A directory that waits to be listed.
struct WaitingDirectory {
    path: PathBuf,
    depth: usize,
}

/// Lists the files in a directory and in the directories below it, `depth` levels in total. Directories for which
/// `is_left_out` returns true, and those on other file systems, are named but not listed.
fn list(directory: &Path, depth: usize, is_left_out: fn(&Path) -> bool) -> Result<CollectedPart, String> {
    let device = fs::metadata(directory).map_err(|e| e.to_string())?.dev();
    let mut text = String::from(HEAD);
    let mut files = 0;
    let mut waiting = vec![WaitingDirectory { path: directory.to_owned(), depth: 0 }];
    while let Some(WaitingDirectory { path, depth: at }) = waiting.pop() {
        let entries = match entries(&path) {
            Ok(entries) => entries,
            // Without the directory itself, there is nothing to list.
            Err(e) if at == 0 => return Err(e.to_string()),
            Err(e) => {
                text += &printable::line(&format!("cannot read {}: {e}", path.display()));
                text.push('\n');
                continue;
            }
        };
        for entry in entries {
            files += 1;
            if files > MAX_FILES {
                let note = format!("cut: contains the first {MAX_FILES} files");
                return Ok(CollectedPart { bytes: text.into_bytes(), note: Some(note) });
            }
            let relative = entry.strip_prefix(directory).unwrap_or(&entry);
            match fs::symlink_metadata(&entry) {
                Ok(metadata) => {
                    add_line(&mut text, relative, &metadata);
                    if metadata.is_dir() && metadata.dev() == device && at + 1 < depth && !is_left_out(relative) {
                        waiting.push(WaitingDirectory { path: entry, depth: at + 1 });
                    }
                }
                Err(e) => {
                    text += &printable::line(&format!("{}: {e}", relative.display()));
                    text.push('\n');
                }
            }
        }
    }
    Ok(text.into())
}

/// Returns the paths of the files in a directory in the order of their names, at most one more than `MAX_FILES`.
fn entries(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory)?.take(MAX_FILES + 1);
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.map(|e| e.path())).collect::<std::io::Result<_>>()?;
    paths.order();
    Ok(paths)
}

fn add_line(text: &mut String, path: &Path, metadata: &Metadata) {
    let kind = metadata.file_type();
    let kinds = [
        ('d', kind.is_dir()),
        ('l', kind.is_symlink()),
        ('-', kind.is_file()),
        ('p', kind.is_fifo()),
        ('s', kind.is_socket()),
        ('b', kind.is_block_device()),
        ('c', kind.is_char_device()),
    ];
    let kind = kinds.into_iter().find_map(|(letter, is_this)| is_this.then_some(letter)).unwrap_or('?');
    let changed = Timestamp::from_second(metadata.mtime()).map(|at| at.to_string()).unwrap_or_default();
    let (mode, uid, gid, size) = (metadata.mode() & 0o7777, metadata.uid(), metadata.gid(), metadata.size());
    let path = path.display().to_string();
    let path = printable::line(&path);
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{kind} {mode:04o} {uid}:{gid} {size:>10} {changed} {path}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn a_list_has_names_and_no_contents_and_stops_at_the_volumes_of_pods() {
        let dir = tempfile::tempdir().unwrap();
        for path in ["pods/u1/volumes/kubernetes.io~secret/s", "pods/u1/containers/main", "records/pods"] {
            fs::create_dir_all(dir.path().join(path)).unwrap();
        }
        fs::write(dir.path().join("records/pods/u1.json"), "s3cr3t").unwrap();
        fs::set_permissions(dir.path().join("records/pods/u1.json"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(dir.path().join("pods/u1/volumes/kubernetes.io~secret/s/password"), "s3cr3t").unwrap();
        fs::create_dir_all(dir.path().join("claims/shop/data")).unwrap();
        fs::write(dir.path().join("claims/shop/data/s3cr3t"), "").unwrap();
        fs::write(dir.path().join("a\nb\x1b"), "").unwrap();
        symlink("/nowhere", dir.path().join("link")).unwrap();
        let text = String::from_utf8(root(dir.path()).unwrap().bytes).unwrap();
        let paths: Vec<&str> = text.lines().skip(1).map(|line| line.rsplit(' ').next().unwrap()).collect();
        for path in [
            "pods/u1/volumes",
            "pods/u1/containers/main",
            "records/pods/u1.json",
            "a\\nb\\x1b",
            "link",
            "claims/shop/data",
        ] {
            assert!(paths.contains(&path), "{path}: {text}");
        }
        assert!(!text.contains("kubernetes.io~secret") && !text.contains("s3cr3t"), "{text}");
        let record = text.lines().find(|line| line.ends_with("u1.json")).unwrap();
        assert!(record.starts_with("- 0600 ") && record.contains(" 6 "), "{record}");
        let text = String::from_utf8(manifests(dir.path()).unwrap().bytes).unwrap();
        assert!(text.contains(" pods\n") && !text.contains("u1"), "{text}");
        let missing = dir.path().join("none");
        let error = root(&missing).unwrap_err();
        assert!(error.contains(&missing.display().to_string()) && error.contains("No such file"), "{error}");
    }

    #[test]
    fn a_list_has_a_limit() {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..=MAX_FILES {
            fs::write(dir.path().join(n.to_string()), "").unwrap();
        }
        // (Without the limit of time, which a slow machine can exceed.)
        let part = list(dir.path(), 1, |_| false).unwrap();
        assert_eq!(part.bytes.iter().filter(|b| **b == b'\n').count(), MAX_FILES + 1);
        assert!(part.note.unwrap().contains("20000"));
    }
}
