//! On real directories with a real inotify; only the clock is the test's.

use super::*;
use crate::api::time::Wall;
use mio::{Events, Poll, Token};
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::process::Command;

const CHECK: Duration = Duration::from_secs(20);

/// A root directory, a manifest directory in it, and one life of `Manifests`.
struct Lab {
    poll: Poll,
    manifests: Manifests,
    boot: Boot,
    /// Added to the wall clock: with 10 s every file has settled.
    ahead: Duration,
    root: tempfile::TempDir,
}

fn pod(name: &str) -> String {
    pod_with(name, "i:1")
}

fn pod_with(name: &str, image: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{containers: [{{name: c, image: '{image}'}}]}}\n"
    )
}

impl Lab {
    /// The directory is there, and nothing was read yet.
    fn new() -> Lab {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("m")).unwrap();
        Lab::on(root)
    }

    fn on(root: tempfile::TempDir) -> Lab {
        let poll = Poll::new().unwrap();
        let directory = root.path().join("m");
        let mut settings = Settings::new(&directory, &root.path().join("root"), "lab", CHECK);
        let mountinfo = root.path().join("mountinfo");
        if mountinfo.exists() {
            settings.mountinfo = mountinfo;
        }
        let manifests = Manifests::open(settings, poll.registry(), Token(7));
        Lab { poll, manifests, boot: Boot(1_000_000_000_000), ahead: Duration::from_secs(10), root }
    }

    /// With the first set read.
    fn started() -> (Lab, Vec<String>) {
        Lab::new().start()
    }

    fn start(mut self) -> (Lab, Vec<String>) {
        let now = self.now();
        assert!(self.manifests.next_deadline() <= now.boot);
        let first = names(&self.manifests.due(now).expect("D1: the first set is always given"));
        (self, first)
    }

    /// wherry ends and is started again. Its records were written.
    fn again(mut self) -> (Lab, Vec<String>) {
        self.flush();
        self.again_without_flush()
    }

    fn again_without_flush(self) -> (Lab, Vec<String>) {
        let Lab { root, .. } = self;
        Lab::on(root).start()
    }

    fn flush(&mut self) {
        let now = self.now();
        self.manifests.flush(now);
    }

    fn now(&self) -> Now {
        let wall = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap() + self.ahead;
        Now { boot: self.boot, wall: Wall(wall.as_nanos() as i64) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join("m").join(name)
    }

    /// Written aside and renamed into place, as it should be done.
    fn place(&self, name: &str, text: &str) {
        let aside = self.root.path().join("aside");
        fs::write(&aside, text).unwrap();
        fs::rename(aside, self.path(name)).unwrap();
    }

    /// The same from within the directory, where it is another file system.
    fn place_copy(&self, name: &str, text: &str) {
        fs::write(self.path(".aside"), text).unwrap();
        fs::rename(self.path(".aside"), self.path(name)).unwrap();
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// All events that are there: the set given last, if any was.
    fn events(&mut self) -> Option<Vec<String>> {
        self.raw_events().map(|pods| names(&pods))
    }

    fn raw_events(&mut self) -> Option<Vec<Rc<Pod>>> {
        let mut last = None;
        let mut events = Events::with_capacity(8);
        self.poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
        for event in &events {
            assert_eq!(event.token(), Token(7));
            let now = self.now();
            last = self.manifests.ready(now).or(last);
        }
        while self.manifests.next_deadline() <= self.boot {
            let now = self.now();
            last = self.manifests.due(now).or(last);
        }
        last
    }

    /// Time passes, and every deadline in it is kept.
    fn pass(&mut self, time: Duration) -> Option<Vec<String>> {
        let end = self.boot + time;
        let mut last = self.events();
        while self.manifests.next_deadline() <= end {
            self.boot = self.manifests.next_deadline().max(self.boot);
            let now = self.now();
            last = self.manifests.due(now).map(|pods| names(&pods)).or(last);
        }
        self.boot = end;
        last
    }

    fn desired(&self) -> Vec<String> {
        self.manifests.pods().map(|pod| pod.name.name.to_string()).collect()
    }

    /// The standing problems, without the directory's path.
    fn problems(&self) -> Vec<String> {
        let root = self.root.path().to_string_lossy().into_owned();
        let all = self.manifests.problems().flat_map(|standing| &standing.problems);
        all.map(|problem| problem.to_string().replace(&format!("{root}/m"), "M").replace(&root, "R")).collect()
    }
}

fn names(pods: &[Rc<Pod>]) -> Vec<String> {
    pods.iter().map(|pod| pod.name.name.to_string()).collect()
}

fn some(names: &[&str]) -> Option<Vec<String>> {
    Some(names.iter().map(|name| (*name).to_owned()).collect())
}

const MOMENT: Duration = Duration::from_millis(20);
const NONE: [&str; 0] = [];

#[test]
fn d1_the_first_set_is_given_when_all_was_read_even_if_it_is_empty() {
    let (mut lab, first) = Lab::started();
    assert_eq!(first, NONE);
    assert_eq!(lab.pass(NET * 3), None);

    let lab = Lab::new();
    for name in ["b.yaml", "a.json", "c"] {
        lab.write(name, &pod(&name[..1]));
    }
    assert_eq!(lab.start().1, ["a", "b", "c"]);
}

#[test]
fn d1_a_directory_that_is_not_there_counts_as_read() {
    let lab = Lab::new();
    fs::remove_dir(lab.root.path().join("m")).unwrap();
    let (mut lab, first) = lab.start();
    assert_eq!(first, NONE);
    assert!(lab.problems()[0].starts_with("M: cannot be read: No such file"), "{:?}", lab.problems());
    // Made later, it is seen at once.
    fs::create_dir(lab.root.path().join("m")).unwrap();
    assert_eq!(lab.events(), None);
    assert_eq!(lab.problems(), NONE);
    lab.place("a.yaml", &pod("a"));
    assert_eq!(lab.events(), some(&["a"]));
}

#[test]
fn d1_a_directory_whose_parents_are_missing_too_is_seen_when_it_comes() {
    let root = tempfile::tempdir().unwrap();
    let target = root.path().join("x/y/z");
    symlink(&target, root.path().join("m")).unwrap();
    let (mut lab, _) = Lab::on(root).start();
    fs::create_dir(lab.root.path().join("x")).unwrap();
    lab.events();
    fs::create_dir_all(&target).unwrap();
    lab.events();
    lab.events();
    lab.place("a.yaml", &pod("a"));
    assert_eq!(lab.events(), some(&["a"]));
}

#[test]
fn a_file_renamed_into_place_is_read_at_once() {
    let (mut lab, _) = Lab::started();
    lab.ahead = Duration::ZERO;
    lab.place("b.yaml", &pod("b"));
    assert_eq!(lab.events(), some(&["b"]));
    lab.place("a.yaml", &pod("a"));
    assert_eq!(lab.events(), some(&["a", "b"]));
    lab.place("a.yaml", &pod("a2"));
    assert_eq!(lab.events(), some(&["a2", "b"]));
}

#[test]
fn d2_a_file_changed_in_place_is_read_when_its_writer_closes_it() {
    let (mut lab, _) = Lab::started();
    lab.ahead = Duration::ZERO;
    let mut file = fs::File::create(lab.path("a.yaml")).unwrap();
    file.write_all(pod("a").as_bytes()).unwrap();
    assert_eq!(lab.pass(MOMENT), None);
    file.write_all(format!("---\n{}", pod("b")).as_bytes()).unwrap();
    drop(file);
    assert_eq!(lab.events(), some(&["a", "b"]));
    // Truncated and not yet written: nothing goes.
    let mut file = fs::File::create(lab.path("a.yaml")).unwrap();
    assert_eq!(lab.pass(MOMENT), None);
    file.write_all(pod("c").as_bytes()).unwrap();
    drop(file);
    assert_eq!(lab.events(), some(&["c"]));
}

#[test]
fn d2_a_file_whose_writer_never_closes_it_is_read_when_it_rests() {
    let (mut lab, _) = Lab::started();
    lab.ahead = Duration::ZERO;
    let mut file = fs::File::create(lab.path("a.yaml")).unwrap();
    file.write_all(pod("a").as_bytes()).unwrap();
    assert_eq!(lab.pass(Duration::from_millis(900)), None);
    file.write_all(format!("---\n{}", pod("b")).as_bytes()).unwrap();
    assert_eq!(lab.pass(Duration::from_millis(200)), None);
    assert_eq!(lab.pass(Duration::from_secs(1)), some(&["a", "b"]));
}

#[test]
fn a_removed_file_is_believed_to_be_gone_after_ten_milliseconds() {
    let (mut lab, _) = Lab::started();
    lab.place("a.yaml", &pod("a"));
    lab.place("b.yaml", &pod("b"));
    lab.events();
    fs::remove_file(lab.path("a.yaml")).unwrap();
    assert_eq!(lab.events(), None);
    assert_eq!(lab.manifests.next_deadline(), lab.boot + GONE);
    assert_eq!(lab.pass(GONE), some(&["b"]));
    fs::rename(lab.path("b.yaml"), lab.root.path().join("elsewhere")).unwrap();
    assert_eq!(lab.pass(MOMENT), some(&[]));
}

#[test]
fn editors_take_no_pod_away_and_add_none() {
    let (mut lab, _) = Lab::started();
    lab.place("web.yaml", &pod("web"));
    lab.events();
    // vim: what was is renamed, and the file written anew.
    lab.write("4913", "");
    fs::remove_file(lab.path("4913")).unwrap();
    lab.write(".web.yaml.swp", &pod("swap"));
    fs::rename(lab.path("web.yaml"), lab.path("web.yaml~")).unwrap();
    assert_eq!(lab.events(), None);
    let mut file = fs::File::create(lab.path("web.yaml")).unwrap();
    assert_eq!(lab.pass(MOMENT), None);
    file.write_all(pod("web2").as_bytes()).unwrap();
    drop(file);
    fs::remove_file(lab.path("web.yaml~")).unwrap();
    assert_eq!(lab.events(), some(&["web2"]));
    assert_eq!(lab.pass(MOMENT), None);
    // sed: a file of its own, renamed over it.
    let done = Command::new("sed").args(["-i", "s/web2/web3/"]).arg(lab.path("web.yaml")).status().unwrap();
    assert!(done.success());
    assert_eq!(lab.events(), some(&["web3"]));
    // emacs: a lock that is a link to nothing, and an auto-save file.
    symlink("me@host.1:2", lab.path(".#web.yaml")).unwrap();
    lab.write("#web.yaml#", &pod("auto"));
    assert_eq!(lab.pass(NET * 2), None);
    assert_eq!((lab.desired(), lab.problems()), (vec!["web3".to_owned()], vec![]));
}

#[test]
fn unchanged_documents_keep_the_very_same_pod() {
    let (mut lab, _) = Lab::started();
    let other = format!("{}---\n{}", pod("a"), pod("b"));
    lab.place("x.yaml", &other);
    let before = lab.raw_events().unwrap();
    // A comment, another order of keys: nothing changes, so nothing is said.
    lab.place("x.yaml", &format!("# why\n{other}# end\n"));
    assert_eq!(lab.events(), None);
    lab.place("x.yaml", &format!("{}---\n{}", pod("b"), pod_with("a", "i:2")));
    let after = lab.raw_events().unwrap();
    assert_eq!(names(&after), ["b", "a"]);
    assert!(Rc::ptr_eq(&after[0], &before[1]));
    assert_ne!(after[1].uid, before[0].uid);
}

#[test]
fn d2_a_broken_file_keeps_what_it_last_said_over_a_restart_too() {
    for broken in ["", "# nothing\n", "a: [", "kind: pod\n", "\0", &"x".repeat(2 << 20)] {
        let (mut lab, _) = Lab::started();
        lab.place("a.yaml", &format!("{}---\n{}", pod("a"), pod("b")));
        lab.place("z.yaml", &pod("z"));
        let uids: Vec<_> = lab.raw_events().unwrap().iter().map(|pod| pod.uid.clone()).collect();
        lab.flush();
        lab.write("a.yaml", broken);
        assert_eq!(lab.pass(NET), None, "{broken:.20}");
        let problems = lab.problems();
        assert!(problems.len() == 1 && problems[0].starts_with("M/a.yaml"), "{problems:?}");
        let (lab, first) = lab.again();
        assert_eq!(first, ["a", "b", "z"], "{broken:.20}");
        assert_eq!(lab.manifests.pods().map(|pod| pod.uid.clone()).collect::<Vec<_>>(), uids);
        assert_eq!(lab.problems(), problems);
        // And again, now that the record was all there was.
        let (mut lab, first) = lab.again();
        assert_eq!(first, ["a", "b", "z"]);
        lab.place("a.yaml", &pod("b"));
        assert_eq!(lab.events(), some(&["b", "z"]));
        assert_eq!(lab.problems(), NONE);
    }
}

#[test]
fn d2_a_broken_document_keeps_its_own_last_version_and_the_others_go_on() {
    let (mut lab, _) = Lab::started();
    let file = |parts: &[&str]| parts.join("---\n");
    let (a, b, c) = (pod("a"), pod("b"), pod("c"));
    let broken_b = b.replace("image", "imgae");
    lab.place("x.yaml", &file(&[&a, &b, &c]));
    lab.events();
    lab.flush();
    // b is broken, a is changed, c is gone.
    lab.place("x.yaml", &file(&[&pod_with("a", "i:2"), &broken_b]));
    let pods = lab.raw_events().unwrap();
    assert_eq!(names(&pods), ["a", "b"]);
    assert_eq!(pods[0].containers()[0].image.as_deref(), Some("i:2"));
    let problems = lab.problems();
    assert_eq!(
        problems,
        [
            "M/x.yaml:9: spec.containers[0].imgae: unknown field; did you mean image?",
            "M/x.yaml:9: spec.containers[0].image: Required value"
        ]
    );
    let (mut lab, first) = lab.again();
    assert_eq!((first.as_slice(), lab.problems()), (&["a".to_owned(), "b".to_owned()][..], problems));
    // One of which nobody can say which it was takes nothing away.
    lab.place("x.yaml", &file(&[&b.replace("name: b", "nmae: b")]));
    assert_eq!(lab.events(), None);
    assert_eq!(lab.desired(), ["a", "b"]);
    // What surely is no pod is no broken pod.
    lab.place("x.yaml", &file(&[&a, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\n"]));
    assert_eq!(lab.events(), some(&["a"]));
    assert_eq!(lab.problems(), ["M/x.yaml:7: kind: ConfigMap is not supported yet"]);
}

#[test]
fn d2_a_file_that_went_while_wherry_was_down_is_undesired() {
    let (mut lab, _) = Lab::started();
    lab.place("a.yaml", &pod("a"));
    lab.place("b.yaml", &pod("b"));
    lab.events();
    lab.flush();
    fs::remove_file(lab.path("a.yaml")).unwrap();
    let (lab, first) = lab.again_without_flush();
    assert_eq!(first, ["b"]);
    // Nor does it come back when the directory goes.
    let mut lab = lab;
    lab.flush();
    fs::remove_dir_all(lab.root.path().join("m")).unwrap();
    let (_, first) = lab.again();
    assert_eq!(first, ["b"]);
}

#[test]
fn d2_a_missing_directory_keeps_what_it_last_said_over_a_restart_too() {
    let (mut lab, _) = Lab::started();
    lab.place("a.yaml", &pod("a"));
    lab.place("b.yaml", &pod("b"));
    lab.events();
    lab.flush();
    let directory = lab.root.path().join("m");
    fs::remove_dir_all(&directory).unwrap();
    assert_eq!(lab.pass(NET), None);
    assert_eq!(lab.desired(), ["a", "b"]);
    assert!(lab.problems()[0].contains("the pods that it last named go on"), "{:?}", lab.problems());
    let (mut lab, first) = lab.again();
    assert_eq!(first, ["a", "b"]);
    // A file in its place is no directory either.
    fs::write(&directory, "").unwrap();
    assert_eq!(lab.pass(NET), None);
    fs::remove_file(&directory).unwrap();
    // Made again, it is still being filled for a second; then it is the truth.
    fs::create_dir(&directory).unwrap();
    assert_eq!(lab.pass(MOMENT), None);
    lab.place("b.yaml", &pod("b"));
    assert_eq!(lab.pass(Duration::from_millis(500)), None);
    assert_eq!(lab.pass(Duration::from_secs(1)), some(&["b"]));
    assert_eq!(lab.problems(), NONE);
    // It is watched again.
    lab.place("c.yaml", &pod("c"));
    assert_eq!(lab.events(), some(&["b", "c"]));
}

#[test]
fn d2_a_directory_renamed_away_and_another_into_place_is_followed() {
    let (mut lab, _) = Lab::started();
    lab.place("a.yaml", &pod("a"));
    lab.events();
    let directory = lab.root.path().join("m");
    let other = lab.root.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("b.yaml"), pod("b")).unwrap();
    fs::rename(&directory, lab.root.path().join("old")).unwrap();
    assert_eq!(lab.pass(MOMENT), None);
    fs::rename(&other, &directory).unwrap();
    assert_eq!(lab.pass(Duration::from_secs(2)), some(&["b"]));
}

#[test]
fn d2_an_empty_directory_on_another_mount_than_the_recorded_one_is_missing() {
    let lab = Lab::new();
    let root = lab.root.path().to_string_lossy().into_owned();
    let without = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n";
    let with = format!("{without}2 1 8:2 / {root}/m rw - ext4 /dev/sdb1 rw\n");
    let mountinfo = lab.root.path().join("mountinfo");
    fs::write(&mountinfo, &with).unwrap();
    let (mut lab, _) = lab.again_without_flush();
    lab.place("a.yaml", &pod("a"));
    assert_eq!(lab.events(), some(&["a"]));
    // What is noted of the mount is noted at the next look.
    let now = lab.now();
    lab.manifests.reload(now);
    lab.flush();
    let text = fs::read(lab.path("a.yaml")).unwrap();
    fs::remove_file(lab.path("a.yaml")).unwrap();
    fs::write(&mountinfo, without).unwrap();
    let (mut lab, first) = lab.again_without_flush();
    assert_eq!(first, ["a"]);
    assert!(lab.problems()[0].contains("its file system (M) is not mounted"), "{:?}", lab.problems());
    assert_eq!(lab.pass(NET), None);
    // Mounted, with the file; then it is removed from the right one.
    fs::write(lab.path("a.yaml"), text).unwrap();
    fs::write(&mountinfo, &with).unwrap();
    lab.pass(NET);
    assert_eq!((lab.desired(), lab.problems()), (vec!["a".to_owned()], vec![]));
    fs::remove_file(lab.path("a.yaml")).unwrap();
    assert_eq!(lab.pass(MOMENT), some(&[]));
}

/// `unshare --mount --propagation private cargo test --lib -- --ignored mounted_later`
#[test]
#[ignore = "mounts a file system: wants root and a mount namespace of its own"]
fn d2_a_file_system_mounted_later_is_seen_at_once() {
    let (mut lab, first) = Lab::started();
    assert_eq!(first, NONE);
    let directory = lab.root.path().join("m");
    let run = |program: &str, args: &[&str]| {
        assert!(Command::new(program).args(args).arg(&directory).status().unwrap().success());
    };
    run("mount", &["-t", "tmpfs", "tmpfs"]);
    lab.pass(MOMENT);
    lab.place_copy("a.yaml", &pod("a"));
    assert_eq!(lab.events(), some(&["a"]));
    let now = lab.now();
    lab.manifests.reload(now);
    lab.flush();
    // Unmounted, the directory only looks empty.
    run("umount", &[]);
    assert_eq!(lab.pass(MOMENT), None);
    assert!(lab.problems()[0].contains("is not mounted"), "{:?}", lab.problems());
    // Mounted again, empty, it is empty.
    run("mount", &["-t", "tmpfs", "tmpfs"]);
    assert_eq!(lab.pass(Duration::from_secs(2)), some(&[]));
    run("umount", &[]);
}

#[test]
fn bad_files_are_errors_of_their_own_and_the_others_never_notice() {
    let lab = Lab::new();
    lab.write("good.yaml", &pod("good"));
    fs::create_dir(lab.path("directory")).unwrap();
    assert!(Command::new("mkfifo").arg(lab.path("fifo")).status().unwrap().success());
    symlink("loop-b", lab.path("loop-a")).unwrap();
    symlink("loop-a", lab.path("loop-b")).unwrap();
    symlink("nowhere", lab.path("dangling")).unwrap();
    symlink("/dev/zero", lab.path("device")).unwrap();
    lab.write("large", &"#".repeat(10 << 20));
    lab.write("deep", &"[".repeat(10_000));
    let _socket = std::os::unix::net::UnixListener::bind(lab.path("socket")).unwrap();
    let (mut lab, first) = lab.start();
    assert_eq!(first, ["good"]);
    let expected = [
        "M/dangling: a symbolic link to nothing",
        "M/deep:1: recursion limit exceeded",
        "M/device: a device, not a regular file",
        "M/directory: a directory; manifests in sub-directories are not read",
        "M/fifo: a FIFO, not a regular file",
        "M/large: 10485760 bytes, and at most 1048576 are read; split it",
        "M/loop-a: a loop of symbolic links",
        "M/loop-b: a loop of symbolic links",
        "M/socket: a socket, not a regular file",
    ];
    assert_eq!(lab.problems(), expected);
    assert_eq!(lab.pass(NET), None);
    assert_eq!(lab.problems(), expected);
    // Mended, one after the other.
    fs::remove_dir(lab.path("directory")).unwrap();
    lab.place("fifo", &pod("was-a-fifo"));
    lab.write("nowhere", &pod("target"));
    assert_eq!(lab.pass(CHECK), some(&["target", "was-a-fifo", "good", "target"]));
    let left = lab.problems();
    assert!(!left.iter().any(|p| p.contains("M/directory") || p.contains("M/fifo")), "{left:?}");
}

#[test]
fn a_file_that_vanishes_between_the_event_and_the_reading_is_no_error() {
    let (mut lab, _) = Lab::started();
    lab.write("a.yaml", &pod("a"));
    fs::remove_file(lab.path("a.yaml")).unwrap();
    assert_eq!(lab.pass(NET), None);
    assert_eq!(lab.problems(), NONE);
}

#[test]
fn a_linked_file_is_followed_when_its_target_changes() {
    let (mut lab, _) = Lab::started();
    let target = lab.root.path().join("target");
    fs::write(&target, pod("a")).unwrap();
    symlink(&target, lab.path("link.yaml")).unwrap();
    assert_eq!(lab.events(), some(&["a"]));
    fs::write(&target, pod("b")).unwrap();
    assert_eq!(lab.events(), some(&["b"]));
    // Replaced by rename.
    let aside = lab.root.path().join("aside");
    for name in ["c", "d"] {
        fs::write(&aside, pod(name)).unwrap();
        fs::rename(&aside, &target).unwrap();
        assert_eq!(lab.events(), some(&[name]));
    }
    // Its target gone it is there but broken (D2).
    fs::remove_file(&target).unwrap();
    assert_eq!(lab.pass(NET), None);
    assert_eq!(lab.problems(), ["M/link.yaml: a symbolic link to nothing"]);
    fs::remove_file(lab.path("link.yaml")).unwrap();
    assert_eq!(lab.pass(MOMENT), some(&[]));
}

#[test]
fn links_through_a_hidden_directory_are_followed_when_it_is_swapped() {
    let (mut lab, _) = Lab::started();
    for (version, name) in [("..1", "a"), ("..2", "b")] {
        fs::create_dir(lab.path(version)).unwrap();
        fs::write(lab.path(version).join("x.yaml"), pod(name)).unwrap();
    }
    symlink("..1", lab.path("..data")).unwrap();
    symlink("..data/x.yaml", lab.path("x.yaml")).unwrap();
    assert_eq!(lab.events(), some(&["a"]));
    symlink("..2", lab.path("..data_new")).unwrap();
    fs::rename(lab.path("..data_new"), lab.path("..data")).unwrap();
    assert_eq!(lab.events(), some(&["b"]));
}

#[test]
fn a_linked_directory_is_followed_when_the_link_or_its_target_changes() {
    let root = tempfile::tempdir().unwrap();
    for (directory, name) in [("one", "a"), ("two", "b")] {
        fs::create_dir_all(root.path().join("x").join(directory)).unwrap();
        fs::write(root.path().join("x").join(directory).join("f.yaml"), pod(name)).unwrap();
    }
    symlink(root.path().join("x/one"), root.path().join("m")).unwrap();
    let (mut lab, first) = Lab::on(root).start();
    assert_eq!(first, ["a"]);
    let (link, aside) = (lab.root.path().join("m"), lab.root.path().join("aside"));
    symlink(lab.root.path().join("x/two"), &aside).unwrap();
    fs::rename(&aside, &link).unwrap();
    assert_eq!(lab.events(), some(&["b"]));
    let two = lab.root.path().join("x/two");
    fs::rename(&two, lab.root.path().join("x/old")).unwrap();
    assert_eq!(lab.pass(MOMENT), None);
    fs::create_dir(&two).unwrap();
    fs::write(two.join("f.yaml"), pod("c")).unwrap();
    assert_eq!(lab.pass(Duration::from_secs(2)), some(&["c"]));
}

#[test]
fn d2_after_lost_events_all_is_read_again() {
    let (mut lab, _) = Lab::started();
    lab.place("gone.yaml", &pod("gone"));
    lab.events();
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap().trim().parse::<usize>().unwrap();
    for _ in 0..limit / 3 + 100 {
        lab.write(".flood", "");
        fs::remove_file(lab.path(".flood")).unwrap();
    }
    lab.place("a.yaml", &pod("a"));
    fs::remove_file(lab.path("gone.yaml")).unwrap();
    lab.pass(MOMENT);
    assert_eq!(lab.desired(), ["a"]);
    lab.place("b.yaml", &pod("b"));
    assert_eq!(lab.events(), some(&["a", "b"]));
}

#[test]
fn d2_without_inotify_the_directory_is_read_each_check_frequency() {
    let mut lab = Lab::new();
    lab.manifests.watcher = Watcher::blind();
    let (mut lab, _) = lab.start();
    lab.ahead = Duration::ZERO;
    lab.place("a.yaml", &pod("a"));
    lab.write("b.yaml", &pod("b"));
    assert_eq!(lab.pass(CHECK - Duration::from_secs(1)), None);
    // They were seen only now, and perhaps are being written: a second more.
    assert_eq!(lab.pass(Duration::from_millis(1500)), None);
    assert_eq!(lab.pass(Duration::from_secs(1)), some(&["a", "b"]));
    fs::remove_file(lab.path("a.yaml")).unwrap();
    lab.ahead = Duration::from_secs(10);
    lab.place("b.yaml", &pod("b2"));
    lab.pass(CHECK + MOMENT);
    assert_eq!(lab.desired(), ["b2"]);
}

#[test]
fn d2_at_a_start_a_file_just_being_written_takes_no_pod_away() {
    let (mut lab, _) = Lab::started();
    lab.place("a.yaml", &format!("{}---\n{}", pod("a"), pod("b")));
    lab.events();
    lab.flush();
    lab.write("a.yaml", &pod("a"));
    let Lab { root, .. } = lab;
    let mut lab = Lab::on(root);
    lab.ahead = Duration::ZERO;
    let (mut lab, first) = lab.start();
    assert_eq!(first, ["a", "b"]);
    assert_eq!(lab.pass(Duration::from_millis(500)), None);
    assert_eq!(lab.pass(Duration::from_secs(1)), some(&["a"]));
}

#[test]
fn d2_a_damaged_record_is_set_aside_and_the_rest_is_used() {
    let (mut lab, _) = Lab::started();
    for name in ["a", "b", "c"] {
        lab.place(name, &pod(name));
    }
    lab.events();
    lab.flush();
    fs::remove_dir_all(lab.root.path().join("m")).unwrap();
    let records = lab.root.path().join("root/manifests");
    let store = Store::new(records.clone());
    let shown = |name: &str| lab.path(name).to_string_lossy().into_owned();
    let file = |name: &str| records.join(format!("{}.json", &uid::digest_of_bytes(shown(name).as_bytes())[..32]));
    fs::write(file("a"), "{").unwrap();
    let text = fs::read_to_string(file("b")).unwrap();
    fs::write(file("b"), text.replace("i:1", "i:9")).unwrap();
    assert!(store.load(&shown("c")).is_some());
    let (lab, first) = lab.again_without_flush();
    assert_eq!(first, ["c"]);
    let records = lab.root.path().join("root/manifests");
    let aside =
        fs::read_dir(records).unwrap().flatten().filter(|e| e.path().extension().is_some_and(|x| x == "corrupt"));
    assert_eq!(aside.count(), 2);
}

#[test]
fn a_record_that_cannot_be_written_is_reported_and_tried_again() {
    let lab = Lab::new();
    let root = lab.root.path().join("root");
    fs::write(&root, "no directory").unwrap();
    lab.write("a.yaml", &pod("a"));
    let (mut lab, first) = lab.start();
    assert_eq!(first, ["a"]);
    lab.flush();
    assert!(
        lab.problems()[0].starts_with("M: its last good version cannot be kept on disk: make R/root"),
        "{:?}",
        lab.problems()
    );
    fs::remove_file(&root).unwrap();
    lab.flush();
    assert!(!root.exists(), "not before its time");
    lab.pass(RETRY);
    lab.flush();
    assert_eq!(lab.problems(), NONE);
    fs::remove_dir_all(lab.root.path().join("m")).unwrap();
    assert_eq!(lab.again().1, ["a"]);
}

#[test]
fn a_record_is_written_only_when_it_differs() {
    let (mut lab, _) = Lab::started();
    lab.place("a.yaml", &pod("a"));
    lab.events();
    lab.flush();
    let (mut lab, _) = lab.again();
    let now = lab.now();
    assert!(lab.manifests.take_write(now).is_none());
    lab.place("a.yaml", &format!("# comment\n{}", pod("a")));
    lab.events();
    assert!(lab.manifests.take_write(now).is_none());
    lab.place("a.yaml", &pod("b"));
    lab.events();
    let write = lab.manifests.take_write(now).unwrap();
    assert!(lab.manifests.take_write(now).is_none(), "one at a time");
    let result = write.run();
    lab.manifests.written(result, now);
    assert!(lab.manifests.take_write(now).is_none());
}

#[test]
fn many_records_are_written_together_and_all_again_when_one_of_them_failed() {
    let (mut lab, _) = Lab::started();
    for i in 0..20 {
        lab.place(&format!("{i:02}.yaml"), &pod(&format!("p{i}")));
    }
    lab.events();
    let now = lab.now();
    let written = |write: &Write| write.changes.iter().filter_map(store::Change::record).count();
    let first = lab.manifests.take_write(now).unwrap();
    assert!(written(&first) > 10, "{}", written(&first));
    // It was, and nobody knows.
    first.run().unwrap();
    lab.manifests.written(Err("no space left on device".into()), now);
    let later = Now { boot: now.boot + RETRY, ..now };
    let rest = lab.manifests.take_write(later).unwrap();
    assert_eq!(written(&first) + written(&rest), 20, "what is there is not written again");
    let result = rest.run();
    lab.manifests.written(result, later);
    assert!(lab.manifests.take_write(later).is_none());
    assert_eq!(lab.again().1.len(), 20);
}

#[test]
fn d4_two_pods_of_one_name_are_both_given_but_not_while_a_file_is_renamed() {
    let (mut lab, _) = Lab::started();
    lab.place("b.yaml", &pod_with("same", "i:2"));
    lab.place("a.yaml", &pod("same"));
    assert_eq!(lab.events(), some(&["same", "same"]));
    fs::remove_file(lab.path("a.yaml")).unwrap();
    assert_eq!(lab.pass(MOMENT), some(&["same"]));
    fs::rename(lab.path("b.yaml"), lab.path("c.yaml")).unwrap();
    assert_eq!(lab.events(), None, "both names are there for a moment");
    assert_eq!(lab.pass(MOMENT), some(&["same"]));
    assert_eq!(lab.problems(), Vec::<String>::new());
}

#[test]
fn nothing_ticks_while_nothing_happens() {
    let (mut lab, _) = Lab::started();
    lab.place("a.yaml", &pod("a"));
    lab.events();
    lab.flush();
    let now = lab.now();
    lab.manifests.reload(now);
    assert_eq!(lab.manifests.next_deadline(), lab.boot + NET);
}

#[test]
fn a_file_is_checked_with_all_its_errors() {
    let lab = Lab::new();
    lab.write("good", &pod("good"));
    lab.write("bad", &format!("{0}---\n{0}---\n{1}", pod("a"), pod("Bad").replace("image", "imgae")));
    let (good, problems) = check_file(&lab.path("good"), "lab");
    assert_eq!((good.len(), problems), (1, Vec::new()));
    let (good, problems) = check_file(&lab.path("bad"), "lab");
    assert_eq!(problems.iter().filter_map(|p| p.line).collect::<Vec<_>>(), [14, 13, 14]);
    assert_eq!((good.len(), problems.len()), (2, 3));
    assert_eq!(check_file(&lab.path("none"), "lab").1[0].message, "no such file");
    assert_eq!(files_in(&lab.root.path().join("m")).unwrap(), [lab.path("bad"), lab.path("good")]);
}

fn class(name: &str, value: i32) -> String {
    let kind = "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\n";
    format!("{kind}metadata: {{name: {name}}}\nvalue: {value}\n")
}

fn default_class(name: &str, value: i32) -> String {
    class(name, value) + "globalDefault: true\n"
}

fn pod_of(name: &str, class: &str) -> String {
    pod(name).replace("spec: {", &format!("spec: {{priorityClassName: {class}, "))
}

/// Names, priorities and classes of what is desired.
fn priorities(lab: &Lab) -> Vec<(String, Option<i32>, Option<String>)> {
    let of = |pod: &Rc<Pod>| {
        let spec = pod.spec();
        (pod.name.name.to_string(), spec.priority, spec.priority_class_name.clone())
    };
    lab.manifests.pods().map(of).collect()
}

fn with(name: &str, priority: i32, class: &str) -> (String, Option<i32>, Option<String>) {
    (name.into(), Some(priority), Some(class.into()))
}

#[test]
fn a5_the_order_of_files_does_not_matter() {
    for names in [["1", "2", "3", "4"], ["4", "3", "2", "1"], ["2", "4", "1", "3"]] {
        let lab = Lab::new();
        lab.write(names[0], &pod_of("a", "gold"));
        lab.write(names[1], &format!("{}---\n{}", class("gold", 5), pod_of("core", "system-node-critical")));
        lab.write(names[2], &pod("plain"));
        lab.write(names[3], &default_class("usual", -3));
        let (lab, _) = lab.start();
        let mut found = priorities(&lab);
        found.sort();
        let critical = with("core", 2_000_001_000, "system-node-critical");
        assert_eq!(found, [with("a", 5, "gold"), critical, with("plain", -3, "usual")], "{names:?}");
        assert_eq!(lab.problems(), NONE);
    }
}

#[test]
fn a5_a_pod_waits_for_its_class_and_starts_when_that_comes() {
    let (mut lab, _) = Lab::started();
    lab.place("a.yaml", &pod_of("a", "gold"));
    lab.place("b.yaml", &pod("b"));
    assert_eq!(lab.events(), some(&["b"]), "the others go on");
    assert_eq!(
        lab.problems(),
        [
            "M/a.yaml: spec.priorityClassName: no PriorityClass with name gold was found; add a manifest of kind PriorityClass \
          with this name"
        ]
    );
    assert_eq!(lab.desired(), ["b"]);
    lab.place("z.yaml", &class("gold", 5));
    assert_eq!(lab.events(), some(&["a", "b"]));
    assert_eq!(priorities(&lab), [with("a", 5, "gold"), ("b".into(), None, None)]);
    assert_eq!(lab.problems(), NONE);
    // Not a default one that comes later, and not another value: what runs keeps what it got.
    lab.place("z.yaml", &default_class("gold", 6));
    assert_eq!(lab.events(), None);
    assert_eq!(priorities(&lab), [with("a", 5, "gold"), ("b".into(), None, None)]);
    // A new version gets the new value.
    lab.place("a.yaml", &pod_of("a", "gold").replace("i:1", "i:2"));
    lab.place("c.yaml", &pod("c"));
    assert_eq!(lab.events(), some(&["a", "b", "c"]));
    assert_eq!(priorities(&lab), [with("a", 6, "gold"), ("b".into(), None, None), with("c", 6, "gold")]);
}

#[test]
fn a5_a_class_changes_neither_uid_nor_digest() {
    let (mut lab, _) = Lab::started();
    lab.place("a.yaml", &pod("a"));
    let plain = lab.raw_events().unwrap()[0].clone();
    fs::remove_file(lab.path("a.yaml")).unwrap();
    lab.pass(MOMENT);
    lab.place("d.yaml", &default_class("usual", 3));
    lab.events();
    lab.place("a.yaml", &pod("a"));
    let with_class = lab.raw_events().unwrap()[0].clone();
    assert_eq!((&with_class.uid, &with_class.digest), (&plain.uid, &plain.digest));
    assert_eq!((plain.spec().priority, with_class.spec().priority), (None, Some(3)));
}

#[test]
fn d2_a_class_that_has_gone_takes_nothing_away_over_a_restart_too() {
    let (mut lab, _) = Lab::started();
    lab.place("a.yaml", &format!("{}---\n{}", pod_of("a", "gold"), pod("b")));
    lab.place("z.yaml", &class("gold", 5));
    assert_eq!(lab.events(), some(&["a", "b"]));
    lab.flush();
    fs::remove_file(lab.path("z.yaml")).unwrap();
    assert_eq!(lab.pass(MOMENT), None);
    let kept = ["M/a.yaml: spec.priorityClassName: no PriorityClass with name gold was found; add a manifest of kind \
         PriorityClass with this name; until then the pod keeps the priority 5 that it got from it"];
    assert_eq!(lab.problems(), kept);
    let (lab, first) = lab.again();
    assert_eq!(first, ["a", "b"]);
    assert_eq!(priorities(&lab)[0], with("a", 5, "gold"));
    assert_eq!(lab.problems(), kept);
    // The directory goes too, and what is known comes from the records alone.
    let aside = lab.root.path().join("elsewhere");
    fs::rename(lab.root.path().join("m"), &aside).unwrap();
    let (lab, first) = lab.again();
    assert_eq!(first, ["a", "b"]);
    assert_eq!(priorities(&lab)[0], with("a", 5, "gold"));
    fs::rename(aside, lab.root.path().join("m")).unwrap();
    let (mut lab, _) = lab.again();
    lab.place("z.yaml", &class("gold", 7));
    assert_eq!(lab.events(), None);
    assert_eq!(lab.problems(), NONE);
    assert_eq!(priorities(&lab)[0], with("a", 5, "gold"));
}

#[test]
fn d2_an_edited_pod_without_its_class_keeps_its_last_good_version_over_a_restart_too() {
    let (mut lab, _) = Lab::started();
    lab.place("a.yaml", &pod("a"));
    let uid = lab.raw_events().unwrap()[0].uid.clone();
    lab.flush();
    let edited = pod_of("a", "gold");
    lab.place("a.yaml", &edited);
    assert_eq!(lab.events(), None);
    assert_eq!(lab.problems().len(), 1);
    let (mut lab, first) = lab.again();
    assert_eq!(first, ["a"]);
    assert_eq!(lab.manifests.pods().next().unwrap().uid, uid);
    assert_eq!(lab.problems().len(), 1);
    // A second edit, the first one taken back, and the second again: always the version that was good.
    for text in [edited.replace("i:1", "i:3"), pod("a"), edited.clone()] {
        lab.place("a.yaml", &text);
        assert_eq!(lab.events(), None, "{text}");
        assert_eq!(lab.manifests.pods().next().unwrap().uid, uid);
    }
    lab.place("z.yaml", &class("gold", 5));
    assert_eq!(lab.events(), some(&["a"]));
    assert_eq!(priorities(&lab), [with("a", 5, "gold")]);
    assert_ne!(lab.manifests.pods().next().unwrap().uid, uid);
    assert_eq!(lab.problems(), NONE);
    // The record has the new version by now.
    lab.flush();
    lab.write("a.yaml", "");
    let (lab, _) = lab.again();
    assert_eq!(priorities(&lab), [with("a", 5, "gold")]);
}

#[test]
fn d2_a_broken_class_keeps_its_last_value_over_a_restart_too() {
    let (mut lab, _) = Lab::started();
    lab.place("z.yaml", &class("gold", 5));
    assert_eq!(lab.events(), None);
    lab.flush();
    lab.place("z.yaml", &class("gold", 5).replace("value: 5", "value: five"));
    assert_eq!(lab.events(), None);
    assert_eq!(lab.problems(), ["M/z.yaml:4: value: must be an integer, not the text \"five\""]);
    let (mut lab, first) = lab.again();
    assert_eq!(first, NONE);
    lab.place("a.yaml", &pod_of("a", "gold"));
    assert_eq!(lab.events(), some(&["a"]));
    assert_eq!(priorities(&lab), [with("a", 5, "gold")]);
}

#[test]
fn a5_classes_that_do_not_go_together_are_errors_of_the_later_ones() {
    let (mut lab, _) = Lab::started();
    lab.place("b.yaml", &default_class("gold", 5));
    lab.place("c.yaml", &format!("{}---\n{}", class("gold", 7), default_class("usual", 1)));
    lab.place("d.yaml", &pod_of("d", "gold"));
    assert_eq!(lab.events(), some(&["d"]));
    assert_eq!(priorities(&lab), [with("d", 5, "gold")]);
    let problems = lab.problems();
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(problems[0].starts_with("M/c.yaml: metadata.name: Duplicate value: \"gold\": "), "{problems:?}");
    assert!(problems[0].contains("/b.yaml (document 1) defines"), "{problems:?}");
    assert!(problems[1].starts_with("M/c.yaml: document 2: globalDefault: Invalid value: true: "), "{problems:?}");
    // A file that is renamed has its classes once.
    fs::remove_file(lab.path("c.yaml")).unwrap();
    lab.pass(MOMENT);
    assert_eq!(lab.problems(), NONE);
    fs::rename(lab.path("b.yaml"), lab.path("e.yaml")).unwrap();
    lab.events();
    assert_eq!(lab.problems(), NONE);
    lab.pass(MOMENT);
    assert_eq!((lab.problems(), lab.desired()), (vec![], vec!["d".to_owned()]));
    // The pod says a number that is not its class's.
    lab.place("d.yaml", &pod_of("x", "gold, priority: 9"));
    assert_eq!(lab.events(), some(&[]), "d is gone from a complete file");
    let expected =
        "M/d.yaml: spec.priorityClassName: Invalid value: \"gold\": its priority is 5, not what spec.priority says";
    assert_eq!(lab.problems(), [expected]);
}
