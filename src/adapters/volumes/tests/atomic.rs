use super::*;
use crate::adapters::volumes::tests::{End, gid, is_root, mode, names, place, read, tmpfs, with_mounts};
use std::fs;
use std::os::unix::fs::symlink;

fn file(path: &str, mode: u32, text: &str) -> VolumeFile {
    VolumeFile { path: path.into(), mode, owner: None, bytes: text.as_bytes().to_vec() }
}

/// Returns the name of the current version.
fn version(dir: &str) -> String {
    fs::read_link(format!("{dir}/..data")).unwrap().into_os_string().into_string().unwrap()
}

#[test]
fn files_are_links_to_the_current_version() {
    let place = place();
    let dir = place.at("root");
    let list = [file("key", 0o644, "value"), file("a/b/c", 0o400, "deep"), file("a/d", 0o777, "")];
    assert_eq!(write(&dir, &list, None), Ok(true));
    let now = version(&dir);
    let is_time = |text: &str| text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'_' | b'.'));
    assert!(now.starts_with("..20") && now.len() == "..2026_11_23_06_22_15.123456789".len() && is_time(&now), "{now}");
    assert_eq!(names(&dir), [now.as_str(), "..data", "a", "key"]);
    assert_eq!(fs::read_link(format!("{dir}/a")).unwrap().to_str(), Some("..data/a"));
    assert_eq!((read(&format!("{dir}/key")), read(&format!("{dir}/a/b/c"))), ("value".into(), "deep".into()));
    for (path, wanted) in [("", 0o755), ("/a", 0o755), ("/key", 0o644), ("/a/b/c", 0o400), ("/a/d", 0o777)] {
        assert_eq!(mode(&format!("{dir}/{now}{path}")), wanted, "{path}");
    }
}

#[test]
fn equal_files_are_not_written_and_each_difference_is() {
    let place = place();
    let dir = place.at("root");
    let list = |text, mode| vec![file("key", mode, text), file("a/b", 0o644, "x")];
    assert_eq!(write(&dir, &list("value", 0o644), None), Ok(true));
    let first = version(&dir);
    assert_eq!(write(&dir, &list("value", 0o644), None), Ok(false));
    assert_eq!(version(&dir), first);
    let mut more = list("value", 0o644);
    more.push(file("new", 0o644, ""));
    for (files, wanted) in [
        (list("other", 0o644), vec!["a", "key"]),
        (list("equal", 0o644), vec!["a", "key"]),
        (list("equal", 0o600), vec!["a", "key"]),
        (more, vec!["a", "key", "new"]),
        (list("equal", 0o600)[..1].to_vec(), vec!["key"]),
        (vec![], vec![]),
        (vec![file("a", 0o644, "a file now")], vec!["a"]),
    ] {
        let before = version(&dir);
        assert_eq!(write(&dir, &files, None), Ok(true), "{files:?}");
        assert_ne!(version(&dir), before);
        assert_eq!(names(&dir)[2..], wanted);
        assert_eq!(write(&dir, &files, None), Ok(false), "{files:?}");
    }
    assert_eq!(read(&format!("{dir}/a")), "a file now");
}

#[test]
fn a_file_that_a_container_damaged_is_written_again() {
    let place = place();
    let dir = place.at("root");
    let list = [file("key", 0o644, "value")];
    let damages: [&dyn Fn(&str); 4] = [
        &|path| fs::write(path, "VALUE").unwrap(),
        &|path| fs::remove_file(path).unwrap(),
        &|path| {
            fs::remove_file(path).unwrap();
            symlink("/etc/passwd", path).unwrap();
        },
        &|path| fs::write(path.replace("/key", "/more"), "").unwrap(),
    ];
    for damage in damages {
        write(&dir, &list, None).unwrap();
        damage(&format!("{dir}/{}/key", version(&dir)));
        assert_eq!(write(&dir, &list, None), Ok(true));
        assert_eq!((read(&format!("{dir}/key")).as_str(), names(&dir).len()), ("value", 3));
    }
}

#[test]
fn leftovers_of_a_killed_write_are_removed() {
    let place = place();
    let dir = place.at("root");
    let list = [file("key", 0o644, "value")];
    write(&dir, &list, None).unwrap();
    let now = version(&dir);
    let leave = || {
        fs::create_dir_all(format!("{dir}/..2020_01_01_00_00_00.1/a")).unwrap();
        symlink("..2020_01_01_00_00_00.1", format!("{dir}/..data_tmp")).unwrap();
        symlink("..data/gone", format!("{dir}/gone")).unwrap();
        fs::remove_file(format!("{dir}/key")).unwrap();
    };
    leave();
    assert_eq!(write(&dir, &list, None), Ok(false));
    assert_eq!(names(&dir), [now.as_str(), "..data", "key"]);
    leave();
    assert_eq!(write(&dir, &[file("key", 0o644, "new")], None), Ok(true));
    assert_eq!(names(&dir), [version(&dir).as_str(), "..data", "key"]);
    // `..data` is not a link to a version, so the files are written again.
    fs::remove_file(format!("{dir}/..data")).unwrap();
    symlink("/etc", format!("{dir}/..data")).unwrap();
    assert_eq!(write(&dir, &list, None), Ok(true));
    assert_eq!(read(&format!("{dir}/key")), "value");
}

