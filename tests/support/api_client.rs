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

/// The port of the API of an agent that `enable` has configured.
fn port(agent: &Agent) -> u16 {
    agent.healthz_port + 10_000
}

/// The API is served from the next start of the agent on.
pub fn enable(agent: &Agent) {
    let fields = format!("kubectlPort: {}\n", port(agent));
    let text = format!("apiVersion: wherry.io/v1alpha1\nkind: WherryConfiguration\n{fields}");
    std::fs::write(agent.dir.join("config.d/20-kubectl.yaml"), text).expect("a drop-in");
}

impl ApiClient {
    /// With a new certificate. `role`: `--view`, or nothing for the role edit.
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

    /// Without a certificate.
    pub fn anonymous(agent: &Agent) -> ApiClient {
        let ca = std::fs::read(agent.root().join("kubectl/ca.crt")).expect("ca.crt");
        let config = ClientConfig::builder().with_root_certificates(roots(&ca)).with_no_client_auth();
        ApiClient { port: port(agent), config: Arc::new(config) }
    }

    pub fn get(&self, path: &str) -> io::Result<Response> {
        self.send("GET", path)
    }

    /// A request without a body.
    pub fn send(&self, method: &str, path: &str) -> io::Result<Response> {
        self.exchange(method, path, None)
    }

    /// POST with this body. Returns the HTTP status.
    pub fn post(&self, path: &str, media_type: &str, body: &[u8]) -> u16 {
        self.exchange("POST", path, Some((media_type, body))).expect("an answer").status
    }

    fn exchange(&self, method: &str, path: &str, body: Option<(&str, &[u8])>) -> io::Result<Response> {
        let stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(120)))?;
        let name = ServerName::try_from("localhost").expect("a name");
        let connection = ClientConnection::new(self.config.clone(), name).map_err(io::Error::other)?;
        http::exchange_body(Closing(StreamOwned::new(connection, stream)), method, path, body)
    }
}

/// A stream whose end needs no closing message of TLS.
struct Closing(StreamOwned<ClientConnection, TcpStream>);

impl Read for Closing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
            other => other,
        }
    }
}

impl Write for Closing {
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
