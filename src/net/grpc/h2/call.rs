//! One call on a connection: passes the whole request to `h2` and assembles the answer.

use crate::api::time::Boot;
use crate::net::grpc::wire::{self, Deframer};
use crate::net::grpc::{Call, CallError, CallId, Completion};
use crate::net::http2::link::{Link, TOO_MANY_INFORMATIONAL, informational_responses};
use crate::net::http2::wake::CallWaker;
use ::h2::client::ResponseFuture;
use ::h2::{Reason, RecvStream, SendStream};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, TE, USER_AGENT};
use http::{Method, Request, StatusCode, Version};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// The authority of every request. containerd's server refuses the path of the socket as an authority.
const AUTHORITY: &str = "http://localhost";

/// The deadline that is sent to the peer is this much later than ours, so that ours always ends the call. The peer's
/// deadline matters only while this process is stopped or the machine is suspended.
const PEER_GRACE: Duration = Duration::from_secs(2);

pub struct Active {
    id: CallId,
    pub deadline: Option<Boot>,
    path: &'static str,
    server_stream: bool,
    most: usize,
    /// Used only to reset the stream; the request itself was passed to `h2`.
    request: SendStream<Bytes>,
    answer: ResponseState,
    waker: Arc<CallWaker<CallId>>,
    /// Bytes that the connection had written before this call. If the number does not grow, no byte of the call was
    /// sent.
    written_before: u64,
}

enum ResponseState {
    /// Waiting for the headers of the response, with the number of informational responses so far.
    Headers(ResponseFuture, usize),
    Body {
        stream: RecvStream,
        deframer: Deframer,
        message: Option<Bytes>,
    },
}

/// Passes the request to `h2`, which buffers the part that exceeds the peer's flow-control windows.
pub fn start(link: &Link<CallId>, id: CallId, call: Call, now: Boot) -> Result<Active, CallError> {
    let written_before = link.written();
    let body = wire::frame(&call.body).map_err(CallError::Refused)?;
    let mut request = Request::builder()
        .method(Method::POST)
        .version(Version::HTTP_2)
        .uri(format!("{AUTHORITY}{}", call.path))
        .header(CONTENT_TYPE, "application/grpc")
        .header(TE, "trailers");
    let own = call.header.filter(|(name, _)| *name == USER_AGENT.as_str()).map(|(_, value)| value);
    request = request.header(USER_AGENT, own.unwrap_or(concat!("wherry/", env!("CARGO_PKG_VERSION"))));
    if let Some((name, value)) = call.header.filter(|_| own.is_none()) {
        request = request.header(name, value);
    }
    if let Some(deadline) = call.deadline {
        request = request.header("grpc-timeout", timeout(deadline.since(now) + PEER_GRACE));
    }
    let request = request.body(()).map_err(|e| CallError::Refused(format!("{}: {e}", call.path)))?;
    let (headers, mut stream) =
        link.handle().send_request(request, false).map_err(|e| CallError::NotSent(e.to_string()))?;
    // The first poll registers the waker.
    let waker = link.waker(id);
    if let Err(e) = stream.send_data(body, true) {
        stream.send_reset(Reason::CANCEL);
        return Err(CallError::Unknown(format!("{}: {e}", call.path)));
    }
    Ok(Active {
        id,
        deadline: call.deadline,
        path: call.path,
        server_stream: call.server_stream,
        most: call.most,
        request: stream,
        answer: ResponseState::Headers(headers, 0),
        waker,
        written_before,
    })
}

impl Active {
    pub fn poll(&mut self, out: &mut Vec<Completion>) -> Poll<Result<Bytes, CallError>> {
        self.waker.reset();
        let waker = self.waker.waker();
        let result = ready!(self.poll_answer(&mut Context::from_waker(&waker), out));
        if result.is_err() {
            // This has no effect if the peer ended the stream.
            self.request.send_reset(Reason::CANCEL);
        }
        Poll::Ready(result)
    }

    /// Resets the stream.
    pub fn reset(&mut self) {
        self.request.send_reset(Reason::CANCEL);
    }

