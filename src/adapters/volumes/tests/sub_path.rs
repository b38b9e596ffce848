use super::*;
use crate::adapters::volumes::tests::*;
use crate::adapters::volumes::{set_up, tear_down, tear_down_container, update_files};
use crate::api::mount::ImageSource;
use crate::api::volume::{FilesPlugin, HostPathType, Medium};
use rustix::mount::{mount_bind, mount_change};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;

fn container(mounts: Value) -> Container {
    serde_json::from_value(json!({"name": "main", "volumeMounts": mounts})).unwrap()
}

fn mounts_with(
    place: &Place,
    volumes: &[Volume],
    mounts: Value,
    recursive_read_only: bool,
) -> Result<Vec<Mount>, String> {
    let env = [("NAME".to_owned(), "web".to_owned()), ("UP".to_owned(), "../..".to_owned())];
    let container = container(mounts);
    let of = ForContainer { container: &container, env: &env, recursive_read_only };
    container_mounts(&place.layout, "u1", volumes, of).map_err(|e| e.to_string())
}

fn mounts(place: &Place, volumes: &[Volume], list: Value) -> Result<Vec<Mount>, String> {
    mounts_with(place, volumes, list, true)
}

fn sub_path_of(place: &Place, volume: &str, index: usize) -> String {
    place.at(&format!("root/pods/u1/volume-subpaths/{volume}/main/{index}"))
}

fn source_path(mount: &Mount) -> String {
    match &mount.source {
        MountSource::Host(path) => path.clone(),
        MountSource::Image(_) => panic!("{mount:?}"),
    }
}

#[test]
fn a_whole_volume_needs_no_mount_of_its_own() {
    let place = place();
    let volumes = [
        empty_dir("e", Medium::Disk),
        host_path("h", &place.at("host"), HostPathType::Unset),
        files("c", FilesPlugin::ConfigMap, &[]),
    ];
    set_up(&place.layout, "u1", &volumes).unwrap();
    let list = json!([
        {"name": "e", "mountPath": "/e", "subPath": ""},
        {"name": "h", "mountPath": "h/x", "readOnly": true, "mountPropagation": "HostToContainer"},
        {"name": "c", "mountPath": "/c"},
        {"name": "e", "mountPath": "/shared", "mountPropagation": "Bidirectional"},
        {"name": "e", "mountPath": "/r", "readOnly": true, "recursiveReadOnly": "IfPossible"},
        {"name": "e", "mountPath": "/s", "readOnly": true, "recursiveReadOnly": "Disabled"},
    ]);
    let mount = |path: &str, host: &str, access, propagation| Mount {
        container_path: path.into(),
        source: MountSource::Host(host.into()),
        access,
        propagation,
        owned: path != "/h/x",
    };
    let e = place.volume("empty-dir/e");
    let wanted = |recursive| {
        [
            mount("/e", &e, Access::ReadWrite, Propagation::Private),
            mount("/h/x", &place.at("host"), Access::ReadOnly, Propagation::HostToContainer),
            mount("/c", &place.volume("configmap/c"), Access::ReadOnly, Propagation::Private),
            mount("/shared", &e, Access::ReadWrite, Propagation::Bidirectional),
            mount("/r", &e, recursive, Propagation::Private),
            mount("/s", &e, Access::ReadOnly, Propagation::Private),
        ]
    };
    assert_eq!(mounts(&place, &volumes, list.clone()).unwrap(), wanted(Access::RecursiveReadOnly));
    assert_eq!(mounts_with(&place, &volumes, list, false).unwrap(), wanted(Access::ReadOnly));
    let enabled = json!([{"name": "e", "mountPath": "/e", "readOnly": true, "recursiveReadOnly": "Enabled"}]);
    let error = mounts_with(&place, &volumes, enabled, false).unwrap_err();
    assert!(
        error.ends_with("recursive read-only mode is requested, but it is not supported by the runtime"),
        "{error}"
    );
}

