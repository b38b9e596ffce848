//! The record of what each manifest last said, on disk.

use super::*;

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
