//! The checks of hostPath volumes.

use super::*;
use std::os::unix::net::UnixListener;

const ALL: [(HostPathType, &str); 5] = [
    (HostPathType::Directory, "a directory"),
    (HostPathType::File, "a file"),
    (HostPathType::Socket, "a socket file"),
    (HostPathType::CharDevice, "a character device"),
    (HostPathType::BlockDevice, "a block device"),
];

#[test]
fn each_type_accepts_its_own_files_and_rejects_all_others() {
    let place = place();
    fs::create_dir(place.at("directory")).unwrap();
    fs::write(place.at("file"), "").unwrap();
    let _socket = UnixListener::bind(place.at("socket")).unwrap();
    symlink(place.at("file"), place.at("link")).unwrap();
    let mut there = vec![
        (place.at("directory"), Some("a directory")),
        (place.at("file"), Some("a file")),
        (place.at("link"), Some("a file")),
        (place.at("socket"), Some("a socket file")),
        ("/dev/null".to_owned(), Some("a character device")),
        (place.at("missing"), None),
        (place.at("file/below"), None),
    ];
    let mode = Mode::from_raw_mode(0o600);
    // Creating a device requires root.
    if rustix::fs::mknodat(CWD, place.at("block"), FileType::BlockDevice, mode, rustix::fs::makedev(7, 200)).is_ok() {
        there.push((place.at("block"), Some("a block device")));
    }
    for (path, kind) in there {
        for (check, wanted) in ALL {
            let result = place.set_up(&[host_path("h", &path, check)]).map_err(|e| e.to_string());
            let error = format!(
                "MountVolume.SetUp failed for volume \"h\" : hostPath type check failed: {path} is not {wanted}"
            );
            assert_eq!(result, if kind == Some(wanted) { Ok(()) } else { Err(error) });
        }
        assert_eq!(place.set_up(&[host_path("h", &path, HostPathType::Unset)]), Ok(()));
    }
    assert!(!Path::new(&place.at("missing")).exists());
    // A hostPath needs no directory of the pod.
    assert!(names(&place.layout.root).is_empty());
}

#[test]
fn a_missing_path_is_created_if_its_type_says_so() {
    let place = place();
    let (directory, file) = (place.at("new/deep"), place.at("new/file"));
    let create_file = host_path("f", &file, HostPathType::FileOrCreate);
    // The parents of a file are not created.
    let error = place.set_up(std::slice::from_ref(&create_file)).unwrap_err().to_string();
    assert!(error.contains(&format!("failed to create file {file}: No such file or directory")), "{error}");
    for _ in 0..2 {
        place.set_up(&[host_path("d", &directory, HostPathType::DirectoryOrCreate), create_file.clone()]).unwrap();
    }
    assert_eq!((mode(&place.at("new")), mode(&directory), mode(&file)), (0o755, 0o755, 0o644));
    let error = place.set_up(&[host_path("f", &directory, HostPathType::FileOrCreate)]).unwrap_err().to_string();
    assert!(error.ends_with(&format!("{directory} is not a file")), "{error}");
    let error = place.set_up(&[host_path("d", &file, HostPathType::DirectoryOrCreate)]).unwrap_err().to_string();
    assert!(error.ends_with(&format!("{file} is not a directory")), "{error}");
    place.tear_down().unwrap();
    assert!(Path::new(&directory).is_dir() && Path::new(&file).is_file());
}
