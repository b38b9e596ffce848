//! Changes in the directory are noticed however the file is written, and nothing else causes a wake-up.

use super::*;
use std::io::Write as _;

#[test]
fn d1_the_first_set_is_published_after_all_sources_were_read_even_if_it_is_empty() {
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
    // The directory is created later and noticed at once.
    fs::create_dir(lab.root.path().join("m")).unwrap();
    assert_eq!(lab.events(), None);
    assert_eq!(lab.problems(), NONE);
    lab.place("a.yaml", &pod("a"));
    assert_eq!(lab.events(), some(&["a"]));
}

#[test]
fn d1_a_directory_with_missing_parents_is_detected_when_it_is_created() {
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
    // The file is truncated and not yet written: no pod becomes undesired.
    let mut file = fs::File::create(lab.path("a.yaml")).unwrap();
    assert_eq!(lab.pass(MOMENT), None);
    file.write_all(pod("c").as_bytes()).unwrap();
    drop(file);
    assert_eq!(lab.events(), some(&["c"]));
}

#[test]
fn d2_a_file_that_stays_open_is_read_when_it_stops_changing() {
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
fn a_file_counts_as_removed_after_ten_milliseconds() {
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
    // vim: renames the old file and writes a new one.
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
    // sed: writes a temporary file and renames it.
    let done = Command::new("sed").args(["-i", "s/web2/web3/"]).arg(lab.path("web.yaml")).status().unwrap();
    assert!(done.success());
    assert_eq!(lab.events(), some(&["web3"]));
    // emacs: a lock that is a dangling link, and an auto-save file.
    symlink("me@host.1:2", lab.path(".#web.yaml")).unwrap();
    lab.write("#web.yaml#", &pod("auto"));
    assert_eq!(lab.pass(NET * 2), None);
    assert_eq!((lab.desired(), lab.problems()), (vec!["web3".to_owned()], vec![]));
}

#[test]
fn unchanged_documents_keep_the_same_pod_object() {
    let (mut lab, _) = Lab::started();
    let other = format!("{}---\n{}", pod("a"), pod("b"));
    lab.place("x.yaml", &other);
    let before = lab.raw_events().unwrap();
    // A comment changes nothing, so nothing is returned.
    lab.place("x.yaml", &format!("# why\n{other}# end\n"));
    assert_eq!(lab.events(), None);
    lab.place("x.yaml", &format!("{}---\n{}", pod("b"), pod_with("a", "i:2")));
    let after = lab.raw_events().unwrap();
    assert_eq!(names(&after), ["b", "a"]);
    assert!(Rc::ptr_eq(&after[0], &before[1]));
    assert_ne!(after[1].uid, before[0].uid);
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

/// `unshare --mount --propagation private cargo test --lib -- --ignored later_mount`
#[test]
#[ignore = "mounts a file system: needs root and its own mount namespace"]
fn d2_a_later_mount_is_detected_immediately() {
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
    lab.reload();
    lab.flush();
    // After the unmount, the empty mount point is not taken for an empty directory.
    run("umount", &[]);
    assert_eq!(lab.pass(MOMENT), None);
    assert!(lab.problems()[0].contains("is not mounted"), "{:?}", lab.problems());
    // The file system is mounted again and is empty.
    run("mount", &["-t", "tmpfs", "tmpfs"]);
    assert_eq!(lab.pass(Duration::from_secs(2)), some(&[]));
    run("umount", &[]);
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
    // The target is replaced by a rename.
    let aside = lab.root.path().join("aside");
    for name in ["c", "d"] {
        fs::write(&aside, pod(name)).unwrap();
        fs::rename(&aside, &target).unwrap();
        assert_eq!(lab.events(), some(&[name]));
    }
    // After the target is removed, the file exists but is broken (D2).
    fs::remove_file(&target).unwrap();
    assert_eq!(lab.pass(NET), None);
    assert_eq!(lab.problems(), ["M/link.yaml: a dangling symbolic link"]);
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
    // The scan has just found the files, which may still be incomplete, so they are read a second later.
    assert_eq!(lab.pass(Duration::from_millis(1500)), None);
    assert_eq!(lab.pass(Duration::from_secs(1)), some(&["a", "b"]));
    fs::remove_file(lab.path("a.yaml")).unwrap();
    lab.ahead = Duration::from_secs(10);
    lab.place("b.yaml", &pod("b2"));
    lab.pass(CHECK + MOMENT);
    assert_eq!(lab.desired(), ["b2"]);
}

#[test]
fn d4_two_pods_with_one_name_are_both_published_except_during_a_rename() {
    let (mut lab, _) = Lab::started();
    lab.place("b.yaml", &pod_with("same", "i:2"));
    lab.place("a.yaml", &pod("same"));
    assert_eq!(lab.events(), some(&["same", "same"]));
    fs::remove_file(lab.path("a.yaml")).unwrap();
    assert_eq!(lab.pass(MOMENT), some(&["same"]));
    fs::rename(lab.path("b.yaml"), lab.path("c.yaml")).unwrap();
    assert_eq!(lab.events(), None, "both names exist for a moment");
    assert_eq!(lab.pass(MOMENT), some(&["same"]));
    assert_eq!(lab.problems(), Vec::<String>::new());
}

#[test]
fn an_idle_directory_causes_no_wakeups() {
    let (mut lab, _) = Lab::started();
    lab.place("a.yaml", &pod("a"));
    lab.events();
    lab.flush();
    lab.reload();
    assert_eq!(lab.manifests.next_deadline(), lab.boot + NET);
}