#[test]
fn a_sub_path_that_is_not_valid_is_refused() {
    let place = place();
    let volumes = [empty_dir("e", Medium::Disk)];
    set_up(&place.layout, "u1", &volumes).unwrap();
    symlink("/etc", place.volume("empty-dir/e/etc")).unwrap();
    for (mount, end) in [
        (json!({"name": "x"}), "the pod has no such volume"),
        (json!({"name": "e", "subPath": "/etc"}), "must be a non-empty relative path without '..'"),
        (json!({"name": "e", "subPath": "a/../.."}), "must be a non-empty relative path without '..'"),
        (json!({"name": "e", "subPathExpr": "$(NONE)"}), "missing value for \"NONE\""),
        (json!({"name": "e", "subPathExpr": "$(UP)/x"}), "must be a non-empty relative path without '..'"),
        (json!({"name": "e", "subPath": "etc/passwd"}), "or to a path outside the volume"),
    ] {
        let mut mount = mount;
        mount["mountPath"] = json!("/m");
        let error = mounts(&place, &volumes, json!([mount])).unwrap_err();
        assert!(error.starts_with("failed to prepare volumeMount ") && error.ends_with(end), "{error}");
    }
}

#[test]
fn the_runtime_mounts_the_image_of_an_image_volume() {
    let place = place();
    let kind = VolumeKind::Image { reference: "r.io/model:1".into(), id: "sha256:1".into() };
    let volumes = [volume("m", kind)];
    set_up(&place.layout, "u1", &volumes).unwrap();
    let list = json!([
        {"name": "m", "mountPath": "/model"},
        {"name": "m", "mountPath": "/part", "subPathExpr": "weights/$(NAME)"},
    ]);
    let mount = |path: &str, sub_path: &str| Mount {
        container_path: path.into(),
        source: MountSource::Image(ImageSource {
            reference: "r.io/model:1".into(),
            id: "sha256:1".into(),
            sub_path: sub_path.into(),
        }),
        access: Access::ReadOnly,
        propagation: Propagation::Private,
        owned: false,
    };
    assert_eq!(mounts(&place, &volumes, list).unwrap(), [mount("/model", ""), mount("/part", "weights/web")]);
    tear_down(&place.layout, "u1").unwrap();
    let outside = json!([{"name": "m", "mountPath": "/x", "subPath": "../x"}]);
    assert!(mounts(&place, &volumes, outside).is_err());
}

#[test]
fn a_version_stays_while_a_sub_path_shows_it() {
    with_mounts(|| {
        let place = place();
        for (name, plugin) in [("c", FilesPlugin::ConfigMap), ("s", FilesPlugin::Secret)] {
            let volumes = [files(name, plugin, &[("key", 0o644, "one")])];
            set_up(&place.layout, "u1", &volumes).unwrap();
            let list = json!([{"name": name, "mountPath": "/key", "subPath": "key"}]);
            let source = source_path(&mounts(&place, &volumes, list).unwrap()[0]);
            let of_plugin = if name == "c" { "configmap/c" } else { "secret/s" };
            let versions = || {
                let names = fs::read_dir(place.volume(of_plugin)).unwrap().flatten().map(|entry| entry.file_name());
                names.filter(|name| name.to_str().is_some_and(|name| name.starts_with("..2"))).count()
            };
            for text in ["two", "three", "four"] {
                assert!(update_files(&place.layout, "u1", &files(name, plugin, &[("key", 0o644, text)])).unwrap());
                assert_eq!(versions(), 2, "the current version and that of the sub-path");
            }
            // The runtime mounts the sub-path when it starts the container.
            fs::write(place.at(name), "").unwrap();
            rustix::mount::mount_bind(&source, place.at(name)).unwrap();
            assert_eq!(read(&place.at(name)), "one");
            rustix::mount::unmount(place.at(name), rustix::mount::UnmountFlags::empty()).unwrap();
            tear_down_container(&place.layout, "u1", "main").unwrap();
            assert!(!update_files(&place.layout, "u1", &files(name, plugin, &[("key", 0o644, "four")])).unwrap());
            assert_eq!(versions(), 1);
        }
        tear_down(&place.layout, "u1").unwrap();
    });
}

