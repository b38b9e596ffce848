//! TLS: certificates of a CA that exists only in the test, a client, and what happens before a request.

use super::{KUBECTL, MAX_NODE_CONNECTIONS, MAX_SECURE_CONNECTIONS, NODE, Node};
use crate::net::server::ListenerId;
use crate::net::tls::server::Acceptor;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A CA with one certificate for the server and any number of clients.
pub(super) struct Ca {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
}

type Identity = (CertificateDer<'static>, PrivateKeyDer<'static>);

impl Ca {
    pub(super) fn new() -> Ca {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "test");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap().der().clone();
        Ca { issuer: Issuer::new(params, key), certificate }
    }

    pub(super) fn identity(&self, name: &str) -> Identity {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.issuer).unwrap().der().clone();
        (certificate, PrivateKeyDer::Pkcs8(key.serialize_der().into()))
    }

    fn acceptor(&self) -> Acceptor {
        let (certificate, key) = self.identity("server");
        Acceptor::new(vec![certificate], key, self.certificate.clone()).unwrap()
    }

    /// Returns the configuration of a client that trusts this CA.
    pub(super) fn client(&self, identity: Option<Identity>) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let builder = builder.with_root_certificates(roots);
        Arc::new(match identity {
            Some((certificate, key)) => builder.with_client_auth_cert(vec![certificate], key).unwrap(),
            None => builder.with_no_client_auth(),
        })
    }
}

/// A client that does not block.
pub(super) type Tls = StreamOwned<ClientConnection, TcpStream>;

impl Node {
    /// Returns a server with the secure listener, and the CA that signs the certificates of its clients.
    pub(super) fn secure() -> (Node, Ca) {
        let mut node = Node::new();
        let ca = Ca::new();
        node.pages.secure.acceptor = Some(ca.acceptor());
        node.listen(KUBECTL);
        (node, ca)
    }

    /// Connects and completes the handshake.
    pub(super) fn tls(&mut self, config: &Arc<ClientConfig>) -> Tls {
        self.tls_of(KUBECTL, config)
    }

    fn tls_of(&mut self, listener: ListenerId, config: &Arc<ClientConfig>) -> Tls {
        let socket = self.tcp(listener);
        // Otherwise the kernel holds the request back until the handshake is acknowledged, which can take 40 ms.
        socket.set_nodelay(true).unwrap();
        self.handshake(config, socket).unwrap()
    }

    /// Performs the handshake on this socket. The client's certificate is part of it, but with TLS 1.3 the client
    /// learns only later whether the server accepts it.
    fn handshake(&mut self, config: &Arc<ClientConfig>, socket: TcpStream) -> std::io::Result<Tls> {
        let name = ServerName::try_from("localhost").unwrap();
        let mut stream = StreamOwned::new(ClientConnection::new(config.clone(), name).unwrap(), socket);
        let end = Instant::now() + Duration::from_secs(20);
        while stream.conn.is_handshaking() || stream.conn.wants_write() {
            match stream.conn.complete_io(&mut stream.sock) {
                Err(e) if e.kind() != ErrorKind::WouldBlock => return Err(e),
                _ => self.turn(Duration::from_millis(1)),
            };
            assert!(Instant::now() < end, "the handshake does not end");
        }
        Ok(stream)
    }

    /// Reads until the stream ends in any way. Returns the bytes and the error that ended it.
    fn rest(&mut self, stream: &mut impl Read) -> (Vec<u8>, Option<std::io::Error>) {
        let (mut all, mut buffer) = (Vec::new(), [0; 4096]);
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            self.turn(Duration::from_millis(1));
            match stream.read(&mut buffer) {
                Ok(0) => return (all, None),
                Ok(n) => all.extend_from_slice(&buffer[..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => assert!(Instant::now() < end, "the stream does not end"),
                Err(e) => return (all, Some(e)),
            }
        }
    }
}

#[test]
fn a_client_without_a_certificate_of_the_ca_gets_nothing_beyond_the_handshake() {
    let (mut node, ca) = Node::secure();
    let foreign = Ca::new().identity("ann");
    for identity in [None, Some(foreign)] {
        let config = ca.client(identity);
        let socket = node.tcp(KUBECTL);
        if let Ok(mut client) = node.handshake(&config, socket) {
            let _ = client.write_all(b"GET /small HTTP/1.1\r\nHost: localhost\r\n\r\n");
            let (all, error) = node.rest(&mut client);
            assert_eq!(all, b"");
            let error = error.expect("an alert").to_string();
            assert!(error.contains("alert") || error.contains("reset"), "{error}");
        }
    }
    // Neither HTTP without TLS nor noise gets an answer.
    for noise in [&b"GET /small HTTP/1.1\r\nHost: localhost\r\n\r\n"[..], &[0x16, 3, 1, 0xff, 0xff], &[0x80; 600]] {
        let mut socket = node.tcp(KUBECTL);
        socket.write_all(noise).unwrap();
        let _ = socket.shutdown(Shutdown::Write);
        let (all, _) = node.rest(&mut socket);
        // The server sends at most an alert (a record of type 21).
        assert!(all.is_empty() || (all[0] == 21 && all.len() < 16), "{all:?}");
    }
    node.settle();
    assert_eq!((node.pages.asked.len(), node.connections()), (0, 0));
    let mut client = node.tls(&ca.client(Some(ca.identity("ann"))));
    let answer = node.ask(&mut client, "GET /small HTTP/1.0\r\nHost: localhost\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\n{}"), "{answer}");
}

