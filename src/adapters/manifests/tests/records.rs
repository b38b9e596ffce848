//! The recorded last good version of each manifest.

use super::*;
use crate::api::uid;
use std::os::unix::ffi::OsStrExt;

/// The delay before the engine retries a failed write.
const RETRY: Duration = Duration::from_secs(60);

#[test]
fn d2_a_damaged_record_is_set_aside_and_the_rest_is_used() {
    let (mut lab, _) = Lab::started();
    for name in ["a", "b", "c", "d", "e"] {
        lab.place(name, &pod(name));
    }
    lab.events();
    lab.flush();
    fs::remove_dir_all(lab.root.path().join("m")).unwrap();
    let records = lab.root.path().join("root/manifests");
    let store = Store::open(records.clone());
    let digest = |name: &str| uid::digest_of_bytes(lab.path(name).as_os_str().as_encoded_bytes());
    let file = |name: &str| records.join(format!("{}.json", &digest(name)[..32]));
    fs::write(file("a"), "{").unwrap();
    let text = fs::read_to_string(file("b")).unwrap();
    fs::write(file("b"), text.replace("i:1", "i:9")).unwrap();
    // The power failed before the first write of these records was durable.
    fs::write(file("d"), "").unwrap();
    fs::write(file("e"), [0; 100]).unwrap();
    let unwritten = [file("d"), file("e")];
    assert!(store.load(&lab.path("c")).is_some());
    let (lab, first) = lab.again_without_flush();
    assert_eq!(first, ["c"]);
    let records = lab.root.path().join("root/manifests");
    let aside =
        fs::read_dir(records).unwrap().flatten().filter(|e| e.path().extension().is_some_and(|x| x == "corrupt"));
    assert_eq!(aside.count(), 2);
    assert!(!unwritten.iter().any(|file| file.exists()));
}

#[test]
fn a_start_removes_only_records_whose_write_was_interrupted() {
    let (mut lab, _) = Lab::started();
    lab.place("a.yaml", &pod("a"));
    lab.events();
    lab.flush();
    let records = lab.root.path().join("root/manifests");
    let files = || {
        let names = fs::read_dir(&records).unwrap().map(|entry| entry.unwrap().file_name());
        names.collect::<BTreeSet<OsString>>()
    };
    let whole = files();
    assert!(!whole.is_empty());
    for name in ["0123456789abcdef0123456789abcdef.json.new", "directory.json.new"] {
        fs::write(records.join(name), "{").unwrap();
    }
    let (_lab, first) = lab.again_without_flush();
    assert_eq!(first, ["a"]);
    assert_eq!(files(), whole);
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
        lab.problems()[0].starts_with("M: failed to record the last good version: create R/root"),
        "{:?}",
        lab.problems()
    );
    fs::remove_file(&root).unwrap();
    lab.flush();
    assert!(!root.exists(), "the retry is not due yet");
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
    assert_eq!(lab.take_updates(), None);
    lab.place("a.yaml", &format!("# comment\n{}", pod("a")));
    lab.events();
    assert_eq!(lab.take_updates(), None);
    lab.place("a.yaml", &pod("b"));
    lab.events();
    let updates = lab.take_updates().unwrap();
    assert_eq!(lab.take_updates(), None, "one write at a time");
    let result = lab.manifests.store(updates).run();
    lab.written(result);
    assert_eq!(lab.take_updates(), None);
}

#[test]
fn many_records_are_written_together_and_all_again_when_one_of_them_failed() {
    let (mut lab, _) = Lab::started();
    for i in 0..20 {
        lab.place(&format!("{i:02}.yaml"), &pod(&format!("p{i}")));
    }
    lab.events();
    let first = lab.take_updates().unwrap();
    assert!(first.len() > 10, "{}", first.len());
    // The write succeeds, but an error is reported.
    lab.manifests.store(first.clone()).run().unwrap();
    lab.written(Err("no space left on device".into()));
    assert_eq!(lab.take_updates(), None, "the retry is not due yet");
    lab.boot = lab.boot + RETRY;
    assert_eq!(lab.take_updates().as_ref(), Some(&first), "the engine cannot know which ones are on the disk");
    let result = lab.manifests.store(first.clone()).run();
    lab.written(result);
    let rest = lab.take_updates().unwrap();
    assert_eq!(first.len() + rest.len(), 20);
    let result = lab.manifests.store(rest).run();
    lab.written(result);
    assert_eq!(lab.take_updates(), None);
    assert_eq!(lab.again().1.len(), 20);
}

/// Returns two paths that look the same as text.
fn twins(lab: &Lab) -> [PathBuf; 2] {
    [&b"\xff.yaml"[..], b"\xfe.yaml"].map(|name| lab.path("x").with_file_name(std::ffi::OsStr::from_bytes(name)))
}

#[test]
fn d2_names_that_differ_only_in_bytes_that_are_no_text_have_records_of_their_own() {
    let (mut lab, _) = Lab::started();
    let [a, b] = twins(&lab);
    fs::write(&a, pod("a")).unwrap();
    fs::write(&b, pod("b")).unwrap();
    assert_eq!(lab.events(), some(&["b", "a"]));
    lab.flush();
    // Both files are broken, and each is reported until it is corrected.
    fs::write(&a, "a: [").unwrap();
    fs::write(&b, "b: [").unwrap();
    let (mut lab, first) = lab.again();
    assert_eq!(first, ["b", "a"]);
    assert_eq!(lab.problems().len(), 2);
    fs::write(&a, pod("a")).unwrap();
    lab.events();
    assert_eq!(lab.problems().len(), 1);
    fs::remove_dir_all(lab.root.path().join("m")).unwrap();
    assert_eq!(lab.again().1, ["b", "a"]);
}
