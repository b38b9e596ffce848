//! A blocking CRI client for tests, with one connection and one call at a time. It shares only the generated messages
//! with Wherry, so that it verifies the effects of Wherry independently.

use bytes::Bytes;
use h2::client::{Connection, SendRequest};
use protobuf::Message;
use std::future::Future;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
pub use wherry::adapters::cri::proto::*;

/// A gRPC status other than OK. A transport error has code 14 (unavailable).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    pub code: u32,
    pub message: String,
}

impl Refused {
    fn lost(e: impl std::fmt::Display) -> Refused {
        Refused { code: 14, message: e.to_string() }
    }
}

pub type Answer<T> = Result<T, Refused>;

/// A non-blocking socket for h2. It stores no waker, because `drive` polls the descriptor itself.
struct Socket(UnixStream);

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match (&self.0).read(buf.initialize_unfilled()) {
            Ok(n) => {
                buf.advance(n);
                Poll::Ready(Ok(()))
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
            Err(e) => Poll::Ready(Err(e)),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match (&self.0).write(buf) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
            other => Poll::Ready(other),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

pub struct Cri {
    /// A second handle of the socket, for polling.
    socket: UnixStream,
    connection: Connection<Socket, Bytes>,
    send: SendRequest<Bytes>,
    flag: Arc<Flag>,
}

impl Cri {
    pub fn connect(path: &Path) -> Cri {
        Cri::try_connect(path).unwrap_or_else(|e| panic!("connect to {}: {e:?}", path.display()))
    }

    pub fn try_connect(path: &Path) -> Answer<Cri> {
        let socket = UnixStream::connect(path).map_err(Refused::lost)?;
        socket.set_nonblocking(true).map_err(Refused::lost)?;
        let other = socket.try_clone().map_err(Refused::lost)?;
        let flag = Arc::new(Flag::default());
        let waker = Waker::from(flag.clone());
        let mut handshake = Box::pin(
            h2::client::Builder::new()
                .initial_window_size(1 << 24)
                .initial_connection_window_size(1 << 24)
                .handshake(Socket(socket)),
        );
        let end = Instant::now() + Duration::from_secs(120);
        loop {
            match handshake.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(Ok((send, connection))) => return Ok(Cri { socket: other, connection, send, flag }),
                Poll::Ready(Err(e)) => return Err(Refused::lost(e)),
                Poll::Pending => wait(&other, end)?,
            }
        }
    }

    /// Polls `f` and the connection until `f` is done.
    fn drive<F: Future + Unpin>(&mut self, mut f: F, end: Instant) -> Answer<F::Output> {
        let waker = Waker::from(self.flag.clone());
        let mut context = Context::from_waker(&waker);
        loop {
            self.flag.0.store(false, Ordering::SeqCst);
            let lost = match Pin::new(&mut self.connection).poll(&mut context) {
                Poll::Ready(Ok(())) => Some("the connection was closed".to_string()),
                Poll::Ready(Err(e)) => Some(e.to_string()),
                Poll::Pending => None,
            };
            if let Poll::Ready(value) = Pin::new(&mut f).poll(&mut context) {
                return Ok(value);
            }
            if let Some(why) = lost {
                return Err(Refused::lost(why));
            }
            if !self.flag.0.load(Ordering::SeqCst) {
                wait(&self.socket, end)?;
            }
        }
    }

    /// Makes a unary call. `service` is RuntimeService or ImageService.
    pub fn call<A: Message>(&mut self, service: &str, method: &str, request: &impl Message) -> Answer<A> {
        let end = Instant::now() + Duration::from_secs(120);
        let body = request.write_to_bytes().map_err(Refused::lost)?;
        let mut framed = vec![0];
        framed.extend((body.len() as u32).to_be_bytes());
        framed.extend(body);
        let http = http::Request::post(format!("http://localhost/runtime.v1.{service}/{method}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())
            .map_err(Refused::lost)?;
        let (response, mut stream) = self.send.send_request(http, false).map_err(Refused::lost)?;
        stream.send_data(Bytes::from(framed), true).map_err(Refused::lost)?;
        let response = self.drive(response, end)?.map_err(Refused::lost)?;
        status(response.headers())?;
        let mut body = response.into_body();
        let mut received = Vec::new();
        while let Some(chunk) = self.drive(std::future::poll_fn(|c| body.poll_data(c)), end)? {
            let chunk = chunk.map_err(Refused::lost)?;
            let _ = body.flow_control().release_capacity(chunk.len());
            received.extend_from_slice(&chunk);
        }
        let trailers = self.drive(std::future::poll_fn(|c| body.poll_trailers(c)), end)?.map_err(Refused::lost)?;
        if let Some(trailers) = trailers {
            status(&trailers)?;
        }
        A::parse_from_bytes(received.get(5..).unwrap_or_default()).map_err(Refused::lost)
    }

    fn runtime<A: Message>(&mut self, method: &str, request: &impl Message) -> Answer<A> {
        self.call("RuntimeService", method, request)
    }

    pub fn version(&mut self) -> Answer<VersionResponse> {
        self.runtime("Version", &VersionRequest::new())
    }

    /// Returns the name of the runtime.
    pub fn name(&mut self) -> String {
        self.version().expect("Version").runtime_name
    }

    /// Reports whether the runtime provides its cgroup driver.
    pub fn reports_driver(&mut self) -> bool {
        self.runtime::<RuntimeConfigResponse>("RuntimeConfig", &RuntimeConfigRequest::new()).is_ok()
    }

    /// Calls Status. Shortly after its start, the runtime responds to Version but still refuses Status ("server is
    /// not initialized yet").
    pub fn status(&mut self) -> Answer<StatusResponse> {
        self.runtime("Status", &StatusRequest::new())
    }

    /// Returns the sandboxes of a namespace, newest first.
    pub fn sandboxes(&mut self, namespace: &str) -> Vec<PodSandbox> {
        let mut request = ListPodSandboxRequest::new();
        request.filter.mut_or_insert_default().label_selector =
            [("io.kubernetes.pod.namespace".to_string(), namespace.to_string())].into();
        let answer: ListPodSandboxResponse = self.runtime("ListPodSandbox", &request).expect("ListPodSandbox");
        let mut items = answer.items;
        items.sort_by_key(|s| std::cmp::Reverse(s.created_at));
        items
    }

    /// Returns the containers of a namespace, newest first.
    pub fn containers(&mut self, namespace: &str) -> Vec<Container> {
        let mut request = ListContainersRequest::new();
        request.filter.mut_or_insert_default().label_selector =
            [("io.kubernetes.pod.namespace".to_string(), namespace.to_string())].into();
        let answer: ListContainersResponse = self.runtime("ListContainers", &request).expect("ListContainers");
        let mut containers = answer.containers;
        containers.sort_by_key(|c| std::cmp::Reverse(c.created_at));
        containers
    }

    pub fn container_status(&mut self, id: &str) -> Answer<ContainerStatusResponse> {
        let mut request = ContainerStatusRequest::new();
        request.container_id = id.to_string();
        request.verbose = true;
        self.runtime("ContainerStatus", &request)
    }

    pub fn sandbox_status(&mut self, id: &str) -> Answer<PodSandboxStatusResponse> {
        let mut request = PodSandboxStatusRequest::new();
        request.pod_sandbox_id = id.to_string();
        request.verbose = true;
        self.runtime("PodSandboxStatus", &request)
    }

    /// Returns the PID of the init process of a container.
    pub fn container_pid(&mut self, id: &str) -> u32 {
        pid_of(&self.container_status(id).expect("ContainerStatus").info)
    }

    pub fn sandbox_pid(&mut self, id: &str) -> u32 {
        pid_of(&self.sandbox_status(id).expect("PodSandboxStatus").info)
    }

    /// Runs a command in a container. Returns the exit code and standard output.
    pub fn exec(&mut self, id: &str, command: &[&str]) -> (i32, String) {
        self.exec_if_running(id, command).expect("ExecSync")
    }

    /// Runs a command in a container. Returns the exit code and standard output; None if the container has ended.
    pub fn exec_if_running(&mut self, id: &str, command: &[&str]) -> Option<(i32, String)> {
        let mut request = ExecSyncRequest::new();
        request.container_id = id.to_string();
        request.cmd = command.iter().map(|s| s.to_string()).collect();
        request.timeout = 60;
        let answer: ExecSyncResponse = self.runtime("ExecSync", &request).ok()?;
        Some((answer.exit_code, String::from_utf8_lossy(&answer.stdout).into_owned()))
    }

    /// Returns the URL for streaming a command in a container.
    pub fn exec_url(&mut self, id: &str, command: &[&str], stdin: bool) -> String {
        let mut request = ExecRequest::new();
        request.container_id = id.to_string();
        request.cmd = command.iter().map(|s| s.to_string()).collect();
        (request.stdin, request.stdout) = (stdin, true);
        let answer: ExecResponse = self.runtime("Exec", &request).expect("Exec");
        answer.url
    }

    /// Returns the URL for connections to the ports of a sandbox.
    pub fn forward_url(&mut self, sandbox: &str) -> String {
        let mut request = PortForwardRequest::new();
        request.pod_sandbox_id = sandbox.to_string();
        let answer: PortForwardResponse = self.runtime("PortForward", &request).expect("PortForward");
        answer.url
    }

    pub fn run_sandbox(&mut self, config: &PodSandboxConfig) -> String {
        let mut request = RunPodSandboxRequest::new();
        request.config = Some(config.clone()).into();
        let answer: RunPodSandboxResponse = self.runtime("RunPodSandbox", &request).expect("RunPodSandbox");
        answer.pod_sandbox_id
    }

    pub fn create_container(&mut self, sandbox: &str, config: &ContainerConfig, of: &PodSandboxConfig) -> String {
        let mut request = CreateContainerRequest::new();
        request.pod_sandbox_id = sandbox.to_string();
        request.config = Some(config.clone()).into();
        request.sandbox_config = Some(of.clone()).into();
        let answer: CreateContainerResponse = self.runtime("CreateContainer", &request).expect("CreateContainer");
        answer.container_id
    }

    pub fn start_container(&mut self, id: &str) {
        let mut request = StartContainerRequest::new();
        request.container_id = id.to_string();
        let _: StartContainerResponse = self.runtime("StartContainer", &request).expect("StartContainer");
    }

    /// Makes the runtime open a new log file after the old one has been renamed.
    pub fn reopen_log(&mut self, id: &str) {
        let mut request = ReopenContainerLogRequest::new();
        request.container_id = id.to_string();
        let _: ReopenContainerLogResponse = self.runtime("ReopenContainerLog", &request).expect("ReopenContainerLog");
    }

    /// Stops and removes a sandbox with its containers. Errors are ignored: the sandbox may already be gone.
    pub fn remove_sandbox(&mut self, id: &str) {
        let mut stop = StopPodSandboxRequest::new();
        stop.pod_sandbox_id = id.to_string();
        let _: Answer<StopPodSandboxResponse> = self.runtime("StopPodSandbox", &stop);
        let mut remove = RemovePodSandboxRequest::new();
        remove.pod_sandbox_id = id.to_string();
        let _: Answer<RemovePodSandboxResponse> = self.runtime("RemovePodSandbox", &remove);
    }

    pub fn has_image(&mut self, name: &str) -> bool {
        let mut request = ImageStatusRequest::new();
        request.image.mut_or_insert_default().image = name.to_string();
        let answer: ImageStatusResponse = self.call("ImageService", "ImageStatus", &request).expect("ImageStatus");
        answer.image.is_some()
    }

    pub fn remove_image(&mut self, name: &str) {
        let mut request = RemoveImageRequest::new();
        request.image.mut_or_insert_default().image = name.to_string();
        let _: RemoveImageResponse = self.call("ImageService", "RemoveImage", &request).expect("RemoveImage");
    }
}

fn pid_of(info: &std::collections::BTreeMap<String, String>) -> u32 {
    let info: serde_json::Value = serde_json::from_str(&info["info"]).expect("info is JSON");
    info["pid"].as_u64().expect("pid") as u32
}

fn status(headers: &http::HeaderMap) -> Answer<()> {
    let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default().to_string();
    match text("grpc-status").as_str() {
        "" | "0" => Ok(()),
        code => Err(Refused { code: code.parse().unwrap_or(2), message: text("grpc-message") }),
    }
}

fn wait(socket: &UnixStream, end: Instant) -> Answer<()> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(Refused { code: 4, message: "no answer in time".to_string() });
    }
    let mut fds = [rustix::event::PollFd::from_borrowed_fd(socket.as_fd(), rustix::event::PollFlags::IN)];
    // The short timeout lets h2 retry a write: the poll waits only for readability.
    let short = rustix::event::Timespec { tv_sec: 0, tv_nsec: left.as_nanos().min(20_000_000) as i64 };
    rustix::event::poll(&mut fds, Some(&short)).map_err(Refused::lost)?;
    Ok(())
}
