//! The files of a volume with any names and contents, among files and links that a container left there: nothing outside of the
//! pod's directory is created, changed or removed, and a volume that is set up has its files.

#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};
use wherry::adapters::volumes;
use wherry::api::layout::Layout;
use wherry::api::volume::{FilesPlugin, Medium, Volume, VolumeFile, VolumeKind};

#[derive(Arbitrary, Debug)]
enum Step {
    SetUp {
        files: Vec<File>,
    },
    Update {
        files: Vec<File>,
    },
    EmptyDir,
    /// A container, or a user of the machine, creates something in the volume.
    Plant {
        path: String,
        what: Planted,
    },
    TearDown,
}

#[derive(Arbitrary, Debug)]
struct File {
    path: String,
    mode: u16,
    bytes: Vec<u8>,
}

#[derive(Arbitrary, Debug)]
enum Planted {
    File,
    Directory,
    LinkOutside,
    LinkTo(String),
}

fn kind(files: Vec<File>) -> VolumeKind {
    let file = |file: File| VolumeFile { path: file.path, mode: u32::from(file.mode) & 0o777, owner: None, bytes: file.bytes };
    // The files of a ConfigMap are on the disk, so no mount is needed.
    VolumeKind::Files { plugin: FilesPlugin::ConfigMap, files: files.into_iter().map(file).collect() }
}

fn volume(name: &str, kind: VolumeKind) -> Volume {
    Volume { name: name.into(), kind, fs_group: None }
}

/// The file at a path below `base`. None if the path leaves it.
fn below(base: &Path, path: &str) -> Option<PathBuf> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let valid = |part: &&str| *part != ".." && *part != "." && !part.contains('\0') && part.len() < 200;
    (!parts.is_empty() && parts.len() < 8 && parts.iter().all(valid)).then(|| base.join(parts.join("/")))
}

/// All paths outside of the root directory, with the contents of the files.
fn outside(base: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![base.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).expect("a directory").flatten() {
            let path = entry.path();
            if path == base.join("root") {
                continue;
            }
            found.insert(path.clone(), fs::read(&path).unwrap_or_default());
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(path);
            }
        }
    }
    found
}

fuzz_target!(|steps: Vec<Step>| {
    let base = tempfile::tempdir().expect("a directory");
    let base = base.path();
    fs::create_dir_all(base.join("root")).expect("a directory");
    fs::create_dir_all(base.join("host/sub")).expect("a directory");
    fs::write(base.join("host/sub/keep"), "keep").expect("a file");
    let before = outside(base);
    let text = base.to_str().expect("a path");
    let layout = Layout { root: format!("{text}/root"), logs: format!("{text}/logs"), log_links: None };
    let directory = base.join("root/pods/u1/volumes/kubernetes.io~configmap/v");
    let mut planted = false;
    for step in steps.into_iter().take(12) {
        match step {
            Step::SetUp { files } => {
                let wanted = volume("v", kind(files));
                let done = volumes::set_up(&layout, "u1", std::slice::from_ref(&wanted));
                if done.is_ok() && !planted {
                    has_its_files(&directory, &wanted);
                }
            }
            Step::Update { files } => {
                let wanted = volume("v", kind(files));
                let done = volumes::update_files(&layout, "u1", &wanted);
                if done.is_ok() && !planted {
                    has_its_files(&directory, &wanted);
                }
            }
            Step::EmptyDir => {
                let _ = volumes::set_up(&layout, "u1", &[volume("e", VolumeKind::EmptyDir(Medium::Disk))]);
            }
            Step::Plant { path, what } => {
                let Some(place) = below(&directory, &path) else { continue };
                // The container's own directories only: never through a link.
                let real = place.parent().is_some_and(|parent| parent.canonicalize().is_ok_and(|real| real == parent));
                if !real {
                    continue;
                }
                planted = true;
                let _ = match what {
                    Planted::File => fs::write(&place, "planted"),
                    Planted::Directory => fs::create_dir(&place),
                    Planted::LinkOutside => symlink(base.join("host/sub"), &place),
                    Planted::LinkTo(target) if target.contains('\0') => Ok(()),
                    Planted::LinkTo(target) => symlink(target, &place),
                };
            }
            Step::TearDown => {
                if volumes::tear_down(&layout, "u1").is_ok() {
                    assert!(!directory.exists(), "something is left");
                    planted = false;
                }
            }
        }
        assert_eq!(outside(base), before, "something outside of the root directory has changed");
    }
});

/// If two files have the same path, the last one counts. Empty parts and `.` do not count.
fn has_its_files(directory: &Path, volume: &Volume) {
    let VolumeKind::Files { files, .. } = &volume.kind else { return };
    // `components()` keeps a `.` at the beginning.
    let path = |file: &VolumeFile| -> PathBuf {
        Path::new(&file.path).components().filter(|part| *part != Component::CurDir).collect()
    };
    let last: BTreeMap<PathBuf, &VolumeFile> = files.iter().map(|file| (path(file), file)).collect();
    for (path, file) in last {
        let found = fs::read(directory.join(&path));
        assert!(found.as_ref().is_ok_and(|bytes| *bytes == file.bytes), "{path:?}: {found:?}");
    }
}
