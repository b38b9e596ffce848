//! The alternative transport (a build feature), which uses gRPC's C-core. The C-core has its own sockets and threads,
//! so this module is a bridge: the main thread starts a call, one of grpcio's threads polls its future, and the
//! result reaches the event loop through a channel and an eventfd. The eventfd is not a `mio::Waker`, because a poll
//! can have only one, and the helper threads use it.
//!
//! There are no generated stubs: a method is its path and two functions that copy bytes. Deadlines are enforced here,
//! as in the other transport. A call whose deadline has passed is cancelled in the C-core, and a late answer is
//! ignored.

use super::wire;
use super::{Call, CallError, CallId, Completion, Transport};
use crate::api::time::Boot;
use ::grpcio::{
    CallOption, Channel, ChannelBuilder, Client, ConnectivityState, EnvBuilder, GrpcSlice, Marshaller, MessageReader,
    MetadataBuilder, Method, MethodType,
};
use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, unbounded};
use futures_core::Stream;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, poll_fn};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

/// Maximum number of completions that one drive takes from the channel.
const BUDGET: usize = 256;

/// The C-core's deadline is this much later than ours. It matters only while this process is stopped or the machine is
/// suspended.
const PEER_GRACE: Duration = Duration::from_secs(2);

/// Timeout of one wait for a change in the connection's state. After it, the wait is repeated.
const WATCH: Duration = Duration::from_secs(60);

/// The same values as in the other transport.
const FIRST_BACKOFF: Duration = Duration::from_millis(50);
const MAX_BACKOFF: Duration = Duration::from_secs(1);
const STREAM_WINDOW: i32 = 256 << 10;

pub struct GrpcioTransport {
    path: PathBuf,
    client: Client,
    bell: Arc<Bell>,
    answers: Receiver<ThreadMessage>,
    watch: Arc<Handle>,
    next_id: u64,
    told_up: Option<bool>,
    calls: BTreeMap<CallId, CallInFlight>,
    deadlines: BTreeSet<(Boot, CallId)>,
    /// Completions that the next drive returns.
    ended: Vec<Completion>,
}

struct CallInFlight {
    path: &'static str,
    deadline: Option<Boot>,
    handle: Arc<Handle>,
}

/// A message from grpcio's threads to the event loop.
enum ThreadMessage {
    State(ConnectivityState),
    Message(CallId, Bytes),
    End(CallId, Result<Bytes, CallError>),
}

/// Sends to the event loop and wakes it.
struct Bell {
    answers: Sender<ThreadMessage>,
    /// Never read: the poll is edge-triggered, so each write wakes it once.
    eventfd: OwnedFd,
}

impl Bell {
    fn send(&self, answer: ThreadMessage) {
        // Fails only after the transport was dropped. The answer does not matter then.
        if self.answers.send(answer).is_ok() {
            let _ = rustix::io::write(&self.eventfd, &1u64.to_ne_bytes());
        }
    }
}

/// Lets the main thread stop a future that runs on grpcio's threads.
#[derive(Default)]
struct Handle(Mutex<(bool, Option<Waker>)>);

