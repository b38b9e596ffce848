//! A client of the API for kubectl: HTTPS with a client certificate that `wherry kubeconfig` has issued.

use super::agent::Agent;
use super::http::{self, Response};
use base64::Engine as _;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

pub struct ApiClient {
    port: u16,
    config: Arc<ClientConfig>,
}

/// Returns the port of the API of an agent that `enable` has configured.
fn port(agent: &Agent) -> u16 {
    agent.healthz_port + 10_000
}

/// Enables the API. Takes effect at the next start of the agent.
pub fn enable(agent: &Agent) {
    let fields = format!("kubectlPort: {}\n", port(agent));
    let text = format!("apiVersion: wherry.io/v1alpha1\nkind: WherryConfiguration\n{fields}");
    std::fs::write(agent.dir.join("config.d/20-kubectl.yaml"), text).expect("a drop-in");
}

impl ApiClient {
    /// Returns a client with a new certificate. `role` is `--view`, or empty for the role edit.
    pub fn new(agent: &Agent, role: &[&str]) -> ApiClient {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wherry"));
        command.args(["kubeconfig", "--for", "test", "--hostname", "node"]).args(role);
        for (flag, path) in [
            ("--config", agent.dir.join("config.yaml")),
            ("--config-dir", agent.dir.join("config.d")),
            ("--root-dir", agent.root()),
            ("--socket", agent.socket.clone()),
        ] {
            command.arg(flag).arg(path);
        }
        let output = command.output().expect("wherry");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).expect("text");
        let decoded = |field: &str| {
            let value = text.lines().find_map(|l| l.trim().strip_prefix(field)?.strip_prefix(": ")).expect(field);
            base64::engine::general_purpose::STANDARD.decode(value).expect("base64")
        };
        let certificate = CertificateDer::from_pem_slice(&decoded("client-certificate-data")).expect("a certificate");
        let key = PrivateKeyDer::from_pem_slice(&decoded("client-key-data")).expect("a key");
        let builder = ClientConfig::builder().with_root_certificates(roots(&decoded("certificate-authority-data")));
        let config = builder.with_client_auth_cert(vec![certificate], key).expect("a client certificate");
        ApiClient { port: port(agent), config: Arc::new(config) }
    }

    /// Returns a client without a certificate.
    pub fn anonymous(agent: &Agent) -> ApiClient {
        let ca = std::fs::read(agent.root().join("kubectl/ca.crt")).expect("ca.crt");
        let config = ClientConfig::builder().with_root_certificates(roots(&ca)).with_no_client_auth();
        ApiClient { port: port(agent), config: Arc::new(config) }
    }

    /// Returns the same client for another port.
    pub fn at(&self, port: u16) -> ApiClient {
        ApiClient { port, config: self.config.clone() }
    }

    pub fn get(&self, path: &str) -> io::Result<Response> {
        self.send("GET", path)
    }

    /// Sends a request without a body on a new connection.
    pub fn send(&self, method: &str, path: &str) -> io::Result<Response> {
        http::exchange(self.dial()?, method, path)
    }

    /// Sends a POST with this body on a new connection. Returns the HTTP status.
    pub fn post(&self, path: &str, media_type: &str, body: &[u8]) -> u16 {
        let length = body.len();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {media_type}\r\nContent-Length: {length}\r\n\r\n"
        );
        let request = [head.as_bytes(), body].concat();
        self.connect().and_then(|mut connection| connection.exchange(&request)).expect("an answer").status
    }

    fn dial(&self) -> io::Result<TlsStream> {
        let stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(120)))?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from("localhost").expect("a name");
        let connection = ClientConnection::new(self.config.clone(), name).map_err(io::Error::other)?;
        Ok(TlsStream(StreamOwned::new(connection, stream)))
    }

    /// Opens a connection for several requests.
    pub fn connect(&self) -> io::Result<ApiConnection> {
        let mut stream = self.dial()?;
        while stream.0.conn.is_handshaking() {
            stream.0.conn.complete_io(&mut stream.0.sock)?;
        }
        Ok(ApiConnection { stream, received: Vec::new() })
    }
}

/// An open connection.
pub struct ApiConnection {
    stream: TlsStream,
    /// The bytes that follow the last response.
    received: Vec<u8>,
}

impl ApiConnection {
    /// Sends a GET. `fields` are further header fields, each with its line ending.
    pub fn get(&mut self, path: &str, fields: &str) -> io::Result<Response> {
        self.exchange(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n").as_bytes())
    }

    /// Sends a request as it is, and reads the response.
    pub fn exchange(&mut self, request: &[u8]) -> io::Result<Response> {
        self.start(request)?;
        self.response()
    }

    /// Sends a request, or a part of one.
    pub fn start(&mut self, request: &[u8]) -> io::Result<()> {
        self.stream.write_all(request).and_then(|()| self.stream.flush())
    }

    /// Reads the next response. Its body must have a Content-Length or be chunked.
    pub fn response(&mut self) -> io::Result<Response> {
        let end = self.read_until(|received| received.windows(4).position(|w| w == b"\r\n\r\n").map(|at| at + 4))?;
        let head = String::from_utf8_lossy(&self.received[..end]).into_owned();
        self.received.drain(..end);
        let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).ok_or(io::ErrorKind::InvalidData)?;
        let fields = head.to_ascii_lowercase();
        let length = fields.lines().find_map(|l| l.strip_prefix("content-length: ")?.trim().parse::<usize>().ok());
        let body = match length {
            Some(length) => {
                self.read_until(|received| (received.len() >= length).then_some(length))?;
                self.received.drain(..length).collect()
            }
            None => {
                let last = b"\r\n0\r\n\r\n";
                let end = self.read_until(|received| received.ends_with(last).then_some(received.len()))?;
                let chunks: Vec<u8> = self.received.drain(..end).collect();
                http::unchunk(&chunks).ok_or(io::ErrorKind::InvalidData)?
            }
        };
        Ok(Response { status, head, body: String::from_utf8_lossy(&body).into_owned() })
    }

    /// Reads until `find` returns a position in the received bytes. Returns this position.
    pub fn read_until(&mut self, find: impl Fn(&[u8]) -> Option<usize>) -> io::Result<usize> {
        let mut buffer = [0; 16 * 1024];
        loop {
            if let Some(at) = find(&self.received) {
                return Ok(at);
            }
            match self.stream.read(&mut buffer)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n => self.received.extend_from_slice(&buffer[..n]),
            }
        }
    }

    /// Returns the bytes that were read but are not part of a response.
    pub fn received(&self) -> &[u8] {
        &self.received
    }

    /// Returns the stream, for a protocol other than HTTP.
    pub fn into_stream(self) -> TlsStream {
        self.stream
    }
}

/// A stream that may end without a closing message of TLS.
pub struct TlsStream(StreamOwned<ClientConnection, TcpStream>);

impl TlsStream {
    pub fn socket(&self) -> &TcpStream {
        &self.0.sock
    }
}

impl Read for TlsStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
            other => other,
        }
    }
}

impl Write for TlsStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn roots(ca: &[u8]) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca).expect("a certificate")).expect("a CA");
    roots
}
