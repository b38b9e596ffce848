//! One connection of a handler. For TCP, it only has to open. Otherwise it carries one request (GET, or the health
//! check of gRPC) and its response. Follows redirects on the same host.

use super::grpc::HealthCheck;
use super::outcome::{ExchangeOutcome, words};
use crate::engine::effect::{Destination, Target};
use crate::net::addresses::addresses;
use crate::net::budget::Budgeted;
use crate::net::http1_client::{Get, Malformed, Response, ResponseReader};
use crate::net::stream::connected;
use crate::net::tls::client as tls;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// The part of a response's body that a kubelet reads, in bytes.
const MAX_BODY: usize = 10 << 10;
/// The same as in Go's HTTP client.
const MAX_REDIRECTS: u32 = 10;

/// Go's text for a server without TLS.
const NOT_TLS: &str = "http: server gave HTTP response to HTTPS client";

pub(super) enum Exchange {
    Tcp { stream: TcpStream, address: SocketAddr },
    Http(Box<Http>),
    Grpc(Box<HealthCheck>),
}

/// The connection of a request.
enum ExchangeConnection {
    Plain(Budgeted<TcpStream>),
    Tls(Box<tls::Client<Budgeted<TcpStream>>>),
}

impl ExchangeConnection {
    fn budgeted(&mut self) -> &mut Budgeted<TcpStream> {
        match self {
            ExchangeConnection::Plain(stream) => stream,
            ExchangeConnection::Tls(tls) => &mut tls.sock.stream,
        }
    }

    fn socket(&mut self) -> &mut TcpStream {
        &mut self.budgeted().stream
    }

    /// Returns the outcome for a socket that blocks or whose budget is used up.
    fn pending(&mut self) -> ExchangeOutcome {
        ExchangeOutcome::Pending { again: self.budgeted().stopped() }
    }

    /// Reports whether the server of an https URL answered in HTTP.
    fn is_answered_in_http(&self) -> bool {
        matches!(self, ExchangeConnection::Tls(tls) if tls.sock.is_answered_in_http())
    }
}

impl Read for ExchangeConnection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            ExchangeConnection::Plain(stream) => stream.read(buffer),
            ExchangeConnection::Tls(tls) => match tls.read(buffer) {
                // The server closed the connection without a close_notify. The length of the response shows whether
                // it is complete.
                Err(e) if e.kind() == ErrorKind::UnexpectedEof => Ok(0),
                other => other,
            },
        }
    }
}

impl Write for ExchangeConnection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            ExchangeConnection::Plain(stream) => stream.write(bytes),
            ExchangeConnection::Tls(tls) => tls.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            ExchangeConnection::Plain(stream) => stream.flush(),
            ExchangeConnection::Tls(tls) => tls.flush(),
        }
    }
}

