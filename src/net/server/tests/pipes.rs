//! Connections that are passed to another server after an upgrade.

use super::tls::Tls;
use super::{Node, count};
use crate::net::refused;
use crate::net::server::exchange::Upstream;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

const REQUEST: &[u8] = b"POST /exec HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n";
const HEAD: &[u8] = b"POST /exec/token HTTP/1.1\r\n\r\n";
const SWITCHING: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\n\r\n";

/// Returns a node, a client that has requested a session, and the listener of the upstream.
fn session(rest: &[u8]) -> (Node, Tls, TcpListener) {
    let (mut node, ca) = Node::secure();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    node.pages.secure.upstream = Some(Upstream { name: "the upstream", address, request: HEAD.to_vec() });
    let mut client = node.tls(&ca.client(Some(ca.identity("ann"))));
    client.write_all(&[REQUEST, rest].concat()).unwrap();
    node.settle();
    (node, client, listener)
}

/// Accepts the server's connection to the upstream.
fn accept(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).unwrap();
    let (upstream, _) = listener.accept().expect("the server has connected");
    upstream.set_nonblocking(true).unwrap();
    upstream
}

/// Returns a session whose upgrade is complete.
fn open() -> (Node, Tls, TcpStream) {
    let (mut node, mut client, listener) = session(b"");
    let mut upstream = accept(&listener);
    let (all, _) = node.read(&mut upstream, |all| all.len() >= HEAD.len());
    assert_eq!(all, HEAD);
    upstream.write_all(SWITCHING).unwrap();
    let (all, _) = node.read(&mut client, |all| all.len() >= SWITCHING.len());
    assert_eq!(all, SWITCHING, "the answer of the upstream, unchanged");
    (node, client, upstream)
}

fn closed(node: &mut Node, stream: &mut impl Read) -> Vec<u8> {
    let (all, end) = node.read_for(Duration::from_secs(20), stream, |_| false);
    assert!(end, "not closed");
    all
}

#[test]
fn bytes_pass_both_ways_and_each_direction_can_end_first() {
    // Input that the client sends after its request belongs to the session.
    let (mut node, mut client, listener) = session(b"early");
    let mut upstream = accept(&listener);
    let (all, _) = node.read(&mut upstream, |all| all.ends_with(b"early"));
    assert_eq!(all, [HEAD, b"early"].concat());
    upstream.write_all(SWITCHING).unwrap();
    client.write_all(b"one").unwrap();
    assert_eq!(node.read(&mut upstream, |all| all.len() >= 3).0, b"one");
    // The client ends its side, and still reads.
    client.conn.send_close_notify();
    client.flush().unwrap();
    client.sock.shutdown(Shutdown::Write).unwrap();
    assert_eq!(closed(&mut node, &mut upstream), b"");
    assert_eq!(node.connections(), 1);
    upstream.write_all(b"the result").unwrap();
    drop(upstream);
    assert!(closed(&mut node, &mut client).ends_with(b"\r\n\r\nthe result"));
    node.settle();
    assert_eq!((node.connections(), node.server.next_deadline()), (0, None));
}

#[test]
fn an_upstream_that_refuses_or_says_nothing_is_a_bad_gateway() {
    let (mut node, ca) = Node::secure();
    let config = ca.client(Some(ca.identity("ann")));
    let address = refused::closed();
    node.pages.secure.upstream = Some(Upstream { name: "the upstream", address, request: HEAD.to_vec() });
    let mut client = node.tls(&config);
    client.write_all(REQUEST).unwrap();
    let answer = closed(&mut node, &mut client);
    assert!(answer.starts_with(b"HTTP/1.1 502 Bad Gateway\r\n"), "{}", String::from_utf8_lossy(&answer));
    assert!(count(&answer, "\"kind\":\"Status\"") == 1 && count(&answer, "\"code\":502") == 1);

    let (mut node, mut client, listener) = session(b"");
    drop(accept(&listener));
    let answer = closed(&mut node, &mut client);
    assert!(answer.starts_with(b"HTTP/1.1 502 Bad Gateway\r\n"), "{}", String::from_utf8_lossy(&answer));
    node.settle();
    assert_eq!(node.connections(), 0);
}

#[test]
fn an_upstream_that_ends_ends_the_session_and_a_client_that_leaves_ends_the_upstream() {
    let (mut node, mut client, mut upstream) = open();
    upstream.write_all(b"last words").unwrap();
    drop(upstream);
    assert_eq!(closed(&mut node, &mut client), b"last words");
    node.settle();
    assert_eq!(node.connections(), 0);

    let (mut node, client, mut upstream) = open();
    drop(client);
    assert_eq!(closed(&mut node, &mut upstream), b"");
    // If no client reads, further output of the command ends the session.
    let end = Instant::now() + Duration::from_secs(20);
    while node.connections() > 0 && Instant::now() < end {
        let _ = upstream.write(b"more");
        node.turn(Duration::from_millis(1));
    }
    assert_eq!(node.connections(), 0);
}

/// Writes until the kernel and the server accept no more. Returns the number of bytes.
fn fill(node: &mut Node, stream: &mut TcpStream) -> usize {
    let (block, mut total, mut idle) = (vec![b'f'; 64 * 1024], 0, 0);
    while idle < 20 {
        match stream.write(&block) {
            Ok(n) => (total, idle) = (total + n, 0),
            Err(e) if e.kind() == ErrorKind::WouldBlock => idle += 1,
            Err(e) => panic!("{e}"),
        }
        node.turn(Duration::from_millis(2));
    }
    total
}

#[test]
fn a_side_that_does_not_read_stops_the_other_and_little_is_queued() {
    let (mut node, mut client, mut upstream) = open();
    let sent = fill(&mut node, &mut upstream);
    let queued: usize = node.server.connections().iter().map(|(_, _, queued)| queued).sum();
    // The limit, plus one read.
    assert!(queued <= (128 + 64) << 10, "{queued}");
    // Meanwhile the loop sleeps.
    let turns = node.turns;
    node.turn(Duration::from_millis(50));
    assert_eq!(node.turns, turns + 1);
    let (all, _) = node.read_for(Duration::from_secs(60), &mut client, |all| all.len() >= sent);
    assert_eq!(all.len(), sent, "nothing is lost");
}

#[test]
fn an_idle_session_stays_open_for_hours_and_then_ends() {
    let (mut node, mut client, mut upstream) = open();
    node.skip(Duration::from_secs(4 * 3600));
    client.write_all(b"x").unwrap();
    assert_eq!(node.read(&mut upstream, |all| !all.is_empty()).0, b"x");
    node.skip(Duration::from_secs(4 * 3600));
    assert_eq!(node.connections(), 1);
    node.skip(Duration::from_secs(3600 + 60));
    assert_eq!((node.connections(), node.server.next_deadline()), (0, None));
    closed(&mut node, &mut upstream);
}