    pub fn path(&self) -> &'static str {
        self.path
    }

    /// Returns the error for a call whose connection ended before the answer was complete.
    pub fn lost(&self, why: &str, written: u64) -> CallError {
        let what = format!("{}: {why}", self.path);
        if written == self.written_before { CallError::NotSent(what) } else { CallError::Unknown(what) }
    }

    fn poll_answer(&mut self, cx: &mut Context<'_>, out: &mut Vec<Completion>) -> Poll<Result<Bytes, CallError>> {
        if let ResponseState::Headers(headers, informational) = &mut self.answer {
            if !informational_responses(headers, informational, cx) {
                return Poll::Ready(Err(CallError::Unknown(format!("{}: {TOO_MANY_INFORMATIONAL}", self.path))));
            }
            let response = match ready!(Pin::new(headers).poll(cx)) {
                Ok(response) => response,
                Err(e) => return Poll::Ready(Err(failed(self.path, &e))),
            };
            if response.body().is_end_stream() {
                // An answer without a message has its trailers in the headers.
                let status = wire::status(response.headers());
                let result = status.unwrap_or_else(|| Err(self.without_status(response.status())));
                return Poll::Ready(result.and_then(|()| self.complete(None)));
            }
            if response.status() != StatusCode::OK {
                return Poll::Ready(Err(wire::http_status(response.status())));
            }
            if let Some(other) = wire::other_content(response.headers()) {
                let why = format!("{}: the content type of the response is {other}, not application/grpc", self.path);
                return Poll::Ready(Err(CallError::Unknown(why)));
            }
            let stream = response.into_body();
            self.answer = ResponseState::Body { stream, deframer: Deframer::new(self.most), message: None };
        }
        self.poll_body(cx, out)
    }

    fn poll_body(&mut self, cx: &mut Context<'_>, out: &mut Vec<Completion>) -> Poll<Result<Bytes, CallError>> {
        let ResponseState::Body { stream, deframer, message } = &mut self.answer else { return Poll::Pending };
        let (id, server_stream) = (self.id, self.server_stream);
        while let Some(data) = ready!(stream.poll_data(cx)) {
            let bytes = match data {
                Ok(bytes) => bytes,
                Err(e) => return Poll::Ready(Err(failed(self.path, &e))),
            };
            let taken = stream.flow_control().release_capacity(bytes.len());
            let mut messages = 0;
            let pushed = deframer.push(bytes, &mut |complete| {
                if server_stream {
                    out.push(Completion::Message { id, message: complete });
                } else {
                    messages += 1 + usize::from(message.is_some());
                    *message = Some(complete);
                }
            });
            let pushed = pushed.and_then(|()| match (messages, taken) {
                (..=1, Ok(())) => Ok(()),
                (..=1, Err(e)) => Err(e.to_string()),
                _ => Err("more than one message in the response".to_string()),
            });
            if let Err(why) = pushed {
                return Poll::Ready(Err(CallError::Unknown(format!("{}: {why}", self.path))));
            }
        }
        let trailers = match ready!(stream.poll_trailers(cx)) {
            Ok(trailers) => trailers.unwrap_or_default(),
            Err(e) => return Poll::Ready(Err(failed(self.path, &e))),
        };
        let partial = deframer.is_partial();
        let message = message.take();
        Poll::Ready(match wire::status(&trailers) {
            Some(Ok(())) if partial => {
                Err(CallError::Unknown(format!("{}: the response ends in the middle of a message", self.path)))
            }
            Some(Ok(())) => self.complete(message),
            Some(Err(status)) => Err(status),
            None => Err(self.without_status(StatusCode::OK)),
        })
    }

    fn complete(&self, message: Option<Bytes>) -> Result<Bytes, CallError> {
        match message {
            Some(message) => Ok(message),
            None if self.server_stream => Ok(Bytes::new()),
            None => Err(CallError::Unknown(format!("{}: the response has no message", self.path))),
        }
    }

    fn without_status(&self, status: StatusCode) -> CallError {
        if status == StatusCode::OK {
            CallError::Unknown(format!("{}: the response has no grpc-status", self.path))
        } else {
            wire::http_status(status)
        }
    }
}

/// Converts the error of a stream. A refused stream, or a stream above the last id of a GOAWAY, was definitely not
/// processed.
fn failed(path: &str, error: &::h2::Error) -> CallError {
    let refused = error.is_reset() && error.is_remote() && error.reason() == Some(Reason::REFUSED_STREAM);
    let above_last_id = error.is_go_away() && error.is_remote();
    let what = format!("{path}: {error}");
    match (refused, above_last_id) {
        (true, _) => CallError::Refused(what),
        (_, true) => CallError::NotSent(what),
        _ => CallError::Unknown(what),
    }
}

/// Formats a `grpc-timeout`, which has at most eight digits and a unit.
fn timeout(left: Duration) -> String {
    let ms = left.as_millis();
    if ms < 100_000_000 { format!("{ms}m") } else { format!("{}S", left.as_secs().min(99_999_999)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_has_at_most_eight_digits() {
        assert_eq!(timeout(Duration::from_millis(1500)), "1500m");
        assert_eq!(timeout(Duration::from_secs(100_000)), "100000S");
        assert_eq!(timeout(Duration::MAX), "99999999S");
    }
}