/// A GET request.
pub(super) struct Http {
    connection: ExchangeConnection,
    url: Url,
    /// The address of the host.
    ip: IpAddr,
    user_agent: &'static str,
    headers: Vec<(String, String)>,
    /// The part of the request that is not written yet.
    request: Vec<u8>,
    reader: ResponseReader,
    redirects: u32,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Url {
    scheme: Scheme,
    /// As in the manifest or the redirect: an IP address (without brackets) or a name.
    host: String,
    port: u16,
    path: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Scheme {
    Http,
    Https,
}

impl Scheme {
    const ALL: [Scheme; 2] = [Scheme::Http, Scheme::Https];

    fn prefix(self) -> &'static str {
        match self {
            Scheme::Http => "http://",
            Scheme::Https => "https://",
        }
    }

    fn port(self) -> u16 {
        match self {
            Scheme::Http => 80,
            Scheme::Https => 443,
        }
    }
}

impl Url {
    /// Returns `host:port`, with brackets around an IPv6 address.
    fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// Returns the target of a redirect.
    ///
    /// # Errors
    /// The text of `location`, if it is not an http or https URL.
    fn redirected(&self, location: &str) -> Result<Url, String> {
        let absolute = |scheme: Scheme| Some((scheme, location.strip_prefix(scheme.prefix())?));
        if let Some((scheme, rest)) = Scheme::ALL.into_iter().find_map(absolute) {
            let (authority, path) = rest.find(['/', '?']).map_or((rest, ""), |at| rest.split_at(at));
            let (host, port) =
                match authority.rsplit_once(':').filter(|(host, _)| !host.contains(':') || host.ends_with(']')) {
                    Some((host, port)) => (host, port.parse().map_err(|_| location.to_owned())?),
                    None => (authority, scheme.port()),
                };
            let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
            let slash = if path.starts_with('/') { "" } else { "/" };
            return Ok(Url { scheme, host, port, path: format!("{slash}{path}") });
        }
        if location.contains("://") || location.starts_with("//") {
            return Err(location.to_owned());
        }
        let base = self.path.split('?').next().unwrap_or_default();
        let path = match location {
            _ if location.starts_with('/') => location.to_owned(),
            _ if location.starts_with('?') => format!("{base}{location}"),
            _ => format!("{}/{location}", base.rsplit_once('/').map_or("", |(directory, _)| directory)),
        };
        Ok(Url { path, ..self.clone() })
    }
}

impl Exchange {
    /// Starts to connect. A server on the same machine has usually accepted the connection when the call returns.
    ///
    /// # Errors
    /// The outcome, if the exchange has already ended: the connection is open and nothing else is needed, or it
    /// failed, or the host has no address.
    pub(super) fn start(
        target: Target,
        user_agent: &'static str,
        registry: &Registry,
        token: Token,
    ) -> Result<Exchange, ExchangeOutcome> {
        match target {
            Target::Tcp(to) => {
                let address = resolve(&to).map_err(ExchangeOutcome::Failed)?;
                let failed = |e: io::Error| ExchangeOutcome::Failed(dial_error(address, &e));
                let mut stream = TcpStream::connect(address).map_err(failed)?;
                if connected(&stream).map_err(failed)? {
                    return Err(ExchangeOutcome::Connected);
                }
                registry.register(&mut stream, token, Interest::WRITABLE).map_err(failed)?;
                Ok(Exchange::Tcp { stream, address })
            }
            Target::Http(http) => {
                let address = resolve(&http.to);
                let own = || address.as_ref().map(|address| address.ip().to_string()).unwrap_or_default();
                let host = http.to.host.unwrap_or_else(own);
                let scheme = if http.tls { Scheme::Https } else { Scheme::Http };
                let url = Url { scheme, host, port: http.to.port, path: http.path };
                let address = address.map_err(|why| ExchangeOutcome::Failed(get_error(&url, &why)))?;
                Http::start(url, address, user_agent, http.headers, 0, registry, token)
                    .map(|h| Exchange::Http(Box::new(h)))
                    .map_err(ExchangeOutcome::Failed)
            }
            Target::Grpc(grpc) => {
                let address = resolve(&grpc.to).map_err(ExchangeOutcome::Failed)?;
                HealthCheck::start(address, &grpc.service, user_agent, registry, token)
                    .map(|check| Exchange::Grpc(Box::new(check)))
                    .map_err(ExchangeOutcome::Failed)
            }
            Target::Sleep(_) => Err(ExchangeOutcome::Failed("a sleep needs no connection".to_owned())),
        }
    }

    /// Reads and writes what is possible.
    pub(super) fn advance(&mut self, registry: &Registry, token: Token) -> ExchangeOutcome {
        match self {
            Exchange::Tcp { stream, address } => match connected(stream) {
                Ok(true) => ExchangeOutcome::Connected,
                Ok(false) => ExchangeOutcome::Pending { again: false },
                Err(e) => ExchangeOutcome::Failed(dial_error(*address, &e)),
            },
            Exchange::Http(http) => http.advance(registry, token),
            Exchange::Grpc(check) => check.advance(registry, token),
        }
    }

    /// Sends an https request again, without TLS and without its credentials. Returns the server's `host:port`.
    ///
    /// # Errors
    /// The connection failed at once, or the exchange is not a request.
    pub(super) fn again_without_tls(&mut self, registry: &Registry, token: Token) -> Result<String, String> {
        let Exchange::Http(http) = self else { return Err(NOT_TLS.to_owned()) };
        let url = Url { scheme: Scheme::Http, ..http.url.clone() };
        let server = url.authority();
        let address = SocketAddr::new(http.ip, url.port);
        let mut headers = std::mem::take(&mut http.headers);
        headers.retain(|(name, _)| !name.eq_ignore_ascii_case("authorization"));
        **http = Http::start(url, address, http.user_agent, headers, http.redirects, registry, token)?;
        Ok(server)
    }

