use super::*;
use crate::adapters::volumes::tests::{End, Place, mode, place, read};
use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

type Open = fn(BorrowedFd<'_>, &[u8], Mode) -> Result<OwnedFd, Errno>;

/// Both ways of resolving a path.
const WAYS: [Open; 2] = [open, walk];

/// Creates the volume `v` and the directory `outside`, which must not be reached.
fn volume() -> (Place, OwnedFd) {
    let place = place();
    for dir in ["v/a/b", "outside/b"] {
        fs::create_dir_all(place.at(dir)).unwrap();
    }
    fs::write(place.at("v/a/b/file"), "inside").unwrap();
    fs::write(place.at("outside/b/file"), "outside").unwrap();
    let root = rustix::fs::open(place.at("v"), OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
    (place, root)
}

fn try_open(way: Open, root: &OwnedFd, path: &str) -> Result<String, Errno> {
    let fd = way(root.as_fd(), path.as_bytes(), Mode::from_raw_mode(0o755))?;
    Ok(fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap().into_os_string().into_string().unwrap())
}

#[test]
fn links_that_stay_below_the_root_are_followed() {
    let (place, root) = volume();
    symlink("a", place.at("v/to-a")).unwrap();
    symlink("../a/./b", place.at("v/a/up")).unwrap();
    symlink("to-a/b/file", place.at("v/to-file")).unwrap();
    for way in WAYS {
        for (path, wanted) in [
            ("a/b", "v/a/b"),
            ("a//b/", "v/a/b"),
            (".", "v"),
            ("to-a/b/file", "v/a/b/file"),
            ("a/up/file", "v/a/b/file"),
            ("to-file", "v/a/b/file"),
            ("a/../a/b", "v/a/b"),
        ] {
            assert_eq!(try_open(way, &root, path), Ok(place.at(wanted)), "{path}");
        }
    }
}

#[test]
fn a_link_out_of_the_root_is_refused_in_every_part_of_a_path() {
    let (place, root) = volume();
    let targets = [place.at("outside"), "/".into(), "..".into(), "../outside".into(), "a/../../outside".into()];
    for target in &targets {
        for (at, path) in [("v/x", "x"), ("v/x", "x/b"), ("v/x", "x/b/file"), ("v/a/x", "a/x/b"), ("v/a/b/x", "a/b/x")]
        {
            // A relative target starts at the directory of the link. One more `..` for each level lets it leave the
            // root.
            let target = if target.starts_with('/') {
                target.clone()
            } else {
                format!("{}{target}", "../".repeat(at.matches('/').count() - 1))
            };
            symlink(&target, place.at(at)).unwrap();
            for way in WAYS {
                let result = try_open(way, &root, path);
                assert!(matches!(result, Err(Errno::XDEV)), "{path} by way of {target}: {result:?}");
            }
            fs::remove_file(place.at(at)).unwrap();
        }
    }
    for way in WAYS {
        for path in ["..", "../outside", "a/../../outside", "a/b/../../.."] {
            assert_eq!(try_open(way, &root, path), Err(Errno::XDEV), "{path}");
        }
    }
    assert_eq!(fs::read_dir(place.at("outside")).unwrap().count(), 1);
}

#[test]
fn a_link_of_the_kernel_and_a_loop_are_refused() {
    let (place, root) = volume();
    symlink("loop", place.at("v/loop")).unwrap();
    let proc = rustix::fs::open("/proc", OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
    for way in WAYS {
        assert_eq!(try_open(way, &root, "loop/a"), Err(Errno::LOOP));
        assert!(matches!(try_open(way, &proc, "thread-self/root"), Err(Errno::LOOP | Errno::XDEV)));
        assert_eq!(try_open(way, &root, "a/b/file/x"), Err(Errno::NOTDIR));
        assert_eq!(try_open(way, &root, &"x/".repeat(MAX_DEPTH + 1)), Err(Errno::NAMETOOLONG));
    }
    // The file itself is not accessed, so a FIFO does not block.
    let fifo = Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(&root, "fifo", FileType::Fifo, fifo, 0).unwrap();
    assert_eq!(try_open(open, &root, "fifo"), Ok(place.at("v/fifo")));
}

#[test]
fn missing_directories_are_created_below_the_root_with_the_given_mode() {
    let (place, root) = volume();
    symlink("../target/deep", place.at("v/a/dangling")).unwrap();
    symlink("../../outside/new", place.at("v/a/leaves")).unwrap();
    for (i, way) in WAYS.into_iter().enumerate() {
        let path = format!("new{i}/x");
        let fd = way(root.as_fd(), path.as_bytes(), Mode::from_raw_mode(0o1777)).unwrap();
        assert_eq!(identity(&fd), identity(&way(root.as_fd(), path.as_bytes(), Mode::empty()).unwrap()));
        for part in [format!("v/new{i}"), format!("v/new{i}/x")] {
            assert_eq!(mode(&place.at(&part)), 0o1777);
        }
        assert_eq!(try_open(way, &root, "a/dangling/x"), Ok(place.at("v/target/deep/x")));
        assert_eq!(try_open(way, &root, "a/leaves/x"), Err(Errno::XDEV));
    }
    assert_eq!(fs::read_dir(place.at("outside")).unwrap().count(), 1);
}

#[test]
fn a_part_that_is_replaced_during_the_walk_never_leads_outside() {
    for way in WAYS {
        let (place, root) = volume();
        let place = &place;
        symlink(place.at("outside"), place.at("v/absolute")).unwrap();
        symlink("../outside", place.at("v/relative")).unwrap();
        let end = End::default();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let exchange = |with: &str| {
                    let flags = rustix::fs::RenameFlags::EXCHANGE;
                    let (a, with) = (place.at("v/a"), place.at(with));
                    rustix::fs::renameat_with(rustix::fs::CWD, a, rustix::fs::CWD, with, flags).unwrap();
                };
                while !end.is_reached() {
                    for with in ["v/absolute", "v/relative"] {
                        exchange(with);
                        exchange(with);
                    }
                }
            });
            let _end = end.after();
            let (mut tries, mut opened) = (0, 0);
            // On a busy disk an exchange can take longer than all 20,000 tries.
            let deadline = Instant::now() + Duration::from_secs(60);
            while tries < 20_000 || (opened == 0 && Instant::now() < deadline) {
                tries += 1;
                match way(root.as_fd(), b"a/b/file", Mode::from_raw_mode(0o755)) {
                    Ok(fd) => {
                        opened += 1;
                        assert_eq!(read(&format!("/proc/self/fd/{}", fd.as_raw_fd())), "inside");
                    }
                    Err(e) => assert!(matches!(e, Errno::XDEV | Errno::LOOP | Errno::AGAIN), "{e}"),
                }
            }
            assert!(opened > 0);
        });
        assert_eq!(read(&place.at("outside/b/file")), "outside");
    }
}

#[test]
fn a_plain_path_has_no_links_at_all() {
    let (place, root) = volume();
    symlink("a", place.at("v/to-a")).unwrap();
    let opened = |path: &str| open_plain(root.as_fd(), path.as_bytes()).map(drop);
    assert_eq!((opened(""), opened("a/b")), (Ok(()), Ok(())));
    assert!(matches!(opened("to-a/b"), Err(Errno::LOOP | Errno::NOTDIR)));
    assert_eq!((opened("a/.."), opened("a/b/file")), (Err(Errno::XDEV), Err(Errno::NOTDIR)));
}
