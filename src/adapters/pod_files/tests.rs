use super::remove::exists;
use super::*;
use crate::api::k8s;
use crate::api::mount::MountSource;
use crate::api::names::{FullName, Uid};
use crate::api::source::Source;
use std::os::unix::fs::PermissionsExt;
use std::rc::Rc;
use std::sync::Mutex;

struct Place {
    dir: tempfile::TempDir,
    files: PodFiles,
    cgroups: Arc<Mutex<Vec<String>>>,
}

fn place() -> Place {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().to_str().unwrap();
    let cgroups: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = cgroups.clone();
    std::fs::write(format!("{base}/hosts"), "127.0.0.1 here\n").unwrap();
    let files = PodFiles {
        layout: Layout {
            root: format!("{base}/root"),
            logs: format!("{base}/logs"),
            log_links: Some(format!("{base}/links")),
        },
        cluster_domain: String::new(),
        host_hosts: format!("{base}/hosts"),
        remove_cgroup: Arc::new(move |uid, _| {
            seen.lock().unwrap().push(uid.to_owned());
            Ok(())
        }),
    };
    Place { dir, files, cgroups }
}

fn pod(spec: &str) -> Rc<Pod> {
    let mut spec: serde_json::Value = serde_json::from_str(spec).unwrap();
    spec["containers"] = serde_json::json!([{"name": "main", "terminationMessagePath": "/dev/termination-log"}]);
    Rc::new(Pod {
        ephemeral: Vec::new(),
        uid: Uid::from("u1"),
        name: FullName::new("default", "p20"),
        source: Source { path: String::new(), document: 1 },
        digest: String::new(),
        object: k8s::Pod { spec: Some(serde_json::from_value(spec).unwrap()), ..Default::default() },
    })
}

fn mode(path: &str) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn prepare(place: &Place, pod: &Rc<Pod>, attempt: u32) -> String {
    let call = FilesCall::PrepareContainer {
        pod: pod.clone(),
        container: "main".into(),
        ips: vec!["10.0.0.2".into()],
        names: "".into(),
        attempt,
        host_ips: false,
    };
    match place.files.execute(&call) {
        Ok(Answer::Prepared(Prepared { mounts, host_ips })) => {
            assert_eq!(host_ips, [""; 0]);
            let inside: Vec<&str> = mounts.iter().map(|m| m.container_path.as_str()).collect();
            assert_eq!(inside, ["/etc/hosts", "/dev/termination-log"]);
            assert_eq!(host_path(&mounts[0]), place.files.layout.etc_hosts(&pod.uid));
            host_path(&mounts[1])
        }
        other => panic!("{other:?}"),
    }
}

fn host_path(mount: &Mount) -> String {
    match &mount.source {
        MountSource::Host(path) => path.clone(),
        MountSource::Image(_) => panic!("{mount:?}"),
    }
}

#[test]
fn a_pods_files_are_laid_out_as_a_kubelets() {
    let place = place();
    let base = place.dir.path().to_str().unwrap();
    let pod = pod("{}");
    assert_eq!(place.files.execute(&FilesCall::PreparePod { pod: pod.clone() }), Ok(Answer::Ok));
    assert_eq!(mode(&format!("{base}/root/pods/u1")), 0o750);
    assert_eq!(mode(&format!("{base}/logs/default_p20_u1")), 0o755);
    let first = prepare(&place, &pod, 0);
    let second = prepare(&place, &pod, 1);
    assert_ne!(first, second);
    assert_eq!((mode(&first), std::fs::metadata(&first).unwrap().len()), (0o666, 0));
    let (above, name) = first.rsplit_once('/').unwrap();
    assert_eq!(above, format!("{base}/root/pods/u1/containers/main"));
    assert!(name.len() == 8 && name.bytes().all(|b| b.is_ascii_hexdigit()));
    assert_eq!(mode(&format!("{base}/root/pods/u1/etc-hosts")), 0o644);
    assert_eq!(mode(&format!("{base}/logs/default_p20_u1/main")), 0o755);
}