impl Handle {
    fn stop(&self) {
        let waker = {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            state.0 = true;
            state.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Returns true if the future must end. Otherwise stores the waker of the task, so that `stop` can wake it.
    fn stopped(&self, cx: &Context<'_>) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.0 {
            state.1 = Some(cx.waker().clone());
        }
        state.0
    }
}

impl GrpcioTransport {
    /// Starts to connect to the unix socket at `path`. `token` becomes ready when `drive` must be called.
    ///
    /// # Errors
    /// The path is not UTF-8, or the eventfd cannot be created or registered.
    pub fn connect(path: &Path, registry: &Registry, token: Token) -> io::Result<GrpcioTransport> {
        let address = path.to_str().filter(|p| !p.contains('\0')).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("{}: not UTF-8, which gRPC requires", path.display()))
        })?;
        let eventfd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        registry.register(&mut SourceFd(&eventfd.as_raw_fd()), token, Interest::READABLE)?;
        let (sender, answers) = unbounded();
        let bell = Arc::new(Bell { answers: sender, eventfd });
        let environment = Arc::new(EnvBuilder::new().cq_count(1).name_prefix("grpc").build());
        let channel = ChannelBuilder::new(environment)
            .default_authority("localhost")
            .primary_user_agent(concat!("wherry/", env!("CARGO_PKG_VERSION")))
            .max_receive_message_len(i32::try_from(wire::MAX_MESSAGE).unwrap_or(i32::MAX))
            .max_send_message_len(-1)
            .stream_initial_window_size(STREAM_WINDOW)
            // Turn the probe off: it sends pings, and containerd's server answers frequent pings with GOAWAY.
            .http2_bdp_probe(false)
            .initial_reconnect_backoff(FIRST_BACKOFF)
            .max_reconnect_backoff(MAX_BACKOFF)
            // Turn retries off, because the engine decides whether to retry.
            .enable_retry(false)
            .enable_http_proxy(false)
            // Do not share a connection with another channel to the same address.
            .use_local_subchannel_pool(true)
            .connect(&format!("unix:{address}"));
        let client = Client::new(channel.clone());
        let watch = Arc::new(Handle::default());
        client.spawn(watch_state(channel, bell.clone(), watch.clone()));
        Ok(GrpcioTransport {
            path: path.to_path_buf(),
            client,
            bell,
            answers,
            watch,
            next_id: 0,
            told_up: None,
            calls: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            ended: Vec::new(),
        })
    }

    fn start(&mut self, id: CallId, call: Call, now: Boot) -> Result<(), CallError> {
        if call.body.len() > wire::MAX_MESSAGE {
            return Err(CallError::Refused(format!(
                "{}: {}",
                call.path,
                wire::over_limit(call.body.len(), wire::MAX_MESSAGE)
            )));
        }
        if self.told_up != Some(true) {
            return Err(CallError::NotSent(format!("{}: no connection", self.path.display())));
        }
        let mut options = CallOption::default();
        if let Some(deadline) = call.deadline {
            options = options.timeout(deadline.since(now) + PEER_GRACE);
        }
        if let Some((name, value)) = call.header {
            let mut metadata = MetadataBuilder::new();
            let added = metadata.add_str(name, value).map(|_| ());
            added.map_err(|e| CallError::Refused(format!("{}: {name}: {e}", call.path)))?;
            options = options.headers(metadata.build());
        }
        let messages = self.client.server_streaming(&method(call.path), &call.body, options);
        let mut messages = messages.map_err(|e| CallError::Refused(format!("{}: {e}", call.path)))?;
        let handle = Arc::new(Handle::default());
        let (bell, stop) = (self.bell.clone(), handle.clone());
        let mut only = None;
        self.client.spawn(poll_fn(move |cx| {
            loop {
                if stop.stopped(cx) {
                    messages.cancel();
                    return Poll::Ready(());
                }
                let end = match ready!(Pin::new(&mut messages).poll_next(cx)) {
                    Some(Ok(message)) if call.server_stream => {
                        bell.send(ThreadMessage::Message(id, message));
                        continue;
                    }
                    Some(Ok(message)) => {
                        if only.replace(message).is_none() {
                            continue;
                        }
                        messages.cancel();
                        Err(CallError::Unknown(format!("{}: more than one message in the response", call.path)))
                    }
                    Some(Err(e)) => Err(failed(call.path, e)),
                    None if call.server_stream => Ok(Bytes::new()),
                    None => only
                        .take()
                        .ok_or_else(|| CallError::Unknown(format!("{}: the response has no message", call.path))),
                };
                bell.send(ThreadMessage::End(id, end));
                return Poll::Ready(());
            }
        }));
        if let Some(deadline) = call.deadline {
            self.deadlines.insert((deadline, id));
        }
        self.calls.insert(id, CallInFlight { path: call.path, deadline: call.deadline, handle });
        Ok(())
    }

    fn forget(&mut self, id: CallId) -> Option<CallInFlight> {
        let call = self.calls.remove(&id)?;
        if let Some(deadline) = call.deadline {
            self.deadlines.remove(&(deadline, id));
        }
        Some(call)
    }

    fn state_changed(&mut self, state: ConnectivityState, out: &mut Vec<Completion>) {
        match state {
            ConnectivityState::GRPC_CHANNEL_READY => {
                if self.told_up != Some(true) {
                    self.told_up = Some(true);
                    out.push(Completion::Up);
                }
            }
            // Still connecting, for the first time or after a loss that was reported.
            ConnectivityState::GRPC_CHANNEL_IDLE | ConnectivityState::GRPC_CHANNEL_CONNECTING
                if self.told_up != Some(true) => {}
            _ => {
                if self.told_up != Some(false) {
                    self.told_up = Some(false);
                    out.push(Completion::Down { why: self.why_down() });
                }
            }
        }
    }

    /// Returns why the connection is down. The C-core does not report a reason, so this function tries to connect a
    /// plain socket to find it.
    fn why_down(&self) -> String {
        match mio::net::UnixStream::connect(&self.path) {
            Ok(_) => format!("{}: connection lost", self.path.display()),
            Err(e) => format!("{}: connect: {e}", self.path.display()),
        }
    }
}

impl Drop for GrpcioTransport {
    fn drop(&mut self) {
        self.watch.stop();
        for call in self.calls.values() {
            call.handle.stop();
        }
    }
}

impl Transport for GrpcioTransport {
    fn call(&mut self, call: Call, now: Boot) -> CallId {
        let id = CallId(self.next_id);
        self.next_id += 1;
        if let Err(e) = self.start(id, call, now) {
            self.ended.push(Completion::Done { id, result: Err(e) });
        }
        id
    }

