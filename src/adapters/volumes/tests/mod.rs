use super::*;
use crate::api::volume::{FsGroup, HostPathType, Medium};
use rustix::fs::{CWD, FileType, Mode};
use rustix::mount::{MountFlags, MountPropagationFlags, mount_bind, mount_bind_recursive, mount_change};
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

mod claims;
mod host_paths;
mod removal;

pub(super) struct Place {
    pub(super) dir: tempfile::TempDir,
    pub(super) layout: Layout,
}

pub(super) fn place() -> Place {
    let dir = tempfile::tempdir().unwrap();
    // Others may enter the directory, regardless of the umask of the test.
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let base = dir.path().to_str().unwrap();
    // The agent creates the root directory when it starts.
    fs::create_dir(dir.path().join("root")).unwrap();
    let layout = Layout { root: format!("{base}/root"), logs: format!("{base}/logs"), log_links: None };
    Place { dir, layout }
}

/// A test can leave mounts, and a directory that contains a mount cannot be removed.
impl Drop for Place {
    fn drop(&mut self) {
        let _ = mounts::unmount(self.at("").trim_end_matches('/'), Where::Below);
    }
}

impl Place {
    /// Returns a path below the temporary directory.
    pub(super) fn at(&self, path: &str) -> String {
        format!("{}/{path}", self.dir.path().to_str().unwrap())
    }

    /// Returns a path below the volumes of the pod u1.
    pub(super) fn volume(&self, path: &str) -> String {
        self.at(&format!("root/pods/u1/volumes/kubernetes.io~{path}"))
    }

    pub(super) fn set_up(&self, volumes: &[Volume]) -> Result<(), VolumeError> {
        set_up(&self.layout, "u1", volumes)
    }

    pub(super) fn tear_down(&self) -> Result<(), VolumeError> {
        tear_down(&self.layout, "u1")
    }

    /// Returns the mount points below the temporary directory, as this thread sees them.
    pub(super) fn mounts(&self) -> Vec<String> {
        let table = fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
        let points = table.lines().filter_map(|line| line.split(' ').nth(4)).map(str::to_owned);
        points.filter(|point| Path::new(point).starts_with(self.dir.path())).collect()
    }

    /// Returns the number of open descriptors of files below the temporary directory. Others do not count, because
    /// other tests run in the same process.
    pub(super) fn descriptors(&self) -> usize {
        let open = fs::read_dir("/proc/self/fd").unwrap().flatten();
        open.filter(|fd| fs::read_link(fd.path()).is_ok_and(|to| to.starts_with(self.dir.path()))).count()
    }
}

/// Runs a test in its own mount namespace, which ends with the thread. Needs root; otherwise reports that the test is
/// skipped.
pub(super) fn with_mounts(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(move || {
        #[allow(deprecated)]
        let separate = rustix::thread::unshare(rustix::thread::UnshareFlags::NEWNS)
            .and_then(|()| mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC));
        match separate {
            Ok(()) => test(),
            Err(e) => eprintln!("skipped: a mount namespace needs root: {e}"),
        }
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Ends the loop of another thread, even when the test fails.
#[derive(Default)]
pub(super) struct End(std::sync::atomic::AtomicBool);

impl End {
    pub(super) fn is_reached(&self) -> bool {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Signals the end when the result is dropped.
    pub(super) fn after(&self) -> impl Drop + '_ {
        struct Guard<'e>(&'e End);
        impl Drop for Guard<'_> {
            fn drop(&mut self) {
                self.0.0.store(true, std::sync::atomic::Ordering::Relaxed);
            }
        }
        Guard(self)
    }
}

pub(super) fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped: a change of the owner needs root");
    }
    root
}

pub(super) fn tmpfs(on: &str) {
    rustix::mount::mount("tmpfs", on, "tmpfs", MountFlags::empty(), None).unwrap();
}

pub(super) fn volume(name: &str, kind: VolumeKind) -> Volume {
    Volume { name: name.into(), kind, fs_group: None }
}

pub(super) fn empty_dir(name: &str, medium: Medium) -> Volume {
    volume(name, VolumeKind::EmptyDir(medium))
}

pub(super) fn host_path(name: &str, path: &str, check: HostPathType) -> Volume {
    volume(name, VolumeKind::HostPath { path: path.into(), check })
}

pub(super) fn files(name: &str, plugin: FilesPlugin, list: &[(&str, u32, &str)]) -> Volume {
    let file = |(path, mode, text): &(&str, u32, &str)| VolumeFile {
        path: (*path).into(),
        mode: *mode,
        owner: None,
        bytes: text.as_bytes().to_vec(),
    };
    volume(name, VolumeKind::Files { plugin, files: list.iter().map(file).collect() })
}

pub(super) fn of_group(volume: Volume, gid: u32) -> Volume {
    Volume { fs_group: Some(FsGroup { gid, only_on_root_mismatch: false }), ..volume }
}

