//! The client for probes and hooks with `scheme: HTTPS`. Like a kubelet, it accepts every certificate, even one that
//! has expired, is for another name, or is not signed by a CA. The connection proves nothing about the server.

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme, StreamOwned};
use std::io::{self, Read, Write};
use std::sync::{Arc, OnceLock};

/// A TLS connection of a client over the socket `S`.
pub type Client<S> = StreamOwned<ClientConnection, Socket<S>>;

/// The length of a TLS record's header, in bytes.
const HEADER: usize = 5;

/// A socket that passes on the first header of a TLS record only as a whole, and remembers it. Otherwise the header may
/// be incomplete when rustls fails, because rustls can fail at the first byte.
pub struct Socket<S> {
    pub stream: S,
    header: [u8; HEADER],
    received: usize,
    passed_on: usize,
}

impl<S> Socket<S> {
    fn new(stream: S) -> Socket<S> {
        Socket { stream, header: [0; HEADER], received: 0, passed_on: 0 }
    }

    /// Reports whether the server answered in HTTP instead of TLS. Go's HTTP client uses the same test.
    pub fn is_answered_in_http(&self) -> bool {
        self.header == *b"HTTP/"
    }
}

impl<S: Read> Read for Socket<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.received < HEADER {
            match self.stream.read(&mut self.header[self.received..])? {
                0 => return Ok(0),
                n => self.received += n,
            }
        }
        match &self.header[self.passed_on..] {
            [] => self.stream.read(buffer),
            mut rest => {
                let n = rest.read(buffer)?;
                self.passed_on += n;
                Ok(n)
            }
        }
    }
}

impl<S: Write> Write for Socket<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Creates the connection. The handshake takes place in the first reads and writes, which fail with `WouldBlock` like
/// those of the socket.
///
/// # Errors
/// The host is neither an IP address nor a name.
pub fn client<S: Read + Write>(host: &str, stream: S) -> Result<Client<S>, String> {
    let name = ServerName::try_from(host.to_owned()).map_err(|_| format!("{host:?} is not a valid server name"))?;
    let connection = ClientConnection::new(config()?, name).map_err(|e| format!("tls: {e}"))?;
    Ok(StreamOwned::new(connection, Socket::new(stream)))
}

/// Returns the configuration, which the first connection creates. Without a connection, TLS uses no memory.
fn config() -> Result<Arc<ClientConfig>, String> {
    static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    if let Some(config) = CONFIG.get() {
        return Ok(config.clone());
    }
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone());
    let builder = builder.with_safe_default_protocol_versions().map_err(|e| format!("tls: {e}"))?;
    let any = Arc::new(AnyCertificate { provider });
    let mut config = builder.dangerous().with_custom_certificate_verifier(any).with_no_client_auth();
    // Never resume a TLS session: as in a kubelet, each probe makes a new connection.
    config.resumption = Resumption::disabled();
    Ok(CONFIG.get_or_init(|| Arc::new(config)).clone())
}

/// Accepts every certificate.
#[derive(Debug)]
pub(super) struct AnyCertificate {
    pub(super) provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    // The owner of the key is unknown, so the signature proves nothing. Checking it would only refuse old certificates.
    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    /// A socket whose peer sends `input`.
    struct Peer {
        input: Cursor<Vec<u8>>,
        written: Vec<u8>,
    }

    impl Read for Peer {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.input.read(buffer)
        }
    }

    impl Write for Peer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.written.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn garbage_is_an_error_and_the_client_begins_with_a_hello() {
        for input in
            [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], &[0; 64], &[22, 3, 3, 255, 255], b"", &[21, 3, 1, 0, 2, 2, 70]]
        {
            let peer = Peer { input: Cursor::new(input.to_vec()), written: Vec::new() };
            let mut client = client("10.0.0.5", peer).unwrap();
            assert!(client.write(b"GET / HTTP/1.1\r\n\r\n").is_err(), "{input:?}");
            assert_eq!(client.sock.stream.written[0], 22, "a handshake record");
            assert_eq!(client.sock.is_answered_in_http(), input.starts_with(b"HTTP/"), "{input:?}");
        }
    }

    #[test]
    fn names_and_addresses_are_servers() {
        let peer = || Peer { input: Cursor::default(), written: Vec::new() };
        for host in ["10.0.0.5", "fd00::5", "localhost", "a.example"] {
            assert!(client(host, peer()).is_ok(), "{host}");
        }
        assert!(client("not a name", peer()).is_err());
    }
}
