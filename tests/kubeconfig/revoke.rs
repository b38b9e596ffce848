//! `list` and `revoke`, and what a running agent is told.

use super::node::Node;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::thread::JoinHandle;

/// An agent that answers one request with this status, and returns the request's first line.
fn agent(node: &Node, status: &'static str) -> JoinHandle<String> {
    let path = node.path("sock");
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(path).unwrap();
    std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let mut request = vec![0; 1024];
        let n = stream.read(&mut request).unwrap();
        write!(stream, "HTTP/1.1 {status}\r\n\r\nwords\n").unwrap();
        String::from_utf8_lossy(&request[..n]).lines().next().unwrap().to_owned()
    })
}

#[test]
fn a_name_is_revoked_and_the_agent_is_told() {
    let node = Node::new("");
    let nothing = node.run("revoke ann");
    assert_eq!(nothing.code, 1);
    assert!(nothing.stderr.contains("no client certificate has been issued"), "{}", nothing.stderr);
    assert!(!node.path("root/kubectl").exists(), "a CA was created");
    assert!(node.ok("list").stderr.contains("no client certificate has been issued"));
    for name in ["ann", "ann", "bob", "carl"] {
        node.ok(&format!("--for {name}"));
    }
    let running = agent(&node, "200 OK");
    let revoked = node.ok("revoke ann");
    assert_eq!(revoked.stdout.matches("revoked the certificate of ann (role edit, serial number ").count(), 2);
    assert_eq!((revoked.stderr.as_str(), running.join().unwrap().as_str()), ("", "POST /kubectl/reload HTTP/1.0"));
    let list = node.list();
    let is_revoked = |name: &str| list.iter().filter(|c| c["name"] == name).all(|c| c["revoked"].is_string());
    assert!(list.len() == 4 && is_revoked("ann") && !is_revoked("bob"), "{list:?}");
    assert_eq!(node.ok("list").stdout.lines().filter(|l| l.trim_end().ends_with('-')).count(), 2, "of bob and carl");

    // Agents without the route, and one that is not running.
    let bob = list.iter().find(|c| c["name"] == "bob").unwrap()["serial"].as_str().unwrap();
    let old = agent(&node, "405 Method Not Allowed");
    let revoked = node.ok(&format!("revoke {}", bob.to_uppercase()));
    old.join().unwrap();
    assert!(
        revoked.stdout.contains("certificate of bob") && revoked.stderr.contains("does not support this"),
        "{}",
        revoked.stderr
    );
    let revoked = node.ok("revoke carl");
    assert!(revoked.stderr.contains("note: ") && revoked.stderr.contains("nothing listens on"), "{}", revoked.stderr);
    for (which, why) in [("ann", "is revoked already"), ("nobody", "no valid client certificate has the name")] {
        let failed = node.run(&format!("revoke {which}"));
        assert!(failed.code == 1 && failed.stderr.contains(why), "{}", failed.stderr);
    }
}

#[test]
fn an_expired_certificate_is_shown_as_such_until_it_is_pruned() {
    let node = Node::new("");
    node.ok("--for short --expires 1s");
    std::thread::sleep(std::time::Duration::from_millis(2100));
    assert!(node.ok("list").stdout.contains("(expired)"));
    assert_eq!(node.list()[0]["expired"], true);
    assert!(node.run("revoke short").stderr.contains("no valid client certificate"));
    node.ok("--for long");
    let names: Vec<String> = node.list().iter().map(|c| c["name"].as_str().unwrap().to_owned()).collect();
    assert_eq!(names, ["long"]);
}
