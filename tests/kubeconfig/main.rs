//! `wherry kubeconfig` as a program: the kubeconfigs that it writes, its certificates in the eyes of openssl, and what is left
//! when it is killed or runs several times at once. Needs no agent and no runtime.

// The restriction in clippy.toml applies only to the engine.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

mod certificates;
mod force;
mod merge;
mod node;
mod revoke;

use node::Node;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

#[test]
fn the_kubeconfig_goes_to_stdout_or_to_a_private_file() {
    let node = Node::new("kubectlPort: 7443\nkubectlAddress: 10.0.0.5\n");
    let printed = node.ok("--for ann --namespace shop");
    let ca = node.decoded(&printed.stdout, "certificate-authority-data");
    assert_eq!(ca, node.file("kubectl/ca.crt"));
    assert!(printed.stdout.contains("server: https://10.0.0.5:7443\n"), "{}", printed.stdout);
    assert!(
        printed.stdout.contains("current-context: wherry@boat-7\n") && printed.stdout.contains("namespace: shop\n")
    );
    assert!(printed.stderr.contains("issued a certificate for ann (role edit, serial number "), "{}", printed.stderr);
    assert!(!printed.stderr.contains("note:"), "{}", printed.stderr);
    let path = node.path("out");
    let written = node.ok(&format!("--view --output {} --server https://tunnel.example", path.display()));
    assert_eq!((written.stdout.as_str(), fs::metadata(&path).unwrap().permissions().mode() & 0o777), ("", 0o600));
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains("server: https://tunnel.example\n    tls-server-name: boat-7\n"), "{text}");
    // Neither the output nor the files of the node contain the key of the client.
    let key = node.decoded(&text, "client-key-data");
    let line = key.lines().nth(1).unwrap();
    assert!(!written.stderr.contains(line) && key.starts_with("-----BEGIN PRIVATE KEY-----\n"));
    for entry in node.files() {
        assert!(!fs::read_to_string(&entry).unwrap_or_default().contains(line), "{}", entry.display());
    }
}

#[test]
fn a_port_that_is_off_is_noted_with_the_remedy() {
    let node = Node::new("");
    let printed = node.ok("");
    assert!(printed.stdout.contains("server: https://127.0.0.1:6443\n"), "{}", printed.stdout);
    assert!(printed.stderr.contains("note: kubectlPort is 0") && printed.stderr.contains("reload wherry"));
}

#[test]
fn an_invalid_argument_is_named_and_issues_nothing() {
    let node = Node::new("");
    for (arguments, error) in [
        ("--for system:admin", "--for: \"system:admin\" begins with \"system:\""),
        (&*format!("--for {}", "a".repeat(65)), "--for: the name has 65 characters"),
        ("--context=", "--context: \"\" is not a valid name"),
        ("--server http://a", "--server: \"http://a\" does not begin with https://"),
        ("--namespace A", "--namespace: \"A\" is not a valid namespace"),
        ("--output /dev/null/x", "/dev/null/x"),
    ] {
        let failed = node.run(arguments);
        assert_eq!((failed.code, failed.stdout.as_str()), (1, ""), "{arguments}");
        assert!(failed.stderr.contains(error), "{}", failed.stderr);
    }
    for arguments in ["--expires soon", "--expires 0s", "--use", "--merge a --output b", "list --view", "revoke"] {
        assert_eq!(node.run(arguments).code, 2, "{arguments}");
    }
    // (The path of --output can only be judged after the certificate is issued.)
    assert_eq!(node.list().len(), 1);
    let broken = Node::new("kubectlPort: 70000\n");
    let failed = broken.run("");
    assert_eq!(failed.code, 1);
    assert!(failed.stderr.contains("kubectlPort: must be between 1 and 65535"), "{}", failed.stderr);
    assert!(!broken.path("root").exists());
}

#[test]
fn a_user_without_access_is_told_to_become_root() {
    let node = Node::new("");
    node.ok("");
    let root = rustix::process::geteuid().is_root();
    // A copy that every user can execute, wherever the build directory is. Another process makes it: a file that this one
    // has open for writing can be inherited by a program that another test starts, and is then busy (ETXTBSY).
    let copy = node.path("wherry");
    assert!(Command::new("cp").arg(env!("CARGO_BIN_EXE_wherry")).arg(&copy).status().unwrap().success());
    fs::set_permissions(node.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(node.path("root"), fs::Permissions::from_mode(if root { 0o700 } else { 0 })).unwrap();
    for arguments in [&[][..], &["list"], &["revoke", "ann"]] {
        let mut command = Command::new(&copy);
        command.arg("kubeconfig").args(arguments).arg("--root-dir").arg(node.path("root")).args(["--hostname", "a"]);
        if root {
            std::os::unix::process::CommandExt::uid(&mut command, 65534);
        }
        let output = command.output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains("run this command as root (sudo)"), "{arguments:?}: {error}");
    }
    fs::set_permissions(node.path("root"), fs::Permissions::from_mode(0o750)).unwrap();
}
