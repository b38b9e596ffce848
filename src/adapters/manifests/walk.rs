//! Follows a path one step at a time, like the kernel. Each step shows which directory to watch and which mount the
//! next step accesses. A step to a mount that must be avoided is refused before it is taken.

use crate::adapters::mount_table::{Mount, Table};
use rustix::fs::{FileType, Stat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

/// The kernel's limit on symbolic links in one path.
const MAX_LINKS: usize = 40;

/// Mounts that an inspection must not access.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Avoid {
    /// The ids of the mounts.
    pub(super) mounts: BTreeSet<u64>,
    /// Whether to avoid all foreign file systems, too.
    pub(super) foreign: bool,
}

/// The step was not taken, because this mount must be avoided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RefusedMount(pub(super) Mount);

/// A name whose change can redirect the path: a symbolic link, the end, or the first name that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct PathStep {
    /// Absolute path without links.
    pub(super) directory: OsString,
    pub(super) name: OsString,
    /// The id of the mount that contains the name; 0 if the mount table has no such mount.
    pub(super) mount: u64,
}

impl PathStep {
    pub(super) fn path(&self) -> PathBuf {
        Path::new(&self.directory).join(&self.name)
    }
}

pub(super) enum End {
    /// The path without links, and its stat data.
    Found(PathBuf, Stat),
    Failed(Errno),
}

pub(super) struct Way {
    pub(super) steps: Vec<PathStep>,
    pub(super) end: End,
}

pub(super) struct Walk<'a> {
    pub(super) table: &'a Table,
    pub(super) avoid: &'a Avoid,
    /// Called with the id of each mount before the mount is accessed.
    pub(super) at: &'a dyn Fn(u64),
}

impl Walk<'_> {
    /// Follows `rest` from `base`, which is absolute and contains no links.
    ///
    /// # Errors
    /// The path leads to this mount, which must be avoided.
    pub(super) fn follow(&self, base: &Path, rest: &Path) -> Result<Way, RefusedMount> {
        let mut here = base.to_owned();
        let mut todo = VecDeque::new();
        prepend(&mut todo, &mut here, rest);
        let mut steps = Vec::new();
        let mut links = 0;
        while let Some(name) = todo.pop_front() {
            if name == ".." {
                here.pop();
                continue;
            }
            let path = here.join(&name);
            let mount = self.touch(&path)?;
            let step = |here: &Path| PathStep { directory: here.into(), name: name.clone(), mount };
            let failed = |mut steps: Vec<PathStep>, errno| {
                steps.push(step(&here));
                Ok(Way { steps, end: End::Failed(errno) })
            };
            let stat = match rustix::fs::lstat(&path) {
                Ok(stat) => stat,
                Err(errno) => return failed(steps, errno),
            };
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Symlink => {
                    links += 1;
                    let target = match rustix::fs::readlink(&path, Vec::new()) {
                        _ if links > MAX_LINKS => return failed(steps, Errno::LOOP),
                        Ok(target) => target,
                        Err(errno) => return failed(steps, errno),
                    };
                    steps.push(step(&here));
                    let target = <OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(target.as_bytes());
                    prepend(&mut todo, &mut here, Path::new(target));
                }
                _ if todo.is_empty() => {
                    steps.push(step(&here));
                    return Ok(Way { steps, end: End::Found(path, stat) });
                }
                FileType::Directory => here = path,
                _ => return failed(steps, Errno::NOTDIR),
            }
        }
        // The root, or a path that ends in `..`.
        self.touch(&here)?;
        let end = match rustix::fs::lstat(&here) {
            Ok(stat) => End::Found(here, stat),
            Err(errno) => End::Failed(errno),
        };
        Ok(Way { steps, end })
    }

    /// Returns the stat data of a path whose parents contain no links. None if it does not exist or is on a mount to
    /// avoid.
    pub(super) fn one(&self, path: &Path) -> Option<Stat> {
        self.touch(path).ok()?;
        rustix::fs::lstat(path).ok()
    }

    /// Checks the mount of a path before it is accessed; returns the mount's id.
    fn touch(&self, path: &Path) -> Result<u64, RefusedMount> {
        let Some(mount) = self.table.of(path) else { return Ok(0) };
        if self.avoid.mounts.contains(&mount.id) || (self.avoid.foreign && mount.is_foreign()) {
            return Err(RefusedMount(mount));
        }
        (self.at)(mount.id);
        Ok(mount.id)
    }
}

/// Inserts the components of `path` in front of the remaining ones. An absolute path starts at the root again.
fn prepend(todo: &mut VecDeque<OsString>, here: &mut PathBuf, path: &Path) {
    if path.is_absolute() {
        *here = PathBuf::from("/");
    }
    for component in path.components().rev() {
        match component {
            Component::Normal(name) => todo.push_front(name.to_owned()),
            Component::ParentDir => todo.push_front("..".into()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn follow(table: &Table, avoid: &Avoid, path: &Path) -> Result<Way, RefusedMount> {
        Walk { table, avoid, at: &|_| {} }.follow(Path::new("/"), path)
    }

    #[test]
    fn every_link_is_a_step_and_the_first_missing_name_is_the_last_step() {
        let root = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(root.path()).unwrap();
        fs::create_dir_all(root.join("v1/deep")).unwrap();
        fs::write(root.join("v1/deep/a"), "").unwrap();
        symlink("v1", root.join("current")).unwrap();
        symlink("./x/../current/deep/a", root.join("a")).unwrap();
        fs::create_dir(root.join("x")).unwrap();
        let steps = |name: &str| {
            let way = follow(&Table::default(), &Avoid::default(), &root.join(name)).unwrap();
            let shown = |s: &PathStep| s.path().strip_prefix(&root).unwrap().display().to_string();
            let end = match way.end {
                End::Found(path, _) => Ok(path.strip_prefix(&root).unwrap().display().to_string()),
                End::Failed(errno) => Err(errno),
            };
            (way.steps.iter().map(shown).collect::<Vec<_>>(), end)
        };
        assert_eq!(steps("a"), (vec!["a".into(), "current".into(), "v1/deep/a".into()], Ok("v1/deep/a".into())));
        fs::remove_dir_all(root.join("v1/deep")).unwrap();
        assert_eq!(steps("a"), (vec!["a".into(), "current".into(), "v1/deep".into()], Err(Errno::NOENT)));
        symlink("loop", root.join("loop")).unwrap();
        assert_eq!(steps("loop").1, Err(Errno::LOOP));
        fs::write(root.join("file"), "").unwrap();
        assert_eq!(steps("file/x"), (vec!["file".into()], Err(Errno::NOTDIR)));
    }

    #[test]
    fn a_mount_to_avoid_is_refused_before_it_is_touched() {
        let root = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(root.path()).unwrap();
        symlink(root.join("hung/a"), root.join("a")).unwrap();
        let text = format!("1 0 8:1 / / rw - ext4 d rw\n7 1 0:9 / {}/hung rw - fuse.x s rw\n", root.display());
        let table = Table::parse(text.as_bytes());
        let refused = |avoid: Avoid| follow(&table, &avoid, &root.join("a")).err().map(|RefusedMount(m)| m.id);
        assert_eq!(refused(Avoid { mounts: [7].into(), foreign: false }), Some(7));
        assert_eq!(refused(Avoid { mounts: [9].into(), foreign: true }), Some(7));
        assert_eq!(refused(Avoid { mounts: [9].into(), foreign: false }), None, "only missing, not refused");
    }
}
