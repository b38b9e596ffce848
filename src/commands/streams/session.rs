//! The standard streams of a process in a container, over one connection: those of a command (`exec`) or of the
//! container's own process (`attach`).

use super::REMOTE_COMMAND;
use super::connection::{ReadProgress, SpdyConnection};
use crate::api::control::StreamChannels;
use crate::net::spdy::{SpdyEvent, StreamId};
use rustix::event::PollFlags;
use serde::Deserialize;
use std::os::fd::{AsFd, BorrowedFd};

/// Maximum length of the result, in bytes.
const MAX_RESULT: usize = 64 * 1024;

pub struct Session {
    connection: SpdyConnection,
    streams: Streams,
    result: Vec<u8>,
    /// The result of the session, once the process or the runtime's stream has ended.
    end: Option<End>,
}

/// The streams in the order in which a runtime expects them.
#[derive(Clone, Copy, Debug)]
struct Streams {
    error: StreamId,
    /// The input of the process. None if it was not requested, or is closed.
    stdin: Option<StreamId>,
    stdout: Option<StreamId>,
    stderr: Option<StreamId>,
    resize: Option<StreamId>,
}

/// The output of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    Stdout,
    Stderr,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The exit code of the command. Also 0 after an attach has ended.
    Exited(i32),
    /// The runtime's message: the command could not be started, or its result is unknown.
    Failed(String),
}

