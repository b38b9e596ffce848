//! An HTTPS server on loopback with a self-signed certificate for another name.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, Stream};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

pub struct TlsServer {
    pub port: u16,
    /// The number of requests that were answered.
    pub requests: Arc<AtomicUsize>,
}

impl TlsServer {
    /// Starts a server. `directory` is for the key and the certificate. `response` is the whole response to each
    /// request.
    pub fn start(directory: &Path, response: &'static str) -> TlsServer {
        let config = Arc::new(config(directory, "/CN=nobody.example", &[]));
        let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
        let port = listener.local_addr().expect("address").port();
        let requests = Arc::new(AtomicUsize::new(0));
        let count = requests.clone();
        // The thread ends with the process of the test.
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if answer(&config, client, response).is_ok() {
                    count.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        TlsServer { port, requests }
    }
}

fn answer(config: &Arc<ServerConfig>, mut client: TcpStream, response: &str) -> std::io::Result<()> {
    client.set_read_timeout(Some(std::time::Duration::from_secs(10)))?;
    let mut connection = ServerConnection::new(config.clone()).expect("a connection");
    let mut reader = BufReader::new(Stream::new(&mut connection, &mut client));
    let mut line = String::new();
    while reader.read_line(&mut line)? > 2 {
        line.clear();
    }
    reader.get_mut().write_all(response.as_bytes())?;
    reader.get_mut().flush()
}

/// Returns the configuration of a server with a self-signed certificate, which openssl creates in this directory.
/// `extensions` are those of the certificate.
pub fn config(directory: &Path, subject: &str, extensions: &[&str]) -> ServerConfig {
    let [key, certificate] = ["key.pem", "certificate.pem"].map(|name| directory.join(name));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
        .args(["-subj", subject, "-days", "1"])
        .args(extensions.iter().flat_map(|extension| ["-addext", extension]))
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .output()
        .expect("openssl");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let certificate = CertificateDer::from_pem_file(&certificate).expect("a certificate");
    let key = PrivateKeyDer::from_pem_file(&key).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("versions");
    builder.with_no_client_auth().with_single_cert(vec![certificate], key).expect("a server")
}
