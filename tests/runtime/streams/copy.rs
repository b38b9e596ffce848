//! `wherry cp`.

use super::{piped, printed, run, wherry};
use crate::support::agent::Agent;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use tar::{Builder, EntryType, Header};

const POD: &str = "
    terminationGracePeriodSeconds: 1
    containers:
    - name: main
      image: localhost/trap:1
    - name: user
      image: localhost/trap:1
      securityContext: {runAsUser: 1000, runAsGroup: 1000}
      volumeMounts: [{name: tmp, mountPath: /tmp}]
    - name: evil
      image: localhost/trap:1
    - name: bare
      image: localhost/trap:1
    volumes: [{name: tmp, emptyDir: {}}]
";

fn with_pod(name: &str) -> Agent {
    let agent = Agent::start(name);
    agent.apply("web", POD);
    agent.wait_running("web");
    agent
}

/// The path of each file below `top` with its mode, and its content or the target of its link.
fn listing(top: &Path) -> Vec<(String, u32, Vec<u8>)> {
    let (mut found, mut waiting) = (Vec::new(), vec![top.to_owned()]);
    while let Some(path) = waiting.pop() {
        let metadata = fs::symlink_metadata(&path).expect("a file");
        let name = path.strip_prefix(top).expect("below").display().to_string();
        if metadata.is_symlink() {
            let to = fs::read_link(&path).expect("a link");
            found.push((name, 0, to.into_os_string().into_encoded_bytes()));
        } else if metadata.is_dir() {
            waiting.extend(fs::read_dir(&path).expect("a directory").map(|e| e.expect("an entry").path()));
            found.push((name, metadata.permissions().mode() & 0o777, Vec::new()));
        } else {
            found.push((name, metadata.permissions().mode() & 0o777, fs::read(&path).expect("a file")));
        }
    }
    found.sort();
    found
}

fn write(path: &Path, content: &[u8], mode: u32) {
    fs::write(path, content).expect("a file");
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
}

#[test]
fn a_directory_is_the_same_after_it_was_copied_there_and_back() {
    let agent = with_pod("copy");
    let dir = agent.dir.join("copy");
    let source = dir.join("source");
    fs::create_dir_all(source.join("sub/empty")).expect("directories");
    let big: Vec<u8> = (0..5_000_000u32).map(|n| (n * 31) as u8).collect();
    write(&source.join("big"), &big, 0o640);
    write(&source.join("sub/run"), b"#!/bin/sh\necho run\n", 0o755);
    write(&source.join(format!("sub/{}", "n".repeat(180))), b"long", 0o600);
    symlink("sub/run", source.join("link")).expect("a link");
    fs::set_permissions(source.join("sub"), fs::Permissions::from_mode(0o750)).expect("a mode");
    let path = |name: &str| dir.join(name).display().to_string();
    let ok = |arguments: &[&str]| {
        let s = run(&agent, "cp", arguments);
        assert_eq!((s.code, s.out.as_str(), s.err.as_str()), (Some(0), "", ""), "{arguments:?}");
    };
    // To a new name, and into a directory that exists.
    ok(&[&path("source"), "web:/var/copied"]);
    ok(&[&path("source"), "web:/var"]);
    for remote in ["/var/copied", "/var/source"] {
        let s = run(&agent, "exec", &["web", "--", "sh", "-c", &format!("cd {remote} && ./link && stat -c %u big")]);
        assert_eq!((s.code, s.out.as_str()), (Some(0), "run\n0\n"), "{}", s.err);
    }
    ok(&[&format!("{}/web:/var/copied", agent.namespace), &path("back")]);
    assert!(listing(&dir.join("back")) == listing(&source));
    // Into a directory that exists, a single file, and to stdout.
    fs::create_dir(dir.join("into")).expect("a directory");
    ok(&["web:/var/copied/", &path("into")]);
    assert!(listing(&dir.join("into/copied")) == listing(&source));
    ok(&["web:/var/copied/big", &path("file")]);
    assert!(fs::read(dir.join("file")).expect("a file") == big);
    assert_eq!(run(&agent, "cp", &["web:/etc/group", "/dev/stdout"]).out.lines().next(), Some("root:x:0:"));
    // The user of a container without privileges owns its copy.
    ok(&["-c", "user", &path("file"), "web:/tmp/mine"]);
    let s = run(&agent, "exec", &["web", "-c", "user", "--", "stat", "-c", "%u %a", "/tmp/mine"]);
    assert_eq!(s.out, "1000 640\n");

    for (arguments, code, why) in [
        (&["web:/nothing/here", "x"][..], 1, "tar in the container ended with exit code 1: "),
        (&["/nothing/here", "web:/tmp"], 1, "cannot read /nothing/here: No such file"),
        (&["web:/a", "web:/b"], 2, "one of the two paths must be POD:PATH"),
        (&["web:", "x"], 2, "the path in the container is missing"),
        (&["web:/etc", "/nothing/here"], 1, "/nothing/here: No such file or directory"),
        // containerd does not always report the exit code of a command that leaves so much input unread.
        (&["-c", "user", &path("file"), "web:/etc/mine"], 1, ": tar: can't open 'mine': Permission denied"),
        (&["-c", "user", &path("source/sub/run"), "web:/etc/mine"], 1, ": tar: can't open 'mine': Permission denied"),
    ] {
        let s = run(&agent, "cp", arguments);
        assert!(s.code == Some(code) && s.err.contains(why), "{arguments:?}: {:?} {}", s.code, s.err);
    }
}

