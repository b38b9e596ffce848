//! Writes responses, and the pieces of streamed bodies.

use super::outcome::{AfterWrite, DriveOutcome};
use super::reading::DISCARD_BUDGET;
use super::{
    ANSWER_TIMEOUT, ConnectionPhase, HEAD_TIMEOUT, HttpConnection, IDLE_TIMEOUT, SESSION_TIMEOUT, Streaming, Turn,
    WRITE_BUDGET,
};
use crate::api::time::Boot;
use crate::net::buffered::Written;
use crate::net::http1::{self, Framing, Head};
use crate::net::server::connection::pipe::Pipe;
use crate::net::server::exchange::{Body, Content, Part, Response, StreamedBody, Upstream};
use crate::net::stream::Peer;
use std::time::Duration;

/// Pieces of a body are combined up to this size, in bytes.
const GATHER: usize = 16 * 1024;
/// The maximum number of pieces of a body that are combined.
const MAX_PIECES: usize = 8;

impl<S: StreamedBody> Streaming<S> {
    /// Appends pieces of the body, about `GATHER` bytes.
    fn pieces(&mut self, content: &mut dyn Content<Stream = S>, out: &mut Vec<u8>) -> Part {
        let mut part = Part::More;
        // A piece can be empty, because the lines that were read may not match the client's request.
        for _ in 0..MAX_PIECES {
            if part != Part::More || out.len() >= GATHER {
                break;
            }
            if self.chunked {
                http1::chunk(out, |out| part = content.next(&mut self.body, out));
            } else {
                part = content.next(&mut self.body, out);
            }
        }
        part
    }
}

impl<S: StreamedBody> HttpConnection<S> {
    /// Starts to write a response.
    pub(super) fn begin_answer(&mut self, response: Response<S>, head: &Head, now: Boot) {
        let Response { status, content_type, headers, body, until: _ } = response;
        let (framing, reuses) = match &body {
            Body::Full(bytes) => (Framing::Length(bytes.len()), true),
            Body::Stream(_) if head.http10 => (Framing::Close, false),
            Body::Stream(_) => (Framing::Chunked, true),
            // A deferred response cannot be deferred again. `Content` never does that.
            Body::Later | Body::Upgrade(_) => (Framing::Length(0), false),
        };
        let keep = reuses && head.keep_alive && !self.end_of_input && status != 401;
        let mut out = http1::response_head(status, content_type, framing, Some(head), keep, &headers);
        let mut rest = None;
        match body {
            Body::Upgrade(upstream) => return self.upgrade(upstream, now),
            _ if head.is_head => {}
            Body::Later => {}
            Body::Full(bytes) if bytes.len() <= GATHER => out.extend_from_slice(&bytes),
            Body::Full(bytes) => {
                self.stream.push(std::mem::take(&mut out));
                self.stream.push(bytes);
            }
            Body::Stream(body) => rest = Some(Streaming { body, chunked: !head.http10 }),
        }
        self.stream.push(out);
        match rest {
            // A watch may take any time, even before it waits for the first change.
            Some(rest) if rest.body.is_watch() => {
                (self.progress, self.deadline) = (now, None);
                self.state = ConnectionPhase::Following { rest, keep };
            }
            rest => self.await_writing(keep, rest, now),
        }
    }

    fn upgrade(&mut self, upstream: Upstream, now: Boot) {
        self.progress = now;
        let name = upstream.name;
        self.state = match Pipe::new(upstream, std::mem::take(&mut self.input)) {
            Ok(pipe) => {
                self.deadline = Some(now + SESSION_TIMEOUT);
                ConnectionPhase::Piping(Box::new(pipe))
            }
            Err(e) => ConnectionPhase::NotUpgraded { why: format!("cannot connect to {name}: {e}") },
        };
    }

    /// Returns the maximum time without a successful write of a response.
    fn stall_timeout(&self) -> Duration {
        match self.peer {
            Peer::User(0) => self.rules.stall_timeout.max(ANSWER_TIMEOUT),
            _ => self.rules.stall_timeout,
        }
    }

    fn await_writing(&mut self, keep: bool, rest: Option<Streaming<S>>, now: Boot) {
        let timeout = if rest.is_some() { self.rules.stream_timeout } else { ANSWER_TIMEOUT };
        self.progress = now;
        self.deadline = Some(now + self.stall_timeout());
        self.state = ConnectionPhase::Answering { keep, rest, by: now + timeout };
    }

