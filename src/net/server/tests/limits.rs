//! The limits for a client: deadlines, the number of connections, the share of each user.

use super::{HEALTH, MAX_CONNECTIONS, Node, READ_ONLY};
use crate::net::server::connection_limit;
use crate::net::stream::Peer;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

#[test]
fn silent_and_slow_clients_are_closed_at_their_deadlines() {
    let mut node = Node::new();
    let mut silent = node.tcp(HEALTH);
    let mut slow = node.tcp(HEALTH);
    let mut idle = node.tcp(HEALTH);
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    slow.write_all(b"GET /heal").unwrap();
    node.settle();
    assert_eq!(node.connections(), 3);
    node.skip(Duration::from_secs(4));
    slow.write_all(b"th").unwrap();
    node.skip(Duration::from_millis(1200));
    assert_eq!(node.connections(), 1, "a head has 5 s from its first byte, even if bytes still arrive");
    assert!(node.read(&mut silent, |_| false).1 && node.read(&mut slow, |_| false).1);
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    node.settle();
    node.skip(Duration::from_secs(29));
    assert_eq!(node.connections(), 1, "an idle connection has 30 s");
    node.skip(Duration::from_secs(2));
    assert_eq!(node.connections(), 0);
    assert_eq!(node.server.next_deadline(), None);
}

#[test]
fn a_client_that_stops_reading_is_closed_and_delays_no_other_client() {
    let mut node = Node::new();
    let mut stuck: Vec<UnixStream> = (0..5).map(|_| node.unix()).collect();
    for client in &mut stuck {
        client.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    }
    node.settle();
    let turns = node.turns;
    node.turn(Duration::from_millis(50));
    assert_eq!(node.turns, turns + 1, "a client that blocks does not keep the loop awake");
    let mut client = node.unix();
    assert!(node.ask(&mut client, "GET /healthz HTTP/1.0\r\n\r\n").ends_with("ok"));
    node.skip(Duration::from_secs(31));
    assert_eq!(node.connections(), 0);
}

#[test]
fn at_a_hundred_connections_the_least_important_is_closed_for_a_new_one() {
    let mut node = Node::new();
    let mut idle = node.tcp(HEALTH);
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    node.settle();
    let mut crowd = Vec::new();
    for i in 0..100 {
        let mut client = node.tcp(HEALTH);
        if i % 2 == 0 {
            client.write_all(b"GET /").unwrap();
        }
        crowd.push(client);
        node.turn(Duration::ZERO);
        assert!(node.connections() <= MAX_CONNECTIONS);
    }
    let mut client = node.tcp(HEALTH);
    assert!(node.ask(&mut client, "GET /healthz HTTP/1.0\r\n\r\n").ends_with("ok"));
    let mut other = node.tcp(READ_ONLY);
    assert!(node.ask(&mut other, "GET /healthz HTTP/1.0\r\n\r\n").ends_with("ok"), "each listener has its own limit");
    let (_, end) = node.read(&mut idle, |_| false);
    assert!(end, "the idle connection was closed first");
    node.skip(Duration::from_secs(6));
    assert_eq!(node.connections(), 0);
}

/// Returns a client that has sent requests without reading, until the server could no longer write.
fn stuck(node: &mut Node) -> TcpStream {
    let mut client = node.tcp(HEALTH);
    // A small receive buffer fills quickly.
    rustix::net::sockopt::set_socket_recv_buffer_size(&client, 2048).unwrap();
    fill(node, &mut client);
    client
}

/// Sends requests until the server seems to have stopped reading, because it cannot write.
fn fill(node: &mut Node, client: &mut TcpStream) {
    let requests = b"GET /livez?verbose HTTP/1.1\r\nHost: x\r\n\r\n".repeat(1000);
    loop {
        match client.write(&requests) {
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock && !node.turn(Duration::from_millis(5)) => return,
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(e) => panic!("{e}"),
        }
        node.turn(Duration::ZERO);
    }
}

#[test]
fn clients_that_never_read_hold_no_port() {
    let mut node = Node::new();
    node.stop_clock();
    let mut crowd: Vec<TcpStream> = (0..MAX_CONNECTIONS).map(|_| stuck(&mut node)).collect();
    let states = |node: &Node| node.server.connections().iter().filter(|(_, state, _)| *state == "answering").count();
    // On a loaded machine, the kernel can deliver data late, so that a client has space for more.
    for _ in 0..100 {
        if states(&node) < MAX_CONNECTIONS {
            crowd.iter_mut().for_each(|client| fill(&mut node, client));
        }
    }
    assert_eq!((node.connections(), states(&node)), (MAX_CONNECTIONS, MAX_CONNECTIONS));
    for _ in 0..3 {
        let mut client = node.tcp(HEALTH);
        // The client connects first and sends its request later.
        node.settle();
        assert!(node.ask(&mut client, "GET /healthz HTTP/1.0\r\n\r\n").ends_with("ok"));
    }
    // Meanwhile new stuck clients replace the closed ones.
    node.skip(Duration::from_secs(2));
    let mut slow = node.tcp(HEALTH);
    node.settle();
    node.skip(Duration::from_secs(1));
    let more: Vec<TcpStream> = (0..4).map(|_| stuck(&mut node)).collect();
    assert!(
        node.ask(&mut slow, "GET /healthz HTTP/1.0\r\n\r\n").ends_with("ok"),
        "a client that is about to send its request outlasts them"
    );
    node.skip(Duration::from_secs(11));
    assert_eq!(node.connections(), 0, "a client that reads nothing for 10 s is closed");
    drop((crowd, more));
}

#[test]
fn an_answer_has_half_a_minute_in_all_if_its_client_takes_some_of_it() {
    let mut node = Node::new();
    node.stop_clock();
    let mut client = node.unix();
    client.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    node.settle();
    let mut buffer = vec![0; 300_000];
    for _ in 0..3 {
        node.skip(Duration::from_secs(9));
        assert_eq!(node.connections(), 1, "the client reads, but slowly");
        assert!(client.read(&mut buffer).unwrap() > 0);
        node.settle();
    }
    node.skip(Duration::from_secs(4));
    assert_eq!(node.connections(), 0);
}

#[test]
fn one_user_has_a_share_of_the_control_socket() {
    let mut node = Node::new();
    let own = rustix::process::geteuid().as_raw();
    let mut clients: Vec<UnixStream> = (0..connection_limit::MAX_OF_A_USER + 1).map(|_| node.unix()).collect();
    node.settle();
    let peers: Vec<Peer> = node.server.slots.iter().flatten().map(|connection| connection.peer()).collect();
    assert!(peers.iter().all(|peer| *peer == Peer::User(own)), "{peers:?}");
    let limited = own != 0;
    assert_eq!(
        peers.len(),
        if limited { connection_limit::MAX_OF_A_USER } else { connection_limit::MAX_OF_A_USER + 1 }
    );
    let (_, end) = node.read(&mut clients[0], |_| !limited);
    assert_eq!(end, limited, "the user's oldest connection is closed");
    let last = clients.last_mut().unwrap();
    assert!(node.ask(last, "GET /livez HTTP/1.0\r\n\r\n").ends_with("ok"));
}

#[test]
fn a_burst_of_connections_is_served_over_several_turns() {
    let mut node = Node::new();
    let mut clients: Vec<TcpStream> = (0..60).map(|_| node.tcp(HEALTH)).collect();
    for client in &mut clients {
        client.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").unwrap();
    }
    for client in &mut clients {
        let (all, _) = node.read(client, |_| false);
        assert!(all.ends_with(b"ok"));
    }
}
