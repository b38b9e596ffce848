//! A broken file or a missing directory keeps its last good version and is reported (D2). Other files are not affected.

use super::*;
use crate::api::document::context::NetworkPolicies;

#[test]
fn d2_the_last_good_version_of_a_broken_file_survives_a_restart() {
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
        assert_eq!(lab.pods().iter().map(|pod| pod.uid.clone()).collect::<Vec<_>>(), uids);
        assert_eq!(lab.problems(), problems);
        // A second restart uses the record alone.
        let (mut lab, first) = lab.again();
        assert_eq!(first, ["a", "b", "z"]);
        lab.place("a.yaml", &pod("b"));
        assert_eq!(lab.events(), some(&["b", "z"]));
        assert_eq!(lab.problems(), NONE);
    }
}

#[test]
fn d2_a_broken_document_keeps_its_last_good_version_and_the_others_are_updated() {
    let (mut lab, _) = Lab::started();
    let file = |parts: &[&str]| parts.join("---\n");
    let (a, b, c) = (pod("a"), pod("b"), pod("c"));
    let broken_b = b.replace("image", "imgae");
    lab.place("x.yaml", &file(&[&a, &b, &c]));
    lab.events();
    lab.flush();
    // b is broken, a is changed, c is removed.
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
    // A document that cannot be identified removes nothing.
    lab.place("x.yaml", &file(&[&b.replace("name: b", "nmae: b")]));
    assert_eq!(lab.events(), None);
    assert_eq!(lab.desired(), ["a", "b"]);
    // A document that is clearly not a pod is not treated as a broken pod.
    lab.place("x.yaml", &file(&[&a, "apiVersion: v1\nkind: Ingress\nmetadata: {name: b}\n"]));
    assert_eq!(lab.events(), some(&["a"]));
    let [problem] = &lab.problems()[..] else { panic!("{:?}", lab.problems()) };
    assert!(problem.starts_with("M/x.yaml:7: kind: Ingress is not supported: "), "{problem}");
}

#[test]
fn d2_the_pods_of_a_file_removed_during_downtime_are_undesired() {
    let (mut lab, _) = Lab::started();
    lab.place("a.yaml", &pod("a"));
    lab.place("b.yaml", &pod("b"));
    lab.events();
    lab.flush();
    fs::remove_file(lab.path("a.yaml")).unwrap();
    let (lab, first) = lab.again_without_flush();
    assert_eq!(first, ["b"]);
    // The removed pod does not return when the directory disappears.
    let mut lab = lab;
    lab.flush();
    fs::remove_dir_all(lab.root.path().join("m")).unwrap();
    let (_, first) = lab.again();
    assert_eq!(first, ["b"]);
}

#[test]
fn d2_the_pods_of_a_missing_directory_survive_a_restart() {
    let (mut lab, _) = Lab::started();
    lab.place("a.yaml", &pod("a"));
    lab.place("b.yaml", &pod("b"));
    lab.events();
    lab.flush();
    let directory = lab.root.path().join("m");
    fs::remove_dir_all(&directory).unwrap();
    assert_eq!(lab.pass(NET), None);
    assert_eq!(lab.desired(), ["a", "b"]);
    assert!(lab.problems()[0].contains("the last known pods stay in force"), "{:?}", lab.problems());
    let (mut lab, first) = lab.again();
    assert_eq!(first, ["a", "b"]);
    // A regular file at the directory's path is treated like a missing directory.
    fs::write(&directory, "").unwrap();
    assert_eq!(lab.pass(NET), None);
    fs::remove_file(&directory).unwrap();
    // The directory is created again. Its content is used after 1 s, because files may still be moved into it.
    fs::create_dir(&directory).unwrap();
    assert_eq!(lab.pass(MOMENT), None);
    lab.place("b.yaml", &pod("b"));
    assert_eq!(lab.pass(Duration::from_millis(500)), None);
    assert_eq!(lab.pass(Duration::from_secs(1)), some(&["b"]));
    assert_eq!(lab.problems(), NONE);
    // The directory is watched again.
    lab.place("c.yaml", &pod("c"));
    assert_eq!(lab.events(), some(&["b", "c"]));
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
    // The next scan records the mount.
    lab.reload();
    lab.flush();
    let text = fs::read(lab.path("a.yaml")).unwrap();
    fs::remove_file(lab.path("a.yaml")).unwrap();
    fs::write(&mountinfo, without).unwrap();
    let (mut lab, first) = lab.again_without_flush();
    assert_eq!(first, ["a"]);
    assert!(
        lab.problems()[0].contains("the file system that contained them (/dev/sdb1 on M, ext4) is not mounted"),
        "{:?}",
        lab.problems()
    );
    assert_eq!(lab.pass(NET), None);
    // The file system is mounted and contains the file. From now on, removing the file takes effect.
    fs::write(lab.path("a.yaml"), text).unwrap();
    fs::write(&mountinfo, &with).unwrap();
    lab.pass(NET);
    assert_eq!((lab.desired(), lab.problems()), (vec!["a".to_owned()], vec![]));
    fs::remove_file(lab.path("a.yaml")).unwrap();
    assert_eq!(lab.pass(MOMENT), some(&[]));
}

