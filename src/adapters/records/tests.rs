use super::*;
use std::io::Write as _;

fn open() -> (tempfile::TempDir, Records) {
    let dir = tempfile::tempdir().unwrap();
    let records = Records::open(dir.path(), None).unwrap();
    (dir, records)
}

/// Returns the values that are not locked.
fn values(records: &[StoredRecord]) -> Vec<(String, String)> {
    records.iter().filter_map(|record| Some((record.key.clone(), record.value()?.to_owned()))).collect()
}

fn loaded(records: &Records, kinds: &[&str]) -> Vec<(String, String)> {
    values(&records.load(kinds))
}

fn put(records: &Records, key: &str, value: &str) -> Result<(), String> {
    records.make(&[RecordChange::Put { key: key.to_owned(), value: value.to_owned() }]).remove(0)
}

fn delete(records: &Records, key: &str) -> Result<(), String> {
    records.make(&[RecordChange::Delete { key: key.to_owned() }]).remove(0)
}

fn set_aside(records: &Records, key: &str) -> Result<(), String> {
    records.make(&[RecordChange::SetAside { key: key.to_owned() }]).remove(0)
}

#[test]
fn changes_of_a_batch_are_made_in_order_and_fail_alone() {
    let (_dir, records) = open();
    let put = |key: &str, value: &str| RecordChange::Put { key: key.to_owned(), value: value.to_owned() };
    let delete = |key: &str| RecordChange::Delete { key: key.to_owned() };
    let changes = [
        put("pod/u", "1"),
        put("pod/u", "2"),
        put("no kind", "x"),
        put("pod/v", "3"),
        delete("pod/v"),
        put("images/w", "4"),
    ];
    let results = records.make(&changes);
    assert_eq!(results.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, true, false, true, true, true]);
    let (u, w) = (("pod/u".to_owned(), "2".to_owned()), ("images/w".to_owned(), "4".to_owned()));
    assert_eq!(loaded(&records, &["pod", "images"]), [w, u]);
}