#[test]
fn something_in_the_place_of_a_link_is_kept_except_for_an_empty_directory() {
    let place = place();
    let dir = place.at("root");
    // The mount of a sub-path whose file was missing leaves such a directory.
    fs::create_dir(format!("{dir}/key")).unwrap();
    fs::create_dir(format!("{dir}/other")).unwrap();
    assert_eq!(write(&dir, &[file("key", 0o644, "value")], None), Ok(true));
    assert_eq!(read(&format!("{dir}/key")), "value");
    assert!(names(&dir).contains(&"other".to_owned()));
    fs::write(format!("{dir}/other/file"), "").unwrap();
    let taken = Cause::Taken(format!("{dir}/other"));
    assert_eq!(write(&dir, &[file("other", 0o644, "value")], None), Err(taken));
    assert!(names(&format!("{dir}/other")).contains(&"file".to_owned()));
}

#[test]
fn a_group_can_read_the_files_and_owns_them() {
    if !is_root() {
        return;
    }
    let place = place();
    let dir = place.at("root");
    let list = [file("a/key", 0o400, "value")];
    assert_eq!(write(&dir, &list, Some(4711)), Ok(true));
    assert_eq!(write(&dir, &list, Some(4711)), Ok(false));
    let now = version(&dir);
    for (path, wanted) in [("", 0o2755), ("/a", 0o2755), ("/a/key", 0o440)] {
        let path = format!("{dir}/{now}{path}");
        assert_eq!((mode(&path), gid(&path)), (wanted, 4711), "{path}");
    }
    assert_eq!((gid(&format!("{dir}/..data")), gid(&format!("{dir}/a"))), (4711, 4711));
    assert_eq!(write(&dir, &list, Some(4712)), Ok(true));
    assert_eq!(write(&dir, &list, None), Ok(true));
    assert_eq!(mode(&format!("{dir}/{}/a/key", version(&dir))), 0o400);
}

#[test]
fn of_two_files_with_one_path_the_last_wins_and_a_file_cannot_be_a_directory() {
    let place = place();
    let dir = place.at("root");
    assert_eq!(write(&dir, &[file("a", 0o644, "first"), file("a", 0o600, "last")], None), Ok(true));
    assert_eq!(read(&format!("{dir}/a")), "last");
    for list in [["a", "a/b"], ["a/b/c", "a"]] {
        let files = list.map(|path| file(path, 0o644, ""));
        let error = write(&dir, &files, None).unwrap_err();
        assert!(matches!(&error, Cause::Collision { file, .. } if file == "a"), "{error}");
    }
    for path in ["", "/a", ".", "./", "../a", "./..a", "a/../b", "..", "..a", "a\0b", &"a".repeat(256)] {
        assert_eq!(write(&dir, &[file(path, 0o644, "")], None), Err(Cause::FilePath(path.into())));
    }
    assert_eq!(read(&format!("{dir}/a")), "last");
    assert_eq!(write(&dir, &[file("./a//b/.", 0o644, "x")], None), Ok(true));
    assert_eq!(read(&format!("{dir}/a/b")), "x");
}

#[test]
fn a_full_disk_leaves_the_old_files_and_nothing_else() {
    with_mounts(|| {
        let place = place();
        let dir = place.at("root");
        tmpfs(&dir);
        rustix::mount::mount_remount(&dir, rustix::mount::MountFlags::empty(), c"size=64k").unwrap();
        write(&dir, &[file("key", 0o644, "old")], None).unwrap();
        let before = names(&dir);
        let error = write(&dir, &[file("key", 0o644, &"x".repeat(100_000))], None).unwrap_err();
        assert!(matches!(&error, Cause::Failed(f) if f.errno == Errno::NOSPC), "{error}");
        assert_eq!((names(&dir), read(&format!("{dir}/key"))), (before, "old".into()));
    });
}

#[test]
fn a_concurrent_reader_sees_all_old_files_or_all_new_ones() {
    let place = place();
    let dir = place.at("root");
    let list = |n: usize| [file("a", 0o644, &n.to_string()), file("b", 0o644, &n.to_string())];
    write(&dir, &list(0), None).unwrap();
    let end = End::default();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut versions = 0;
            let mut last = String::new();
            while !end.is_reached() {
                let open = rustix::fs::open(format!("{dir}/..data"), OFlags::PATH | OFlags::DIRECTORY, Mode::empty());
                // `..data` itself always exists. Its target can be removed between the two steps of the lookup.
                let data = match open {
                    Err(Errno::NOENT) => continue,
                    open => open.unwrap(),
                };
                let read = |name| {
                    let fd = rustix::fs::openat(&data, name, OFlags::RDONLY, Mode::empty()).ok()?;
                    let mut text = String::new();
                    File::from(fd).read_to_string(&mut text).unwrap();
                    Some(text)
                };
                // A version that was replaced can be removed while it is read.
                if let (Some(a), Some(b)) = (read("a"), read("b")) {
                    assert_eq!(a, b);
                    versions += usize::from(a != last);
                    last = a;
                }
                assert!(fs::symlink_metadata(format!("{dir}/..data")).is_ok());
            }
            versions
        });
        let ends = end.after();
        for n in 1..2000 {
            write(&dir, &list(n), None).unwrap();
        }
        drop(ends);
        let versions = reader.join().unwrap();
        assert!(versions > 1, "the reader saw {versions} versions");
    });
}
