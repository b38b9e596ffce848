//! Watches: their first list, published lines, slow readers, their number.

use super::Node;
use crate::adapters::server::MAX_WATCHES;
use crate::adapters::server::http::{ListenerKind, Route};
use bytes::Bytes;
use std::io::Write;
use std::time::Duration;

#[test]
fn a_watch_begins_with_the_current_state_and_continues_with_changes() {
    let mut node = Node::new();
    let mut plain = node.unix();
    let mut chunked = node.unix();
    plain.write_all(b"GET /pods?watch=1 HTTP/1.0\r\n\r\n").unwrap();
    chunked.write_all(b"GET /pods?watch=1 HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    node.settle();
    assert!(node.server.has_watches(Route::Pods));
    node.skip(Duration::from_secs(3600));
    assert_eq!(node.connections(), 2, "a watch may be idle forever");
    assert_eq!(node.server.next_deadline(), None);
    let now = node.now();
    node.server.publish(Route::Pods, &b"news\n"[..], now);
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
fn a_watch_that_stops_reading_is_closed_and_the_others_go_on() {
    let mut node = Node::new();
    let (mut stuck, mut good) = (node.unix(), node.unix());
    for client in [&mut stuck, &mut good] {
        client.write_all(b"GET /pods?watch=1 HTTP/1.0\r\n\r\n").unwrap();
    }
    node.settle();
    let line = Bytes::from(vec![b'l'; 10_000]);
    let mut got = 0;
    for _ in 0..200 {
        let now = node.now();
        node.server.publish(Route::Pods, line.clone(), now);
        node.turn(Duration::ZERO);
        let (all, _) = node.read(&mut good, |all| all.len() >= 10_000);
        got += all.len();
    }
    assert!(got >= 2_000_000, "{got}");
    assert_eq!(node.connections(), 1, "the watch with a backlog of 1 MiB is closed");
}

#[test]
fn a_slow_watch_of_events_uses_little_memory_and_receives_the_number_of_lost_events() {
    let mut node = Node::new();
    let mut stuck = node.unix();
    stuck.write_all(b"GET /events?watch=1 HTTP/1.0\r\n\r\n").unwrap();
    node.settle();
    assert!(node.server.has_watches(Route::Events) && !node.server.has_watches(Route::Pods));
    let line = Bytes::from([vec![b'l'; 999], vec![b'\n']].concat());
    for _ in 0..5000 {
        let now = node.now();
        node.server.publish(Route::Events, line.clone(), now);
        node.server.publish(Route::Pods, &b"of pods\n"[..], now);
        node.turn(Duration::ZERO);
        assert!(node.server.connections().iter().all(|(_, _, queued, _)| *queued <= 64 << 10));
    }
    node.skip(Duration::from_secs(3600));
    assert_eq!(node.connections(), 1, "a watch with a slow reader stays open");
    let (all, _) = node.read(&mut stuck, |all| all.ends_with(b"}\n"));
    let text = String::from_utf8(all).unwrap();
    let came = text.matches("lll\n").count();
    assert!((64..5000).contains(&came), "{came}");
    assert!(text.ends_with(&format!("lll\n{{\"type\":\"LOST\",\"count\":{}}}\n", 5000 - came)), "{came}");
    assert!(!text.contains("of pods"));
    let now = node.now();
    node.server.publish(Route::Events, &b"news\n"[..], now);
    let (all, _) = node.read(&mut stuck, |all| all.ends_with(b"news\n"));
    assert_eq!(all, b"news\n");
}

#[test]
fn a_watch_that_reads_nothing_for_half_a_minute_is_closed() {
    let mut node = Node::new();
    let mut stuck = node.unix();
    stuck.write_all(b"GET /pods?watch=1 HTTP/1.0\r\n\r\n").unwrap();
    node.settle();
    let now = node.now();
    node.server.publish(Route::Pods, vec![b'l'; 900_000], now);
    node.settle();
    node.skip(Duration::from_secs(29));
    assert_eq!(node.connections(), 1);
    node.skip(Duration::from_secs(2));
    assert_eq!(node.connections(), 0);
}

#[test]
fn watches_are_bounded_and_never_on_tcp() {
    let mut node = Node::new();
    let mut watches = Vec::new();
    for _ in 0..MAX_WATCHES {
        let mut client = node.unix();
        client.write_all(b"GET /pods?watch=1 HTTP/1.0\r\n\r\n").unwrap();
        watches.push(client);
        node.settle();
    }
    let mut client = node.unix();
    assert!(node.ask(&mut client, "GET /pods?watch=1 HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 503 "));
    let mut client = node.tcp(ListenerKind::ReadOnly);
    let answer = node.ask(&mut client, "GET /pods?watch=1 HTTP/1.0\r\n\r\n");
    assert_eq!(answer.split_once("\r\n\r\n").unwrap().1.len(), 100_000, "a TCP client gets the plain list");
}