/// Returns the permission bits of a file, without following a link.
pub(super) fn mode(path: &str) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

pub(super) fn gid(path: &str) -> u32 {
    fs::symlink_metadata(path).unwrap().gid()
}

pub(super) fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Returns the names in a directory, sorted.
pub(super) fn names(path: &str) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(path).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn an_empty_dir_is_writable_for_all_and_keeps_its_files() {
    let place = place();
    let volumes = [empty_dir("disk", Medium::Disk)];
    place.set_up(&volumes).unwrap();
    let dir = place.volume("empty-dir/disk");
    assert_eq!(mode(&dir), 0o777);
    fs::write(format!("{dir}/file"), "x").unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).unwrap();
    place.set_up(&volumes).unwrap();
    // The container changed the mode of its volume. A repeated set-up does not undo that.
    assert_eq!((mode(&dir), read(&format!("{dir}/file")).as_str()), (0o700, "x"));
    assert!(Path::new(&place.at("root/pods/u1/plugins/kubernetes.io~empty-dir/disk/ready")).is_file());
    for above in ["root/pods", "root/pods/u1", "root/pods/u1/volumes", "root/pods/u1/volumes/kubernetes.io~empty-dir"] {
        assert_eq!(mode(&place.at(above)), 0o750, "{above}");
    }
    place.tear_down().unwrap();
    assert!(names(&place.at("root/pods/u1")).is_empty());
}

