//! A read-only image registry on 127.0.0.1 with plain HTTP. It serves the images that `tests/lab/images.sh` builds,
//! each only after a test has published it, and counts the manifest requests.

use super::lab::{self, Runtime};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// The response of a broken registry to each request for an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// No response.
    Hang,
    /// This HTTP status.
    Status(&'static str),
    /// A manifest with a layer whose content does not match its digest.
    BrokenLayer,
}

/// The manifest of `Trouble::BrokenLayer`, its digest, and the image's configuration.
const BROKEN_MANIFEST: &str = concat!(
    r#"{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"#,
    r#""application/vnd.oci.image.config.v1+json","digest":"#,
    r#""sha256:e22c27134a5cc2301fc1c6d56fd67161a389c05ecff827c1cededfc84a2bf1db","size":163},"layers":[{"mediaType":"#,
    r#""application/vnd.oci.image.layer.v1.tar+gzip","digest":"#,
    r#""sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef","size":64}]}"#
);
const BROKEN_DIGEST: &str = "sha256:a5342cbebb316006380ef031bb419ee9d873ef4f3bdbad618d55e1bf3081a6ec";
const BROKEN_CONFIG: &str = concat!(
    r#"{"architecture":"amd64","os":"linux","config":{},"rootfs":{"type":"layers","diff_ids":["#,
    r#""sha256:1111111111111111111111111111111111111111111111111111111111111111"]}}"#
);
const BROKEN_CONFIG_DIGEST: &str = "sha256:e22c27134a5cc2301fc1c6d56fd67161a389c05ecff827c1cededfc84a2bf1db";

/// Configures containerd to use the registry with this scheme, and with the certificate in this file.
pub fn trust(address: SocketAddr, scheme: &str, certificate: Option<&Path>) {
    let dir = Runtime::shared().dir.join("certs.d").join(address.to_string());
    std::fs::create_dir_all(&dir).expect("certs.d");
    let server = format!("{scheme}://{address}");
    let ca = certificate.map(|path| format!("  ca = \"{}\"\n", path.display())).unwrap_or_default();
    let text =
        format!("server = \"{server}\"\n[host.\"{server}\"]\n  capabilities = [\"pull\", \"resolve\", \"push\"]\n{ca}");
    std::fs::write(dir.join("hosts.toml"), text).expect("hosts.toml");
}

#[derive(Default)]
struct Shelf {
    trouble: Option<Trouble>,
    /// The digest of the manifest, by the name in the registry.
    images: BTreeMap<String, String>,
    /// The number of manifest requests, by image name.
    requests: BTreeMap<String, u32>,
}

pub struct Registry {
    address: SocketAddr,
    shelf: Arc<Mutex<Shelf>>,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Registry {
    pub fn start() -> Registry {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = listener.local_addr().expect("address");
        trust(address, "http", None);
        let shelf = Arc::new(Mutex::new(Shelf::default()));
        let stop = Arc::new(AtomicBool::new(false));
        let (theirs, stopped) = (shelf.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let shelf = theirs.clone();
                if let Ok(stream) = stream {
                    std::thread::spawn(move || serve(stream, &shelf));
                }
            }
        });
        Registry { address, shelf, stop, thread: Some(thread) }
    }

    /// Returns the image reference for use in a pod manifest: `127.0.0.1:PORT/name:1`.
    pub fn image(&self, name: &str) -> String {
        format!("{}/{name}:1", self.address)
    }

    /// Publishes a local image (for example `localhost/trap:1`) as `name`.
    pub fn publish(&self, name: &str, local: &str) {
        let index = std::fs::read_to_string(lab::images().join("index.json")).expect("index.json");
        let index: serde_json::Value = serde_json::from_str(&index).expect("JSON");
        let found = index["manifests"]
            .as_array()
            .expect("manifests")
            .iter()
            .find(|m| m["annotations"]["io.containerd.image.name"].as_str() == Some(local));
        let digest = found.unwrap_or_else(|| panic!("no image {local}"))["digest"].as_str().expect("digest");
        self.shelf.lock().expect("shelf").images.insert(name.to_string(), digest.to_string());
    }

    /// Sets the response to requests for images from now on. None is the normal response.
    pub fn trouble(&self, trouble: Option<Trouble>) {
        self.shelf.lock().expect("shelf").trouble = trouble;
    }

    /// Returns the number of requests for the manifest of an image.
    pub fn requests(&self, name: &str) -> u32 {
        self.shelf.lock().expect("shelf").requests.get(name).copied().unwrap_or(0)
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(mut stream: TcpStream, shelf: &Mutex<Shelf>) {
    let mut reader = BufReader::new(stream.try_clone().expect("clone"));
    loop {
        let mut request = String::new();
        if reader.read_line(&mut request).unwrap_or(0) == 0 {
            return;
        }
        let mut line = String::new();
        while reader.read_line(&mut line).unwrap_or(0) > 2 {
            line.clear();
        }
        let mut words = request.split_whitespace();
        let (method, path) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let path = path.split('?').next().unwrap_or(path).to_string();
        let trouble = shelf.lock().expect("shelf").trouble.filter(|_| path != "/v2/");
        while trouble == Some(Trouble::Hang) {
            // The client closes the connection when it gives up.
            let mut buffer = [0; 1];
            if reader.read(&mut buffer).unwrap_or(0) == 0 {
                return;
            }
        }
        let (status, kind, body) = answer(&path, method, shelf);
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{}\r\n",
            body.len(),
            digest_header(&path, shelf)
        );
        let sent = stream.write_all(head.as_bytes());
        if sent.is_err() || (method != "HEAD" && stream.write_all(&body).is_err()) {
            return;
        }
    }
}

