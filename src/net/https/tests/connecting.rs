//! Addresses, names and certificates.

use super::*;
use crate::net::refused::closed;
use std::net::TcpListener;

fn named(ca: &Ca, name: &str) -> Peer {
    let tls = Connector::new(vec![ca.der()], None, LOCAL, b"h2").unwrap();
    Peer { host: Host::Name(name.to_owned()), port: 6443, tls }
}

/// Makes a call that cannot be sent, and returns the text of its error.
fn unsent(driven: &mut Driven) -> String {
    let id = driven.get("/", None);
    match driven.done(id) {
        Err(CallError::NotSent(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_refused_connection_ends_all_waiting_calls_as_not_sent() {
    let (ca, address) = (Ca::new(), closed());
    let mut driven = Driven::new(peer(&ca, address));
    let first = driven.get("/", None);
    let expected = format!("https://{address}: connection refused");
    assert_eq!(unsent(&mut driven), expected);
    assert_eq!(driven.done(first), Err(CallError::NotSent(expected.clone())));
    assert_eq!(unsent(&mut driven), expected);
    assert_eq!(driven.downs(), [expected], "reported once");
}

#[test]
fn a_certificate_that_does_not_verify_is_refused_with_the_reason() {
    let ca = Ca::new();
    for (certified, expected) in [
        (Ca::new().server(LOCAL, (2020, 2100)), "not signed by the configured CA; correct the CA"),
        (ca.server(LOCAL, (2020, 2021)), "has expired; renew it, or correct the clock"),
        (ca.server(LOCAL, (2090, 2100)), "is not valid yet; correct the clock"),
        (ca.server("other.example", (2020, 2100)), "for other names (other.example); configure one"),
    ] {
        let server = Server::start(&Options { certified, ..options(&ca) });
        let mut driven = Driven::new(peer(&ca, server.address));
        let why = unsent(&mut driven);
        assert!(why.starts_with(&format!("https://{}: ", server.address)) && why.contains(expected), "{why}");
        assert!(server.requests.try_recv().is_err());
    }
}

#[test]
fn the_client_presents_its_certificate() {
    let (ca, clients) = (Ca::new(), Ca::new());
    let server = Server::start(&Options { client_ca: Some(clients.der()), ..options(&ca) });
    let with = |identity| Connector::new(vec![ca.der()], identity, LOCAL, b"h2").unwrap();
    let plain = peer(&ca, server.address);
    let mut driven = Driven::new(Peer { tls: with(Some(clients.client("system:node:a").identity())), ..plain.clone() });
    let id = driven.get("/", None);
    driven.request(&server).answer(200, &[], "");
    assert_eq!(driven.done(id), Ok(()));
    for identity in [None, Some(Ca::new().client("system:node:a").identity())] {
        let mut driven = Driven::new(Peer { tls: with(identity), ..plain.clone() });
        let why = unsent(&mut driven);
        assert!(why.contains("the server refuses the client's certificate"), "{why}");
    }
}

#[test]
fn a_key_of_another_certificate_is_unusable() {
    let ca = Ca::new();
    let (chain, _) = ca.client("a").identity();
    let (_, key) = ca.client("b").identity();
    let result = Connector::new(vec![ca.der()], Some((chain, key)), LOCAL, b"h2");
    assert!(matches!(result.map(|_| ()), Err(crate::net::tls::verified::Unusable::Identity(_))));
}

#[test]
fn another_protocol_is_refused() {
    let ca = Ca::new();
    let server = Server::start(&Options { protocol: b"http/1.1", ..options(&ca) });
    let why = unsent(&mut Driven::new(peer(&ca, server.address)));
    assert!(why.contains("does not offer HTTP/2"), "{why}");
}

#[test]
fn a_server_without_tls_is_refused() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let plain = std::thread::spawn(move || {
        use std::io::Write;
        let (mut socket, _) = listener.accept().unwrap();
        socket.write_all(b"HTTP/1.0 400 Bad Request\r\n\r\n").unwrap();
        socket
    });
    let why = unsent(&mut Driven::new(peer(&Ca::new(), address)));
    assert!(why.contains("does not speak TLS"), "{why}");
    plain.join().unwrap();
}

#[test]
fn the_next_address_is_tried_when_one_refuses_or_is_silent() {
    let ca = Ca::new();
    let server = Server::start(&options(&ca));
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (refused, silent_address) = (closed(), silent.local_addr().unwrap());
    let mut driven = Driven::new(named(&ca, "api.example"));
    driven.client.set_addresses("api.example", vec![refused, silent_address, server.address]);
    let id = driven.get("/", None);
    // The silent server accepts the connection and never answers.
    let _held = driven.until(|_| silent.accept().ok());
    for _ in 0..5 {
        driven.turn();
    }
    driven.advance(10);
    driven.request(&server).answer(200, &[], "");
    assert_eq!(driven.done(id), Ok(()));
    assert!(matches!(driven.events[0], Event::Up { address } if address == server.address));
}

#[test]
fn the_reasons_of_all_addresses_are_reported() {
    let (first, second) = (closed(), closed());
    let mut driven = Driven::new(named(&Ca::new(), "api.example"));
    driven.client.set_addresses("api.example", vec![first, second]);
    let why = unsent(&mut driven);
    let expected = format!("https://api.example:6443: {first}: connection refused; {second}: connection refused");
    assert_eq!(why, expected);
}

#[test]
fn a_name_is_looked_up_before_a_connection_and_again_after_a_failure() {
    let ca = Ca::new();
    let server = Server::start(&options(&ca));
    let mut driven = Driven::new(named(&ca, "api.example"));
    let resolves = |driven: &Driven| driven.events.iter().filter(|e| matches!(e, Event::Resolve { .. })).count();
    let id = driven.get("/", None);
    driven.turn();
    assert!(matches!(&driven.events[..], [Event::Resolve { host, port: 6443 }] if host == "api.example"));
    driven.turn();
    assert_eq!(resolves(&driven), 1, "requested once");
    driven.client.not_resolved("other.example", "the answer to an old question");
    driven.turn();
    assert_eq!(driven.events.len(), 1);
    driven.client.not_resolved("api.example", "no network");
    let why = "https://api.example:6443: failed to look up the name: no network";
    assert_eq!(driven.done(id), Err(CallError::NotSent(why.to_owned())));
    // The address that this look-up returns refuses connections.
    let id = driven.get("/", None);
    driven.turn();
    assert_eq!(resolves(&driven), 2);
    driven.client.set_addresses("api.example", vec![closed()]);
    assert!(driven.done(id).is_err());
    let id = driven.get("/", None);
    driven.turn();
    assert_eq!(resolves(&driven), 3);
    driven.client.set_addresses("api.example", vec![server.address]);
    driven.request(&server).answer(200, &[], "");
    assert_eq!(driven.done(id), Ok(()));
    // An address that has worked is kept.
    server.control(Control::Close);
    driven.until(|driven| (driven.downs().len() == 2).then_some(()));
    let id = driven.get("/", None);
    driven.request(&server).answer(200, &[], "");
    assert_eq!((driven.done(id), resolves(&driven)), (Ok(()), 3));
}

#[test]
fn a_look_up_that_fails_leaves_the_old_addresses() {
    let ca = Ca::new();
    let server = Server::start(&options(&ca));
    let mut driven = Driven::new(named(&ca, "api.example"));
    driven.client.set_addresses("api.example", vec![server.address]);
    driven.client.not_resolved("api.example", "no network");
    let id = driven.get("/", None);
    driven.request(&server).answer(200, &[], "");
    assert_eq!(driven.done(id), Ok(()));
}
