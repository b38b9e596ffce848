//! One call on a connection: passes the whole request to `h2`, and passes the answer on as it arrives.

use super::event::Event;
use super::peer::Peer;
use super::request::{CallError, CallId, Request};
use crate::api::time::Boot;
use crate::net::http2::link::{Link, TOO_MANY_INFORMATIONAL, informational_responses};
use crate::net::http2::wake::CallWaker;
use ::h2::client::ResponseFuture;
use ::h2::{Reason, RecvStream, SendStream};
use bytes::Bytes;
use http::Version;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

pub(super) struct Active {
    id: CallId,
    pub(super) deadline: Option<Boot>,
    /// Method and path, for errors.
    name: String,
    /// Used only to reset the stream; the request itself was passed to `h2`.
    request: SendStream<Bytes>,
    answer: ResponseState,
    waker: Arc<CallWaker<CallId>>,
    /// Bytes that the connection had written before this call. If the number does not grow, no byte of the call was
    /// sent.
    written_before: u64,
}

enum ResponseState {
    /// Waiting for the head of the response, with the number of informational responses so far.
    Head(ResponseFuture, usize),
    Body(RecvStream),
}

/// The reason why an answer is incomplete.
enum Fault {
    Stream(::h2::Error),
    Informational,
}

impl From<::h2::Error> for Fault {
    fn from(error: ::h2::Error) -> Fault {
        Fault::Stream(error)
    }
}

/// Passes the request to `h2`, which buffers the part that exceeds the server's flow-control windows.
pub(super) fn start(link: &Link<CallId>, peer: &Peer, id: CallId, request: Request) -> Result<Active, CallError> {
    let (written_before, name, deadline) = (link.written(), request.name(), request.deadline);
    let unsent = |e: String| CallError::NotSent(format!("{name}: {e}"));
    let uri = format!("{peer}{}", request.target);
    let mut head = http::Request::builder().method(request.method).version(Version::HTTP_2).uri(uri);
    if let Some(headers) = head.headers_mut() {
        *headers = request.headers;
    }
    let head = head.body(()).map_err(|e| unsent(e.to_string()))?;
    let end = request.body.is_empty();
    let (answer, mut stream) = link.handle().send_request(head, end).map_err(|e| unsent(e.to_string()))?;
    // The first poll registers the waker.
    let waker = link.waker(id);
    if !end && let Err(e) = stream.send_data(request.body, true) {
        stream.send_reset(Reason::CANCEL);
        return Err(CallError::Unknown(format!("{name}: {e}")));
    }
    Ok(Active { id, deadline, name, request: stream, answer: ResponseState::Head(answer, 0), waker, written_before })
}

impl Active {
    pub(super) fn poll(&mut self, out: &mut Vec<Event>) -> Poll<Result<(), CallError>> {
        self.waker.reset();
        let waker = self.waker.waker();
        let result = ready!(self.poll_answer(&mut Context::from_waker(&waker), out));
        if result.is_err() {
            self.reset();
        }
        Poll::Ready(result.map_err(|e| self.failed(&e)))
    }

    /// Resets the stream. Has no effect if the server has ended it.
    pub(super) fn reset(&mut self) {
        self.request.send_reset(Reason::CANCEL);
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the error for a call whose connection ended before the answer was complete.
    pub(super) fn lost(&self, why: &str, written: u64) -> CallError {
        let what = format!("{}: {why}", self.name);
        if written == self.written_before { CallError::NotSent(what) } else { CallError::Unknown(what) }
    }

    fn poll_answer(&mut self, cx: &mut Context<'_>, out: &mut Vec<Event>) -> Poll<Result<(), Fault>> {
        loop {
            match &mut self.answer {
                ResponseState::Head(head, informational) => {
                    if !informational_responses(head, informational, cx) {
                        return Poll::Ready(Err(Fault::Informational));
                    }
                    let (head, body) = ready!(Pin::new(head).poll(cx))?.into_parts();
                    out.push(Event::Head { id: self.id, status: head.status, headers: head.headers });
                    self.answer = ResponseState::Body(body);
                }
                ResponseState::Body(body) => match ready!(body.poll_data(cx)) {
                    Some(bytes) => {
                        let bytes = bytes?;
                        body.flow_control().release_capacity(bytes.len())?;
                        if !bytes.is_empty() {
                            out.push(Event::Body { id: self.id, bytes });
                        }
                    }
                    // Trailers are ignored.
                    None => return Poll::Ready(Ok(())),
                },
            }
        }
    }

    /// Converts the error of a stream. A refused stream, or a stream above the last id of a GOAWAY, was definitely
    /// not processed.
    fn failed(&self, fault: &Fault) -> CallError {
        let error = match fault {
            Fault::Stream(error) => error,
            Fault::Informational => return CallError::Unknown(format!("{}: {TOO_MANY_INFORMATIONAL}", self.name)),
        };
        let refused = error.is_reset() && error.is_remote() && error.reason() == Some(Reason::REFUSED_STREAM);
        let above_last_id = error.is_go_away() && error.is_remote();
        let what = format!("{}: {error}", self.name);
        if refused || above_last_id { CallError::NotSent(what) } else { CallError::Unknown(what) }
    }
}
