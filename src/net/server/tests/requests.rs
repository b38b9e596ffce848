//! Requests and their answers: framing, routes, methods, bodies, pipelining, refusals.

use super::{HEALTH, MAX_BODY, Node, READ_ONLY, count, drain};
use std::io::Write;
use std::time::Duration;

#[test]
fn a_plain_request_is_answered_and_closed() {
    let mut node = Node::new();
    let mut client = node.tcp(HEALTH);
    assert_eq!(
        node.ask(&mut client, "GET /healthz HTTP/1.0\r\n\r\n"),
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nCache-Control: no-store\r\n\
         Content-Length: 2\r\nConnection: close\r\n\r\nok"
    );
    node.settle();
    assert_eq!((node.connections(), node.server.next_deadline()), (0, None), "an idle server has nothing to wait for");
}

#[test]
fn listeners_serve_their_own_routes_only() {
    let mut node = Node::new();
    let close = "HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let mut client = node.tcp(HEALTH);
    assert!(node.ask(&mut client, &format!("GET /pods {close}")).starts_with("HTTP/1.1 404 "));
    let mut client = node.tcp(READ_ONLY);
    assert!(node.ask(&mut client, &format!("GET /status {close}")).starts_with("HTTP/1.1 404 "));
    let mut client = node.unix();
    assert!(node.ask(&mut client, &format!("GET /readyz?verbose {close}")).ends_with("[+]ping ok\ncheck passed\n"));
    assert_eq!(node.pages.asked, ["/readyz"]);
}

#[test]
fn a_streamed_body_is_chunked_or_ends_with_the_connection() {
    let mut node = Node::new();
    let mut client = node.unix();
    let answer = node.ask(&mut client, "GET /pods HTTP/1.0\r\n\r\n");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(!head.contains("Length") && !head.contains("chunked"), "{head}");
    assert_eq!(body.len(), 100_000);

    let mut client = node.tcp(READ_ONLY);
    let answer = node.ask(&mut client, "GET /pods HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let (head, mut body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("Transfer-Encoding: chunked"), "{head}");
    let mut total = 0;
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        total += size;
        body = &rest[size + 2..];
    }
    assert_eq!((total, body), (100_000, ""));
}

#[test]
fn a_body_is_made_only_as_fast_as_it_is_read() {
    let mut node = Node::new();
    let mut client = node.unix();
    client.write_all(&b"GET /pods HTTP/1.1\r\nHost: x\r\n\r\n".repeat(100)).unwrap();
    node.settle();
    // A unix socket buffers about 200 kB.
    assert!(node.pages.parts < 500, "{} pieces were produced for a client that reads nothing", node.pages.parts);
    // 10 MB.
    let whole = |all: &[u8]| all.ends_with(b"\r\n0\r\n\r\n") && count(all, "HTTP/1.1 200 OK") == 100;
    let (all, _) = node.read_for(Duration::from_secs(60), &mut client, whole);
    assert_eq!(count(&all, "HTTP/1.1 200 OK"), 100);
}