#[test]
fn a_handshake_that_stops_ends_at_its_deadline() {
    let (mut node, ca) = Node::secure();
    node.stop_clock();
    let config = ca.client(Some(ca.identity("ann")));
    let mut silent = node.tcp(KUBECTL);
    // The first bytes of a handshake, and a complete one without a request.
    let mut half = node.tcp(KUBECTL);
    let mut connection = ClientConnection::new(config.clone(), ServerName::try_from("localhost").unwrap()).unwrap();
    let mut hello = Vec::new();
    connection.write_tls(&mut hello).unwrap();
    half.write_all(&hello[..hello.len() / 2]).unwrap();
    let mut idle = node.tls(&config);
    node.settle();
    assert_eq!(node.connections(), 3);
    node.skip(Duration::from_secs(4));
    half.write_all(&hello[hello.len() / 2..hello.len() / 2 + 1]).unwrap();
    node.settle();
    assert_eq!(node.connections(), 3);
    node.skip(Duration::from_secs(2));
    assert_eq!(node.connections(), 0, "each has 5 s from the connection to the end of its first head");
    assert_eq!(node.rest(&mut silent).0, b"");
    let _ = node.rest(&mut half);
    assert_eq!(node.rest(&mut idle).0, b"");
    assert_eq!(node.server.next_deadline(), None);
}

