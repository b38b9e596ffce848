//! The server's side of TLS. A client presents a certificate that one of the given CAs has signed. A server can
//! require a certificate: then a client without one gets nothing beyond the handshake.

use super::session::Session;
use mio::net::TcpStream;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientCertVerifierBuilder, NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use std::io;
use std::sync::Arc;

/// Accepts connections with one server certificate and one CA for clients. A connection keeps the certificate with
/// which it began.
#[derive(Clone)]
pub struct Acceptor(Arc<ServerConfig>);

impl Acceptor {
    /// Creates an acceptor. Each client must have a certificate that `client_ca` has signed.
    ///
    /// # Errors
    /// The key does not belong to the certificate, or the CA is not valid. The error does not contain the key.
    pub fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        client_ca: CertificateDer<'static>,
    ) -> Result<Acceptor, String> {
        Acceptor::with(chain, key, [client_ca], |verifier| verifier)
    }

    /// Creates an acceptor that accepts clients without a certificate, too. A certificate that none of the CAs has
    /// signed is refused.
    ///
    /// # Errors
    /// As for `new`.
    pub fn with_optional_clients(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        client_cas: Vec<CertificateDer<'static>>,
    ) -> Result<Acceptor, String> {
        Acceptor::with(chain, key, client_cas, ClientCertVerifierBuilder::allow_unauthenticated)
    }

    fn with(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        client_cas: impl IntoIterator<Item = CertificateDer<'static>>,
        set: impl FnOnce(ClientCertVerifierBuilder) -> ClientCertVerifierBuilder,
    ) -> Result<Acceptor, String> {
        let mut roots = RootCertStore::empty();
        for ca in client_cas {
            roots.add(ca).map_err(|e| format!("the clients' CA: {e}"))?;
        }
        let provider: Arc<CryptoProvider> = Arc::new(ring::default_provider());
        let verifier = set(WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()));
        let verifier = verifier.build().map_err(|e| format!("the clients' CA: {e}"))?;
        let builder = ServerConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().map_err(|e| format!("tls: {e}"))?;
        let builder = builder.with_client_cert_verifier(verifier);
        let mut config = builder.with_single_cert(chain, key).map_err(|e| format!("the server's certificate: {e}"))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // Each kubectl command is a separate process and never resumes a TLS session. Without sessions and tickets, the
        // server keeps no state for them.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Acceptor(Arc::new(config)))
    }

    /// Starts a connection. The handshake takes place in the first reads and writes.
    ///
    /// # Errors
    /// rustls cannot create the connection.
    pub fn accept(&self, socket: TcpStream) -> io::Result<Session> {
        let connection = ServerConnection::new(self.0.clone()).map_err(io::Error::other)?;
        Ok(Session::new(connection.into(), socket))
    }
}