#[test]
fn records_are_read_as_they_were_written() {
    let (dir, records) = open();
    put(&records, "pod/u2", r#"{"a":1}"#).unwrap();
    put(&records, "pod/u1", "{\"line\":\n2}\n").unwrap();
    put(&records, "pod/u1", "{\"line\":\n3}\n").unwrap();
    put(&records, "rejected/ns/name é.", "{}").unwrap();
    put(&records, "pod/.hidden", "{}").unwrap();
    put(&records, "pod/gone", "{}").unwrap();
    delete(&records, "pod/gone").unwrap();
    delete(&records, "pod/gone").unwrap();
    let again = Records::open(dir.path(), None).unwrap();
    let loaded = loaded(&again, &["pod", "rejected"]);
    let loaded: Vec<_> = loaded.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    assert_eq!(
        loaded,
        [
            ("pod/.hidden", "{}"),
            ("pod/u1", "{\"line\":\n3}\n"),
            ("pod/u2", r#"{"a":1}"#),
            ("rejected/ns/name é.", "{}"),
        ]
    );
}

#[test]
fn keys_that_are_no_file_names_are_refused() {
    let (_dir, records) = open();
    for key in ["", "pod", "pod/", "/x", "../x", "a.b/x", &format!("pod/{}", "x".repeat(300))] {
        assert!(put(&records, key, "{}").is_err(), "{key}");
    }
    put(&records, "pod/../../x", "{}").unwrap();
    assert_eq!(loaded(&records, &["pod", "rejected"]), [("pod/../../x".to_owned(), "{}".to_owned())]);
}

#[test]
fn a_damaged_record_is_set_aside_and_the_rest_is_read() {
    let (dir, records) = open();
    let directory = dir.path().join("records/pod");
    for key in ["good", "cut", "flipped", "newer", "empty", "zeros", "header"] {
        put(&records, &format!("pod/{key}"), r#"{"spec":"x"}"#).unwrap();
    }
    let file = |key: &str| directory.join(format!("{key}.json"));
    let text = fs::read_to_string(file("cut")).unwrap();
    fs::write(file("cut"), &text[..text.len() - 3]).unwrap();
    fs::write(file("flipped"), text.replace('x', "y")).unwrap();
    fs::write(file("newer"), text.replace("\"version\":1", "\"version\":2")).unwrap();
    // The power failed before the first write of these records was durable.
    fs::write(file("empty"), "").unwrap();
    fs::write(file("zeros"), vec![0; 748]).unwrap();
    fs::write(file("header"), [0xff, 0xfe, b'\n', b'{', b'}']).unwrap();
    // A write that a power cut interrupted left this file.
    fs::write(directory.join("half.json.3.new"), "{").unwrap();
    fs::write(dir.path().join("records/stray"), "").unwrap();

    assert_eq!(loaded(&records, &["pod", "rejected"]), [("pod/good".to_owned(), r#"{"spec":"x"}"#.to_owned())]);
    let mut names: Vec<_> =
        fs::read_dir(&directory).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(
        names,
        ["cut.json.corrupt", "flipped.json.corrupt", "good.json", "header.json.corrupt", "newer.json.corrupt"]
    );
    put(&records, "pod/cut", "{}").unwrap();
    assert_eq!(loaded(&records, &["pod", "rejected"]).len(), 2);
}

#[test]
fn another_process_sees_the_valid_records_and_changes_nothing() {
    let (dir, records) = open();
    put(&records, "pods/a.b", "1").unwrap();
    put(&records, "objects/secret.x", "2").unwrap();
    let (damaged, unfinished) = (dir.path().join("records/pods/c.json"), dir.path().join("records/pods/d.json.1.new"));
    fs::write(&damaged, "x").unwrap();
    fs::write(&unfinished, "x").unwrap();
    let seen = values(&Records::look(dir.path(), &["pods", "objects", "none"], None).unwrap());
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    assert_eq!(seen, [pair("objects/secret.x", "2"), pair("pods/a.b", "1")]);
    assert!(damaged.exists() && unfinished.exists());
    assert_eq!(Records::look(&dir.path().join("absent"), &["pods"], None), Ok(Vec::new()));
}

#[test]
fn a_write_that_fails_leaves_the_old_record_and_names_the_file() {
    let (dir, records) = open();
    put(&records, "pod/u", "1").unwrap();
    // A directory occupies the path of the temporary file.
    fs::create_dir(dir.path().join("records/pod/u.json.0.new")).unwrap();
    let error = put(&records, "pod/u", "2").unwrap_err();
    assert!(error.contains("records/pod/u.json"), "{error}");
    assert_eq!(loaded(&records, &["pod", "rejected"]), [("pod/u".to_owned(), "1".to_owned())]);
}

#[test]
fn a_root_has_one_owner_at_a_time_and_one_id_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a/root");
    let root = Root::open(&path).unwrap();
    assert!(root.id.len() == 32 && root.id.bytes().all(|b| b.is_ascii_hexdigit()));
    let error = Root::open(&path).unwrap_err();
    assert!(error.contains(&format!("pid {}", std::process::id())) && error.contains("a/root/lock"), "{error}");
    let id = root.id.clone();
    drop(root);
    assert_eq!(Root::open(&path).unwrap().id, id);
    fs::write(path.join("id"), "damaged").unwrap();
    assert!(Root::open(&path).unwrap_err().contains("a/root/id"));
}

#[test]
fn records_can_be_written_by_another_thread() {
    fn send<T: Send + 'static>(_: &T) {}
    send(&open().1);
}

#[test]
fn files_of_other_modules_next_to_the_records_are_unchanged() {
    let root = tempfile::tempdir().unwrap();
    let records = Records::open(root.path(), None).unwrap();
    let theirs = root.path().join("records/manifests/directory.json");
    std::fs::create_dir_all(theirs.parent().unwrap()).unwrap();
    std::fs::write(&theirs, "of another form").unwrap();
    assert!(loaded(&records, &["pod"]).is_empty());
    assert_eq!(std::fs::read_to_string(&theirs).unwrap(), "of another form");
}

#[test]
fn an_abandoned_batch_changes_nothing_when_it_finishes_late() {
    let (dir, records) = open();
    let hung = records.batch();
    put(&hung, "pod/u", "1").unwrap();
    let next = hung.batch();
    put(&next, "pod/u", "2").unwrap();
    for late in [put(&hung, "pod/u", "old"), delete(&hung, "pod/u"), set_aside(&hung, "pod/u")] {
        assert!(late.unwrap_err().contains("took too long"));
    }
    assert_eq!(loaded(&next, &["pod"]), [("pod/u".to_owned(), "2".to_owned())]);
    let files: Vec<_> = entries(&dir.path().join("records/pod")).into_iter().map(|(name, _)| name).collect();
    assert_eq!(files, ["u.json"]);
}

#[test]
fn a_hung_write_does_not_share_a_file_with_a_later_one() {
    let (dir, records) = open();
    // A thread of the previous batch has this file open and continues to write.
    let hung = records.batch();
    fs::create_dir_all(dir.path().join("records/pod")).unwrap();
    let mut open = File::create(dir.path().join(format!("records/pod/u.json.{}.new", hung.batch))).unwrap();
    put(&records.batch(), "pod/u", "new").unwrap();
    open.write_all(b"old and much longer than what is new").unwrap();
    assert_eq!(loaded(&records, &["pod"]), [("pod/u".to_owned(), "new".to_owned())]);
}

#[test]
fn unusable_records_are_set_aside_and_only_the_newest_are_kept() {
    let (dir, records) = open();
    set_aside(&records, "pod/none").unwrap();
    for n in 0..MAX_CORRUPT + 5 {
        put(&records, &format!("pod/u{n:02}"), "{}").unwrap();
        set_aside(&records, &format!("pod/u{n:02}")).unwrap();
    }
    assert!(loaded(&records, &["pod"]).is_empty());
    let mut files: Vec<_> = entries(&dir.path().join("records/pod")).into_iter().map(|(name, _)| name).collect();
    files.sort();
    assert_eq!(files.len(), MAX_CORRUPT);
    assert_eq!(files.last().unwrap(), &format!("u{:02}.json.corrupt", MAX_CORRUPT + 4));
}

fn key(byte: u8) -> Option<Arc<SealKey>> {
    Some(Arc::new(SealKey::of_credential(&[byte; 32]).unwrap()))
}

fn seal(records: &Records, key: &str, value: &str) -> Result<(), String> {
    records.make(&[RecordChange::Seal { key: key.to_owned(), value: value.to_owned() }]).remove(0)
}

const SECRET: &str = "objects/secret.shop.keys";

fn contents(records: &Records) -> Vec<Content> {
    records.load(&["objects", "tokens"]).into_iter().map(|record| record.content).collect()
}

/// Reports whether no file below the directory contains the text.
fn nowhere(directory: &Path, text: &str) -> bool {
    entries(directory).into_iter().all(|(_, path)| match path.is_dir() {
        true => nowhere(&path, text),
        false => !fs::read(&path).unwrap().windows(text.len()).any(|part| part == text.as_bytes()),
    })
}

#[test]
fn a_sealed_record_replaces_a_plain_one_and_the_reverse() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let records = Records::open(dir.path(), key(1)).unwrap();
    put(&records, SECRET, "hunter2").unwrap();
    assert!(!nowhere(dir.path(), "hunter2"));
    seal(&records, SECRET, "hunter2").unwrap();
    assert_eq!(contents(&records), [Content::Sealed("hunter2".into())]);
    assert!(nowhere(dir.path(), "hunter2"));
    let file = dir.path().join("records/objects/secret.shop.keys.json");
    assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    put(&records, SECRET, "hunter2").unwrap();
    assert_eq!(contents(&records), [Content::Plain("hunter2".into())]);
}

#[test]
fn a_kill_during_the_sealing_leaves_the_plain_record_or_the_sealed_one() {
    let dir = tempfile::tempdir().unwrap();
    let records = Records::open(dir.path(), key(1)).unwrap();
    put(&records, SECRET, "hunter2").unwrap();
    // This is the temporary file of an unfinished write.
    let sealed = key(1).unwrap().seal(SECRET, "hunter2").unwrap();
    let aside = dir.path().join("records/objects/secret.shop.keys.json.7.new");
    for length in [0, 20, 40, sealed.len()] {
        fs::write(&aside, &sealed[..length]).unwrap();
        let again = Records::open(dir.path(), key(1)).unwrap();
        assert_eq!(contents(&again), [Content::Plain("hunter2".into())], "{length}");
        assert!(!aside.exists());
    }
    seal(&records, SECRET, "hunter2").unwrap();
    // The reverse case: an unfinished plain write left this file.
    fs::write(&aside, "{}\nhunter2").unwrap();
    assert_eq!(contents(&Records::open(dir.path(), key(1)).unwrap()), [Content::Sealed("hunter2".into())]);
    assert!(nowhere(dir.path(), "hunter2"));
}

#[test]
fn without_the_key_a_sealed_record_is_locked_and_stays() {
    let dir = tempfile::tempdir().unwrap();
    seal(&Records::open(dir.path(), key(1)).unwrap(), SECRET, "hunter2").unwrap();
    let file = dir.path().join("records/objects/secret.shop.keys.json");
    let before = fs::read(&file).unwrap();
    for other in [None, key(2)] {
        let records = Records::open(dir.path(), other.clone()).unwrap();
        assert_eq!(contents(&records), [Content::Locked]);
        let looked = Records::look(dir.path(), &["objects"], other.as_deref()).unwrap();
        assert_eq!(looked.into_iter().map(|record| record.content).collect::<Vec<_>>(), [Content::Locked]);
    }
    assert_eq!(fs::read(&file).unwrap(), before);
    let without = Records::open(dir.path(), None).unwrap();
    let error = seal(&without, SECRET, "hunter2").unwrap_err();
    assert!(error.contains("secret.shop.keys.json: the service has no key"), "{error}");
    assert_eq!(contents(&Records::open(dir.path(), key(1)).unwrap()), [Content::Sealed("hunter2".into())]);
}

#[test]
fn a_damaged_or_swapped_sealed_record_is_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    let records = Records::open(dir.path(), key(1)).unwrap();
    for name in ["good", "cut", "flipped", "here", "there", "later"] {
        seal(&records, &format!("objects/secret.shop.{name}"), name).unwrap();
    }
    let file = |name: &str| dir.path().join(format!("records/objects/secret.shop.{name}.json"));
    let mut content = fs::read(file("flipped")).unwrap();
    *content.last_mut().unwrap() ^= 1;
    fs::write(file("flipped"), &content).unwrap();
    fs::write(file("cut"), &content[..content.len() - 1]).unwrap();
    fs::rename(file("here"), file("there")).unwrap();
    fs::write(file("later"), [b"wherry-sealed 2 x\n".as_slice(), &content[33..]].concat()).unwrap();
    assert_eq!(contents(&records), [Content::Sealed("good".into())]);
    let mut names: Vec<_> = entries(&dir.path().join("records/objects")).into_iter().map(|(name, _)| name).collect();
    names.sort();
    let corrupt = ["cut", "flipped", "later", "there"].map(|name| format!("secret.shop.{name}.json.corrupt"));
    assert_eq!(names[..2], [corrupt[0].clone(), corrupt[1].clone()]);
    assert_eq!(names[2..], ["secret.shop.good.json".to_owned(), corrupt[2].clone(), corrupt[3].clone()]);
}

#[test]
fn plain_records_that_were_set_aside_are_removed_and_sealed_ones_stay() {
    let dir = tempfile::tempdir().unwrap();
    let records = Records::open(dir.path(), key(1)).unwrap();
    put(&records, "tokens/a", "hunter2").unwrap();
    seal(&records, "tokens/b", "hunter2").unwrap();
    put(&records, "pods/c", "spec").unwrap();
    for name in ["tokens/a", "tokens/b", "pods/c"] {
        set_aside(&records, name).unwrap();
    }
    let remove = |kind: &str| records.make(&[RecordChange::RemoveCorrupt { kind: kind.to_owned() }]).remove(0);
    assert_eq!((remove("tokens"), remove("objects")), (Ok(()), Ok(())));
    assert!(nowhere(dir.path(), "hunter2"));
    let left = |kind: &str| entries(&dir.path().join("records").join(kind)).into_iter().map(|(name, _)| name).collect();
    let (tokens, pods): (Vec<String>, Vec<String>) = (left("tokens"), left("pods"));
    assert_eq!((tokens, pods), (vec!["b.json.corrupt".to_owned()], vec!["c.json.corrupt".to_owned()]));
}
