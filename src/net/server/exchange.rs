//! What the server and its content exchange: requests, responses, and the pieces of a streamed body.

use crate::api::time::Boot;
use crate::net::http1::{Accepts, Head};
use crate::net::server::listeners::ListenerId;
use crate::net::tls::server::Acceptor;
use bytes::Bytes;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

pub const TEXT: &str = "text/plain; charset=utf-8";
pub const JSON: &str = "application/json";

/// The id of a request, for a deferred response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// A request with a method that its path accepts.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub ticket: Ticket,
    pub listener: ListenerId,
    pub head: &'a Head,
    /// The client's certificate in DER. TLS has verified it at the start of the connection.
    pub certificate: Option<&'a [u8]>,
    /// The body. It is empty before it has arrived.
    pub body: &'a Bytes,
}

/// The body of a response. `S` is the type of the content's streamed bodies.
#[derive(Debug)]
pub enum Body<S> {
    Full(Bytes),
    /// Produced piece by piece (`Content::next`), as fast as the client reads.
    Stream(S),
    /// The connection is passed to this server, whose response the client gets.
    Upgrade(Upstream),
    /// Deferred: `Server::answer` provides the complete response later. A client that closes its side in the meantime
    /// is treated as disconnected.
    Later,
}

#[derive(Debug)]
pub struct Response<S> {
    pub status: u16,
    pub content_type: &'static str,
    /// Additional header fields.
    pub headers: Vec<(&'static str, String)>,
    pub body: Body<S>,
    /// The expiry of the client's certificate. A body that is still being streamed, or an upgraded connection, is
    /// closed then. For a deferred response, the time given with `Body::Later` applies.
    pub until: Option<Boot>,
}

impl<S> Response<S> {
    pub fn new(status: u16, content_type: &'static str, body: Body<S>) -> Response<S> {
        Response { status, content_type, headers: Vec::new(), body, until: None }
    }

    pub fn text(status: u16, body: impl Into<String>) -> Response<S> {
        Response::new(status, TEXT, Body::Full(Bytes::from(body.into())))
    }

    pub fn json(body: Vec<u8>) -> Response<S> {
        Response::new(200, JSON, Body::Full(Bytes::from(body)))
    }

    /// Returns a deferred response, which `Server::answer` provides later.
    pub fn later() -> Response<S> {
        Response::new(200, TEXT, Body::Later)
    }

    /// Returns a response in the Prometheus text format.
    pub fn metrics(body: Vec<u8>) -> Response<S> {
        let content_type = "text/plain; version=0.0.4; charset=utf-8";
        Response::new(200, content_type, Body::Full(Bytes::from(body)))
    }
}

/// A server to which a client's connection is passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// The name of the server in errors, with its article.
    pub name: &'static str,
    pub address: SocketAddr,
    /// The head of the request for that server.
    pub request: Vec<u8>,
}

/// The state of a streamed body after a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    More,
    /// There is no more data now. `Server::wake`, the body's source or its deadline continues it.
    Wait,
    End,
}

/// A body that is produced piece by piece. It is a position in the content's data and not a queue: a slow client
/// costs no memory, and gets the newest state when it continues to read.
pub trait StreamedBody {
    /// Reports whether the body waits for changes. A listener limits the number of such bodies.
    fn is_watch(&self) -> bool;

    /// Returns the time at which the body continues or ends, even without a change.
    fn next_deadline(&self) -> Option<Boot> {
        None
    }

    /// Returns a descriptor whose input lets the body continue.
    fn source(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Produces the responses.
pub trait Content {
    type Stream: StreamedBody;

    /// Returns what the listener accepts for a path.
    fn accepts(&self, listener: ListenerId, path: &str) -> Accepts;

    /// Answers a complete request.
    fn answer(&mut self, request: &Request<'_>) -> Response<Self::Stream>;

    /// Appends the next piece of a body, a few KiB. The content can change between two pieces. A piece can be empty.
    fn next(&mut self, body: &mut Self::Stream, out: &mut Vec<u8>) -> Part;

    /// Returns the response to a request that is refused regardless of its body. The server calls this before it
    /// reads a body that has not arrived with the head.
    fn refusal(&mut self, _request: &Request<'_>) -> Option<Response<Self::Stream>> {
        None
    }

    /// Returns the response to a request that the server itself refuses.
    fn failure(&self, _listener: ListenerId, status: u16, why: &str) -> Response<Self::Stream> {
        Response::text(status, format!("{why}\n"))
    }

    /// Notes that the client of a deferred request has disconnected, so its response is no longer needed.
    fn gone(&mut self, _ticket: Ticket) {}

    /// Returns the acceptor for TLS connections of this listener, with the current certificate. Without one, they are
    /// closed.
    fn acceptor(&self, _listener: ListenerId) -> Option<Acceptor> {
        None
    }
}
