//! Measures the disk usage of pods: their volumes and logs. Containers may change the directories at the same time.

use crate::api::facts::{DiskUse, MeasuredPod};
use crate::api::layout::Layout;
use crate::api::ordered::CollectOrdered;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The unit of `st_blocks`, in bytes.
const BLOCK: u64 = 512;

/// The directories of a pod.
#[derive(Clone, Debug)]
pub struct Directories {
    /// The name and the path of each volume.
    pub volumes: Vec<(String, String)>,
    /// The directory that contains the log directories of the containers.
    pub logs: String,
}

impl Directories {
    pub fn of(pod: &MeasuredPod, layout: &Layout) -> Directories {
        let volume = |name: &String| (name.clone(), layout.empty_dir(&pod.uid, name));
        Directories { volumes: pod.volumes.iter().map(volume).collect(), logs: layout.pod_logs(&pod.name, &pod.uid) }
    }
}

/// The usage by the name of the volume or container. A directory that does not exist has no entry.
#[derive(Debug, Default)]
pub struct PodDiskUse {
    pub volumes: BTreeMap<String, DiskUse>,
    pub logs: BTreeMap<String, DiskUse>,
}

/// Measures the directories of a pod. Blocks as long as the file system does, so it must run on a helper thread.
pub fn measure(pod: &Directories) -> PodDiskUse {
    let volume = |(name, path): &(String, String)| Some((name.clone(), tree(Path::new(path)).ok()?));
    let containers = std::fs::read_dir(&pod.logs).into_iter().flatten().flatten();
    let log = |entry: std::fs::DirEntry| Some((entry.file_name().into_string().ok()?, tree(&entry.path()).ok()?));
    PodDiskUse {
        volumes: pod.volumes.iter().filter_map(volume).collect_map(),
        logs: containers.filter_map(log).collect_map(),
    }
}

/// Returns the usage of a directory and everything below it on the same file system. A file with several links is
/// counted once. A part that disappears in the meantime, or cannot be read, is not counted.
///
/// # Errors
/// The directory itself cannot be opened.
pub fn tree(root: &Path) -> Result<DiskUse, Errno> {
    const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::RDONLY);
    let root = rustix::fs::open(root, DIRECTORY, Mode::empty())?;
    let own = rustix::fs::fstat(&root)?;
    let mut walk = Walk { used: DiskUse { bytes: own.st_blocks as u64 * BLOCK, inodes: 1 }, linked: BTreeSet::new() };
    // Paths relative to the root: only one directory is open at a time, however deep the tree is.
    let mut below: Vec<Vec<u8>> = vec![b".".to_vec()];
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    while let Some(path) = below.pop() {
        let opened = rustix::fs::openat2(&root, OsStr::from_bytes(&path), DIRECTORY, Mode::empty(), resolve);
        if let Ok(directory) = opened {
            walk.entries(directory, own.st_dev, &path, &mut below);
        }
    }
    Ok(walk.used)
}

struct Walk {
    used: DiskUse,
    /// The files with several links that have been counted.
    linked: BTreeSet<u64>,
}

impl Walk {
    fn entries(&mut self, directory: OwnedFd, device: u64, path: &[u8], below: &mut Vec<Vec<u8>>) {
        let Ok(mut entries) = Dir::read_from(&directory) else { return };
        while let Some(Ok(entry)) = entries.read() {
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let Ok(stat) = rustix::fs::statat(directory.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
            let seen = !is_directory && stat.st_nlink > 1 && !self.linked.insert(stat.st_ino);
            if stat.st_dev != device || seen {
                continue;
            }
            self.used.bytes = self.used.bytes.saturating_add((stat.st_blocks as u64).saturating_mul(BLOCK));
            self.used.inodes += 1;
            if is_directory {
                below.push([path, b"/", name.to_bytes()].concat());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_tree_is_measured_without_following_links_and_with_each_file_once() {
        let dir = tempfile::tempdir().unwrap();
        let (root, outside) = (dir.path().join("volume"), dir.path().join("outside"));
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("big"), vec![1; 1 << 20]).unwrap();
        fs::write(root.join("a/b/file"), vec![1; 64 << 10]).unwrap();
        fs::hard_link(root.join("a/b/file"), root.join("again")).unwrap();
        symlink(&outside, root.join("link")).unwrap();
        let used = tree(&root).unwrap();
        // The root, a, a/b, the file, the link.
        assert_eq!(used.inodes, 5);
        assert!((64 << 10..512 << 10).contains(&used.bytes), "{used:?}");
        assert!(tree(&root.join("missing")).is_err() && tree(&root.join("link")).is_err());
    }

    #[test]
    fn a_deep_tree_is_measured_with_few_descriptors() {
        let dir = tempfile::tempdir().unwrap();
        let mut path = dir.path().to_owned();
        for _ in 0..1500 {
            path.push("d");
        }
        fs::create_dir_all(&path).unwrap();
        assert_eq!(tree(dir.path()).unwrap().inodes, 1501);
    }
}
