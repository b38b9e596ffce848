//! A file system that does not respond delays only its own files.

use super::super::inspection::InspectionSubject;
use super::*;
use std::sync::atomic::Ordering;

/// Makes the inspection of `subject` (a file, or None for the directory) hang on the mount with this id; all others
/// continue. Dropping the returned `Inspection` ends it.
fn hang(lab: &mut Lab, subject: Option<&str>, mount: u64) -> (Option<Vec<String>>, Option<Inspection>) {
    let (mut last, mut hung) = (None, None);
    loop {
        let now = lab.now();
        let Some(inspection) = lab.manifests.take_inspection(now) else { return (last, hung) };
        let ticket = inspection.ticket();
        let name = match &inspection.question.subject {
            InspectionSubject::Directory { .. } => None,
            InspectionSubject::File { name, .. } => name.to_str(),
        };
        let pods = if name == subject && !inspection.question.avoid.mounts.contains(&mount) {
            inspection.at.store(mount, Ordering::Relaxed);
            hung = Some(inspection);
            lab.answer(ticket, Err(NotSeen::Stuck))
        } else {
            let seen = inspection.run();
            lab.answer(ticket, Ok(seen))
        };
        last = pods.map(|pods| names(&pods)).or(last);
    }
}

/// Sets up `hung` as a separate mount, and a link to it in the directory.
fn with_hung_mount(lab: &Lab) {
    let root = lab.root.path().display().to_string();
    let mounts = format!("1 0 8:1 / / rw - ext4 d rw\n7 1 8:2 / {root}/hung rw - fuse.x server rw\n");
    fs::write(lab.root.path().join("mountinfo"), mounts).unwrap();
    fs::create_dir(lab.root.path().join("hung")).unwrap();
    symlink("../hung/h.yaml", lab.path("h.yaml")).unwrap();
}

const DOES_NOT_ANSWER: &str = "M/h.yaml: the file system on R/hung (server, fuse.x) does not respond: check its \
                               server, or unmount it (umount -l R/hung)";

#[test]
fn d1_a_file_that_hangs_at_the_start_counts_as_read_and_keeps_its_last_good_version() {
    let lab = Lab::new();
    with_hung_mount(&lab);
    let file = lab.root.path().join("hung/h.yaml");
    fs::write(&file, pod("h")).unwrap();
    for name in ["a", "z"] {
        lab.write(name, &pod(name));
    }
    let (mut lab, first) = lab.again_without_flush();
    assert_eq!(first, ["a", "h", "z"]);
    lab.flush();
    let Lab { root, .. } = lab;
    let mut lab = Lab::on(root);
    let now = lab.now();
    assert!(lab.manifests.due(now).is_none());
    let (first, thread) = hang(&mut lab, Some("h.yaml"), 7);
    assert_eq!(first, some(&["a", "h", "z"]));
    assert_eq!(lab.problems(), [DOES_NOT_ANSWER]);
    // The other files are still read. A file that hangs is retried with a back-off, but not by a second thread.
    lab.place("a", &pod("a2"));
    assert_eq!(lab.events(), some(&["a2", "h", "z"]));
    fs::write(&file, pod("h2")).unwrap();
    assert_eq!(lab.pass(NET), None);
    assert_eq!(lab.problems(), [DOES_NOT_ANSWER]);
    // The thread ends: the file is inspected again at once.
    drop(thread);
    assert_eq!(lab.manifests.next_deadline(), Boot(0));
    assert_eq!(lab.pass(MOMENT), some(&["a2", "h2", "z"]));
    assert_eq!(lab.problems(), NONE);
}

#[test]
fn d1_a_directory_that_hangs_at_the_start_counts_as_read() {
    let (mut lab, _) = Lab::started();
    lab.place("a.yaml", &pod("a"));
    lab.events();
    lab.flush();
    let Lab { root, .. } = lab;
    let mut lab = Lab::on(root);
    let now = lab.now();
    lab.manifests.due(now);
    let (first, thread) = hang(&mut lab, None, u64::MAX);
    assert_eq!(first, some(&["a"]));
    assert!(lab.problems()[0].starts_with("M: the file system does not respond"), "{:?}", lab.problems());
    drop(thread);
    lab.place("b.yaml", &pod("b"));
    assert_eq!(lab.pass(MOMENT), some(&["a", "b"]));
    assert_eq!(lab.problems(), NONE);
}

#[test]
fn d2_a_hung_directory_stops_no_pod_and_is_distinguished_from_a_hung_file() {
    let (mut lab, _) = Lab::started();
    lab.place("a.yaml", &pod("a"));
    lab.place("b.yaml", &pod("b"));
    lab.events();
    // The full scan inspects all stamps together. If it hangs, each file is inspected individually.
    let now = lab.now();
    lab.manifests.reload(now);
    let (given, _thread) = hang(&mut lab, None, u64::MAX);
    assert_eq!(given, None, "both inspections hang");
    assert!(lab.problems()[0].starts_with("M: the file system does not respond"), "{:?}", lab.problems());
    assert_eq!(lab.desired(), ["a", "b"]);
}

