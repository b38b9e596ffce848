//! A gRPC test server on a unix socket, with the server side of `h2` in a thread. The path of a call determines how the
//! server handles it. The executor is a simple loop: it polls all futures, then polls the sockets for at most 1 ms.

use bytes::{BufMut, Bytes, BytesMut};
use h2::server::{self, Connection, SendResponse};
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Request, Response, StatusCode};
use protobuf::Message;
use std::future::{Future, poll_fn};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use wherry::adapters::cri::proto::{
    CgroupDriver, ContainerEventResponse, ContainerEventType, RuntimeConfigResponse, StatusResponse, VersionResponse,
};

#[derive(Clone, Copy)]
pub struct Options {
    pub max_streams: u32,
    /// Bytes that the server reads per pass. A small value makes a slow reader.
    pub read_at_once: usize,
    /// Accept connections and send nothing.
    pub mute: bool,
    pub events: Events,
    /// The answer to RuntimeConfig. None: UNIMPLEMENTED.
    pub driver: Option<CgroupDriver>,
}

/// How the server answers GetContainerEvents.
#[derive(Clone, Copy)]
pub enum Events {
    Unimplemented,
    /// End the stream at once.
    Off,
    /// Send one event and end the stream.
    Once,
    /// Send this many events at once, with one invalid message among them, and keep the stream open.
    Burst(u32),
}

impl Default for Options {
    fn default() -> Self {
        Options {
            max_streams: 1000,
            read_at_once: usize::MAX,
            mute: false,
            events: Events::Unimplemented,
            driver: None,
        }
    }
}

/// What the server received, for the tests to check.
#[derive(Default)]
pub struct Seen {
    pub connections: usize,
    /// The reset codes that the client sent for hanging calls.
    pub resets: Vec<Reason>,
    /// Maximum number of concurrent calls.
    pub most_at_once: usize,
    at_once: usize,
    pub headers: Vec<HeaderMap>,
}

pub struct Server {
    pub path: PathBuf,
    pub seen: Arc<Mutex<Seen>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub fn start(path: &Path, options: Options) -> Server {
        let _ = std::fs::remove_file(path);
        let listener = UnixListener::bind(path).unwrap();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let stop = Arc::new(AtomicBool::new(false));
        let thread = {
            let (seen, stop) = (seen.clone(), stop.clone());
            std::thread::spawn(move || serve(&listener, options, &seen, &stop))
        };
        Server { path: path.to_path_buf(), seen, stop, thread: Some(thread) }
    }

