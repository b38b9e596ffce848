//! Reads requests, passes them to the content, and discards the input that no one needs.

use super::outcome::DriveOutcome;
use super::{ConnectionPhase, HEAD_TIMEOUT, HttpConnection, Turn};
use crate::api::time::Boot;
use crate::net::buffered::Input;
use crate::net::http1::{self, Head, Parsed};
use crate::net::server::exchange::{Body, Content, Request, StreamedBody, Ticket};
use bytes::Bytes;
use std::time::Duration;

/// The size of a body above which a request has more time (`BODY_TIMEOUT`), in bytes.
const LARGE_BODY: usize = 128 * 1024;
/// The maximum time for a request with a large body, counted from its head.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum number of bytes that are discarded in one turn.
pub(super) const DISCARD_BUDGET: usize = 64 * 1024;

/// The result of `read_head`.
enum ReadStep {
    Wait,
    Close,
    Head(Head, Bytes),
    /// The body is not complete, and the content has not accepted the head yet.
    Body(Head),
    Refused(u16, &'static str),
    WrongMethod(&'static [&'static str]),
}

impl<S: StreamedBody> HttpConnection<S> {
    /// Reads a request and begins its response. Returns Some if the connection cannot continue now.
    pub(super) fn read_request(&mut self, turn: &mut Turn<'_, S>) -> Option<DriveOutcome> {
        let (now, listener) = (turn.now, self.listener);
        match self.read_head(turn.content, now) {
            ReadStep::Wait => return Some(DriveOutcome::Wait),
            ReadStep::Close => return Some(DriveOutcome::Close),
            ReadStep::Head(head, body) => {
                turn.last_ticket.0 += 1;
                self.answer(head, &body, turn);
                if matches!(self.state, ConnectionPhase::Pending { .. }) {
                    // Do not read ahead in this turn, so that a response given in it still reaches a client that has
                    // shut down its write side.
                    return Some(DriveOutcome::Again);
                }
            }
            ReadStep::Body(mut head) => {
                let certificate = self.stream.peer_certificate();
                let request = Request { ticket: Ticket(0), listener, head: &head, certificate, body: &Bytes::new() };
                match turn.content.refusal(&request) {
                    None => self.accepts_body = true,
                    Some(response) => {
                        head.keep_alive = false;
                        self.begin_answer(response, &head, now);
                    }
                }
            }
            ReadStep::Refused(status, why) => self.refuse(turn.content.failure(listener, status, why), now),
            ReadStep::WrongMethod(allow) => {
                let mut response = turn.content.failure(listener, 405, &format!("only {}", allow.join(" and ")));
                response.headers.push(("Allow", allow.join(", ")));
                self.refuse(response, now);
            }
        }
        None
    }

    fn answer(&mut self, head: Head, body: &Bytes, turn: &mut Turn<'_, S>) {
        let (ticket, listener) = (*turn.last_ticket, self.listener);
        let certificate = self.stream.peer_certificate();
        let mut response = turn.content.answer(&Request { ticket, listener, head: &head, certificate, body });
        if matches!(&response.body, Body::Stream(body) if body.is_watch()) && turn.watches_left == 0 {
            response = turn.content.failure(listener, 503, "too many watches");
        }
        (self.large, self.accepts_body, self.until) = (false, false, response.until);
        if matches!(response.body, Body::Later) {
            self.deadline = None;
            self.state = ConnectionPhase::Pending { ticket, head };
            return;
        }
        self.begin_answer(response, &head, turn.now);
    }

    /// Reads until a request is complete or there is no more input.
    fn read_head(&mut self, content: &dyn Content<Stream = S>, now: Boot) -> ReadStep {
        // The maximum length of the head, and of head and body once their lengths are known.
        let mut most = http1::MAX_HEAD;
        loop {
            if !self.input.is_empty() {
                match http1::parse(&self.input, |path| content.accepts(self.listener, path)) {
                    Parsed::Partial => {}
                    Parsed::Refused(status, why) => return ReadStep::Refused(status, why),
                    Parsed::WrongMethod(allow) => return ReadStep::WrongMethod(allow),
                    Parsed::Head(head) if self.input.len() >= head.length + head.body => return self.complete(head),
                    Parsed::Head(head) if !self.accepts_body => return ReadStep::Body(head),
                    Parsed::Head(head) => {
                        most = head.length + head.body;
                        if head.body > LARGE_BODY && !self.large {
                            self.large = true;
                            self.deadline = Some(now + BODY_TIMEOUT);
                        }
                    }
                }
            }
            if self.end_of_input && self.input.is_empty() {
                return ReadStep::Close;
            }
            if self.end_of_input {
                return ReadStep::Refused(400, "the request is incomplete");
            }
            if let Some(step) = self.read_more(most, now) {
                return step;
            }
        }
    }

    /// Takes a complete request out of the input.
    fn complete(&mut self, head: Head) -> ReadStep {
        let end = head.length + head.body;
        let body = Bytes::copy_from_slice(&self.input[head.length..end]);
        if end == self.input.len() {
            self.input = Vec::new();
        } else {
            self.input.drain(..end);
        }
        ReadStep::Head(head, body)
    }

    /// Reads once, up to a total of `most` bytes of input. Returns Some if nothing more can be read now.
    fn read_more(&mut self, most: usize, now: Boot) -> Option<ReadStep> {
        let mut buffer = [0; http1::MAX_HEAD];
        let room = most.saturating_sub(self.input.len()).min(buffer.len());
        match self.stream.read(&mut buffer[..room]) {
            Input::End => self.end_of_input = true,
            Input::Bytes(n) => {
                self.progress = now;
                if self.input.is_empty() && self.answered {
                    self.deadline = Some(now + HEAD_TIMEOUT);
                }
                self.input.extend_from_slice(&buffer[..n]);
            }
            Input::Blocked => return Some(ReadStep::Wait),
            Input::Broken => return Some(ReadStep::Close),
        }
        None
    }

    /// Reads while a response is deferred, to buffer the next request and to detect that the client has disconnected.
    pub(super) fn read_ahead(&mut self) {
        let mut buffer = [0; 1024];
        while self.input.len() < http1::MAX_HEAD {
            let room = (http1::MAX_HEAD - self.input.len()).min(buffer.len());
            match self.stream.read(&mut buffer[..room]) {
                Input::Bytes(n) => self.input.extend_from_slice(&buffer[..n]),
                Input::Blocked => return,
                Input::End | Input::Broken => {
                    self.end_of_input = true;
                    return;
                }
            }
        }
    }

    /// Discards further input of a refused client. `before` is the number of bytes discarded so far.
    pub(super) fn drain(&mut self, before: usize) -> DriveOutcome {
        match self.stream.discard(DISCARD_BUDGET) {
            Some(n) if before + n < self.rules.drain.0 => {
                self.state = ConnectionPhase::Draining { bytes: before + n };
                if n < DISCARD_BUDGET { DriveOutcome::Wait } else { DriveOutcome::Again }
            }
            _ => DriveOutcome::Close,
        }
    }
}
