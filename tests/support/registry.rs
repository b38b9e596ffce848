//! A read-only image registry on 127.0.0.1 with plain HTTP. It serves the images that `tests/lab/images.sh` builds, each
//! only after a test has published it, and counts the manifest requests.

use super::lab;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

#[derive(Default)]
struct Shelf {
    /// Name in the registry to digest of the manifest.
    images: BTreeMap<String, String>,
    /// Number of manifest requests, by image name.
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

    /// The image reference to use in a manifest: `127.0.0.1:PORT/name:1`.
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

    /// Number of requests for the manifest of an image.
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
    let digest = shelf.lock().expect("shelf").images.get(name).cloned()?;
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
