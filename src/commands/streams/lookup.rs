//! Requests a URL from the agent without blocking, for a command that serves other connections meanwhile.

use crate::api::control::{StreamKind, StreamRequest, StreamUrl};
use crate::api::kube::pod_row::text;
use crate::commands::select::PodTarget;
use crate::commands::streams::url;
use mio::net::UnixStream;
use rustix::event::PollFlags;
use serde_json::Value;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

/// Maximum length of a response, in bytes. The largest response is a list of pods with their specs.
const MAX_ANSWER: usize = 64 << 20;

/// A request for a URL. If the pod's UID is no longer known, because its manifest has changed, the pod is found by
/// its name.
pub struct Lookup {
    socket: PathBuf,
    target: PodTarget,
    request: StreamRequest,
    step: LookupStep,
    exchange: Exchange,
}

enum LookupStep {
    /// Requests the URL.
    Url,
    /// Reads the list of pods, because the URL was refused for this reason.
    Pods { refused: String },
    /// Requests the URL for the pod that was found in the list.
    Again,
}

impl Lookup {
    /// Starts to request a URL.
    ///
    /// # Errors
    /// The agent is not running.
    pub fn start(socket: &Path, target: &PodTarget, uid: &str, kind: StreamKind) -> Result<Lookup, String> {
        let request = StreamRequest { uid: uid.to_owned(), kind };
        let exchange = Exchange::of_url(socket, &request)?;
        Ok(Lookup { socket: socket.to_owned(), target: target.clone(), request, step: LookupStep::Url, exchange })
    }

    pub fn interest(&self) -> PollFlags {
        if self.exchange.unsent.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT }
    }

    /// Continues the request. Returns the URL and the pod's UID when they are known.
    ///
    /// # Errors
    /// The agent refuses the request, or the connection to it is lost.
    pub fn drive(&mut self) -> Result<Option<(String, String)>, String> {
        while let Some((status, body)) = self.exchange.drive().map_err(|e| cannot(&self.socket, &e))? {
            let words = || String::from_utf8_lossy(&body).trim().to_owned();
            match (&mut self.step, status) {
                (LookupStep::Url | LookupStep::Again, 200) => {
                    let invalid = |e| format!("/stream: invalid response: {e}");
                    let StreamUrl { url } = serde_json::from_slice(&body).map_err(invalid)?;
                    return Ok(Some((url, self.request.uid.clone())));
                }
                // The pod does not exist or is not running. Another version of it may be running.
                (LookupStep::Url, 404 | 409) => {
                    self.step = LookupStep::Pods { refused: words() };
                    self.exchange = Exchange::start(&self.socket, "GET /pods HTTP/1.0\r\n\r\n")?;
                }
                (LookupStep::Pods { refused }, 200) => {
                    let refused = std::mem::take(refused);
                    let mut pods: Value = serde_json::from_slice(&body).map_err(|e| format!("/pods: {e}"))?;
                    let pod = self.target.find(&mut pods).ok().and_then(url::choose);
                    let uid = pod.map(|pod| text(&pod, "/metadata/uid").to_owned());
                    let Some(uid) = uid.filter(|uid| *uid != self.request.uid) else { return Err(refused) };
                    self.request.uid = uid;
                    self.step = LookupStep::Again;
                    self.exchange = Exchange::of_url(&self.socket, &self.request)?;
                }
                _ => return Err(words()),
            }
        }
        Ok(None)
    }
}

impl AsFd for Lookup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.exchange.socket.as_fd()
    }
}

fn cannot(socket: &Path, e: &io::Error) -> String {
    format!("cannot request a stream from wherry at {}: {e}; is it running?", socket.display())
}

/// One request and its response, over HTTP/1.0: the response ends when the connection is closed.
struct Exchange {
    socket: UnixStream,
    unsent: Vec<u8>,
    received: Vec<u8>,
}

impl Exchange {
    fn start(path: &Path, request: &str) -> Result<Exchange, String> {
        let socket = UnixStream::connect(path).map_err(|e| cannot(path, &e))?;
        Ok(Exchange { socket, unsent: request.as_bytes().to_vec(), received: Vec::new() })
    }

    fn of_url(path: &Path, request: &StreamRequest) -> Result<Exchange, String> {
        let body = serde_json::to_string(request).map_err(|e| e.to_string())?;
        Exchange::start(
            path,
            &format!(
                "POST /stream HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            ),
        )
    }

    /// Sends and reads without blocking. Returns the status and the body once they are complete.
    fn drive(&mut self) -> io::Result<Option<(u16, Vec<u8>)>> {
        while !self.unsent.is_empty() {
            match self.socket.write(&self.unsent) {
                Ok(n) => drop(self.unsent.drain(..n)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(e) => return Err(e),
            }
        }
        let mut buffer = [0; 16 * 1024];
        loop {
            match self.socket.read(&mut buffer) {
                Ok(0) => break,
                Ok(_) if self.received.len() > MAX_ANSWER => return Err(io::Error::other("the response is too long")),
                Ok(n) => self.received.extend_from_slice(&buffer[..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        let mut headers = [httparse::EMPTY_HEADER; 32];
        let mut response = httparse::Response::new(&mut headers);
        match response.parse(&self.received) {
            Ok(httparse::Status::Complete(n)) => Ok(Some((response.code.unwrap_or(0), self.received.split_off(n)))),
            _ => Err(ErrorKind::UnexpectedEof.into()),
        }
    }
}
