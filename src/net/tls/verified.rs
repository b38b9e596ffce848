//! The client side of TLS, for a server whose certificate must be signed by a given CA and valid for a given name.

use super::client::AnyCertificate;
use super::session::Session;
use mio::net::TcpStream;
use rustls::client::Resumption;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{AlertDescription, CertificateError, ClientConfig, ClientConnection, Error, RootCertStore};
use std::fmt;
use std::io;
use std::sync::Arc;

/// Opens connections to one server with one identity. A connection keeps the identity with which it began.
#[derive(Clone)]
pub struct Connector {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

/// A certificate chain, the client's own certificate first, and its key.
pub type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// The part of the configuration that is not usable. The text contains no part of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unusable {
    Authority(String),
    Identity(String),
    Name,
    Tls(String),
}

impl Connector {
    /// Creates a connector. `name` is the DNS name or IP address in the server's certificate; `protocol` is the ALPN
    /// protocol to offer.
    ///
    /// # Errors
    /// The key does not belong to the certificate, the name is not valid, or a certificate cannot be read.
    pub fn new(
        authorities: Vec<CertificateDer<'static>>,
        identity: Option<Identity>,
        name: &str,
        protocol: &[u8],
    ) -> Result<Connector, Unusable> {
        let name = ServerName::try_from(name.to_owned()).map_err(|_| Unusable::Name)?;
        let mut roots = RootCertStore::empty();
        for authority in authorities {
            roots.add(authority).map_err(|e| Unusable::Authority(e.to_string()))?;
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().map_err(|e| Unusable::Tls(e.to_string()))?;
        let builder = builder.with_root_certificates(roots);
        let mut config = match identity {
            Some((chain, key)) => {
                builder.with_client_auth_cert(chain, key).map_err(|e| Unusable::Identity(e.to_string()))?
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![protocol.to_vec()];
        // Connections are long-lived and rare, so there is no need to resume sessions.
        config.resumption = Resumption::disabled();
        Ok(Connector { config: Arc::new(config), name })
    }

    /// Creates a connector that accepts every server. It is only for the first step of a join, whose answer has its
    /// own signature and is read again from the verified server.
    ///
    /// # Errors
    /// The name is not valid.
    pub fn unverified(name: &str, protocol: &[u8]) -> Result<Connector, Unusable> {
        let name = ServerName::try_from(name.to_owned()).map_err(|_| Unusable::Name)?;
        let provider = Arc::new(ring::default_provider());
        let any = Arc::new(AnyCertificate { provider: provider.clone() });
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().map_err(|e| Unusable::Tls(e.to_string()))?;
        let mut config = builder.dangerous().with_custom_certificate_verifier(any).with_no_client_auth();
        config.alpn_protocols = vec![protocol.to_vec()];
        config.resumption = Resumption::disabled();
        Ok(Connector { config: Arc::new(config), name })
    }

    /// Starts a connection on a connected socket. `Session::handshake` continues it.
    ///
    /// # Errors
    /// rustls cannot create the connection.
    pub fn connect(&self, socket: TcpStream) -> io::Result<Session> {
        let connection = ClientConnection::new(self.config.clone(), self.name.clone()).map_err(io::Error::other)?;
        Ok(Session::new(connection.into(), socket))
    }

    /// Returns the name that the server's certificate must have.
    pub fn name(&self) -> String {
        self.name.to_str().into_owned()
    }
}

/// The reason why a handshake failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandshakeFailure {
    /// The certificate of the server is signed by another CA.
    OtherAuthority,
    /// The certificate of the server has expired, or the clock of this machine is wrong.
    Expired,
    /// The certificate of the server is not valid yet, or the clock of this machine is wrong.
    NotYetValid,
    /// The certificate of the server is for other names. They are listed if they are known.
    OtherName(Vec<String>),
    /// The server does not accept the client's certificate.
    Client(String),
    /// The server does not offer the protocol.
    Protocol,
    Other(String),
}

impl HandshakeFailure {
    /// Returns the reason for an error of a session; None if the socket failed.
    pub fn of(error: &io::Error) -> Option<HandshakeFailure> {
        let error = error.get_ref()?.downcast_ref::<Error>()?;
        Some(match error {
            // A CA with the right name but another key causes a bad signature.
            Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
                HandshakeFailure::OtherAuthority
            }
            Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
                HandshakeFailure::Expired
            }
            Error::InvalidCertificate(CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. }) => {
                HandshakeFailure::NotYetValid
            }
            Error::InvalidCertificate(CertificateError::NotValidForNameContext { presented, .. }) => {
                HandshakeFailure::OtherName(presented.clone())
            }
            Error::InvalidCertificate(CertificateError::NotValidForName) => HandshakeFailure::OtherName(Vec::new()),
            Error::AlertReceived(
                alert @ (AlertDescription::BadCertificate
                | AlertDescription::CertificateExpired
                | AlertDescription::CertificateRequired
                | AlertDescription::CertificateRevoked
                | AlertDescription::CertificateUnknown
                | AlertDescription::UnknownCA
                | AlertDescription::UnsupportedCertificate
                | AlertDescription::AccessDenied),
            ) => HandshakeFailure::Client(format!("{alert:?}")),
            Error::AlertReceived(AlertDescription::NoApplicationProtocol) | Error::NoApplicationProtocol => {
                HandshakeFailure::Protocol
            }
            Error::InvalidMessage(_) => HandshakeFailure::Other(format!("the server does not speak TLS ({error})")),
            other => HandshakeFailure::Other(other.to_string()),
        })
    }
}

impl fmt::Display for HandshakeFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HandshakeFailure::OtherAuthority => f.write_str(
                "the server's certificate is not signed by the configured CA; correct the CA, or the address if this \
                 is the wrong server",
            ),
            HandshakeFailure::Expired => {
                f.write_str("the server's certificate has expired; renew it, or correct the clock of this machine")
            }
            HandshakeFailure::NotYetValid => {
                f.write_str("the server's certificate is not valid yet; correct the clock of this machine")
            }
            HandshakeFailure::OtherName(names) => {
                // Show only some names, because a certificate can have hundreds.
                let shown: Vec<&str> = names.iter().take(8).map(|name| bare(name)).collect();
                let more = if names.len() > shown.len() { ", ..." } else { "" };
                let shown = shown.join(", ");
                write!(f, "the server's certificate is for other names ({shown}{more}); configure one of them")
            }
            HandshakeFailure::Client(alert) => {
                write!(f, "the server refuses the client's certificate ({alert}); renew it")
            }
            HandshakeFailure::Protocol => f.write_str(
                "the server does not offer HTTP/2 (ALPN h2); correct the address, or remove the proxy in between",
            ),
            HandshakeFailure::Other(why) => write!(f, "TLS: {why}"),
        }
    }
}

/// Extracts the name from rustls' description of it: `DnsName("a.example")`.
fn bare(described: &str) -> &str {
    let inner = described.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.unwrap_or(described).trim_matches('"')
}