    /// Reports whether the head of a response has arrived.
    pub(super) fn has_response(&self) -> bool {
        matches!(self, Exchange::Http(http) if http.reader.has_head())
    }

    /// Returns the failure of a handler that has not ended within `timeout`.
    pub(super) fn timed_out(&self, timeout: Duration) -> String {
        match self {
            Exchange::Grpc(check) => check.timed_out(timeout),
            Exchange::Tcp { address, .. } => format!("dial tcp {address}: i/o timeout"),
            Exchange::Http(http) if http.reader.has_head() => {
                "context deadline exceeded (Client.Timeout or context cancellation while reading body)".to_owned()
            }
            Exchange::Http(http) => {
                http.failure("context deadline exceeded (Client.Timeout exceeded while awaiting headers)")
            }
        }
    }
}

impl Http {
    fn start(
        url: Url,
        address: SocketAddr,
        user_agent: &'static str,
        headers: Vec<(String, String)>,
        redirects: u32,
        registry: &Registry,
        token: Token,
    ) -> Result<Http, String> {
        let failure = |url: &Url, e: &io::Error| get_error(url, &dial_error(address, e));
        let stream = TcpStream::connect(address).map_err(|e| failure(&url, &e))?;
        let stream = Budgeted::new(stream);
        let connection = match url.scheme {
            Scheme::Http => ExchangeConnection::Plain(stream),
            Scheme::Https => {
                let client = tls::client(&url.host, stream).map_err(|why| get_error(&url, &why))?;
                ExchangeConnection::Tls(Box::new(client))
            }
        };
        let authority = url.authority();
        let get = Get { host: &authority, target: &url.path, user_agent, headers: &headers };
        let request = get.bytes();
        let (ip, reader) = (address.ip(), ResponseReader::new(MAX_BODY));
        let mut http = Http { connection, url, ip, user_agent, headers, request, reader, redirects };
        // A server on the same machine accepts the request at once, which saves a turn of the loop.
        let is_plain = http.url.scheme == Scheme::Http;
        let written = is_plain && http.write().map_err(|e| http.write_failure(&e))?;
        let interest = if written { Interest::READABLE } else { Interest::READABLE | Interest::WRITABLE };
        // The poll also reports a socket that is already ready.
        registry.register(http.connection.socket(), token, interest).map_err(|e| failure(&http.url, &e))?;
        Ok(http)
    }