/// Writes a file in a container.
fn put(agent: &Agent, container: &str, path: &str, content: &[u8]) {
    let script = format!("rm -f {path}; cat > {path} && chmod 755 {path}");
    let mut child = piped(wherry(agent, "exec", &["-i", "web", "-c", container, "--", "sh", "-c", &script]));
    child.stdin.take().expect("a pipe").write_all(content).expect("the command reads");
    let s = printed(&child.wait_with_output().expect("wherry"));
    assert_eq!(s.code, Some(0), "{}", s.err);
}

#[test]
fn a_hostile_archive_writes_nothing_outside_and_a_container_without_tar_is_an_error() {
    let agent = with_pod("evil");
    let dir = agent.dir.join("evil");
    let target = dir.join("target");
    fs::create_dir_all(&target).expect("a directory");
    write(&dir.join("victim"), b"old", 0o644);
    let victim = dir.join("victim").display().to_string();
    let mut archive = Builder::new(Vec::new());
    for (kind, path, to) in [
        (EntryType::Regular, "./data/../../../victim", ""),
        (EntryType::Regular, victim.as_str(), ""),
        (EntryType::Symlink, "./data/link", victim.as_str()),
        (EntryType::Regular, "./data/link", ""),
        (EntryType::Symlink, "./data/up", "../.."),
        (EntryType::Regular, "./data/up/victim", ""),
        (EntryType::Link, "./data/hard", victim.as_str()),
        (EntryType::Regular, "./data/setuid", ""),
    ] {
        let content: &[u8] = if kind == EntryType::Regular { b"evil" } else { b"" };
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(0o4755);
        header.set_size(content.len() as u64);
        let old = header.as_old_mut();
        old.name[..path.len()].copy_from_slice(path.as_bytes());
        old.linkname[..to.len()].copy_from_slice(to.as_bytes());
        header.set_cksum();
        archive.append(&header, content).expect("memory");
    }
    put(&agent, "evil", "/tmp/evil.tar", &archive.into_inner().expect("memory"));
    put(&agent, "evil", "/bin/tar", b"#!/bin/sh\ncat /tmp/evil.tar\n");
    let arguments = ["-c", "evil", "web:/data", &target.display().to_string()];
    let s = run(&agent, "cp", &arguments);
    assert_eq!((s.code, s.err.lines().count()), (Some(1), 5), "{}", s.err);
    for why in [
        "a path with ..",
        "an absolute path",
        "a symbolic link that points outside the copy",
        "a hard link to an absolute path",
    ] {
        assert!(s.err.contains(why), "{why}: {}", s.err);
    }
    assert_eq!(fs::read(dir.join("victim")).expect("a file"), b"old");
    assert_eq!(fs::read_dir(&dir).expect("a directory").count(), 2);
    let evil = |name: &str, mode| (name.to_owned(), mode, b"evil".to_vec());
    let names = listing(&target.join("data"));
    assert_eq!(
        names[1..],
        [evil("link", 0o755), evil("setuid", 0o755), ("up".into(), 0o755, Vec::new()), evil("up/victim", 0o755)]
    );
    // Output that never ends and is no archive.
    put(&agent, "evil", "/bin/tar", b"#!/bin/sh\nyes\n");
    let s = run(&agent, "cp", &arguments);
    assert!(s.code == Some(1) && s.err.contains("cannot copy to"), "{:?} {}", s.code, s.err);
    // An archive, and then output that never ends.
    put(&agent, "evil", "/bin/tar", b"#!/bin/sh\ncat /tmp/evil.tar\nyes\n");
    let s = run(&agent, "cp", &arguments);
    assert!(s.code == Some(1) && s.err.contains("keeps writing after the end"), "{:?} {}", s.code, s.err);

    assert_eq!(run(&agent, "exec", &["web", "-c", "bare", "--", "rm", "/bin/tar"]).code, Some(0));
    for arguments in [["-c", "bare", "web:/etc", "x"], ["-c", "bare", &victim, "web:/tmp/x"]] {
        let s = run(&agent, "cp", &arguments);
        assert!(
            s.code == Some(1) && s.err.contains("needs the program tar in the container"),
            "{:?} {}",
            s.code,
            s.err
        );
    }
}
