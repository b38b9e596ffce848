//! Symbolic links in the directory: every step is watched.

use super::*;

fn below(steps: &[&str], lab: &Lab) -> PathBuf {
    steps.iter().fold(lab.root.path().to_owned(), |path, step| path.join(step))
}

/// Creates `rel1/a.yaml` and `rel2/a.yaml` with one pod each, and `current`, a link to `rel1`.
fn releases(lab: &Lab) {
    for (release, name) in [("rel1", "one"), ("rel2", "two")] {
        fs::create_dir_all(below(&["x", release], lab)).unwrap();
        fs::write(below(&["x", release, "a.yaml"], lab), pod(name)).unwrap();
    }
    symlink("rel1", below(&["x", "current"], lab)).unwrap();
}

#[test]
fn d2_a_link_in_the_middle_that_is_swapped_is_noticed_at_once() {
    let (mut lab, _) = Lab::started();
    releases(&lab);
    symlink("../x/current/a.yaml", lab.path("a.yaml")).unwrap();
    assert_eq!(lab.events(), some(&["one"]));
    for (release, name) in [("rel2", "two"), ("rel1", "one")] {
        symlink(release, below(&["x", "aside"], &lab)).unwrap();
        fs::rename(below(&["x", "aside"], &lab), below(&["x", "current"], &lab)).unwrap();
        assert_eq!(lab.events(), some(&[name]));
    }
    // The link is removed and created again.
    fs::remove_file(below(&["x", "current"], &lab)).unwrap();
    assert_eq!(lab.events(), None);
    assert_eq!(lab.problems(), ["M/a.yaml: a dangling symbolic link"]);
    symlink("rel2", below(&["x", "current"], &lab)).unwrap();
    assert_eq!(lab.events(), some(&["two"]));
    assert_eq!(lab.problems(), NONE);
}

#[test]
fn d2_a_removed_and_recreated_directory_in_the_path_of_a_link_is_detected() {
    let (mut lab, _) = Lab::started();
    releases(&lab);
    symlink(below(&["x", "current", "a.yaml"], &lab), lab.path("a.yaml")).unwrap();
    assert_eq!(lab.events(), some(&["one"]));
    fs::rename(below(&["x", "rel1"], &lab), below(&["x", "old"], &lab)).unwrap();
    assert_eq!(lab.events(), None);
    assert_eq!(lab.problems(), ["M/a.yaml: a dangling symbolic link"]);
    fs::rename(below(&["x", "rel2"], &lab), below(&["x", "rel1"], &lab)).unwrap();
    assert_eq!(lab.events(), some(&["two"]));
}

#[test]
fn d2_an_incomplete_target_of_a_link_is_not_read() {
    let (mut lab, _) = Lab::started();
    let target = below(&["target"], &lab);
    symlink(&target, lab.path("a.yaml")).unwrap();
    assert_eq!(lab.events(), None);
    lab.ahead = Duration::ZERO;
    let mut file = fs::File::create(&target).unwrap();
    std::io::Write::write_all(&mut file, pod("a").as_bytes()).unwrap();
    assert_eq!(lab.pass(MOMENT), None);
    std::io::Write::write_all(&mut file, format!("---\n{}", pod("b")).as_bytes()).unwrap();
    assert_eq!(lab.pass(MOMENT), None);
    drop(file);
    assert_eq!(lab.events(), some(&["a", "b"]));
}

#[test]
fn watches_of_removed_links_are_removed() {
    let (mut lab, _) = Lab::started();
    releases(&lab);
    let before = lab.manifests.watcher.count();
    for name in ["a.yaml", "b.yaml"] {
        symlink(below(&["x", "current", "a.yaml"], &lab), lab.path(name)).unwrap();
    }
    lab.events();
    // Three watches are new: one for the directory that contains `current`, one for that of the release, and one for
    // the file. Both links share them.
    assert_eq!(lab.manifests.watcher.count(), before + 3);
    fs::remove_file(lab.path("a.yaml")).unwrap();
    lab.pass(MOMENT);
    assert_eq!(lab.manifests.watcher.count(), before + 3);
    fs::remove_file(lab.path("b.yaml")).unwrap();
    lab.pass(MOMENT);
    assert_eq!(lab.manifests.watcher.count(), before);
}

#[test]
fn d2_on_a_file_system_that_a_server_answers_for_all_is_read_each_check_frequency() {
    for far in ["far", "m"] {
        let lab = Lab::new();
        let root = lab.root.path().display().to_string();
        let mounts = format!("1 0 8:1 / / rw - ext4 d rw\n2 1 8:2 / {root}/{far} rw - nfs4 s:/x rw\n");
        fs::write(lab.root.path().join("mountinfo"), mounts).unwrap();
        let file = lab.root.path().join(far).join("a.yaml");
        if far == "far" {
            fs::create_dir(lab.root.path().join("far")).unwrap();
            symlink("../far/a.yaml", lab.path("a.yaml")).unwrap();
        }
        fs::write(&file, pod("a")).unwrap();
        let (mut lab, first) = lab.again_without_flush();
        assert_eq!(first, ["a"]);
        // The mount table of a test cannot be watched. That alone would shorten the scan period, so undo the effect
        // here.
        lab.manifests.unwatched = false;
        lab.manifests.next_full = lab.boot + NET;
        let now = lab.now();
        lab.manifests.full_within(lab.manifests.interval(), now);
        // inotify does not report changes made on the server.
        lab.manifests.watcher = Watcher::blind();
        fs::write(&file, pod("b")).unwrap();
        assert_eq!(lab.pass(CHECK), some(&["b"]), "{far}");
    }
}