#[test]
fn d2_an_empty_directory_without_a_mount_table_is_missing() {
    let lab = Lab::new();
    let mountinfo = lab.root.path().join("mountinfo");
    fs::write(&mountinfo, "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n").unwrap();
    lab.write("a.yaml", &pod("a"));
    let (mut lab, first) = lab.again_without_flush();
    assert_eq!(first, ["a"]);
    lab.flush();
    fs::remove_file(lab.path("a.yaml")).unwrap();
    fs::write(&mountinfo, "").unwrap();
    let (lab, first) = lab.again_without_flush();
    assert_eq!(first, ["a"]);
    // A manifest shows that this is the right directory.
    lab.write("b.yaml", &pod("b"));
    assert_eq!(lab.again_without_flush().1, ["b"]);
}

#[test]
fn d2_a_mount_point_without_its_file_system_is_missing_whatever_else_is_in_it() {
    let lab = Lab::new();
    let root = lab.root.path().to_string_lossy().into_owned();
    let table = |mounts: &str| format!("1 0 8:1 / / rw - ext4 /dev/sda1 rw\n{mounts}");
    let right = table(&format!("2 1 8:2 / {root}/m rw - ext4 /dev/sdb1 rw\n"));
    let other = table(&format!("3 1 8:3 / {root}/m rw - tmpfs none rw\n"));
    let mountinfo = lab.root.path().join("mountinfo");
    fs::write(&mountinfo, &right).unwrap();
    lab.write("a.yaml", &pod("a"));
    let (lab, first) = lab.again_without_flush();
    assert_eq!(first, ["a"]);
    fs::remove_file(lab.path("a.yaml")).unwrap();
    fs::create_dir(lab.path("sub")).unwrap();
    lab.write("README", "The disk with the manifests is mounted here.\n");
    let mut lab = lab;
    lab.flush();
    for wrong in [table(""), other] {
        fs::write(&mountinfo, wrong).unwrap();
        let again = lab.again_without_flush();
        assert_eq!(again.1, ["a"]);
        lab = again.0;
        assert!(
            lab.problems().iter().any(|p| p.contains("(/dev/sdb1 on M, ext4) is not mounted")),
            "{:?}",
            lab.problems()
        );
        assert_eq!(lab.pass(NET), None);
        lab.flush();
    }
    // A manifest shows that this is the right directory.
    lab.place("b.yaml", &pod("b"));
    assert_eq!(lab.pass(Duration::from_secs(3)), some(&["b"]));
    lab.flush();
    fs::remove_file(lab.path("b.yaml")).unwrap();
    assert_eq!(lab.again_without_flush().1, NONE);
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
        "M/dangling: a dangling symbolic link",
        "M/deep:1: recursion limit exceeded",
        "M/device: a device, not a regular file",
        "M/directory: a directory; manifests in sub-directories are not read",
        "M/fifo: a FIFO, not a regular file",
        "M/large: 10485760 bytes, larger than the limit of 2097152; split the file",
        "M/loop-a: a loop of symbolic links",
        "M/loop-b: a loop of symbolic links",
        "M/socket: a socket, not a regular file",
    ];
    assert_eq!(lab.problems(), expected);
    assert_eq!(lab.pass(NET), None);
    assert_eq!(lab.problems(), expected);
    // The files are corrected one by one.
    fs::remove_dir(lab.path("directory")).unwrap();
    lab.place("fifo", &pod("was-a-fifo"));
    lab.write("nowhere", &pod("target"));
    assert_eq!(lab.pass(CHECK), some(&["target", "was-a-fifo", "good", "target"]));
    let left = lab.problems();
    assert!(!left.iter().any(|p| p.contains("M/directory") || p.contains("M/fifo")), "{left:?}");
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
fn a_file_is_checked_with_all_its_errors() {
    let lab = Lab::new();
    lab.write("good", &pod("good"));
    lab.write("bad", &format!("{0}---\n{0}---\n{1}", pod("a"), pod("Bad").replace("image", "imgae")));
    let check = |name: &str| check_text(name, &fs::read(lab.path(name)).unwrap(), "lab", NetworkPolicies::Refuse);
    let Checked { objects: good, problems, .. } = check("good");
    assert_eq!((good.len(), problems), (1, Vec::new()));
    let Checked { objects: good, problems, .. } = check("bad");
    assert_eq!(problems.iter().filter_map(|p| p.line).collect::<Vec<_>>(), [14, 13, 14]);
    assert_eq!((good.len(), problems.len()), (2, 3));
    assert_eq!(files_in(&lab.root.path().join("m")).unwrap(), [lab.path("bad"), lab.path("good")]);
}