    /// Writes a refusal, and closes the connection after it.
    pub(super) fn refuse(&mut self, response: Response<S>, now: Boot) {
        let Response { status, content_type, headers, body, .. } = response;
        let body = if let Body::Full(body) = body { body } else { Default::default() };
        let mut out = http1::response_head(status, content_type, Framing::Length(body.len()), None, false, &headers);
        out.extend_from_slice(&body);
        self.stream.push(out);
        self.await_writing(false, None, now);
    }

    /// Writes queued data of a response. Progress extends the deadline, at most to `by`.
    pub(super) fn write_answer(&mut self, by: Boot, written: &mut usize, now: Boot) -> Written {
        let before = *written;
        let outcome = self.stream.write(written, WRITE_BUDGET);
        if *written > before {
            self.progress = now;
            self.deadline = Some(by.min(now + self.stall_timeout()));
        }
        outcome
    }

    /// Queues more of the body, or changes the state. Called when all output is written.
    pub(super) fn written(&mut self, turn: &mut Turn<'_, S>) -> AfterWrite {
        let ConnectionPhase::Answering { keep, rest, by } = &mut self.state else { return AfterWrite::GoOn };
        let (keep, by) = (*keep, *by);
        if let Some(mut rest) = rest.take() {
            let mut out = Vec::new();
            let part = rest.pieces(turn.content, &mut out);
            let next = if part == Part::More && out.is_empty() { AfterWrite::Yield } else { AfterWrite::GoOn };
            self.stream.push(out);
            self.state = match part {
                Part::End => {
                    self.end_body(rest.chunked);
                    ConnectionPhase::Answering { keep, rest: None, by }
                }
                Part::Wait => ConnectionPhase::Following { rest, keep },
                Part::More => ConnectionPhase::Answering { keep, rest: Some(rest), by },
            };
            return next;
        }
        if keep {
            self.state = ConnectionPhase::Reading;
            self.answered = true;
            self.progress = turn.now;
            let timeout = if self.input.is_empty() { IDLE_TIMEOUT } else { HEAD_TIMEOUT };
            self.deadline = Some(turn.now + timeout);
            return AfterWrite::GoOn;
        }
        if self.end_of_input || self.input.is_empty() || self.stream.stream().finish().is_err() {
            return AfterWrite::Close;
        }
        self.input = Vec::new();
        self.deadline = Some(turn.now + self.rules.drain.1);
        self.state = ConnectionPhase::Draining { bytes: 0 };
        AfterWrite::GoOn
    }

    /// Queues the end of the body as its own write, and thus as its own TLS record. A client in Go that reads the end
    /// of the body together with data can lose the data, as an API server does when it copies the body to a WebSocket.
    fn end_body(&mut self, chunked: bool) {
        if chunked {
            self.stream.push(http1::LAST_CHUNK);
        }
    }

    /// Writes the new data of a body that waits for changes.
    pub(super) fn follow(&mut self, written: &mut usize, turn: &mut Turn<'_, S>) -> DriveOutcome {
        let (before, now) = (*written, turn.now);
        loop {
            match self.stream.write(written, WRITE_BUDGET) {
                Written::All => {}
                Written::Broken => return DriveOutcome::Close,
                Written::Budget => return DriveOutcome::Again,
                Written::Blocked => {
                    self.is_stalled(*written > before, now);
                    break;
                }
            }
            let ConnectionPhase::Following { rest, keep } = &mut self.state else { return DriveOutcome::Close };
            let mut out = Vec::new();
            let part = rest.pieces(turn.content, &mut out);
            let (next, keep, chunked) = (rest.body.next_deadline(), *keep, rest.chunked);
            let is_idle = out.is_empty();
            self.stream.push(out);
            if part == Part::End {
                self.end_body(chunked);
                self.await_writing(keep, None, now);
                // The state has changed.
                return DriveOutcome::Again;
            }
            match (is_idle, part) {
                (true, Part::More) => return DriveOutcome::Again,
                (true, _) => {
                    self.deadline = next;
                    break;
                }
                (false, _) => {}
            }
        }
        if *written > before {
            self.progress = now;
        }
        if self.stream.discard(DISCARD_BUDGET).is_none() { DriveOutcome::Close } else { DriveOutcome::Wait }
    }

    /// Sets the deadline for a client that does not read a body that waits for changes. Progress extends the
    /// deadline.
    fn is_stalled(&mut self, has_progress: bool, now: Boot) {
        let timeout = self.rules.watch_stall_timeout;
        if has_progress || timeout.is_none() {
            self.deadline = None;
        }
        self.deadline = self.deadline.or(timeout.map(|timeout| now + timeout));
    }
}
