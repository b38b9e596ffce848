//! A client of the API server as the administrator. Unlike kubectl, it needs no separate process, so its times are
//! exact and frequent requests are cheap.

use super::certificates::Authority;
use crate::support::http::{self, Response};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;
use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

/// Each request uses a new connection.
pub struct Client {
    host: &'static str,
    port: u16,
    config: Arc<ClientConfig>,
}

impl Client {
    /// Returns a client. `file` is the name of a client certificate that the authority has issued.
    pub(super) fn new(authority: &Authority, file: &str, host: &'static str, port: u16) -> Client {
        let certificate = |file: &str| CertificateDer::from_pem_file(authority.path(file)).expect("a certificate");
        let mut roots = RootCertStore::empty();
        roots.add(certificate("ca.crt")).expect("a CA");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.expect("the versions of TLS").with_root_certificates(roots);
        let key = PrivateKeyDer::from_pem_file(authority.path(&format!("{file}.key"))).expect("a key");
        let config = builder.with_client_auth_cert(vec![certificate(&format!("{file}.crt"))], key);
        Client { host, port, config: Arc::new(config.expect("a client certificate")) }
    }

    /// Sends a GET.
    ///
    /// # Errors
    /// The server is not listening, or it ends before it responds.
    pub fn get(&self, path: &str) -> io::Result<Response> {
        http::exchange(self.connect()?, "GET", path)
    }

    /// Sends a POST with this object.
    ///
    /// # Errors
    /// The server is not listening, or it ends before it responds.
    pub fn post(&self, path: &str, object: &Value) -> io::Result<Response> {
        let body = object.to_string();
        let fields = format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
        http::exchange_body(self.connect()?, "POST", path, &fields, &body)
    }

    fn connect(&self) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
        let stream = TcpStream::connect((self.host, self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(120)))?;
        let name = ServerName::try_from(self.host).map_err(io::Error::other)?;
        let connection = ClientConnection::new(self.config.clone(), name).map_err(io::Error::other)?;
        Ok(StreamOwned::new(connection, stream))
    }
}
