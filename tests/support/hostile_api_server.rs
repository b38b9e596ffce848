//! An API server that floods its client: HTTPS with HTTP/2 on loopback, with the `h2` crate. It knows only the
//! requests of a node, and responds to lists and watches of pods as the test specifies. Futures are polled by hand.

use super::grpc_server::block_on;
use super::tls_server;
use bytes::Bytes;
use h2::server::{self, SendResponse};
use h2::{RecvStream, SendStream};
use http::{Request, Response};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The queue of a stream is filled up to this number of bytes.
const CHUNK: usize = 64 << 10;

/// The responses to lists and watches of pods.
#[derive(Clone)]
pub enum Pods {
    /// A list that does not end.
    Endless,
    /// A list of this many pods, which no node can run.
    Many(usize),
    /// A list of this pod, and a watch that changes it without a pause.
    Changing(Value),
}

pub struct HostileApiServer {
    pub kubeconfig: PathBuf,
    /// The number of bytes that were sent in lists and watches of pods.
    pub sent: Arc<AtomicU64>,
    /// The number of requests that change a pod.
    pub patches: Arc<AtomicU64>,
}

struct Shared {
    pods: Pods,
    sent: Arc<AtomicU64>,
    patches: Arc<AtomicU64>,
}

impl HostileApiServer {
    /// Starts a server. `directory` is for the certificate and the kubeconfig.
    pub fn start(directory: &Path, pods: Pods) -> HostileApiServer {
        let extensions = ["subjectAltName=IP:127.0.0.1", "basicConstraints=critical,CA:FALSE"];
        let mut config = tls_server::config(directory, "/CN=hostile", &extensions);
        config.alpn_protocols = vec![b"h2".to_vec()];
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
        let port = listener.local_addr().expect("address").port();
        let kubeconfig = directory.join("kubeconfig");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:{port}', certificate-authority: {}}}}}]\n\
             users: [{{name: c, user: {{token: hostile}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: c}}}}]\n",
            directory.join("certificate.pem").display()
        );
        std::fs::write(&kubeconfig, text).expect("a kubeconfig");
        let (sent, patches) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let shared = Arc::new(Shared { pods, sent: sent.clone(), patches: patches.clone() });
        // The threads end with the process of the test, or with their connection.
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (config, shared) = (config.clone(), shared.clone());
                std::thread::spawn(move || serve(client, &config, &shared));
            }
        });
        HostileApiServer { kubeconfig, sent, patches }
    }
}

struct Reading {
    head: Request<()>,
    body: RecvStream,
    bytes: Vec<u8>,
    respond: SendResponse<Bytes>,
}

/// Returns the next part of a response, which may be empty. None: the response has ended.
type Parts = Box<dyn FnMut() -> Option<Vec<u8>> + Send>;

/// A response that is being sent.
struct Sending {
    stream: SendStream<Bytes>,
    queued: Vec<u8>,
    next: Parts,
    is_pods: bool,
}