    /// Stops the server like SIGKILL: the connections are closed, and the socket file stays.
    pub fn kill(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

type Task = Pin<Box<dyn Future<Output = ()>>>;

fn serve(listener: &UnixListener, options: Options, seen: &Arc<Mutex<Seen>>, stop: &AtomicBool) {
    listener.set_nonblocking(true).unwrap();
    let mut tasks: Vec<(UnixStream, Task)> = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        if let Ok((stream, _)) = listener.accept() {
            seen.lock().unwrap().connections += 1;
            let watched = stream.try_clone().unwrap();
            let task: Task = if options.mute {
                Box::pin(std::future::pending())
            } else {
                Box::pin(connection(Io::new(stream, options.read_at_once), options, seen.clone()))
            };
            tasks.push((watched, task));
        }
        let mut cx = Context::from_waker(Waker::noop());
        tasks.retain_mut(|(_, task)| task.as_mut().poll(&mut cx).is_pending());
        let fds = tasks.iter().map(|(stream, _)| stream);
        let mut fds: Vec<_> = fds.map(|s| rustix::event::PollFd::new(s, rustix::event::PollFlags::IN)).collect();
        fds.push(rustix::event::PollFd::new(listener, rustix::event::PollFlags::IN));
        let millisecond = rustix::event::Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        let _ = rustix::event::poll(&mut fds, Some(&millisecond));
    }
}

async fn connection(io: Io, options: Options, seen: Arc<Mutex<Seen>>) {
    let mut builder = server::Builder::new();
    builder.max_concurrent_streams(options.max_streams).initial_window_size(100_000);
    let Ok(mut h2): Result<Connection<Io, Bytes>, _> = builder.handshake(io).await else { return };
    let mut calls: Vec<Pin<Box<dyn Future<Output = After>>>> = Vec::new();
    poll_fn(|cx| {
        loop {
            match h2.poll_accept(cx) {
                Poll::Ready(Some(Ok((request, respond)))) => {
                    calls.push(Box::pin(call(request, respond, options, seen.clone())));
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => break,
            }
        }
        let mut after = Vec::new();
        calls.retain_mut(|call| match call.as_mut().poll(cx) {
            Poll::Ready(what) => {
                after.push(what);
                false
            }
            Poll::Pending => true,
        });
        for what in after {
            match what {
                After::Nothing => {}
                After::GoAway => h2.graceful_shutdown(),
                After::Drop => return Poll::Ready(()),
            }
        }
        Poll::Pending
    })
    .await;
}

/// The action on the connection after a call.
enum After {
    Nothing,
    GoAway,
    Drop,
}

async fn call(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    options: Options,
    seen: Arc<Mutex<Seen>>,
) -> After {
    let path = request.uri().path().to_string();
    {
        let mut seen = seen.lock().unwrap();
        seen.headers.push(request.headers().clone());
        seen.at_once += 1;
        seen.most_at_once = seen.most_at_once.max(seen.at_once);
    }
    let body = read(request.into_body()).await;
    let mut after = After::Nothing;
    match path.as_str() {
        "/t/Echo" => answer(respond, &[body]).await,
        "/t/SlowEcho" => {
            sleep(Duration::from_millis(100)).await;
            answer(respond, &[body]).await;
        }
        // The request contains the number of messages and the size of each.
        "/t/Many" => {
            let number = |at: usize| u32::from_be_bytes(body[at..at + 4].try_into().unwrap()) as usize;
            let messages: Vec<Bytes> = (0..number(0)).map(|n| Bytes::from(vec![n as u8; number(4)])).collect();
            answer(respond, &messages).await;
        }
        // Send one message and keep the stream open.
        "/t/Endless" => {
            let mut stream = respond.send_response(ok(), false).unwrap();
            stream.send_data(framed(b"first"), false).unwrap();
            let reason = poll_fn(|cx| stream.poll_reset(cx)).await;
            seen.lock().unwrap().resets.extend(reason.ok());
        }
        "/t/Hang" => {
            let reason = poll_fn(|cx| respond.poll_reset(cx)).await;
            seen.lock().unwrap().resets.extend(reason.ok());
        }
        // Trailers-Only: the headers contain the status, and there is no message.
        "/t/NotFound" => {
            let response = Response::builder()
                .header("content-type", "application/grpc")
                .header("grpc-status", "5")
                .header("grpc-message", "no such pod: %22caf%C3%A9%22 100%25");
            respond.send_response(response.body(()).unwrap(), true).unwrap();
        }
        // Send a message and then an error status in the trailers.
        "/t/Internal" => {
            let mut stream = respond.send_response(ok(), false).unwrap();
            stream.send_data(framed(b"half of it"), false).unwrap();
            stream.send_trailers(trailers("13", "broken%0Ain two")).unwrap();
        }
        "/t/Http503" => {
            let response = Response::builder().status(StatusCode::SERVICE_UNAVAILABLE).body(()).unwrap();
            respond.send_response(response, true).unwrap();
        }
        "/t/NoStatus" => {
            let mut stream = respond.send_response(ok(), false).unwrap();
            stream.send_data(framed(b"x"), true).unwrap();
        }
        "/t/NoMessage" => {
            let mut stream = respond.send_response(ok(), false).unwrap();
            stream.send_trailers(trailers("0", "")).unwrap();
        }
        "/t/Half" => {
            let mut stream = respond.send_response(ok(), false).unwrap();
            stream.send_data(framed(b"whole").slice(..7), false).unwrap();
            stream.send_trailers(trailers("0", "")).unwrap();
        }
        "/t/Two" => answer(respond, &[Bytes::from_static(b"1"), Bytes::from_static(b"2")]).await,
        "/t/Compressed" => {
            let mut stream = respond.send_response(ok(), false).unwrap();
            stream.send_data(Bytes::from_static(&[1, 0, 0, 0, 1, 9]), false).unwrap();
            stream.send_trailers(trailers("0", "")).unwrap();
        }
        // One byte over the limit of 16 MiB.
        "/t/TooLarge" => answer(respond, &[Bytes::from(vec![0; (16 << 20) + 1])]).await,
        "/t/Refuse" => respond.send_reset(Reason::REFUSED_STREAM),
        "/t/Reset" => respond.send_reset(Reason::INTERNAL_ERROR),
        "/t/GoAway" => {
            answer(respond, &[body]).await;
            after = After::GoAway;
        }
        "/t/Drop" => after = After::Drop,
        "/runtime.v1.RuntimeService/Version" => {
            let version = VersionResponse { runtime_name: "small".into(), ..Default::default() };
            answer(respond, &[version.write_to_bytes().unwrap().into()]).await;
        }
        "/runtime.v1.RuntimeService/Status" => {
            answer(respond, &[StatusResponse::new().write_to_bytes().unwrap().into()]).await;
        }
        "/runtime.v1.RuntimeService/RuntimeConfig" => match options.driver {
            None => unimplemented(respond),
            Some(driver) => {
                let mut config = RuntimeConfigResponse::new();
                config.linux.mut_or_insert_default().cgroup_driver = driver.into();
                answer(respond, &[config.write_to_bytes().unwrap().into()]).await;
            }
        },
        "/runtime.v1.RuntimeService/GetContainerEvents" => match options.events {
            Events::Unimplemented => unimplemented(respond),
            Events::Off => answer(respond, &[]).await,
            Events::Once => answer(respond, &[event(0)]).await,
            Events::Burst(count) => {
                let mut messages: Vec<Bytes> = (0..count).map(event).collect();
                messages.insert(messages.len() / 2, Bytes::from_static(b"\xff\xff\xff"));
                if let Some(mut stream) = send(&mut respond, &messages).await {
                    let _ = poll_fn(|cx| stream.poll_reset(cx)).await;
                }
            }
        },
        other => panic!("no script for {other}"),
    }
    seen.lock().unwrap().at_once -= 1;
    after
}

fn unimplemented(mut respond: SendResponse<Bytes>) {
    let response = Response::builder().header("content-type", "application/grpc").header("grpc-status", "12");
    respond.send_response(response.body(()).unwrap(), true).unwrap();
}

async fn read(mut stream: RecvStream) -> Bytes {
    let mut body = BytesMut::new();
    while let Some(Ok(bytes)) = stream.data().await {
        let _ = stream.flow_control().release_capacity(bytes.len());
        body.extend_from_slice(&bytes);
    }
    let mut body = body.freeze();
    if body.len() >= 5 { body.split_off(5) } else { Bytes::new() }
}

/// Sends all messages and an OK status. Waits for flow-control capacity.
async fn answer(mut respond: SendResponse<Bytes>, messages: &[Bytes]) {
    if let Some(mut stream) = send(&mut respond, messages).await {
        let _ = stream.send_trailers(trailers("0", ""));
    }
}

/// Sends all messages and keeps the stream open. Returns None if the client has reset the stream.
async fn send(respond: &mut SendResponse<Bytes>, messages: &[Bytes]) -> Option<SendStream<Bytes>> {
    let mut stream = respond.send_response(ok(), false).ok()?;
    for message in messages {
        let mut left = framed(message);
        while !left.is_empty() {
            stream.reserve_capacity(left.len());
            match poll_fn(|cx| stream.poll_capacity(cx)).await {
                Some(Ok(room)) => {
                    let now = left.split_to(room.min(left.len()));
                    let _ = stream.send_data(now, false);
                }
                _ => return None,
            }
        }
    }
    Some(stream)
}

/// A stop event of the container `c<n>`. The owner of its pod is "me".
fn event(n: u32) -> Bytes {
    let mut event = ContainerEventResponse::new();
    event.container_id = format!("c{n}");
    event.container_event_type = ContainerEventType::CONTAINER_STOPPED_EVENT.into();
    let sandbox = event.pod_sandbox_status.mut_or_insert_default();
    sandbox.labels.insert("io.kubernetes.pod.uid".into(), "u".into());
    sandbox.annotations.insert("io.wherry.owner".into(), "me".into());
    event.write_to_bytes().unwrap().into()
}

fn ok() -> Response<()> {
    Response::builder().header("content-type", "application/grpc").body(()).unwrap()
}

fn trailers(status: &'static str, message: &'static str) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", status.parse().unwrap());
    if !message.is_empty() {
        trailers.insert("grpc-message", message.parse().unwrap());
    }
    trailers
}

fn framed(message: &[u8]) -> Bytes {
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(message.len() as u32);
    framed.extend_from_slice(message);
    framed.freeze()
}

async fn sleep(time: Duration) {
    let end = Instant::now() + time;
    poll_fn(|_| if Instant::now() >= end { Poll::Ready(()) } else { Poll::Pending }).await;
}

struct Io {
    stream: UnixStream,
    read_at_once: usize,
    /// A slow reader skips every other pass.
    rest: bool,
}

impl Io {
    fn new(stream: UnixStream, read_at_once: usize) -> Io {
        stream.set_nonblocking(true).unwrap();
        Io { stream, read_at_once, rest: false }
    }
}

impl AsyncRead for Io {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        if std::mem::take(&mut self.rest) {
            return Poll::Pending;
        }
        let size = buffer.remaining().min(self.read_at_once);
        self.rest = self.read_at_once != usize::MAX;
        match self.stream.read(&mut buffer.initialize_unfilled()[..size]) {
            Ok(count) => {
                buffer.advance(count);
                Poll::Ready(Ok(()))
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => Poll::Pending,
            Err(e) => Poll::Ready(Err(e)),
        }
    }
}

impl AsyncWrite for Io {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        match self.stream.write(bytes) {
            Err(e) if e.kind() == ErrorKind::WouldBlock => Poll::Pending,
            result => Poll::Ready(result),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
