//! A TLS connection over a TCP socket, of a client or of a server. Reads and writes fail with `WouldBlock` like those
//! of the socket. A read fails with `Interrupted` after a lot of input without content, so that a peer cannot keep
//! the reader busy.

use mio::net::TcpStream;
use rustls::Connection;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The maximum number of bytes that rustls buffers for a peer that does not read.
const BUFFER_LIMIT: usize = 64 * 1024;
/// The size of one read from the socket. rustls itself would read 4 kB at a time.
const READ: usize = 32 * 1024;
/// The maximum number of portions of input that one read processes without finding content.
const PORTIONS: usize = 8;

/// The number of bytes that connections have sent and received, including the overhead of TLS.
#[derive(Debug, Default)]
pub struct ByteCount {
    sent: AtomicU64,
    received: AtomicU64,
}

impl ByteCount {
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }
}

pub struct Session {
    connection: Connection,
    socket: TcpStream,
    received: Received,
    byte_count: Arc<ByteCount>,
}

/// Bytes that were read from the socket and not yet passed to rustls. An empty buffer holds no memory.
#[derive(Default)]
struct Received {
    bytes: Vec<u8>,
    passed: usize,
}

impl Received {
    /// Passes the next portion to rustls. Reads from `socket` first if nothing is left. Returns false at the end of
    /// the input.
    fn pass(
        &mut self,
        connection: &mut Connection,
        socket: &mut TcpStream,
        byte_count: &ByteCount,
    ) -> io::Result<bool> {
        if self.passed == self.bytes.len() {
            self.passed = 0;
            self.bytes.resize(READ, 0);
            let read = socket.read(&mut self.bytes);
            self.bytes.truncate(read.as_ref().map_or(0, |n| *n));
            match read {
                Ok(0) => {
                    self.bytes = Vec::new();
                    return connection.read_tls(&mut io::empty()).map(|_| false);
                }
                Ok(n) => drop(byte_count.received.fetch_add(n as u64, Ordering::Relaxed)),
                Err(e) => {
                    self.bytes = Vec::new();
                    return Err(e);
                }
            }
        }
        self.passed += connection.read_tls(&mut &self.bytes[self.passed..])?;
        Ok(true)
    }
}

impl Session {
    /// Creates a session. The handshake takes place in the first reads and writes, or in `handshake`.
    pub(super) fn new(mut connection: Connection, socket: TcpStream) -> Session {
        connection.set_buffer_limit(Some(BUFFER_LIMIT));
        Session { connection, socket, received: Received::default(), byte_count: Arc::default() }
    }

    /// Counts the bytes of the connection from now on.
    pub fn count(&mut self, byte_count: Arc<ByteCount>) {
        self.byte_count = byte_count;
    }

    /// Continues the handshake. Returns false if it waits for the peer.
    ///
    /// # Errors
    /// The socket or the handshake fails. If the handshake fails, the error contains a `rustls::Error`.
    pub fn handshake(&mut self) -> io::Result<bool> {
        loop {
            match self.flush() {
                Err(e) if e.kind() != ErrorKind::WouldBlock => return Err(e),
                _ => {}
            }
            if !self.connection.is_handshaking() {
                return Ok(true);
            }
            match self.receive() {
                Ok(true) => {}
                Ok(false) => return Err(ErrorKind::UnexpectedEof.into()),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Returns the protocol that the peers have agreed on (ALPN).
    pub fn protocol(&self) -> Option<&[u8]> {
        self.connection.alpn_protocol()
    }

    pub fn socket(&mut self) -> &mut TcpStream {
        &mut self.socket
    }

    /// Returns the peer's certificate in DER; None until the handshake is complete.
    pub fn peer_certificate(&self) -> Option<&[u8]> {
        if self.connection.is_handshaking() {
            return None;
        }
        self.connection.peer_certificates()?.first().map(|certificate| &certificate[..])
    }

    /// Sends a close_notify, and shuts down the write side of the socket.
    ///
    /// # Errors
    /// The socket cannot be shut down.
    pub fn finish(&mut self) -> io::Result<()> {
        if !self.connection.is_handshaking() {
            self.connection.send_close_notify();
        }
        // A peer that does not read may get no close_notify.
        let _ = self.flush();
        self.socket.shutdown(Shutdown::Write)
    }

    /// Reads one portion of TLS records from the socket. Returns false at the end of the input.
    fn receive(&mut self) -> io::Result<bool> {
        if !self.received.pass(&mut self.connection, &mut self.socket, &self.byte_count)? {
            return Ok(false);
        }
        if let Err(e) = self.connection.process_new_packets() {
            // The alert tells the peer the reason. If it does not fit into the socket's buffer, it is dropped.
            let _ = self.flush();
            return Err(io::Error::new(ErrorKind::InvalidData, e));
        }
        // Write messages of the handshake, and key updates.
        match self.flush() {
            Err(e) if e.kind() != ErrorKind::WouldBlock => Err(e),
            _ => Ok(true),
        }
    }
}

impl Read for Session {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        for _ in 0..PORTIONS {
            match self.connection.reader().read(buffer) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                // The peer has closed the connection without a close_notify. HTTP itself knows where a message ends.
                Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                other => return other,
            }
            if !self.receive()? {
                // The next read reports the end.
                if self.connection.is_handshaking() {
                    return Ok(0);
                }
                self.connection.process_new_packets().map_err(io::Error::other)?;
            }
        }
        Err(ErrorKind::Interrupted.into())
    }
}

impl Write for Session {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.connection.is_handshaking() {
            return Err(ErrorKind::WouldBlock.into());
        }
        match self.connection.writer().write(bytes)? {
            0 if !bytes.is_empty() => {
                // rustls has reached its buffer limit.
                self.flush()?;
                self.connection.writer().write(bytes)
            }
            n => Ok(n),
        }
    }

    /// Writes the records that rustls has buffered.
    fn flush(&mut self) -> io::Result<()> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut self.socket)? {
                0 => return Err(ErrorKind::WriteZero.into()),
                n => drop(self.byte_count.sent.fetch_add(n as u64, Ordering::Relaxed)),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::tls::verified::Connector;
    use rustls::crypto::ring;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use rustls::{ServerConfig, ServerConnection};

    /// Returns a server that sends a flood of session tickets after the handshake. They are not content.
    fn flooding_server() -> ServerConnection {
        let rcgen::CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed(["node".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let mut config = builder.with_single_cert(vec![CertificateDer::from(cert)], key).unwrap();
        // rustls refuses more than 64 kB of them in a row.
        config.send_tls13_tickets = 600;
        ServerConnection::new(Arc::new(config)).unwrap()
    }

    #[test]
    fn one_read_of_a_flood_without_content_ends() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        let mut client = Connector::unverified("node", b"h2").unwrap().connect(socket).unwrap();
        let mut server = flooding_server();
        assert!(!client.handshake().unwrap());
        while server.is_handshaking() {
            while server.wants_write() {
                server.write_tls(&mut stream).unwrap();
            }
            let _ = client.handshake().unwrap();
            server.read_tls(&mut stream).unwrap();
            server.process_new_packets().unwrap();
        }
        stream.set_nonblocking(true).unwrap();
        let mut sent = 0;
        while let Ok(n) = server.write_tls(&mut stream) {
            sent += n;
            if n == 0 {
                break;
            }
        }
        assert!(sent > (PORTIONS + 1) * 4096, "{sent}");
        let mut interrupted = 0;
        loop {
            match client.read(&mut [0; 16]) {
                Err(e) if e.kind() == ErrorKind::Interrupted => interrupted += 1,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(interrupted, 1, "{sent}");
    }
}