    fn cancel(&mut self, id: CallId) {
        if let Some(call) = self.forget(id) {
            call.handle.stop();
            self.ended.push(Completion::Done { id, result: Err(CallError::Unknown("cancelled".to_string())) });
        }
    }

    fn drive(&mut self, now: Boot, out: &mut Vec<Completion>) -> bool {
        let mut taken = 0;
        while taken < BUDGET
            && let Ok(answer) = self.answers.try_recv()
        {
            taken += 1;
            match answer {
                ThreadMessage::State(state) => self.state_changed(state, out),
                ThreadMessage::Message(id, message) if self.calls.contains_key(&id) => {
                    out.push(Completion::Message { id, message });
                }
                ThreadMessage::End(id, result) if self.forget(id).is_some() => {
                    out.push(Completion::Done { id, result })
                }
                // The call was cancelled or its deadline passed.
                ThreadMessage::Message(..) | ThreadMessage::End(..) => {}
            }
        }
        while let Some((_, id)) = self.deadlines.first().copied().filter(|(at, _)| *at <= now) {
            if let Some(call) = self.forget(id) {
                call.handle.stop();
                let why = format!("{}: deadline exceeded", call.path);
                out.push(Completion::Done { id, result: Err(CallError::Unknown(why)) });
            }
        }
        out.append(&mut self.ended);
        taken == BUDGET
    }

    fn next_deadline(&self) -> Option<Boot> {
        if !self.ended.is_empty() {
            return Some(Boot(0));
        }
        self.deadlines.first().map(|(at, _)| *at)
    }

    fn is_up(&self) -> bool {
        self.told_up == Some(true)
    }
}

/// Reports each change of the connection's state to the event loop, and makes an idle C-core reconnect.
async fn watch_state(channel: Channel, bell: Arc<Bell>, handle: Arc<Handle>) {
    let mut reported = None;
    loop {
        let state = channel.check_connectivity_state(true);
        if reported != Some(state) {
            reported = Some(state);
            bell.send(ThreadMessage::State(state));
        }
        let mut change = pin!(channel.wait_for_state_change(state, WATCH));
        let stopped =
            poll_fn(|cx| if handle.stopped(cx) { Poll::Ready(true) } else { change.as_mut().poll(cx).map(|_| false) });
        if stopped.await {
            return;
        }
    }
}

/// Declares every method as a server stream, which is the same on the wire for unary calls. grpcio's own unary call
/// panics in a thread of the C-core if an answer has no message.
fn method(path: &'static str) -> Method<Bytes, Bytes> {
    let marshaller = || Marshaller { ser: to_slice, de: from_reader };
    Method { ty: MethodType::ServerStreaming, name: path, req_mar: marshaller(), resp_mar: marshaller() }
}

fn to_slice(bytes: &Bytes, slice: &mut GrpcSlice) -> ::grpcio::Result<()> {
    *slice = GrpcSlice::from(&bytes[..]);
    Ok(())
}

fn from_reader(mut reader: MessageReader) -> ::grpcio::Result<Bytes> {
    let mut bytes = Vec::with_capacity(reader.len());
    reader.read_to_end(&mut bytes).map_err(|e| ::grpcio::Error::Codec(Box::new(e)))?;
    Ok(bytes.into())
}

/// Message prefixes of the C-core (1.56) for failures of the connection. The C-core reports every failure as a
/// status, so only the message distinguishes these failures from a status of the peer.
const BEFORE_SENDING: [&str; 2] = ["failed to connect", "connections to all backends failing"];
const REFUSED: &str = "Received RST_STREAM with error code 7";
const OF_THE_CONNECTION: [&str; 9] = [
    "Socket closed",
    "Received RST_STREAM",
    "Stream removed",
    "GOAWAY received",
    "Connection reset by peer",
    "Broken pipe",
    "Endpoint read failed",
    "Transport closed",
    "CLIENT: Received message larger than max",
];

fn failed(path: &str, error: ::grpcio::Error) -> CallError {
    let status = match error {
        ::grpcio::Error::RpcFailure(status) | ::grpcio::Error::RpcFinished(Some(status)) => status,
        other => return CallError::Unknown(format!("{path}: {other}")),
    };
    let message = status.message();
    let starts = |text: &&str| message.starts_with(*text);
    if BEFORE_SENDING.iter().any(starts) {
        CallError::NotSent(format!("{path}: {message}"))
    } else if message.starts_with(REFUSED) {
        CallError::Refused(format!("{path}: {message}"))
    } else if OF_THE_CONNECTION.iter().any(starts) {
        CallError::Unknown(format!("{path}: {message}"))
    } else {
        let code = u32::try_from(i32::from(status.code())).unwrap_or(2);
        CallError::Status { code, message: message.to_string() }
    }
}
