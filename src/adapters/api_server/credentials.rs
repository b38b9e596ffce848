//! The server of a cluster and the credentials of this node: the content of a kubeconfig, with the files that it names.

use crate::net::https::{Host, Peer};
use crate::net::tls::verified::Connector;
use http::{HeaderValue, Uri};
use rustls::pki_types::CertificateDer;
use std::fmt;
use std::net::IpAddr;

/// The server and the credentials. They do not follow later changes of the files: read the files again and pass the
/// new values to `ApiServer::replace_credentials`.
#[derive(Clone)]
pub struct Credentials {
    pub(super) peer: Peer,
    /// The path in the server's URL, to which the path of each request is appended. Does not end with `/`.
    pub(super) prefix: String,
    /// The value of `Authorization`.
    pub(super) token: Option<HeaderValue>,
    pub(super) certificate: Option<Vec<u8>>,
    pub(super) authorities: Vec<CertificateDer<'static>>,
}

/// Omits the token and the key.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "credentials for {}{}", self.peer, self.prefix)
    }
}

impl Credentials {
    /// Returns the values for a server at `HOST:PORT` that is not verified, without credentials. They are only for
    /// the first step of a join.
    ///
    /// # Errors
    /// The address does not have this form.
    pub fn unverified(address: &str) -> Result<Credentials, String> {
        let server = ServerUrl::parse(&format!("https://{address}"))
            .ok()
            .filter(|server| server.prefix.is_empty())
            .ok_or_else(|| format!("{address:?} is not a valid server address; use the form HOST:PORT"))?;
        let tls = Connector::unverified(&server.name(), b"h2").map_err(|_| format!("{address:?} has no valid host"))?;
        let peer = Peer { host: server.host, port: server.port, tls };
        Ok(Credentials { peer, prefix: server.prefix, token: None, certificate: None, authorities: Vec::new() })
    }

    /// Returns the host and the port of the server.
    pub fn authority(&self) -> String {
        self.peer.authority()
    }

    /// Returns the URL of the server, always with its port.
    pub fn server(&self) -> String {
        format!("{}{}", self.peer, self.prefix)
    }

    /// Returns the certificates of the server's CA.
    pub fn authorities(&self) -> &[CertificateDer<'static>] {
        &self.authorities
    }

    /// Returns the client's certificate in DER, for its names and its validity.
    pub fn client_certificate(&self) -> Option<&[u8]> {
        self.certificate.as_deref()
    }
}

/// The parts of a server URL.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ServerUrl {
    pub(super) host: Host,
    pub(super) port: u16,
    pub(super) prefix: String,
}

impl ServerUrl {
    /// Parses the URL of a server.
    ///
    /// # Errors
    /// The URL is not valid. The text names the fault.
    pub(super) fn parse(url: &str) -> Result<ServerUrl, String> {
        const FORM: &str = "use the form https://HOST:PORT";
        if url.contains('@') {
            // The URL is omitted, because it can contain a password.
            return Err(format!("the URL contains a user name; {FORM}"));
        }
        let uri: Uri = url.parse().map_err(|_| format!("{url:?} is not a URL; {FORM}"))?;
        if uri.scheme_str() != Some("https") {
            return Err(format!(
                "{url:?} does not begin with https://, and credentials are sent only over TLS; {FORM}"
            ));
        }
        let authority = uri.authority().filter(|_| uri.query().is_none());
        // Compare the whole authority: otherwise, text after the colon that is not a port would be ignored.
        let (host, port) = match authority.map(|a| (a.host(), a.port(), a.as_str())) {
            Some((host, None, all)) if all == host => (host, 443),
            Some((host, Some(port), _)) if port.as_u16() > 0 => (host, port.as_u16()),
            _ => return Err(format!("{url:?} has no valid host and port; {FORM}")),
        };
        let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        let host = match bare.parse::<IpAddr>() {
            Ok(ip) => Host::Address(ip),
            Err(_) if bare.len() == host.len() && !host.is_empty() => Host::Name(host.to_ascii_lowercase()),
            Err(_) => return Err(format!("{url:?} has no valid host and port; {FORM}")),
        };
        Ok(ServerUrl { host, port, prefix: uri.path().trim_end_matches('/').to_owned() })
    }

    /// Returns the host without the brackets of an IPv6 address.
    pub(super) fn name(&self) -> String {
        match &self.host {
            Host::Address(ip) => ip.to_string(),
            Host::Name(name) => name.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_a_host_a_port_and_a_prefix() {
        for (url, host, port, prefix) in [
            ("https://10.0.0.1:6443", "10.0.0.1", 6443, ""),
            ("https://API.example", "api.example", 443, ""),
            ("https://[fd00::1]:6443/", "fd00::1", 6443, ""),
            ("https://[fd00::1]", "fd00::1", 443, ""),
            ("https://api.example:8443/k8s/c-1/", "api.example", 8443, "/k8s/c-1"),
        ] {
            let server = ServerUrl::parse(url).unwrap();
            assert_eq!((server.name().as_str(), server.port, server.prefix.as_str()), (host, port, prefix), "{url}");
        }
    }

    #[test]
    fn other_urls_are_errors() {
        for url in [
            "",
            "10.0.0.1:6443",
            "http://10.0.0.1",
            "https://",
            "https://:6443",
            "https://a:0",
            "https://a:b",
            "https://a:99999",
            "https://user:password@a",
            "https://a?b=c",
            "https://[fd00::g]:1",
            "https://a b",
        ] {
            let error = ServerUrl::parse(url).unwrap_err();
            assert!(error.contains("use the form https://HOST:PORT"), "{url}: {error}");
        }
    }
}
