//! `tear_down` removes everything of the pod, and nothing else.

use super::*;

#[test]
fn only_the_volumes_of_the_pod_are_removed() {
    let place = place();
    let volumes = [empty_dir("v", Medium::Disk), host_path("h", &place.at("host"), HostPathType::DirectoryOrCreate)];
    for uid in ["u1", "u2"] {
        set_up(&place.layout, uid, &volumes).unwrap();
    }
    fs::write(place.at("root/pods/u1/etc-hosts"), "").unwrap();
    fs::write(place.at("host/precious"), "").unwrap();
    symlink(place.at("host"), place.volume("empty-dir/v/link")).unwrap();
    symlink("../../../../../../host", place.volume("empty-dir/v/relative")).unwrap();
    for _ in 0..2 {
        place.tear_down().unwrap();
    }
    assert_eq!(names(&place.at("root/pods/u1")), ["etc-hosts"]);
    assert_eq!(names(&place.at("root/pods/u2")), ["plugins", "volumes"]);
    assert_eq!(names(&place.at("host")), ["precious"]);
    tear_down(&place.layout, "unknown").unwrap();
}

#[test]
fn a_link_in_place_of_the_pods_directory_is_not_followed() {
    let place = place();
    fs::create_dir_all(place.at("root/pods")).unwrap();
    fs::create_dir_all(place.at("precious/volumes/x")).unwrap();
    symlink(place.at("precious"), place.at("root/pods/u1")).unwrap();
    place.tear_down().unwrap();
    assert_eq!(names(&place.at("precious/volumes")), ["x"]);
}

#[test]
fn a_planted_bind_mount_is_unmounted_and_its_source_stays() {
    with_mounts(|| {
        let place = place();
        place.set_up(&[empty_dir("disk", Medium::Disk), empty_dir("memory", Medium::Memory { size: None })]).unwrap();
        fs::create_dir_all(place.at("precious/deep")).unwrap();
        fs::write(place.at("precious/deep/file"), "x").unwrap();
        for at in ["disk/a b", "disk/x/y/z", "memory/m"] {
            let at = place.volume(&format!("empty-dir/{at}"));
            fs::create_dir_all(&at).unwrap();
            mount_bind(place.at("precious"), &at).unwrap();
        }
        // A file is mounted on a file.
        fs::write(place.volume("empty-dir/disk/file"), "").unwrap();
        mount_bind(place.at("precious/deep/file"), place.volume("empty-dir/disk/file")).unwrap();
        // There is a mount below a planted mount.
        tmpfs(&place.volume("empty-dir/disk/a b/deep"));
        place.tear_down().unwrap();
        assert_eq!(place.mounts(), [""; 0]);
        assert_eq!(read(&place.at("precious/deep/file")), "x");
        assert!(names(&place.at("root/pods/u1")).is_empty());
    });
}

#[test]
fn mounts_of_the_source_of_a_shared_planted_mount_stay_mounted() {
    with_mounts(|| {
        let place = place();
        place.set_up(&[empty_dir("disk", Medium::Disk)]).unwrap();
        let (source, planted) = (place.at("precious"), place.volume("empty-dir/disk/planted"));
        fs::create_dir_all(format!("{source}/usb")).unwrap();
        fs::create_dir_all(&planted).unwrap();
        mount_bind(&source, &source).unwrap();
        mount_change(&source, MountPropagationFlags::SHARED).unwrap();
        tmpfs(&format!("{source}/usb"));
        fs::write(format!("{source}/usb/file"), "x").unwrap();
        // The copy is in the same peer group: an unmount below it would propagate to the source.
        mount_bind_recursive(&source, &planted).unwrap();
        assert_eq!(read(&format!("{planted}/usb/file")), "x");
        place.tear_down().unwrap();
        assert_eq!(read(&format!("{source}/usb/file")), "x");
        assert_eq!(place.mounts(), [source.clone(), format!("{source}/usb")]);
    });
}

