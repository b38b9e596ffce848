//! One inspection of the directory or of one of its files. This module contains every call that may block. It runs on
//! a helper thread or in a helper process (`inspection_job`), and returns plain data, which the event loop evaluates.

use super::file::{self, FoundPath, Stamp, Unread};
use super::unfinished::Unfinished;
use super::walk::{Avoid, End, PathStep, RefusedMount, Walk, Way};
use super::watch::{Role, Watched};
use crate::adapters::mount_table::{Mount, Table};
use rustix::fs::FileType;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::fd::BorrowedFd;
use std::path::Path;

/// Maximum number of attempts to follow a path that changes in the meantime.
const TRIES: usize = 3;

/// A request for an inspection. Serialized for the helper process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Question {
    /// The manifest directory as configured.
    pub(super) directory: OsString,
    pub(super) subject: InspectionSubject,
    pub(super) mountinfo: OsString,
    pub(super) avoid: Avoid,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum InspectionSubject {
    Directory {
        /// Whether to include the stamps of the files.
        stamps: bool,
    },
    File {
        /// The manifest directory, without links.
        base: OsString,
        name: OsString,
        /// The stamp of the last read. The file is read only if its stamp differs.
        known: Option<Stamp>,
        /// Whether the steps of its symbolic link may be watched.
        watch: bool,
    },
}

/// The result of an inspection, without the text of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum InspectionAnswer {
    Directory(DirectorySeen),
    File(FileSeen),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DirectorySeen {
    /// The names of the files that are read as manifests, or why the directory cannot be read.
    pub(super) names: Result<BTreeSet<OsString>, String>,
    /// The stamps of files that are not links, if requested.
    pub(super) stamps: Vec<(OsString, Stamp)>,
    /// The path of the directory without links, and its stamp.
    pub(super) real: Option<(OsString, Stamp)>,
    pub(super) mount: Option<Mount>,
    pub(super) steps: Vec<PathStep>,
    pub(super) watched: Watched,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileSeen {
    pub(super) found: FoundPath,
    pub(super) reading: FileReading,
    /// The stamp of the configured directory, if the file was not found.
    pub(super) directory: Option<Stamp>,
    /// The steps of a link; empty for any other file.
    pub(super) steps: Vec<PathStep>,
    pub(super) watched: Watched,
    /// Whether inotify misses changes, because the file or the target of its link is on a foreign file system.
    pub(super) foreign: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum FileReading {
    /// Not read, because the stamp is unchanged.
    Same,
    Text {
        stamp: Stamp,
        /// Whether the file is world-readable.
        open: bool,
    },
    Not(Unread),
}

/// How an inspection ended.
#[derive(Debug)]
pub(super) enum InspectionOutcome {
    Seen(Box<InspectionAnswer>, Vec<u8>),
    /// The path leads to a mount that must be avoided. The mount was not accessed.
    Refused(Mount),
    /// The file system of the mount did not respond in time.
    Hung(Option<Mount>, Unfinished),
    /// The inspection could not be performed.
    Failed(String),
}

impl Question {
    pub(super) fn refuses(&self, mount: &Mount) -> bool {
        self.avoid.mounts.contains(&mount.id) || (self.avoid.foreign && mount.is_foreign())
    }
}

/// Performs the inspection on the current thread. Calls `at` with the id of each mount before it is accessed.
pub(super) fn run(question: &Question, inotify: Option<BorrowedFd<'_>>, at: &dyn Fn(u64)) -> InspectionOutcome {
    let table = Table::read(Path::new(&question.mountinfo));
    let walk = Walk { table: &table, avoid: &question.avoid, at };
    let answer = match &question.subject {
        InspectionSubject::Directory { stamps } => directory(&walk, Path::new(&question.directory), *stamps, inotify)
            .map(|seen| (InspectionAnswer::Directory(seen), Vec::new())),
        InspectionSubject::File { base, name, known, watch } => {
            let inotify = inotify.filter(|_| *watch);
            let question =
                FileQuestion { directory: Path::new(&question.directory), base: Path::new(base), name, known: *known };
            question.inspect(&walk, inotify).map(|(seen, text)| (InspectionAnswer::File(seen), text))
        }
    };
    match answer {
        Ok((answer, text)) => InspectionOutcome::Seen(Box::new(answer), text),
        Err(RefusedMount(mount)) => InspectionOutcome::Refused(mount),
    }
}

fn directory(
    walk: &Walk<'_>,
    path: &Path,
    with_stamps: bool,
    inotify: Option<BorrowedFd<'_>>,
) -> Result<DirectorySeen, RefusedMount> {
    // Watch first, then read, so that no change in between is missed.
    let (way, watched) = watched_way(walk, Path::new("/"), path, inotify, &Role::Way, &Role::Directory)?;
    let (names, real) = match way.end {
        End::Found(real, stat) => (list(&real), Some((real.into_os_string(), Stamp::of(&stat)))),
        End::Failed(errno) => (Err(cannot_be_read(errno.into())), None),
    };
    let mount = real.as_ref().and_then(|(real, _)| walk.table.of(Path::new(real)));
    let mut stamps = Vec::new();
    if let (true, Some((real, _)), Ok(names)) = (with_stamps, &real, &names) {
        for name in names {
            // Links, and files on another mount, are inspected individually.
            if let Some(stat) = walk.one(&Path::new(real).join(name))
                && FileType::from_raw_mode(stat.st_mode) != FileType::Symlink
            {
                stamps.push((name.clone(), Stamp::of(&stat)));
            }
        }
    }
    Ok(DirectorySeen { names, stamps, real, mount, steps: way.steps, watched })
}

struct FileQuestion<'a> {
    directory: &'a Path,
    base: &'a Path,
    name: &'a OsStr,
    known: Option<Stamp>,
}

impl FileQuestion<'_> {
    fn inspect(&self, walk: &Walk<'_>, inotify: Option<BorrowedFd<'_>>) -> Result<(FileSeen, Vec<u8>), RefusedMount> {
        let foreign = |steps: &[PathStep]| {
            steps.iter().any(|step| walk.table.of(&step.path()).is_some_and(|mount| mount.is_foreign()))
        };
        let seen = |found, reading, directory| FileSeen {
            found,
            reading,
            directory,
            steps: Vec::new(),
            watched: Watched::default(),
            foreign: false,
        };
        let way = walk.follow(self.base, Path::new(self.name))?;
        if way.steps.len() == 1 {
            // The file is not a symbolic link.
            let foreign = foreign(&way.steps);
            let (mut seen, text) = match way.end {
                End::Failed(Errno::NOENT | Errno::NOTDIR) => {
                    let directory = walk.follow(Path::new("/"), self.directory)?;
                    (seen(FoundPath::Nothing, FileReading::Not(Unread::Gone), stamp(&directory)), Vec::new())
                }
                End::Failed(errno) => {
                    let found = FoundPath::Entry { link: false, hard_links: false, stamp: None };
                    (seen(found, FileReading::Not(file::unreadable(errno)), None), Vec::new())
                }
                End::Found(path, stat) => {
                    let stamp = Stamp::of(&stat);
                    let (reading, text) = self.read(&path, &stat);
                    let hard_links = stat.st_nlink > 1;
                    (seen(FoundPath::Entry { link: false, hard_links, stamp: Some(stamp) }, reading, None), text)
                }
            };
            seen.foreign = foreign;
            return Ok((seen, text));
        }
        let step = |step| Role::Step { file: self.name.to_owned(), step };
        let target = Role::Target(self.name.to_owned());
        let (way, watched) = watched_way(walk, self.base, Path::new(self.name), inotify, &step, &target)?;
        let entry = |stamp| FoundPath::Entry { link: true, hard_links: false, stamp };
        let (mut seen, text) = match &way.end {
            End::Failed(errno) => (seen(entry(None), FileReading::Not(file::unreadable(*errno)), None), Vec::new()),
            End::Found(path, stat) => {
                let (reading, text) = self.read(path, stat);
                let reading = match reading {
                    // The target was removed after the link was followed.
                    FileReading::Not(Unread::Gone) => FileReading::Not(Unread::Changing),
                    other => other,
                };
                (seen(entry(Some(Stamp::of(stat))), reading, None), text)
            }
        };
        seen.foreign = foreign(&way.steps);
        seen.steps = way.steps;
        seen.watched = watched;
        Ok((seen, text))
    }

    fn read(&self, path: &Path, stat: &rustix::fs::Stat) -> (FileReading, Vec<u8>) {
        if self.known == Some(Stamp::of(stat)) {
            return (FileReading::Same, Vec::new());
        }
        match file::read_regular(path) {
            Ok((text, stamp)) => (FileReading::Text { stamp, open: file::is_open(path) }, text),
            Err(why) => (FileReading::Not(why), Vec::new()),
        }
    }
}

