//! The server side of gRPC: calls with one request and one answer, on one connection. As in the client, the futures
//! of `h2` are polled directly, without an executor.

use super::wire::{self, Deframer};
use crate::net::http2::socket::{Gauge, Socket};
use crate::net::stream::Stream;
use ::h2::RecvStream;
use ::h2::server::{self, Handshake, SendResponse};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response};
use mio::{Registry, Token};
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// Maximum number of concurrent calls on one connection.
const MAX_CALLS: u32 = 8;
/// Maximum size of a request's headers, in bytes.
const MAX_HEADERS: u32 = 16 << 10;
/// Maximum size of a request, in bytes.
const MAX_REQUEST: usize = 16 << 10;
/// The maximum number of bytes that one drive reads. A client that has sent more is disconnected, because the
/// requests of this interface are small.
const BUDGET: usize = 64 << 10;

/// A complete request. The client waits for the answer.
pub struct GrpcRequest {
    pub id: u64,
    /// The path of the method, for example `/v1beta1.Registration/Register`.
    pub path: String,
    pub body: Bytes,
}

/// A gRPC status other than OK.
pub struct ErrorStatus {
    pub code: u32,
    pub message: String,
}

pub struct ServerConnection {
    gauge: Gauge,
    link: ServerLink,
    reading: Vec<PartialRequest>,
    answering: BTreeMap<u64, SendResponse<Bytes>>,
    last_id: u64,
}

enum ServerLink {
    Handshake(Pin<Box<Handshake<Socket, Bytes>>>),
    Open(Box<server::Connection<Socket, Bytes>>),
}

/// A request whose body is not complete.
struct PartialRequest {
    path: String,
    body: RecvStream,
    deframer: Deframer,
    message: Option<Bytes>,
    respond: SendResponse<Bytes>,
}

impl ServerConnection {
    /// Creates the server side of a connection. `stream` is already registered under the token.
    ///
    /// # Errors
    /// The registry cannot be cloned.
    pub fn new(stream: Stream, registry: &Registry, token: Token) -> io::Result<ServerConnection> {
        let (socket, gauge) = Socket::on(stream, registry, token)?;
        let handshake = server::Builder::new()
            .max_concurrent_streams(MAX_CALLS)
            .max_header_list_size(MAX_HEADERS)
            .handshake::<Socket, Bytes>(socket);
        let link = ServerLink::Handshake(Box::pin(handshake));
        Ok(ServerConnection { gauge, link, reading: Vec::new(), answering: BTreeMap::new(), last_id: 0 })
    }

    /// Reads and writes what is possible, and appends the complete requests. Returns false if the connection is over.
    pub fn drive(&mut self, out: &mut Vec<GrpcRequest>) -> bool {
        self.gauge.begin();
        self.gauge.slice(BUDGET);
        let mut cx = Context::from_waker(Waker::noop());
        loop {
            match &mut self.link {
                ServerLink::Handshake(handshake) => match handshake.as_mut().poll(&mut cx) {
                    Poll::Ready(Ok(connection)) => self.link = ServerLink::Open(Box::new(connection)),
                    Poll::Ready(Err(_)) => return false,
                    Poll::Pending => return !self.gauge.stopped(),
                },
                ServerLink::Open(connection) => {
                    loop {
                        match connection.poll_accept(&mut cx) {
                            Poll::Ready(Some(Ok((request, respond)))) => {
                                let path = request.uri().path().to_owned();
                                let (body, deframer) = (request.into_body(), Deframer::new(MAX_REQUEST));
                                self.reading.push(PartialRequest { path, body, deframer, message: None, respond });
                            }
                            Poll::Ready(Some(Err(_)) | None) => return false,
                            Poll::Pending => break,
                        }
                    }
                    if !self.read_bodies(&mut cx, out) {
                        return !self.gauge.stopped();
                    }
                }
            }
        }
    }

    /// Reads the bodies of incomplete requests. Returns true if anything was read; the connection must then
    /// acknowledge it.
    fn read_bodies(&mut self, cx: &mut Context<'_>, out: &mut Vec<GrpcRequest>) -> bool {
        let mut any = false;
        for mut reading in std::mem::take(&mut self.reading) {
            match reading.advance(cx, &mut any) {
                Poll::Pending => self.reading.push(reading),
                Poll::Ready(Some(body)) => {
                    self.last_id += 1;
                    self.answering.insert(self.last_id, reading.respond);
                    out.push(GrpcRequest { id: self.last_id, path: reading.path, body });
                }
                Poll::Ready(None) => {}
            }
        }
        any
    }

    /// Answers a request. Has no effect if the client is gone. The caller must then call `drive`, which sends the
    /// answer.
    pub fn answer(&mut self, id: u64, result: Result<Bytes, ErrorStatus>) {
        let Some(mut respond) = self.answering.remove(&id) else { return };
        // An error means that the client has reset the stream.
        let _ = send(&mut respond, result);
    }
}