#[test]
fn the_hosts_file_is_a_kubelets_word_for_word() {
    let local = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\n\
                 fe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n";
    let ips = ["10.97.0.71".to_owned()];
    let aliases = r#"{"hostAliases":[{"ip":"192.0.2.9","hostnames":["foo.example","foo"]},
        {"ip":"2001:db8::1","hostnames":["six"]}]}"#;
    assert_eq!(
        hosts::content(&pod(aliases), &ips, "", None),
        format!(
            "# Kubernetes-managed hosts file.\n{local}10.97.0.71\tp20\n\n# Entries added by HostAliases.\n\
             192.0.2.9\tfoo.example\tfoo\n2001:db8::1\tsix\n"
        )
    );
    let named = r#"{"hostname":"hosty","subdomain":"subby","setHostnameAsFQDN":true}"#;
    assert!(hosts::content(&pod(named), &ips, "", None).ends_with("10.97.0.71\thosty.subby.default.svc.\thosty\n"));
    assert_eq!(
        hosts::content(&pod(r#"{"hostNetwork":true}"#), &[], "", Some("127.0.0.1 here\n")),
        "# Kubernetes-managed hosts file (host network).\n127.0.0.1 here\n"
    );
}

#[test]
fn the_hosts_file_keeps_its_inode_when_it_is_rewritten() {
    use std::os::unix::fs::MetadataExt;
    let place = place();
    let pod = pod("{}");
    prepare(&place, &pod, 0);
    let path = place.files.layout.etc_hosts(&pod.uid);
    let inode = std::fs::metadata(&path).unwrap().ino();
    std::fs::write(&path, "a container wrote here, and more than there was before\n".repeat(20)).unwrap();
    prepare(&place, &pod, 1);
    assert_eq!(std::fs::metadata(&path).unwrap().ino(), inode);
    assert!(std::fs::read_to_string(&path).unwrap().ends_with("10.0.0.2\tp20\n"));
}

#[test]
fn names_that_would_lead_elsewhere_are_refused() {
    let place = place();
    for uid in ["..", "", "a/b", "."] {
        assert!(place.files.remove_pod(uid, "ns", "n", true, false).is_err(), "{uid:?}");
    }
}

#[test]
fn old_message_files_do_not_pile_up() {
    let place = place();
    let pod = pod("{}");
    let mut last = String::new();
    for attempt in 0..20 {
        last = prepare(&place, &pod, attempt);
    }
    let kept: Vec<_> = std::fs::read_dir(place.files.layout.container(&pod.uid, "main")).unwrap().collect();
    assert_eq!(kept.len(), KEPT_MESSAGES);
    assert!(exists(&last));
}

#[test]
fn a_new_message_file_stays_after_the_clock_was_set_back() {
    let place = place();
    let pod = pod("{}");
    let made: Vec<String> = (0..20)
        .map(|attempt| {
            let file = prepare(&place, &pod, attempt);
            // The first ten were made before the clock was set back by a year.
            if attempt < 10 {
                let at =
                    std::time::SystemTime::now() + std::time::Duration::from_secs(365 * 86_400 + u64::from(attempt));
                std::fs::File::options().write(true).open(&file).unwrap().set_modified(at).unwrap();
            }
            assert!(exists(&file), "{attempt}");
            file
        })
        .collect();
    assert!(made[..10].iter().all(|file| !exists(file)), "they are the oldest");
    assert_eq!(made.iter().filter(|file| exists(file)).count(), KEPT_MESSAGES);
}

fn message(place: &Place, file: Option<&str>, log: &str, fallback_to_logs: bool, exit_code: i32) -> String {
    let call = FilesCall::ReadTermination {
        id: ContainerId::from("c"),
        termination_file: file.map(str::to_owned),
        log_path: log.into(),
        fallback_to_logs,
        exit_code,
    };
    match place.files.execute(&call) {
        Ok(Answer::Message(m)) => m,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_message_is_the_end_of_the_file_else_of_the_log() {
    let place = place();
    let base = place.dir.path().to_str().unwrap();
    let (file, log) = (format!("{base}/message"), format!("{base}/0.log"));
    let line = |tag: &str, text: &str| format!("2026-11-20T15:52:34.428979637Z stdout {tag} {text}\n");
    std::fs::write(&log, line("F", "one") + &line("P", "two ") + &line("F", "parts") + &line("F", "")).unwrap();

    std::fs::write(&file, format!("{}end", "x".repeat(5000))).unwrap();
    let m = message(&place, Some(&file), &log, true, 1);
    assert_eq!((m.len(), m.ends_with("xend")), (4096, true));

    std::fs::write(&file, "").unwrap();
    assert_eq!(message(&place, Some(&file), &log, true, 1), "one\ntwo parts\n\n");
    assert_eq!(message(&place, Some(&file), &log, true, 0), "");
    assert_eq!(message(&place, Some(&file), &log, false, 1), "");
    assert_eq!(message(&place, None, &log, true, 1), "one\ntwo parts\n\n");
    assert_eq!(message(&place, None, &format!("{base}/none"), true, 1), "");

    let many: String = (0..200).map(|n| line("F", &format!("line {n}"))).collect();
    std::fs::write(&log, many).unwrap();
    let m = message(&place, None, &log, true, 1);
    assert!(m.starts_with("line 120\n") && m.ends_with("line 199\n"), "{m}");

    let long: String = (0..50).map(|_| line("F", &"y".repeat(16_000))).collect();
    std::fs::write(&log, long).unwrap();
    assert_eq!(message(&place, None, &log, true, 1).trim_end(), "y".repeat(2047));
}

#[test]
fn a_message_is_read_from_a_regular_file_only() {
    let place = place();
    let base = place.dir.path().to_str().unwrap();
    let (link, fifo) = (format!("{base}/link"), format!("{base}/fifo"));
    std::os::unix::fs::symlink("/etc/passwd", &link).unwrap();
    rustix::fs::mknodat(CWD, &fifo, rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    for path in [link, fifo] {
        let m = message(&place, Some(&path), "", false, 1);
        assert!(m.starts_with(&format!("Error on reading termination log {path}: ")), "{m}");
    }
}

#[test]
fn a_log_is_linked_and_is_unlinked_together_with_its_rotated_files() {
    let place = place();
    let base = place.dir.path().to_str().unwrap();
    let pod = pod("{}");
    let id = ContainerId::from("c0ffee");
    prepare(&place, &pod, 2);
    let link = FilesCall::LinkLog { pod: pod.clone(), container: "main".into(), id: id.clone(), attempt: 2 };
    let path = format!("{base}/links/p20_default_main-c0ffee.log");
    let log = format!("{base}/logs/default_p20_u1/main/2.log");
    for _ in 0..2 {
        assert_eq!(place.files.execute(&link), Ok(Answer::Ok));
        assert_eq!(std::fs::read_link(&path).unwrap().to_str().unwrap(), log);
    }
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "in the way").unwrap();
    assert_eq!(place.files.execute(&link), Ok(Answer::Ok));

    for name in [log.clone(), format!("{log}.20261120-1"), format!("{base}/logs/default_p20_u1/main/3.log")] {
        std::fs::write(name, "x").unwrap();
    }
    let remove = FilesCall::RemoveContainerFiles { id, log_path: log.clone() };
    for _ in 0..2 {
        assert_eq!(place.files.execute(&remove), Ok(Answer::Ok));
        let left: Vec<_> = std::fs::read_dir(format!("{base}/logs/default_p20_u1/main")).unwrap().collect();
        assert_eq!((left.len(), exists(&path)), (1, false));
    }
}

#[test]
fn only_a_containers_log_is_removed_as_one() {
    let place = place();
    let base = place.dir.path().to_str().unwrap();
    std::fs::write(format!("{base}/precious.log"), "x").unwrap();
    for log_path in ["", "/", "precious.log", &format!("{base}/precious.log"), "/etc/passwd"] {
        let call = FilesCall::RemoveContainerFiles { id: ContainerId::from("c"), log_path: log_path.into() };
        assert_eq!(place.files.execute(&call), Ok(Answer::Ok));
    }
    assert!(exists(&format!("{base}/precious.log")));
}

#[test]
fn a_removal_deletes_all_files_of_one_pod_and_no_others() {
    let place = place();
    let base = place.dir.path().to_str().unwrap();
    let pod = pod("{}");
    prepare(&place, &pod, 0);
    let link = FilesCall::LinkLog { pod, container: "main".into(), id: ContainerId::from("c1"), attempt: 0 };
    place.files.execute(&link).unwrap();
    // There is a link of another pod with the same prefix, and a directory behind a link.
    std::os::unix::fs::symlink(
        format!("{base}/logs/default_other_u2/main/0.log"),
        format!("{base}/links/p20_default_x-c2.log"),
    )
    .unwrap();
    std::fs::create_dir_all(format!("{base}/precious/deep")).unwrap();
    std::fs::write(format!("{base}/precious/deep/file"), "x").unwrap();
    std::os::unix::fs::symlink(format!("{base}/precious"), format!("{base}/root/pods/u1/containers/link")).unwrap();

    let remove = |keep_directory| {
        let (uid, namespace, name) = (Uid::from("u1"), "default".into(), "p20".into());
        let call = FilesCall::RemovePod { uid, namespace, name, kill: false, keep_directory };
        assert_eq!(place.files.execute(&call), Ok(Answer::Ok));
    };
    remove(true);
    let left: Vec<_> = std::fs::read_dir(format!("{base}/root/pods/u1")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(!exists(&format!("{base}/logs/default_p20_u1")));
    remove(false);
    remove(false);
    assert!(!exists(&format!("{base}/root/pods/u1")) && !exists(&format!("{base}/logs/default_p20_u1")));
    assert!(!exists(&format!("{base}/links/p20_default_main-c1.log")));
    assert!(exists(&format!("{base}/links/p20_default_x-c2.log")));
    assert!(exists(&format!("{base}/precious/deep/file")));
    assert_eq!(*place.cgroups.lock().unwrap(), ["u1", "u1", "u1"]);
}

#[test]
fn a_pod_directory_is_removed_only_after_its_other_files() {
    let mut place = place();
    prepare(&place, &pod("{}"), 0);
    let directory = format!("{}/root/pods/u1", place.dir.path().to_str().unwrap());
    let removed = place.files.remove_cgroup.clone();
    place.files.remove_cgroup = Arc::new(|_, _| Err("processes are left in it".into()));
    assert!(place.files.remove_pod("u1", "default", "p20", true, false).is_err());
    assert!(exists(&directory) && !exists(&format!("{directory}/containers")));
    place.files.remove_cgroup = removed;
    place.files.remove_pod("u1", "default", "p20", true, false).unwrap();
    assert!(!exists(&directory));
}

#[test]
fn w21_a_pods_cgroup_is_removed_before_its_logs_and_its_directory() {
    let mut place = place();
    let base = place.dir.path().to_str().unwrap().to_owned();
    prepare(&place, &pod("{}"), 0);
    let parts = ["logs/default_p20_u1", "root/pods/u1/containers"].map(|part| format!("{base}/{part}"));
    let seen: Arc<Mutex<Vec<bool>>> = Arc::default();
    let (at_removal, looked_at) = (seen.clone(), parts.clone());
    place.files.remove_cgroup = Arc::new(move |_, _| {
        at_removal.lock().unwrap().extend(looked_at.iter().map(|part| exists(part)));
        Ok(())
    });
    place.files.remove_pod("u1", "default", "p20", true, false).unwrap();
    assert_eq!(*seen.lock().unwrap(), [true, true]);
    assert!(!parts.iter().any(|part| exists(part)));
}

#[test]
fn a_tree_is_removed_however_deep_and_wide_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().to_str().unwrap();
    std::fs::create_dir(format!("{base}/t")).unwrap();
    // The tree is deeper than the maximum length of a path, so each level is created relative to its parent.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut fd = rustix::fs::open(format!("{base}/t"), flags, Mode::empty()).unwrap();
    for _ in 0..3000 {
        rustix::fs::mkdirat(&fd, "directory", Mode::from_raw_mode(0o755)).unwrap();
        rustix::fs::mkdirat(&fd, "beside", Mode::from_raw_mode(0o755)).unwrap();
        fd = rustix::fs::openat(&fd, "directory", flags, Mode::empty()).unwrap();
    }
    for n in 0..2000 {
        std::fs::write(format!("{base}/t/{n}"), "").unwrap();
    }
    remove_tree(base, "t").unwrap();
    assert!(!exists(&format!("{base}/t")));
}

#[test]
fn a_file_or_link_in_place_of_the_tree_is_removed_and_the_target_stays() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().to_str().unwrap();
    std::fs::create_dir(format!("{base}/precious")).unwrap();
    std::os::unix::fs::symlink(format!("{base}/precious"), format!("{base}/link")).unwrap();
    std::fs::write(format!("{base}/file"), "").unwrap();
    for name in ["link", "file", "gone"] {
        remove_tree(base, name).unwrap();
        assert!(!exists(&format!("{base}/{name}")));
    }
    assert!(exists(&format!("{base}/precious")));
    assert!(remove_tree(&format!("{base}/nowhere"), "x").is_ok());
}

#[test]
fn a_mount_in_the_tree_is_not_entered_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().to_str().unwrap().to_owned();
    for name in ["precious", "t/a/mount", "t/b"] {
        std::fs::create_dir_all(format!("{base}/{name}")).unwrap();
    }
    std::fs::write(format!("{base}/precious/file"), "x").unwrap();
    // The mount is on the same file system, visible only to this thread, and ends with it.
    let mount = format!("{base}/t/a/mount");
    let (source, parent) = (format!("{base}/precious"), base.clone());
    let tried = std::thread::spawn(move || {
        use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};
        #[allow(deprecated)]
        rustix::thread::unshare(rustix::thread::UnshareFlags::NEWNS)?;
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
        mount_bind(source, mount)?;
        Ok::<_, Errno>(remove_tree(&parent, "t"))
    });
    let Ok(result) = tried.join().unwrap() else {
        // Mounting requires root.
        return;
    };
    let error = result.unwrap_err();
    assert!(error.contains("/t/a/mount") && error.contains("mount point"), "{error}");
    assert!(exists(&format!("{base}/precious/file")));
    remove_tree(&base, "t").unwrap();
    assert!(!exists(&format!("{base}/t")));
}