    /// Writes the rest of the request. Returns false if the socket accepts no more for now.
    fn write(&mut self) -> io::Result<bool> {
        while !self.request.is_empty() {
            match self.connection.write(&self.request) {
                Ok(n) => drop(self.request.drain(..n)),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => return Ok(false),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }

    fn write_failure(&mut self, e: &io::Error) -> String {
        let why = match self.connection.socket().peer_addr() {
            Ok(_) if e.kind() == ErrorKind::InvalidData => format!("tls: {}", words(e)),
            Ok(_) if e.kind() == ErrorKind::UnexpectedEof => "EOF".to_owned(),
            Ok(_) => format!("write: {}", words(e)),
            Err(_) => format!("dial tcp {}: connect: {}", self.url.authority(), words(e)),
        };
        self.failure(&why)
    }

    fn failure(&self, why: &str) -> String {
        get_error(&self.url, why)
    }

    fn advance(&mut self, registry: &Registry, token: Token) -> ExchangeOutcome {
        self.connection.budgeted().begin();
        match self.write() {
            Ok(true) => {}
            Ok(false) => return self.connection.pending(),
            Err(_) if self.connection.is_answered_in_http() => return ExchangeOutcome::NotTls(self.failure(NOT_TLS)),
            Err(e) => return ExchangeOutcome::Failed(self.write_failure(&e)),
        }
        let mut buffer = [0; 4096];
        loop {
            let complete = match self.connection.read(&mut buffer) {
                Ok(0) => self.reader.end().map(Some),
                Ok(n) => self.reader.feed(&buffer[..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return self.connection.pending(),
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(_) if self.connection.is_answered_in_http() => {
                    return ExchangeOutcome::NotTls(self.failure(NOT_TLS));
                }
                Err(e) => return ExchangeOutcome::Failed(self.failure(&format!("read: {}", words(&e)))),
            };
            match complete {
                Ok(None) => {}
                Ok(Some(response)) => return self.responded(response, registry, token),
                Err(Malformed(why)) => return ExchangeOutcome::Failed(self.failure(why)),
            }
        }
    }

    /// Follows a redirect to the same host. Any other response is the result.
    fn responded(&mut self, response: Response, registry: &Registry, token: Token) -> ExchangeOutcome {
        let redirect = matches!(response.status, 301 | 302 | 303 | 307 | 308);
        let Some(location) = response.location.as_deref().filter(|_| redirect) else {
            return ExchangeOutcome::Response(response);
        };
        let url = match self.url.redirected(location) {
            Ok(url) if url.host.eq_ignore_ascii_case(&self.url.host) => url,
            _ => return ExchangeOutcome::Response(response),
        };
        let redirects = self.redirects + 1;
        if redirects >= MAX_REDIRECTS {
            return ExchangeOutcome::Failed(get_error(&url, "stopped after 10 redirects"));
        }
        let address = SocketAddr::new(self.ip, url.port);
        let headers = std::mem::take(&mut self.headers);
        match Http::start(url, address, self.user_agent, headers, redirects, registry, token) {
            Ok(next) => {
                *self = next;
                ExchangeOutcome::Pending { again: false }
            }
            Err(why) => ExchangeOutcome::Failed(why),
        }
    }
}

fn resolve(to: &Destination) -> Result<SocketAddr, String> {
    let own = || addresses().first().and_then(|ip| ip.parse().ok()).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let ip = match to.host.as_deref() {
        None => own(),
        Some("localhost") => IpAddr::V4(Ipv4Addr::LOCALHOST),
        Some(host) => match (host.parse(), to.looked_up.clone()) {
            (Ok(ip), _) | (Err(_), Some(Ok(ip))) => ip,
            (Err(_), Some(Err(why))) => return Err(format!("dial tcp: lookup {host}: {why}")),
            (Err(_), None) => return Err(format!("dial tcp: lookup {host}: the name was not looked up")),
        },
    };
    Ok(SocketAddr::new(ip, to.port))
}

fn get_error(url: &Url, why: &str) -> String {
    format!("Get \"{}{}{}\": {why}", url.scheme.prefix(), url.authority(), url.path)
}

fn dial_error(address: SocketAddr, e: &io::Error) -> String {
    format!("dial tcp {address}: connect: {}", words(e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_is_relative_to_the_request() {
        let url = Url { scheme: Scheme::Http, host: "10.0.0.5".into(), port: 8080, path: "/a/b?x=1".into() };
        let to = |location: &str| {
            url.redirected(location).map(|u| format!("{}{}{}", u.scheme.prefix(), u.authority(), u.path))
        };
        for (location, expected) in [
            ("/c?y", "http://10.0.0.5:8080/c?y"),
            ("c", "http://10.0.0.5:8080/a/c"),
            ("?y=2", "http://10.0.0.5:8080/a/b?y=2"),
            ("http://10.0.0.5/c", "http://10.0.0.5:80/c"),
            ("http://other.example:81", "http://other.example:81/"),
            ("http://[fd00::5]:81/c", "http://[fd00::5]:81/c"),
            ("http://[fd00::5]/c", "http://[fd00::5]:80/c"),
            ("https://10.0.0.5/c", "https://10.0.0.5:443/c"),
        ] {
            assert_eq!(to(location).as_deref(), Ok(expected), "{location}");
        }
        for location in ["ftp://10.0.0.5/c", "//other/c", "http://10.0.0.5:x/"] {
            assert!(to(location).is_err(), "{location}");
        }
    }

    #[test]
    fn errors_are_worded_as_in_go() {
        let refused = io::Error::from_raw_os_error(111);
        let address: SocketAddr = "[fd00::5]:80".parse().unwrap();
        assert_eq!(dial_error(address, &refused), "dial tcp [fd00::5]:80: connect: connection refused");
    }
}