#[test]
fn mounts_that_cover_each_other_are_all_removed() {
    with_mounts(|| {
        let place = place();
        place.set_up(&[empty_dir("v", Medium::Disk)]).unwrap();
        let dir = place.volume("empty-dir/v");
        for _ in 0..2 {
            for below in ["", "/x", "/x/y"] {
                fs::create_dir_all(format!("{dir}{below}")).unwrap();
                tmpfs(&format!("{dir}{below}"));
            }
        }
        assert_eq!(place.mounts().len(), 6);
        place.tear_down().unwrap();
        assert_eq!(place.mounts(), [""; 0]);
    });
}

#[test]
fn a_mount_in_use_is_an_error_and_keeps_all_files() {
    with_mounts(|| {
        let place = place();
        place.set_up(&[empty_dir("disk", Medium::Disk), empty_dir("m", Medium::Memory { size: None })]).unwrap();
        let (disk, memory) = (place.volume("empty-dir/disk/file"), place.volume("empty-dir/m/file"));
        fs::write(&disk, "x").unwrap();
        let busy = File::create(&memory).unwrap();
        let error = place.tear_down().unwrap_err().to_string();
        let dir = place.volume("empty-dir/m");
        assert!(error.starts_with(&format!("UnmountVolume.TearDown failed: failed to unmount {dir}: ")), "{error}");
        assert!(Path::new(&disk).exists() && Path::new(&memory).exists());
        drop(busy);
        place.tear_down().unwrap();
        assert!(names(&place.at("root/pods/u1")).is_empty());
    });
}

#[test]
fn a_pod_is_removed_through_a_root_directory_that_is_a_link() {
    with_mounts(|| {
        let mut place = place();
        fs::create_dir(place.at("real root")).unwrap();
        symlink("real root", place.at("link")).unwrap();
        place.layout.root = place.at("link");
        let secret = files("s", FilesPlugin::Secret, &[("key", 0o600, "x")]);
        place.set_up(&[secret]).unwrap();
        assert_eq!(place.mounts().len(), 1);
        place.tear_down().unwrap();
        assert_eq!(place.mounts(), [""; 0]);
    });
}

/// Removes the volumes. A program that another test starts has all descriptors of this process for a moment, so a
/// volume can be busy; the worker of a pod repeats the removal too.
fn tear_down_when_free(place: &Place) {
    for _ in 0..1000 {
        match place.tear_down() {
            Err(e) if e.to_string().contains("os error 16") => std::thread::sleep(std::time::Duration::from_millis(10)),
            result => return result.unwrap(),
        }
    }
    panic!("the volumes stay busy");
}

#[test]
fn a_thousand_pod_lives_leave_no_mount_and_no_descriptor() {
    with_mounts(|| {
        let place = place();
        let volumes = [
            empty_dir("m", Medium::Memory { size: Some(1 << 20) }),
            files("c", FilesPlugin::ConfigMap, &[("key", 0o644, "x")]),
            files("s", FilesPlugin::Secret, &[("key", 0o600, "x")]),
        ];
        let container: crate::api::k8s::Container = serde_json::from_value(serde_json::json!({
            "name": "main",
            "volumeMounts": [{"name": "m", "mountPath": "/m", "subPath": "a/b"},
                {"name": "c", "mountPath": "/c", "subPath": "key"}],
        }))
        .unwrap();
        let of = ForContainer { container: &container, env: &[], recursive_read_only: false };
        for round in 0..1000 {
            place.set_up(&volumes).unwrap();
            container_mounts(&place.layout, "u1", &volumes, of).unwrap();
            if round % 2 == 0 {
                tear_down_container(&place.layout, "u1", "main").unwrap();
            }
            tear_down_when_free(&place);
        }
        assert_eq!((place.mounts().len(), place.descriptors()), (0, 0));
        assert!(names(&place.at("root/pods/u1")).is_empty());
    });
}