/// Follows a path and watches its steps and its end. Repeats this up to `TRIES` times, until the path stays the same.
fn watched_way(
    walk: &Walk<'_>,
    base: &Path,
    rest: &Path,
    inotify: Option<BorrowedFd<'_>>,
    step: &dyn Fn(OsString) -> Role,
    end: &Role,
) -> Result<(Way, Watched), RefusedMount> {
    let mut way = walk.follow(base, rest)?;
    let mut watched = Watched::default();
    for _ in 0..TRIES {
        watched = Watched::default();
        watched.steps(inotify, &way.steps, step);
        if let End::Found(real, stat) = &way.end
            && (*end != Role::Directory || FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
        {
            watched.add(inotify, real, end.clone());
        }
        let again = walk.follow(base, rest)?;
        let same = again.steps == way.steps && stamp(&again).is_some() == stamp(&way).is_some();
        way = again;
        if same {
            break;
        }
    }
    Ok((way, watched))
}

fn stamp(way: &Way) -> Option<Stamp> {
    match &way.end {
        End::Found(_, stat) => Some(Stamp::of(stat)),
        End::Failed(_) => None,
    }
}

fn cannot_be_read(e: std::io::Error) -> String {
    format!("cannot be read: {e}")
}

/// Returns the names of the files that are read as manifests. Fails if the directory cannot be read completely.
pub(super) fn list(directory: &Path) -> Result<BTreeSet<OsString>, String> {
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(directory).map_err(cannot_be_read)? {
        let name = entry.map_err(cannot_be_read)?.file_name();
        if file::counts(&name) {
            names.insert(name);
        }
    }
    Ok(names)
}