fn serve(client: TcpStream, config: &Arc<ServerConfig>, shared: &Shared) {
    client.set_nonblocking(true).expect("non-blocking");
    let stream = StreamOwned::new(ServerConnection::new(config.clone()).expect("a connection"), client);
    let Ok(mut h2) = block_on(server::Builder::new().handshake::<Tls, Bytes>(Tls(stream))) else { return };
    let (mut reading, mut sending): (Vec<Reading>, Vec<Sending>) = (Vec::new(), Vec::new());
    let mut cx = Context::from_waker(Waker::noop());
    loop {
        match h2.poll_accept(&mut cx) {
            Poll::Ready(Some(Ok((request, respond)))) => {
                let (parts, body) = request.into_parts();
                reading.push(Reading { head: Request::from_parts(parts, ()), body, bytes: Vec::new(), respond });
            }
            Poll::Ready(_) => return,
            Poll::Pending => {}
        }
        for mut request in std::mem::take(&mut reading) {
            match read(&mut request, &mut cx) {
                true => sending.extend(answer(request, shared)),
                false => reading.push(request),
            }
        }
        let before = shared.sent.load(Ordering::SeqCst);
        sending.retain_mut(|sending| send(sending, shared));
        if shared.sent.load(Ordering::SeqCst) == before {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Reads the body of a request. Returns true when the request is complete.
fn read(request: &mut Reading, cx: &mut Context<'_>) -> bool {
    while let Poll::Ready(data) = request.body.poll_data(cx) {
        match data {
            Some(Ok(bytes)) => {
                let _ = request.body.flow_control().release_capacity(bytes.len());
                request.bytes.extend_from_slice(&bytes);
            }
            _ => return true,
        }
    }
    false
}

/// Sends a part of the response. Returns false when the response has ended.
fn send(sending: &mut Sending, shared: &Shared) -> bool {
    while sending.queued.len() < CHUNK {
        let Some(more) = (sending.next)() else { break };
        if more.is_empty() {
            break;
        }
        sending.queued.extend(more);
    }
    let is_over = sending.queued.is_empty() && (sending.next)().is_none();
    if is_over {
        let _ = sending.stream.send_data(Bytes::new(), true);
        return false;
    }
    sending.stream.reserve_capacity(CHUNK);
    let count = sending.stream.capacity().min(sending.queued.len());
    if count == 0 {
        return true;
    }
    let bytes: Vec<u8> = sending.queued.drain(..count).collect();
    if sending.is_pods {
        shared.sent.fetch_add(count as u64, Ordering::SeqCst);
    }
    sending.stream.send_data(Bytes::from(bytes), false).is_ok()
}

fn answer(mut request: Reading, shared: &Shared) -> Option<Sending> {
    let path = request.head.uri().path().to_owned();
    let query = request.head.uri().query().unwrap_or_default().to_owned();
    let is_watch = query.contains("watch=true");
    let is_pods = path == "/api/v1/pods";
    let (status, next): (u16, Parts) = match (&shared.pods, is_pods, is_watch) {
        (Pods::Changing(pod), true, true) => (200, flood(pod.clone())),
        (_, _, true) => (200, Box::new(|| Some(Vec::new()))),
        (Pods::Endless, true, false) => (200, list(None)),
        (Pods::Many(count), true, false) => (200, list(Some(*count))),
        (Pods::Changing(pod), true, false) => {
            let text = json!({ "kind": "PodList", "apiVersion": "v1", "metadata": { "resourceVersion": "1" }, "items": [pod] });
            (200, once(text.to_string()))
        }
        _ => {
            let (status, body) = object(request.head.method().as_str(), &path, &request.bytes, shared);
            (status, once(body.to_string()))
        }
    };
    let head = Response::builder().status(status).header("content-type", "application/json").body(()).expect("a head");
    let stream = request.respond.send_response(head, false).ok()?;
    Some(Sending { stream, queued: Vec::new(), next, is_pods })
}

fn once(text: String) -> Parts {
    let mut text = Some(text.into_bytes());
    Box::new(move || text.take())
}

/// Returns a list of `count` pods. None: the list does not end.
fn list(count: Option<usize>) -> Parts {
    let mut number = 0;
    let mut is_over = false;
    Box::new(move || {
        if is_over {
            return None;
        }
        number += 1;
        let head = r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":["#;
        let head = if number == 1 { head } else { "," };
        let pod = pod(number);
        is_over = count.is_some_and(|count| number >= count);
        Some(format!("{head}{pod}{}", if is_over { "]}" } else { "" }).into_bytes())
    })
}

/// Returns a pod that no node can run.
fn pod(number: usize) -> Value {
    json!({
        "metadata": { "name": format!("pod-{number}"), "namespace": "default", "uid": format!("uid-{number}"), "resourceVersion": "1" },
        "spec": { "nodeSelector": { "no": "such" }, "containers": [{ "name": "main", "image": "localhost/none" }],
                  "automountServiceAccountToken": false, "enableServiceLinks": false },
        "status": { "phase": "Pending" },
    })
}

fn flood(pod: Value) -> Parts {
    let mut number = 1;
    Box::new(move || {
        number += 1;
        let mut object = pod.clone();
        object["kind"] = json!("Pod");
        object["apiVersion"] = json!("v1");
        object["metadata"]["resourceVersion"] = json!(number.to_string());
        // The record of the pod changes each time.
        object["metadata"]["labels"] = json!({ "number": number.to_string() });
        Some(format!("{}\n", json!({ "type": "MODIFIED", "object": object })).into_bytes())
    })
}

/// Returns the response to a request for one object, or for a list of objects other than pods.
fn object(method: &str, path: &str, body: &[u8], shared: &Shared) -> (u16, Value) {
    let name = |path: &str| path.trim_end_matches("/status").rsplit('/').next().unwrap_or_default().to_owned();
    let metadata = json!({ "name": name(path), "uid": "uid", "resourceVersion": "1" });
    let empty =
        |kind: &str| json!({ "kind": kind, "apiVersion": "v1", "metadata": { "resourceVersion": "1" }, "items": [] });
    match method {
        "GET" if path == "/api/v1/nodes" => {
            let item = json!({ "metadata": { "name": "hostile", "uid": "uid", "resourceVersion": "1" } });
            let mut list = empty("NodeList");
            list["items"] = json!([item]);
            (200, list)
        }
        "GET" if path.ends_with("/services") => (200, empty("ServiceList")),
        "GET" | "PATCH" if path.starts_with("/api/v1/nodes/") => {
            (200, json!({ "kind": "Node", "apiVersion": "v1", "metadata": metadata }))
        }
        "PATCH" if path.contains("/pods/") => {
            shared.patches.fetch_add(1, Ordering::SeqCst);
            let patch: Value = serde_json::from_slice(body).unwrap_or_default();
            let metadata = json!({ "name": name(path), "namespace": "default", "resourceVersion": "1" });
            (200, json!({ "kind": "Pod", "apiVersion": "v1", "metadata": metadata, "status": patch["status"] }))
        }
        "PATCH" => (200, json!({ "kind": "Lease", "metadata": metadata })),
        "POST" if path.ends_with("/events") => (201, json!({ "kind": "Event", "metadata": metadata })),
        _ => (404, json!({ "kind": "Status", "apiVersion": "v1", "code": 404, "reason": "NotFound", "metadata": {} })),
    }
}

struct Tls(StreamOwned<ServerConnection, TcpStream>);

fn polled<T>(result: io::Result<T>) -> Poll<io::Result<T>> {
    match result {
        Err(e) if e.kind() == ErrorKind::WouldBlock => Poll::Pending,
        other => Poll::Ready(other),
    }
}

impl AsyncRead for Tls {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let read = self.0.read(buffer.initialize_unfilled());
        polled(read.map(|count| buffer.advance(count)))
    }
}

impl AsyncWrite for Tls {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        polled(self.0.write(bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        polled(self.0.flush())
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