#[test]
fn pipelined_requests_are_answered_in_order_on_one_connection() {
    let mut node = Node::new();
    let mut client = node.tcp(HEALTH);
    let mut requests = String::new();
    for i in 0..50 {
        let path = ["/healthz", "/livez?verbose", "/nope"][i % 3];
        requests.push_str(&format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
    }
    let (early, late) = requests.split_at(777);
    client.write_all(early.as_bytes()).unwrap();
    node.settle();
    client.write_all(late.as_bytes()).unwrap();
    let (all, end) = node.read(&mut client, |all| count(all, "HTTP/1.1 ") == 50);
    assert!(!end);
    let text = String::from_utf8(all).unwrap();
    let statuses: Vec<&str> = text.split("HTTP/1.1 ").skip(1).map(|a| &a[..3]).collect();
    assert!(statuses.iter().enumerate().all(|(i, s)| *s == ["200", "200", "404"][i % 3]), "{statuses:?}");
}

#[test]
fn head_has_the_headers_and_no_body() {
    let mut node = Node::new();
    let mut client = node.unix();
    let answer = node.ask(&mut client, "HEAD /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert!(answer.contains("Content-Length: 3000000\r\n") && answer.ends_with("\r\n\r\n"), "{answer}");
    let mut client = node.unix();
    let answer = node.ask(&mut client, "HEAD /pods?watch=1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert!(answer.contains("chunked\r\n") && answer.ends_with("\r\n\r\n"), "{answer}");
}

#[test]
fn a_big_answer_is_written_in_parts() {
    let mut node = Node::new();
    let mut client = node.unix();
    let answer = node.ask(&mut client, "GET /metrics HTTP/1.0\r\n\r\n");
    assert_eq!(answer.split_once("\r\n\r\n").unwrap().1.len(), 3_000_000);
}

#[test]
fn garbage_a_huge_head_and_bodies_are_refused_and_the_answer_arrives() {
    let mut node = Node::new();
    for (request, status) in [
        ("\x16\x03\x01\x02\x00\x01\x00".to_owned(), "400"),
        (format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(50_000)), "431"),
        (format!("GET / HTTP/1.1\r\nHost: x\r\nA: {}", "a".repeat(20_000)), "431"),
        (format!("POST /pods HTTP/1.1\r\nHost: x\r\nContent-Length: 30000\r\n\r\n{}", "b".repeat(30_000)), "405"),
        (format!("GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{}", "b".repeat(9)), "413"),
        ("GET /healthz HTTP/3.0\r\n\r\n".to_owned(), "505"),
    ] {
        let mut client = node.tcp(HEALTH);
        client.write_all(request.as_bytes()).unwrap();
        let (all, _) = node.read(&mut client, |_| false);
        let text = String::from_utf8_lossy(&all);
        assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{status}: {text:?}");
        assert!(text.contains("Connection: close"), "{text}");
    }
    node.skip(Duration::from_secs(2));
    assert_eq!(node.connections(), 0, "the server does not wait for further input of a refused client");
}

#[test]
fn changes_are_accepted_only_as_post_on_the_control_socket() {
    let mut node = Node::new();
    let post = "POST /retry?uid=u1 HTTP/1.1\r\nHost: x\r\n";
    let mut client = node.unix();
    // Two POST requests, with a length of 0 and without a length, and then a GET on the same connection.
    let requests = format!("{post}Content-Length: 0\r\n\r\n{post}\r\nGET /healthz HTTP/1.0\r\n\r\n");
    let answers = node.ask(&mut client, &requests);
    assert_eq!(count(answers.as_bytes(), "HTTP/1.1 200 OK"), 3, "{answers}");
    assert_eq!(count(answers.as_bytes(), "u1 is retried"), 2, "{answers}");
    assert_eq!(node.pages.asked, ["/retry", "/retry", "/healthz"]);

    let mut client = node.unix();
    let answer = node.ask(&mut client, "GET /retry?uid=u HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 405 ") && answer.contains("\r\nAllow: POST\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nonly POST\n"), "{answer}");
    let mut client = node.unix();
    let answer = node.ask(&mut client, &format!("{post}Content-Length: 3\r\n\r\nabc"));
    assert!(answer.starts_with("HTTP/1.1 413 ") && !answer.contains("Allow"), "{answer}");
    let mut client = node.unix();
    let answer = node.ask(&mut client, "POST /pods HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 405 ") && answer.contains("\r\nAllow: GET, HEAD\r\n"), "{answer}");
    for listener in [HEALTH, READ_ONLY] {
        let mut client = node.tcp(listener);
        let answer = node.ask(&mut client, &format!("{post}\r\n"));
        assert!(answer.starts_with("HTTP/1.1 405 "), "{listener:?}: {answer}");
        let mut client = node.tcp(listener);
        let answer = node.ask(&mut client, "GET /retry?uid=u HTTP/1.0\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 404 "), "{listener:?}: {answer}");
    }
    assert_eq!(node.pages.asked.len(), 3, "none of these requests reached the content");
}

#[test]
fn a_client_that_closed_its_half_is_answered() {
    let mut node = Node::new();
    let mut client = node.tcp(HEALTH);
    client.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    let (all, end) = node.read(&mut client, |_| false);
    assert!(end && all.ends_with(b"ok"));

    let mut client = node.tcp(HEALTH);
    client.write_all(b"GET /heal").unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    let (all, end) = node.read(&mut client, |_| false);
    assert!(end && all.starts_with(b"HTTP/1.1 400 "));
}

#[test]
fn a_body_may_arrive_in_pieces_and_a_missing_body_times_out() {
    let mut node = Node::new();
    let body = "b".repeat(MAX_BODY);
    let request = drain(&body, "");
    let mut client = node.unix();
    for piece in request.as_bytes().chunks(5000) {
        client.write_all(piece).unwrap();
        node.turn(Duration::from_millis(5));
    }
    node.settle();
    assert_eq!(node.pages.later.len(), 1);
    assert_eq!(node.pages.later[0].1, body);
    // Only half of another request arrives.
    let mut client = node.unix();
    client.write_all(&request.as_bytes()[..70_000]).unwrap();
    node.settle();
    node.skip(Duration::from_secs(6));
    let (_, end) = node.read(&mut client, |_| false);
    assert!(end);
    assert_eq!(node.pages.later.len(), 1);
}