#[test]
fn ten_thousand_connections_leave_nothing_and_a_watch_survives_them() {
    let (mut node, ca) = Node::secure();
    let config = ca.client(Some(ca.identity("ann")));
    let mut watch = node.tls(&config);
    watch.write_all(b"GET /watch HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let (all, _) = node.read(&mut watch, |all| all.windows(8).any(|w| w == b"state 0;"));
    assert!(!all.is_empty());
    let mut crowd = std::collections::VecDeque::new();
    for i in 0..10_000 {
        let mut socket = node.tcp(KUBECTL);
        if i % 3 == 0 {
            let _ = socket.write_all(&[0x16, 3, 1]);
        }
        crowd.push_back(socket);
        node.turn(Duration::ZERO);
        assert!(node.connections() <= MAX_SECURE_CONNECTIONS);
        // Half of a test's limit for open files, because both ends count.
        if crowd.len() > 200 {
            crowd.pop_front();
        }
    }
    drop(crowd);
    node.settle();
    assert_eq!(node.connections(), 1);
    node.pages.secure.state.set(1);
    node.server.wake(|_| true);
    let (all, _) = node.read(&mut watch, |all| all.windows(8).any(|w| w == b"state 1;"));
    assert!(!all.is_empty(), "the watch continues");
    drop(watch);
    node.settle();
    assert_eq!((node.connections(), node.server.slots.len()), (0, 0));
}

#[test]
fn the_end_of_an_answer_is_announced_and_a_client_may_leave_without() {
    let (mut node, ca) = Node::secure();
    let config = ca.client(Some(ca.identity("ann")));
    // An answer that ends with the connection is complete only with a close_notify: rustls reports a missing one as
    // an error.
    let mut client = node.tls(&config);
    client.write_all(b"GET /long HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
    let (all, error) = node.rest(&mut client);
    assert!(error.is_none() && all.ends_with(b"end\n"), "{error:?}");
    // A client that closes its socket without a close_notify.
    for request in [&b""[..], b"GET /wat", b"GET /watch HTTP/1.1\r\nHost: localhost\r\n\r\n"] {
        let mut client = node.tls(&config);
        client.write_all(request).unwrap();
        node.settle();
        assert_eq!(node.connections(), 1);
        client.sock.shutdown(Shutdown::Both).unwrap();
        node.settle();
        assert_eq!(node.connections(), 0, "{request:?}");
    }
}

#[test]
fn a_client_of_the_nodes_server_needs_no_certificate_but_none_of_another_ca() {
    let (mut node, ca, next) = (Node::new(), Ca::new(), Ca::new());
    let (certificate, key) = ca.identity("server");
    let clients = vec![next.certificate.clone(), ca.certificate.clone()];
    node.pages.secure.acceptor = Some(Acceptor::with_optional_clients(vec![certificate], key, clients).unwrap());
    node.listen(NODE);
    for (identity, expected) in
        [(None, "nothing"), (Some(ca.identity("ann")), "certificate"), (Some(next.identity("bob")), "certificate")]
    {
        let mut client = node.tls_of(NODE, &ca.client(identity));
        let answer = node.ask(&mut client, "GET /any HTTP/1.0\r\nHost: localhost\r\n\r\n");
        assert!(
            answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with(&format!("\r\n\r\n{expected}")),
            "{answer}"
        );
    }
    let config = ca.client(Some(Ca::new().identity("ann")));
    let socket = node.tcp(NODE);
    if let Ok(mut client) = node.handshake(&config, socket) {
        let _ = client.write_all(b"GET /any HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(node.rest(&mut client).0, b"");
    }
    // Errors are text.
    for (request, status) in [("PUT /any", "405"), ("POST /any HTTP/1.1\r\nContent-Length: 3", "413"), ("GET", "400")] {
        let request = if request.contains("HTTP") { request.to_owned() } else { format!("{request} HTTP/1.1") };
        let mut client = node.tls_of(NODE, &ca.client(None));
        client.write_all(format!("{request}\r\nHost: localhost\r\n\r\n").as_bytes()).unwrap();
        let answer = String::from_utf8(node.rest(&mut client).0).unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")) && answer.contains("text/plain"), "{answer}");
    }
    node.settle();
    let crowd: Vec<TcpStream> = (0..MAX_NODE_CONNECTIONS + 40)
        .map(|_| {
            let socket = node.tcp(NODE);
            node.turn(Duration::ZERO);
            assert!(node.connections() <= MAX_NODE_CONNECTIONS);
            socket
        })
        .collect();
    // The listener stays usable.
    let mut client = node.tls_of(NODE, &ca.client(None));
    assert!(node.ask(&mut client, "GET /any HTTP/1.0\r\nHost: localhost\r\n\r\n").ends_with("nothing"));
    drop(crowd);
}

/// A socket that keeps the bytes that were read from it, to find the lengths of the TLS records.
struct Recorded {
    socket: TcpStream,
    received: Vec<u8>,
}

impl Recorded {
    /// Returns the lengths of the complete records, without their headers.
    fn records(&self) -> Vec<usize> {
        let (mut rest, mut lengths) = (&self.received[..], Vec::new());
        while let [_, _, _, high, low, data @ ..] = rest {
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            lengths.push(length);
            rest = data.get(length..).unwrap_or_default();
        }
        lengths
    }
}

impl Read for Recorded {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let n = self.socket.read(buffer)?;
        self.received.extend_from_slice(&buffer[..n]);
        Ok(n)
    }
}

impl Write for Recorded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.socket.flush()
    }
}

#[test]
fn the_end_of_a_log_is_in_a_tls_record_of_its_own() {
    const LAST_CHUNK: &[u8] = b"0\r\n\r\n";
    let (mut node, ca) = Node::secure();
    // A complete body, and a body that waits for changes before it ends.
    for path in ["/long", "/once"] {
        let client = node.tls(&ca.client(Some(ca.identity("ann"))));
        let (conn, socket) = (client.conn, client.sock);
        let mut client = StreamOwned::new(conn, Recorded { socket, received: Vec::new() });
        client.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).unwrap();
        node.settle();
        node.server.wake(|_| true);
        let (all, _) = node.read(&mut client, |all| all.ends_with(LAST_CHUNK));
        assert!(all.ends_with(LAST_CHUNK) && all.len() > 100, "{path}");
        // TLS 1.3 adds the type and a tag of 16 bytes.
        assert_eq!(client.sock.records().last(), Some(&(LAST_CHUNK.len() + 17)), "{path}");
    }
}