#[test]
fn errors_name_the_path() {
    let place = place();
    let base = place.dir.path().to_str().unwrap();
    std::fs::write(format!("{base}/root"), "a file").unwrap();
    let Err(OpError::Answered { message, .. }) = place.files.execute(&FilesCall::PreparePod { pod: pod("{}") }) else {
        panic!()
    };
    assert!(message.contains(&format!("{base}/root/pods")), "{message}");
}

#[test]
fn pod_directories_are_found_with_names_from_their_log_directories() {
    let place = place();
    assert!(place.files.found().is_empty());
    let pod = pod("{}");
    prepare(&place, &pod, 0);
    let (pods, logs) = (place.files.layout.pods(), place.files.layout.logs.clone());
    std::fs::create_dir(format!("{pods}/0123")).unwrap();
    std::fs::write(format!("{pods}/file"), "").unwrap();
    std::os::unix::fs::symlink("/", format!("{pods}/link")).unwrap();
    std::fs::create_dir(format!("{logs}/ns_theirs_89ab")).unwrap();
    let found = place.files.found();
    let mut found: Vec<_> = found.iter().map(|d| (d.uid.as_str(), d.name.to_string(), d.path.clone())).collect();
    let mut wanted = vec![
        (pod.uid.as_str(), pod.name.to_string(), format!("{pods}/{}", pod.uid)),
        ("0123", "-/0123".to_string(), format!("{pods}/0123")),
    ];
    found.sort();
    wanted.sort();
    assert_eq!(found, wanted);
}