fn split(path: &str) -> Option<(&str, &str, &str)> {
    let rest = path.strip_prefix("/v2/")?;
    let (rest, reference) = rest.rsplit_once('/')?;
    let (name, kind) = rest.rsplit_once('/')?;
    Some((name, kind, reference))
}

fn digest_of(name: &str, reference: &str, shelf: &Mutex<Shelf>) -> Option<String> {
    let shelf = shelf.lock().expect("shelf");
    if shelf.trouble == Some(Trouble::BrokenLayer) {
        return Some(BROKEN_DIGEST.to_owned());
    }
    let digest = shelf.images.get(name).cloned()?;
    Some(if reference.starts_with("sha256:") { reference.to_string() } else { digest })
}

fn digest_header(path: &str, shelf: &Mutex<Shelf>) -> String {
    match split(path) {
        Some((name, "manifests", reference)) => {
            digest_of(name, reference, shelf).map(|d| format!("Docker-Content-Digest: {d}\r\n")).unwrap_or_default()
        }
        _ => String::new(),
    }
}

fn answer(path: &str, method: &str, shelf: &Mutex<Shelf>) -> (&'static str, &'static str, Vec<u8>) {
    let missing = ("404 Not Found", "application/json", br#"{"errors":[{"code":"MANIFEST_UNKNOWN"}]}"#.to_vec());
    if path == "/v2/" {
        return ("200 OK", "application/json", b"{}".to_vec());
    }
    let Some((name, kind, reference)) = split(path) else { return missing };
    let trouble = shelf.lock().expect("shelf").trouble;
    match trouble {
        Some(Trouble::Status(status)) => return (status, "application/json", b"{}".to_vec()),
        Some(Trouble::BrokenLayer) => {
            return match (kind, reference) {
                ("manifests", _) => ("200 OK", "application/vnd.oci.image.manifest.v1+json", BROKEN_MANIFEST.into()),
                (_, BROKEN_CONFIG_DIGEST) => ("200 OK", "application/octet-stream", BROKEN_CONFIG.into()),
                _ => ("200 OK", "application/octet-stream", vec![b'x'; 64]),
            };
        }
        Some(Trouble::Hang) | None => {}
    }
    if kind == "manifests" && method == "HEAD" {
        *shelf.lock().expect("shelf").requests.entry(name.to_string()).or_default() += 1;
    }
    let Some(digest) = digest_of(name, reference, shelf) else { return missing };
    let blob: PathBuf = lab::images().join("blobs").join(digest.replace(':', "/"));
    let kind = match kind {
        "manifests" => "application/vnd.oci.image.manifest.v1+json",
        _ => "application/octet-stream",
    };
    match std::fs::read(blob) {
        Ok(bytes) => ("200 OK", kind, bytes),
        Err(_) => missing,
    }
}
