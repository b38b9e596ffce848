//! The directories of claims: created once, never somewhere else, and removed without leaving the directory.

use super::*;
use crate::api::claim::{ClaimPlace, MadeDirectory};

fn claim(place: &Place) -> ClaimPlace {
    ClaimPlace { base: place.at("root/claims"), namespace: "shop".into(), name: "data".into() }
}

fn volume(place: &Place, fs_group: Option<FsGroup>) -> Volume {
    let kind = VolumeKind::Claim { path: place.at("root/claims/shop/data"), read_only: false };
    Volume { name: "v".into(), kind, fs_group }
}

fn mode(path: &str) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn y22_the_directory_is_for_containers_only_and_is_created_once() {
    let place = place();
    let of = claim(&place);
    assert_eq!(make_claim(&of, true), Ok(MadeDirectory::New));
    let modes = ["root/claims", "root/claims/shop", "root/claims/shop/data"].map(|path| mode(&place.at(path)));
    assert_eq!(modes, [0o700, 0o700, 0o777]);
    assert_eq!(make_claim(&of, true), Ok(MadeDirectory::Empty));
    fs::create_dir(place.at("root/claims/shop/data/lost+found")).unwrap();
    assert_eq!(make_claim(&of, false), Ok(MadeDirectory::Empty), "a file system of its own");
    fs::write(place.at("root/claims/shop/data/file"), "x").unwrap();
    assert_eq!(make_claim(&of, false), Ok(MadeDirectory::Filled));
}

#[test]
fn y22_the_directory_of_another_class_must_exist() {
    let place = place();
    let missing = make_claim(&claim(&place), false).unwrap_err();
    assert!(
        missing.ends_with("No such file or directory (os error 2); create it, or mount its file system"),
        "{missing}"
    );
    assert!(remove_claim(&claim(&place)).is_err(), "what it contains is not known");
    assert!(!Path::new(&place.at("root/claims")).exists());
}

#[test]
fn y22_no_part_of_the_path_is_a_link_or_a_file() {
    let place = place();
    let of = claim(&place);
    fs::create_dir_all(place.at("root/claims")).unwrap();
    fs::create_dir_all(place.at("precious/data")).unwrap();
    fs::write(place.at("precious/data/file"), "x").unwrap();
    symlink(place.at("precious"), place.at("root/claims/shop")).unwrap();
    assert!(make_claim(&of, false).is_err() && remove_claim(&of).is_err());
    fs::remove_file(place.at("root/claims/shop")).unwrap();
    fs::create_dir(place.at("root/claims/shop")).unwrap();
    symlink(place.at("precious/data"), place.at("root/claims/shop/data")).unwrap();
    assert!(make_claim(&of, false).is_err());
    let set_up = place.set_up(&[volume(&place, None)]).unwrap_err().to_string();
    assert!(set_up.contains("does not exist; mount its file system, or create it"), "{set_up}");
    remove_claim(&of).unwrap();
    assert_eq!(read(&place.at("precious/data/file")), "x", "only the link is removed");
    for (namespace, name) in [("..", "data"), ("shop", ".."), ("shop", "a/b"), ("", "data"), ("shop", "")] {
        let of = ClaimPlace { namespace: namespace.into(), name: name.into(), ..of.clone() };
        assert!(make_claim(&of, false).is_err() && remove_claim(&of).is_err(), "{namespace}/{name}");
    }
}

#[test]
fn y22_the_removal_leaves_what_links_lead_to_and_other_claims() {
    let place = place();
    let (of, other) = (claim(&place), ClaimPlace { name: "other".into(), ..claim(&place) });
    make_claim(&of, true).unwrap();
    make_claim(&other, true).unwrap();
    fs::create_dir(place.at("precious")).unwrap();
    fs::write(place.at("precious/file"), "x").unwrap();
    fs::create_dir_all(place.at("root/claims/shop/data/a/b")).unwrap();
    symlink(place.at("precious"), place.at("root/claims/shop/data/a/link")).unwrap();
    symlink("../../../../../precious", place.at("root/claims/shop/data/a/b/relative")).unwrap();
    for _ in 0..2 {
        remove_claim(&of).unwrap();
    }
    assert_eq!(
        (names(&place.at("root/claims/shop")), read(&place.at("precious/file"))),
        (vec!["other".to_owned()], "x".to_owned())
    );
    remove_claim(&other).unwrap();
    assert_eq!(names(&place.at("root/claims")), [""; 0], "the directory of the namespace goes with its last claim");
}

#[test]
fn y22_the_removal_stops_at_a_mount() {
    with_mounts(|| {
        let place = place();
        make_claim(&claim(&place), true).unwrap();
        fs::create_dir_all(place.at("precious")).unwrap();
        fs::write(place.at("precious/file"), "x").unwrap();
        fs::create_dir(place.at("root/claims/shop/data/disk")).unwrap();
        mount_bind(place.at("precious"), place.at("root/claims/shop/data/disk")).unwrap();
        let why = remove_claim(&claim(&place)).unwrap_err();
        assert!(why.ends_with("it is a mount point; unmount it first"), "{why}");
        assert_eq!(read(&place.at("precious/file")), "x");
    });
}

#[test]
fn y22_a_pod_gives_its_group_to_the_files_once() {
    let place = place();
    make_claim(&claim(&place), true).unwrap();
    let file = place.at("root/claims/shop/data/file");
    fs::write(&file, "x").unwrap();
    let own = fs::metadata(&file).unwrap().gid();
    let group = Some(FsGroup { gid: own, only_on_root_mismatch: false });
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let kind = VolumeKind::Claim { path: place.at("root/claims/shop/data"), read_only: true };
    place.set_up(&[Volume { kind, ..volume(&place, group) }]).unwrap();
    assert_eq!(mode(&file), 0o600, "a pod that only reads");
    place.set_up(&[volume(&place, group)]).unwrap();
    assert_eq!((mode(&place.at("root/claims/shop/data")), mode(&file) & 0o660), (0o2777, 0o660));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    place.set_up(&[volume(&place, group)]).unwrap();
    assert_eq!(mode(&file), 0o600, "the containers of the pod may have set it");
    place.tear_down().unwrap();
    assert_eq!(read(&file), "x");
    place.set_up(&[volume(&place, group)]).unwrap();
    assert_eq!(mode(&file), 0o660, "the next pod");
}