/// The fields that are needed from the `Status` in which the runtime reports the result.
#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Status {
    status: String,
    message: String,
    reason: String,
    details: Details,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Details {
    causes: Vec<Cause>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Cause {
    reason: String,
    message: String,
}

impl Session {
    /// Connects to the URL and opens the streams that were requested along with the URL.
    ///
    /// # Errors
    /// See `SpdyConnection::start`.
    pub fn start(url: &str, channels: StreamChannels) -> Result<Session, String> {
        let mut connection = SpdyConnection::start(url, REMOTE_COMMAND)?;
        let streams = Streams::open(&mut connection, channels).ok_or("a new connection has no streams")?;
        Ok(Session { connection, streams, result: Vec::new(), end: None })
    }

    /// Returns the result, once the process has ended and its output is complete.
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// Reports whether all outputs have ended. The result normally follows immediately.
    pub fn has_no_output(&self) -> bool {
        self.streams.stdout.is_none() && self.streams.stderr.is_none()
    }

    /// Returns the number of bytes of input that have not been sent yet.
    pub fn queued(&self) -> usize {
        self.connection.queued()
    }

    pub fn interest(&self) -> PollFlags {
        self.connection.interest(true)
    }

    pub fn send_stdin(&mut self, bytes: &[u8]) {
        if let Some(stdin) = self.streams.stdin {
            self.connection.data(stdin, bytes);
        }
    }

    /// Closes the stdin of the process, so that it reads the end of its input.
    pub fn close_stdin(&mut self) {
        if let Some(stdin) = self.streams.stdin.take() {
            self.connection.end(stdin);
        }
    }

    /// Sets the size of the process's terminal, in characters.
    pub fn resize(&mut self, columns: u16, rows: u16) {
        if let Some(resize) = self.streams.resize {
            let size = format!("{{\"Width\":{columns},\"Height\":{rows}}}\n");
            self.connection.data(resize, size.as_bytes());
        }
    }

    /// Sends and reads without blocking. Returns true if it must be called again without waiting.
    ///
    /// # Errors
    /// The connection is lost, or the server refuses it.
    pub fn drive(&mut self, on: &mut dyn FnMut(Output, &[u8])) -> Result<bool, String> {
        // If the send fails because the server has closed the connection, the result may still be readable.
        let sent = self.connection.send();
        let (streams, result, mut ended) = (self.streams, &mut self.result, false);
        let (mut stdin_ended, mut outputs) = (false, self.streams);
        let progress = self.connection.read(&mut |event| match event {
            SpdyEvent::Data { stream, bytes } if stream == streams.error => {
                let room = MAX_RESULT - result.len();
                result.extend_from_slice(&bytes[..bytes.len().min(room)]);
            }
            SpdyEvent::Data { stream, bytes } if Some(stream) == streams.stdout => on(Output::Stdout, bytes),
            SpdyEvent::Data { stream, bytes } if Some(stream) == streams.stderr => on(Output::Stderr, bytes),
            SpdyEvent::End { stream } if stream == streams.error => ended = true,
            // containerd resets the stream after the result instead of ending it.
            SpdyEvent::Reset { stream, .. } if stream == streams.error => ended |= !result.is_empty(),
            // The process has closed its input: further input would be lost anyway.
            SpdyEvent::Reset { stream, .. } if Some(stream) == streams.stdin => stdin_ended = true,
            SpdyEvent::End { stream } | SpdyEvent::Reset { stream, .. } => outputs.ended(stream),
            _ => {}
        });
        if stdin_ended {
            self.streams.stdin = None;
        }
        self.streams.stdout = outputs.stdout;
        self.streams.stderr = outputs.stderr;
        if ended {
            self.end = Some(end(&self.result));
        }
        if self.end.is_some() {
            return Ok(false);
        }
        let progress = progress?;
        sent?;
        match progress {
            ReadProgress::Closed => Err("the runtime closed the connection before the end".to_owned()),
            progress => Ok(progress == ReadProgress::Again),
        }
    }
}

impl AsFd for Session {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

impl Streams {
    /// Notes that an output has ended.
    fn ended(&mut self, stream: StreamId) {
        for output in [&mut self.stdout, &mut self.stderr] {
            if *output == Some(stream) {
                *output = None;
            }
        }
    }

    fn open(connection: &mut SpdyConnection, channels: StreamChannels) -> Option<Streams> {
        let mut open = |wanted: bool, kind: &str| match wanted {
            true => connection.open(&[("streamtype", kind)]).map(Some),
            false => Some(None),
        };
        let StreamChannels { stdin, stdout, stderr, tty } = channels;
        let error = open(true, "error")??;
        Some(Streams {
            error,
            stdin: open(stdin, "stdin")?,
            stdout: open(stdout, "stdout")?,
            stderr: open(stderr, "stderr")?,
            resize: open(tty, "resize")?,
        })
    }
}

/// Parses the result that the runtime sent. An empty result is a success, as in kubectl.
fn end(result: &[u8]) -> End {
    if result.is_empty() {
        return End::Exited(0);
    }
    let Ok(status) = serde_json::from_slice::<Status>(result) else {
        return End::Failed(String::from_utf8_lossy(result).trim().to_owned());
    };
    if status.status == "Success" {
        return End::Exited(0);
    }
    let code = status.details.causes.iter().find(|cause| cause.reason == "ExitCode");
    match (status.reason.as_str(), code.and_then(|cause| cause.message.parse().ok())) {
        ("NonZeroExitCode", Some(code)) => End::Exited(code),
        _ if status.message.is_empty() => End::Failed("the runtime reports a failure without a reason".to_owned()),
        _ => End::Failed(status.message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_is_an_exit_code_or_a_message() {
        let exited = r#"{"metadata":{},"status":"Failure",
            "message":"command terminated with non-zero exit code","reason":"NonZeroExitCode",
            "details":{"causes":[{"reason":"ExitCode","message":"3"}]}}"#;
        let failed = r#"{"status":"Failure","message":"executable file not found in $PATH",
            "reason":"InternalError","details":{"causes":[{"message":"x"}]},"code":500}"#;
        let failed_as = |words: &str| End::Failed(words.to_owned());
        for (result, expected) in [
            ("", End::Exited(0)),
            (r#"{"metadata":{},"status":"Success"}"#, End::Exited(0)),
            (exited, End::Exited(3)),
            (failed, failed_as("executable file not found in $PATH")),
            (r#"{"status":"Failure"}"#, failed_as("the runtime reports a failure without a reason")),
            (r#"{"status":"Failure","reason":"NonZeroExitCode","message":"odd"}"#, failed_as("odd")),
            ("container is not running\n", failed_as("container is not running")),
        ] {
            assert_eq!(end(result.as_bytes()), expected, "{result}");
        }
    }
}
