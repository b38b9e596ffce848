//! The listening sockets: the file of the control socket, ports in use, exhausted descriptors.

use super::{CONTROL, FIRST, HEALTH, Node, Pages, TABLE, TestBody};
use crate::api::time::Boot;
use crate::net::listener::Place;
use crate::net::server::Server;
use crate::net::server::listeners::ListenerId;
use mio::Poll;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::Duration;

fn with_listener(id: ListenerId, place: Place) -> Server<TestBody> {
    let mut server = Server::new(&TABLE, FIRST);
    server.listen(id, place);
    server
}

#[test]
fn the_control_socket_is_for_owner_and_group_and_is_removed_at_exit() {
    let mut node = Node::new();
    let path = node.dir.path().join("sub/w.sock");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
    node.server.close(node.poll.registry());
    assert!(!path.exists());
}

#[test]
fn a_control_socket_is_recreated_after_its_file_is_removed_but_not_after_a_touch() {
    let mut node = Node::new();
    let path = node.dir.path().join("sub/w.sock");
    let inode = || std::fs::metadata(&path).unwrap().ino();
    let before = inode();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    node.settle();
    assert_eq!(inode(), before);
    let aside = path.with_extension("aside");
    std::fs::rename(&path, &aside).unwrap();
    node.settle();
    assert_ne!(inode(), before);
    std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
    node.settle();
    let mut client = node.unix();
    assert!(node.ask(&mut client, "GET /livez HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 200 "));
}

#[test]
fn a_dead_instances_socket_is_replaced_and_a_living_ones_is_not() {
    let mut node = Node::new();
    let path = node.dir.path().join("sub/w.sock");
    let inode = std::fs::metadata(&path).unwrap().ino();
    let mut second = with_listener(CONTROL, Place::Unix(path.clone()));
    let poll = Poll::new().unwrap();
    second.drive(poll.registry(), Boot(1), &mut node.pages);
    assert!(!second.is_listening(CONTROL));
    assert_eq!(std::fs::metadata(&path).unwrap().ino(), inode);
    assert_eq!(second.next_deadline(), Some(Boot(1) + Duration::from_secs(1)), "the listener retries");

    node.server.close(node.poll.registry());
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "a killed process leaves its socket file");
    second.drive(poll.registry(), Boot(1) + Duration::from_secs(1), &mut node.pages);
    assert!(second.is_listening(CONTROL));
    drop(second);
    assert!(!path.exists());

    std::fs::write(&path, "precious").unwrap();
    let mut third = with_listener(CONTROL, Place::Unix(path.clone()));
    third.drive(poll.registry(), Boot(1), &mut node.pages);
    assert!(!third.is_listening(CONTROL));
    drop(third);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious", "a file that is not a socket is not removed");
}

#[test]
fn a_port_in_use_is_tried_again_until_it_is_free() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let mut server = with_listener(HEALTH, Place::Tcp(address));
    let poll = Poll::new().unwrap();
    let mut pages = Pages::default();
    let mut now = Boot(1);
    for wait in [1, 2, 4, 8, 16, 30, 30] {
        server.drive(poll.registry(), now, &mut pages);
        assert_eq!(server.next_deadline(), Some(now + Duration::from_secs(wait)));
        now = now + Duration::from_secs(wait);
    }
    drop(taken);
    server.drive(poll.registry(), now, &mut pages);
    assert!(server.is_listening(HEALTH));
    assert_eq!(server.next_deadline(), None);
}

/// Runs again in a separate process, because it lowers the limit of descriptors.
#[test]
fn without_free_descriptors_accepting_pauses_and_resumes() {
    const NAME: &str = "net::server::tests::sockets::without_free_descriptors_accepting_pauses_and_resumes";
    if std::env::var_os("WHERRY_TEST_ALONE").is_none() {
        let me = std::env::current_exe().unwrap();
        let done = std::process::Command::new(me).args(["--exact", NAME]).env("WHERRY_TEST_ALONE", "1").output();
        assert!(done.as_ref().unwrap().status.success(), "{done:?}");
        return;
    }
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let mut node = Node::new();
    let mut client = node.tcp(HEALTH);
    client.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").unwrap();
    let old = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(3), maximum: old.maximum }).unwrap();
    node.settle();
    assert!(node.pages.asked.is_empty());
    assert!(
        node.server.next_deadline().is_some(),
        "the poll does not report the connection again, so a deadline is needed"
    );
    assert!(!node.turn(Duration::from_millis(50)), "the loop does not spin");
    setrlimit(Resource::Nofile, old).unwrap();
    node.skip(Duration::from_secs(1));
    let (all, _) = node.read(&mut client, |_| false);
    assert!(all.ends_with(b"ok"));
}
