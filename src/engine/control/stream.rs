//! URLs of streams: the checks of a request for an exec, an attach or a port-forward, and the calls in flight.
//!
//! The engine only requests the URL. The client connects to the runtime's streaming server itself, so a stream needs no
//! memory of the agent and continues when the agent is restarted.

use super::error::RequestError;
use super::exec::Command;
use super::limits::MAX_STREAM_CALLS;
use super::request_id::RequestId;
use crate::api::names::{ContainerId, FullName, SandboxId, Uid};
use crate::api::pod::Pod;
use crate::engine::op::{OpError, OpId};
use serde::Serialize;
use std::collections::BTreeMap;
use std::rc::Rc;

/// A request for the URL of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamRequest {
    /// The pod.
    pub uid: Uid,
    pub kind: StreamKind,
}

/// `container`: None for the container that the pod's annotation names, or else the first one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamKind {
    /// Run a command. It runs when a client connects to the URL.
    Exec { container: Option<String>, command: Command, stdin: bool, stdout: bool, stderr: bool, tty: bool },
    /// The streams of the container's own process.
    Attach { container: Option<String>, stdin: bool, stdout: bool, stderr: bool, tty: bool, terminal: Terminal },
    /// Connections to ports of the pod. The ports matter only for a WebSocket client; a SPDY client names the port of
    /// each connection itself.
    PortForward { ports: Vec<u16> },
}

/// What happens if a client and the container differ in `tty` or `stdin`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terminal {
    /// The client gets an error.
    AsRequested,
    /// The container decides whether there is a terminal, as in a kubelet. Input for a container without `stdin` is
    /// lost.
    OfContainer,
}

/// The call that requests the URL.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamCall {
    pub pod: Rc<Pod>,
    pub target: StreamTarget,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamTarget {
    /// `container` is the name in the spec.
    Exec {
        container: String,
        id: ContainerId,
        command: Command,
        channels: Channels,
    },
    Attach {
        container: String,
        id: ContainerId,
        channels: Channels,
    },
    PortForward {
        sandbox: SandboxId,
        ports: Vec<u16>,
    },
}

/// The standard streams that a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channels {
    pub stdin: bool,
    pub stdout: bool,
    /// Standard error. Never with a terminal, which has one output.
    pub stderr: bool,
    pub tty: bool,
}

impl StreamRequest {
    /// # Errors
    /// The request cannot be carried out, whatever the state of the pod.
    pub fn check(&self) -> Result<(), RequestError> {
        let (stdin, stdout, stderr, tty) = match &self.kind {
            StreamKind::Exec { command, stdin, stdout, stderr, tty, .. } => {
                command.check()?;
                (*stdin, *stdout, *stderr, *tty)
            }
            // A terminal of the container has one output, whatever the client asks for.
            StreamKind::Attach { stdin, stdout, stderr, terminal: Terminal::OfContainer, .. } => {
                (*stdin, *stdout, *stderr, false)
            }
            StreamKind::Attach { stdin, stdout, stderr, tty, .. } => (*stdin, *stdout, *stderr, *tty),
            StreamKind::PortForward { ports } if ports.contains(&0) => return Err(RequestError::PortZero),
            StreamKind::PortForward { .. } => return Ok(()),
        };
        match (stdin || stdout || stderr, tty && stderr) {
            (false, _) => Err(RequestError::NoStream),
            (true, true) => Err(RequestError::TerminalWithStderr),
            (true, false) => Ok(()),
        }
    }
}

/// Checks an attach against the spec of its container. A process without an open stdin never reads what a client
/// sends, and the single output of a terminal cannot be read as two streams, nor the reverse.
///
/// # Errors
/// The container has no such stream.
pub fn check_attach(pod: &Pod, container: &str, channels: Channels) -> Result<(), RequestError> {
    let spec = pod.container(container);
    let (stdin, tty) = spec.map_or((false, false), |c| (c.stdin.unwrap_or(false), c.tty.unwrap_or(false)));
    let (pod, container): (FullName, _) = (pod.name.clone(), container.to_owned());
    match channels {
        Channels { tty: true, .. } if !tty => Err(RequestError::NoTerminal { pod, container }),
        Channels { tty: false, .. } if tty => Err(RequestError::OnlyTerminal { pod, container }),
        Channels { stdin: true, .. } if !stdin => Err(RequestError::NoStdin { pod, container }),
        _ => Ok(()),
    }
}

