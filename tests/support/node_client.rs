//! A client of the node's server, with or without a certificate or a token.

use super::agent::Agent;
use super::http::{self, Response};
use super::websocket::WebSocket;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub struct NodeClient {
    port: u16,
    name: ServerName<'static>,
    config: Arc<ClientConfig>,
    /// Header fields, each with its line ending.
    fields: String,
}

impl NodeClient {
    /// Returns a client that verifies the server with the CA below the agent's root directory. `identity` is the
    /// client certificate and its key.
    pub fn new(agent: &Agent, identity: Option<(&Path, &Path)>) -> NodeClient {
        let ca = CertificateDer::from_pem_file(agent.root().join("server/ca.crt")).expect("ca.crt");
        NodeClient::verifying(agent, ca, "localhost", identity)
    }

    /// Returns a client without a credential. It verifies the server as `name`, with another CA in PEM.
    pub fn with_ca(agent: &Agent, ca: &str, name: &str) -> NodeClient {
        NodeClient::verifying(agent, CertificateDer::from_pem_slice(ca.as_bytes()).expect("a CA"), name, None)
    }

    fn verifying(
        agent: &Agent,
        ca: CertificateDer<'static>,
        name: &str,
        identity: Option<(&Path, &Path)>,
    ) -> NodeClient {
        let mut roots = RootCertStore::empty();
        roots.add(ca).expect("a CA");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.expect("the versions of TLS").with_root_certificates(roots);
        let config = match identity {
            Some((certificate, key)) => {
                let certificate = CertificateDer::from_pem_file(certificate).expect("a certificate");
                let key = PrivateKeyDer::from_pem_file(key).expect("a key");
                builder.with_client_auth_cert(vec![certificate], key).expect("a client certificate")
            }
            None => builder.with_no_client_auth(),
        };
        let name = ServerName::try_from(name.to_owned()).expect("a name");
        NodeClient { port: agent.node_port(), name, config: Arc::new(config), fields: String::new() }
    }

    /// Returns a client with this token instead of a certificate.
    pub fn with_token(agent: &Agent, token: &str) -> NodeClient {
        NodeClient { fields: format!("Authorization: Bearer {token}\r\n"), ..NodeClient::new(agent, None) }
    }

    /// Sends a request on a new connection.
    ///
    /// # Errors
    /// The server refuses the connection.
    pub fn send(&self, method: &str, path: &str) -> io::Result<Response> {
        let stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(120)))?;
        let connection = ClientConnection::new(self.config.clone(), self.name.clone()).map_err(io::Error::other)?;
        http::exchange_with(StreamOwned::new(connection, stream), method, path, &self.fields)
    }

    /// Opens a WebSocket on a new connection.
    ///
    /// # Errors
    /// The server refuses the connection or the WebSocket.
    pub fn websocket(
        &self,
        path: &str,
        protocol: &str,
    ) -> io::Result<WebSocket<StreamOwned<ClientConnection, TcpStream>>> {
        let stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(120)))?;
        let connection = ClientConnection::new(self.config.clone(), self.name.clone()).map_err(io::Error::other)?;
        WebSocket::open(StreamOwned::new(connection, stream), path, protocol)
    }

    /// Sends a GET. Returns the status of the response.
    pub fn status(&self, path: &str) -> u16 {
        self.send("GET", path).expect("an answer").status
    }
}