#[test]
fn a_group_gets_an_empty_dir_once_with_all_files_in_it() {
    if !is_root() {
        return;
    }
    let place = place();
    let dir = place.volume("empty-dir/v");
    // A set-up that was interrupted, or whose marker was lost in a power cut, left these files.
    fs::create_dir_all(format!("{dir}/deep/er")).unwrap();
    fs::write(format!("{dir}/deep/file"), "").unwrap();
    fs::set_permissions(format!("{dir}/deep/file"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(place.at("precious"), "").unwrap();
    symlink(place.at("precious"), format!("{dir}/link")).unwrap();
    let volumes = [of_group(empty_dir("v", Medium::Disk), 4711)];
    place.set_up(&volumes).unwrap();
    for (path, wanted) in [("", 0o2775), ("/deep", 0o2775), ("/deep/er", 0o2775), ("/deep/file", 0o660)] {
        let path = format!("{dir}{path}");
        assert_eq!((mode(&path) & wanted, gid(&path)), (wanted, 4711), "{path}");
    }
    assert_eq!((gid(&format!("{dir}/link")), gid(&place.at("precious"))), (4711, 0));
    // The marker now exists, so the files belong to the containers.
    std::os::unix::fs::chown(format!("{dir}/deep"), None, Some(5)).unwrap();
    place.set_up(&volumes).unwrap();
    assert_eq!(gid(&format!("{dir}/deep")), 5);
}

#[test]
fn on_root_mismatch_leaves_the_files_of_a_matching_root() {
    if !is_root() {
        return;
    }
    let place = place();
    let dir = place.volume("empty-dir/v");
    let mut volume = of_group(empty_dir("v", Medium::Disk), 4711);
    place.set_up(std::slice::from_ref(&volume)).unwrap();
    fs::write(format!("{dir}/file"), "").unwrap();
    std::os::unix::fs::chown(format!("{dir}/file"), None, Some(5)).unwrap();
    let marker = place.at("root/pods/u1/plugins/kubernetes.io~empty-dir/v/ready");
    for (only_on_root_mismatch, wanted) in [(true, 5), (false, 4711)] {
        fs::remove_file(&marker).unwrap();
        volume.fs_group = Some(FsGroup { gid: 4711, only_on_root_mismatch });
        place.set_up(std::slice::from_ref(&volume)).unwrap();
        assert_eq!(gid(&format!("{dir}/file")), wanted);
    }
}

#[test]
fn memory_is_a_tmpfs_of_its_size_and_is_mounted_once() {
    with_mounts(|| {
        let place = place();
        let volumes = [
            empty_dir("limited", Medium::Memory { size: Some(8 << 20) }),
            of_group(empty_dir("default", Medium::Memory { size: None }), 4711),
        ];
        for _ in 0..3 {
            place.set_up(&volumes).unwrap();
            fs::write(place.volume("empty-dir/limited/kept"), "x").unwrap();
        }
        assert_eq!(place.mounts().len(), 2);
        let limited = place.volume("empty-dir/limited");
        let stat = rustix::fs::statfs(&limited).unwrap();
        #[allow(clippy::cast_sign_loss, clippy::unnecessary_cast)]
        let size = stat.f_blocks * stat.f_bsize as u64;
        assert_eq!((mode(&limited), size), (0o1777, 8 << 20));
        let group = place.volume("empty-dir/default");
        assert_eq!((mode(&group), gid(&group)), (0o3777, 4711));
        // After a reboot the marker exists, but the mount does not.
        rustix::mount::unmount(&limited, rustix::mount::UnmountFlags::empty()).unwrap();
        place.set_up(&volumes).unwrap();
        assert_eq!(place.mounts().len(), 2);
        place.tear_down().unwrap();
        assert_eq!(place.mounts(), [""; 0]);
    });
}

#[test]
fn huge_pages_are_a_hugetlbfs_with_pages_of_that_size() {
    with_mounts(|| {
        if !Path::new("/sys/kernel/mm/hugepages/hugepages-2048kB").exists() {
            eprintln!("skipped: this kernel has no huge pages of 2 MiB");
            return;
        }
        let place = place();
        let medium = Medium::HugePages { page_size: 2 << 20, size: Some(4 << 20) };
        place.set_up(&[empty_dir("huge", medium)]).unwrap();
        let stat = rustix::fs::statfs(place.volume("empty-dir/huge")).unwrap();
        assert_eq!((stat.f_bsize, stat.f_blocks), (2 << 20, 2));
        place.tear_down().unwrap();
    });
}

#[test]
fn another_file_system_on_a_volume_is_an_error_and_stays() {
    with_mounts(|| {
        let place = place();
        let dir = place.volume("empty-dir/v");
        fs::create_dir_all(&dir).unwrap();
        fs::create_dir(place.at("other")).unwrap();
        mount_bind(place.at("other"), &dir).unwrap();
        let error = place.set_up(&[empty_dir("v", Medium::Memory { size: None })]).unwrap_err();
        assert_eq!(error, VolumeError::SetUp { volume: "v".into(), cause: Cause::Taken(dir) });
        assert_eq!(place.mounts().len(), 1);
    });
}

#[test]
fn only_a_config_map_is_written_to_the_disk() {
    with_mounts(|| {
        let place = place();
        let all = [FilesPlugin::ConfigMap, FilesPlugin::Secret, FilesPlugin::Projected, FilesPlugin::DownwardApi];
        let volumes: Vec<Volume> =
            all.into_iter().map(|plugin| files("v", plugin, &[("key", 0o640, "value")])).collect();
        for _ in 0..2 {
            place.set_up(&volumes).unwrap();
        }
        for (plugin, root, in_memory) in [
            ("configmap", 0o777, false),
            ("secret", 0o1777, true),
            ("projected", 0o1777, true),
            ("downward-api", 0o1777, true),
        ] {
            let dir = place.volume(&format!("{plugin}/v"));
            assert_eq!((read(&format!("{dir}/key")).as_str(), mode(&dir)), ("value", root));
            assert_eq!(place.mounts().contains(&dir), in_memory, "{plugin}");
        }
        assert_eq!(place.mounts().len(), 3);
    });
}

#[test]
fn a_secret_is_never_updated_on_the_disk() {
    with_mounts(|| {
        let place = place();
        let secret = |text| files("s", FilesPlugin::Secret, &[("key", 0o600, text)]);
        let update = |volume: &Volume| update_files(&place.layout, "u1", volume);
        let dir = place.volume("secret/s");
        let not_set_up = || VolumeError::SetUp { volume: "s".into(), cause: Cause::NotSetUp(dir.clone()) };
        assert_eq!(update(&secret("a")), Err(not_set_up()));
        place.set_up(&[secret("a")]).unwrap();
        assert_eq!(update(&secret("a")), Ok(false));
        assert_eq!(update(&secret("b")), Ok(true));
        assert_eq!(read(&format!("{dir}/key")), "b");
        rustix::mount::unmount(&dir, rustix::mount::UnmountFlags::empty()).unwrap();
        assert_eq!(update(&secret("c")), Err(not_set_up()));
        assert!(names(&dir).is_empty());
        assert_eq!(update(&empty_dir("e", Medium::Disk)), Ok(false));
    });
}

#[test]
fn one_bad_volume_does_not_keep_the_others_from_their_set_up() {
    let place = place();
    let volumes = [
        host_path("h", &place.at("missing"), HostPathType::File),
        files("c", FilesPlugin::ConfigMap, &[("key", 0o644, "x")]),
        empty_dir("..", Medium::Disk),
    ];
    let error = place.set_up(&volumes).unwrap_err().to_string();
    let missing = place.at("missing");
    assert_eq!(
        error,
        format!("MountVolume.SetUp failed for volume \"h\" : hostPath type check failed: {missing} is not a file")
    );
    assert_eq!(read(&place.volume("configmap/c/key")), "x");
    let error = place.set_up(&volumes[2..]).unwrap_err().to_string();
    assert_eq!(error, "MountVolume.SetUp failed for volume \"..\" : the name \"..\" cannot be part of a path");
    assert!(set_up(&place.layout, "../u1", &volumes[1..2]).is_err());
    assert!(tear_down(&place.layout, "").is_err());
}
