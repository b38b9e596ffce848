//! The server's side of TLS. Each client must present a certificate that the given CA has signed. Without one, it gets
//! nothing beyond the handshake.

use mio::net::TcpStream;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;

/// The maximum number of bytes that rustls keeps for a client that does not read.
const BUFFER_LIMIT: usize = 64 * 1024;
/// The size of one read from the socket. rustls itself would read 4 kB at a time.
const READ: usize = 32 * 1024;

/// Accepts connections with one server certificate and one CA for clients. A connection keeps the certificate with which it began.
#[derive(Clone)]
pub struct Acceptor(Arc<ServerConfig>);

impl Acceptor {
    /// `client_ca` signs the clients' certificates.
    ///
    /// # Errors
    /// The key does not belong to the certificate, or the CA is not valid. The error does not contain the key.
    pub fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        client_ca: CertificateDer<'static>,
    ) -> Result<Acceptor, String> {
        let mut roots = RootCertStore::empty();
        roots.add(client_ca).map_err(|e| format!("the clients' CA: {e}"))?;
        let provider: Arc<CryptoProvider> = Arc::new(ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let verifier = verifier.build().map_err(|e| format!("the clients' CA: {e}"))?;
        let builder = ServerConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().map_err(|e| format!("tls: {e}"))?;
        let builder = builder.with_client_cert_verifier(verifier);
        let mut config = builder.with_single_cert(chain, key).map_err(|e| format!("the server's certificate: {e}"))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // A command of kubectl is a process of its own and never resumes a session. Without them the server keeps nothing.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Acceptor(Arc::new(config)))
    }

    /// Starts a connection. The handshake takes place in the first reads and writes.
    ///
    /// # Errors
    /// rustls cannot create the connection.
    pub fn accept(&self, socket: TcpStream) -> io::Result<Session> {
        let mut connection = ServerConnection::new(self.0.clone()).map_err(io::Error::other)?;
        connection.set_buffer_limit(Some(BUFFER_LIMIT));
        Ok(Session { connection, socket, received: Received::default() })
    }
}

/// A connection of a client. Reads and writes fail with `WouldBlock` like those of its socket.
pub struct Session {
    connection: ServerConnection,
    socket: TcpStream,
    received: Received,
}

/// Bytes that were read from the socket and not yet passed to rustls. Empty, it holds no memory.
#[derive(Default)]
struct Received {
    bytes: Vec<u8>,
    passed: usize,
}

impl Received {
    /// Passes on the next portion, after a read from `socket` if nothing is left. Returns false at the end of the input.
    fn pass(&mut self, connection: &mut ServerConnection, socket: &mut TcpStream) -> io::Result<bool> {
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
                Ok(_) => {}
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
    pub fn socket(&mut self) -> &mut TcpStream {
        &mut self.socket
    }

    /// The client's certificate in DER; None until the handshake is complete.
    pub fn peer_certificate(&self) -> Option<&[u8]> {
        if self.connection.is_handshaking() {
            return None;
        }
        self.connection.peer_certificates()?.first().map(|certificate| &certificate[..])
    }

    /// Announces the end of the output, and shuts down the write side of the socket.
    ///
    /// # Errors
    /// As `shutdown`.
    pub fn finish(&mut self) -> io::Result<()> {
        if !self.connection.is_handshaking() {
            self.connection.send_close_notify();
        }
        // A client that does not read gets no announcement.
        let _ = self.flush();
        self.socket.shutdown(Shutdown::Write)
    }

    /// Reads one portion of TLS records from the socket. Returns false at the end of the input.
    fn receive(&mut self) -> io::Result<bool> {
        if !self.received.pass(&mut self.connection, &mut self.socket)? {
            return Ok(false);
        }
        if let Err(e) = self.connection.process_new_packets() {
            // The alert tells the client the reason. It fits into the socket's buffer, or is not needed.
            let _ = self.flush();
            return Err(io::Error::new(ErrorKind::InvalidData, e));
        }
        // Answers of the handshake, and key updates.
        match self.flush() {
            Err(e) if e.kind() != ErrorKind::WouldBlock => Err(e),
            _ => Ok(true),
        }
    }
}

impl Read for Session {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.connection.reader().read(buffer) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                // The client has closed the connection without an announcement. HTTP knows where a request ends.
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
    }
}

impl Write for Session {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.connection.is_handshaking() {
            return Err(ErrorKind::WouldBlock.into());
        }
        match self.connection.writer().write(bytes)? {
            0 if !bytes.is_empty() => {
                // rustls keeps no more than its limit.
                self.flush()?;
                self.connection.writer().write(bytes)
            }
            n => Ok(n),
        }
    }

    /// Writes the records that rustls keeps.
    fn flush(&mut self) -> io::Result<()> {
        while self.connection.wants_write() {
            if self.connection.write_tls(&mut self.socket)? == 0 {
                return Err(ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }
}
