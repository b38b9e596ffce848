//! Deferred answers.

use super::{MAX_CONNECTIONS, Node, drain};
use crate::net::server::connection_limit;
use crate::net::server::exchange::{Response, Ticket};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

#[test]
fn a_deferred_answer_delays_no_other_client_and_keeps_its_position() {
    let mut node = Node::new();
    let (mut one, mut two) = (node.unix(), node.unix());
    // The next request on the same connection waits for the deferred answer.
    one.write_all(format!("{}GET /livez HTTP/1.0\r\n\r\n", drain("first", "")).as_bytes()).unwrap();
    two.write_all(drain("second", "Connection: close\r\n").as_bytes()).unwrap();
    node.settle();
    let (first, second) = (node.pages.later[0].clone(), node.pages.later[1].clone());
    assert_eq!((&first.1[..], &second.1[..]), (&b"first"[..], &b"second"[..]));
    assert_ne!(first.0, second.0);
    assert_eq!(node.server.next_deadline(), None, "a deferred answer has no deadline in the server");
    let mut other = node.unix();
    assert!(node.ask(&mut other, "GET /livez HTTP/1.0\r\n\r\n").ends_with("ok"));

    // An answer can be deferred for any length of time.
    node.skip(Duration::from_secs(3600));
    let now = node.now();
    node.server.answer(second.0, Response::text(409, "no"), now);
    node.server.answer(first.0, Response::text(200, "yes"), now);
    // A second answer and an answer to an unknown request have no effect.
    node.server.answer(first.0, Response::text(500, "late"), now);
    node.server.answer(Ticket(99), Response::text(500, "lost"), now);
    let (all, end) = node.read(&mut two, |_| false);
    let text = String::from_utf8(all).unwrap();
    assert!(end && text.starts_with("HTTP/1.1 409 Conflict\r\n") && text.ends_with("\r\n\r\nno"), "{text}");
    let (all, end) = node.read(&mut one, |_| false);
    let text = String::from_utf8(all).unwrap();
    assert!(
        end && text.starts_with("HTTP/1.1 200 OK\r\n") && text.contains("\r\n\r\nyesHTTP/1.1 200 OK\r\n"),
        "{text}"
    );
    assert!(text.ends_with("\r\n\r\nok"), "{text}");
    assert_eq!(node.pages.gone, []);
}

#[test]
fn a_disconnect_before_the_answer_is_reported_once() {
    let mut node = Node::new();
    let mut client = node.unix();
    client.write_all(drain("x", "").as_bytes()).unwrap();
    node.settle();
    let ticket = node.pages.later[0].0;
    assert_eq!(node.pages.gone, []);
    drop(client);
    node.settle();
    assert_eq!((node.pages.gone.as_slice(), node.connections()), (&[ticket][..], 0));
    let now = node.now();
    node.server.answer(ticket, Response::text(200, "yes"), now);
    node.settle();
    assert_eq!(node.pages.gone, [ticket]);
}

#[test]
fn a_client_with_a_deferred_answer_that_is_evicted_is_reported_as_disconnected() {
    let mut node = Node::new();
    let limit = if rustix::process::geteuid().is_root() { MAX_CONNECTIONS } else { connection_limit::MAX_OF_A_USER };
    let mut clients: Vec<UnixStream> = (0..limit).map(|_| node.unix()).collect();
    for client in &mut clients {
        client.write_all(drain("x", "").as_bytes()).unwrap();
        node.settle();
    }
    assert_eq!(node.pages.later.len(), limit);
    let mut client = node.unix();
    assert!(node.ask(&mut client, "GET /livez HTTP/1.0\r\n\r\n").ends_with("ok"));
    assert_eq!(node.pages.gone, [node.pages.later[0].0]);
}