#[test]
fn a_sub_path_is_mounted_in_the_pods_directory() {
    with_mounts(|| {
        let place = place();
        let volumes = [
            empty_dir("e", Medium::Memory { size: None }),
            files("c", FilesPlugin::ConfigMap, &[("key", 0o644, "one")]),
        ];
        set_up(&place.layout, "u1", &volumes).unwrap();
        let list = json!([
            {"name": "e", "mountPath": "/whole"},
            {"name": "e", "mountPath": "/sub", "subPath": "a/b"},
            {"name": "e", "mountPath": "/expr", "subPathExpr": "x-$(NAME)"},
            {"name": "c", "mountPath": "/key", "subPath": "key"},
        ]);
        let paths = |mounts: Vec<Mount>| mounts.iter().map(source_path).collect::<Vec<_>>();
        let first = paths(mounts(&place, &volumes, list.clone()).unwrap());
        let wanted = [("e", 1), ("e", 2), ("c", 3)].map(|(volume, index)| sub_path_of(&place, volume, index));
        assert_eq!(first[1..], wanted);
        for dir in ["a", "a/b", "x-web"] {
            assert_eq!(mode(&place.volume(&format!("empty-dir/e/{dir}"))), 0o1777, "{dir}");
        }
        fs::write(format!("{}/file", first[1]), "x").unwrap();
        assert_eq!(read(&place.volume("empty-dir/e/a/b/file")), "x");
        assert_eq!(read(&first[3]), "one");
        // The container restarts: nothing is mounted twice, and the container gets the new file.
        update_files(&place.layout, "u1", &files("c", FilesPlugin::ConfigMap, &[("key", 0o644, "two")])).unwrap();
        assert_eq!(read(&first[3]), "one");
        for _ in 0..2 {
            assert_eq!(paths(mounts(&place, &volumes, list.clone()).unwrap()), first);
            assert_eq!(place.mounts().len(), 4);
        }
        assert_eq!(read(&first[3]), "two");
        // A directory is replaced with a file.
        fs::remove_dir(place.volume("empty-dir/e/x-web")).unwrap();
        fs::write(place.volume("empty-dir/e/x-web"), "file").unwrap();
        assert_eq!(read(&paths(mounts(&place, &volumes, list).unwrap())[2]), "file");
        for _ in 0..2 {
            tear_down_container(&place.layout, "u1", "main").unwrap();
            assert_eq!(place.mounts(), [place.volume("empty-dir/e")]);
        }
        assert_eq!(read(&place.volume("empty-dir/e/a/b/file")), "x");
        place.tear_down().unwrap();
        assert_eq!((place.mounts().len(), place.descriptors()), (0, 0));
    });
}

#[test]
fn only_the_sub_paths_of_one_container_are_removed() {
    with_mounts(|| {
        let place = place();
        let volumes = [empty_dir("e", Medium::Disk)];
        set_up(&place.layout, "u1", &volumes).unwrap();
        for name in ["main", "other"] {
            let mut container = container(json!([{"name": "e", "mountPath": "/e", "subPath": "a"}]));
            container.name = name.into();
            let of = ForContainer { container: &container, env: &[], recursive_read_only: false };
            container_mounts(&place.layout, "u1", &volumes, of).unwrap();
        }
        assert!(tear_down_container(&place.layout, "u1", "..").is_err());
        tear_down_container(&place.layout, "u1", "main").unwrap();
        assert_eq!(place.mounts(), [place.at("root/pods/u1/volume-subpaths/e/other/0")]);
        place.tear_down().unwrap();
    });
}

#[test]
fn mounts_of_the_host_below_a_sub_path_stay_mounted() {
    with_mounts(|| {
        let place = place();
        let host = place.at("host");
        fs::create_dir_all(format!("{host}/data/usb")).unwrap();
        mount_bind(&host, &host).unwrap();
        mount_change(&host, MountPropagationFlags::SHARED).unwrap();
        let volumes = [host_path("h", &host, HostPathType::Directory)];
        let mounted = |propagation| {
            let list = json!([{"name": "h", "mountPath": "/h", "subPath": "data", "mountPropagation": propagation}]);
            source_path(&mounts(&place, &volumes, list).unwrap()[0])
        };
        for (propagation, arrives) in [("None", false), ("HostToContainer", true), ("Bidirectional", true)] {
            let sub_path = mounted(propagation);
            tmpfs(&format!("{host}/data/usb"));
            fs::write(format!("{host}/data/usb/file"), "").unwrap();
            assert_eq!(fs::exists(format!("{sub_path}/usb/file")).unwrap(), arrives, "{propagation}");
            tear_down_container(&place.layout, "u1", "main").unwrap();
            assert!(fs::exists(format!("{host}/data/usb/file")).unwrap(), "{propagation}");
            mounts::unmount(&format!("{host}/data/usb"), Where::AtAndBelow).unwrap();
        }
    });
}