impl PartialRequest {
    /// Reads more of the request. Returns the message once the request is complete, or None if the request is broken.
    fn advance(&mut self, cx: &mut Context<'_>, any: &mut bool) -> Poll<Option<Bytes>> {
        while let Poll::Ready(data) = self.body.poll_data(cx) {
            *any = true;
            match data {
                Some(Ok(bytes)) => {
                    let count = bytes.len();
                    let message = &mut self.message;
                    let read = self.deframer.push(bytes, &mut |m| *message = Some(m));
                    if read.is_err() || self.body.flow_control().release_capacity(count).is_err() {
                        return Poll::Ready(None);
                    }
                }
                Some(Err(_)) => return Poll::Ready(None),
                None => return Poll::Ready(self.message.take()),
            }
        }
        Poll::Pending
    }
}

fn send(respond: &mut SendResponse<Bytes>, result: Result<Bytes, ErrorStatus>) -> Result<(), ::h2::Error> {
    let mut head = Response::new(());
    head.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    match result.map(|body| wire::frame(&body)) {
        Ok(Ok(body)) => {
            let mut stream = respond.send_response(head, false)?;
            stream.send_data(body, false)?;
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", 0.into());
            stream.send_trailers(trailers)
        }
        Ok(Err(message)) => refuse(respond, head, &ErrorStatus { code: 8, message }),
        Err(refusal) => refuse(respond, head, &refusal),
    }
}

fn refuse(respond: &mut SendResponse<Bytes>, mut head: Response<()>, refusal: &ErrorStatus) -> Result<(), ::h2::Error> {
    let headers = head.headers_mut();
    headers.insert("grpc-status", refusal.code.into());
    if let Ok(message) = HeaderValue::from_str(&wire::percent_encode(&refusal.message)) {
        headers.insert("grpc-message", message);
    }
    respond.send_response(head, true).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::time::Boot;
    use crate::net::grpc::h2::connection::{GrpcConnection, Health};
    use crate::net::grpc::{Call, CallError, CallId, Completion};
    use mio::net::UnixStream;
    use mio::{Interest, Poll as MioPoll};
    use std::io::Write;

    fn pair(poll: &MioPoll) -> (Stream, Stream) {
        let (mut a, mut b) = UnixStream::pair().unwrap();
        poll.registry().register(&mut a, Token(1), Interest::READABLE).unwrap();
        poll.registry().register(&mut b, Token(2), Interest::READABLE).unwrap();
        (Stream::Unix(a), Stream::Unix(b))
    }

    /// Makes one call, which the server answers with `answer`.
    fn call(body: Vec<u8>, answer: impl Fn(&GrpcRequest) -> Result<Bytes, ErrorStatus>) -> Result<Bytes, CallError> {
        let poll = MioPoll::new().unwrap();
        let (ours, theirs) = pair(&poll);
        let mut server = ServerConnection::new(ours, poll.registry(), Token(1)).unwrap();
        let mut client = GrpcConnection::on(theirs, poll.registry(), Token(2)).unwrap();
        let call =
            Call { path: "/a.B/C", body: body.into(), deadline: None, server_stream: false, header: None, most: 1024 };
        client.start(CallId(0), call, Boot(0)).unwrap();
        let mut out = Vec::new();
        for _ in 0..50 {
            let health = client.drive(true, &mut out);
            if let Some(Completion::Done { result, .. }) = out.pop() {
                return result;
            }
            assert!(matches!(health, Health::Good { .. }), "{health:?}");
            let mut requests = Vec::new();
            assert!(server.drive(&mut requests));
            for request in requests {
                server.answer(request.id, answer(&request));
                assert!(server.drive(&mut Vec::new()));
            }
        }
        panic!("no answer");
    }

    #[test]
    fn a_call_gets_its_answer() {
        let answer = call(b"hello".to_vec(), |request| {
            assert_eq!((request.path.as_str(), &request.body[..]), ("/a.B/C", &b"hello"[..]));
            Ok(Bytes::from_static(b"you"))
        });
        assert_eq!(answer, Ok(Bytes::from_static(b"you")));
    }

    #[test]
    fn a_refusal_has_a_code_and_a_message() {
        let message = "100 % wrong: \u{e4}\n";
        let answer = call(Vec::new(), |_| Err(ErrorStatus { code: 3, message: message.into() }));
        assert_eq!(answer, Err(CallError::Status { code: 3, message: message.into() }));
    }

    #[test]
    fn a_client_that_is_no_http_2_client_is_disconnected() {
        let poll = MioPoll::new().unwrap();
        let (ours, mut theirs) = pair(&poll);
        let mut server = ServerConnection::new(ours, poll.registry(), Token(1)).unwrap();
        theirs.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut requests = Vec::new();
        let open = (0..5).all(|_| server.drive(&mut requests));
        assert!(!open && requests.is_empty());
    }

    #[test]
    fn a_client_that_floods_is_disconnected() {
        let poll = MioPoll::new().unwrap();
        let (ours, mut theirs) = pair(&poll);
        let mut server = ServerConnection::new(ours, poll.registry(), Token(1)).unwrap();
        theirs.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        // PING frames.
        let ping = [&[0, 0, 8, 6, 0, 0, 0, 0, 0][..], &[0; 8]].concat();
        let flood = ping.repeat(6000);
        let _ = theirs.write(&flood);
        assert!(!server.drive(&mut Vec::new()));
    }
}