/// Returns the streams of an attach for which the container decides whether there is a terminal.
pub fn as_container(pod: &Pod, container: &str, channels: Channels) -> Channels {
    let tty = pod.container(container).and_then(|spec| spec.tty).unwrap_or(false);
    Channels { tty, stderr: channels.stderr && !tty, ..channels }
}

/// Returns the error of a call that returned no URL.
pub fn failure(e: &OpError) -> RequestError {
    match e {
        OpError::NotSent(why) => RequestError::NotConnected { why: why.clone() },
        e if e.is_timeout() => RequestError::StreamTimedOut,
        e => RequestError::StreamFailed { why: e.message().to_owned() },
    }
}

/// The calls that have not ended.
#[derive(Debug, Default, Serialize)]
pub struct StreamCalls {
    /// None: the client has disconnected, and the call is cancelled. It counts against the limit until it ends.
    open: BTreeMap<OpId, Option<RequestId>>,
}

impl StreamCalls {
    pub fn has_room(&self) -> bool {
        self.open.len() < MAX_STREAM_CALLS
    }

    pub fn begun(&mut self, op: OpId, request: RequestId) {
        self.open.insert(op, Some(request));
    }

    /// Handles the end of a call. Returns its request, unless its client has disconnected.
    pub fn ended(&mut self, op: OpId) -> Option<RequestId> {
        self.open.remove(&op).flatten()
    }

    /// Notes that a client has disconnected. Returns the call to cancel.
    pub fn gone(&mut self, request: RequestId) -> Option<OpId> {
        let (op, open) = self.open.iter_mut().find(|(_, open)| **open == Some(request))?;
        *open = None;
        Some(*op)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::op::Code;

    fn request(kind: StreamKind) -> StreamRequest {
        StreamRequest { uid: Uid::from("u"), kind }
    }

    #[test]
    fn the_words_of_a_command_are_not_shown() {
        let command = Command(vec!["login".to_owned(), "--password=secret".to_owned()]);
        let (stdin, stdout, stderr, tty) = (true, true, false, true);
        let request = request(StreamKind::Exec { container: None, command, stdin, stdout, stderr, tty });
        assert_eq!(request.check(), Ok(()));
        let shown = format!("{request:?}");
        assert!(shown.contains("Command(2 words)") && !shown.contains("secret") && !shown.contains("login"), "{shown}");
    }

    #[test]
    fn a_stream_has_at_least_one_direction_and_a_terminal_has_one_output() {
        let attach = |stdin, stdout, stderr, tty| {
            let terminal = Terminal::AsRequested;
            request(StreamKind::Attach { container: None, stdin, stdout, stderr, tty, terminal }).check()
        };
        assert_eq!(attach(true, true, false, true), Ok(()));
        assert_eq!(attach(false, false, true, false), Ok(()));
        assert_eq!(attach(false, false, false, true), Err(RequestError::NoStream));
        assert_eq!(attach(true, true, true, true), Err(RequestError::TerminalWithStderr));
        let forward = |ports: &[u16]| request(StreamKind::PortForward { ports: ports.to_vec() }).check();
        assert_eq!(forward(&[80, 0]), Err(RequestError::PortZero));
        assert_eq!((forward(&[80, 443]), forward(&[])), (Ok(()), Ok(())));
    }

    #[test]
    fn each_failure_of_a_call_has_its_status() {
        let answered = OpError::Answered { code: Code::Other(2), message: "container is not running".to_owned() };
        for (e, status, words) in [
            (OpError::NotSent("no such file".into()), 503, "there is no connection to the container runtime: no such"),
            (OpError::Unknown("context deadline exceeded".into()), 504, "the container runtime did not respond within"),
            (answered, 502, "the container runtime offers no stream: container is not running"),
        ] {
            let error = failure(&e);
            assert!(error.status() == status && error.to_string().starts_with(words), "{e}: {error}");
        }
    }

    #[test]
    fn a_cancelled_call_counts_until_its_end() {
        let mut calls = StreamCalls::default();
        (0..MAX_STREAM_CALLS as u64).for_each(|n| calls.begun(OpId(n), RequestId(n + 100)));
        assert!(!calls.has_room());
        assert_eq!((calls.gone(RequestId(103)), calls.gone(RequestId(103))), (Some(OpId(3)), None));
        assert!(!calls.has_room());
        assert_eq!((calls.ended(OpId(3)), calls.ended(OpId(4))), (None, Some(RequestId(104))));
        assert!(calls.has_room());
    }
}