#[test]
fn d2_files_that_changed_with_one_that_hangs_do_not_wait_for_it() {
    let (mut lab, _) = Lab::started();
    lab.place("a.yaml", &pod("a"));
    lab.place("h.yaml", &pod("h"));
    let mut events = Events::with_capacity(8);
    lab.poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
    let now = lab.now();
    assert!(lab.manifests.ready(now).is_none());
    let (a, _h) = (lab.manifests.take_inspection(now).unwrap(), lab.manifests.take_inspection(now).unwrap());
    let ticket = a.ticket();
    let seen = a.run();
    assert!(lab.answer(ticket, Ok(seen)).is_none(), "the change waits for the other inspection");
    let at = lab.manifests.next_deadline();
    assert!(at <= lab.boot + Duration::from_secs(1), "{:?}", at.since(lab.boot));
    lab.boot = at;
    assert_eq!(lab.due().map(|pods| names(&pods)), some(&["a"]));
}

#[test]
fn d2_a_path_is_inspected_again_if_the_mount_table_changed_meanwhile() {
    let mut lab = Lab::new();
    lab.write("a.yaml", &pod("a"));
    let now = lab.now();
    lab.manifests.due(now);
    for subject in [None, Some("a.yaml")] {
        let subject_of = |inspection: &Inspection| match &inspection.question.subject {
            InspectionSubject::Directory { .. } => None,
            InspectionSubject::File { name, .. } => name.to_str().map(str::to_owned),
        };
        let inspection = lab.manifests.take_inspection(now).unwrap();
        assert_eq!(subject_of(&inspection).as_deref(), subject);
        let ticket = inspection.ticket();
        let seen = inspection.run();
        lab.manifests.mounted(now);
        lab.answer(ticket, Ok(seen));
        let again =
            lab.manifests.take_inspection(now).expect("an inspection that may have missed the change is repeated");
        assert_eq!(subject_of(&again).as_deref(), subject);
        let ticket = again.ticket();
        let seen = again.run();
        lab.answer(ticket, Ok(seen));
    }
    assert!(lab.manifests.take_inspection(now).is_none());
    assert_eq!(lab.desired(), ["a"]);
}

#[test]
fn d2_a_change_of_the_mount_table_is_examined_at_once_and_further_ones_after_a_second() {
    let table = |id: u32| format!("{id} 1 8:1 / / rw - ext4 d rw\n");
    let mut lab = Lab::new();
    let mountinfo = lab.root.path().join("mountinfo");
    fs::write(&mountinfo, table(1)).unwrap();
    lab.manifests.settings.mountinfo = mountinfo.clone();
    let (mut lab, _) = lab.start();
    let mounted = |lab: &mut Lab, id: u32| {
        fs::write(&mountinfo, table(id)).unwrap();
        let now = lab.now();
        lab.manifests.mounted(now);
    };
    mounted(&mut lab, 2);
    let now = lab.now();
    assert!(lab.manifests.take_inspection(now).is_some(), "the directory is on another mount");
    let (mut lab, _) = Lab::new().start();
    lab.manifests.settings.mountinfo = mountinfo.clone();
    lab.reload();
    mounted(&mut lab, 2);
    for id in [3, 4] {
        mounted(&mut lab, id);
        let now = lab.now();
        assert!(lab.manifests.take_inspection(now).is_none());
        assert_eq!(lab.manifests.next_deadline(), now.boot + Duration::from_secs(1));
    }
    lab.boot = lab.manifests.next_deadline();
    let now = lab.now();
    lab.manifests.due(now);
    assert!(lab.manifests.take_inspection(now).is_some());
}

#[test]
fn d2_an_event_during_an_inspection_causes_another_inspection() {
    let (mut lab, _) = Lab::started();
    lab.place("a.yaml", &pod("a"));
    let mut events = Events::with_capacity(8);
    lab.poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
    let now = lab.now();
    lab.manifests.ready(now);
    let inspection = lab.manifests.take_inspection(now).unwrap();
    let ticket = inspection.ticket();
    let seen = inspection.run();
    lab.place("a.yaml", &pod("b"));
    lab.poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
    lab.manifests.ready(now);
    assert!(lab.manifests.take_inspection(now).is_none(), "one inspection at a time");
    lab.answer(ticket, Ok(seen));
    assert_eq!(lab.inspection().map(|pods| names(&pods)), some(&["b"]));
    // The file is removed while it is inspected.
    lab.place("a.yaml", &pod("c"));
    lab.poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
    lab.manifests.ready(now);
    let inspection = lab.manifests.take_inspection(now).unwrap();
    let ticket = inspection.ticket();
    let seen = inspection.run();
    fs::remove_file(lab.path("a.yaml")).unwrap();
    lab.poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
    lab.manifests.ready(now);
    lab.answer(ticket, Ok(seen));
    assert_eq!(lab.pass(MOMENT), some(&[]));
}
