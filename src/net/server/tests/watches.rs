//! Watches: the first list, later changes, slow readers, and the limit for their number.

use super::{MAX_WATCHES, Node, READ_ONLY};
use bytes::Bytes;
use std::io::Write;
use std::time::Duration;

const WATCH: &[u8] = b"GET /pods?watch=1 HTTP/1.0\r\n\r\n";

#[test]
fn a_watch_begins_with_the_current_state_and_continues_with_changes() {
    let mut node = Node::new();
    let mut plain = node.unix();
    let mut chunked = node.unix();
    plain.write_all(WATCH).unwrap();
    chunked.write_all(b"GET /pods?watch=1 HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    node.settle();
    assert!(node.server.has_body(super::CONTROL, |body| body.is_watch));
    assert!(!node.server.has_body(READ_ONLY, |_| true));
    node.skip(Duration::from_secs(3600));
    assert_eq!(node.connections(), 2, "a watch may be idle forever");
    assert_eq!(node.server.next_deadline(), None);
    node.publish(&b"news\n"[..]);
    let (all, _) = node.read(&mut plain, |all| all.ends_with(b"news\n"));
    assert!(all.ends_with(b"\r\n\r\nline 101\nline 102\nnews\n"), "{:?}", String::from_utf8_lossy(&all));
    let (all, _) = node.read(&mut chunked, |all| all.ends_with(b"news\n\r\n"));
    assert!(all.ends_with(b"00000009\r\nline 102\n\r\n00000005\r\nnews\n\r\n"), "{:?}", String::from_utf8_lossy(&all));
    drop(plain);
    node.settle();
    assert_eq!(node.connections(), 1, "the server notices a disconnected client");
    assert_eq!(node.server.next_deadline(), None);
}

#[test]
fn a_watch_on_the_control_socket_that_stops_reading_stays_open_and_has_no_queue() {
    let mut node = Node::new();
    let (mut stuck, mut good) = (node.unix(), node.unix());
    for client in [&mut stuck, &mut good] {
        client.write_all(WATCH).unwrap();
    }
    node.settle();
    let line = Bytes::from(vec![b'l'; 10_000]);
    let (mut got, mut most) = (0, 0);
    for _ in 0..200 {
        node.publish(line.clone());
        node.turn(Duration::ZERO);
        let (all, _) = node.read(&mut good, |all| all.len() >= 10_000);
        got += all.len();
        most = most.max(node.server.connections().iter().map(|(_, _, queued)| *queued).max().unwrap_or_default());
    }
    assert!(got >= 2_000_000, "{got}");
    assert!(most < 3 * line.len(), "{most} bytes queue for a client that reads nothing");
    node.skip(Duration::from_secs(3600));
    assert_eq!((node.connections(), node.server.next_deadline()), (2, None));
    let (all, _) = node.read(&mut stuck, |all| all.len() >= 2_000_000);
    assert!(all.len() >= 2_000_000, "it continues where it stopped: {}", all.len());
}

#[test]
fn a_watch_that_stops_reading_in_its_first_list_stays_open_and_has_no_queue() {
    let mut node = Node::new();
    let mut stuck = node.unix();
    stuck.write_all(b"GET /long?watch=1 HTTP/1.0\r\n\r\n").unwrap();
    node.settle();
    node.skip(Duration::from_secs(3600));
    let (_, state, queued) = node.server.connections()[0];
    assert_eq!((state, node.connections(), node.server.next_deadline()), ("watching", 1, None));
    assert!(queued < 32 << 10, "{queued}");
    let (all, _) = node.read(&mut stuck, |all| all.len() > 1_000_000);
    assert!(all.len() > 1_000_000, "it continues where it stopped: {}", all.len());
}

#[test]
fn watches_are_bounded_and_never_on_tcp() {
    let mut node = Node::new();
    let mut watches = Vec::new();
    for _ in 0..MAX_WATCHES {
        let mut client = node.unix();
        client.write_all(WATCH).unwrap();
        watches.push(client);
        node.settle();
    }
    let mut client = node.unix();
    let answer = node.ask(&mut client, "GET /pods?watch=1 HTTP/1.0\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.ends_with("\r\n\r\ntoo many watches\n"), "{answer}");
    let mut client = node.tcp(READ_ONLY);
    let answer = node.ask(&mut client, "GET /pods?watch=1 HTTP/1.0\r\n\r\n");
    assert_eq!(answer.split_once("\r\n\r\n").unwrap().1.len(), 100_000, "a TCP client gets the plain list");
}
